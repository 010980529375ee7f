//! Measures a cell: prepares prompts, warms up, empties the caches, sends the load and derives the metrics.

mod cell_run;
mod context;
mod grading;
pub(crate) mod observer;
pub(crate) mod outcome;
mod preparation;
mod search;

use std::sync::Arc;
use std::time::Duration;

use reqwest::StatusCode;

use crate::analysis::metrics;
use crate::base::clock::{self, MonotonicTime};
use crate::base::control_client::ControlError;
use crate::config::workload::Profile;
use crate::engine;
use crate::loadgen::{Progress, Sink, Spill};
use crate::plan::{Cell, Launch, Measurement};
use crate::results::record::cell::{CacheResetRecord, Phase};
use crate::results::record::event::Event;
use crate::results::record::request::Request;
use crate::results::record::telemetry::EngineWindow;
use crate::runner::cell::cell_run::WARM_UP;
pub(crate) use crate::runner::cell::cell_run::{CellError, CellOutcome, CellRun};
pub(crate) use crate::runner::cell::context::{CellContext, Procedure};
use crate::runner::cell::grading::GradedLoad;
use crate::runner::cell::observer::{CellEvent, CellObserver};
use crate::runner::context::{EventBus, RunContext};
use crate::runner::load::{self, LoadContext, LoadOutcome, PreparedLoad, protocol_items};
use crate::runner::profiler;
use crate::runner::prompt_store::{PreparedWorkload, PromptStore};
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::record_sink::RecordSink;
use crate::runner::shutdown::Shutdown;
use crate::runner::supervise::AbortReason;
use crate::runner::warm_up;

/// Timeout of the page with the server's counters.
const COUNTERS_TIMEOUT: Duration = Duration::from_secs(5);

/// Time that the server has for each answer about itself after a load that was stopped. A server that does not answer any
/// more delays the results by this much.
const STOPPED_ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Measures one cell on a ready engine. `tries` is the number of earlier attempts on this start.
pub(crate) async fn measure(
    run_context: &RunContext<'_>,
    launch: &Launch,
    measurement: &Measurement,
    tries: usize,
    ready: &mut ReadyEngine,
    prompt_store: &Arc<PromptStore>,
    shutdown: &Shutdown,
) -> CellOutcome {
    let cell = run_context.plan.cell(&measurement.cell);
    run_context.events.emit(Event::CellBegan {
        measurement: measurement.clone(),
        requests: preparation::expected_requests(&cell.scenario),
    });
    let mut observer = ProgressReporter {
        events: run_context.events,
        measurement,
        began: clock::now(),
        last_report: None,
    };
    let procedure = Procedure::default();
    let context = CellContext {
        launch,
        bounds: &run_context.plan.validity,
        procedure: &procedure,
        records: RecordSink::Run(run_context.store),
        calibration: run_context.calibration,
        stop: shutdown,
    };
    let mut run = CellRun::new(context, cell, measurement, ready, &mut observer);
    run.tries = tries;
    match run.measure(ready, prompt_store).await {
        Ok(outcome) => outcome,
        Err(error) => run.failed(error, ready),
    }
}

/// Reports the progress of a measurement as events of the run.
struct ProgressReporter<'a> {
    events: &'a EventBus,
    measurement: &'a Measurement,
    began: MonotonicTime,
    /// When progress was last reported, and the events that had arrived by then.
    last_report: Option<(MonotonicTime, u64)>,
}

impl ProgressReporter<'_> {
    /// Output tokens per second since the last report of this load.
    fn output_tokens_per_s(&mut self, progress: &Progress) -> Option<f64> {
        let (now, events) = (clock::now(), progress.events());
        let (then, before) = self.last_report.replace((now, events))?;
        // The counter of another load begins at zero.
        let arrived = events.checked_sub(before)? as f64;
        Some(arrived * progress.tokens_per_event() / now.since(then).as_secs_f64())
    }
}

impl CellObserver for ProgressReporter<'_> {
    fn event(&mut self, event: CellEvent<'_>) {
        let measurement = self.measurement.clone();
        let output_tokens_per_s = match &event {
            CellEvent::Progress { progress, .. } => self.output_tokens_per_s(progress),
            _ => None,
        };
        self.events.emit(match event {
            CellEvent::Progress {
                phase,
                progress,
                requests,
                point,
            } => Event::CellProgress {
                measurement,
                phase: phase.name().to_owned(),
                ended: progress.ended() as usize,
                requests,
                running: progress.running() as usize,
                failed: progress.failed() as usize,
                elapsed_s: clock::now().since(self.began).as_secs_f64(),
                output_tokens_per_s,
                ttft_ms: progress.mean_ttft_ms(),
                point,
            },
            CellEvent::PointJudged {
                point,
                by,
                tier,
                target,
            } => Event::PointJudged {
                measurement,
                point: point.counts(by, tier),
                target,
                decision: (!point.has_warm_cache()).then(|| point.judged.decision()),
                doubt: point.judged.doubt.filter(|_| !point.has_warm_cache()),
            },
            _ => return,
        });
    }
}

