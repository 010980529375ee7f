//! Accuracy and load of the client itself. Pure.

use serde::{Deserialize, Serialize};

/// Error of the client on one host, measured against the simulated engine, which knows the true times.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Calibration {
    /// Version of `matrix`.
    pub(crate) tool: String,
    /// Host, kernel, processor model and processor count, as far as known.
    pub(crate) machine: String,
    /// When it was measured, RFC 3339.
    pub(crate) at: String,
    /// Source of the timestamps of arrivals: `user` or `kernel`.
    #[serde(rename = "timestamp_source", alias = "stamps")]
    pub(crate) timestamp_source: String,
    /// One point for each gap between events (longest first) and each number of streams (ascending). The
    /// shorter gaps have one number of streams each.
    pub(crate) points: Vec<Point>,
    /// Highest token rate that the client takes; `None` if not measured.
    pub(crate) flood: Option<Flood>,
}

/// Highest event rate, per second, at which one client can tell the time of each event.
pub(crate) const MAX_EVENTS_PER_S: u32 = 150_000;

/// The client at one number of streams, which all begin at once and receive tokens at fixed times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub streams: u32,
    /// Events (tokens) per second while all streams run.
    pub(crate) events_per_s: f64,
    /// Measured TTFT minus the server's, in ms. Includes the path through the kernel and the server's reading
    /// of a burst of requests.
    pub ttft_ms: Deviation,
    /// Measured ITL minus the server's, in ms.
    pub(crate) itl_ms: Deviation,
    /// CPU share of the busiest thread, 0 to 1.
    pub(crate) cpu_share: f64,
    /// 99th percentile of the send lag, ms.
    pub(crate) send_lag_p99_ms: f64,
}

impl Point {
    /// The time between the events of one stream, ms.
    pub(crate) fn gap_ms(&self) -> f64 {
        f64::from(self.streams) * 1000.0 / self.events_per_s
    }
}

/// Signed and absolute deviation from the true value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Deviation {
    /// Mean of measured minus true.
    pub(crate) bias: f64,
    /// 99th percentile of the absolute deviation.
    pub p99: f64,
}

/// Result of sending tokens as fast as the client takes them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Flood {
    pub(crate) streams: u32,
    pub(crate) events_per_s: f64,
    /// CPU share of the busiest thread, 0 to 1.
    pub(crate) cpu_share: f64,
    /// Whether the client was the limit. If not, the server was, and the client can take more.
    pub(crate) is_limit: bool,
}

/// Load and errors of the client during one measurement. For a search, the worst over all points
/// ([`ClientFacts::worst`]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientFacts {
    /// Send lag caused by the client, in ms; `None` if nothing was sent.
    pub send_lag: Option<SendLag>,
    /// CPU share of the busiest thread, 0 to 1.
    pub cpu_share: Option<f64>,
    /// Number of sending threads.
    pub(crate) threads: u32,
    /// Longest time that a readable socket may have waited for its turn, in ms.
    pub loop_lag_max_ms: Option<f64>,
    /// Number of times that the wall clock was set during the measurement, as seen by the sending threads.
    #[serde(default)]
    pub(crate) clock_jumps: u32,
    /// Error of arrival timestamps because the client read late; `None` in older records.
    #[serde(default)]
    pub late: Option<ArrivalUncertainty>,
    /// Connections that the server kept open for one second after `[DONE]`.
    #[serde(default)]
    pub(crate) left_open: u64,
    /// Reusable connections that were closed because the server sent bytes that belong to no request.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) surplus_connections: u64,
    /// Calibrated error at the nearest number of streams that is not smaller; otherwise at the largest
    /// number.
    pub error: Option<Point>,
}

/// Error of arrival timestamps because the client read late, in ms. Of events that were read together, only
/// the last one's timestamp is exact.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArrivalUncertainty {
    /// 90th percentile of the possible error.
    pub(crate) p90_ms: f64,
    /// 99th percentile of the possible error.
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// Rate in events per second that one of ten events reached or exceeded, counted over quarters of a second.
    pub(crate) events_per_s: f64,
    /// Number of times that the client made no progress for 0.3 s or longer, because it was stopped or had no
    /// processor.
    pub pauses: u32,
    /// The longest of these pauses, in seconds.
    pub longest_pause_s: f64,
}

impl ClientFacts {
    /// Returns the bounds of 99 % of the client's errors in TTFT and ITL, in ms: from the calibration, or
    /// from late reads in this load if those are larger. `None` without a calibration.
    pub(crate) fn error_ms(&self) -> Option<[f64; 2]> {
        let calibrated = self.error.map(|point| [point.ttft_ms.p99, point.itl_ms.p99]);
        let late = self.late.map_or(0.0, |late| late.p99_ms);
        calibrated.map(|errors| errors.map(|error| error.max(late)))
    }

    /// Combines this load with another one of the same search: counts are summed, other values are the larger
    /// of both. Threads and calibrated error are those of this load, whose figures are reported. All points
    /// count, because a point measured by an overloaded client misleads the search even if another one is
    /// chosen.
    #[must_use]
    pub(crate) fn worst(self, other: Self) -> Self {
        Self {
            send_lag: merge_options(self.send_lag, other.send_lag, SendLag::worst),
            cpu_share: merge_options(self.cpu_share, other.cpu_share, f64::max),
            threads: self.threads,
            loop_lag_max_ms: merge_options(self.loop_lag_max_ms, other.loop_lag_max_ms, f64::max),
            clock_jumps: self.clock_jumps.saturating_add(other.clock_jumps),
            late: merge_options(self.late, other.late, ArrivalUncertainty::worst),
            left_open: self.left_open.saturating_add(other.left_open),
            surplus_connections: self.surplus_connections.saturating_add(other.surplus_connections),
            error: self.error,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Combines both values, or returns the one that exists.
fn merge_options<T>(one: Option<T>, other: Option<T>, both: impl Fn(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(both(one, other)),
        (one, other) => one.or(other),
    }
}

impl ArrivalUncertainty {
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
    /// Returns the load with the larger p99. All its values stay together, because its latest requests show
    /// whether the lag was an outlier.
    fn worst(self, other: Self) -> Self {
        if other.p99_ms > self.p99_ms { other } else { self }
    }
}

/// Send lag of requests, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SendLag {
    pub(crate) mean_ms: f64,
    /// The 99th percentile.
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// The second largest; absent if fewer requests were sent, and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) second_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fifth_ms: Option<f64>,
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
            late: Some(ArrivalUncertainty {
                p90_ms: 0.1,
                p99_ms,
                max_ms: p99_ms,
                events_per_s: 100.0 * cpu_share,
                pauses,
                longest_pause_s,
            }),
            left_open: 1,
            surplus_connections: 1,
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
        assert_eq!(worst.surplus_connections, 2);
        // A value that one side lacks comes from the other side.
        let unknown = ClientFacts {
            send_lag: None,
            late: None,
            ..chosen
        };
        assert_eq!(unknown.worst(stopped).late, stopped.late);
        assert_eq!(chosen.worst(unknown).send_lag, chosen.send_lag);
    }
}
