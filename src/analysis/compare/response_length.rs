//! Compares the lengths of answers that the model ends.

use crate::analysis::metrics::{self, Metric, TokenCount};
use crate::config::scenario::Scenario;
use crate::results::record::cell::{Definitions, MeasurementSummary};

/// Returns the mean output tokens of an answer, if the model ends its answers. `None` if lengths are
/// requested or unknown.
pub(crate) fn mean_response_tokens(scenario: &Scenario, summaries: &[&MeasurementSummary]) -> Option<f64> {
    if !scenario.stop_at_eos {
        return None;
    }
    let sum = |metric: Metric| -> f64 {
        let read = |summary: &&MeasurementSummary| {
            metrics::metric_value(summary.figures.get(&Definitions::Matrix)?, metric)
        };
        summaries.iter().filter_map(read).sum()
    };
    let (tokens, answers) = (sum(Metric::Tokens(TokenCount::Output)), sum(Metric::Completed));
    (tokens > 0.0 && answers > 0.0).then(|| tokens / answers)
}

/// Says that mean answer lengths (in tokens) differ too much to compare metrics that count answers or their
/// tokens. `None` if they do not.
pub(crate) fn length_difference(first_value: Option<f64>, second_value: Option<f64>) -> Option<String> {
    const MAX_LENGTH_DIFFERENCE: f64 = 0.02;
    let (first_value, second_value) = (first_value?, second_value?);
    let is_apart = (first_value - second_value).abs() > MAX_LENGTH_DIFFERENCE * first_value.min(second_value);
    is_apart
        .then(|| format!("the mean answer lengths differ: {first_value:.1} against {second_value:.1} tokens"))
}

/// Returns whether a metric depends on the length of answers. Only times of tokens, and rates derived from
/// them, do not.
pub(crate) const fn depends_on_length(metric: Metric) -> bool {
    !matches!(
        metric,
        Metric::Time(
            _,
            metrics::LatencyKind::Ttft | metrics::LatencyKind::Tpot | metrics::LatencyKind::Itl
        ) | Metric::PerUser
            | Metric::Interactivity
    )
}
