//! Peak concurrency and peak output, and both over time.

use super::bench_serving::{SuccessfulRequest, successful_requests};
use super::bench_serving_fixed::corrected_requests;
use super::chunk_tokens::{chunk_tokens, has_chunk_tokens};
use super::metric::Metric;
use super::metric_set::MetricSet;
use super::throughput::measured_window_s;
use crate::config::workload::Profile;
use crate::plan::Protocol;
use crate::results::record::request::Request;

const SECOND_NS: u64 = 1_000_000_000;
/// Possible numbers of parts per second. The first one that gives at most [`MAX_PARTS`] parts for the whole
/// measurement is used.
const PARTS_PER_SECOND: [u64; 8] = [10_000, 2000, 500, 250, 100, 50, 20, 10];
const MAX_PARTS: u64 = 500_000;
/// Approximate number of arrivals that are in memory at a time.
const ARRIVALS_IN_MEMORY: usize = 1 << 18;

/// Computes peaks under the definitions of `matrix`.
///
/// Source: docs/bench-serving.md 7.4, the corrected peaks of T21.
pub(super) fn add_peaks(metrics: &mut MetricSet, requests: &[Request]) {
    metrics.insert(
        Metric::PeakConcurrency,
        max_concurrency(requests).map(|peak| peak as f64),
    );
    metrics.insert(Metric::PeakOutput, peak_output(requests));
}

/// Computes peaks for a block with the bugs fixed, which counts generated tokens. `corrected` are the completed
/// requests as the profile should have read them.
pub(super) fn add_fixed_peaks(metrics: &mut MetricSet, corrected: &[Request], due_requests: &[Request]) {
    metrics.insert(
        Metric::PeakConcurrency,
        max_concurrency(due_requests).map(|peak| peak as f64),
    );
    metrics.insert(Metric::PeakOutput, peak_output(corrected));
}

/// Computes peaks as bench_serving counts them: events and requests that touch the same second.
///
/// Source: docs/bench-serving.md 7.4.
pub(super) fn add_bench_serving_peaks(metrics: &mut MetricSet, answers: &[SuccessfulRequest<'_>]) {
    let peaks = bucket_by_second(answers);
    let largest = |buckets: &Vec<f64>| buckets.iter().copied().fold(0.0, f64::max);
    let tokens = peaks.as_ref().and_then(|seconds| seconds.tokens.as_ref());
    metrics.insert(Metric::PeakOutput, tokens.map(largest));
    let requests = peaks.as_ref().map(|seconds| &seconds.requests);
    metrics.insert(Metric::PeakConcurrency, requests.map(largest));
}

/// A load over time: one value per second, from when the first request was sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LoadPerSecond {
    /// Output tokens that arrived. `None` if they were not counted.
    pub(crate) tokens: Option<Vec<f64>>,
    pub(crate) requests: Vec<f64>,
}

/// Computes the load over time. `None` if no request was sent. `as_published` counts events instead of tokens, and
/// every request that touches a second, as bench_serving does.
pub(crate) fn load_per_second(
    requests: &[Request],
    protocol: Protocol,
    profile: Profile,
    as_published: bool,
) -> Option<LoadPerSecond> {
    if as_published {
        return bucket_by_second(&successful_requests(requests, protocol, profile));
    }
    let sent: Vec<(u64, u64)> = requests
        .iter()
        .filter_map(|request| Some((request.sent_ns?, request.end_ns)))
        .collect();
    let start = sent.iter().map(|(sent, _)| *sent).min()?;
    let end = sent.iter().map(|(_, end)| *end).max()?;
    let second = |at_ns: u64| (at_ns.saturating_sub(start) / SECOND_NS) as usize;
    let count = second(end) + 1;
    let mut under_way = vec![0.0f64; count];
    let (mut running, mut since) = (0i64, start);
    for (at, step) in concurrency_changes(&sent) {
        // A request that ends exactly at the end of a second is not in flight in the next one.
        if at > since {
            for slot in &mut under_way[second(since)..=second(at - 1)] {
                *slot = slot.max(running as f64);
            }
        }
        (running, since) = (running + step, at);
    }
    let tokens = || {
        let mut tokens = vec![0.0; count];
        for request in &corrected_requests(requests, protocol) {
            for (chunk, carried) in request.chunks.iter().zip(chunk_tokens(request)?) {
                tokens[second(chunk.at_ns).min(count - 1)] += f64::from(carried);
            }
        }
        Some(tokens)
    };
    Some(LoadPerSecond {
        tokens: tokens(),
        requests: under_way,
    })
}

/// Returns the starts and ends of requests as steps of +1 and -1, in order.
fn concurrency_changes(sent: &[(u64, u64)]) -> Vec<(u64, i64)> {
    let mut turns: Vec<(u64, i64)> = sent
        .iter()
        .flat_map(|(sent, end)| [(*sent, 1), (*end, -1)])
        .collect();
    // At equal times the ends sort before the starts.
    turns.sort_unstable();
    turns
}

