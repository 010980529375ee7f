//! Compares timestamps of single requests, if the client wrote them, with its figures.

use serde_json::{Map, Value};

use super::args::number;
use super::{About, Found};
use crate::analysis::metrics::{Metric, Sample, Statistic};

/// Maximum relative difference between a mean and that of its values, which some tools round.
pub(super) const MEAN_OFF: f64 = 0.01;

/// Maximum factor of the duration over the time from the first request to the last token.
const LONGER: f64 = 1.1;
/// Time that a client may need before the first request and after the last token, in seconds.
const AROUND: f64 = 1.0;
/// Maximum time before the first request, in mean gaps between requests.
const BEFORE_FIRST: f64 = 10.0;

/// Compares chunk gaps and timestamps of requests with the figures. No request may have failed: the lists
/// contain failed requests, the means do not.
pub(super) fn check(found: &mut Found, object: &Map<String, Value>) {
    let list = |key: &str| object.get(key).and_then(Value::as_array);
    let Some(gaps) = list("itls") else { return };
    let gaps: Option<Vec<Vec<f64>>> = gaps
        .iter()
        .map(|gaps| Some(gaps.as_array()?.iter().filter_map(number).collect()))
        .collect();
    let Some(gaps) = gaps.filter(|gaps| found.figure(Metric::Completed) == Some(gaps.len() as f64)) else {
        return;
    };
    if found.is_ours {
        return;
    }
    // If the server accepts several tokens at once, bench_serving divides the gap among them.
    if found
        .figure(Metric::AcceptLength)
        .is_none_or(|length| length <= 1.0)
    {
        mean_gap(found, &gaps);
    }
    let numbers = |key: &str| -> Option<Vec<f64>> {
        let numbers: Vec<f64> = list(key)?.iter().filter_map(number).collect();
        (numbers.len() == gaps.len()).then_some(numbers)
    };
    if let (Some(starts), Some(ttfts)) = (numbers("start_times"), numbers("ttfts")) {
        let ends = starts.iter().zip(ttfts).zip(&gaps);
        let last = ends
            .map(|((start, ttft), gaps)| start + ttft + gaps.iter().sum::<f64>())
            .fold(f64::NEG_INFINITY, f64::max);
        let first = starts.iter().copied().fold(f64::INFINITY, f64::min);
        length(found, last - first);
    }
}

fn mean_gap(found: &mut Found, gaps: &[Vec<f64>]) {
    let count = gaps.iter().map(Vec::len).sum::<usize>();
    let Some(told) = found
        .figure(Metric::Time(Statistic::Mean, Sample::Itl))
        .filter(|_| count > 0)
    else {
        return;
    };
    let mean = gaps.iter().flatten().sum::<f64>() / count as f64 * 1000.0;
    if (told - mean).abs() > MEAN_OFF * mean.abs() {
        let says = format!("mean ITL is {told:.2} ms, and those of the requests come to {mean:.2}");
        found.warn(found.line, About::Figures, says);
    }
}

/// Compares the duration with the time from the first request to the last token, in seconds.
fn length(found: &mut Found, seconds: f64) {
    let Some(duration) = found.figure(Metric::Duration).filter(|_| seconds.is_finite()) else {
        return;
    };
    let rate = found.asked.rate.filter(|rate| rate.is_finite() && *rate > 0.0);
    let before = rate.map_or(0.0, |rate| BEFORE_FIRST / rate);
    let is_off = seconds > duration * (1.0 + MEAN_OFF) || duration > LONGER * seconds + AROUND + before;
    if is_off {
        let says = format!(
            "the load took {duration:.2} s, and by the moments of its requests {seconds:.2} s from the first start to the last token"
        );
        found.warn(found.line, About::Figures, says);
    }
}
