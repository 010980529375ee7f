//! Checks that the engine was measured and not the client.

use super::codes::code_entry;
use super::evidence::Evidence;
use super::reason::{new_reason, percent};
use super::{host, steadiness};
use crate::analysis::metrics::{self, LatencyKind, Metric, Rates, Statistic};
use crate::config::arrival::Arrival;
use crate::config::scenario::Scenario;
use crate::config::validity::ValidityBounds;
use crate::results::record::client::{ClientFacts, MAX_EVENTS_PER_S, SendLag};
use crate::results::record::request::Request;
use crate::results::record::telemetry::{HostWindow, Telemetry};
use crate::results::record::validity::{Reason, ReasonCode, Verdict};

/// Fewest arrivals for which a rate is judged. With fewer, one slightly late request lowers the rate.
const MIN_ARRIVALS: usize = 20;
/// Fewest arrivals whose drawn rate is compared with the requested one.
const MIN_DRAWN_ARRIVALS: usize = 8;
/// The drawn rate may differ from the requested rate by this share without a note.
const DRAWN_RATE_TOLERANCE: f64 = 0.1;

/// Factor by which the lag may exceed that of the calibration. In a measurement the engine may run on the
/// same machine.
const CALIBRATION_FACTOR: f64 = 3.0;

/// Events with shorter gaps come in bursts, whose gaps mean nothing.
const MIN_GAP_MS: f64 = 0.05;

/// Lowest bound for the error of arrival times, as a share of the bound for the send lag. Arrival times have
/// to be more precise.
const LATE_READ_FACTOR: f64 = 1.0 / 40.0;

/// Share of the median TTFT that a lag does not affect noticeably.
const NEGLIGIBLE_TTFT_SHARE: f64 = 0.05;

pub(super) fn judge(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    if let Some(client) = &evidence.summary.client {
        judge_lateness(evidence, client, reasons);
    }
    judge_rate(evidence, reasons);
}

/// Judges requests that were sent late. A single late request is ignored.
fn judge_lateness(evidence: &Evidence<'_>, client: &ClientFacts, reasons: &mut Vec<Reason>) {
    let Some(lag) = &client.send_lag else {
        return;
    };
    let bounds = evidence.bounds;
    let calibrated = client
        .error
        .map_or(0.0, |point| CALIBRATION_FACTOR * point.send_lag_p99_ms);
    let median = evidence
        .metric_value(Metric::Time(Statistic::Median, LatencyKind::Ttft))
        .unwrap_or(0.0);
    let own = 1000.0 * bounds.send_lag.duration().as_secs_f64();
    let unseen = match is_burst(evidence.requests) {
        // The single request does not matter in a burst, only the time of all of them.
        true => NEGLIGIBLE_TTFT_SHARE * steadiness::window_s(evidence.requests).unwrap_or(0.0) * 1000.0,
        false => NEGLIGIBLE_TTFT_SHARE * median,
    };
    let bound = own.max(calibrated).max(unseen);
    let host = host_window(evidence);
    reasons.extend(lateness_reason(
        lag,
        bound,
        host.and_then(|host| host::other_processes(host, bounds)),
    ));
}

/// Judges the lag against its bound. `others` describes the load of other processes.
fn lateness_reason(lag: &SendLag, bound: f64, others: Option<String>) -> Option<Reason> {
    if lag.p99_ms <= bound || lag.second_ms.is_some_and(|second| second <= bound) {
        return None;
    }
    let neighbour = others
        .as_ref()
        .map_or_else(String::new, |others| format!("; {others}"));
    let measured = format!(
        "99 of 100 requests were sent within {:.1} ms of their due time{neighbour}",
        lag.p99_ms
    );
    let mut reason = new_reason(ReasonCode::ClientLate, measured, Some(format!("{bound:.1} ms")));
    if lag.fifth_ms.is_none_or(|fifth| fifth <= bound) {
        reason.weight = Verdict::Suspect;
    }
    if others.is_some() {
        reason.advice = "Requests were sent later than they were due, while other processes kept this host busy. End those processes, or give the \
                         client processors of its own (`taskset`, `cpuset`)."
            .to_owned();
    }
    Some(reason)
}