impl<'a> CellRun<'a> {
    pub(crate) fn new(
        context: CellContext<'a>,
        cell: &'a Cell,
        measurement: &'a Measurement,
        ready: &ReadyEngine,
        observer: &'a mut dyn CellObserver,
    ) -> Self {
        let (facts, phases) = (ready.facts.clone(), ready.phases.clone());
        Self {
            context,
            cell,
            measurement,
            observer,
            phase_began: clock::now(),
            summary: outcome::blank_summary(context.launch, cell, measurement, facts, phases),
            accept_length: None,
            tries: 0,
            unique_prefix: None,
            graded_items: Vec::new(),
            sink: None,
            spill: None,
            other_points: Vec::new(),
        }
    }

    /// Measures the load of the cell, or the points of its search.
    async fn measure(
        &mut self,
        ready: &mut ReadyEngine,
        prompt_store: &Arc<PromptStore>,
    ) -> Result<CellOutcome, CellError> {
        let workload = self.prepare_workload(prompt_store).await?;
        let load = self.prepare_load(ready, &workload).await?;
        let graded = self.prepare_items(ready, &workload, prompt_store).await?;
        self.end_phase(Phase::Prepare);
        match &self.cell.scenario.search {
            None => self.measure_load(ready, load, graded, &workload).await,
            Some(search) => {
                self.warm_up_and_reset(ready, &workload).await?;
                Ok(self.search(search, ready, &workload).await)
            }
        }
    }

    /// Warms up, empties the caches, sends a load, and reads the engine's facts again.
    pub(crate) async fn measure_load(
        &mut self,
        ready: &mut ReadyEngine,
        load: PreparedLoad,
        graded: Option<GradedLoad>,
        workload: &Arc<PreparedWorkload>,
    ) -> Result<CellOutcome, CellError> {
        let CellContext {
            procedure,
            stop: shutdown,
            ..
        } = self.context;
        self.warm_up_and_reset(ready, workload).await?;
        self.prime_cache(ready, &load).await?;
        let profiler = procedure.profiler.as_ref();
        let starting = profiler::start(profiler, &ready.control, self.observer);
        let profilers = shutdown.unless_requested(starting).await;
        let profilers = profilers.ok_or(CellError::Cut(Phase::Reset, AbortReason::Stopped))?;
        self.report_counters(ready).await;
        let mut outcome = self.send_load(ready, load, workload, false).await?;
        self.end_phase_at(Phase::Measure, outcome.generator_end);
        self.report_counters(ready).await;
        profiler::stop(profiler, &profilers, self.observer).await;
        if let (None, Some(short)) = (&outcome.abort, &outcome.ran_out) {
            self.summary.warnings.push(short.describe("`prompts`"));
        }
        if metrics::theoretical_hit_share(&outcome.requests).is_some() {
            self.summary.prompts_repeated = outcome.repeated_share(workload).await;
        }
        self.count_hits(outcome.telemetry.engine.as_ref());
        self.summary.telemetry = Some(outcome.telemetry.clone());
        if procedure.is_raw {
            let refreshing = self.refresh_engine_facts(ready);
            let _ = shutdown
                .at_most_after_request(STOPPED_ANSWER_TIMEOUT, refreshing)
                .await;
        }
        let is_stopped = match procedure.is_raw {
            true => shutdown.is_requested(),
            false => {
                outcome.abort.is_none()
                    && shutdown
                        .unless_requested(self.refresh_engine_facts(ready))
                        .await
                        .is_none()
            }
        };
        if is_stopped {
            outcome.abort.get_or_insert(AbortReason::Stopped);
        }
        if let (Some(graded), None) = (graded, &outcome.abort)
            && outcome.requests.iter().any(Request::is_completed)
        {
            match self.grade(ready, graded, workload).await {
                // What was measured before is kept.
                Err(CellError::Cut(phase, abort)) => {
                    return Ok(self.aborted(phase, abort, Some(outcome)));
                }
                graded => graded?,
            }
        }
        Ok(self.completed(outcome, workload).await)
    }

