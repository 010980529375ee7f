//! Comparisons: the ratio of each cell to the reference, and the results of each engine over all comparisons.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::analysis::metrics::{Direction, Metric};
use crate::report::tables::{Group, Ratio, RatioOrReason, RatioVerdict, ReportCell};
use crate::results::record::validity::Verdict;

/// A mean over cells is given only if the engines share at least this part of them.
const MIN_COVERAGE: f64 = 0.8;

/// The cells of one model and scenario, compared with the reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ComparisonTable {
    /// Model and scenario, as one text.
    pub(crate) title: String,
    /// Name in the matrix of the engine that ratios refer to.
    pub(crate) reference: String,
    /// Name of the figure that ratios are computed from.
    pub(crate) figure: String,
    /// The compared cells, one per row.
    pub(crate) rows: Vec<ComparisonRow>,
}

/// A cell in a comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct ComparisonRow {
    /// Index of the cell among the cells of the report, from 0.
    pub(crate) cell: usize,
    /// Name of the cell, unique within the comparison.
    pub(crate) name: String,
    /// Ratio to the reference; absent if the cell is not done or not comparable with the reference.
    pub(crate) ratio: Option<RatioFacts>,
    /// Reasons why there is no ratio; empty if there is a ratio or the cell is not done.
    pub(crate) no_ratio: Vec<String>,
    /// Differences from the reference that qualify the ratio.
    pub(crate) differences: Vec<String>,
    /// Ratio of throughput per GPU; present only if there is no other ratio because the numbers of GPUs differ.
    pub(crate) ratio_per_gpu: Option<f64>,
    /// Whether it is better than every other cell of the comparison, by the decision rule of `matrix compare`.
    pub(crate) is_best: bool,
}

/// A ratio to the reference.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct RatioFacts {
    /// Ratio of the geometric means over starts.
    pub(crate) value: f64,
    /// Lower end of the 95 % confidence interval; absent if one side has a single start.
    pub(crate) least: Option<f64>,
    /// Upper end of the 95 % confidence interval; absent if one side has a single start.
    pub(crate) most: Option<f64>,
    /// Number of starts of the reference that count.
    pub(crate) reference_starts: usize,
    /// Number of starts of the cell that count.
    pub(crate) starts: usize,
    /// Verdict of the decision rule.
    pub(crate) standing: VersusReference,
    /// Reason for the verdict.
    pub(crate) reason: String,
}

/// Verdict on a cell compared with the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum VersusReference {
    /// The cell is the reference itself.
    Reference,
    /// Better: the difference is significant and exceeds the practical bound.
    Better,
    /// Worse: the difference is significant and exceeds the practical bound.
    Worse,
    /// The difference is within the practical bound.
    Same,
    /// The starts do not decide it.
    Unclear,
    /// Not judged: too few starts, differences besides the engine, or the better cell is suspect.
    NotJudged,
}

/// Results of one engine against the reference over all comparisons.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ranking {
    /// Engine with its version, and with the run if the report has several.
    pub(crate) engine: String,
    /// Number of cells that have a ratio to another cell.
    pub(crate) compared: usize,
    /// Mean ratio to the reference over the comparisons that all engines share; absent if it would mislead.
    pub(crate) mean: Option<MeanFacts>,
    /// Number of cells that are better.
    pub(crate) wins: usize,
    /// Number of cells that are worse.
    pub(crate) losses: usize,
    /// Number of cells that are the same within the bound.
    pub(crate) same: usize,
    /// Number of cells on which the starts do not decide.
    pub(crate) unclear: usize,
    /// Number of cells that are not judged: too few starts, differences besides the engine, or the better cell
    /// is suspect.
    pub(crate) not_judged: usize,
    /// Number of cells without a ratio: not done, or not comparable with the reference.
    pub(crate) refused: usize,
    /// Number of cells that are the reference themselves.
    pub(crate) reference: usize,
}

/// Mean of ratios. Ratios of figures for which lower is better are inverted, so that above 1 means better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct MeanFacts {
    /// Geometric mean of the ratios.
    pub(crate) value: f64,
    /// Smallest of the ratios.
    pub(crate) least: f64,
    /// Largest of the ratios.
    pub(crate) most: f64,
}

