//! Figures night after night, cut where the environment or the load changed, with the changes of level in between.

use super::change::{self, Change};
use super::student;
use super::verdict::{self, relative};
use crate::base::ids::CellKey;
use crate::judge::metrics::Metric;
use crate::results::record::night::{Night, NightCell};

/// One gating figure of one cell, night after night.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The cell.
    pub cell: CellKey,
    /// The figure.
    pub metric: Metric,
    /// The nights that have it: when, and the geometric mean of its starts.
    pub nights: Vec<(String, f64)>,
    /// Where machine or prompts changed: positions in `nights`.
    pub cuts: Vec<usize>,
    /// Where the level changed although neither did.
    pub changes: Vec<Step>,
}

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The first night of the new level, a position in the series.
    pub at: usize,
    /// The change, as a share.
    pub change: f64,
    /// The chance of it where there is none.
    pub p: f64,
}

/// Every series of these nights, with changes of at least `floor` as a share.
pub fn all(nights: &[Night], floor: f64) -> Vec<Series> {
    let mut keys: Vec<(&CellKey, &String)> = nights
        .iter()
        .flat_map(|night| &night.cells)
        .flat_map(|(key, cell)| cell.figures.keys().map(move |figure| (key, figure)))
        .collect();
    keys.sort_unstable();
    keys.dedup();
    keys.into_iter()
        .filter_map(|(key, figure)| one(nights, key, figure, Metric::of_name(figure)?, floor))
        .collect()
}

fn one(nights: &[Night], key: &CellKey, figure: &str, metric: Metric, floor: f64) -> Option<Series> {
    let mut series = Series {
        cell: key.clone(),
        metric,
        nights: Vec::new(),
        cuts: Vec::new(),
        changes: Vec::new(),
    };
    let mut logs: Vec<f64> = Vec::new();
    let mut last: Option<(&Night, &NightCell)> = None;
    for night in nights {
        let Some(cell) = night.cells.get(key) else {
            continue;
        };
        let Some(starts) = cell.figures.get(figure).and_then(|starts| verdict::logs(starts)) else {
            continue;
        };
        if last.is_some_and(|(before, past)| before.machine != night.machine || past.prompts != cell.prompts)
        {
            series.cuts.push(logs.len());
        }
        last = Some((night, cell));
        let level = student::mean(&starts);
        logs.push(level);
        series.nights.push((night.at.clone(), level.exp()));
    }
    let ends: Vec<usize> = std::iter::once(0)
        .chain(series.cuts.iter().copied())
        .chain([logs.len()])
        .collect();
    for pair in ends.windows(2) {
        let steps = change::changes(&logs[pair[0]..pair[1]], floor);
        series
            .changes
            .extend(steps.into_iter().map(|Change { at, before, after, p }| Step {
                at: pair[0] + at,
                change: relative(after - before),
                p,
            }));
    }
    (!logs.is_empty()).then_some(series)
}
