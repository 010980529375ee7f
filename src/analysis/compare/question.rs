//! Builds the question about one metric of two cells.

use super::comparable::{SLO, depends_on_length, lengths_apart, slo_apart};
use super::decision::{Design, Gap, KnownNoise, Question, Sample, Variance};
use super::from_run::too_few;
use super::percentile::is_at_jump;
use super::resolution;
use crate::analysis::metrics::{Better, Flow, Metric};
use crate::results::record::cell_stats::{Cause, SideCell};

/// Builds the question whether a metric changed between two cells that were measured separately. The caller
/// adds reasons why the cells are not comparable.
pub(crate) fn of_cells(
    one: &SideCell,
    two: &SideCell,
    metric: Metric,
    noise: Option<KnownNoise>,
) -> Question {
    let sides = [("baseline", one), ("candidate", two)];
    let least = least([one, two], metric);
    let zeros = [one, two].iter().all(|cell| {
        let starts = cell.starts(&metric.name());
        !starts.is_empty() && starts.iter().all(|value| *value == 0.0)
    });
    let samples =
        sides.map(|(side, cell)| raised_sample(cell, metric, least).map_err(|why| format!("{side}: {why}")));
    let gap = samples.iter().find_map(|sample| sample.as_ref().err().cloned());
    let samples = samples.map(Result::unwrap_or_default);
    let lengths = lengths_apart(two.answer_tokens, one.answer_tokens).filter(|_| depends_on_length(metric));
    let slo = || slo_apart(metric, two.limits.get(SLO)?, one.limits.get(SLO)?);
    let name = metric.name();
    let drained = || {
        let mut why = sides
            .iter()
            .filter_map(|(side, cell)| Some((side, cell.no_verdict.get(&name)?)));
        why.next().map(|(side, why)| format!("{side}: {why}"))
    };
    Question {
        gap: gap
            .or_else(|| zeros.then(|| format!("{} is 0 on every start of both sides", metric.label())))
            .map(Gap::Missing)
            .or_else(|| lengths.or_else(slo).or_else(drained).map(Gap::NotComparable)),
        ..of_samples(samples, [one.attached, two.attached], metric, noise)
    }
}

/// Builds the question for the starts of two sides. `attached` says which sides are attached servers.
pub(crate) fn of_samples(
    [baseline, candidate]: [Sample; 2],
    attached: [bool; 2],
    metric: Metric,
    noise: Option<KnownNoise>,
) -> Question {
    // All repeats on an attached server belong to one start. Only the noise shows how much starts differ.
    let attached = attached.into_iter().filter(|is_attached| *is_attached).count();
    let between = noise.filter(|_| attached > 0).map(|noise| Variance {
        value: attached as f64 * noise.sigma.powi(2),
        df: noise.df,
    });
    Question {
        better: metric.better().unwrap_or(Better::Higher),
        baseline,
        candidate,
        design: Design::Separate,
        noise: noise.filter(|_| attached < 2),
        between,
        gap: None,
    }
}

/// Returns the value that replaces zeros in both cells.
pub(super) fn least(cells: [&SideCell; 2], metric: Metric) -> Option<f64> {
    resolution::common(cells.map(|cell| own_least(cell, metric)))
}

fn own_least(cell: &SideCell, metric: Metric) -> Option<f64> {
    let throughput = cell.starts(&Metric::Throughput(Flow::Requests).name());
    resolution::least(metric, &throughput, cell.requests.map(f64::from))
}

/// Returns the starts of a metric of a cell, or the reason that there are none that can be judged.
pub(crate) fn sample(cell: &SideCell, metric: Metric) -> Result<Sample, String> {
    raised_sample(cell, metric, own_least(cell, metric))
}

fn raised_sample(cell: &SideCell, metric: Metric, least: Option<f64>) -> Result<Sample, String> {
    if let Some((cause, reason)) = cell.refused() {
        return Err(match cause {
            Cause::NotMeasured => format!("{} ({reason})", cause.name()),
            Cause::Failed | Cause::Invalid => format!("{}: {reason}", cause.name()),
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
    let sample = Sample::of_starts(&resolution::raised(starts, least))
        .ok_or_else(|| format!("{} of zero has no ratio", metric.label()))?;
    Ok(Sample {
        counting: resolution::counting(metric, &sample.logs, least),
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
