//! What a measurement reports while it runs.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::base::clock::MonotonicTime;
use crate::base::control_client::ControlError;
use crate::loadgen::{PlannedRequest, Progress};
use crate::results::record::cell::Phase;
use crate::results::record::request::Request;

/// Receives what happens in a measurement, in order.
pub(crate) trait CellObserver {
    fn event(&mut self, event: CellEvent<'_>);
}

/// Something that happened in a measurement.
pub(crate) enum CellEvent<'a> {
    /// The requests of a warm-up or of a load are sent next.
    Sending {
        phase: Phase,
        items: &'a [PlannedRequest],
    },
    /// They are under way.
    Progress {
        phase: Phase,
        progress: &'a Progress,
        requests: usize,
    },
    /// They have ended; the moments of their records count from `zero`.
    Sent {
        ended: usize,
        requests: &'a [Request],
        zero: MonotonicTime,
    },
    WarmedUp {
        duration: Duration,
    },
    Profiler(ProfilerEvent<'a>),
    Warning(&'a str),
}

/// Something that happened to a profiler. A worker that runs apart has a name.
pub(crate) enum ProfilerEvent<'a> {
    /// Workers run apart, and none was named.
    NoWorkers,
    Starting {
        url: String,
        /// The body without the fields that stand in both bodies.
        body: &'a Map<String, Value>,
    },
    Stopping,
    /// It was asked to start or to stop.
    Asked {
        to_start: bool,
        worker: Option<&'a str>,
        url: &'a str,
        error: Option<ControlError>,
    },
}
