//! One load of a bench: warm-up, caches, profilers, the load itself, and what is asked of the server after it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::analysis::metrics;
use crate::base::clock;
use crate::config::scenario::Scenario;
use crate::config::workload::Profile;
use crate::engine;
use crate::loadgen::{Progress, Sink, Spill};
use crate::results::store::partial;
use crate::runner::bench::error::{BenchError, FailedWarmUp};
use crate::runner::bench::measurement::BenchMeasurement;
use crate::runner::bench::observer::{BenchEvent, BenchObserver};
use crate::runner::bench::profiler::{self, Worker};
use crate::runner::bench::request::BenchRequest;
use crate::runner::bench::session::Session;
use crate::runner::discovery;
use crate::runner::load::{self, LoadContext, LoadOutcome, count_chunks};
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::shutdown::Stop;
use crate::runner::supervise::DriveControl;
use crate::runner::warm_up;

/// How long the server may take to empty its caches.
const RESET: Duration = Duration::from_secs(600);
/// How often the progress of a load is reported.
const PROGRESS: Duration = Duration::from_millis(100);

/// The server that is measured.
pub(super) struct Server<'a> {
    pub(super) request: &'a BenchRequest,
    pub(super) engine: ReadyEngine,
    pub(super) stop: &'a Stop,
}

impl Server<'_> {
    /// Warms up, empties the cache and sends one load; `None` if it was stopped before anything was measured.
    pub(super) async fn measure(
        &mut self,
        session: &Session,
        observer: &mut impl BenchObserver,
    ) -> Result<Option<BenchMeasurement>, BenchError> {
        if !self.warm_up(session, observer).await? {
            return Ok(None);
        }
        let stop = self.stop;
        let Some(profilers) = stop.unless_asked(self.begin(observer)).await else {
            return Ok(None);
        };
        let profilers = profilers?;
        let began = clock::timestamp();
        let sink = self.sink(observer);
        let spill = spill();
        let mut outcome = self
            .drive(session, (sink.clone(), spill.clone()), observer)
            .await?;
        let missed = sink.map_or(0, |sink| sink.missed());
        if missed > 0 {
            observer.event(BenchEvent::RecordsMissed(missed));
        }
        observer.event(BenchEvent::Sent {
            session,
            items: session.items(),
            requests: &outcome.requests,
            zero: outcome.window.zero,
        });
        let request = self.request;
        if let Some(profiler) = &request.profiler {
            profiler::stop(profiler, &profilers, observer).await;
        }
        // Both questions of the Python tool in one, and outside of what is timed; the classic one asks nothing.
        let info = match request.asks_info {
            true => discovery::info(&self.engine.control).await,
            false => None,
        };
        let accept_length = info
            .as_ref()
            .filter(|_| request.reports_accept_length)
            .and_then(engine::accept_length);
        let is_current = request.scenario.profile == Profile::Current;
        if is_current && metrics::divides_gaps(&request.backend, accept_length) {
            outcome.requests = count_chunks(outcome.requests, session.workload()).await;
        }
        Ok(Some(BenchMeasurement {
            session: session.clone(),
            scenario: Scenario {
                arrival: session.arrival().clone(),
                ..request.scenario.clone()
            },
            backend: request.backend.clone(),
            protocol: request.dialect.protocol,
            info,
            accept_length,
            began,
            repeated: outcome.repeated_share(session.workload()).await,
            spill,
            is_interrupted: stop.is_asked(),
            outcome,
        }))
    }

    /// Source: docs/bench-serving.md 6, step 9, and 12.2. Whether to go on.
    async fn warm_up(
        &mut self,
        session: &Session,
        observer: &mut impl BenchObserver,
    ) -> Result<bool, BenchError> {
        let scenario = &session.load().scenario;
        if scenario.limits.warmup == 0 && scenario.profile == Profile::Classic {
            return Ok(true);
        }
        observer.event(BenchEvent::WarmUpBegan);
        let began = clock::now();
        let items = warm_up::items(scenario, &session.workload().prepared);
        let control = DriveControl {
            stop: self.stop,
            progress: Arc::default(),
            report: &|_| {},
        };
        let warmed = warm_up::warm_up(&mut self.engine, scenario, items.clone(), &control).await?;
        observer.event(BenchEvent::Sent {
            session,
            items: &items,
            requests: &warmed.requests,
            zero: warmed.zero,
        });
        if self.stop.is_asked() {
            return Ok(false);
        }
        if let Some(failure) = warmed.failure() {
            return Err(BenchError::WarmUp(Box::new(FailedWarmUp {
                failure: failure.clone(),
                url: session.url(),
                control: self.engine.control.clone(),
            })));
        }
        let duration = clock::now().since(began);
        observer.event(BenchEvent::WarmUpCompleted { duration });
        Ok(true)
    }

    /// Source: docs/bench-serving.md 6, steps 10 to 12, and 12.2. The profilers that run now.
    async fn begin(&self, observer: &mut impl BenchObserver) -> Result<Vec<Worker>, BenchError> {
        let request = self.request;
        if request.reset.is_some() {
            let reset = self.engine.reset_caches(request.reset.as_ref(), RESET).await;
            if let Some(error) = reset.error {
                return Err(BenchError::Reset(error));
            }
        }
        tokio::time::sleep(request.settle).await;
        Ok(match &request.profiler {
            Some(profiler) => profiler::start(profiler, &self.engine.control, observer).await,
            None => Vec::new(),
        })
    }

    /// Where records go while the load runs, if a file was named. Without a disk that takes them there is only the end.
    fn sink(&self, observer: &mut impl BenchObserver) -> Option<Sink> {
        let file = self.request.records.as_ref()?;
        let (sink, records) = Sink::new(Sink::ROOM, false);
        match partial::keep_at(&file.path, records, file.redactor.clone()) {
            Ok(()) => Some(sink),
            Err(error) => {
                observer.event(BenchEvent::RecordsNotKept(&error));
                None
            }
        }
    }

    /// Sends the load and reports its progress.
    async fn drive(
        &mut self,
        session: &Session,
        (sink, spill): (Option<Sink>, Option<Arc<Spill>>),
        observer: &mut impl BenchObserver,
    ) -> Result<LoadOutcome, BenchError> {
        let progress = Arc::new(Progress::default());
        observer.event(BenchEvent::LoadBegan {
            requests: session.len(),
        });
        let context = LoadContext {
            sink,
            spill,
            calibration: None,
            continues_samples: false,
            samples_after_stop: true,
            control: DriveControl {
                stop: self.stop,
                progress: Arc::clone(&progress),
                report: &|_| {},
            },
        };
        let load = session.load().clone();
        let measuring = load::measure(&mut self.engine, load, session.workload(), context);
        tokio::pin!(measuring);
        let mut beat = tokio::time::interval(PROGRESS);
        let ended = || progress.ended() as usize;
        let outcome = loop {
            tokio::select! {
                biased;
                outcome = &mut measuring => break outcome,
                _ = beat.tick() => observer.event(BenchEvent::LoadProgress { ended: ended() }),
            }
        };
        observer.event(BenchEvent::LoadEnded { ended: ended() });
        Ok(outcome?)
    }
}

/// Where responses go that exceed the memory budget: into a file of the current folder, else of the one for temporary files.
fn spill() -> Option<Arc<Spill>> {
    let folders = [PathBuf::from("."), std::env::temp_dir()];
    folders
        .iter()
        .find_map(|folder| Spill::new(folder, Spill::BUDGET).ok())
}
