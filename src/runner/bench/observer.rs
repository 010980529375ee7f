//! Events that a bench reports while it runs.

use std::time::Duration;

use crate::analysis::metrics::MetricInputs;
use crate::results::record::cell::{MeasurementStatus, MeasurementSummary};
use crate::results::record::search::SearchRecord;
use crate::results::record::validity::Reason;
use crate::runner::bench::session::Session;
use crate::runner::cell::observer::CellObserver;
use crate::runner::load::LoadOutcome;
use crate::runner::search::SearchOutcome;
use crate::runner::session::observer::Notice;

/// Receives the events of a bench in order.
pub(crate) trait BenchObserver: CellObserver {
    /// Receives the events before and between the loads.
    fn bench_event(&mut self, event: BenchEvent<'_>);

    /// Receives a measured load. For a point of a search, `search` is the search so far; this point is its
    /// last. Returns whether to continue.
    fn load_measured(&mut self, measured: &BenchLoad, search: Option<&SearchRecord>) -> bool;
}

pub(crate) enum BenchOutcome {
    /// Every arrival was measured.
    Done,
    /// The search ended; `prompts` is the number of prompts that it could use.
    Search {
        outcome: Box<SearchOutcome>,
        prompts: usize,
    },
    /// It was stopped, or its observer refused to continue.
    Stopped,
}

pub(crate) struct BenchLoad {
    pub(crate) session: Session,
    pub(crate) summary: MeasurementSummary,
    pub(crate) load: LoadOutcome,
    /// Input of the metrics besides the requests.
    pub(crate) basis: MetricInputs,
    /// Reasons to doubt its metrics.
    pub(crate) reasons: Vec<Reason>,
}

impl AsRef<LoadOutcome> for BenchLoad {
    fn as_ref(&self) -> &LoadOutcome {
        &self.load
    }
}

impl BenchLoad {
    pub(crate) fn is_interrupted(&self) -> bool {
        self.summary.status == MeasurementStatus::Interrupted
    }
}

/// An event before or between the loads of a bench.
pub(crate) enum BenchEvent<'a> {
    /// The server is polled until it is ready.
    Waiting {
        url: &'a str,
        limit: Duration,
    },
    Ready {
        seconds: f64,
    },
    /// The prompts are prepared. `model` is the requested name, or the one that the server lists.
    Prepared {
        session: &'a Session,
        model: &'a str,
    },
    /// The first request, which proves that the server is ready, was answered.
    Answered,
    /// The server's tokenizer counts other tokens in the first prompt: `counted` instead of `expected`; `None`
    /// if it cannot be asked.
    Aligning {
        counted: Option<usize>,
        expected: u32,
    },
    Notice(&'a Notice),
    /// An arrival is about to be measured, after those in `before`.
    Arrival {
        /// Index of the arrival, from 0.
        place: usize,
        session: &'a Session,
        before: &'a [Session],
    },
    /// A point of a search is about to be measured.
    Point {
        number: usize,
        value: f64,
    },
}