    async fn warm_up_and_reset(
        &mut self,
        ready: &mut ReadyEngine,
        workload: &Arc<PreparedWorkload>,
    ) -> Result<(), CellError> {
        let CellContext {
            procedure,
            stop: shutdown,
            ..
        } = self.context;
        self.warm_up(ready, workload).await?;
        self.end_phase(Phase::Warmup);
        let resetting = async {
            self.reset_caches(ready).await?;
            tokio::time::sleep(procedure.settle).await;
            Ok::<_, CellError>(())
        };
        let reset = shutdown.unless_requested(resetting).await;
        reset.unwrap_or(Err(CellError::Cut(Phase::Reset, AbortReason::Stopped)))?;
        self.end_phase(Phase::Reset);
        Ok(())
    }

    /// Sends the warm-up requests and waits for the responses. Fails if every request failed.
    ///
    /// Source: docs/bench-serving.md 6, step 9, and 12.2.
    async fn warm_up(
        &mut self,
        ready: &mut ReadyEngine,
        workload: &Arc<PreparedWorkload>,
    ) -> Result<(), CellError> {
        const PHASE: Phase = Phase::Warmup;
        let cell = self.cell;
        let scenario = &cell.scenario;
        if scenario.limits.warmup == 0 && scenario.profile == Profile::Classic {
            return Ok(());
        }
        let items = warm_up::warm_up_requests(scenario, &workload.prepared);
        let items = protocol_items(items, ready.target.dialect.protocol, &workload.tokenizer)
            .map_err(|reason| CellError::Prompts(PHASE, reason))?;
        let of_load = self.unique_prefix.clone();
        let begun = self.with_unique_prefix(WARM_UP, items, workload).await;
        self.unique_prefix = of_load;
        let items = begun.map_err(|reason| CellError::Prompts(PHASE, reason))?;
        let (requests, began) = (items.len(), clock::now());
        self.observer.event(CellEvent::Sending {
            phase: PHASE,
            items: &items,
        });
        let control = self.control(PHASE, requests, None);
        let warmed = warm_up::warm_up(ready, scenario, items, control).await;
        self.warn_about_silent_daemon(ready);
        let mut warmed = warmed.map_err(|error| CellError::NotSent(PHASE, error))?;
        self.observer.event(CellEvent::Sent {
            ended: requests,
            requests: &warmed.requests,
            zero: warmed.zero,
        });
        if let Some(abort) = warmed.abort.take() {
            self.end_phase(PHASE);
            return Err(CellError::Cut(PHASE, abort));
        }
        if let Some(failure) = warmed.failure() {
            return Err(CellError::WarmUp(failure.clone()));
        }
        let duration = clock::now().since(began);
        self.observer.event(CellEvent::WarmedUp { duration });
        Ok(())
    }

    /// Sends the requests that fill the prefix cache, for sessions that begin at a drawn place. They are not
    /// measured. Fails if none succeeds.
    async fn prime_cache(&mut self, ready: &mut ReadyEngine, load: &PreparedLoad) -> Result<(), CellError> {
        const PHASE: Phase = Phase::Reset;
        let items = load.priming.clone();
        if items.is_empty() {
            return Ok(());
        }
        let cell = self.cell;
        let control = self.control(PHASE, items.len(), None);
        let primed = warm_up::warm_up(ready, &cell.scenario, items, control).await;
        let primed = primed.map_err(|error| CellError::NotSent(PHASE, error))?;
        if let Some(failure) = primed.failure() {
            return Err(CellError::WarmUp(failure.clone()));
        }
        if let Some(abort) = primed.abort {
            return Err(CellError::Cut(PHASE, abort));
        }
        let failed = primed
            .requests
            .iter()
            .filter(|request| !request.is_completed())
            .count();
        if failed > 0 {
            self.warn(format!(
                "{failed} of {} requests that fill the prefix cache failed, so some sessions begin without their blocks in \
                 the cache",
                primed.requests.len()
            ));
        }
        Ok(())
    }

    /// Empties the engine's caches. A failed reset is an error only if the procedure requires the reset;
    /// otherwise the validity check judges it.
    async fn reset_caches(&mut self, ready: &ReadyEngine) -> Result<(), CellError> {
        let CellContext {
            launch, procedure, ..
        } = self.context;
        let (reset, limit) = (launch.api.reset.as_ref(), procedure.reset_limit);
        let reset = ready.reset_caches(reset, limit).await;
        let error = reset.error.or_else(|| {
            let path = &launch.api.reset.as_ref()?.path;
            let status = StatusCode::from_u16(reset.proof.status?).ok()?;
            let answer = reset.proof.answer.as_deref().unwrap_or_default();
            let refusal = || ControlError::from_refusal(ready.control.url(path), status, answer);
            (reset.proof.success == Some(false)).then(refusal)
        });
        self.summary.cache_reset = Some(CacheResetRecord {
            is_fresh_start: ready.measurement_count == 0 && !launch.is_attached(),
            unique_prefix: self.unique_prefix.clone(),
            ..reset.proof
        });
        match error.filter(|_| procedure.requires_reset) {
            Some(error) => Err(CellError::Reset(error)),
            None => Ok(()),
        }
    }

