//! The tables that Markdown, HTML and the terminal draw, in the order of reading.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use super::comparisons::Ranking;
use super::legend;
use crate::report::table::{Align, Column, Mark, Row, Table, Value};
use crate::report::tables::{self, Group, ReportCell, latency_tables, short_names};
use crate::results::record::validity::{Reason, Verdict};

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReportTables {
    /// All engines side by side, a row for each model and scenario; `None` if no two engines share one.
    pub(crate) overview_matrix: Option<Table>,
    pub(crate) overview: Table,
    /// Results of each engine over all comparisons; `None` if there is only one engine.
    pub(crate) rankings: Option<Table>,
    /// Scores of graded answers; `None` if none were graded.
    pub(crate) answers: Option<Table>,
    /// Agreement of answers to greedy probes; `None` if none were sent.
    pub(crate) probes: Option<Table>,
    /// In the order of `Document::comparisons`.
    pub(crate) comparisons: Vec<CellTables>,
    /// Frontiers of searches for the best configuration.
    pub(crate) searches: Vec<Table>,
    /// Outputs between the loads that were measured, one table for each trade-off that has some.
    pub(crate) interpolations: Vec<Table>,
    /// Reasons that make measurements suspect or invalid; `None` if there are none.
    pub(crate) findings: Option<Table>,
    /// Reasons that change nothing; `None` if there are none.
    pub(crate) notes: Option<Table>,
    /// The meaning of marks and columns of all tables.
    pub(crate) legend: Vec<String>,
}

/// The two tables of one comparison.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CellTables {
    /// Throughput and the ratio.
    pub(crate) figures: Table,
    pub(crate) latencies: Table,
}

