//! Moments of single requests that a client wrote, held against its figures.

use serde_json::{Map, Value};

use super::args::number;
use super::{About, Found};
use crate::analysis::metrics::{Metric, Sample, Statistic};

/// The share by which a mean may lie beside that of its values, which are written with fewer digits by some.
pub(super) const MEAN_OFF: f64 = 0.01;

/// By which share a load may take longer than from its first request to its last token.
const LONGER: f64 = 1.1;
/// What a client may need before the first request and after the last token, in seconds.
const AROUND: f64 = 1.0;
/// How many times the mean time between requests may pass before the first one.
const BEFORE_FIRST: f64 = 10.0;

/// Holds times between events and moments of requests against the figures. No request may have failed: times of those that did are in the
/// lists, and not in the means.
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
    // bench_serving shares the time of an event out over its tokens where the server accepts several at once.
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

/// The duration against the time from the first request to the last token, in seconds.
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
