//! Watches a probe of a search while it runs, and ends it once its requests show whether the SLO is met.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

use tokio_util::sync::CancellationToken;

use crate::analysis::capacity::{self, EndedRequest, ProbeDecision};
use crate::config::scenario::Slo;
use crate::config::search::{SearchVariable, Tier};
use crate::loadgen::{LoadWatch, Sink};
use crate::results::record::request::Request;
use crate::results::record::search::PointProgress;

/// What a probe must show.
#[derive(Clone, Debug)]
pub(crate) struct ProbeGoal {
    pub(crate) slo: Slo,
    /// Share of requests that must meet the SLO.
    pub(crate) target: f64,
    /// Whether requests have no due times of their own: the end of one starts the next.
    pub(crate) is_closed: bool,
    pub(crate) progress: Arc<ProbeProgress>,
}

/// How far a probe is, readable while it runs.
#[derive(Debug)]
pub(crate) struct ProbeProgress {
    by: SearchVariable,
    value: f64,
    tier: Option<Tier>,
    judged: AtomicU64,
    good: AtomicU64,
}

impl ProbeProgress {
    pub(crate) const fn new(by: SearchVariable, value: f64, tier: Option<Tier>) -> Self {
        Self {
            by,
            value,
            tier,
            judged: AtomicU64::new(0),
            good: AtomicU64::new(0),
        }
    }

    fn count(&self, request: &EndedRequest) {
        self.good
            .fetch_add(u64::from(request.is_good()), Ordering::Relaxed);
        self.judged.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> PointProgress {
        PointProgress {
            by: self.by,
            value: self.value,
            tier: self.tier,
            judged: self.judged.load(Ordering::Relaxed),
            good: self.good.load(Ordering::Relaxed),
            after_start: None,
        }
    }
}

/// Judges a load on a thread of its own.
pub(crate) struct ProbeMonitor {
    thread: JoinHandle<Option<usize>>,
}

impl ProbeMonitor {
    /// Starts to watch a load of `count` requests.
    pub(crate) fn start(goal: ProbeGoal, count: usize) -> (Self, LoadWatch) {
        let (records, received) = Sink::new(Sink::CAPACITY, false);
        let enough = CancellationToken::new();
        let watch = LoadWatch {
            records,
            enough: enough.clone(),
        };
        let thread = std::thread::spawn(move || watch_records(&received, &goal, count, &enough));
        (Self { thread }, watch)
    }

    /// Returns the number of judged requests after which the load was decided; `None` if it was not. The watch must have
    /// been dropped.
    pub(crate) fn finish(self) -> Option<usize> {
        self.thread.join().ok().flatten()
    }
}

/// Reads records until the load ends. A look judges the first requests, of which all have ended: the others are those that
/// take longest.
fn watch_records(
    records: &Receiver<Request>,
    goal: &ProbeGoal,
    count: usize,
    enough: &CancellationToken,
) -> Option<usize> {
    let mut ended: Vec<Option<EndedRequest>> = vec![None; count];
    let (mut complete, mut look, mut decided) = (0, capacity::first_look(goal.target), None);
    for request in records {
        // Without reported tokens, the time per token is known only after the load.
        let is_known = goal.slo.max_tpot().is_none() || request.usage.is_some() || request.is_failed();
        let place = ended.get_mut(request.index as usize);
        let Some(place) = place.filter(|_| decided.is_none() && is_known) else {
            continue;
        };
        let request = EndedRequest::new(&request, &goal.slo);
        goal.progress.count(&request);
        *place = Some(request);
        complete += ended[complete..]
            .iter()
            .take_while(|ended| ended.is_some())
            .count();
        if complete < look {
            continue;
        }
        let outcomes = capacity::outcomes(ended[..look].iter().flatten().copied(), goal.is_closed);
        let estimate = capacity::judge(&outcomes, goal.target);
        if estimate.is_some_and(|estimate| estimate.decision != ProbeDecision::Undecided) {
            decided = Some(outcomes.len());
            enough.cancel();
        }
        look = capacity::next_look(look);
    }
    decided
}