    /// Reports the page with the server's counters, if the procedure names one.
    async fn report_counters(&mut self, ready: &ReadyEngine) {
        let Some(path) = self.context.procedure.counters_path else {
            return;
        };
        let reading = async {
            let answer = ready.control.get(path, COUNTERS_TIMEOUT).await.ok()?;
            answer.success_text().await.ok()
        };
        let stop = self.context.stop;
        let page = stop.at_most_after_request(STOPPED_ANSWER_TIMEOUT, reading).await;
        self.observer.event(CellEvent::Counters(page.flatten()));
    }

    /// Records the prefix-cache hits of the window. They reveal a reset that reported success without effect.
    fn count_hits(&mut self, engine: Option<&EngineWindow>) {
        let Some(engine) = engine else {
            return;
        };
        let proof = self.summary.cache_reset.get_or_insert_default();
        proof.hits_in_window = engine.grown.get("prefix_hits").copied();
        proof.queries_in_window = engine.grown.get("prefix_queries").copied();
    }

    /// Reads the engine's facts again, because a server may change during the load.
    async fn refresh_engine_facts(&mut self, ready: &ReadyEngine) {
        let launch = self.context.launch;
        let current_facts = engine::fetch_facts(launch, &ready.control).await;
        if metrics::asks_accept_length(&launch.engine.backend) {
            self.accept_length = current_facts.info.as_ref().and_then(engine::accept_length);
        }
        let facts = &mut self.summary.engine;
        if !current_facts.models.is_empty() {
            facts.models = current_facts.models;
            facts.served = current_facts.served;
        }
        facts.version = current_facts.version.or_else(|| facts.version.take());
        facts.info = current_facts.info.or_else(|| facts.info.take());
    }

    /// Sends a load and watches the engine meanwhile.
    async fn send_load(
        &mut self,
        ready: &mut ReadyEngine,
        load: PreparedLoad,
        workload: &Arc<PreparedWorkload>,
        continues_samples: bool,
    ) -> Result<LoadOutcome, CellError> {
        const PHASE: Phase = Phase::Measure;
        let (sink, spill) = (self.open_sink(), self.open_spill());
        self.observer.event(CellEvent::Sending {
            phase: PHASE,
            items: &load.items,
        });
        let CellContext {
            calibration,
            procedure,
            ..
        } = self.context;
        let point = load.goal.as_ref().map(|goal| Arc::clone(&goal.progress));
        let control = self.control(PHASE, load.items.len(), point);
        let progress = Arc::clone(&control.progress);
        let context = LoadContext {
            sink,
            spill,
            calibration,
            continues_samples,
            samples_after_stop: procedure.is_raw,
            control,
        };
        let outcome = load::measure(ready, load, workload, context).await;
        self.warn_about_silent_daemon(ready);
        let outcome = outcome.map_err(|error| CellError::NotSent(PHASE, error))?;
        self.observer.event(CellEvent::Sent {
            ended: progress.ended() as usize,
            requests: &outcome.requests,
            zero: outcome.window.start,
        });
        Ok(outcome)
    }

    /// Warns about periods of the load in which the container daemon did not respond.
    fn warn_about_silent_daemon(&mut self, ready: &ReadyEngine) {
        for silence in ready.running.take_unknown_periods() {
            self.summary.warnings.push(format!(
                "the container daemon did not respond for {:.0} s; the engine kept running",
                silence.as_secs_f64()
            ));
        }
    }

    /// The sink that stores records during the load. If it cannot be opened, records are stored only after
    /// the load.
    fn open_sink(&mut self) -> Option<Sink> {
        if self.sink.is_none() {
            let keeps_text = self.cell.scenario.keep_text;
            match self.context.records.open(self.measurement, keeps_text) {
                Ok(sink) => self.sink = sink,
                Err(error) => self.warn(format!("records could not be written during the load: {error}")),
            }
        }
        self.sink.as_ref().map(|open| open.sink.clone())
    }

    /// The file for responses beyond the memory limit. If it cannot be created, all responses stay in memory.
    fn open_spill(&mut self) -> Option<Arc<Spill>> {
        if self.spill.is_none() {
            match self.context.records.spill() {
                Ok(spill) => self.spill = Some(spill),
                Err(error) => self.warn(format!(
                    "all responses of the load are kept in memory, because the disk cannot be used: {error}"
                )),
            }
        }
        self.spill.clone()
    }
}
