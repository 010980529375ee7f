//! A measurement under way, and what came out of it.

use std::sync::Arc;

use thiserror::Error;

use crate::analysis::metrics::MetricInputs;
use crate::base::clock::{self, MonotonicTime};
use crate::base::control_client::ControlError;
use crate::loadgen::{LoadError, Sink, Spill};
use crate::plan::{Cell, Measurement};
use crate::results::record::cell::{Phase, PhaseTime, Summary, UniquePrefix};
use crate::results::record::client::ClientFacts;
use crate::results::record::post_mortem::EngineExitStatus;
use crate::results::record::request::Failure;
use crate::runner::cell::context::CellContext;
use crate::runner::cell::observer::{CellEvent, CellObserver};
use crate::runner::load::LoadOutcome;
use crate::runner::supervise::{AbortReason, DriveControl};

/// What tells the prompts that warm up from those of the load.
pub(super) const WARM_UP: &str = "warm-up";

/// What came out of a measurement.
pub(crate) struct CellOutcome {
    pub(crate) summary: Summary,
    /// The load, if it was sent; of a search that of the point that was found.
    pub(crate) load: Option<LoadOutcome>,
    /// What metrics are derived from beside the requests.
    pub(crate) basis: MetricInputs,
    /// Whether the engine can measure another cell.
    pub(crate) engine_is_healthy: bool,
    /// How the engine ended, where it did.
    pub(crate) exit: Option<EngineExitStatus>,
}

/// Why a measurement ended without a load.
#[derive(Debug, Error)]
pub(crate) enum CellError {
    /// Why there are no requests.
    #[error("{1}")]
    Prompts(Phase, String),
    /// The first failure of a warm-up of which every request failed.
    #[error("every warm-up request failed: {}: {}", .0.class.name(), .0.message)]
    WarmUp(Failure),
    #[error("the caches were not emptied: {0}")]
    Reset(ControlError),
    #[error("{1}")]
    NotSent(Phase, LoadError),
    #[error("the measurement was aborted")]
    Cut(Phase, AbortReason),
}

/// A measurement under way: what it has gone through so far.
pub(crate) struct CellRun<'a> {
    pub(super) context: CellContext<'a>,
    pub(super) cell: &'a Cell,
    pub(super) measurement: &'a Measurement,
    pub(super) observer: &'a mut dyn CellObserver,
    pub(super) phase_began: MonotonicTime,
    pub(super) summary: Summary,
    /// Tokens that the engine accepted per step of speculative decoding, where it reports them.
    pub(super) accept_length: Option<f64>,
    /// Earlier tries of this measurement on this start.
    pub(super) tries: usize,
    /// What the prompts of the load begin with, where the recipe asks for unique prefixes.
    pub(super) unique_prefix: Option<UniquePrefix>,
    /// Where records go while a load runs.
    pub(super) sink: Option<Sink>,
    /// Where answers go that are more than memory is to hold.
    pub(super) spill: Option<Arc<Spill>>,
    /// What the client did during the points of a search whose requests are not those of the cell.
    pub(super) other_points: Vec<ClientFacts>,
}

impl CellRun<'_> {
    pub(super) fn end_phase(&mut self, phase: Phase) {
        self.end_phase_at(phase, clock::now());
    }

    pub(super) fn end_phase_at(&mut self, phase: Phase, now: MonotonicTime) {
        let seconds = now.since(self.phase_began).as_secs_f64();
        self.summary.phases.push(PhaseTime {
            phase: phase.name().to_owned(),
            seconds,
        });
        self.phase_began = now;
    }

    /// What stops so many requests, and reports their progress.
    pub(super) fn control(&mut self, phase: Phase, requests: usize) -> DriveControl<'_> {
        let observer = &mut *self.observer;
        DriveControl {
            shutdown: self.context.stop,
            progress: Arc::default(),
            report_every: self.context.procedure.report_every,
            report: Box::new(move |progress| {
                observer.event(CellEvent::Progress {
                    phase,
                    progress,
                    requests,
                });
            }),
        }
    }

    /// Warns in the summary, and at once.
    pub(super) fn warn(&mut self, warning: String) {
        self.observer.event(CellEvent::Warning(&warning));
        self.summary.warnings.push(warning);
    }
}
