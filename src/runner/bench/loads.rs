//! Measures the loads of a bench as cells: every arrival, or the points of a search.

use crate::analysis::capacity::TieredSearch;
use crate::analysis::validity::{self, Evidence};
use crate::config::scenario::Scenario;
use crate::config::search::Search;
use crate::plan::{Cell, Plan};
use crate::results::record::validity::ReasonCode;
use crate::runner::bench::error::BenchError;
use crate::runner::bench::observer::{BenchEvent, BenchLoad, BenchObserver, BenchOutcome};
use crate::runner::bench::prepare::PreparedBench;
use crate::runner::bench::session::Session;
use crate::runner::cell::{CellContext, CellError, CellRun};
use crate::runner::load::PreparedLoad;
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::search::{self, JudgedPoint, MeasuredPoint, PointMeasurement, PointResult};

/// The server that is measured.
pub(super) struct Bench<'a> {
    pub(super) plan: &'a Plan,
    pub(super) context: CellContext<'a>,
    pub(super) engine: ReadyEngine,
}

impl Bench<'_> {
    /// Measures a load of the cell at `place` in the plan; `None` if it was stopped before the load was sent.
    async fn measure(
        &mut self,
        place: usize,
        session: Session,
        observer: &mut impl BenchObserver,
    ) -> Result<Option<BenchLoad>, BenchError> {
        let (planned, measurement) = (&self.plan.cells[place], &self.plan.starts[0].cells[place]);
        // Each point of a search has its own arrival.
        let cell = Cell {
            scenario: Scenario {
                arrival: session.arrival().clone(),
                search: None,
                ..planned.scenario.clone()
            },
            ..planned.clone()
        };
        let mut run = CellRun::new(self.context, &cell, measurement, &self.engine, observer);
        let workload = &session.workload;
        let measured = run
            .measure_load(&mut self.engine, session.load.clone(), None, workload)
            .await;
        let outcome = match measured {
            Ok(outcome) => outcome,
            Err(CellError::Cut(..)) => return Ok(None),
            Err(error) => {
                return Err(BenchError::NotMeasured {
                    error: Box::new(error),
                    url: session.url(),
                    control: Box::new(self.engine.control.clone()),
                });
            }
        };
        let load = outcome.load.expect("what was measured was sent");
        let mut summary = outcome.summary;
        summary.prompts_repeated = load.repeated_share(workload).await;
        let reasons = validity::judge_load(&Evidence {
            launch: self.context.launch,
            cell: &cell,
            summary: &summary,
            requests: &load.requests,
            machine: None,
            bounds: self.context.bounds,
        });
        Ok(Some(BenchLoad {
            session,
            summary,
            load,
            basis: outcome.basis,
            reasons,
        }))
    }

    pub(super) async fn arrivals(
        &mut self,
        prepared: PreparedBench,
        continues_draws: bool,
        observer: &mut impl BenchObserver,
    ) -> Result<BenchOutcome, BenchError> {
        let PreparedBench {
            tokenizer,
            prompt_store,
            session: first,
            mut draws,
            ..
        } = prepared;
        let mut before: Vec<Session> = Vec::new();
        let plan = self.plan;
        for (place, cell) in plan.cells.iter().enumerate() {
            let session = match place {
                0 => first.clone(),
                _ => {
                    let workload = prompt_store.workload(&cell.scenario, &tokenizer).await;
                    let workload = workload.map_err(|error| BenchError::Prompts(error.reason))?;
                    if !continues_draws {
                        draws = workload.prepared.rng.clone();
                    }
                    let (target, scenario) = (first.target.clone(), cell.scenario.clone());
                    Session::new(target, workload, scenario, &mut draws).map_err(BenchError::Prompts)?
                }
            };
            observer.bench_event(BenchEvent::Arrival {
                place,
                session: &session,
                before: &before,
            });
            let measured = self.measure(place, session, observer).await?;
            let goes_on =
                |measured: &BenchLoad| observer.load_measured(measured, None) && !measured.is_interrupted();
            match measured.filter(goes_on) {
                Some(measured) => before.push(measured.session),
                None => return Ok(BenchOutcome::Stopped),
            }
        }
        Ok(BenchOutcome::Done)
    }

    /// Measures points until the search ends.
    pub(super) async fn search(
        &mut self,
        search: &Search,
        session: &Session,
        observer: &mut impl BenchObserver,
    ) -> Result<BenchOutcome, BenchError> {
        let protocol = self.engine.target.dialect.protocol;
        let (scenario, workload) = (&session.load.scenario, &session.workload);
        let mut points = Points {
            bench: self,
            session,
            observer,
        };
        match search::run(search, scenario, workload, protocol, &mut points).await {
            Ok(outcome) => Ok(BenchOutcome::Search {
                outcome: Box::new(outcome),
                prompts: session.prompts(),
            }),
            Err(SearchAbort::Failed(error)) => Err(error),
            Err(SearchAbort::Refused) => Ok(BenchOutcome::Stopped),
        }
    }
}

/// Measures the points of a bench's search. Each point is a load of its own and is reported.
struct Points<'p, 'a, O> {
    bench: &'p mut Bench<'a>,
    session: &'p Session,
    observer: &'p mut O,
}

/// Why a search ended without a result.
enum SearchAbort {
    /// The observer refused to continue.
    Refused,
    Failed(BenchError),
}

impl<O: BenchObserver> PointMeasurement for Points<'_, '_, O> {
    type Measured = BenchLoad;
    type Failure = SearchAbort;

    fn not_prepared(&mut self, reason: String) -> SearchAbort {
        SearchAbort::Failed(BenchError::Prompts(reason))
    }

    async fn measure(
        &mut self,
        value: f64,
        load: PreparedLoad,
        search: &TieredSearch,
    ) -> Result<PointResult<BenchLoad>, SearchAbort> {
        let number = search.record().points.len() + 1;
        self.observer.bench_event(BenchEvent::Point { number, value });
        let session = Session {
            load,
            ..self.session.clone()
        };
        let measured = self.bench.measure(0, session, self.observer);
        let Some(measured) = measured.await.map_err(SearchAbort::Failed)? else {
            return Ok(PointResult::Stopped { prompts: 0 });
        };
        if measured.is_interrupted() {
            return match self.observer.load_measured(&measured, None) {
                true => Ok(PointResult::Stopped {
                    prompts: measured.load.prompts,
                }),
                false => Err(SearchAbort::Refused),
            };
        }
        let caches = measured
            .reasons
            .iter()
            .filter(|reason| reason.code == ReasonCode::CacheWarm);
        Ok(PointResult::Measured(Box::new(MeasuredPoint {
            metric_inputs: measured.basis.clone(),
            caches: caches.cloned().collect(),
            load: measured,
        })))
    }

    async fn point_judged(
        &mut self,
        _point: JudgedPoint,
        measured: BenchLoad,
        search: &TieredSearch,
    ) -> Result<(), SearchAbort> {
        match self.observer.load_measured(&measured, Some(&search.record())) {
            true => Ok(()),
            false => Err(SearchAbort::Refused),
        }
    }
}
