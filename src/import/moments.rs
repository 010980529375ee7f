//! Compares timestamps of single requests, if the client wrote them, with its figures.

use serde_json::{Map, Value};

use super::args::parse_number;
use super::result_block::{ResultBlock, WarningSubject};
use crate::analysis::metrics::{LatencyKind, Metric, Statistic};

/// Maximum relative difference between a mean and that of its values, which some tools round.
pub(super) const MAX_MEAN_DIFFERENCE: f64 = 0.01;

/// Maximum factor of the duration over the time from the first request to the last token.
const MAX_DURATION_FACTOR: f64 = 1.1;
/// Time that a client may need before the first request and after the last token, in seconds.
const CLIENT_OVERHEAD_S: f64 = 1.0;
/// Maximum time before the first request, in mean gaps between requests.
const MAX_FIRST_GAP_FACTOR: f64 = 10.0;

/// Compares chunk gaps and timestamps of requests with the figures. No request may have failed: the lists
/// contain failed requests, the means do not.
pub(super) fn check_times(result: &mut ResultBlock, object: &Map<String, Value>) {
    let list = |key: &str| object.get(key).and_then(Value::as_array);
    let Some(gaps) = list("itls") else { return };
    let gaps: Option<Vec<Vec<f64>>> = gaps
        .iter()
        .map(|gaps| Some(gaps.as_array()?.iter().filter_map(parse_number).collect()))
        .collect();
    let Some(gaps) = gaps.filter(|gaps| result.figure(Metric::Completed) == Some(gaps.len() as f64)) else {
        return;
    };
    if result.is_from_matrix {
        return;
    }
    // If the server accepts several tokens at once, bench_serving divides the gap among them.
    if result
        .figure(Metric::AcceptLength)
        .is_none_or(|length| length <= 1.0)
    {
        check_mean_gap(result, &gaps);
    }
    let numbers = |key: &str| -> Option<Vec<f64>> {
        let numbers: Vec<f64> = list(key)?.iter().filter_map(parse_number).collect();
        (numbers.len() == gaps.len()).then_some(numbers)
    };
    if let (Some(starts), Some(ttfts)) = (numbers("start_times"), numbers("ttfts")) {
        let ends = starts.iter().zip(ttfts).zip(&gaps);
        let last = ends
            .map(|((start, ttft), gaps)| start + ttft + gaps.iter().sum::<f64>())
            .fold(f64::NEG_INFINITY, f64::max);
        let first = starts.iter().copied().fold(f64::INFINITY, f64::min);
        check_duration(result, last - first);
    }
}

fn check_mean_gap(result: &mut ResultBlock, gaps: &[Vec<f64>]) {
    let count = gaps.iter().map(Vec::len).sum::<usize>();
    let Some(printed) = result
        .figure(Metric::Time(Statistic::Mean, LatencyKind::Itl))
        .filter(|_| count > 0)
    else {
        return;
    };
    let mean = gaps.iter().flatten().sum::<f64>() / count as f64 * 1000.0;
    if (printed - mean).abs() > MAX_MEAN_DIFFERENCE * mean.abs() {
        let message = format!(
            "mean ITL is {printed:.2} ms, but the ITLs of the requests have a mean of \
            {mean:.2} ms"
        );
        result.warn(result.line, WarningSubject::Figures, message);
    }
}

/// Compares the duration with the time from the first request to the last token, in seconds.
fn check_duration(result: &mut ResultBlock, seconds: f64) {
    let Some(duration) = result.figure(Metric::Duration).filter(|_| seconds.is_finite()) else {
        return;
    };
    let rate = result.options.rate.filter(|rate| rate.is_finite() && *rate > 0.0);
    let before = rate.map_or(0.0, |rate| MAX_FIRST_GAP_FACTOR / rate);
    let is_off = seconds > duration * (1.0 + MAX_MEAN_DIFFERENCE)
        || duration > MAX_DURATION_FACTOR * seconds + CLIENT_OVERHEAD_S + before;
    if is_off {
        let message = format!(
            "the load took {duration:.2} s, but the timestamps of its requests show {seconds:.2} s from \
             the first start to the last token"
        );
        result.warn(result.line, WarningSubject::Figures, message);
    }
}
