//! Checks that a measurement was long enough and steady, and that the engine could bear its load.

use super::client;
use super::evidence::Evidence;
use super::reason::{new_reason, percent};
use crate::config::arrival::Arrival;
use crate::config::scenario::Scenario;
use crate::config::validity::ValidityBounds;
use crate::results::record::request::Request;
use crate::results::record::validity::{Reason, ReasonCode};

/// Number of parts in which the throughput of a measurement is compared.
const PARTS: usize = 10;

/// Relative difference from the mean within which the throughput of a part counts as the same.
const MAX_NEIGHBOUR_DIFFERENCE: f64 = 0.25;

/// Standard deviations by which random arrivals may raise the number in flight.
const QUEUE_DEVIATIONS: f64 = 3.0;

/// Standard deviations by which random arrivals may change the throughput of a part. With three, a ramp would
/// count as steady.
const STEADY_DEVIATIONS: f64 = 2.0;

/// Fewest requests in flight that count as a queue.
const MIN_QUEUE: f64 = 8.0;

/// Minimum factor between the last quarter and the highest of the first three for a queue that grows late.
const LATE_GROWTH_FACTOR: f64 = 1.5;

/// Standard deviations for the same test. The value is higher than [`QUEUE_DEVIATIONS`], because a queue that an engine
/// works off varies more than arrivals do.
const LATE_GROWTH_DEVIATIONS: f64 = 4.0;

/// Minimum factor between the event rates of the first and the last third of a closed loop that was not
/// steady.
const DRIFT_FACTOR: f64 = 1.5;

/// Shortest third. In a shorter one a short pause of the client would decide.
const MIN_THIRD_NS: u64 = 1_000_000_000;

/// Standard deviations by which these rates may differ because answers differ.
const DRIFT_DEVIATIONS: f64 = 3.0;

/// Fewest answers per slot and in all, and fewest events, in a third of a closed loop for which a rate is
/// computed.
const MIN_RESPONSES_PER_SLOT: usize = 2;
const MIN_RESPONSES: usize = 8;
const MIN_EVENTS: f64 = 100.0;

/// Share of requests beyond the highest percentile that tables print.
const BEYOND_SHARE: f64 = 0.01;

pub(super) fn judge(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let bounds = evidence.bounds;
    let completed = evidence.completed_requests().count();
    let beyond = completed as f64 * BEYOND_SHARE;
    if beyond < f64::from(bounds.tail) {
        reasons.push(new_reason(
            ReasonCode::FewSamples,
            format!(
                "only {} of {completed} requests have values beyond P99",
                beyond.floor()
            ),
            Some(format!(
                "the measurement needs at least {} requests, so that {} of them have values beyond P99",
                f64::from(bounds.tail) / BEYOND_SHARE,
                bounds.tail
            )),
        ));
    }
    let Some(seconds) = window_s(evidence.requests) else {
        return;
    };
    let min_window_s = bounds.window.duration().as_secs_f64();
    if seconds < min_window_s {
        reasons.push(new_reason(
            ReasonCode::WindowShort,
            format!("{seconds:.2} s"),
            Some(format!("{}", bounds.window)),
        ));
    }
    let scenario = &evidence.cell.scenario;
    let arrival = evidence.summary.arrival(scenario);
    reasons.extend(load_reasons(evidence.requests, scenario, &arrival, bounds));
}

/// Judges whether a load was in a steady state, from its requests alone. `run` and `bench` both report this.
pub(super) fn load_reasons(
    requests: &[Request],
    scenario: &Scenario,
    arrival: &Arrival,
    bounds: &ValidityBounds,
) -> Vec<Reason> {
    let has_rate = client::is_paced(scenario, arrival, requests);
    let is_fixed_rate = arrival.is_paced() || scenario.workload.is_replayed();
    let slots = arrival
        .concurrency
        .filter(|_| !is_fixed_rate)
        .map(|limit| limit.get() as usize);
    let unsteady = never_steady_reason(requests, has_rate, slots, bounds);
    let growing = has_rate.then(|| growth_reason(requests, bounds)).flatten();
    unsteady.into_iter().chain(growing).collect()
}