pub(super) fn comparisons(report_cells: &[ReportCell<'_>], groups: &[Group<'_, '_>]) -> Vec<ComparisonTable> {
    let place = |compared: &ReportCell<'_>| {
        let same = report_cells
            .iter()
            .position(|candidate| std::ptr::eq(candidate, compared));
        same.expect("groups hold the cells that they were made of")
    };
    let comparison = |group: &Group<'_, '_>| {
        let rows = group.rows.iter().zip(&group.names).enumerate();
        let rows = rows.map(|(at, (compared, name))| {
            let mut placed = ComparisonRow {
                cell: place(compared),
                name: name.clone(),
                ratio: None,
                no_ratio: Vec::new(),
                differences: Vec::new(),
                ratio_per_gpu: None,
                is_best: group.best == Some(at),
            };
            match &group.ratios[at] {
                _ if !compared.is_done() => {}
                RatioOrReason::Ratio(ratio, differences) => {
                    placed.ratio = Some(ratio_facts(ratio));
                    placed.differences.clone_from(differences);
                }
                RatioOrReason::Refused(failure_reason, ratio_per_gpu) => {
                    placed.no_ratio.clone_from(failure_reason);
                    placed.ratio_per_gpu = *ratio_per_gpu;
                }
            }
            placed
        });
        ComparisonTable {
            title: group.title.clone(),
            reference: group.reference.clone(),
            figure: group.metric().name(),
            rows: rows.collect(),
        }
    };
    groups.iter().map(comparison).collect()
}

fn ratio_facts(ratio: &Ratio) -> RatioFacts {
    let [reference_starts, starts] = ratio.starts;
    RatioFacts {
        value: ratio.value,
        least: ratio.interval.map(|[least, _]| least),
        most: ratio.interval.map(|[_, most]| most),
        reference_starts,
        starts,
        standing: match ratio.verdict {
            _ if ratio.is_reference => VersusReference::Reference,
            RatioVerdict::Better => VersusReference::Better,
            RatioVerdict::Worse => VersusReference::Worse,
            RatioVerdict::Same => VersusReference::Same,
            RatioVerdict::Unclear => VersusReference::Unclear,
            RatioVerdict::NotJudged => VersusReference::NotJudged,
        },
        reason: ratio.reason.clone(),
    }
}

/// The results of each engine, in the order of first appearance, and the note on the means.
pub(super) fn rankings(cells: &[ReportCell<'_>], comparisons: &[ComparisonTable]) -> (Vec<Ranking>, String) {
    let name = |ranked_cell: &ReportCell<'_>| match ranked_cell.run {
        "" => ranked_cell.engine(),
        run => format!("{} run={run}", ranked_cell.engine()),
    };
    let engines_of = |comparison: &ComparisonTable| -> BTreeSet<String> {
        comparison.rows.iter().map(|row| name(&cells[row.cell])).collect()
    };
    // An engine that shares no comparison with another one has no standing.
    let listed: BTreeSet<String> = comparisons
        .iter()
        .map(engines_of)
        .filter(|engines| engines.len() > 1)
        .flatten()
        .collect();
    let comparisons: Vec<&ComparisonTable> = comparisons
        .iter()
        .filter(|comparison| !engines_of(comparison).is_disjoint(&listed))
        .collect();
    let mut order: Vec<String> = Vec::new();
    let mut rows: BTreeMap<String, Vec<&ComparisonRow>> = BTreeMap::new();
    for row in comparisons.iter().flat_map(|comparison| &comparison.rows) {
        let name = name(&cells[row.cell]);
        if !listed.contains(&name) {
            continue;
        }
        if !order.contains(&name) {
            order.push(name.clone());
        }
        rows.entry(name).or_default().push(row);
    }
    let has_ratio = |comparison: &&ComparisonTable, engine: &String| {
        let own = comparison
            .rows
            .iter()
            .filter(|row| name(&cells[row.cell]) == *engine);
        own.into_iter().any(|row| row.ratio.is_some())
    };
    let shared: Vec<&ComparisonTable> = comparisons
        .iter()
        .copied()
        .filter(|comparison| order.iter().all(|engine| has_ratio(comparison, engine)))
        .collect();
    let count = format!(
        "all engines have a ratio in {} of {} rows",
        shared.len(),
        comparisons.len()
    );
    let no_mean = no_mean_reason(cells, &shared, comparisons.len());
    let standing = |engine: String| {
        let mean = no_mean
            .is_none()
            .then(|| mean_ratio(cells, &shared, &|ranked_cell| name(ranked_cell) == engine));
        Ranking {
            mean: mean.flatten(),
            ..ranking(&rows[&engine], engine)
        }
    };
    let note = match &no_mean {
        None => format!(
            "mean: geometric mean of the ratios, with minimum and maximum; above 1 is better than the reference; {count}"
        ),
        Some(why) => format!("the mean of the ratios is not shown: {count}{why}"),
    };
    (order.into_iter().map(standing).collect(), note)
}

