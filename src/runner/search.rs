//! A search on a running server: what each point sends, and what becomes of its requests.

use std::time::Duration;

use crate::analysis::metrics::{self, Basis, Metric, Set};
use crate::analysis::slo_search::{judge, judge_concurrency};
use crate::base::ids::ContentHash;
use crate::base::units::Span;
use crate::config::scenario::{Scenario, Slo};
use crate::config::search::{By, Search};
use crate::loadgen::{Driven, Item};
use crate::plan::Protocol;
use crate::results::record::request::{Request, failures};
use crate::results::record::search::Point;
use crate::runner::prompt_store::PreparedWorkload;
use crate::runner::requests::{self, Part, RanOut};

/// What one point sends.
pub(crate) struct PointLoad {
    pub(crate) scenario: Scenario,
    pub(crate) items: Vec<Item>,
    pub(crate) schedule: ContentHash,
    /// When one more request would fall due.
    pub(crate) next: Option<Duration>,
}

impl PointLoad {
    /// That it ran out of prompts before its time was over, where it did.
    pub(crate) fn ran_out(&self, sent: usize, driven: &Driven) -> Option<RanOut> {
        requests::ran_out(&self.scenario, sent, self.next, driven)
    }
}

/// The load of a point at a value. Prompts go on after the `used` that earlier points have sent, and begin again at the end of
/// the data set: as long as there are enough, no point finds the prompts of another in a cache.
///
/// # Errors
/// In words, why pictures have no place in the prompts.
pub(crate) fn load_at(
    scenario: &Scenario,
    search: &Search,
    workload: &PreparedWorkload,
    protocol: Protocol,
    value: f64,
    used: usize,
) -> Result<PointLoad, String> {
    let mut scenario = scenario.clone();
    scenario.arrival = search.arrival(&scenario.arrival, value);
    let prompts = workload.prepared.prompts.len();
    if search.duration.is_some() {
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
    let sending = requests::part(
        &scenario,
        &workload.prepared,
        part,
        &mut workload.prepared.draws.clone(),
    );
    Ok(PointLoad {
        scenario,
        items: requests::placed(sending.items, protocol, &workload.tokenizer)?,
        schedule: sending.schedule,
        next: sending.next,
    })
}

/// A point as a record, judged by its requests under the SLO of the basis; without one every answer is good. A rate whose prompts ran out
/// was not sent for the time of the point; a concurrency was, however short.
pub fn judged(
    search: &Search,
    value: f64,
    schedule: ContentHash,
    requests: &[Request],
    basis: &Basis,
    ran_out: Option<&RanOut>,
) -> Point {
    let every = Slo {
        ttft: None,
        tpot: None,
        e2e: None,
    };
    let slo = basis.slo.as_ref().unwrap_or(&every);
    let [figures] = metrics::sets_of(requests, basis, [Set::Matrix]);
    let judged = judge(requests, slo, search);
    let judged = match search.by {
        By::Concurrency => metrics::figure(&figures, Metric::PeakConcurrency)
            .map_or(judged, |peak| judge_concurrency(judged, value, peak)),
        By::Rate => ran_out
            .filter(|_| search.duration.is_some())
            .map_or(judged, |short| judged.cut_short(short.after.as_secs_f64())),
    };
    Point {
        value,
        judged,
        schedule_hash: schedule,
        figures,
        failures: failures(requests),
        caches: Vec::new(),
    }
}
