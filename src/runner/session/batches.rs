//! Runs the batches of a session while signals are handled.

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

/// Tokens of each stream of the calibration before the first cell.
const CALIBRATION_TOKENS: u32 = 16;

/// Why a run cannot continue.
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
    /// Makes an error of the store into one of a run that cannot continue.
    pub(super) fn store(what: &'static str) -> impl FnOnce(StoreError) -> Self {
        move |source| Self::Store { what, source }
    }
}

/// How many measurements a run has.
pub(super) struct RunTotals {
    /// Those that an earlier invocation finished.
    pub(super) finished: usize,
    pub(super) planned: usize,
}

/// What all batches of a run share.
pub(super) struct BatchRunner<'a> {
    pub(super) store: &'a Store,
    pub(super) host: &'a Host,
    pub(super) events: &'a Events,
    pub(super) stop: &'a Stop,
    pub(super) retry_invalid: u32,
}

impl BatchRunner<'_> {
    /// Runs a batch, then the batches that `next` gives. Returns how many engines could not be stopped.
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
        // The last events: the user has to act on them.
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
            // The planned starts of a run that is resumed may all be finished.
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

    /// Measures the client briefly at the numbers of streams of a batch. If that fails, rows have no client error.
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
        // Only `matrix calibrate` measures how fast the client can be.
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