/// Returns the highest number of requests in flight. A request that ends when another starts does not overlap
/// with it.
fn max_concurrency(requests: &[Request]) -> Option<i64> {
    let sent: Vec<(u64, u64)> = requests
        .iter()
        .filter_map(|request| Some((request.sent_ns?, request.end_ns)))
        .collect();
    let mut running = 0;
    let peak = concurrency_changes(&sent).into_iter().map(|(_, step)| {
        running += step;
        running
    });
    peak.max()
}

/// Returns the highest number of tokens of completed requests that arrived within any one second, wherever it
/// begins. `None` for a measurement of less than a second, and if tokens were not counted.
fn peak_output(requests: &[Request]) -> Option<f64> {
    measured_window_s(requests).filter(|window| *window >= 1.0)?;
    let completed: Vec<&Request> = requests.iter().filter(|request| request.is_completed()).collect();
    if !completed.iter().all(|request| has_chunk_tokens(request)) {
        return None;
    }
    Some(max_tokens_per_second(&completed, ARRIVALS_IN_MEMORY) as f64)
}

/// Returns the times and numbers of arriving tokens of a request.
fn arrivals(request: &Request) -> impl Iterator<Item = (u64, u64)> + '_ {
    let tokens = chunk_tokens(request).unwrap_or_default();
    let moments = request.chunks.iter().map(|chunk| chunk.at_ns);
    moments.zip(tokens.into_iter().map(u64::from))
}

/// Returns the highest number of tokens within any one second, with about `together` arrivals in memory at a
/// time.
///
/// The tokens in each short part of the time give an upper bound for a second that ends in it. The exact
/// value needs only the arrivals of its first and last part. It is computed for the parts with the highest
/// bounds, until no other bound exceeds the peak that was found.
fn max_tokens_per_second(requests: &[&Request], together: usize) -> u64 {
    // Arrivals are clamped to this range, in case the clock went back.
    let first = requests.iter().filter_map(|request| request.chunks.first());
    let last = requests.iter().filter_map(|request| request.chunks.last());
    let Some((first, last)) = first
        .map(|chunk| chunk.at_ns)
        .min()
        .zip(last.map(|chunk| chunk.at_ns).max())
    else {
        return 0;
    };
    let last = last.max(first) - first;
    let all = || {
        let arrivals = requests.iter().flat_map(|request| arrivals(request));
        arrivals.map(move |(at, tokens)| (at.saturating_sub(first).min(last), tokens))
    };
    let fits = |parts: &&u64| last / SECOND_NS * **parts <= MAX_PARTS;
    let parts = *PARTS_PER_SECOND.iter().find(fits).unwrap_or(&1);
    let part_ns = SECOND_NS / parts;
    let part_of = |at: u64| (at / part_ns) as usize;
    let parts = parts as usize;
    let mut came = vec![(0u64, 0usize); part_of(last) + 1];
    for (at, tokens) in all() {
        let (sum, count) = &mut came[part_of(at)];
        (*sum, *count) = (*sum + tokens, *count + 1);
    }
    let mut within = 0;
    let bounds = came.iter().enumerate().map(|(part, (sum, _))| {
        within += sum;
        if let Some(gone) = part.checked_sub(parts + 1) {
            within -= came[gone].0;
        }
        (within, part)
    });
    let mut bounds: Vec<(u64, usize)> = bounds.collect();
    bounds.sort_unstable_by(|one, other| other.cmp(one));
    let (mut peak, mut bounds) = (0, bounds.into_iter().peekable());
    let mut wanted = vec![false; came.len()];
    while bounds.peek().is_some_and(|(bound, _)| *bound > peak) {
        wanted.fill(false);
        let (mut ends, mut count) = (Vec::new(), 0);
        while count < together
            && let Some((bound, end)) = bounds.next_if(|(bound, _)| *bound > peak)
        {
            ends.push((bound, end));
            for part in std::iter::once(end).chain(end.checked_sub(parts)) {
                if !std::mem::replace(&mut wanted[part], true) {
                    count += came[part].1;
                }
            }
        }
        // Allocated at once, because a growing vector briefly needs twice the memory.
        let mut buffered = Vec::with_capacity(count);
        buffered.extend(all().filter(|(at, _)| wanted[part_of(*at)]));
        buffered.sort_unstable_by_key(|(at, _)| *at);
        let arrivals_in = |part: usize| {
            let begins = |part: usize| buffered.partition_point(|(at, _)| part_of(*at) < part);
            &buffered[begins(part)..begins(part + 1)]
        };
        for (bound, end) in ends {
            let begin = end.checked_sub(parts).map_or(&[][..], arrivals_in);
            peak = peak.max(max_tokens_between_parts(
                bound - came[end].0,
                begin,
                arrivals_in(end),
            ));
        }
    }
    peak
}

