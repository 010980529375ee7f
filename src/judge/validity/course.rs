//! Was it long enough, steady, and within what the engine can bear?

use super::{Evidence, client, found, percent};
use crate::results::record::request::Request;
use crate::results::record::validity::{Code, Reason};

/// The parts that a measurement is cut into when its throughput is looked at.
const PARTS: usize = 10;

/// How far the throughput of a part may lie from that of its neighbours and still count as the same.
const SAME: f64 = 0.25;

/// Standard deviations within which the number in flight may rise by arrivals at random.
const CHANCE: f64 = 3.0;

/// Standard deviations within which the throughput of a part may differ by arrivals at random: three would take a ramp for steady.
const STEADY_CHANCE: f64 = 2.0;

/// Below this many requests in flight a queue is no queue.
const QUEUE: f64 = 8.0;

/// The highest percentile that tables print, as the share that lies beyond it.
const BEYOND: f64 = 0.01;

pub(super) fn judge(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let bounds = evidence.bounds;
    let completed = evidence.completed().count();
    let beyond = completed as f64 * BEYOND;
    if beyond < f64::from(bounds.tail) {
        reasons.push(found(
            Code::FewSamples,
            format!("of {completed} requests {} lie beyond P99", beyond.floor()),
            Some(format!(
                "{} beyond it, which takes {} requests",
                bounds.tail,
                f64::from(bounds.tail) / BEYOND
            )),
        ));
    }
    let Some(seconds) = window(evidence.requests) else {
        return;
    };
    let least = bounds.window.duration().as_secs_f64();
    if seconds < least {
        reasons.push(found(
            Code::WindowShort,
            format!("{seconds:.2} s"),
            Some(format!("{}", bounds.window)),
        ));
    }
    let unsteady = steady_share(evidence.requests, seconds, client::has_rate(evidence))
        .filter(|share| *share < bounds.steady);
    if let Some(share) = unsteady {
        reasons.push(found(
            Code::NeverSteady,
            format!("steady for {} of the time", percent(share)),
            Some(percent(bounds.steady)),
        ));
    }
    growth(evidence, reasons);
}

/// From the first request sent to the last one's end, in seconds.
pub(super) fn window(requests: &[Request]) -> Option<f64> {
    let from = requests.iter().filter_map(|request| request.sent_ns).min()?;
    let to = requests.iter().map(|request| request.end_ns).max()?;
    Some(to.saturating_sub(from) as f64 / 1e9)
}

/// The longest time, as a share of the whole, for which output came at a throughput that lies within a quarter of its mean, or within what
/// arrivals at random explain; `None` where too little came to say.
fn steady_share(requests: &[Request], seconds: f64, has_rate: bool) -> Option<f64> {
    let from = requests.iter().filter_map(|request| request.sent_ns).min()?;
    let mut events = [0.0f64; PARTS];
    let part = seconds * 1e9 / PARTS as f64;
    let mut all = 0u32;
    for chunk in requests.iter().flat_map(|request| &request.chunks) {
        let at = (chunk.at_ns.saturating_sub(from) as f64 / part) as usize;
        events[at.min(PARTS - 1)] += 1.0;
        all += 1;
    }
    // Fewer differ by a quarter by accident: 10 parts of 100 events have a standard deviation of a tenth.
    if all < 1000 {
        return None;
    }
    let same = match has_rate {
        true => SAME.max(STEADY_CHANCE / running_in_part(requests, part).sqrt()),
        false => SAME,
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
    // One part is always like itself.
    Some(if longest <= 1 {
        0.0
    } else {
        longest as f64 / PARTS as f64
    })
}

/// Requests that run in a part of the window, on average: one that reaches into three parts counts in each.
fn running_in_part(requests: &[Request], part_ns: f64) -> f64 {
    let parts: f64 = requests
        .iter()
        .filter_map(|request| Some(request.end_ns.saturating_sub(request.sent_ns?) as f64 / part_ns + 1.0))
        .sum();
    (parts / PARTS as f64).max(1.0)
}

/// Requests in flight, on average over each quarter of the time in which they fell due.
fn in_flight(requests: &[Request]) -> Option<[f64; 4]> {
    let from = requests.iter().map(|request| request.due_ns).min()?;
    let to = requests.iter().map(|request| request.due_ns).max()?;
    let quarter = to.saturating_sub(from) / 4;
    if quarter == 0 {
        return None;
    }
    let mut quarters = [0.0; 4];
    for (place, mean) in quarters.iter_mut().enumerate() {
        let begin = from + place as u64 * quarter;
        let end = begin + quarter;
        let time: u64 = requests
            .iter()
            .map(|request| request.end_ns.min(end).saturating_sub(request.due_ns.max(begin)))
            .sum();
        *mean = time as f64 / quarter as f64;
    }
    Some(quarters)
}

/// Under an open loop a queue that grows to the end means that latencies tell how long it was measured, not how fast the engine is.
fn growth(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    if !client::has_rate(evidence) {
        return;
    }
    let Some([first, second, third, last]) = in_flight(evidence.requests) else {
        return;
    };
    let factor = evidence.bounds.queue_growth;
    if grows([first, second, third, last], factor) {
        reasons.push(found(
            Code::QueueGrowing,
            format!("{first:.1}, {second:.1}, {third:.1}, {last:.1} requests in flight in the quarters of the sending"),
            Some(format!("a factor of {factor} from each to the next")),
        ));
    }
}

/// Whether the number in flight rose to the end, further than the arrivals at random of an engine that keeps up explain: there it varies by the
/// square root of its mean.
fn grows([first, second, third, last]: [f64; 4], factor: f64) -> bool {
    let mean = (first + second + third + last) / 4.0;
    let rises = second > factor * first && third > factor * second && last > factor * third;
    rises && last >= QUEUE && last - first > CHANCE * mean.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixty requests at 20 a second of an engine that keeps up, as a run of clean cells met them.
    #[test]
    fn a_queue_that_random_arrivals_explain_does_not_grow() {
        assert!(!grows([3.3, 4.1, 7.3, 8.4], 1.1));
        assert!(
            grows([4.0, 12.0, 20.0, 28.0], 1.1),
            "twice what the engine can bear"
        );
        assert!(grows([20.0, 40.0, 60.0, 80.0], 1.1));
        assert!(!grows([80.0, 60.0, 40.0, 20.0], 1.1));
    }
}
