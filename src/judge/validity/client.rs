//! Was it the engine that was measured, or the client?

use super::{Evidence, found, percent};
use crate::judge::metrics::{self, Metric, Rates, Sample, Statistic};
use crate::matrix::spec::validity::Bounds;
use crate::results::record::client::ClientFacts;
use crate::results::record::telemetry::Telemetry;
use crate::results::record::validity::{Code, Reason, Verdict};

/// Below this many requests a rate is an accident.
const FEW: usize = 8;

/// What calibration found may be exceeded by this factor before it counts: the engine runs on the same machine then.
const CALIBRATED: f64 = 3.0;

/// Events that follow one another faster come in bursts, whose gaps say nothing.
const LEAST_GAP_MS: f64 = 0.05;

/// From this rate on the client is the first suspect when events are read together.
const BUSY_EVENTS_PER_S: f64 = 100_000.0;

/// Below that rate reads may be late by so many times what sending may.
const LATE_READS: f64 = 3.0;

/// The share of the median TTFT that nobody would see.
const UNSEEN: f64 = 0.05;

pub(super) fn judge(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let (summary, bounds) = (evidence.summary, evidence.bounds);
    if let Some(client) = &summary.client {
        if let Some(lag) = &client.send_lag {
            let calibrated = client
                .error
                .map_or(0.0, |point| CALIBRATED * point.send_lag_p99_ms);
            let median = evidence
                .figure(Metric::Time(Statistic::Median, Sample::Ttft))
                .unwrap_or(0.0);
            let own = 1000.0 * bounds.send_lag.duration().as_secs_f64();
            let bound = own.max(calibrated).max(UNSEEN * median);
            if lag.p99_ms > bound {
                let measured = format!(
                    "99 of 100 requests sent within {:.1} ms of their time",
                    lag.p99_ms
                );
                reasons.push(found(Code::ClientLate, measured, Some(format!("{bound:.1} ms"))));
            }
        }
        late(evidence, client, bounds, reasons);
        effort(client, bounds, reasons);
    }
    if let Some(telemetry) = &summary.telemetry {
        let threads = summary.client.map_or(1, |client| client.threads.max(1));
        shared(telemetry, threads, bounds, reasons);
    }
    rate(evidence, reasons);
}

/// Whether moments of arrival say something of the time between events: a tenth of them may be off by more than half of it.
fn late(evidence: &Evidence<'_>, client: &ClientFacts, bounds: &Bounds, reasons: &mut Vec<Reason>) {
    let gap = evidence.figure(Metric::Time(Statistic::Mean, Sample::ChunkGap));
    let (Some(late), Some(gap)) = (client.late, gap.filter(|gap| *gap >= LEAST_GAP_MS)) else {
        return;
    };
    // Below such a rate it is others who keep the client from its processor now and then, and engines whose events come in bursts.
    let least = match late.events_per_s >= BUSY_EVENTS_PER_S {
        true => 0.0,
        false => LATE_READS * 1000.0 * bounds.send_lag.duration().as_secs_f64(),
    };
    let bound = least.max(gap / 2.0);
    if late.p90_ms > bound {
        let measured = format!(
            "the client read events together: one of ten may be off by {:.2} ms, with {gap:.2} ms between events",
            late.p90_ms
        );
        let reason = found(Code::ClientLate, measured, Some(format!("{bound:.2} ms")));
        reasons.push(Reason {
            weight: Verdict::Suspect,
            ..reason
        });
    }
}

/// What the client was busy with, and whether its clock was left alone.
pub(super) fn effort(client: &ClientFacts, bounds: &Bounds, reasons: &mut Vec<Reason>) {
    if let Some(share) = client.cpu_share.filter(|share| *share > bounds.client_cpu) {
        let measured = format!("the busiest thread used {} of a processor", percent(share));
        reasons.push(found(
            Code::ClientSaturated,
            measured,
            Some(percent(bounds.client_cpu)),
        ));
    }
    if let Some(late) = client.late.filter(|late| late.pauses > 0) {
        let measured = format!(
            "the client was stopped, or had no processor, {} for 0.3 s or longer, at most {:.1} s; what arrived meanwhile has later moments",
            times(late.pauses),
            late.longest_pause_s
        );
        let reason = found(Code::ClientLate, measured, Some("never".to_owned()));
        reasons.push(Reason {
            weight: Verdict::Suspect,
            ..reason
        });
    }
    if client.clock_jumps > 0 {
        let measured = format!("set {} by a millisecond or more", times(client.clock_jumps));
        reasons.push(found(Code::ClockJump, measured, Some("never".to_owned())));
    }
}

fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    }
}

/// Sharing processors is a fact of small machines; it is a fault where the client had to wait for one.
pub(super) fn shared(telemetry: &Telemetry, threads: u32, bounds: &Bounds, reasons: &mut Vec<Reason>) {
    let Some(host) = telemetry
        .host
        .as_ref()
        .filter(|host| host.shares_cpus == Some(true))
    else {
        return;
    };
    let time = telemetry.seconds * f64::from(threads);
    let waited = host.client_wait_s.filter(|_| time > 0.0).map(|wait| wait / time);
    let told = waited.map_or_else(String::new, |share| {
        format!(
            ", the client's threads waited {} of the time for one",
            percent(share)
        )
    });
    let mut reason = found(
        Code::ClientSharesCpus,
        format!("{} processors{told}", host.cpus),
        Some(format!("{} of the time", percent(bounds.client_wait))),
    );
    // Where there are no others, nothing can be done about it: how late the client was is told by its own figures.
    let has_others = host.cpus > 2 * threads;
    let waits = waited.is_some_and(|share| share > bounds.client_wait);
    if !(has_others && waits) {
        reason.weight = Verdict::Valid;
    }
    reasons.push(reason);
}

/// Whether requests fell due by a rate, and not all at once or one after another.
pub(super) fn has_rate(evidence: &Evidence<'_>) -> bool {
    let (scenario, requests) = (&evidence.cell.scenario, evidence.requests);
    if !(evidence.summary.arrival(scenario).is_paced() || scenario.workload.is_replayed()) {
        return false;
    }
    let first = requests.iter().map(|request| request.due_ns).min();
    let last = requests.iter().map(|request| request.due_ns).max();
    first != last && requests.iter().all(|request| request.round.unwrap_or(0) == 0)
}

fn rate(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let requests = evidence.requests;
    if requests.len() < FEW || !has_rate(evidence) {
        return;
    }
    let Some(Rates { due: asked, sent }) = metrics::rates(requests) else {
        return;
    };
    let bound = asked * (1.0 - evidence.bounds.rate);
    if sent < bound {
        reasons.push(found(
            Code::RateNotReached,
            format!("{sent:.2} requests/s sent"),
            Some(format!("{bound:.2}, of {asked:.2} asked for")),
        ));
    }
}