/// Returns whether all requests were due at the same time.
fn is_burst(requests: &[Request]) -> bool {
    let first = requests.first().map(|request| request.due_ns);
    requests.len() > 1 && requests.iter().all(|request| Some(request.due_ns) == first)
}

fn host_window<'a>(evidence: &Evidence<'a>) -> Option<&'a HostWindow> {
    evidence.summary.telemetry.as_ref()?.host.as_ref()
}

/// Judges whether arrival times are precise enough for the time between events. They are not if a tenth of
/// them may be off by more than half of that time, or if events came at a rate at which a client cannot
/// separate them.
pub(super) fn judge_read_lateness(
    client: &ClientFacts,
    gap_ms: Option<f64>,
    bounds: &ValidityBounds,
    reasons: &mut Vec<Reason>,
) {
    let Some(late) = client.late else {
        return;
    };
    let min_late_ms = LATE_READ_FACTOR * 1000.0 * bounds.send_lag.duration().as_secs_f64();
    let bound = |gap: f64| min_late_ms.max(gap / 2.0);
    let gap = gap_ms.filter(|gap| *gap >= MIN_GAP_MS && late.p90_ms > bound(*gap));
    let (measured, bound) = if let Some(gap) = gap {
        let off = late.p90_ms;
        (
            format!(
                "the client read several events at once: the time of one event in ten may be wrong by {off:.2} ms; events are {gap:.2} ms apart"
            ),
            format!("{:.2} ms", bound(gap)),
        )
    } else if late.events_per_s > f64::from(MAX_EVENTS_PER_S) {
        (
            format!(
                "a tenth of the events arrived at a rate of {:.0} events/s or more",
                late.events_per_s
            ),
            format!("one client can measure exact arrival times for at most {MAX_EVENTS_PER_S} events/s"),
        )
    } else {
        return;
    };
    reasons.push(Reason {
        weight: Verdict::Suspect,
        ..new_reason(ReasonCode::ClientLate, measured, Some(bound))
    });
}

/// Judges the processor use of the client, and jumps of its clock.
pub(super) fn judge_cpu_use(client: &ClientFacts, bounds: &ValidityBounds, reasons: &mut Vec<Reason>) {
    if let Some(share) = client.cpu_share.filter(|share| *share > bounds.client_cpu) {
        let measured = format!(
            "the client's busiest thread used {} of a processor",
            percent(share)
        );
        reasons.push(new_reason(
            ReasonCode::ClientSaturated,
            measured,
            Some(percent(bounds.client_cpu)),
        ));
    }
    if let Some(late) = client.late.filter(|late| late.pauses > 0) {
        let measured = format!(
            "the client was stopped, or had no processor, {} for 0.3 s or longer (the longest time: {:.1} s); events that arrived then have timestamps that are too late",
            times_in_words(late.pauses),
            late.longest_pause_s
        );
        let reason = new_reason(ReasonCode::ClientLate, measured, Some("never".to_owned()));
        reasons.push(Reason {
            weight: Verdict::Suspect,
            ..reason
        });
    }
    if client.clock_jumps > 0 {
        let measured = format!(
            "the wall clock was changed {} by a millisecond or more",
            times_in_words(client.clock_jumps)
        );
        reasons.push(new_reason(
            ReasonCode::ClockJump,
            measured,
            Some("never".to_owned()),
        ));
    }
}

