//! One measurement: prompts, warm-up, caches emptied, load, record.

mod cell_run;
pub(crate) mod outcome;
mod preparation;
mod search;

use std::sync::Arc;
use std::time::Duration;

use crate::analysis::metrics;
use crate::base::clock::{self, Moment};
use crate::engine;
use crate::loadgen::{DriveError, Progress, Sink, Spill};
use crate::plan::{Cell, Launch, Measurement};
use crate::results::record::cell::{FailureClass, Phase, PhaseTime, ResetProof};
use crate::results::record::event::Event;
use crate::results::record::telemetry::EngineWindow;
pub(crate) use crate::runner::cell::cell_run::CellOutcome;
use crate::runner::cell::cell_run::{CellRun, WARM_UP};
use crate::runner::context::Job;
use crate::runner::load::{self, LoadContext, LoadOutcome, PreparedLoad};
use crate::runner::prompt_store::{PreparedWorkload, PromptStore};
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::shutdown::Stop;
use crate::runner::supervise::{AbortReason, DriveControl};
use crate::runner::warm_up;

/// How long an engine may take to empty its caches.
const RESET: Duration = Duration::from_secs(60);

/// Measures one cell on a ready engine, after so many tries that came to nothing.
pub(crate) async fn measure(
    job: &Job<'_>,
    launch: &Launch,
    measurement: &Measurement,
    tries: usize,
    ready: &mut ReadyEngine,
    prompt_store: &Arc<PromptStore>,
    stop: &Stop,
) -> CellOutcome {
    let cell = job.plan.cell(&measurement.cell);
    let mut run = CellRun::begin(job, launch, cell, measurement, ready);
    run.tries = tries;
    job.events.tell(Event::CellBegan {
        measurement: measurement.clone(),
        requests: preparation::expected_requests(&cell.scenario),
    });
    match run.measure(ready, prompt_store, stop).await {
        Ok(outcome) | Err(outcome) => outcome,
    }
}

impl<'a> CellRun<'a> {
    fn begin(
        job: &'a Job<'a>,
        launch: &'a Launch,
        cell: &'a Cell,
        measurement: &'a Measurement,
        ready: &ReadyEngine,
    ) -> Self {
        let began = clock::now();
        let summary = outcome::blank(
            launch,
            cell,
            measurement,
            ready.facts.clone(),
            ready.phases.clone(),
        );
        Self {
            job,
            launch,
            cell,
            measurement,
            began,
            phase_began: began,
            summary,
            samples: Vec::new(),
            tries: 0,
            unique_prefix: None,
            sink: None,
            spill: None,
            other_points: Vec::new(),
        }
    }

    /// Measures the cell; `Err` is the outcome of a measurement that ended before its load, or could not send it.
    async fn measure(
        &mut self,
        ready: &mut ReadyEngine,
        prompt_store: &Arc<PromptStore>,
        stop: &Stop,
    ) -> Result<CellOutcome, CellOutcome> {
        let workload = self.workload(prompt_store, stop).await?;
        let load = self.prepared_load(ready, &workload).await?;
        self.end_phase(Phase::Prepare);
        self.warm_up(ready, &workload, stop).await?;
        self.end_phase(Phase::Warmup);
        if stop.unless_asked(self.reset_caches(ready)).await.is_none() {
            return Err(self.cut(Phase::Reset, AbortReason::Stopped, Vec::new()));
        }
        self.end_phase(Phase::Reset);
        if let Some(search) = &self.cell.scenario.search {
            return Ok(self.search(search, ready, &workload, stop).await);
        }
        let mut outcome = match self.load(ready, load, &workload, false, stop).await {
            Ok(outcome) => outcome,
            Err(error) => return Err(self.not_sent(&error)),
        };
        self.end_phase_at(Phase::Measure, outcome.driven);
        if let (None, Some(short)) = (&outcome.abort, &outcome.ran_out) {
            self.summary.warnings.push(short.says("`prompts`"));
        }
        self.count_hits(outcome.telemetry.engine.as_ref());
        self.summary.telemetry = Some(outcome.telemetry.clone());
        self.samples = std::mem::take(&mut outcome.samples);
        let mut accept_length = None;
        if outcome.abort.is_none() {
            match stop.unless_asked(self.ask_again(ready)).await {
                Some(accepted) => accept_length = accepted,
                None => outcome.abort = Some(AbortReason::Stopped),
            }
        }
        Ok(self.ended(outcome, accept_length, &workload).await)
    }

    fn end_phase(&mut self, phase: Phase) {
        self.end_phase_at(phase, clock::now());
    }

    fn end_phase_at(&mut self, phase: Phase, now: Moment) {
        let seconds = now.since(self.phase_began).as_secs_f64();
        self.summary.phases.push(PhaseTime {
            phase: phase.name().to_owned(),
            seconds,
        });
        self.phase_began = now;
    }

