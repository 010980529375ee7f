//! Executes one start: starts the engine on its leased GPUs, measures cells, and always stops the engine.

mod attempts;
mod cells;
mod context;
mod engine;
mod failure;
mod remarks;

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::base::clock;
use crate::engine::still_answers;
use crate::plan::Measurement;
use crate::results::record::cell::{EngineFacts, FailureClass, MeasurementStatus, MeasurementSummary, Phase};
use crate::results::record::event::Event;
use crate::results::store::{self, StoreError};
use crate::runner::cell::{self, CellOutcome};
use crate::runner::context::RunCounts;
use crate::runner::launch::attempts::{AfterMeasurement, NextStep, RESTARTS, Restart};
use crate::runner::launch::cells::LaunchRun;
pub(crate) use crate::runner::launch::context::LaunchContext;
use crate::runner::launch::engine::{ensure_no_other_engine, start_engine, stop_engine};
use crate::runner::launch::failure::LaunchFailure;
use crate::runner::launch::remarks::{invalid_reason, last_lines};
use crate::runner::post_mortem::{self, FailureArtifacts};
use crate::runner::ready_engine::ReadyEngine;

/// Makes one start with all its measurements. An engine that dies or hangs under load is restarted for the
/// remaining cells, so that one bad cell does not fail the others. Failures caused by the host are retried
/// after a pause.
pub(crate) async fn run_start(
    context: LaunchContext<'_>,
    run_counts: &mut RunCounts,
) -> Result<(), StoreError> {
    let _turn = context.activity.begin(&context.launch.id);
    let mut run = LaunchRun::new(context, run_counts);
    let mut preparing = prepare_prompts(&context);
    while !run.remaining.is_empty() && !context.shutdown.is_requested() {
        match start_engine(&context).await {
            Ok(Some(ready)) => {
                context
                    .prefetch
                    .begin(context.run_context, context.start, &ready.running);
                let retries = run.attempts.retries().len();
                let is_planned = run.measure(ready).await?;
                run.attempts.engine_ended(is_planned, retries);
            }
            Ok(None) => break,
            // An engine that was stopped together with this run did not fail.
            Err(failure) if failure.exit.is_some() && context.shutdown.is_requested_soon().await => break,
            Err(failure) => run.start_failed(&failure).await?,
        }
        run.handle_engine_end()?;
    }
    preparing.abort_all();
    Ok(())
}

/// A measurement that failed because of the host.
struct HostFault<'a> {
    measurement: &'a Measurement,
    phase: Phase,
    class: FailureClass,
    reason: String,
}

impl<'a> HostFault<'a> {
    fn from_summary(measurement: &'a Measurement, summary: &MeasurementSummary) -> Option<Self> {
        match &summary.status {
            MeasurementStatus::Failed {
                phase, class, reason, ..
            } if class.is_retryable() => Some(Self {
                measurement,
                phase: *phase,
                class: *class,
                reason: reason.clone(),
            }),
            _ => None,
        }
    }
}