fn times_in_words(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

/// Judges shared processors. They are normal on small machines. They count only if the client had to wait for
/// one.
pub(super) fn judge_shared_cpus(
    telemetry: &Telemetry,
    threads: u32,
    bounds: &ValidityBounds,
    reasons: &mut Vec<Reason>,
) {
    let Some(host) = telemetry
        .host
        .as_ref()
        .filter(|host| host.shares_cpus == Some(true))
    else {
        return;
    };
    let time = telemetry.seconds * f64::from(threads);
    let waited = host.client_wait_s.filter(|_| time > 0.0).map(|wait| wait / time);
    let wait_note = waited.map_or_else(String::new, |share| {
        format!(
            "; the client's threads waited for a processor {} of the time",
            percent(share)
        )
    });
    let mut reason = new_reason(
        ReasonCode::ClientSharesCpus,
        format!("{} processors{wait_note}", host.cpus),
        Some(format!("{} of the time", percent(bounds.client_wait))),
    );
    // Without other processors there is no remedy. The client's own lag then shows whether it was late.
    let has_others = host.cpus > 2 * threads;
    let waits = waited.is_some_and(|share| share > bounds.client_wait);
    if !(has_others && waits) {
        reason.weight = Verdict::Valid;
    }
    reasons.push(reason);
}

/// Returns whether requests were due at a rate, instead of all at once or one after another.
pub(super) fn has_rate(evidence: &Evidence<'_>) -> bool {
    let scenario = &evidence.cell.scenario;
    is_paced(scenario, &evidence.summary.arrival(scenario), evidence.requests)
}

/// Returns whether requests were due at a rate, instead of when earlier answers ended.
pub(super) fn is_paced(scenario: &Scenario, arrival: &Arrival, requests: &[Request]) -> bool {
    if !(arrival.is_paced() || scenario.workload.is_replayed()) {
        return false;
    }
    let first = requests.iter().map(|request| request.due_ns).min();
    let last = requests.iter().map(|request| request.due_ns).max();
    first != last && requests.iter().all(|request| request.round.unwrap_or(0) == 0)
}

fn judge_rate(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    if !has_rate(evidence) {
        return;
    }
    let arrival = evidence.summary.arrival(&evidence.cell.scenario);
    let lag = evidence.summary.client.and_then(|client| client.send_lag);
    let Some(rates) = metrics::request_rates(evidence.requests) else {
        return;
    };
    reasons.extend(drawn_rate_reason(evidence.requests, &rates, &arrival));
    reasons.extend(reached_rate_reason(
        evidence.requests,
        &rates,
        &arrival,
        lag.as_ref(),
        evidence.bounds,
    ));
}

/// Judges whether a load reached the requested rate, from its requests alone.
pub(super) fn load_rate_reason(
    requests: &[Request],
    scenario: &Scenario,
    bounds: &ValidityBounds,
) -> Option<Reason> {
    is_paced(scenario, &scenario.arrival, requests)
        .then(|| {
            reached_rate_reason(
                requests,
                &metrics::request_rates(requests)?,
                &scenario.arrival,
                None,
                bounds,
            )
        })
        .flatten()
}

/// Returns a note if the drawn arrivals had another rate than the requested one. It labels the row.
fn drawn_rate_reason(requests: &[Request], rates: &Rates, arrival: &Arrival) -> Option<Reason> {
    if requests.len() < MIN_DRAWN_ARRIVALS || arrival.pace.is_some() || arrival.rate.is_infinite() {
        return None;
    }
    let due = rates.due;
    ((due / arrival.rate.per_second() - 1.0).abs() > DRAWN_RATE_TOLERANCE).then(|| {
        let measured = format!(
            "the arrival times of the {} requests have a rate of {due:.2}/s, but {}/s was requested",
            requests.len(),
            arrival.rate
        );
        new_reason(
            ReasonCode::RateDrawn,
            measured,
            Some(format!("{:.0} %", 100.0 * DRAWN_RATE_TOLERANCE)),
        )
    })
}

/// Judges requests that were sent at a lower rate than they were due.
fn reached_rate_reason(
    requests: &[Request],
    rates: &Rates,
    arrival: &Arrival,
    lag: Option<&SendLag>,
    bounds: &ValidityBounds,
) -> Option<Reason> {
    if requests.len() < MIN_ARRIVALS {
        return None;
    }
    let Rates { due, sent } = *rates;
    let bound = due * (1.0 - bounds.rate);
    if sent >= bound {
        return None;
    }
    let requested = match arrival.pace.is_none() && !arrival.rate.is_infinite() {
        true => format!("{}/s was requested", arrival.rate),
        false => "the requested rate changes during the load".to_owned(),
    };
    let late = |lag: &SendLag| {
        format!(
            "; the client sent 99 of 100 requests within {:.1} ms of their due time",
            lag.p99_ms
        )
    };
    // Behind a concurrency limit, lag counts from when a slot is free.
    let own = 1000.0 * bounds.send_lag.duration().as_secs_f64();
    let lag = lag.filter(|lag| arrival.concurrency.is_none() || lag.p99_ms > own);
    let measured = format!(
        "{sent:.2} requests/s were sent, but {due:.2}/s were due according to the schedule of the {} requests ({requested}){}",
        requests.len(),
        lag.map(late).unwrap_or_default()
    );
    let mut reason = new_reason(
        ReasonCode::RateNotReached,
        measured,
        Some(format!("{bound:.2}/s")),
    );
    let means = code_entry(ReasonCode::RateNotReached).meaning;
    reason.advice = match (arrival.concurrency, lag) {
        (Some(limit), lag) => format!(
            "{means} With the concurrency limit of {limit}, the load was a closed loop. Raise this limit, or lower the rate.{}",
            lag.map_or(
                "",
                |_| " The client itself sent requests late, too: give it processors of its own."
            )
        ),
        (None, _) => format!(
            "{means} The scenario has no concurrency limit, so the client itself sent the requests late. Give it processors of its own (`taskset`, `cpuset` for the \
             engine), or lower the rate."
        ),
    };
    Some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_that_comes_at_another_rate_is_noted() {
        let arrival: Arrival =
            serde_json::from_value(serde_json::json!({"rate": 4.0, "concurrency": null})).unwrap();
        let drawn = |gap_ms: u64, count: u64| {
            let request = |place: u64| {
                let due_ns = place * gap_ms * 1_000_000;
                serde_json::from_value(serde_json::json!({
                    "index": place, "prompt_tokens": 1, "asked_tokens": 2, "due_ns": due_ns, "sent_ns": due_ns, "end_ns": due_ns,
                    "chunks": [],
                }))
                .unwrap()
            };
            let requests: Vec<Request> = (0..count).map(request).collect();
            drawn_rate_reason(&requests, &metrics::request_rates(&requests)?, &arrival)
        };
        let reason = drawn(143, 21).expect("it came at seven a second");
        assert_eq!(reason.weight, Verdict::Valid);
        assert!(
            reason
                .measured
                .contains("have a rate of 6.99/s, but 4/s was requested"),
            "{reason:?}"
        );
        assert_eq!(drawn(250, 21), None);
        assert_eq!(drawn(143, 7), None);
    }

    #[test]
    fn one_late_request_is_an_accident_a_few_are_suspect_and_the_neighbour_is_named() {
        let lag = |latest: f64, second: f64, fifth: f64| SendLag {
            mean_ms: 0.1,
            p99_ms: latest,
            max_ms: latest,
            second_ms: Some(second),
            fifth_ms: Some(fifth),
        };
        let weight = |lag: &SendLag| lateness_reason(lag, 10.0, None).map(|reason| reason.weight);
        // One of 40, because the P99 is the latest of them.
        assert_eq!(weight(&lag(15.7, 0.3, 0.1)), None);
        assert_eq!(weight(&lag(15.7, 12.0, 0.1)), Some(Verdict::Suspect));
        assert_eq!(weight(&lag(15.7, 15.0, 11.0)), Some(Verdict::Invalid));
        let host = HostWindow {
            cpus: 2,
            other_cpus: Some(1.98),
            ..HostWindow::default()
        };
        let others = host::other_processes(&host, &ValidityBounds::default());
        let reason = lateness_reason(&lag(15.7, 15.0, 11.0), 10.0, others).unwrap();
        assert!(
            reason
                .measured
                .ends_with("; other processes used 1.98 of 2 processors"),
            "{reason:?}"
        );
        assert!(!reason.advice.contains("own fault"), "{reason:?}");
    }

    #[test]
    fn events_that_were_read_together_are_suspect_beyond_half_their_gap_at_any_rate() {
        let at_rate = |p90_ms: f64, gap_ms: f64, events_per_s: f64| {
            let facts: ClientFacts = serde_json::from_value(serde_json::json!({
                "send_lag": null, "cpu_share": 0.5, "threads": 1, "loop_lag_max_ms": null, "error": null,
                "late": {"p90_ms": p90_ms, "p99_ms": 9.0, "max_ms": 9.0, "events_per_s": events_per_s, "pauses": 0, "longest_pause_s": 0.0},
            }))
            .unwrap();
            let mut reasons = Vec::new();
            judge_read_lateness(&facts, Some(gap_ms), &ValidityBounds::default(), &mut reasons);
            assert!(reasons.len() <= 1, "{reasons:?}");
            reasons.first().map(|reason| (reason.code, reason.weight))
        };
        let judged = |p90_ms: f64, gap_ms: f64| at_rate(p90_ms, gap_ms, 100.0);
        let suspect = Some((ReasonCode::ClientLate, Verdict::Suspect));
        assert_eq!([judged(4.9, 10.0), judged(5.1, 10.0)], [None, suspect]);
        // The bound is at least a quarter of a millisecond. Bursts have no gaps.
        assert_eq!([judged(0.24, 0.1), judged(0.26, 0.1)], [None, suspect]);
        assert_eq!(judged(9.0, 0.01), None);
        // Above the highest rate events cannot be separated, whatever the lag and the gaps are.
        assert_eq!(at_rate(0.0, 10.0, 150_000.0), None);
        for (p90_ms, gap_ms) in [(0.0, 10.0), (0.0, 0.01), (9.0, 1.0)] {
            assert_eq!(at_rate(p90_ms, gap_ms, 150_001.0), suspect);
        }
    }

    #[test]
    fn a_burst_is_due_at_one_moment() {
        let request = |due: u64| -> Request {
            serde_json::from_value(serde_json::json!({
                "index": 0, "prompt_tokens": 1, "asked_tokens": 2, "due_ns": due, "end_ns": 0, "chunks": [],
            }))
            .unwrap()
        };
        assert!(is_burst(&[request(0), request(0)]));
        assert!(!is_burst(&[request(0), request(5)]));
        assert!(!is_burst(&[request(0)]));
    }

    #[test]
    fn a_rate_that_was_not_reached_tells_what_was_asked_drawn_and_sent_and_names_a_limit_only_where_there_is_one()
     {
        let requests = |count: u64| -> Vec<Request> {
            let request = |index: u64| {
                serde_json::from_value(serde_json::json!({
                    "index": index, "prompt_tokens": 1, "asked_tokens": 2, "due_ns": index * 50_000_000,
                    "sent_ns": index * 60_000_000, "end_ns": 0, "chunks": [],
                }))
                .unwrap()
            };
            (0..count).map(request).collect()
        };
        let arrival = |text: &str| -> Arrival { serde_json::from_str(text).unwrap() };
        let lag = SendLag {
            mean_ms: 1.0,
            p99_ms: 200.0,
            max_ms: 200.0,
            second_ms: None,
            fifth_ms: None,
        };
        let judged = |count: u64, text: &str, lag: Option<&SendLag>| {
            let requests = requests(count);
            reached_rate_reason(
                &requests,
                &metrics::request_rates(&requests)?,
                &arrival(text),
                lag,
                &ValidityBounds::default(),
            )
        };
        let open = r#"{"rate": 8.0, "concurrency": null}"#;
        assert_eq!(judged(19, open, None), None);
        let reason = judged(25, open, Some(&lag)).unwrap();
        assert_eq!(
            reason.measured,
            "16.67 requests/s were sent, but 20.00/s were due according to the schedule of the 25 requests (8/s was requested); \
             the client sent 99 of 100 requests within 200.0 ms of their due time"
        );
        assert_eq!(reason.bound.as_deref(), Some("19.00/s"));
        assert!(!reason.advice.contains("Raise this limit"), "{reason:?}");
        assert!(
            reason.advice.contains("client itself sent the requests late"),
            "{reason:?}"
        );
        let judged_reason = judged(
            25,
            r#"{"rate": 8.0, "concurrency": 4}"#,
            Some(&SendLag { p99_ms: 0.2, ..lag }),
        )
        .unwrap();
        assert!(
            judged_reason.advice.contains("the concurrency limit of 4"),
            "{judged_reason:?}"
        );
        assert!(!judged_reason.measured.contains("client"), "{judged_reason:?}");
    }
}
