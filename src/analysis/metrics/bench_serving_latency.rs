//! Latency statistics as bench_serving prints them.

use super::bench_serving::Compat;
use super::bench_serving::SuccessfulRequest;
use super::dimensions::{LatencyKind, Statistic};
use super::latency::statistic_value;
use super::metric::Metric;
use super::metric_set::MetricSet;
use super::stats::Statistics;
use crate::config::workload::Profile;

const CLASSIC_STATISTICS: [Statistic; 4] =
    [Statistic::Mean, Statistic::Median, Statistic::Std, Statistic::P99];
const CURRENT_STATISTICS: [Statistic; 6] = [
    Statistic::Mean,
    Statistic::Median,
    Statistic::Std,
    Statistic::P90,
    Statistic::P95,
    Statistic::P99,
];

/// Computes the statistics that bench_serving prints. Gaps are divided by the tokens of their texts if
/// bench_serving does so.
///
/// If its bugs are fixed, an answer without output has no TTFT and no TPOT, and an empty sample no
/// statistics.
pub(super) fn add_bench_serving_latencies(
    metrics: &mut MetricSet,
    answers: &[SuccessfulRequest<'_>],
    profile: Profile,
    gaps: ItlUnit,
    faults: Compat,
) {
    let is_read = |answer: &&SuccessfulRequest| faults == Compat::AsPublished || answer.ttft > 0.0;
    let ttft: Vec<f64> = answers.iter().filter(is_read).map(|answer| answer.ttft).collect();
    let tpot: Vec<f64> = answers
        .iter()
        .filter(is_read)
        .filter_map(SuccessfulRequest::tpot)
        .collect();
    let itl = match gaps {
        ItlUnit::PerEvent => Some(Statistics::from_repeatable(|| {
            answers.iter().flat_map(|answer| answer.itl.collect())
        })),
        ItlUnit::PerToken => {
            let is_whole = answers
                .iter()
                .all(|answer| divided_gaps(answer, faults).is_some());
            let each = || {
                let each = answers.iter().filter_map(|answer| divided_gaps(answer, faults));
                each.flatten()
            };
            is_whole.then(|| Statistics::from_repeatable(each))
        }
    };
    let e2e: Vec<f64> = answers.iter().map(|answer| answer.latency).collect();
    let wanted = match profile {
        Profile::Classic => &CLASSIC_STATISTICS[..],
        Profile::Current => &CURRENT_STATISTICS[..],
    };
    // Source: docs/bench-serving.md 7.3: an empty sample prints as 0.0, but E2E then has no value.
    let zero = Statistics {
        mean: 0.0,
        median: 0.0,
        std: 0.0,
        percentiles: [0.0; 5],
        max: 0.0,
    };
    let mut put = |kind: LatencyKind, statistics: Option<Statistics>, wanted: &[Statistic]| {
        // Source: docs/bench-serving.md 7.3: computed in seconds, multiplied at the end.
        let statistics = statistics.map(|statistics| statistics.scaled(1000.0));
        for &statistic in wanted {
            let value = statistics.map(|statistics| statistic_value(&statistics, statistic));
            metrics.insert(Metric::Time(statistic, kind), value);
        }
    };
    let zero = (faults == Compat::AsPublished).then_some(zero);
    put(LatencyKind::Ttft, Statistics::from_values(&ttft).or(zero), wanted);
    put(LatencyKind::Tpot, Statistics::from_values(&tpot).or(zero), wanted);
    put(LatencyKind::E2e, Statistics::from_values(&e2e), wanted);
    let gaps = itl.and_then(|itl| itl.or(zero));
    put(LatencyKind::Itl, gaps, wanted);
    if profile == Profile::Current {
        put(LatencyKind::Itl, gaps, &[Statistic::Max]);
    }
}

/// bench_serving's definition of ITL under `current`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItlUnit {
    /// One value per gap.
    PerEvent,
    /// Each gap divided by the tokens of the text at its end, with one value per token.
    PerToken,
}

/// Returns the gaps of an answer in seconds, each divided among the tokens of its text. `None` if tokens were
/// not counted, and if a text has no token: there bench_serving divides by zero. If its bugs are fixed, the
/// next gap includes the time of such a text.
///
/// Source: docs/bench-serving.md 7.2, retokenized ITL.
fn divided_gaps(answer: &SuccessfulRequest<'_>, faults: Compat) -> Option<Vec<f64>> {
    let itl = answer.itl.collect();
    let tokens = match &answer.itl_tokens {
        Some(tokens) => tokens.collect(),
        None if itl.is_empty() => Vec::new(),
        None => return None,
    };
    let mut gaps = Vec::new();
    let mut carried = 0.0;
    for (gap, tokens) in itl.iter().zip(tokens) {
        match (tokens, faults) {
            (0, Compat::AsPublished) => return None,
            (0, Compat::Fixed) => carried += gap,
            (tokens, _) => {
                let share = (carried + gap) / f64::from(tokens);
                gaps.extend((0..tokens).map(|_| share));
                carried = 0.0;
            }
        }
    }
    Some(gaps)
}
