//! Checks, judges and saves the measurements of a start.

use std::collections::VecDeque;
use std::time::Duration;

use crate::analysis::metrics::{self, MetricInputs};
use crate::analysis::validity::{self, Evidence};
use crate::base::clock::{self, MonotonicTime};
use crate::engine::{Listener, RunningEngine, unhealthy_server};
use crate::plan::Measurement;
use crate::results::record::cell::{
    Definitions, EngineFacts, FailureClass, MeasurementStatus, MeasurementSummary, Phase,
};
use crate::results::record::engine_change;
use crate::results::record::event::Event;
use crate::results::store::{self, CellArtifacts, StoreError};
use crate::runner::cell::CellOutcome;
use crate::runner::cell::outcome::blank_summary;
use crate::runner::context::RunCounts;
use crate::runner::launch::attempts::Attempts;
use crate::runner::launch::context::LaunchContext;
use crate::runner::launch::failure::{self, LaunchFailure};
use crate::runner::launch::remarks::{failure_reason, invalid_reason, last_lines};
use crate::runner::node_sampling;
use crate::runner::post_mortem::{self, FailureArtifacts};
use crate::runner::ready_engine::ReadyEngine;

pub(super) struct LaunchRun<'a> {
    pub(super) context: LaunchContext<'a>,
    pub(super) began: MonotonicTime,
    pub(super) remaining: VecDeque<&'a Measurement>,
    pub(super) attempts: Attempts,
    /// Engine facts at the first finished measurement of the launch.
    pub(super) reference: Option<EngineFacts>,
    pub(super) run_counts: &'a mut RunCounts,
}

impl<'a> LaunchRun<'a> {
    /// Creates the state of a start without measurements.
    pub(super) fn new(context: LaunchContext<'a>, run_counts: &'a mut RunCounts) -> Self {
        Self {
            context,
            began: clock::now(),
            remaining: context.start.cells.iter().collect(),
            attempts: Attempts::new(context.run_context.retry_invalid),
            reference: reference(&context),
            run_counts,
        }
    }

    /// Fails a measurement that another process answered; records if this cannot be checked.
    pub(super) async fn check_listener(&self, running: &RunningEngine, measured: &mut CellOutcome) {
        let summary = &mut measured.summary;
        if summary.status != MeasurementStatus::Done {
            return;
        }
        match running.listener().await {
            Listener::Engine => {}
            Listener::Unverified(reason) => summary.listener_unverified = Some(reason.to_owned()),
            Listener::OtherProcess(process) => {
                let failure = failure::answered_by(&process, running.endpoint().port, self.context.launch);
                measured.engine_is_healthy = false;
                summary.status = MeasurementStatus::Failed {
                    phase: Phase::Measure,
                    class: failure.class,
                    reason: failure.reason,
                    tail: Vec::new(),
                };
            }
        }
    }

    /// Fails a measurement during which a process of the engine or a node was lost: others may have answered for it. It is the
    /// host's fault if a node does not respond.
    pub(super) async fn check_processes(&self, ready: &ReadyEngine, measured: &mut CellOutcome) {
        let summary = &mut measured.summary;
        let trouble = ready.sampling.node_trouble();
        let failed = |class, reason| MeasurementStatus::Failed {
            phase: Phase::Measure,
            class,
            reason,
            tail: Vec::new(),
        };
        if summary.status == MeasurementStatus::Done {
            let http = &self.context.run_context.host.http;
            if let Some(reason) = unhealthy_server(http, ready.running.other_servers()).await {
                measured.engine_is_healthy = false;
                summary.status = failed(FailureClass::Engine, format!("after the load, {reason}"));
            } else if let Some((node, why)) = &trouble
                && !node_sampling::responds(node).await
            {
                measured.engine_is_healthy = false;
                let reason =
                    format!("after the load, the node {node} did not start a new job step of Slurm; {why}");
                summary.status = failed(FailureClass::Infrastructure, reason);
            }
        }
        if let MeasurementStatus::Failed { class, reason, .. } = &mut summary.status
            && *class == FailureClass::Engine
            && let Some((node, why)) = trouble
        {
            *class = FailureClass::Infrastructure;
            reason.push_str(&format!("; {node}: {why}"));
        }
    }

    /// Records engine facts that differ from those at the first finished measurement of the launch.
    pub(super) fn check_engine(&mut self, summary: &mut MeasurementSummary) {
        if summary.status != MeasurementStatus::Done {
            return;
        }
        // The reference on disk is redacted.
        let facts = store::redact(summary.engine.clone(), &self.context.run_context.host.redactor);
        if let Some(reference) = &mut self.reference {
            summary.engine_changes = engine_change::find_changes(reference, &facts);
            if reference.models.is_empty() {
                reference.models = facts.models;
            }
        }
    }

    /// Fails measurements that were already saved: their port still answers after the engine was stopped, so
    /// another process may have answered them.
    pub(super) fn fail_unverified(
        &mut self,
        summaries: Vec<MeasurementSummary>,
        port: u16,
    ) -> Result<(), StoreError> {
        let LaunchContext {
            run_context, launch, ..
        } = self.context;
        for mut summary in summaries {
            let was_invalid = invalid_reason(&summary).is_some();
            let failure = failure::answered_by(
                "a process still responds on this port after the engine was stopped",
                port,
                launch,
            );
            run_context.events.emit(Event::Warning {
                message: format!("{} failed: {}", summary.cell, failure.reason),
            });
            summary.validity = None;
            summary.status = MeasurementStatus::Failed {
                phase: Phase::Measure,
                class: failure.class,
                reason: failure.reason,
                tail: Vec::new(),
            };
            let post_mortem =
                post_mortem::create(launch, &summary, None, FailureArtifacts::default(), self.began);
            run_context.store.amend_cell(&summary, post_mortem.as_ref())?;
            self.run_counts.done -= 1;
            self.run_counts.invalid -= usize::from(was_invalid);
            self.run_counts.failed += 1;
        }
        Ok(())
    }

