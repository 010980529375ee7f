//! What is known of the client itself: how far its moments lie from the truth, and what it was busy with. Pure.

use serde::{Deserialize, Serialize};

/// What the client of one machine was found to be worth against the simulated engine, whose own moments are the truth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Calibration {
    /// The version of `matrix`.
    pub tool: String,
    /// The machine: host, kernel, processor and their number, as far as they are known.
    pub machine: String,
    /// When it was measured, RFC 3339.
    pub at: String,
    /// Whose clock stamped arrivals: `user` or `kernel`.
    #[serde(rename = "timestamp_source", alias = "stamps")]
    pub stamps: String,
    /// A point for each gap between events, from the longest on, and for each number of streams, ascending. The shorter gaps have one
    /// number of streams each.
    pub points: Vec<Point>,
    /// How fast it can take tokens at all; `None` where that was not tried.
    pub flood: Option<Flood>,
}

/// The most events in a second whose moments one client can tell.
pub(crate) const MOST_EVENTS_PER_S: u32 = 150_000;

/// The client at one number of streams, which all begin at once and get tokens at fixed times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Streams at once.
    pub streams: u32,
    /// Events (tokens) per second while all streams run.
    pub events_per_s: f64,
    /// How far measured TTFT lies from the server's own, ms. The way through the kernel and the server's reading of a burst are in it.
    pub ttft_ms: Deviation,
    /// How far measured ITL lies from the server's own, ms.
    pub itl_ms: Deviation,
    /// The busiest thread's share of a processor, 0 to 1.
    pub cpu_share: f64,
    /// 99 of 100 requests were sent at most this late, ms.
    pub send_lag_p99_ms: f64,
}

impl Point {
    /// The time between the events of one stream, ms.
    pub(crate) fn gap_ms(&self) -> f64 {
        f64::from(self.streams) * 1000.0 / self.events_per_s
    }
}

/// Signed and absolute distance from the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Deviation {
    /// The mean of measured minus true.
    pub bias: f64,
    /// 99 of 100 lie at most this far from the truth, to either side.
    pub p99: f64,
}

/// Tokens sent as fast as the client takes them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Flood {
    pub streams: u32,
    pub events_per_s: f64,
    /// The busiest thread's share of a processor, 0 to 1.
    pub cpu_share: f64,
    /// Whether the client was the limit; otherwise the server was, and the client can do more.
    pub is_limit: bool,
}

/// What the client did during one measurement, and how far its figures can be trusted. Of a search the worst over all points
/// ([`ClientFacts::worst`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientFacts {
    /// How late requests were sent by our own fault, ms; `None` if none was sent.
    pub send_lag: Option<SendLag>,
    /// The busiest thread's share of a processor, 0 to 1.
    pub cpu_share: Option<f64>,
    /// Sending threads.
    pub threads: u32,
    /// The longest time that a socket with data may have waited for its turn, ms.
    pub loop_lag_max_ms: Option<f64>,
    /// How often the wall clock was set meanwhile, as the sending threads saw it.
    #[serde(default)]
    pub clock_jumps: u32,
    /// How far moments of arrival may be off because the client looked late; `None` in older records.
    #[serde(default)]
    pub late: Option<Late>,
    /// Connections that the server left open for a second after `[DONE]`.
    #[serde(default)]
    pub left_open: u64,
    /// The calibrated error at the nearest number of streams that is not smaller, else the largest one.
    pub error: Option<Point>,
}

/// How far moments of arrival may be off because the client looked late, ms: of events that were read together only the last one's moment
/// is exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Late {
    /// Nine of ten events may be off by so much at most.
    pub p90_ms: f64,
    /// 99 of 100 events may be off by so much at most.
    pub p99_ms: f64,
    /// The most.
    pub max_ms: f64,
    /// Events in a second: one of ten came at this rate or a higher one, counted over quarters of a second.
    pub events_per_s: f64,
    /// How often the client did nothing for 0.3 s or longer: it was stopped, or had no processor.
    pub pauses: u32,
    /// The longest of these pauses, s.
    pub longest_pause_s: f64,
}

impl ClientFacts {
    /// How far 99 of 100 of the client's moments lie from the truth at most, ms, TTFT and ITL: by calibration, and by what the load itself
    /// showed. `None` where neither is known.
    pub(crate) fn error_ms(&self) -> Option<[f64; 2]> {
        let calibrated = self.error.map(|point| [point.ttft_ms.p99, point.itl_ms.p99]);
        let late = self.late.map_or(0.0, |late| late.p99_ms);
        calibrated.map(|errors| errors.map(|error| error.max(late)))
    }

