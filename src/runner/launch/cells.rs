//! Checks, judges and saves the measurements of a start.

use std::collections::VecDeque;
use std::time::Duration;

use crate::analysis::metrics::{self, Basis};
use crate::analysis::validity::{self, Evidence};
use crate::base::clock::{self, Moment};
use crate::engine::{Listener, Running};
use crate::plan::Measurement;
use crate::results::record::cell::{Definitions, Ending, EngineFacts, Phase, Summary};
use crate::results::record::engine_change;
use crate::results::record::event::Event;
use crate::results::store::{self, Said, StoreError};
use crate::runner::cell::CellOutcome;
use crate::runner::cell::outcome::blank;
use crate::runner::context::Tally;
use crate::runner::launch::attempts::Attempts;
use crate::runner::launch::context::LaunchContext;
use crate::runner::launch::failure::{self, LaunchFailure};
use crate::runner::launch::remarks::{invalid, last, why};
use crate::runner::post_mortem::{self, Remains};

pub(super) struct LaunchRun<'a> {
    pub(super) context: LaunchContext<'a>,
    pub(super) began: Moment,
    /// The remaining measurements.
    pub(super) rest: VecDeque<&'a Measurement>,
    pub(super) attempts: Attempts,
    /// Engine facts at the first finished measurement of the launch.
    pub(super) reference: Option<EngineFacts>,
    pub(super) tally: &'a mut Tally,
}

impl<'a> LaunchRun<'a> {
    /// Creates the state of a start without measurements.
    pub(super) fn new(context: LaunchContext<'a>, tally: &'a mut Tally) -> Self {
        Self {
            context,
            began: clock::now(),
            rest: context.start.cells.iter().collect(),
            attempts: Attempts::new(context.job.retry_invalid),
            reference: reference(&context),
            tally,
        }
    }

    /// Fails a measurement that another process answered; records if this cannot be checked.
    pub(super) async fn check_listener(&self, running: &Running, measured: &mut CellOutcome) {
        let summary = &mut measured.summary;
        if summary.ending != Ending::Done {
            return;
        }
        match running.listener().await {
            Listener::Ours => {}
            Listener::Unverified(reason) => summary.listener_unverified = Some(reason.to_owned()),
            Listener::Stranger(who) => {
                let failure = failure::answered_by(&who, running.endpoint().port, self.context.launch);
                measured.engine_is_well = false;
                summary.ending = Ending::Failed {
                    phase: Phase::Measure,
                    class: failure.class,
                    reason: failure.reason,
                    tail: Vec::new(),
                };
            }
        }
    }

    /// Records engine facts that differ from those at the first finished measurement of the launch.
    pub(super) fn check_engine(&mut self, summary: &mut Summary) {
        if summary.ending != Ending::Done {
            return;
        }
        // The reference on disk is redacted.
        let facts = store::redacted(summary.engine.clone(), &self.context.job.host.redactor);
        if let Some(reference) = &mut self.reference {
            summary.engine_changes = engine_change::changes(reference, &facts);
            if reference.models.is_empty() {
                reference.models = facts.models;
            }
        }
    }

    /// Fails measurements that were already saved: their port still answers after the engine was stopped, so
    /// another process may have answered them.
    pub(super) fn fail_unverified(&mut self, summaries: Vec<Summary>, port: u16) -> Result<(), StoreError> {
        let LaunchContext { job, launch, .. } = self.context;
        for mut summary in summaries {
            let was_invalid = invalid(&summary).is_some();
            let failure =
                failure::answered_by("which still answers after the engine was stopped", port, launch);
            job.events.tell(Event::Warning {
                message: format!("{} failed: {}", summary.cell, failure.reason),
            });
            summary.validity = None;
            summary.ending = Ending::Failed {
                phase: Phase::Measure,
                class: failure.class,
                reason: failure.reason,
                tail: Vec::new(),
            };
            let post_mortem = post_mortem::of(launch, &summary, None, Remains::default(), self.began);
            job.store.amend_cell(&summary, post_mortem.as_ref())?;
            self.tally.done -= 1;
            self.tally.invalid -= usize::from(was_invalid);
            self.tally.failed += 1;
        }
        Ok(())
    }