    /// Saves the remaining measurements as failed, because their engine did not start.
    pub(super) fn fail_remaining(&mut self, failure: &LaunchFailure) -> Result<(), StoreError> {
        let LaunchContext {
            run_context,
            launch,
            lease,
            ..
        } = self.context;
        while let Some(measurement) = self.remaining.pop_front() {
            let cell = run_context.plan.cell(&measurement.cell);
            let facts = EngineFacts {
                command: Some(self.context.planned_command()),
                exact_command: failure.exact_command.clone(),
                image_digest: failure.image_digest.clone(),
                devices: lease.devices().to_vec(),
                ..EngineFacts::default()
            };
            let mut summary = blank_summary(launch, cell, measurement, facts, Vec::new());
            summary.status = MeasurementStatus::Failed {
                phase: failure.phase,
                class: failure.class,
                reason: failure.reason.clone(),
                tail: failure.tail.clone(),
            };
            let mut measured = CellOutcome {
                summary,
                load: None,
                basis: MetricInputs::from_cell(launch, cell),
                graded: Vec::new(),
                engine_is_healthy: false,
                exit: failure.exit,
            };
            self.judge(measurement, &mut measured, 0.0);
            let remains = FailureArtifacts {
                exit: failure.exit,
                log: failure.log.clone(),
            };
            self.persist(measurement, measured, &failure.tail.join("\n"), remains, 0.0)?;
        }
        Ok(())
    }

    /// Adds the facts of the launch to a measurement and judges it.
    pub(super) fn judge(&self, measurement: &Measurement, measured: &mut CellOutcome, seconds: f64) {
        let run_context = self.context.run_context;
        let summary = &mut measured.summary;
        summary.retries = self.attempts.retries().to_vec();
        let from = clock::now().minus(Duration::from_secs_f64(seconds));
        summary.concurrent_launches = self
            .context
            .activity
            .concurrent_with(&self.context.launch.id, from);
        summary.validity = validity::judge(&Evidence {
            launch: self.context.launch,
            cell: run_context.plan.cell(&measurement.cell),
            summary,
            requests: measured.load.as_ref().map_or(&[], |load| &load.requests),
            machine: Some(&run_context.host.machine),
            bounds: &run_context.plan.validity,
        });
    }

    /// Saves, counts and reports a measurement.
    pub(super) fn persist(
        &mut self,
        measurement: &Measurement,
        measured: CellOutcome,
        log: &str,
        remains: FailureArtifacts,
        seconds: f64,
    ) -> Result<(), StoreError> {
        let CellOutcome {
            mut summary,
            load,
            graded,
            ..
        } = measured;
        let (requests, samples) = load.map_or_else(Default::default, |load| (load.requests, load.samples));
        let run_context = self.context.run_context;
        summary.replaced = run_context.store.replaced_results(&summary);
        let histograms = metrics::histograms_per_second(&requests);
        let doubt = invalid_reason(&summary);
        let is_invalid = doubt.is_some();
        let post_mortem = post_mortem::create(self.context.launch, &summary, doubt, remains, self.began);
        let details = post_mortem
            .as_ref()
            .map(|_| run_context.store.post_mortem(measurement));
        let artifacts = CellArtifacts {
            log,
            post_mortem: post_mortem.as_ref(),
            samples: &samples,
            graded: &graded,
        };
        run_context
            .store
            .write_cell(&summary, &requests, &histograms, artifacts)?;
        self.run_counts.count(&summary.status, is_invalid);
        run_context.events.emit(Event::CellEnded {
            measurement: measurement.clone(),
            status: summary.status.name().to_owned(),
            reason: failure_reason(&summary),
            seconds,
            output_tokens_per_s: summary
                .figures
                .get(&Definitions::Matrix)
                .and_then(|figures| figures.get("output_throughput_tok_s").copied().flatten()),
            verdict: summary.validity.as_ref().map(|validity| validity.verdict),
            codes: summary
                .validity
                .iter()
                .flat_map(|validity| &validity.reasons)
                .map(|reason| reason.code)
                .collect(),
            tail: match &summary.status {
                // The last lines of a failed start were already reported.
                MeasurementStatus::Failed { phase, tail, .. } if *phase != Phase::Launch => last_lines(tail),
                _ => Vec::new(),
            },
            post_mortem: details.map(|path| path.display().to_string()),
        });
        Ok(())
    }
}

/// Engine facts at the first finished measurement of the launch.
fn reference(context: &LaunchContext<'_>) -> Option<EngineFacts> {
    let run_context = context.run_context;
    let starts = run_context.plan.starts.iter();
    let measurements = starts
        .filter(|start| start.launch == context.launch.id)
        .flat_map(|start| &start.cells);
    let finished = measurements.filter_map(|measurement| run_context.store.summary(measurement).ok());
    finished
        .filter(|summary| summary.status == MeasurementStatus::Done && summary.engine_changes.is_empty())
        .map(|summary| summary.engine)
        .next()
}