    /// The worst of this load and another one of the same search: what happens often is summed, everything else is the larger of both. A point that
    /// is measured by a client in trouble decides where the search goes, whichever point it chooses. The threads and the calibrated error are
    /// those of this load, whose figures are reported.
    #[must_use]
    pub(crate) fn worst(self, other: Self) -> Self {
        Self {
            send_lag: either(self.send_lag, other.send_lag, SendLag::worst),
            cpu_share: either(self.cpu_share, other.cpu_share, f64::max),
            threads: self.threads,
            loop_lag_max_ms: either(self.loop_lag_max_ms, other.loop_lag_max_ms, f64::max),
            clock_jumps: self.clock_jumps.saturating_add(other.clock_jumps),
            late: either(self.late, other.late, Late::worst),
            left_open: self.left_open.saturating_add(other.left_open),
            error: self.error,
        }
    }
}

/// What both come to, or the one that is there.
fn either<T>(one: Option<T>, other: Option<T>, both: impl Fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(both(one, other)),
        (one, other) => one.or(other),
    }
}

impl Late {
    fn worst(self, other: Self) -> Self {
        Self {
            p90_ms: self.p90_ms.max(other.p90_ms),
            p99_ms: self.p99_ms.max(other.p99_ms),
            max_ms: self.max_ms.max(other.max_ms),
            events_per_s: self.events_per_s.max(other.events_per_s),
            pauses: self.pauses.saturating_add(other.pauses),
            longest_pause_s: self.longest_pause_s.max(other.longest_pause_s),
        }
    }
}

impl SendLag {
    /// The load in which 99 of 100 requests were sent later: its latest requests tell whether that was an accident, so that all are of one load.
    fn worst(self, other: Self) -> Self {
        if other.p99_ms > self.p99_ms { other } else { self }
    }
}

/// How late requests were sent, ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendLag {
    /// The mean.
    pub mean_ms: f64,
    /// 99 of 100 were at most this late.
    pub p99_ms: f64,
    /// The latest.
    pub max_ms: f64,
    /// The second latest; absent where fewer were sent, or in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub second_ms: Option<f64>,
    /// The fifth latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fifth_ms: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(p99_ms: f64, pauses: u32, longest_pause_s: f64, cpu_share: f64) -> ClientFacts {
        ClientFacts {
            send_lag: Some(SendLag {
                mean_ms: 0.1,
                p99_ms,
                max_ms: 2.0 * p99_ms,
                second_ms: Some(p99_ms),
                fifth_ms: None,
            }),
            cpu_share: Some(cpu_share),
            threads: 1,
            loop_lag_max_ms: None,
            clock_jumps: pauses,
            late: Some(Late {
                p90_ms: 0.1,
                p99_ms,
                max_ms: p99_ms,
                events_per_s: 100.0 * cpu_share,
                pauses,
                longest_pause_s,
            }),
            left_open: 1,
            error: None,
        }
    }

    #[test]
    fn the_worst_of_two_loads_has_all_pauses_and_the_larger_of_everything_else() {
        let chosen = facts(1.0, 1, 0.4, 0.8);
        let stopped = ClientFacts {
            threads: 2,
            loop_lag_max_ms: Some(3.0),
            ..facts(7.0, 2, 2.3, 0.2)
        };
        let worst = chosen.worst(stopped);
        let late = worst.late.unwrap();
        assert_eq!((late.pauses, late.longest_pause_s, late.p99_ms), (3, 2.3, 7.0));
        assert_eq!((late.p90_ms, late.events_per_s), (0.1, 80.0));
        assert_eq!(worst.send_lag, stopped.send_lag);
        assert_eq!((worst.cpu_share, worst.loop_lag_max_ms), (Some(0.8), Some(3.0)));
        assert_eq!((worst.threads, worst.clock_jumps, worst.left_open), (1, 3, 2));
        // What one of them does not know, the other one may.
        let unknown = ClientFacts {
            send_lag: None,
            late: None,
            ..chosen
        };
        assert_eq!(unknown.worst(stopped).late, stopped.late);
        assert_eq!(chosen.worst(unknown).send_lag, chosen.send_lag);
    }
}
