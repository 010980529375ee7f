//! Runs the batches of a session while handling signals.

use std::cell::Cell;
use std::io;

use thiserror::Error;

use crate::base::clock;
use crate::base::text::minutes;
use crate::results::record::client::Calibration;
use crate::results::record::event::Event;
use crate::results::store::{self, Store, StoreError};
use crate::runner::calibrate::{self, Wanted};
use crate::runner::context::{Events, Host, Job, Tally};
use crate::runner::session::plan_state::Batch;
use crate::runner::shutdown::{Signals, Stop};
use crate::runner::starts;

/// Tokens of each stream in the calibration before the first cell.
const CALIBRATION_TOKENS: u32 = 16;

#[derive(Debug, Error)]
pub(super) enum BatchError {
    #[error("{what}")]
    Store { what: &'static str, source: StoreError },
    #[error(transparent)]
    Measurement(#[from] StoreError),
    #[error("cannot listen to signals")]
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
    pub(super) planned: usize,
}

/// State that all batches of a run share.
pub(super) struct BatchRunner<'a> {
    pub(super) store: &'a Store,
    pub(super) host: &'a Host,
    pub(super) events: &'a Events,
    pub(super) stop: &'a Stop,
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
        let mut signals = Signals::catch().map_err(BatchError::Signals)?;
        for what in removed {
            self.events.tell(Event::Swept { what });
        }
        self.events.tell(Event::RunBegan {
            run: self.host.run.clone(),
            matrix: first.plan.matrix.clone(),
            measurements: totals.planned,
            finished: totals.finished,
        });
        let began = clock::now();
        let ended = Cell::new(Tally::default());
        let ran = tokio::select! {
            ran = self.run_batches(first, totals.planned, calibrate, next, &ended) => ran,
            never = self.stop.listen(&mut signals, self.events) => match never {},
        };
        let tally = ended.get();
        self.events.tell(Event::RunEnded {
            done: tally.done,
            failed: tally.failed,
            skipped: tally.skipped,
            interrupted: tally.interrupted,
            invalid: tally.invalid,
        });
        tracing::info!(
            "the run took {}",
            minutes(clock::now().since(began).as_secs_f64())
        );
        // Report these last, because the user has to act on them.
        let unstopped = starts::orphans(self.host, self.events, self.stop).await;
        ran.map(|()| unstopped)
    }

    async fn run_batches(
        &self,
        first: Batch,
        mut planned: usize,
        mut calibrate: bool,
        next: &mut dyn FnMut() -> Result<Option<Batch>, BatchError>,
        ended: &Cell<Tally>,
    ) -> Result<(), BatchError> {
        let (mut batch, mut calibration) = (first, None);
        loop {
            // In a resumed run all planned starts may be finished.
            if calibrate && !batch.starts.is_empty() {
                calibration = self.calibrate(&batch).await;
                calibrate = false;
            }
            let job = Job {
                plan: &batch.plan,
                todo: batch.starts,
                store: self.store,
                events: self.events,
                host: self.host,
                retry_invalid: self.retry_invalid,
                calibration: calibration.as_ref(),
            };
            let (tally, ran) = starts::run(&job, self.stop).await;
            ended.update(|all| all + tally);
            ran?;
            let more = if self.stop.is_asked() { None } else { next()? };
            let Some(more) = more else {
                return Ok(());
            };
            batch = more;
            planned += batch.measurements();
            self.events.tell(Event::StartsAdded {
                starts: batch.starts.len(),
                measurements: planned,
            });
        }
    }

    /// Calibrates the client briefly at the numbers of streams of a batch. If that fails, rows have no client
    /// error.
    async fn calibrate(&self, batch: &Batch) -> Option<Calibration> {
        let streams = calibrate::streams(&batch.plan, &batch.starts);
        if streams.is_empty() {
            return None;
        }
        let wanted = Wanted {
            streams,
            gaps_ms: calibrate::GAPS_MS.to_vec(),
            tokens: CALIBRATION_TOKENS,
            flood: false,
        };
        let measured = calibrate::calibrate(self.host, self.store, &wanted, self.stop).await;
        let warn = |message: String| self.events.tell(Event::Warning { message });
        let mut calibration = match measured {
            Ok(measured) => measured?,
            Err(reason) => {
                warn(format!(
                    "the client is not calibrated, rows carry no client error: {reason}"
                ));
                return None;
            }
        };
        // Only `matrix calibrate` measures the client's highest token rate.
        let kept = store::calibration::kept(&self.host.cache);
        let same =
            kept.filter(|kept| (&kept.tool, &kept.machine) == (&calibration.tool, &calibration.machine));
        calibration.flood = same.and_then(|kept| kept.flood);
        if let Err(error) = self.store.write_calibration(&calibration) {
            warn(format!("the calibration is not kept: {error}"));
        }
        Some(calibration)
    }
}
