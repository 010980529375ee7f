//! The state of a running measurement, its outcome and its errors.

use std::sync::Arc;

use thiserror::Error;

use crate::analysis::metrics::MetricInputs;
use crate::base::clock::{self, MonotonicTime};
use crate::base::control_client::ControlError;
use crate::loadgen::{LoadError, Spill};
use crate::plan::{Cell, Measurement};
use crate::results::record::cell::{MeasurementSummary, Phase, PhaseTime, UniquePrefix};
use crate::results::record::client::ClientFacts;
use crate::results::record::graded::GradedItem;
use crate::results::record::post_mortem::EngineExitStatus;
use crate::results::record::request::Failure;
use crate::runner::cell::context::CellContext;
use crate::runner::cell::observer::{CellEvent, CellObserver};
use crate::runner::load::LoadOutcome;
use crate::runner::probe_monitor::ProbeProgress;
use crate::runner::record_sink::OpenSink;
use crate::runner::supervise::{AbortReason, DriveControl};

/// Purpose of the unique prefix of warm-up prompts, which differs from that of the load.
pub(super) const WARM_UP: &str = "warm-up";

pub(crate) struct CellOutcome {
    pub(crate) summary: MeasurementSummary,
    /// The load, if one was sent. For a search, the load of its best point.
    pub(crate) load: Option<LoadOutcome>,
    /// Input of the metrics besides the requests.
    pub(crate) basis: MetricInputs,
    /// What became of the items of graded tasks.
    pub(crate) graded: Vec<GradedItem>,
    /// Whether the engine can measure another cell.
    pub(crate) engine_is_healthy: bool,
    /// Exit status of the engine, if it ended.
    pub(crate) exit: Option<EngineExitStatus>,
}

/// Why a measurement ended without a load.
#[derive(Debug, Error)]
pub(crate) enum CellError {
    /// The requests could not be prepared.
    #[error("{1}")]
    Prompts(Phase, String),
    /// Every warm-up request failed; this is the first failure.
    #[error("every warm-up request failed: {}: {}", .0.class.name(), .0.message)]
    WarmUp(Failure),
    /// No request for a graded item was answered; this is the first failure.
    #[error("no request for a graded item was answered; the first failure was: {}: {}", .0.class.name(), .0.message)]
    NotGraded(Failure),
    #[error("the caches were not emptied: {0}")]
    Reset(ControlError),
    #[error("{1}")]
    NotSent(Phase, LoadError),
    #[error("the measurement was aborted")]
    Cut(Phase, AbortReason),
}

pub(crate) struct CellRun<'a> {
    pub(super) context: CellContext<'a>,
    pub(super) cell: &'a Cell,
    pub(super) measurement: &'a Measurement,
    pub(super) observer: &'a mut dyn CellObserver,
    pub(super) phase_began: MonotonicTime,
    pub(super) summary: MeasurementSummary,
    /// Mean number of tokens accepted per step of speculative decoding, if the engine reports it.
    pub(super) accept_length: Option<f64>,
    /// Number of earlier attempts of this measurement on this start.
    pub(super) tries: usize,
    /// The prefix of the load's prompts, if the recipe sets `unique_prefixes`.
    pub(super) unique_prefix: Option<UniquePrefix>,
    /// What became of the items of graded tasks.
    pub(super) graded_items: Vec<GradedItem>,
    /// Stores records during a load.
    pub(super) sink: Option<OpenSink>,
    /// Stores responses beyond the memory limit.
    pub(super) spill: Option<Arc<Spill>>,
    /// Client facts of the search points whose requests are not those of the cell.
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

    /// The control that stops the requests of a phase and reports their progress, and that of the point of a search.
    pub(super) fn control(
        &mut self,
        phase: Phase,
        requests: usize,
        point: Option<Arc<ProbeProgress>>,
    ) -> DriveControl<'_> {
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
                    point: point.as_ref().map(|point| point.snapshot()),
                });
            }),
        }
    }

    /// Adds a warning to the summary and reports it immediately.
    pub(super) fn warn(&mut self, warning: String) {
        self.observer.event(CellEvent::Warning(&warning));
        self.summary.warnings.push(warning);
    }
}