/// Why a mean over these comparisons would mislead; `None` if it would not.
fn no_mean_reason(
    report_cells: &[ReportCell<'_>],
    shared: &[&ComparisonTable],
    total: usize,
) -> Option<String> {
    if (shared.len() as f64) < MIN_COVERAGE * total as f64 || shared.is_empty() {
        return Some(format!(", which is less than {:.0} %", MIN_COVERAGE * 100.0));
    }
    let rows = || shared.iter().flat_map(|comparison| &comparison.rows);
    let mut ratios = rows().filter_map(|row| row.ratio.as_ref());
    if ratios.any(|ratio| ratio.starts < 2 || ratio.reference_starts < 2) {
        return Some("; at least one of these rows has an engine with only one start".to_owned());
    }
    let is_flagged = |row: &&ComparisonRow| report_cells[row.cell].validity() > Verdict::Valid;
    let flagged = rows().filter(is_flagged).count();
    (flagged > 0).then(|| format!(", and {flagged} of the cells in these rows are suspect or invalid"))
}

/// Geometric mean of an engine's ratios over comparisons, each with the same weight and above 1 if the engine
/// is better.
fn mean_ratio(
    cells: &[ReportCell<'_>],
    shared: &[&ComparisonTable],
    is_own: &dyn Fn(&ReportCell<'_>) -> bool,
) -> Option<MeanFacts> {
    let logs: Vec<f64> = shared
        .iter()
        .filter_map(|comparison| {
            let metric = Metric::from_name(&comparison.figure)?;
            let own = comparison.rows.iter().filter(|row| is_own(&cells[row.cell]));
            let ratios = own.filter_map(|row| row.ratio.as_ref());
            let others =
                ratios.filter(|ratio| ratio.standing != VersusReference::Reference && ratio.value > 0.0);
            let logs: Vec<f64> = others.map(|ratio| ratio.value.ln()).collect();
            let mean = (!logs.is_empty()).then(|| logs.iter().sum::<f64>() / logs.len() as f64)?;
            Some(if metric.direction() == Some(Direction::Lower) {
                -mean
            } else {
                mean
            })
        })
        .collect();
    (!logs.is_empty()).then(|| MeanFacts {
        value: (logs.iter().sum::<f64>() / logs.len() as f64).exp(),
        least: logs.iter().copied().fold(f64::INFINITY, f64::min).exp(),
        most: logs.iter().copied().fold(f64::NEG_INFINITY, f64::max).exp(),
    })
}

fn ranking(rows: &[&ComparisonRow], engine: String) -> Ranking {
    let count = |wanted| {
        let all = rows.iter().filter_map(|row| row.ratio.as_ref());
        all.filter(|ratio| ratio.standing == wanted).count()
    };
    let ratios = rows.iter().filter(|row| row.ratio.is_some()).count();
    let reference = count(VersusReference::Reference);
    Ranking {
        engine,
        compared: ratios - reference,
        mean: None,
        wins: count(VersusReference::Better),
        losses: count(VersusReference::Worse),
        same: count(VersusReference::Same),
        unclear: count(VersusReference::Unclear),
        not_judged: count(VersusReference::NotJudged),
        refused: rows.len() - ratios,
        reference,
    }
}
