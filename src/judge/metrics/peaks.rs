//! The most that ever was: requests under way at once, output tokens within one second.

use super::Sheet;
use super::compat::Answer;
use super::latency::chunk_tokens;
use super::metric::Metric;
use super::throughput::window_s;
use crate::results::record::request::Request;

const SECOND_NS: u64 = 1_000_000_000;

/// Peaks under the definitions of `matrix`.
///
/// Source: spec/bench-serving.md 7.4 and trap T21, both FIXes.
pub(super) fn matrix(sheet: &mut Sheet, requests: &[Request]) {
    sheet.put(Metric::PeakConcurrency, overlap(requests).map(|peak| peak as f64));
    sheet.put(Metric::PeakOutput, peak_output(requests));
}

/// Peaks as bench_serving counts them: events and requests that touch the same second.
///
/// Source: spec/bench-serving.md 7.4.
pub(super) fn compat(sheet: &mut Sheet, answers: &[Answer]) {
    let peaks = buckets(answers);
    sheet.put(Metric::PeakOutput, peaks.map(|(tokens, _)| f64::from(tokens)));
    sheet.put(
        Metric::PeakConcurrency,
        peaks.map(|(_, running)| f64::from(running)),
    );
}

/// The largest number of requests that were under way at one moment; one that ends as another begins does not meet it.
fn overlap(requests: &[Request]) -> Option<i64> {
    let mut turns: Vec<(u64, i64)> = requests
        .iter()
        .filter_map(|request| Some((request.sent_ns?, request.end_ns)))
        .flat_map(|(sent, end)| [(sent, 1), (end, -1)])
        .collect();
    // At one moment ends sort before beginnings.
    turns.sort_unstable();
    let mut running = 0;
    let peak = turns.iter().map(|(_, step)| {
        running += step;
        running
    });
    peak.max()
}

/// The most tokens of completed requests that arrived within any one second, wherever it begins. A measurement of less than a
/// second has no such figure, nor has one in which nobody counted tokens.
fn peak_output(requests: &[Request]) -> Option<f64> {
    window_s(requests).filter(|window| *window >= 1.0)?;
    let mut arrivals: Vec<(u64, u64)> = Vec::new();
    for request in requests.iter().filter(|request| request.is_completed()) {
        let tokens = chunk_tokens(request)?;
        let moments = request.chunks.iter().map(|chunk| chunk.at_ns);
        arrivals.extend(moments.zip(tokens.into_iter().map(u64::from)));
    }
    arrivals.sort_unstable();
    let (mut oldest, mut within, mut peak) = (0, 0, 0);
    for &(at, tokens) in &arrivals {
        within += tokens;
        while at - arrivals[oldest].0 >= SECOND_NS {
            within -= arrivals[oldest].1;
            oldest += 1;
        }
        peak = peak.max(within);
    }
    Some(peak as f64)
}

fn buckets(answers: &[Answer]) -> Option<(u32, u32)> {
    let start = answers.iter().map(|answer| answer.start).reduce(f64::min)?;
    let end = answers
        .iter()
        .map(|answer| answer.start + answer.latency)
        .reduce(f64::max)?;
    let count = (end - start).ceil() as usize + 1;
    let (mut tokens, mut running) = (vec![0u32; count], vec![0u32; count]);
    for answer in answers {
        let mut arrival = answer.start + answer.ttft;
        let mut arrive = |at: f64| {
            if let Some(bucket) = tokens.get_mut((at - start) as usize) {
                *bucket += 1;
            }
        };
        arrive(arrival);
        for gap in &answer.itl {
            arrival += gap;
            arrive(arrival);
        }
        let from = (answer.start - start) as usize;
        let to = ((answer.start + answer.latency - start) as usize).min(count - 1);
        for bucket in &mut running[from..=to] {
            *bucket += 1;
        }
    }
    let largest = |buckets: Vec<u32>| buckets.into_iter().max().unwrap_or(0);
    Some((largest(tokens), largest(running)))
}