impl ReportTables {
    pub(super) fn build(
        cells: &[ReportCell<'_>],
        groups: &[Group<'_, '_>],
        standings: &[Ranking],
        of_means: String,
        bound: f64,
    ) -> Self {
        let compared = tables::comparison_tables(groups).into_iter();
        let across = tables::overview_matrix(groups);
        let mut tables = Self {
            overview_matrix: (!across.rows.is_empty()).then_some(across),
            overview: tables::overview(cells),
            rankings: (standings.len() > 1).then(|| ranking_table(standings, of_means, bound)),
            comparisons: compared
                .zip(latency_tables(groups))
                .map(|(figures, latencies)| CellTables { figures, latencies })
                .collect(),
            answers: tables::answer_table(cells),
            probes: tables::probe_table(cells),
            searches: Vec::new(),
            interpolations: Vec::new(),
            findings: reasons_table("Findings", cells, |weight| weight > Verdict::Valid),
            notes: reasons_table("Notes", cells, |weight| weight == Verdict::Valid),
            legend: Vec::new(),
        };
        tables.legend = legend::take_general_notes(tables.iter_mut());
        tables
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Table> {
        let compared = self.comparisons.iter_mut();
        let compared = compared.flat_map(|compared| [&mut compared.figures, &mut compared.latencies]);
        let first = self
            .overview_matrix
            .iter_mut()
            .chain(std::iter::once(&mut self.overview));
        first.chain(self.rankings.as_mut()).chain(compared)
    }
}

fn column(head: &str, align: Align, rank: u8) -> Column {
    Column {
        head: head.to_owned(),
        unit: "",
        align,
        better: None,
        rank,
    }
}

fn ranking_table(standings: &[Ranking], of_means: String, bound: f64) -> Table {
    let columns = vec![
        column("engine", Align::Left, 0),
        column("wins", Align::Right, 0),
        column("losses", Align::Right, 0),
        column("same", Align::Right, 0),
        column("unclear", Align::Right, 0),
        column("not judged", Align::Right, 0),
        column("no ratio", Align::Right, 1),
        column("is the reference", Align::Right, 2),
        column("mean", Align::Right, 0),
    ];
    let count = |count: usize| Value::Count(count as u64);
    let row = |ranking: &Ranking| Row {
        cells: vec![
            Value::text(&ranking.engine),
            count(ranking.wins),
            count(ranking.losses),
            count(ranking.same),
            count(ranking.unclear),
            count(ranking.not_judged),
            count(ranking.refused),
            count(ranking.reference),
            ranking.mean.map_or(Value::Missing, |mean| Value::Spread {
                median: mean.value,
                least: mean.least,
                most: mean.most,
                decimals: 2,
            }),
        ],
        marks: Vec::new(),
    };
    Table {
        title: "Engines against the reference".to_owned(),
        columns,
        rows: standings.iter().map(row).collect(),
        notes: vec![
            "the load of a row decides which metric is compared: latency for a fixed rate, the result for a search, otherwise throughput".to_owned(),
            format!(
                "wins and losses are differences that are significant among all pairs of this report and larger than {} %; a pair is \
                 not judged if a side has fewer than five starts, if more than the engine differs, or if the better side is suspect",
                (bound * 1e6).round() / 1e4
            ),
            of_means,
        ],
    }
}

/// A finding names at most this many cells, then the number of the rest.
const MAX_NAMED_CELLS: usize = 4;

/// The reasons of some weights with the cells that they concern, the worst first.
fn reasons_table(
    title: &str,
    cells: &[ReportCell<'_>],
    has_weight: impl Fn(Verdict) -> bool,
) -> Option<Table> {
    let columns = vec![
        column("finding", Align::Left, 0),
        column("weight", Align::Left, 0),
        column("what to do", Align::Left, 0),
        column("measurements", Align::Right, 1),
        column("measured", Align::Left, 2),
        column("bound", Align::Left, 3),
        column("cells", Align::Left, 1),
    ];
    let mut findings: BTreeMap<_, Vec<(String, &Reason)>> = BTreeMap::new();
    for (cell, name) in cells.iter().zip(short_names(cells.iter())) {
        for summary in &cell.summaries {
            let reasons = summary.validity.iter().flat_map(|validity| &validity.reasons);
            for reason in reasons.filter(|reason| has_weight(reason.weight)) {
                let key = (Reverse(reason.weight), reason.code, reason.advice.as_str());
                findings.entry(key).or_default().push((name.clone(), reason));
            }
        }
    }
    (!findings.is_empty()).then(|| Table {
        title: title.to_owned(),
        columns,
        rows: findings
            .into_values()
            .map(|reasons| finding_row(&reasons))
            .collect(),
        notes: vec![
            "report.json and `matrix explain` have the measured values of each measurement".to_owned(),
        ],
    })
}

/// The row of one finding: different measured values and cells are listed, each once.
fn finding_row(reasons: &[(String, &Reason)]) -> Row {
    let reason = reasons[0].1;
    Row {
        cells: vec![
            Value::text(reason.code.name()),
            Value::text(reason.describe_weight()),
            Value::text(&reason.advice),
            Value::Count(reasons.len() as u64),
            Value::Text(abbreviate(
                reasons.iter().map(|(_, reason)| reason.measured.as_str()),
            )),
            reason.bound.as_deref().map_or(Value::Missing, Value::text),
            Value::Text(abbreviate(reasons.iter().map(|(name, _)| name.as_str()))),
        ],
        marks: match reason.weight {
            Verdict::Valid => Vec::new(),
            Verdict::Suspect => vec![Mark::Suspect],
            Verdict::Invalid => vec![Mark::Invalid],
        },
    }
}

/// Joins the first [`MAX_NAMED_CELLS`] different texts and the number of the rest.
fn abbreviate<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut seen = HashSet::new();
    let different: Vec<&str> = texts.filter(|text| seen.insert(*text)).collect();
    let more = match different.len().saturating_sub(MAX_NAMED_CELLS) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    different[..different.len().min(MAX_NAMED_CELLS)].join("; ") + &more
}
