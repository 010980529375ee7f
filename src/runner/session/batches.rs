//! Runs the batches of a session while handling signals.

use std::cell::Cell;
use std::io;

use thiserror::Error;

use crate::base::clock;
use crate::base::text::format_seconds;
use crate::results::record::client::Calibration;
use crate::results::record::event::Event;
use crate::results::store::{self, Store, StoreError};
use crate::runner::calibrate::{self, CalibrationRequest};
use crate::runner::context::{EventBus, HostEnv, RunContext, RunCounts};
use crate::runner::session::answers;
use crate::runner::session::plans::Batch;
use crate::runner::shutdown::{Shutdown, Signals};
use crate::runner::starts;

/// Tokens of each stream in the calibration before the first cell.
const CALIBRATION_TOKENS: u32 = 16;

#[derive(Debug, Error)]
pub(super) enum BatchError {
    #[error("{what}")]
    Store { what: &'static str, source: StoreError },
    #[error(transparent)]
    Measurement(#[from] StoreError),
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
}

impl BatchError {
    /// Converts an error of the store.
    pub(super) fn store(what: &'static str) -> impl FnOnce(StoreError) -> Self {
        move |source| Self::Store { what, source }
    }
}

pub(super) struct RunTotals {
    /// Measurements that an earlier invocation finished.
    pub(super) finished: usize,
    pub(super) total: usize,
}

/// State that all batches of a run share.
pub(super) struct BatchRunner<'a> {
    pub(super) store: &'a Store,
    pub(super) host: &'a HostEnv,
    pub(super) events: &'a EventBus,
    pub(super) shutdown: &'a Shutdown,
    pub(super) retry_invalid: u32,
}

impl BatchRunner<'_> {
    /// Runs a batch, then the batches that `next` returns. Returns the number of engines that could not be
    /// stopped.
    pub(super) async fn run_with_signals(
        &self,
        first: Batch,
        removed: Vec<String>,
        totals: RunTotals,
        calibrate: bool,
        next: &mut dyn FnMut() -> Result<Option<Batch>, BatchError>,
    ) -> Result<usize, BatchError> {
        let plan = first.plan.clone();
        let mut signals = Signals::catch().map_err(BatchError::Signals)?;
        for removed_item in removed {
            self.events.emit(Event::Swept { what: removed_item });
        }
        self.events.emit(Event::RunBegan {
            run: self.host.run.clone(),
            matrix: first.plan.matrix.clone(),
            measurements: totals.total,
            finished: totals.finished,
        });
        let began = clock::now();
        let counts = Cell::new(RunCounts::default());
        let ran = tokio::select! {
            ran = self.run_batches(first, totals.total, calibrate, next, &counts) => ran,
            never = self.shutdown.listen(&mut signals, self.events) => match never {},
        };
        let judged = answers::judge(self.store, &plan);
        let mut run_counts = counts.get();
        if let Ok(answers) = &judged {
            run_counts.invalid += answers.invalidated;
            for message in answers.losses.iter().cloned() {
                self.events.emit(Event::Warning { message });
            }
        }
        self.events.emit(Event::RunEnded {
            done: run_counts.done,
            failed: run_counts.failed,
            skipped: run_counts.skipped,
            interrupted: run_counts.interrupted,
            invalid: run_counts.invalid,
        });
        tracing::info!(
            "the run took {}",
            format_seconds(clock::now().since(began).as_secs_f64())
        );
        // Report these last, because the user has to act on them.
        let unstopped = starts::remove_orphans(self.host, self.events, self.shutdown).await;
        ran?;
        judged?;
        Ok(unstopped)
    }

    async fn run_batches(
        &self,
        first: Batch,
        mut planned: usize,
        mut calibrate: bool,
        next: &mut dyn FnMut() -> Result<Option<Batch>, BatchError>,
        counts: &Cell<RunCounts>,
    ) -> Result<(), BatchError> {
        let (mut batch, mut calibration) = (first, None);
        loop {
            // In a resumed run all planned starts may be finished.
            if calibrate && !batch.starts.is_empty() {
                calibration = self.calibrate(&batch).await;
                calibrate = false;
            }
            let run_context = RunContext {
                plan: &batch.plan,
                starts: batch.starts,
                store: self.store,
                events: self.events,
                host: self.host,
                retry_invalid: self.retry_invalid,
                calibration: calibration.as_ref(),
            };
            let (run_counts, ran) = starts::run(&run_context, self.shutdown).await;
            counts.update(|all| all + run_counts);
            ran?;
            let more = if self.shutdown.is_requested() {
                None
            } else {
                next()?
            };
            let Some(more) = more else {
                return Ok(());
            };
            batch = more;
            planned += batch.measurement_count();
            self.events.emit(Event::StartsAdded {
                starts: batch.starts.len(),
                measurements: planned,
            });
        }
    }

    /// Calibrates the client briefly at the numbers of streams of a batch. If that fails, rows have no client
    /// error.
    async fn calibrate(&self, batch: &Batch) -> Option<Calibration> {
        let streams = calibrate::stream_counts(&batch.plan, &batch.starts);
        if streams.is_empty() {
            return None;
        }
        let wanted = CalibrationRequest {
            streams,
            gaps_ms: calibrate::GAPS_MS.to_vec(),
            tokens: CALIBRATION_TOKENS,
            flood: false,
        };
        let measured = calibrate::calibrate(self.host, self.store, &wanted, self.shutdown).await;
        let warn = |message: String| self.events.emit(Event::Warning { message });
        let mut calibration = match measured {
            Ok(measured) => measured?,
            Err(reason) => {
                warn(format!(
                    "the client could not be calibrated, so the error of its timestamps is unknown: {reason}"
                ));
                return None;
            }
        };
        // Only `matrix calibrate` measures the client's highest token rate.
        let saved = store::calibration::load(&self.host.cache);
        let same =
            saved.filter(|saved| (&saved.tool, &saved.machine) == (&calibration.tool, &calibration.machine));
        calibration.flood = same.and_then(|saved| saved.flood);
        if let Err(error) = self.store.write_calibration(&calibration) {
            warn(format!("the calibration could not be saved: {error}"));
        }
        Some(calibration)
    }
}
