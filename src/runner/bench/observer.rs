//! What a bench reports while it runs.

use std::time::Duration;

use crate::analysis::metrics::MetricInputs;
use crate::results::record::cell::{MeasurementStatus, Summary};
use crate::results::record::search::SearchRecord;
use crate::results::record::validity::Reason;
use crate::runner::bench::session::Session;
use crate::runner::cell::observer::CellObserver;
use crate::runner::load::LoadOutcome;
use crate::runner::search::SearchOutcome;
use crate::runner::session::observer::Notice;

/// Receives what happens in a bench, in order.
pub(crate) trait BenchObserver: CellObserver {
    /// Receives what happens before and between the loads.
    fn bench_event(&mut self, event: BenchEvent<'_>);

    /// Receives a load that was measured; if it is a point of a search, with what that has found so far, this point last. Returns whether to go on.
    fn load_measured(&mut self, measured: &BenchLoad, search: Option<&SearchRecord>) -> bool;
}

/// How a bench ended.
pub(crate) enum BenchOutcome {
    /// Every arrival was measured.
    Done,
    /// What a search over so many prompts came to.
    Search { outcome: SearchOutcome, prompts: usize },
    /// It was stopped, or its observer refused to go on.
    Stopped,
}

/// A load of a bench that was measured.
pub(crate) struct BenchLoad {
    pub(crate) session: Session,
    pub(crate) summary: Summary,
    pub(crate) load: LoadOutcome,
    /// What metrics are derived from beside the requests.
    pub(crate) basis: MetricInputs,
    /// What speaks against its metrics.
    pub(crate) reasons: Vec<Reason>,
}

impl AsRef<LoadOutcome> for BenchLoad {
    fn as_ref(&self) -> &LoadOutcome {
        &self.load
    }
}

impl BenchLoad {
    /// Whether it was stopped.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.summary.status == MeasurementStatus::Interrupted
    }
}

/// Something that happened in a bench before or between its loads.
pub(crate) enum BenchEvent<'a> {
    /// The server is polled until it is ready.
    Waiting {
        url: &'a str,
        limit: Duration,
    },
    /// The server became ready after so many seconds.
    Ready {
        seconds: f64,
    },
    /// The prompts are prepared, and the model is known by the name that was given, or that the server gives it.
    Prepared {
        session: &'a Session,
        model: &'a str,
    },
    Notice(&'a Notice),
    /// An arrival is measured next, after these.
    Arrival {
        /// Its place among the arrivals, from 0.
        place: usize,
        session: &'a Session,
        before: &'a [Session],
    },
    /// A point of a search is measured next.
    Point {
        number: usize,
        value: f64,
    },
}
