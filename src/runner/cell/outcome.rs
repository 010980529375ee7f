//! The outcome of a measurement: its metrics, or its failure.

use std::sync::Arc;

use crate::analysis::calibration;
use crate::analysis::metrics::{self, MetricInputs};
use crate::analysis::validity;
use crate::base::clock;
use crate::plan::{Cell, ExecutorSpec, Launch, Measurement};
use crate::results::record::answer_check::describe_checks;
use crate::results::record::cell::{
    EngineFacts, FailureClass, MeasurementStatus, MeasurementSummary, Origin, Phase, PhaseTime,
};
use crate::results::record::client::ClientFacts;
use crate::results::record::connections::ConnectionCounts;
use crate::results::record::request::{Request, count_failures, judged_requests};
use crate::runner::cell::cell_run::{CellError, CellOutcome, CellRun};
use crate::runner::load::{LoadOutcome, count_chunks};
use crate::runner::prompt_store::PreparedWorkload;
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::record_sink::OpenSink;
use crate::runner::supervise::AbortReason;

impl CellRun<'_> {
    /// Derives the metrics of a measurement whose load was sent.
    pub(super) async fn completed(
        &mut self,
        mut load: LoadOutcome,
        workload: &Arc<PreparedWorkload>,
    ) -> CellOutcome {
        if let Some(warning) = self.sink.take().and_then(OpenSink::finish) {
            self.warn(warning);
        }
        // The client facts of a cell are the worst of all points, because every point affected the search.
        let other_points = std::mem::take(&mut self.other_points).into_iter();
        let client = other_points.fold(load.client, ClientFacts::worst);
        let basis = self.metric_inputs();
        if metrics::divides_gaps(&basis.backend, basis.accept_length) {
            load.requests = count_chunks(load.requests, workload).await;
        }
        if !self.cell.scenario.keep_text {
            for request in &mut load.requests {
                (request.text, request.tool_text) = (None, None);
            }
        }
        self.summary.failures = count_failures(&load.requests);
        self.summary.connections = self.connection_counts(&load);
        let has_problem = |request: &Request| {
            request
                .answer_check
                .as_ref()
                .is_some_and(|check| !check.is_correct())
        };
        if !self.context.procedure.is_raw && load.requests.iter().any(has_problem) {
            self.summary.warnings.extend(describe_checks(&load.requests));
        }
        self.summary.timestamp_source = Some(load.timestamp_source.name().to_owned());
        self.summary
            .warnings
            .extend(calibration::open_connections_note(&client));
        self.summary.client = Some(client);
        if !self.context.procedure.is_raw {
            self.summary.figures = metrics::summarize(&load.requests, &basis);
            self.summary.intervals = metrics::percentile_intervals(&load.requests);
            self.summary.answers = Some(validity::summarize_answers(&load.requests));
            let spill = self.spill.take();
            self.summary
                .warnings
                .extend(spill.as_ref().and_then(|spill| spill.missed_warning()));
            if let Some(lost) = spill.and_then(|spill| spill.lost_warning()) {
                (self.summary.figures, self.summary.intervals, self.summary.answers) = Default::default();
                load.requests.clear();
                self.fail(Phase::Measure, FailureClass::Infrastructure, lost, Vec::new());
                return self.outcome(true, Some(load));
            }
        }
        if let Some(abort) = load.abort.take() {
            return self.aborted(Phase::Measure, abort, Some(load));
        }
        if let Some(reason) = all_failed(&load.requests) {
            self.fail(Phase::Measure, FailureClass::Engine, reason, Vec::new());
        }
        self.outcome(true, Some(load))
    }

    /// How the requests used connections and addresses, if a setting differs from the default.
    fn connection_counts(&self, load: &LoadOutcome) -> Option<ConnectionCounts> {
        let urls: Vec<String> = match &self.context.launch.place {
            ExecutorSpec::Attach(attach) => attach.urls().map(ToString::to_string).collect(),
            _ => Vec::new(),
        };
        let surplus = load.client.surplus_connections;
        let settings = self.cell.scenario.connections;
        ConnectionCounts::from_requests(&load.requests, settings, &urls, surplus)
    }

    /// Input of the metrics besides the requests.
    fn metric_inputs(&self) -> MetricInputs {
        // The requests of a search are those of one point, but energy and engine counters cover all points.
        let is_search = self.cell.scenario.search.is_some();
        let telemetry = self.summary.telemetry.as_ref().filter(|_| !is_search);
        MetricInputs {
            accept_length: self.accept_length,
            energy: telemetry.and_then(|telemetry| telemetry.energy.clone()),
            engine: telemetry.and_then(|telemetry| telemetry.engine.clone()),
            ..MetricInputs::from_cell(self.context.launch, self.cell)
        }
    }

    /// The outcome of an aborted measurement.
    pub(super) fn aborted(
        &mut self,
        phase: Phase,
        cut: AbortReason,
        load: Option<LoadOutcome>,
    ) -> CellOutcome {
        match cut {
            AbortReason::Stopped => {
                self.summary.status = MeasurementStatus::Interrupted;
                self.outcome(true, load)
            }
            AbortReason::EngineExited(death) => {
                let means = death
                    .fatal_line
                    .as_ref()
                    .map_or_else(String::new, |fatal| format!(": {}", fatal.explanation()));
                let reason = format!("{} under load{means}", death.status);
                self.fail(phase, death.class, reason, death.tail);
                CellOutcome {
                    exit: death.end,
                    ..self.outcome(false, load)
                }
            }
            AbortReason::Hung { seconds } => {
                let reason = format!("the engine hangs: no stream received data for {seconds}s");
                self.fail(phase, FailureClass::Engine, reason, Vec::new());
                self.outcome(false, load)
            }
        }
    }

    /// The outcome of a measurement that ended without a load.
    pub(super) fn failed(&mut self, error: CellError, ready: &ReadyEngine) -> CellOutcome {
        let reason = error.to_string();
        let (phase, class) = match error {
            CellError::Cut(phase, cut) => return self.aborted(phase, cut, None),
            CellError::WarmUp(_) => {
                let tail = ready.running.log().tail();
                self.fail(Phase::Warmup, FailureClass::Engine, reason, tail);
                return self.outcome(false, None);
            }
            CellError::Prompts(phase, _) => (phase, FailureClass::Spec),
            CellError::NotGraded(_) => (Phase::Grade, FailureClass::Engine),
            CellError::Reset(_) => (Phase::Reset, FailureClass::Engine),
            CellError::NotSent(phase, _) => (phase, FailureClass::Client),
        };
        self.fail(phase, class, reason, Vec::new());
        self.outcome(true, None)
    }

    fn fail(&mut self, phase: Phase, class: FailureClass, reason: String, tail: Vec<String>) {
        self.summary.status = MeasurementStatus::Failed {
            phase,
            class,
            reason,
            tail,
        };
    }

    fn outcome(&mut self, engine_is_healthy: bool, load: Option<LoadOutcome>) -> CellOutcome {
        self.summary.ended = clock::timestamp();
        CellOutcome {
            summary: self.summary.clone(),
            load,
            basis: self.metric_inputs(),
            graded: std::mem::take(&mut self.graded_items),
            engine_is_healthy,
            exit: None,
        }
    }
}

/// The failure text if every request failed; `None` if one completed or none was sent.
fn all_failed(requests: &[Request]) -> Option<String> {
    if judged_requests(requests) == 0 || requests.iter().any(Request::is_completed) {
        return None;
    }
    let first = requests.iter().find_map(|request| request.failure.as_ref());
    let message = first.map_or_else(String::new, |failure| {
        format!(": {}: {}", failure.class.name(), failure.message)
    });
    Some(format!(
        "all {} requests failed{message}",
        judged_requests(requests)
    ))
}

/// A summary without results.
pub(crate) fn blank_summary(
    launch: &Launch,
    cell: &Cell,
    measurement: &Measurement,
    engine: EngineFacts,
    phases: Vec<PhaseTime>,
) -> MeasurementSummary {
    let now = clock::timestamp();
    let origin = match launch.engine.simulated || engine.simulated {
        true => Origin::Simulated,
        false => Origin::Measured,
    };
    MeasurementSummary {
        start: measurement.start,
        repeat: measurement.repeat,
        began: now.clone(),
        ended: now,
        phases,
        engine,
        ..MeasurementSummary::new(cell.key.clone(), cell.content.clone(), launch.id.clone(), origin)
    }
}
