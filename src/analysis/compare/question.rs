//! Builds the question about one metric of two cells.

use super::cell_facts::{SLO, slo_difference};
use super::decision::{Design, KnownNoise, MetricQuestion, NoVerdict, Sample, Variance};
use super::from_run::too_few;
use super::percentile::is_at_jump;
use super::resolution;
use super::response_length::{depends_on_length, length_difference};
use crate::analysis::metrics::{Direction, Metric, Quantity};
use crate::results::record::cell_stats::{CellStats, ExclusionCause};

/// Builds the question whether a metric changed between two cells that were measured separately. The caller
/// adds reasons why the cells are not comparable.
pub(crate) fn cell_question(
    baseline: &CellStats,
    candidate: &CellStats,
    metric: Metric,
    noise: Option<KnownNoise>,
) -> MetricQuestion {
    let sides = [("baseline", baseline), ("candidate", candidate)];
    let min_value = min_value_of_pair([baseline, candidate], metric);
    let zeros = [baseline, candidate].iter().all(|cell| {
        let starts = cell.start_values(&metric.name());
        !starts.is_empty() && starts.iter().all(|value| *value == 0.0)
    });
    let samples = sides
        .map(|(side, cell)| raised_sample(cell, metric, min_value).map_err(|why| format!("{side}: {why}")));
    let gap = samples.iter().find_map(|sample| sample.as_ref().err().cloned());
    let samples = samples.map(Result::unwrap_or_default);
    let lengths = length_difference(candidate.answer_tokens, baseline.answer_tokens)
        .filter(|_| depends_on_length(metric));
    let slo = || slo_difference(metric, candidate.limits.get(SLO)?, baseline.limits.get(SLO)?);
    let name = metric.name();
    let drained = || {
        let mut why = sides
            .iter()
            .filter_map(|(side, cell)| Some((side, cell.no_verdict.get(&name)?)));
        why.next().map(|(side, why)| format!("{side}: {why}"))
    };
    MetricQuestion {
        no_verdict: gap
            .or_else(|| zeros.then(|| format!("{} is 0 on every start of both sides", metric.label())))
            .map(NoVerdict::Missing)
            .or_else(|| {
                lengths
                    .or_else(slo)
                    .or_else(drained)
                    .map(NoVerdict::NotComparable)
            }),
        ..sample_question(samples, [baseline.attached, candidate.attached], metric, noise)
    }
}

/// Builds the question for the starts of two sides. `attached` says which sides are attached servers.
pub(crate) fn sample_question(
    [baseline, candidate]: [Sample; 2],
    attached: [bool; 2],
    metric: Metric,
    noise: Option<KnownNoise>,
) -> MetricQuestion {
    // All repeats on an attached server belong to one start. Only the noise shows how much starts differ.
    let attached = attached.into_iter().filter(|is_attached| *is_attached).count();
    let between = noise.filter(|_| attached > 0).map(|noise| Variance {
        value: attached as f64 * noise.sigma.powi(2),
        df: noise.df,
    });
    MetricQuestion {
        better: metric.direction().unwrap_or(Direction::Higher),
        baseline,
        candidate,
        design: Design::Separate,
        noise: noise.filter(|_| attached < 2),
        night_variance: between,
        no_verdict: None,
    }
}

/// Returns the value that replaces zeros in both cells.
pub(super) fn min_value_of_pair(cells: [&CellStats; 2], metric: Metric) -> Option<f64> {
    resolution::common_min(cells.map(|cell| min_value_of_cell(cell, metric)))
}

fn min_value_of_cell(cell: &CellStats, metric: Metric) -> Option<f64> {
    let throughput = cell.start_values(&Metric::Throughput(Quantity::Requests).name());
    resolution::half_request_value(metric, &throughput, cell.requests.map(f64::from))
}

/// Returns the starts of a metric of a cell, or the reason that there are none that can be judged.
pub(crate) fn cell_sample(cell: &CellStats, metric: Metric) -> Result<Sample, String> {
    raised_sample(cell, metric, min_value_of_cell(cell, metric))
}

fn raised_sample(cell: &CellStats, metric: Metric, min_value: Option<f64>) -> Result<Sample, String> {
    if let Some((cause, reason)) = cell.exclusion() {
        return Err(match cause {
            ExclusionCause::NotMeasured => format!("{} ({reason})", cause.name()),
            ExclusionCause::Failed | ExclusionCause::Invalid => format!("{}: {reason}", cause.name()),
        });
    }
    let name = metric.name();
    if let Some(why) = cell.no_ratio.get(&name) {
        return Err(why.clone());
    }
    let starts = cell.figures.get(&name).map_or(&[][..], Vec::as_slice);
    if starts.iter().all(Vec::is_empty) {
        return Err(format!("there is no {}", metric.label()));
    }
    if let Some(why) = too_few(cell, metric) {
        return Err(why);
    }
    let sample = Sample::from_starts(&resolution::raise_zeros(starts, min_value))
        .ok_or_else(|| format!("{} is zero, so no ratio can be computed", metric.label()))?;
    Ok(Sample {
        counting_variance: resolution::counting_variance(metric, &sample.logs, min_value),
        launch: cell.launch.as_ref().map(ToString::to_string),
        first_stage: cell.first_stage.map(|stage| stage as usize),
        resolution: cell.resolutions.get(&name).copied().unwrap_or(0.0),
        is_at_jump: is_at_jump(
            sample.value().unwrap_or_default(),
            cell.intervals.get(&name).map_or(&[], Vec::as_slice),
        ),
        ..sample
    })
}
