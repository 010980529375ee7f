//! The steady state: the time of nearly full concurrency, and its metrics.

use serde::{Serialize, Serializer};

use super::bench_serving::{self, SuccessfulRequest};
use super::bench_serving_fixed;
use super::inputs::MetricInputs;
use super::metric::Metric;
use super::metric_set::MetricSet;
use crate::config::workload::Profile;
use crate::results::record::request::Request;

/// Share of the peak concurrency that our own steady state requires.
pub(super) const STEADY_RATIO: f64 = 0.9;

/// The metrics of the steady state, with the keys and in the order of bench_serving's result line.
///
/// Times are in seconds after the start of the measurement, rates per second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct SteadyState {
    /// Share of the peak concurrency that counts as steady.
    pub(crate) concurrency_ratio: f64,
    pub(crate) window_start: f64,
    pub(crate) window_end: f64,
    pub(crate) duration: f64,
    /// Lowest number of requests in flight in the window.
    pub(crate) concurrency_threshold: u32,
    pub(crate) completed: u64,
    /// Prompt tokens of the requests that began in the window.
    pub(crate) total_input: u64,
    pub(crate) input_throughput: f64,
    /// Output tokens that arrived in the window. Each answer counts by the share of its events.
    pub(crate) total_output: f64,
    /// The same by our own count. `None` if tokens were not counted; the line then has 0.
    #[serde(serialize_with = "serialize_or_zero")]
    pub(crate) total_output_retokenized: Option<f64>,
    pub(crate) output_throughput: f64,
    /// The same by our own count.
    #[serde(serialize_with = "serialize_or_zero")]
    pub(crate) output_throughput_retokenized: Option<f64>,
    pub(crate) average_concurrency: f64,
    /// Highest number of requests in flight in the whole measurement.
    pub(crate) peak_concurrency: u32,
    /// Highest number of output tokens in one second of the window.
    pub(crate) peak_output_throughput: f64,
}

fn serialize_or_zero<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(value.unwrap_or(0.0))
}

/// Computes the steady state of a measurement under a profile. `None` if no request was in flight. `copied`
/// keeps the profile's known bugs.
///
/// Source: docs/bench-serving.md 7.7.
pub(crate) fn steady_state(
    requests: &[Request],
    inputs: &MetricInputs,
    profile: Profile,
    as_published: bool,
    ratio: f64,
) -> Option<SteadyState> {
    let sound;
    let answers = match as_published {
        true => bench_serving::successful_requests(requests, inputs.protocol, profile),
        false => {
            sound = bench_serving_fixed::corrected_requests(requests, inputs.protocol);
            bench_serving::successful_requests(&sound, inputs.protocol, profile)
        }
    };
    steady_state_of(&answers, ratio)
}

/// Computes our own metrics of the steady state, from the first to the last moment of nearly full
/// concurrency.
///
/// Unlike bench_serving's steady state, it does not end when the concurrency dips: requests of one length end
/// together, and the longest time without a dip would be a single wave of them.
pub(super) fn add_steady_state(metrics: &mut MetricSet, requests: &[Request], inputs: &MetricInputs) {
    let sound = bench_serving_fixed::corrected_requests(requests, inputs.protocol);
    let answers = bench_serving::successful_requests(&sound, inputs.protocol, Profile::Current);
    let plateau = plateau(&answers);
    metrics.insert(Metric::SteadyDuration, plateau.map(|(from, to)| to - from));
    let rate_of = |weight: fn(&SuccessfulRequest<'_>) -> f64| {
        plateau.map(|plateau| rate_between(&answers, plateau, weight))
    };
    metrics.insert(Metric::SteadyOutput, rate_of(|answer| f64::from(answer.output)));
    metrics.insert(Metric::SteadyConcurrency, rate_of(|answer| answer.latency));
}

