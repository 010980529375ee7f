//! Events that a measurement reports while it runs.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::base::clock::MonotonicTime;
use crate::base::control_client::ControlError;
use crate::config::search::{SearchVariable, Tier};
use crate::loadgen::{PlannedRequest, Progress};
use crate::results::record::cell::Phase;
use crate::results::record::request::Request;
use crate::results::record::search::{Point, PointProgress};

/// Receives the events of a measurement in order.
pub(crate) trait CellObserver {
    fn event(&mut self, event: CellEvent<'_>);
}

pub(crate) enum CellEvent<'a> {
    /// The requests of a warm-up or load are about to be sent.
    Sending {
        phase: Phase,
        items: &'a [PlannedRequest],
    },
    /// The requests are in flight.
    Progress {
        phase: Phase,
        progress: &'a Progress,
        requests: usize,
        /// The point of a search that is measured.
        point: Option<PointProgress>,
    },
    /// A point of a search was judged.
    PointJudged {
        point: &'a Point,
        by: SearchVariable,
        /// The tier that judges it; absent if there is only one.
        tier: Option<Tier>,
        target: f64,
    },
    /// The requests have ended; the timestamps of their records are relative to `zero`.
    Sent {
        ended: usize,
        requests: &'a [Request],
        zero: MonotonicTime,
    },
    WarmedUp {
        duration: Duration,
    },
    Profiler(ProfilerEvent<'a>),
    /// The page with the server's counters, directly before or after the load; `None` if it cannot be read.
    Counters(Option<String>),
    Warning(&'a str),
}

/// An event of a profiler. Workers have names if prefill and decode run on separate workers.
pub(crate) enum ProfilerEvent<'a> {
    /// Workers run separately, but none is named.
    NoWorkers,
    Starting {
        url: String,
        /// The body without the fields that the start and stop requests share.
        body: &'a Map<String, Value>,
    },
    Stopping,
    /// A request to start or stop the profiler was sent.
    Asked {
        to_start: bool,
        worker: Option<&'a str>,
        url: &'a str,
        error: Option<ControlError>,
    },
}