    /// Sends the first prompt some times and waits for the answers. All failed: the measurement cannot begin.
    async fn warm_up(
        &mut self,
        ready: &mut ReadyEngine,
        workload: &Arc<PreparedWorkload>,
        stop: &Stop,
    ) -> Result<(), CellOutcome> {
        const PHASE: Phase = Phase::Warmup;
        let scenario = &self.cell.scenario;
        let items = warm_up::items(scenario, &workload.prepared);
        if items.is_empty() {
            return Ok(());
        }
        let of_load = self.unique_prefix.clone();
        let begun = self.with_unique_prefix(WARM_UP, items, workload).await;
        self.unique_prefix = of_load;
        let items = begun.map_err(|reason| self.wrong(PHASE, reason))?;
        let count = items.len();
        let report = |progress: &Progress| self.tell_progress(PHASE, progress, count);
        let control = DriveControl {
            stop,
            progress: Arc::default(),
            report: &report,
        };
        let warmed = warm_up::warm_up(ready, scenario, items, &control).await;
        self.warn_of_silent_daemon(ready);
        let mut warmed = match warmed {
            Ok(warmed) => warmed,
            Err(error) => {
                let reason = error.to_string();
                return Err(self.failed_here(PHASE, FailureClass::Client, reason, Vec::new(), true));
            }
        };
        if let Some(abort) = warmed.abort.take() {
            self.end_phase(PHASE);
            return Err(self.cut(PHASE, abort, Vec::new()));
        }
        let Some(failure) = warmed.failure() else {
            return Ok(());
        };
        let reason = format!(
            "every warm-up request failed: {}: {}",
            failure.class.name(),
            failure.message
        );
        let tail = ready.running.log().tail();
        Err(self.failed_here(PHASE, FailureClass::Engine, reason, tail, false))
    }

    async fn reset_caches(&mut self, ready: &ReadyEngine) {
        let reset = ready
            .reset_caches(self.launch.contact.reset.as_ref(), RESET)
            .await;
        self.summary.reset = Some(ResetProof {
            is_fresh_start: ready.measured == 0 && !self.launch.is_attached(),
            unique_prefix: self.unique_prefix.clone(),
            ..reset.proof
        });
    }

    /// Prefix-cache hits over the window; a reset that answers success and resets nothing shows here.
    fn count_hits(&mut self, engine: Option<&EngineWindow>) {
        let Some(engine) = engine else {
            return;
        };
        let proof = self.summary.reset.get_or_insert_default();
        proof.hits_in_window = engine.grown.get("prefix_hits").copied();
        proof.queries_in_window = engine.grown.get("prefix_queries").copied();
    }

    /// Asks the engine once more about itself: a server may have been changed under the load. Returns the tokens that it accepted per step of
    /// speculative decoding, if it is one that bench_serving asks.
    ///
    /// Source: docs/bench-serving.md 6, step 17.
    async fn ask_again(&mut self, ready: &ReadyEngine) -> Option<f64> {
        let told = engine::facts(self.launch, &ready.control).await;
        let is_asked = metrics::asks_accept_length(&self.launch.engine.backend);
        let info = told.info.as_ref().filter(|_| is_asked);
        let accept_length = info.and_then(engine::accept_length);
        let facts = &mut self.summary.engine;
        if !told.models.is_empty() {
            facts.models = told.models;
            facts.served = told.served;
        }
        facts.version = told.version.or_else(|| facts.version.take());
        facts.info = told.info.or_else(|| facts.info.take());
        accept_length
    }

    /// Sends a load while the engine is watched.
    async fn load(
        &mut self,
        ready: &mut ReadyEngine,
        load: PreparedLoad,
        workload: &Arc<PreparedWorkload>,
        continues_samples: bool,
        stop: &Stop,
    ) -> Result<LoadOutcome, DriveError> {
        let requests = load.items.len();
        let (sink, spill) = (self.sink(), self.spill());
        let report = |progress: &Progress| self.tell_progress(Phase::Measure, progress, requests);
        let context = LoadContext {
            sink,
            spill,
            calibration: self.job.calibration,
            continues_samples,
            samples_after_stop: false,
            control: DriveControl {
                stop,
                progress: Arc::default(),
                report: &report,
            },
        };
        let outcome = load::measure(ready, load, workload, context).await;
        self.warn_of_silent_daemon(ready);
        outcome
    }

    /// Warns of times in which the container daemon did not answer while a load was driven.
    fn warn_of_silent_daemon(&mut self, ready: &ReadyEngine) {
        for silence in ready.running.take_unheard() {
            self.summary.warnings.push(format!(
                "the container daemon did not answer for {:.0} s; the engine went on meanwhile",
                silence.as_secs_f64()
            ));
        }
    }

    /// Where records go while the load runs, so that a crash loses seconds. Without a disk that takes them there is only the end.
    fn sink(&mut self) -> Option<Sink> {
        if self.sink.is_none() {
            let (sink, records) = Sink::new(Sink::ROOM, self.cell.scenario.keep_text);
            match self.job.store.keep_partial(self.measurement, records) {
                Ok(()) => self.sink = Some(sink),
                Err(error) => self
                    .summary
                    .warnings
                    .push(format!("no record was kept during the load: {error}")),
            }
        }
        self.sink.clone()
    }

    /// Where answers go that are more than memory is to hold. Without a disk that takes them memory holds them all.
    fn spill(&mut self) -> Option<Arc<Spill>> {
        if self.spill.is_none() {
            match Spill::new(self.job.store.folder(), Spill::BUDGET) {
                Ok(spill) => self.spill = Some(spill),
                Err(error) => self
                    .summary
                    .warnings
                    .push(format!("memory holds all answers of the load: {error}")),
            }
        }
        self.spill.clone()
    }

    fn tell_progress(&self, phase: Phase, progress: &Progress, requests: usize) {
        self.job.events.tell(Event::CellProgress {
            measurement: self.measurement.clone(),
            phase: phase.name().to_owned(),
            ended: progress.ended() as usize,
            requests,
            running: progress.running() as usize,
            failed: progress.failed() as usize,
            elapsed_s: clock::now().since(self.began).as_secs_f64(),
        });
    }
}