/// Reports that throughput changed from part to part, or over a closed loop of `slots`.
fn never_steady_reason(
    requests: &[Request],
    has_rate: bool,
    slots: Option<usize>,
    bounds: &ValidityBounds,
) -> Option<Reason> {
    let seconds = window_s(requests)?;
    let share = steady_share(requests, seconds, has_rate)
        .filter(|share| *share < bounds.steady)
        .map(|share| {
            (
                format!("the load was steady for {} of the time", percent(share)),
                percent(bounds.steady),
            )
        });
    // A bound of 0 turns the code off.
    let drift = slots
        .filter(|_| bounds.steady > 0.0)
        .and_then(|slots| rate_drift(requests, slots))
        .map(|(first, last)| {
            let direction = if last < first { "fell" } else { "rose" };
            (
                format!(
                    "the rate of answer events {direction} from {first:.1} events/s in the first third of the measurement to {last:.1} events/s in the last third"
                ),
                format!("a factor of {DRIFT_FACTOR}"),
            )
        });
    let (measured, allowed): (Vec<String>, Vec<String>) = share.into_iter().chain(drift).unzip();
    (!measured.is_empty()).then(|| {
        new_reason(
            ReasonCode::NeverSteady,
            measured.join("; "),
            Some(allowed.join("; ")),
        )
    })
}

/// Returns the seconds from the first request sent to the last end of a completed one, or of any if none
/// completed.
pub(super) fn window_s(requests: &[Request]) -> Option<f64> {
    let from = requests.iter().filter_map(|request| request.sent_ns).min()?;
    let completed = requests.iter().filter(|request| request.is_completed());
    let to = completed.map(|request| request.end_ns).max();
    let to = to.or_else(|| requests.iter().map(|request| request.end_ns).max())?;
    Some(to.saturating_sub(from) as f64 / 1e9)
}

/// Returns the longest run of parts with a throughput within a quarter of its mean, or within what random
/// arrivals explain, as a share of the measurement. `None` if there are too few events.
fn steady_share(requests: &[Request], seconds: f64, has_rate: bool) -> Option<f64> {
    let from = requests.iter().filter_map(|request| request.sent_ns).min()?;
    let mut events = [0.0f64; PARTS];
    let part = seconds * 1e9 / PARTS as f64;
    let mut total = 0u32;
    for chunk in requests.iter().flat_map(|request| &request.chunks) {
        let at = (chunk.at_ns.saturating_sub(from) as f64 / part) as usize;
        events[at.min(PARTS - 1)] += 1.0;
        total += 1;
    }
    // With fewer events parts differ by a quarter by chance: 10 parts of 100 events have a standard deviation
    // of a tenth.
    if total < 1000 {
        return None;
    }
    let same = match has_rate {
        true => {
            MAX_NEIGHBOUR_DIFFERENCE.max(STEADY_DEVIATIONS / mean_requests_per_part(requests, part).sqrt())
        }
        false => MAX_NEIGHBOUR_DIFFERENCE,
    };
    let longest = (0..PARTS)
        .flat_map(|first| (first + 1..=PARTS).map(move |end| (first, end)))
        .filter(|(first, end)| {
            let run = &events[*first..*end];
            let mean = run.iter().sum::<f64>() / run.len() as f64;
            mean > 0.0 && run.iter().all(|count| (count / mean - 1.0).abs() <= same)
        })
        .map(|(first, end)| end - first)
        .max()
        .unwrap_or(0);
    // A single part is always equal to itself.
    Some(if longest <= 1 {
        0.0
    } else {
        longest as f64 / PARTS as f64
    })
}

/// Estimates how many requests run at some time in a part of the window, as a mean over all parts; at least 1.
/// A request that spans three parts counts in each.
fn mean_requests_per_part(requests: &[Request], part_ns: f64) -> f64 {
    let parts: f64 = requests
        .iter()
        .filter_map(|request| Some(request.end_ns.saturating_sub(request.sent_ns?) as f64 / part_ns + 1.0))
        .sum();
    (parts / PARTS as f64).max(1.0)
}

/// Output of a part of a closed loop at full concurrency.
struct Output {
    /// Events. Those of an answer are spread evenly over its time, so the result does not depend on how an
    /// engine groups tokens or whether answers end together.
    events: f64,
    rate: f64,
    /// Squared relative standard error of the rate, from the differences between answers.
    variance: f64,
}

