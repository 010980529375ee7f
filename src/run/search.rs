//! A search on a running server: what each point sends, and what becomes of its requests.

use crate::base::ids::ContentHash;
use crate::base::units::Span;
use crate::judge::metrics::{self, Basis};
use crate::judge::search::judge;
use crate::load::Item;
use crate::matrix::plan::Protocol;
use crate::matrix::spec::scenario::{Scenario, Slo};
use crate::matrix::spec::search::{By, Search};
use crate::results::record::cell::Definitions;
use crate::results::record::request::{Class, Request};
use crate::results::record::search::Point;
use crate::run::items::{self, Part};
use crate::run::prompts::Stock;

/// What one point sends.
pub(crate) struct PointLoad {
    pub(crate) scenario: Scenario,
    pub(crate) items: Vec<Item>,
    pub(crate) schedule: ContentHash,
}

/// The load of a point at a value. Prompts go on after the `used` that earlier points have sent, and begin again at the end of
/// the data set: as long as there are enough, no point finds the prompts of another in a cache.
///
/// # Errors
/// In words, why pictures have no place in the prompts.
pub(crate) fn load_at(
    scenario: &Scenario,
    search: &Search,
    stock: &Stock,
    protocol: Protocol,
    value: f64,
    used: usize,
) -> Result<PointLoad, String> {
    let mut scenario = scenario.clone();
    scenario.arrival = search.arrival(&scenario.arrival, value);
    let prompts = stock.prepared.prompts.len();
    if search.by == By::Concurrency && search.duration.is_some() {
        scenario.limits.duration = search.duration;
    }
    let part = Part {
        from: used,
        count: search
            .prompts
            .map_or(prompts, |count| prompts.min(count as usize)),
        // What would fall due later does not fall due.
        before: search
            .duration
            .filter(|_| search.by == By::Rate)
            .map(Span::duration),
    };
    let (items, schedule) = items::part(
        &scenario,
        &stock.prepared,
        part,
        &mut stock.prepared.draws.clone(),
    );
    Ok(PointLoad {
        scenario,
        items: items::placed(items, protocol, &stock.tokenizer)?,
        schedule,
    })
}

/// The requests of a point that count. Where users send one request after another for some time, those that nobody came to
/// before its end are no failures.
pub fn counted(requests: Vec<Request>, search: &Search) -> Vec<Request> {
    if search.by == By::Rate || search.duration.is_none() {
        return requests;
    }
    let is_unsent = |request: &Request| {
        let failure = request.failure.as_ref();
        failure.is_some_and(|failure| failure.class == Class::Unsent)
    };
    requests
        .into_iter()
        .filter(|request| !is_unsent(request))
        .collect()
}

/// A point as a record, judged by its requests under the SLO of the basis; without one every answer is good.
pub fn judged(
    search: &Search,
    value: f64,
    schedule: ContentHash,
    requests: &[Request],
    basis: &Basis,
) -> Point {
    let every = Slo {
        ttft: None,
        tpot: None,
        e2e: None,
    };
    let slo = basis.slo.as_ref().unwrap_or(&every);
    let mut sets = metrics::summarize(requests, basis);
    Point {
        value,
        judged: judge(requests, slo, search.target),
        schedule_hash: schedule,
        figures: sets.remove(&Definitions::Matrix).unwrap_or_default(),
    }
}
