//! One load of a bench after another: every arrival, or the points of a search.

use crate::analysis::slo_search::{Next, SloSearch};
use crate::config::search::Search;
use crate::results::record::search::Point;
use crate::runner::bench::error::BenchError;
use crate::runner::bench::measure::Server;
use crate::runner::bench::measurement::BenchMeasurement;
use crate::runner::bench::observer::{BenchEvent, BenchObserver, JudgedPoint};
use crate::runner::bench::outcome::BenchOutcome;
use crate::runner::bench::request::ArrivalDraws;
use crate::runner::bench::session::Session;
use crate::runner::load::PreparedLoad;
use crate::runner::search::{self, MeasuredPoint, PointMeasurement, PointResult};

/// Measures every arrival.
pub(super) async fn arrivals(
    server: &mut Server<'_>,
    session: &Session,
    observer: &mut impl BenchObserver,
) -> Result<BenchOutcome, BenchError> {
    let request = server.request;
    let mut before: Vec<Session> = Vec::new();
    for (place, arrival) in request.arrivals.iter().enumerate() {
        let session = match (before.last(), request.draws) {
            (None, _) | (Some(_), ArrivalDraws::Same) => session.at(arrival),
            (Some(before), ArrivalDraws::Continued) => before.on_at(arrival),
            (Some(_), ArrivalDraws::Reseeded) => {
                session.reseeded(arrival, session.seed() + place as u64).await
            }
        };
        let session = session.map_err(BenchError::Prompts)?;
        observer.event(BenchEvent::Arrival {
            place,
            session: &session,
            before: &before,
        });
        let Some(measurement) = server.measure(&session, observer).await? else {
            return Ok(BenchOutcome::Stopped);
        };
        let goes_on = observer.measured(&measurement, None);
        if !goes_on || measurement.is_interrupted {
            return Ok(BenchOutcome::Stopped);
        }
        before.push(session);
    }
    Ok(BenchOutcome::Done)
}

/// The points of a search as a bench measures them.
struct Points<'a, 's, O> {
    search: &'a Search,
    server: &'a mut Server<'s>,
    session: &'a Session,
    observer: &'a mut O,
}

impl<O: BenchObserver> PointMeasurement for Points<'_, '_, O> {
    type Measured = BenchMeasurement;
    /// `None` if the observer refused to go on.
    type Failure = Option<BenchError>;

    fn not_prepared(&mut self, reason: String) -> Option<BenchError> {
        Some(BenchError::Prompts(reason))
    }

    async fn measure(
        &mut self,
        value: f64,
        load: PreparedLoad,
        search: &SloSearch,
    ) -> Result<PointResult<BenchMeasurement>, Option<BenchError>> {
        let number = search.record().points.len() + 1;
        self.observer.event(BenchEvent::Point { number, value });
        let session = self.session.with(load);
        let Some(measured) = self.server.measure(&session, self.observer).await.map_err(Some)? else {
            return Ok(PointResult::Stopped { prompts: 0 });
        };
        if measured.is_interrupted {
            return match self.observer.measured(&measured, None) {
                true => Ok(PointResult::Stopped {
                    prompts: measured.outcome.prompts,
                }),
                false => Err(None),
            };
        }
        Ok(PointResult::Measured(Box::new(MeasuredPoint {
            basis: measured.basis(),
            caches: measured.cache_warm().into_iter().collect(),
            measured,
        })))
    }

    async fn judged(
        &mut self,
        point: Point,
        measured: BenchMeasurement,
        search: &SloSearch,
    ) -> Result<(), Option<BenchError>> {
        let judged = JudgedPoint {
            search: self.search,
            point: &point,
            record: &search.record(),
            is_last: matches!(search.next(), Next::Over(_)),
            has_best: search.best().is_some(),
        };
        match self.observer.measured(&measured, Some(judged)) {
            true => Ok(()),
            false => Err(None),
        }
    }
}

/// Measures point after point until the search is over.
pub(super) async fn search(
    search: &Search,
    server: &mut Server<'_>,
    session: &Session,
    observer: &mut impl BenchObserver,
) -> Result<BenchOutcome, BenchError> {
    let protocol = server.request.dialect.protocol;
    let (scenario, workload) = (&session.load().scenario, session.workload());
    let mut points = Points {
        search,
        server,
        session,
        observer,
    };
    match search::run(search, scenario, workload, protocol, &mut points).await {
        Ok(outcome) => Ok(BenchOutcome::Search {
            outcome,
            prompts: session.prompts(),
        }),
        Err(Some(error)) => Err(error),
        Err(None) => Ok(BenchOutcome::Stopped),
    }
}