/// Returns the event rates of the first and the last third of the time at full concurrency, if they differ by
/// more than [`DRIFT_FACTOR`] and by more than the differences between answers explain. `None` otherwise, and if a
/// third is too short.
///
/// Full concurrency begins when as many answers have ended as there are slots, because the first prompts are
/// all read at once. It ends when as many requests are left to send. Thirds have equally many answers. Rounds
/// of conversations are not judged, because their prompts grow.
fn rate_drift(requests: &[Request], slots: usize) -> Option<(f64, f64)> {
    if requests.iter().any(|request| request.round.unwrap_or(0) > 0) {
        return None;
    }
    let answers: Vec<(u64, u64, f64)> = requests
        .iter()
        .filter_map(|request| Some((request.sent_ns?, request.end_ns, request.chunks.len() as f64)))
        .collect();
    let mut starts: Vec<u64> = answers.iter().map(|(start, _, _)| *start).collect();
    let mut ends: Vec<u64> = answers.iter().map(|(_, end, _)| *end).collect();
    starts.sort_unstable();
    ends.sort_unstable();
    let from = *ends.get(slots.checked_sub(1)?)?;
    let to = *starts.get(starts.len().checked_sub(slots)?)?;
    let inside: Vec<u64> = ends.into_iter().filter(|end| from < *end && *end <= to).collect();
    let third = inside.len() / 3;
    if third < MIN_RESPONSES.max(MIN_RESPONSES_PER_SLOT.saturating_mul(slots)) {
        return None;
    }
    let (of_first, of_last) = ((from, inside[third - 1]), (inside[inside.len() - third - 1], to));
    if [of_first, of_last]
        .iter()
        .any(|(from, to)| to - from < MIN_THIRD_NS)
    {
        return None;
    }
    let first = output_between(&answers, of_first.0, of_first.1)?;
    let last = output_between(&answers, of_last.0, of_last.1)?;
    let difference = (last.rate / first.rate).ln().abs();
    let is_chance = difference <= DRIFT_DEVIATIONS * (first.variance + last.variance).sqrt();
    let is_enough = first.events.min(last.events) >= MIN_EVENTS;
    (is_enough && difference > DRIFT_FACTOR.ln() && !is_chance).then_some((first.rate, last.rate))
}

/// Returns the output of answers between two times. Each answer is a start, an end and a number of events.
/// `None` if there is no output.
fn output_between(answers: &[(u64, u64, f64)], from: u64, to: u64) -> Option<Output> {
    let seconds = to.checked_sub(from).filter(|time| *time > 0)? as f64 / 1e9;
    let share = |start: u64, end: u64| match end.saturating_sub(start) {
        0 => 0.0,
        time => end.min(to).saturating_sub(start.max(from)) as f64 / time as f64,
    };
    let events: f64 = answers
        .iter()
        .map(|(start, end, events)| events * share(*start, *end))
        .sum();
    let ended: Vec<(f64, f64)> = answers
        .iter()
        .filter(|(_, end, _)| from < *end && *end <= to)
        .map(|(start, end, events)| (end.saturating_sub(*start) as f64 / 1e9, *events))
        .collect();
    let (all_seconds, all_events) = ended
        .iter()
        .fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    if !(events > 0.0 && all_seconds > 0.0 && all_events > 0.0) {
        return None;
    }
    // The variance of a ratio of two means (Cochran, Sampling Techniques, 6.4).
    let residuals = ended
        .iter()
        .map(|(time, events)| (events - all_events / all_seconds * time).powi(2));
    Some(Output {
        events,
        rate: events / seconds,
        variance: residuals.sum::<f64>() / all_events.powi(2),
    })
}

/// Numbers of requests over the time in which they were due.
struct Backlog {
    /// Mean number in flight in each quarter.
    quarters: [f64; 4],
    arrivals: [f64; 4],
    /// Mean number in flight in each half of the last quarter.
    last_halves: [f64; 2],
}

impl Backlog {
    fn from_requests(requests: &[Request]) -> Option<Self> {
        let from = requests.iter().map(|request| request.due_ns).min()?;
        let to = requests.iter().map(|request| request.due_ns).max()?;
        let eighth = to.saturating_sub(from) / 8;
        if eighth == 0 {
            return None;
        }
        let mean = |place: u64, count: u64| {
            let begin = from + place * eighth;
            let end = begin + count * eighth;
            let time: u64 = requests
                .iter()
                .map(|request| request.end_ns.min(end).saturating_sub(request.due_ns.max(begin)))
                .sum();
            time as f64 / (count * eighth) as f64
        };
        let mut arrivals = [0.0; 4];
        for request in requests {
            let quarter = (request.due_ns - from) / (2 * eighth);
            arrivals[quarter.min(3) as usize] += 1.0;
        }
        Some(Self {
            quarters: [0, 2, 4, 6].map(|place| mean(place, 2)),
            arrivals,
            last_halves: [6, 7].map(|place| mean(place, 1)),
        })
    }