impl<'a> LaunchRun<'a> {
    /// Measures the remaining cells until one needs another start, then stops the engine. Returns true if it
    /// stopped only because the recipe restarts the engine per cell, and cells remain.
    async fn measure(&mut self, mut ready: ReadyEngine) -> Result<bool, StoreError> {
        let run_context = self.context.run_context;
        // Models may be added to a running server, so the model list is compared only from the first
        // measurement on.
        self.reference.get_or_insert_with(|| EngineFacts {
            models: Vec::new(),
            ..store::redact(ready.facts.clone(), &run_context.host.redactor)
        });
        let mut log_from = 0;
        let mut unverified = Vec::new();
        let (mut host_fault, mut saved) = (None, Ok(()));
        let mut step = NextStep::Stop;
        while let Some(measurement) = self.remaining.pop_front() {
            let began = clock::now();
            let mut measured = self.measure_cell(measurement, &mut ready).await;
            let log = ready.running.log().slice_from(&mut log_from);
            host_fault = HostFault::from_summary(measurement, &measured.summary);
            let remains = FailureArtifacts {
                exit: measured.exit,
                log: ready.running.log().last_lines(post_mortem::MAX_LOG_LINES),
            };
            let seconds = clock::now().since(began).as_secs_f64();
            self.judge(measurement, &mut measured, seconds);
            let mut after = AfterMeasurement {
                engine_is_healthy: measured.engine_is_healthy,
                restarts_for_cells: self.context.launch.api.restart_for_cells,
                is_host_fault: host_fault.is_some(),
                is_stopping: false,
            };
            if after.engine_is_healthy && self.should_repeat(&measured.summary) {
                self.remaining.push_front(measurement);
            } else {
                if measured.summary.listener_unverified.is_some()
                    && measured.summary.status == MeasurementStatus::Done
                {
                    unverified.push(measured.summary.clone());
                }
                saved = self.persist(measurement, measured, &log, remains, seconds);
                if host_fault.is_none() {
                    self.attempts.clear();
                }
                after.is_stopping = self.context.shutdown.is_requested() || saved.is_err();
            }
            step = after.next_step();
            if step != NextStep::Continue {
                break;
            }
        }
        let is_planned = step == NextStep::StopAsPlanned;
        self.stop(ready, unverified, saved).await?;
        if let Some(fault) = host_fault {
            self.retry(fault).await;
        }
        Ok(is_planned && !self.remaining.is_empty())
    }

    /// Makes one measurement and checks that the engine is still the process that answers.
    async fn measure_cell(&mut self, measurement: &Measurement, ready: &mut ReadyEngine) -> CellOutcome {
        let LaunchContext {
            run_context,
            launch,
            prompt_store,
            prefetch: ahead,
            shutdown,
            ..
        } = self.context;
        let pulled = ahead.progress_count();
        let tries = self.attempts.retries().len();
        ready.running.record_processes().await;
        let mut measured = cell::measure(
            run_context,
            launch,
            measurement,
            tries,
            ready,
            prompt_store,
            shutdown,
        )
        .await;
        ready.running.record_processes().await;
        // The next cell would be measured on what is left.
        measured.engine_is_healthy &= !ready.running.has_lost_process();
        self.check_listener(&ready.running, &mut measured).await;
        self.check_processes(ready, &mut measured).await;
        self.check_engine(&mut measured.summary);
        measured.summary.pull_during = ahead.progress_count() > pulled;
        measured
    }

    /// Stops the engine, and fails measurements that another process may have answered. `saved` is the result
    /// of saving the last measurement.
    async fn stop(
        &mut self,
        ready: ReadyEngine,
        unverified: Vec<MeasurementSummary>,
        saved: Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        // Stop sampling first, so that no probe calls an engine that is being stopped.
        let rest = ready.sampling.end();
        let endpoint = ready.running.endpoint().clone();
        stop_engine(&self.context, ready.running, &rest).await;
        saved?;
        // An engine that could not be stopped may be the process that answers.
        if !unverified.is_empty()
            && !self.context.shutdown.immediate.is_cancelled()
            && still_answers(&endpoint).await
            && ensure_no_other_engine(self.context.run_context).await.is_ok()
        {
            self.fail_unverified(unverified, endpoint.port)?;
        }
        Ok(())
    }

    /// Whether an invalid measurement is repeated, as `--retry-invalid` says.
    fn should_repeat(&mut self, summary: &MeasurementSummary) -> bool {
        let LaunchContext {
            run_context,
            shutdown,
            ..
        } = self.context;
        // If another server answers, a repetition does not help.
        let has_changed = summary
            .engine_changes
            .iter()
            .any(|change| !change.is_model_list());
        let may_repeat = !shutdown.is_requested() && !has_changed && summary.is_repeatable();
        let Some(reason) = invalid_reason(summary).filter(|_| may_repeat) else {
            return false;
        };
        let Some(retry) = self.attempts.repeat_invalid(&reason) else {
            return false;
        };
        run_context.events.emit(Event::Warning {
            message: format!(
                "{} is measured again (retry {retry} of at most {}): {reason}",
                summary.cell, run_context.retry_invalid
            ),
        });
        true
    }

