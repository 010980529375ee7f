//! Cells side by side: who is held against whom, what came of it, and how each engine did over all of it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::report::tables::{
    Held, Ratio, Shown, Standing, best, compared, groups, held, names, reference_of,
};

/// The cells of one model and scenario.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// Model and scenario.
    pub title: String,
    /// The engine that ratios refer to, by its name in the matrix.
    pub reference: String,
    /// The figure that ratios are of, by its name.
    pub figure: String,
    /// The cells.
    pub rows: Vec<Placed>,
}

/// A cell in a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Placed {
    /// Its place among the cells of the report, from 0.
    pub cell: usize,
    /// What it is called among its neighbours.
    pub name: String,
    /// Its ratio to the reference; absent where there may be none.
    pub ratio: Option<RatioFacts>,
    /// Why there is no ratio; nothing where there is one, or where the cell is not done.
    pub no_ratio: Vec<String>,
    /// What must be known beside the ratio.
    pub differences: Vec<String>,
    /// The ratio of output throughput per GPU, where there is no other as the numbers of GPUs are unequal.
    pub ratio_per_gpu: Option<f64>,
    /// Whether repeats show that it is the best of those that can be compared.
    pub is_best: bool,
}

/// A ratio to the reference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct RatioFacts {
    /// The ratio of the medians.
    pub value: f64,
    /// The lower end of its 95 % interval; absent where either side has fewer than three starts.
    pub least: Option<f64>,
    /// The upper end.
    pub most: Option<f64>,
    /// What it says.
    pub standing: Standpoint,
}

/// What a ratio says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Standpoint {
    /// It is the reference itself.
    Reference,
    /// The whole interval lies above 1.
    Better,
    /// The whole interval lies below 1.
    Worse,
    /// Neither, or nobody knows the noise.
    Unclear,
}

/// How one engine did against the reference over all comparisons.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Standings {
    /// The engine with its version, and the run where there are several.
    pub engine: String,
    /// Cells that have a ratio to another engine.
    pub compared: usize,
    /// The geometric mean of those ratios; absent where there is none.
    pub geometric_mean: Option<f64>,
    /// Clearly better ones.
    pub wins: usize,
    /// Clearly worse ones.
    pub losses: usize,
    /// Ratios that say neither.
    pub unclear: usize,
    /// Cells that may not be held against the reference.
    pub refused: usize,
    /// Cells that are the reference themselves.
    pub reference: usize,
}

pub(super) fn comparisons(shown: &[Shown<'_>], reference: Option<&str>) -> Vec<Comparison> {
    let place = |one: &Shown<'_>| {
        let same = shown.iter().position(|other| std::ptr::eq(other, one));
        same.expect("groups hold the cells that they were made of")
    };
    let comparison = |(title, group): (String, Vec<&Shown<'_>>)| {
        let reference = reference_of(&group, reference);
        let best = best(&group);
        let rows = group
            .iter()
            .zip(names(&group))
            .enumerate()
            .map(|(at, (one, name))| {
                let mut placed = Placed {
                    cell: place(one),
                    name,
                    ratio: None,
                    no_ratio: Vec::new(),
                    differences: Vec::new(),
                    ratio_per_gpu: None,
                    is_best: best == Some(at),
                };
                match held(one, &group, reference) {
                    _ if !one.is_done() => {}
                    Held::Ratio(ratio, differences) => {
                        placed.ratio = Some(facts(ratio));
                        placed.differences = differences;
                    }
                    Held::Refused(why, per_gpu) => {
                        placed.no_ratio = why;
                        placed.ratio_per_gpu = per_gpu;
                    }
                }
                placed
            });
        Comparison {
            title,
            reference: reference.to_owned(),
            figure: compared(group[0]).name(),
            rows: rows.collect(),
        }
    };
    groups(shown).into_iter().map(comparison).collect()
}

fn facts(ratio: Ratio) -> RatioFacts {
    RatioFacts {
        value: ratio.value,
        least: ratio.interval.map(|[least, _]| least),
        most: ratio.interval.map(|[_, most]| most),
        standing: match ratio.standing() {
            _ if ratio.is_reference => Standpoint::Reference,
            Standing::Better => Standpoint::Better,
            Standing::Worse => Standpoint::Worse,
            Standing::Unclear => Standpoint::Unclear,
        },
    }
}

/// How each engine did, in the order of first appearance.
pub(super) fn standings(shown: &[Shown<'_>], comparisons: &[Comparison]) -> Vec<Standings> {
    let name = |one: &Shown<'_>| match one.run {
        "" => one.engine(),
        run => format!("{} run={run}", one.engine()),
    };
    let mut order: Vec<String> = Vec::new();
    let mut rows: BTreeMap<String, Vec<&Placed>> = BTreeMap::new();
    for row in comparisons.iter().flat_map(|comparison| &comparison.rows) {
        let name = name(&shown[row.cell]);
        if !order.contains(&name) {
            order.push(name.clone());
        }
        rows.entry(name).or_default().push(row);
    }
    order
        .into_iter()
        .map(|name| standing(&rows[&name], name))
        .collect()
}

fn standing(rows: &[&Placed], engine: String) -> Standings {
    let count = |wanted| {
        let all = rows.iter().filter_map(|row| row.ratio);
        all.filter(|ratio| ratio.standing == wanted).count()
    };
    let logs: Vec<f64> = rows
        .iter()
        .filter_map(|row| row.ratio)
        .filter(|ratio| ratio.standing != Standpoint::Reference && ratio.value > 0.0)
        .map(|ratio| ratio.value.ln())
        .collect();
    Standings {
        engine,
        compared: logs.len(),
        geometric_mean: (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp()),
        wins: count(Standpoint::Better),
        losses: count(Standpoint::Worse),
        unclear: count(Standpoint::Unclear),
        refused: rows.iter().filter(|row| row.ratio.is_none()).count(),
        reference: count(Standpoint::Reference),
    }
}