    /// Returns whether the number in flight rose to the end, by more than random arrivals explain if the
    /// engine keeps up.
    fn is_growing_backlog(&self, factor: f64) -> bool {
        let [_, _, _, last] = self.quarters;
        let [before, end] = self.last_halves;
        last >= MIN_QUEUE
            && end > before
            && (self.is_growing_throughout(factor) || self.is_growing_late(factor))
    }

    /// Returns whether it rose from each quarter to the next, by more than multiples of the square root of
    /// its mean, which is its variation with random arrivals.
    fn is_growing_throughout(&self, factor: f64) -> bool {
        let [first, second, third, last] = self.quarters;
        let rises = second > factor * first && third > factor * second && last > factor * third;
        rises && last - first > QUEUE_DEVIATIONS * self.mean().sqrt()
    }

    /// Returns whether it rose at the end of a load that the engine could bear at first. It must be far above
    /// all earlier quarters, must rise in the third quarter already or until the end, and must rise by more
    /// than additional arrivals explain.
    fn is_growing_late(&self, factor: f64) -> bool {
        let [first, second, third, last] = self.quarters;
        let highest = first.max(second).max(third);
        let is_far = last > factor.max(LATE_GROWTH_FACTOR) * highest
            && last - (first + second + third) / 3.0 > LATE_GROWTH_DEVIATIONS * self.mean().sqrt();
        let goes_on = third > factor * f64::midpoint(first, second)
            || self.last_halves[1] > factor * self.last_halves[0];
        let arrivals = self.arrivals[..3].iter().sum::<f64>() / 3.0;
        let is_answered_later = last * arrivals
            > factor.max(LATE_GROWTH_FACTOR) * (first + second + third) / 3.0 * self.arrivals[3];
        is_far && goes_on && is_answered_later
    }

    fn mean(&self) -> f64 {
        self.quarters.iter().sum::<f64>() / 4.0
    }
}