    /// Saves the remaining measurements as failed, because their engine did not start.
    pub(super) fn fail_remaining(&mut self, failure: &LaunchFailure) -> Result<(), StoreError> {
        let LaunchContext {
            job, launch, lease, ..
        } = self.context;
        while let Some(measurement) = self.rest.pop_front() {
            let cell = job.plan.cell(&measurement.cell);
            let facts = EngineFacts {
                command: Some(self.context.planned()),
                exact_command: failure.exact_command.clone(),
                image_digest: failure.image_digest.clone(),
                devices: lease.devices().to_vec(),
                ..EngineFacts::default()
            };
            let mut summary = blank(launch, cell, measurement, facts, Vec::new());
            summary.ending = Ending::Failed {
                phase: failure.phase,
                class: failure.class,
                reason: failure.reason.clone(),
                tail: failure.tail.clone(),
            };
            let mut measured = CellOutcome {
                summary,
                load: None,
                basis: Basis::of(launch, cell),
                engine_is_well: false,
                end: failure.end,
            };
            self.judge(measurement, &mut measured, 0.0);
            let remains = Remains {
                end: failure.end,
                log: failure.log.clone(),
            };
            self.persist(measurement, measured, &failure.tail.join("\n"), remains, 0.0)?;
        }
        Ok(())
    }

    /// Adds the facts of the launch to a measurement and judges it.
    pub(super) fn judge(&self, measurement: &Measurement, measured: &mut CellOutcome, seconds: f64) {
        let job = self.context.job;
        let summary = &mut measured.summary;
        summary.retries = self.attempts.retries().to_vec();
        let from = clock::now().before(Duration::from_secs_f64(seconds));
        summary.beside = self.context.roster.beside(&self.context.launch.id, from);
        summary.validity = validity::judge(&Evidence {
            launch: self.context.launch,
            cell: job.plan.cell(&measurement.cell),
            summary,
            requests: measured.load.as_ref().map_or(&[], |load| &load.requests),
            machine: Some(&job.host.machine),
            bounds: &job.plan.validity,
        });
    }

    /// Saves, counts and reports a measurement.
    pub(super) fn persist(
        &mut self,
        measurement: &Measurement,
        measured: CellOutcome,
        log: &str,
        remains: Remains,
        seconds: f64,
    ) -> Result<(), StoreError> {
        let CellOutcome { summary, load, .. } = measured;
        let (requests, samples) = load.map_or_else(Default::default, |load| (load.requests, load.samples));
        let job = self.context.job;
        let histograms = metrics::seconds(&requests);
        let doubt = invalid(&summary);
        let is_invalid = doubt.is_some();
        let post_mortem = post_mortem::of(self.context.launch, &summary, doubt, remains, self.began);
        let details = post_mortem.as_ref().map(|_| job.store.post_mortem(measurement));
        let said = Said {
            log,
            post_mortem: post_mortem.as_ref(),
            samples: &samples,
        };
        job.store.write_cell(&summary, &requests, &histograms, said)?;
        self.tally.count(&summary.ending, is_invalid);
        job.events.tell(Event::CellEnded {
            measurement: measurement.clone(),
            ending: summary.ending.word().to_owned(),
            reason: why(&summary),
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
            tail: match &summary.ending {
                // The last lines of a failed start were already reported.
                Ending::Failed { phase, tail, .. } if *phase != Phase::Launch => last(tail),
                _ => Vec::new(),
            },
            post_mortem: details.map(|path| path.display().to_string()),
        });
        Ok(())
    }
}

/// Engine facts at the first finished measurement of the launch.
fn reference(context: &LaunchContext<'_>) -> Option<EngineFacts> {
    let job = context.job;
    let starts = job.plan.starts.iter();
    let measurements = starts
        .filter(|start| start.launch == context.launch.id)
        .flat_map(|start| &start.cells);
    let finished = measurements.filter_map(|measurement| job.store.summary(measurement).ok());
    finished
        .filter(|summary| summary.ending == Ending::Done && summary.engine_changes.is_empty())
        .map(|summary| summary.engine)
        .next()
}