    /// Queues a measurement again, after a pause, if its failure is retried.
    async fn retry(&mut self, fault: HostFault<'a>) {
        match self.pause(fault.phase, fault.class, &fault.reason).await {
            true => {
                self.run_counts.failed -= 1;
                self.remaining.push_front(fault.measurement);
            }
            false => self.attempts.clear(),
        }
    }

    /// Reports that the engine did not start, and fails the remaining measurements unless it is started
    /// again.
    async fn start_failed(&mut self, failure: &LaunchFailure) -> Result<(), StoreError> {
        let LaunchContext {
            run_context,
            launch,
            start,
            ..
        } = self.context;
        run_context.events.emit(Event::LaunchFailed {
            launch: launch.id.clone(),
            start: start.start,
            reason: failure.reason.clone(),
            tail: last_lines(&failure.tail),
        });
        match self.pause(failure.phase, failure.class, &failure.reason).await {
            true => Ok(()),
            false => self.fail_remaining(failure),
        }
    }

    /// Pauses before a retry. Returns whether the failure is retried: only if the host caused it and attempts
    /// are left.
    async fn pause(&mut self, phase: Phase, class: FailureClass, reason: &str) -> bool {
        let LaunchContext {
            run_context,
            launch,
            shutdown,
            ..
        } = self.context;
        if shutdown.is_requested() {
            return false;
        }
        let Some(retry) = self.attempts.retry_after_host_fault(phase, class, reason) else {
            return false;
        };
        run_context.events.emit(Event::Warning {
            message: format!(
                "engine `{}` failed because of the host (attempt {} of {}); retry in {} s",
                launch.engine.name,
                retry.attempt,
                retry.attempts,
                retry.pause.as_secs()
            ),
        });
        tokio::select! {
            () = tokio::time::sleep(retry.pause) => true,
            () = shutdown.requested.cancelled() => false,
        }
    }

    /// Reports a restart for the remaining measurements, or fails them if the engine died too often.
    fn handle_engine_end(&mut self) -> Result<(), StoreError> {
        match self.attempts.restart() {
            Restart::Expected => Ok(()),
            Restart::RestartsExhausted => {
                let reason = format!("the engine died under load {RESTARTS} times");
                self.fail_remaining(&LaunchFailure::new(FailureClass::Engine, reason))
            }
            Restart::AfterFailure { left } => {
                if !self.remaining.is_empty() && !self.context.shutdown.is_requested() {
                    self.context.run_context.events.emit(Event::Warning {
                        message: format!(
                            "engine `{}` is started again for {} more cells ({left} restarts left)",
                            self.context.launch.engine.name,
                            self.remaining.len()
                        ),
                    });
                }
                Ok(())
            }
        }
    }
}

/// Prepares prompts while the engine starts.
fn prepare_prompts(context: &LaunchContext<'_>) -> JoinSet<()> {
    let LaunchContext {
        run_context,
        launch,
        start,
        prompt_store,
        ..
    } = context;
    let scenarios: Vec<_> = start
        .cells
        .iter()
        .map(|measurement| run_context.plan.cell(&measurement.cell).scenario.clone())
        .collect();
    let (prompt_store, tokenizer) = (Arc::clone(prompt_store), launch.tokenizer.clone());
    let mut preparing = JoinSet::new();
    preparing.spawn(async move {
        for scenario in scenarios {
            // The cell that needs the prompts reports the error.
            let _ = prompt_store.workload(&scenario, &tokenizer).await;
        }
    });
    preparing
}