/// Returns the highest number of tokens within a second that begins in part `begin` and ends in part `end`.
/// `before` is the number of tokens in `begin` and all parts between them.
fn max_tokens_between_parts(before: u64, begin: &[(u64, u64)], end: &[(u64, u64)]) -> u64 {
    let (mut within, mut peak, mut begin) = (before, 0, begin.iter().peekable());
    // Arrivals at the same time may come in any order, because the sum only grows until the last of them.
    for &(at, tokens) in end {
        within += tokens;
        while let Some((_, gone)) = begin.next_if(|(begun, _)| at - begun >= SECOND_NS) {
            within -= gone;
        }
        peak = peak.max(within);
    }
    peak
}

fn bucket_by_second(answers: &[SuccessfulRequest<'_>]) -> Option<LoadPerSecond> {
    let start = answers.iter().map(|answer| answer.start).reduce(f64::min)?;
    let end = answers
        .iter()
        .map(|answer| answer.start + answer.latency)
        .reduce(f64::max)?;
    let count = (end - start).ceil() as usize + 1;
    let (mut tokens, mut running) = (vec![0.0; count], vec![0.0; count]);
    for answer in answers {
        let mut arrival = answer.start + answer.ttft;
        let mut arrive = |at: f64| {
            if let Some(bucket) = tokens.get_mut((at - start) as usize) {
                *bucket += 1.0;
            }
        };
        arrive(arrival);
        for gap in answer.itl.collect() {
            arrival += gap;
            arrive(arrival);
        }
        let from = (answer.start - start) as usize;
        let to = ((answer.start + answer.latency - start) as usize).min(count - 1);
        for bucket in &mut running[from..=to] {
            *bucket += 1.0;
        }
    }
    Some(LoadPerSecond {
        tokens: Some(tokens),
        requests: running,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(sent_ns: u64, end_ns: u64, chunks: &[(u64, u32)]) -> Request {
        let chunks: Vec<_> = chunks
            .iter()
            .scan(0, |tokens, (at_ns, carried)| {
                *tokens += carried;
                Some((at_ns, "a", *tokens, 1))
            })
            .collect();
        serde_json::from_value(serde_json::json!({
            "index": 0, "prompt_tokens": 1, "asked_tokens": 9, "due_ns": sent_ns, "sent_ns": sent_ns, "chunks": chunks,
            "last_line_ns": end_ns, "end_ns": end_ns,
        }))
        .unwrap()
    }

    /// Reading only the parts with the highest bounds gives the same result as reading everything.
    #[test]
    fn the_busiest_second_is_found_whatever_is_in_memory_together() {
        let mut draws = crate::loadgen::dataset::rng::Python::new(3);
        // The steps of the last load are tenths of a second, so that seconds end exactly when others begin.
        for (crowd, step) in [(0.0, 1.0), (0.5, 1.0), (0.0, 1e8)] {
            let requests: Vec<Request> = (0..40)
                .map(|_| {
                    let mut at = 0.0;
                    let chunks: Vec<(u64, u32)> = (0..100)
                        .map(|place| {
                            at += draws.random() * if place < 50 { 0.1 } else { 0.1 - 0.19 * crowd };
                            ((at * 1e9 / step).round() as u64 * step as u64, 1 + place % 3)
                        })
                        .collect();
                    request(0, 20 * SECOND_NS, &chunks)
                })
                .collect();
            let requests: Vec<&Request> = requests.iter().collect();
            let all: Vec<(u64, u64)> = requests.iter().flat_map(|request| arrivals(request)).collect();
            let until = |end: u64| {
                let within = all
                    .iter()
                    .filter(move |(at, _)| *at <= end && end - at < SECOND_NS);
                within.map(|(_, tokens)| tokens).sum::<u64>()
            };
            let everywhere = all.iter().map(|(end, _)| until(*end)).max().unwrap();
            for together in [1, 100, 1000, usize::MAX] {
                assert_eq!(
                    max_tokens_per_second(&requests, together),
                    everywhere,
                    "{together}"
                );
            }
        }
    }

    #[test]
    fn each_second_has_its_tokens_and_the_most_that_were_under_way() {
        const S: u64 = SECOND_NS;
        // The second request begins exactly when the first ends.
        let requests = [
            request(S, 2 * S, &[(S + 1, 2), (2 * S - 1, 1)]),
            request(2 * S, 4 * S + 1, &[(3 * S, 4)]),
        ];
        let each = |copied| {
            load_per_second(&requests, Protocol::SglangNative, Profile::Current, copied)
                .expect("both were sent")
        };
        let ours = each(false);
        assert_eq!(ours.requests, [1.0, 1.0, 1.0, 1.0]);
        assert_eq!(ours.tokens.unwrap(), [3.0, 0.0, 4.0, 0.0]);
        // bench_serving counts both in the second in which one ends and the other begins, and adds one
        // second.
        assert_eq!(each(true).requests, [1.0, 2.0, 1.0, 1.0, 0.0]);
        assert_eq!(
            load_per_second(&[], Protocol::Chat, Profile::Current, false),
            None
        );
    }
}
