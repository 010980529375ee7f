//! Compares two arms of one run, round by round if their launches alternated.

use std::collections::BTreeMap;

use super::decision::{Design, KnownNoise, MetricQuestion, NoVerdict, Sample};
use super::exclusion::is_counted;
use super::from_run;
use super::question;
use super::resolution;
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::config::select;
use crate::plan::Plan;
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::cell_stats::CellStats;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Arms<'a> {
    pub(crate) baseline: (&'a CellKey, &'a CellStats),
    pub(crate) candidate: (&'a CellKey, &'a CellStats),
}

/// Builds the question whether a metric differs between the arms. It uses the rounds in which both arms have
/// a valid start, or all starts if the arms did not alternate.
pub(crate) fn arms_question(
    plan: &Plan,
    summaries: &[MeasurementSummary],
    arms: Arms<'_>,
    metric: Metric,
    noise: Option<KnownNoise>,
) -> MetricQuestion {
    let Arms { baseline, candidate } = arms;
    let whole = question::cell_question(baseline.1, candidate.1, metric, noise);
    let min_value = question::min_value_of_pair([baseline.1, candidate.1], metric);
    let rounds = paired_rounds(plan, summaries, [baseline.0, candidate.0], metric, min_value);
    match (&whole.no_verdict, rounds) {
        (None | Some(NoVerdict::NotComparable(_)), Some([first, second])) => MetricQuestion {
            baseline: Sample {
                launch: whole.baseline.launch,
                resolution: whole.baseline.resolution,
                is_at_jump: whole.baseline.is_at_jump,
                counting_variance: whole.baseline.counting_variance,
                ..first
            },
            candidate: Sample {
                launch: whole.candidate.launch,
                resolution: whole.candidate.resolution,
                is_at_jump: whole.candidate.is_at_jump,
                counting_variance: whole.candidate.counting_variance,
                ..second
            },
            design: Design::Rounds,
            ..whole
        },
        _ => whole,
    }
}

/// Returns the starts of both cells that are valid and belong to the same round, in the order of the rounds.
/// Zeros are replaced by `min_value`. `None` if the arms did not alternate.
fn paired_rounds(
    plan: &Plan,
    summaries: &[MeasurementSummary],
    cells: [&CellKey; 2],
    metric: Metric,
    min_value: Option<f64>,
) -> Option<[Sample; 2]> {
    let launch = |key: &CellKey| {
        let cell = plan.cells.iter().find(|cell| cell.key == *key)?;
        Some(&cell.launch)
    };
    let rounds = plan.rounds(launch(cells[0])?, launch(cells[1])?);
    if rounds.is_empty() {
        return None;
    }
    let values = cells.map(|key| {
        let of_cell: Vec<&MeasurementSummary> = summaries
            .iter()
            .filter(|summary| summary.cell == *key && is_counted(summary))
            .collect();
        from_run::values_by_start(&of_cell, metric)
    });
    let mut both: [Vec<Vec<f64>>; 2] = [Vec::new(), Vec::new()];
    for round in rounds {
        let of = |side: usize| {
            values[side]
                .get(&round[side])
                .filter(|repeats| !repeats.is_empty())
        };
        if let (Some(first), Some(second)) = (of(0), of(1)) {
            both[0].push(first.clone());
            both[1].push(second.clone());
        }
    }
    let of = |side: usize| Sample::from_starts(&resolution::raise_zeros(&both[side], min_value));
    Some([of(0)?, of(1)?])
}

/// Pairs the cells of two values of an axis, by their keys; see [`select::arm_pairs`].
///
/// # Errors
/// A cell fits several.
pub(crate) fn arm_pairs<'a>(
    cells: &'a BTreeMap<CellKey, CellStats>,
    axis: &str,
    values: [&str; 2],
) -> Result<Vec<(&'a CellKey, &'a CellKey)>, String> {
    let cells: Vec<_> = cells.iter().map(|(key, cell)| (key, &cell.axes)).collect();
    select::arm_pairs(&cells, axis, values)
}
