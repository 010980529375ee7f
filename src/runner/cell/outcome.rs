//! What a measurement came to: its metrics, or why it has none.

use std::sync::Arc;

use crate::analysis::calibration;
use crate::analysis::metrics::{self, Basis};
use crate::analysis::validity;
use crate::base::clock;
use crate::loadgen::DriveError;
use crate::plan::{Cell, Launch, Measurement};
use crate::results::record::cell::{Ending, EngineFacts, FailureClass, Origin, Phase, PhaseTime, Summary};
use crate::results::record::client::ClientFacts;
use crate::results::record::request::{Request, failures};
use crate::runner::cell::cell_run::{CellOutcome, CellRun};
use crate::runner::load::{LoadOutcome, count_chunks};
use crate::runner::prompt_store::PreparedWorkload;
use crate::runner::supervise::AbortReason;

impl CellRun<'_> {
    /// Derives the metrics of a measurement whose load was sent.
    pub(super) async fn ended(
        &mut self,
        outcome: LoadOutcome,
        accept_length: Option<f64>,
        workload: &Arc<PreparedWorkload>,
    ) -> CellOutcome {
        let missed = self.sink.take().map_or(0, |sink| sink.missed());
        if missed > 0 {
            self.summary.warnings.push(format!(
                "{missed} records were kept in memory alone while the load ran: the disk was too slow"
            ));
        }
        // Every point decided where a search went.
        let other_points = std::mem::take(&mut self.other_points).into_iter();
        let client = other_points.fold(outcome.client, ClientFacts::worst);
        let mut requests = outcome.requests;
        let basis = self.basis(accept_length);
        if metrics::divides_gaps(&basis.backend, accept_length) {
            requests = count_chunks(requests, workload).await;
        }
        if !self.cell.scenario.keep_text {
            for request in &mut requests {
                (request.text, request.tool_text) = (None, None);
            }
        }
        self.summary.failures = failures(&requests);
        self.summary.stamps = Some(outcome.stamp.name().to_owned());
        self.summary.warnings.extend(calibration::left_open(&client));
        self.summary.client = Some(client);
        self.summary.figures = metrics::summarize(&requests, &basis);
        self.summary.intervals = metrics::intervals(&requests);
        self.summary.answers = Some(validity::answers(&requests));
        let spill = self.spill.take();
        self.summary
            .warnings
            .extend(spill.as_ref().and_then(|spill| spill.missed()));
        if let Some(lost) = spill.and_then(|spill| spill.lost()) {
            (self.summary.figures, self.summary.intervals, self.summary.answers) = Default::default();
            let class = FailureClass::Infrastructure;
            return self.failed_here(Phase::Measure, class, lost, Vec::new(), true);
        }
        if let Some(abort) = outcome.abort {
            return self.cut(Phase::Measure, abort, requests);
        }
        if let Some(reason) = all_failed(&requests) {
            let class = FailureClass::Engine;
            let mut outcome = self.failed_here(Phase::Measure, class, reason, Vec::new(), true);
            outcome.requests = requests;
            return outcome;
        }
        self.summary.ended = clock::timestamp();
        CellOutcome {
            summary: self.summary.clone(),
            requests,
            samples: std::mem::take(&mut self.samples),
            engine_is_well: true,
            end: None,
        }
    }

    /// What metrics are derived from beside the requests.
    fn basis(&self, accept_length: Option<f64>) -> Basis {
        // The requests of a search are those of one point; energy and counters of the engine are those of all.
        let is_search = self.cell.scenario.search.is_some();
        let telemetry = self.summary.telemetry.as_ref().filter(|_| !is_search);
        Basis {
            accept_length,
            energy: telemetry.and_then(|telemetry| telemetry.energy.clone()),
            engine: telemetry.and_then(|telemetry| telemetry.engine.clone()),
            ..Basis::of(self.launch, self.cell)
        }
    }

    /// The outcome of a measurement that was cut.
    pub(super) fn cut(&mut self, phase: Phase, cut: AbortReason, requests: Vec<Request>) -> CellOutcome {
        let mut measured = match cut {
            AbortReason::Stopped => {
                self.summary.ending = Ending::Interrupted;
                self.summary.ended = clock::timestamp();
                CellOutcome {
                    summary: self.summary.clone(),
                    requests: Vec::new(),
                    samples: std::mem::take(&mut self.samples),
                    engine_is_well: true,
                    end: None,
                }
            }
            AbortReason::Died(death) => {
                let means = death
                    .omen
                    .as_ref()
                    .map_or_else(String::new, |omen| format!(": {}", omen.explains()));
                let reason = format!("the engine {} under load{means}", death.status);
                let mut measured = self.failed_here(phase, death.class, reason, death.tail, false);
                measured.end = death.end;
                measured
            }
            AbortReason::Hung { seconds } => {
                let reason = format!("the engine hangs: no stream moved for {seconds}s");
                self.failed_here(phase, FailureClass::Engine, reason, Vec::new(), false)
            }
        };
        measured.requests = requests;
        measured
    }

    /// The outcome of a measurement whose requests cannot be made.
    pub(super) fn wrong(&mut self, phase: Phase, reason: String) -> CellOutcome {
        self.failed_here(phase, FailureClass::Spec, reason, Vec::new(), true)
    }

    /// The outcome of a measurement whose load could not be sent.
    pub(super) fn not_sent(&mut self, error: &DriveError) -> CellOutcome {
        let reason = error.to_string();
        self.failed_here(Phase::Measure, FailureClass::Client, reason, Vec::new(), true)
    }

    pub(super) fn failed_here(
        &mut self,
        phase: Phase,
        class: FailureClass,
        reason: String,
        tail: Vec<String>,
        well: bool,
    ) -> CellOutcome {
        self.summary.ending = Ending::Failed {
            phase,
            class,
            reason,
            tail,
        };
        self.summary.ended = clock::timestamp();
        CellOutcome {
            summary: self.summary.clone(),
            requests: Vec::new(),
            samples: std::mem::take(&mut self.samples),
            engine_is_well: well,
            end: None,
        }
    }
}

/// That every request failed, with the first failure; `None` if one completed or none was sent.
fn all_failed(requests: &[Request]) -> Option<String> {
    if requests.is_empty() || requests.iter().any(Request::is_completed) {
        return None;
    }
    let first = requests.iter().find_map(|request| request.failure.as_ref());
    let said = first.map_or_else(String::new, |failure| {
        format!(": {}: {}", failure.class.name(), failure.message)
    });
    Some(format!("all {} requests failed{said}", requests.len()))
}

/// A summary before anything is known.
pub(crate) fn blank(
    launch: &Launch,
    cell: &Cell,
    measurement: &Measurement,
    engine: EngineFacts,
    phases: Vec<PhaseTime>,
) -> Summary {
    let now = clock::timestamp();
    let origin = match launch.engine.simulated || engine.simulated {
        true => Origin::Simulated,
        false => Origin::Measured,
    };
    Summary {
        start: measurement.start,
        repeat: measurement.repeat,
        began: now.clone(),
        ended: now,
        phases,
        engine,
        ..Summary::new(cell.key.clone(), cell.content.clone(), launch.id.clone(), origin)
    }
}