/// Returns the first and last moment with nearly full concurrency. It excludes the drain at the end.
fn plateau(answers: &[SuccessfulRequest<'_>]) -> Option<(f64, f64)> {
    let intervals = concurrency_intervals(answers);
    let peak = intervals.iter().map(|interval| interval.running).max()?;
    let min_running = concurrency_threshold(peak, STEADY_RATIO);
    let is_high = |interval: &&Interval| interval.running >= min_running;
    let first = intervals.iter().find(is_high)?;
    let last = intervals.iter().rfind(is_high)?;
    Some((first.from, last.to))
}

/// Returns the sum of the weights of answers between two times, per second. The weight of an answer is spread
/// evenly over its time, so the result does not depend on how an engine groups tokens into events.
fn rate_between(
    answers: &[SuccessfulRequest<'_>],
    (from, to): (f64, f64),
    weight: fn(&SuccessfulRequest<'_>) -> f64,
) -> f64 {
    let inside = |answer: &SuccessfulRequest<'_>| {
        let end = answer.start + answer.latency;
        let share = (end.min(to) - answer.start.max(from)) / answer.latency;
        match answer.latency > 0.0 {
            true => weight(answer) * share.max(0.0),
            false => 0.0,
        }
    };
    answers.iter().map(inside).sum::<f64>() / (to - from)
}

/// Returns the lowest number of requests in flight that counts as steady.
fn concurrency_threshold(peak: u32, ratio: f64) -> u32 {
    ((f64::from(peak) * ratio).ceil() as u32).max(1)
}

/// A time with a constant number of requests in flight.
struct Interval {
    from: f64,
    to: f64,
    running: u32,
}

fn steady_state_of(answers: &[SuccessfulRequest<'_>], ratio: f64) -> Option<SteadyState> {
    let intervals = concurrency_intervals(answers);
    let peak = intervals.iter().map(|interval| interval.running).max()?;
    let threshold = concurrency_threshold(peak, ratio);
    let (from, to) = longest_interval(&intervals, threshold)?;
    let duration = to - from;
    let is_inside = |at: f64| (from..=to).contains(&at);
    let whole_seconds = (duration.ceil() as usize).max(1);
    let mut seconds = vec![0.0; whole_seconds];
    let (mut output, mut counted, mut overlap) = (0.0, Some(0.0), 0.0);
    let (mut input, mut completed) = (0, 0);
    for answer in answers {
        let times = token_times(answer);
        let inside: Vec<f64> = times.iter().copied().filter(|at| is_inside(*at)).collect();
        let share = inside.len() as f64 / times.len() as f64;
        output += f64::from(answer.output) * share;
        counted = counted
            .zip(answer.counted)
            .map(|(sum, tokens)| sum + f64::from(tokens) * share);
        let weight = f64::from(answer.output) / times.len() as f64;
        for at in inside {
            let second = ((at - from).ceil() as usize).saturating_sub(1);
            seconds[second.min(whole_seconds - 1)] += weight;
        }
        let end = answer.start + answer.latency;
        if from <= answer.start && answer.start < to {
            input += u64::from(answer.prompt);
        }
        completed += u64::from(is_inside(end));
        overlap += (end.min(to) - answer.start.max(from)).max(0.0);
    }
    Some(SteadyState {
        concurrency_ratio: ratio,
        window_start: from,
        window_end: to,
        duration,
        concurrency_threshold: threshold,
        completed,
        total_input: input,
        input_throughput: input as f64 / duration,
        total_output: output,
        total_output_retokenized: counted,
        output_throughput: output / duration,
        output_throughput_retokenized: counted.map(|tokens| tokens / duration),
        average_concurrency: overlap / duration,
        peak_concurrency: peak,
        peak_output_throughput: seconds.into_iter().fold(0.0, f64::max),
    })
}

/// Returns the times at which the tokens of an answer arrived, as far as its events show. There is at least
/// one.
fn token_times(answer: &SuccessfulRequest<'_>) -> Vec<f64> {
    let mut at = answer.start + answer.ttft;
    let first = std::iter::once(at);
    first
        .chain(answer.itl.collect().into_iter().map(|gap| {
            at += gap;
            at
        }))
        .collect()
}

fn concurrency_intervals(answers: &[SuccessfulRequest<'_>]) -> Vec<Interval> {
    let mut turns: Vec<(f64, i64)> = answers
        .iter()
        .filter(|answer| answer.latency > 0.0)
        .flat_map(|answer| [(answer.start, 1), (answer.start + answer.latency, -1)])
        .collect();
    turns.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut running = 0i64;
    let mut intervals = Vec::new();
    for pair in turns.windows(2) {
        running += pair[0].1;
        if pair[0].0 < pair[1].0 {
            intervals.push(Interval {
                from: pair[0].0,
                to: pair[1].0,
                running: u32::try_from(running).unwrap_or(0),
            });
        }
    }
    intervals
}

/// Returns the longest run of neighbouring intervals with at least `threshold` requests in flight. Of equal
/// runs, the first.
fn longest_interval(intervals: &[Interval], threshold: u32) -> Option<(f64, f64)> {
    let runs = intervals
        .chunk_by(|one, other| (one.running >= threshold) == (other.running >= threshold))
        .filter(|run| run[0].running >= threshold)
        .map(|run| (run[0].from, run[run.len() - 1].to));
    runs.reduce(|best, run| {
        if run.1 - run.0 > best.1 - best.0 {
            run
        } else {
            best
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an answer with one event per second, the first one a second after its start.
    fn answer(start: f64, events: u32, tokens: u32) -> SuccessfulRequest<'static> {
        SuccessfulRequest {
            start,
            ttft: 1.0,
            latency: f64::from(events),
            itl: bench_serving::Gaps::Values(vec![1.0; events as usize - 1]),
            itl_tokens: None,
            output: tokens,
            prompt: 10,
            vision: 0,
            counted: Some(2 * tokens),
            may_be_good: true,
        }
    }

    #[test]
    fn the_window_is_the_longest_time_at_the_threshold() {
        // In flight: 1 from 0 to 1, 2 from 1 to 3, 1 from 3 to 4, 2 from 4 to 8, 1 from 8 to 9.
        let answers = [answer(0.0, 3, 3), answer(1.0, 8, 16), answer(4.0, 4, 4)];
        let steady = steady_state_of(&answers, 0.9).unwrap();
        assert_eq!((steady.window_start, steady.window_end), (4.0, 8.0));
        assert_eq!((steady.concurrency_threshold, steady.peak_concurrency), (2, 2));
        // The events of the second answer at 4, 5, 6, 7 and 8 are inside: five of eight with two tokens each.
        // So are all four of the third.
        assert_eq!(steady.total_output, 10.0 + 4.0);
        assert_eq!(steady.total_output_retokenized, Some(28.0));
        assert_eq!(steady.output_throughput, 3.5);
        // Only the third began and ended inside. The second ends at 9.
        assert_eq!((steady.total_input, steady.completed), (10, 1));
        assert_eq!(steady.average_concurrency, 2.0);
        // The first second has the second answer's events at 4 and 5, and the third's first event.
        assert_eq!(steady.peak_output_throughput, 5.0);
    }

    #[test]
    fn a_lower_ratio_takes_more_in_and_neighbours_run_together() {
        let answers = [answer(0.0, 3, 3), answer(1.0, 8, 16), answer(4.0, 4, 4)];
        let steady = steady_state_of(&answers, 0.5).unwrap();
        assert_eq!((steady.window_start, steady.window_end), (0.0, 9.0));
        assert_eq!(steady.total_output, 23.0);
        assert_eq!(steady.completed, 3);
    }

    /// Returns requests of one length on two slots. In each wave one request ends a tenth of a second before
    /// the other, and the client sends the next ones half a second later.
    fn waves(count: u32, events: u32) -> Vec<SuccessfulRequest<'static>> {
        let at = |wave: u32| f64::from(wave) * (f64::from(events) + 0.5);
        let of_wave = |wave| {
            let early = SuccessfulRequest {
                latency: f64::from(events) - 0.1,
                ..answer(at(wave), events, 20)
            };
            [early, answer(at(wave), events, 20)]
        };
        (0..count).flat_map(of_wave).collect()
    }

    #[test]
    fn our_steady_state_holds_all_waves_and_not_the_longest_alone() {
        let answers = waves(4, 3);
        assert!((steady_state_of(&answers, STEADY_RATIO).unwrap().duration - 2.9).abs() < 1e-9);
        let (from, to) = plateau(&answers).unwrap();
        // Three waves with the following pauses, and the fourth until its first request ends.
        assert_eq!((from, to), (0.0, 3.0 * 3.5 + 2.9));
        let output = |answers: &[SuccessfulRequest<'_>]| {
            rate_between(answers, (from, to), |answer| f64::from(answer.output))
        };
        let whole = 8.0 * 20.0 / (3.0 * 3.5 + 3.0);
        assert!(
            (output(&answers) / whole - 1.0).abs() < 0.01,
            "{}",
            output(&answers)
        );
        // The same answers, each in a single event at its end.
        let mut late = answers.clone();
        for answer in &mut late {
            (answer.ttft, answer.itl) = (answer.latency, bench_serving::Gaps::Values(Vec::new()));
        }
        assert_eq!(output(&late), output(&answers));
    }

    #[test]
    fn our_steady_state_ends_where_the_drain_begins() {
        // Two slots, five requests of two seconds each. The last request takes eight seconds and runs alone.
        let starts = [0.0, 0.0, 2.0, 2.0, 4.0];
        let mut answers: Vec<SuccessfulRequest<'_>> = starts.map(|start| answer(start, 2, 20)).into();
        answers.push(answer(4.0, 8, 80));
        let plateau = plateau(&answers).unwrap();
        assert_eq!(plateau, (0.0, 6.0));
        // Five answers, and a quarter of the last one.
        assert_eq!(
            rate_between(&answers, plateau, |answer| f64::from(answer.output)),
            20.0
        );
        assert_eq!(rate_between(&answers, plateau, |answer| answer.latency), 2.0);
        assert_eq!(super::plateau(&[]), None);
    }

    #[test]
    fn of_equally_long_windows_the_first_counts_and_of_nothing_there_is_none() {
        let answers = [answer(0.0, 2, 2), answer(5.0, 2, 2)];
        assert_eq!(steady_state_of(&answers, 1.0).unwrap().window_start, 0.0);
        assert_eq!(steady_state_of(&[], 1.0), None);
    }
}