/// Reports a queue that grows to the end of an open loop. Its latencies depend on the length of the
/// measurement, not on the speed of the engine.
fn growth_reason(requests: &[Request], bounds: &ValidityBounds) -> Option<Reason> {
    let backlog = Backlog::from_requests(requests)?;
    let factor = bounds.queue_growth;
    backlog.is_growing_backlog(factor).then(|| {
        let [first, second, third, last] = backlog.quarters;
        new_reason(
            ReasonCode::QueueGrowing,
            format!("the average number of requests in flight was {first:.1}, {second:.1}, {third:.1} and {last:.1} in the four quarters of the sending time"),
            Some(format!(
                "the number of requests in flight must not grow by a factor of {factor} from each quarter to the next, or by a factor of {} in the last quarter alone",
                factor.max(LATE_GROWTH_FACTOR)
            )),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand_mt::Mt64;

    use super::*;
    use crate::results::record::chunks::Chunks;
    use crate::results::record::request::{Failure, RequestFailureClass};

    struct SeededRng(Mt64);

    impl SeededRng {
        fn new(seed: u64) -> Self {
            Self(Mt64::new(seed))
        }

        /// Draws uniformly from 0 to below 1.
        fn uniform(&mut self) -> f64 {
            (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
        }

        fn exponential(&mut self, mean: f64) -> f64 {
            -mean * (1.0 - self.uniform()).ln()
        }

        fn uniform_between(&mut self, min: f64, max: f64) -> f64 {
            min + (max - min) * self.uniform()
        }
    }

    /// Returns requests of a load, given as due time, end and event times in seconds.
    fn requests_of(load: &[(f64, f64, Vec<f64>)]) -> Vec<Request> {
        let blank: Request = serde_json::from_value(serde_json::json!({
            "index": 0, "prompt_tokens": 1, "asked_tokens": 2, "due_ns": 0, "end_ns": 0, "chunks": [],
        }))
        .unwrap();
        let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
        load.iter()
            .map(|(due, end, events)| {
                let events: Vec<_> = events
                    .iter()
                    .map(|at| serde_json::json!([nanoseconds(*at), "a", null, 1]))
                    .collect();
                Request {
                    due_ns: nanoseconds(*due),
                    sent_ns: Some(nanoseconds(*due)),
                    end_ns: nanoseconds(*end),
                    chunks: serde_json::from_value(serde_json::json!(events)).unwrap(),
                    ..blank.clone()
                }
            })
            .collect()
    }

    /// Returns a backlog with equal arrivals in all quarters, whose last halves continue the growth.
    fn backlog([first, second, third, last]: [f64; 4]) -> Backlog {
        let half = (last - third) / 4.0;
        Backlog {
            quarters: [first, second, third, last],
            arrivals: [40.0; 4],
            last_halves: [last - half, last + half],
        }
    }

    #[test]
    fn a_lost_request_lengthens_no_window() {
        let mut load = requests_of(&[(0.0, 2.0, vec![1.0, 2.0]), (0.5, 60.0, vec![])]);
        load[1].failure = Some(Failure {
            class: RequestFailureClass::TimeoutBeforeFirst,
            message: String::new(),
        });
        assert_eq!(window_s(&load), Some(2.0));
        load.remove(0);
        assert_eq!(window_s(&load), Some(59.5), "nothing was completed");
    }

    /// Sixty requests at 20 per second on an engine that keeps up, as measured in a run of clean cells.
    #[test]
    fn a_queue_that_random_arrivals_explain_does_not_grow() {
        let grows = |quarters| backlog(quarters).is_growing_backlog(1.1);
        assert!(!grows([3.3, 4.1, 7.3, 8.4]));
        assert!(grows([4.0, 12.0, 20.0, 28.0]), "twice what the engine can bear");
        assert!(grows([20.0, 40.0, 60.0, 80.0]));
        assert!(!grows([80.0, 60.0, 40.0, 20.0]));
    }

    /// Nine requests per second on an engine that answers fifteen per second in the first half and five in
    /// the second.
    #[test]
    fn a_queue_that_grows_from_the_middle_on_grows() {
        for quarters in [
            [7.2, 6.6, 8.5, 26.8],
            [5.4, 4.2, 14.1, 35.8],
            [5.0, 5.0, 13.6, 33.8],
            [6.2, 6.3, 9.2, 24.6],
            [5.8, 5.8, 8.3, 23.0],
        ] {
            let late = backlog(quarters);
            assert!(late.is_growing_backlog(1.1), "{quarters:?}");
            assert!(
                !late.is_growing_backlog(100.0),
                "`queue_growth` turns it off: {quarters:?}"
            );
            let over = Backlog {
                last_halves: [quarters[3] + 1.0, quarters[3] - 1.0],
                ..late
            };
            assert!(
                !over.is_growing_backlog(1.1),
                "the queue shrinks again: {quarters:?}"
            );
        }
        let by_arrivals = Backlog {
            arrivals: [40.0, 40.0, 50.0, 140.0],
            ..backlog([7.2, 6.6, 8.5, 26.8])
        };
        assert!(
            !by_arrivals.is_growing_backlog(1.1),
            "more arrivals, answered as fast"
        );
    }

    /// Returns Poisson arrivals on several servers. `service` gives the time of a request from the moment at
    /// which it begins.
    fn open_loop(
        rng: &mut SeededRng,
        count: usize,
        rate: f64,
        servers: usize,
        service: impl Fn(&mut SeededRng, f64) -> f64,
    ) -> Vec<Request> {
        let mut free = vec![0.0f64; servers];
        let mut now = 0.0;
        let load: Vec<_> = (0..count)
            .map(|_| {
                now += rng.exponential(1.0 / rate);
                let first = free
                    .iter_mut()
                    .min_by(|one, other| one.total_cmp(other))
                    .expect("there is a server");
                let begin = now.max(*first);
                *first = begin + service(rng, begin);
                (now, *first, Vec::new())
            })
            .collect();
        requests_of(&load)
    }

    fn is_growing_backlog(requests: &[Request]) -> bool {
        Backlog::from_requests(requests)
            .expect("it lasts")
            .is_growing_backlog(1.1)
    }

    #[test]
    fn queues_of_engines_that_keep_up_seldom_grow_and_those_beyond_capacity_do() {
        const LOADS: usize = 300;
        let mut rng = SeededRng::new(1);
        for utilisation in [0.5, 0.7, 0.8] {
            let mut all = 0;
            for (servers, is_random) in [(1, true), (1, false), (4, true), (4, false), (16, false)] {
                let grown = (0..LOADS)
                    .filter(|_| {
                        let count = rng.uniform_between(40.0, 400.0) as usize;
                        let rate = utilisation * servers as f64;
                        let service = |rng: &mut SeededRng, _| match is_random {
                            true => rng.exponential(1.0),
                            false => 1.0,
                        };
                        is_growing_backlog(&open_loop(&mut rng, count, rate, servers, service))
                    })
                    .count();
                let kind = if is_random { "M" } else { "D" };
                println!("M/{kind}/{servers} at {utilisation}: {grown} of {LOADS} stable loads grow");
                all += grown;
            }
            let allowed = if utilisation <= 0.7 { 0.01 } else { 0.03 };
            assert!(
                all as f64 <= allowed * (5 * LOADS) as f64,
                "{all} at {utilisation}"
            );
        }
        let short = (0..LOADS).filter(|_| {
            let service = |rng: &mut SeededRng, _| rng.uniform_between(0.2, 0.4);
            is_growing_backlog(&open_loop(&mut rng, 60, 20.0, 60, service))
        });
        let short = short.count();
        println!("60 requests at 20/s with short answers: {short} of {LOADS} grow");
        assert!(short <= LOADS / 100, "{short}");
        let slowed = (0..LOADS).filter(|_| {
            let service = |rng: &mut SeededRng, begin: f64| {
                let capacity = if begin < 150.0 / 9.0 / 2.0 { 15.0 } else { 5.0 };
                4.0 / capacity * rng.uniform_between(0.5, 1.5)
            };
            is_growing_backlog(&open_loop(&mut rng, 150, 9.0, 4, service))
        });
        let slowed = slowed.count();
        println!("three times slower from the middle on: {slowed} of {LOADS} grow");
        assert!(slowed >= LOADS * 95 / 100, "{slowed}");
        let beyond = (0..LOADS).filter(|_| {
            let service = |rng: &mut SeededRng, _| 4.0 / 4.5 * rng.uniform_between(0.5, 1.5);
            is_growing_backlog(&open_loop(&mut rng, 120, 9.0, 4, service))
        });
        let beyond = beyond.count();
        println!("twice what the engine can bear: {beyond} of {LOADS} grow");
        assert!(beyond >= LOADS * 95 / 100, "{beyond}");
    }

    /// Returns answers of these tokens on these slots, from an engine that reads the prompts of all new
    /// requests before it continues with its batch. Each prompt has its own time, and all times are
    /// multiplied by `slowness` of the current time.
    fn closed_loop(
        answers: &[(u32, f64)],
        slots: usize,
        slowness: impl Fn(f64) -> f64,
    ) -> Vec<(f64, f64, Vec<f64>)> {
        const STEP_S: f64 = 0.01;
        let mut load: Vec<(f64, f64, Vec<f64>)> = Vec::new();
        let mut running: Vec<usize> = Vec::new();
        let mut now = 0.0;
        loop {
            let mut step = STEP_S;
            while running.len() < slots && load.len() < answers.len() {
                step += answers[load.len()].1;
                running.push(load.len());
                load.push((now, now, Vec::new()));
            }
            if running.is_empty() {
                return load;
            }
            now += step * slowness(now);
            running.retain(|place| {
                let (_, end, events) = &mut load[*place];
                *end = now;
                events.push(now);
                events.len() < answers[*place].0 as usize
            });
        }
    }

    /// Returns the same requests without event times, which [`drift`] does not read.
    fn requests_with_counts(
        load: &[(f64, f64, Vec<f64>)],
        chunks: &mut BTreeMap<usize, Chunks>,
    ) -> Vec<Request> {
        let bare: Vec<_> = load
            .iter()
            .map(|(due, end, _)| (*due, *end, Vec::new()))
            .collect();
        let mut requests = requests_of(&bare);
        for (request, (_, _, events)) in requests.iter_mut().zip(load) {
            let of_length = chunks.entry(events.len()).or_insert_with(|| {
                let events: Vec<_> = (0..events.len())
                    .map(|at| serde_json::json!([at, "a", null, 1]))
                    .collect();
                serde_json::from_value(serde_json::json!(events)).unwrap()
            });
            request.chunks = of_length.clone();
        }
        requests
    }

    fn judge_load(requests: &[Request], arrival: &serde_json::Value, bounds: &ValidityBounds) -> Vec<Reason> {
        let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
        let plan: crate::plan::Plan = serde_json::from_str(plan).unwrap();
        let arrival: Arrival = serde_json::from_value(arrival.clone()).unwrap();
        load_reasons(requests, &plan.cells[0].scenario, &arrival, bounds)
    }

    #[test]
    fn a_closed_loop_on_an_engine_that_slows_down_is_never_steady() {
        let closed = serde_json::json!({ "rate": "inf", "concurrency": 8 });
        let usual = ValidityBounds::default();
        let loop_requests =
            |slowness: &dyn Fn(f64) -> f64| requests_of(&closed_loop(&[(32, 0.005); 240], 8, slowness));
        assert!(judge_load(&loop_requests(&|_| 1.0), &closed, &usual).is_empty());
        for (slowness, direction) in [
            (&(|now: f64| 1.0 + now / 8.0) as &dyn Fn(f64) -> f64, "fell"),
            (&|now| if now < 6.0 { 1.0 } else { 2.7 }, "fell"),
            (&|now| if now < 12.0 { 2.7 } else { 1.0 }, "rose"),
        ] {
            let requests = loop_requests(slowness);
            let reasons = judge_load(&requests, &closed, &usual);
            let [reason] = &reasons[..] else {
                panic!("{direction}: {reasons:?}");
            };
            assert_eq!(reason.code, ReasonCode::NeverSteady);
            assert!(reason.measured.contains(direction), "{}", reason.measured);
            let burst = serde_json::json!({ "rate": "inf", "concurrency": null });
            assert!(judge_load(&requests, &burst, &usual).is_empty(), "a burst");
            let off = ValidityBounds {
                steady: 0.0,
                ..ValidityBounds::default()
            };
            assert!(judge_load(&requests, &closed, &off).is_empty(), "turned off");
        }
        // Six requests per slot do not give three thirds of two each besides the first and the last wave.
        let few = requests_of(&closed_loop(&[(32, 0.005); 48], 8, |now| 1.0 + now));
        assert_eq!(rate_drift(&few, 8), None);
        // A drift within a tenth of a second may be a short pause of the client.
        let short = requests_of(&closed_loop(&[(32, 0.0001); 240], 8, |now| 1.0 + 50.0 * now));
        assert_eq!(rate_drift(&short, 8), None);
        // Prompts of rounds grow.
        let mut rounds = loop_requests(&|now| 1.0 + now / 8.0);
        assert!(rate_drift(&rounds, 8).is_some());
        rounds[9].round = Some(1);
        assert_eq!(rate_drift(&rounds, 8), None);
    }

    /// Lengths of random data sets, of one length and of conversations, with prompts that take no time or
    /// most of it.
    #[test]
    fn closed_loops_on_an_engine_of_one_speed_seldom_drift() {
        const LOADS: usize = 100;
        let mut rng = SeededRng::new(2);
        let mut chunks = BTreeMap::new();
        let mut drifted = 0;
        for (name, length) in [
            ("of one length", (|_| 40.0) as fn(&mut SeededRng) -> f64),
            ("of 1 to 80 tokens", |rng| rng.uniform_between(1.0, 80.0)),
            ("of mostly few tokens", |rng| rng.exponential(40.0).min(400.0)),
        ] {
            for prompt_s in [0.0, 0.02, 0.2] {
                let drifting = (0..LOADS).filter(|nth| {
                    let slots = [1, 4, 16][nth % 3];
                    let count = slots * rng.uniform_between(8.0, 20.0) as usize + 24;
                    let answers: Vec<(u32, f64)> = (0..count)
                        .map(|_| {
                            let tokens = (length(&mut rng).ceil() as u32).max(1);
                            (tokens, prompt_s * rng.uniform_between(0.0, 2.0))
                        })
                        .collect();
                    let load = closed_loop(&answers, slots, |_| 1.0);
                    rate_drift(&requests_with_counts(&load, &mut chunks), slots).is_some()
                });
                let drifting = drifting.count();
                println!("answers {name}, prompts of {prompt_s} s: {drifting} of {LOADS} steady loads drift");
                drifted += drifting;
            }
        }
        assert!(drifted <= 9 * LOADS / 100, "{drifted}");
    }
}
