//! The loop of a search: the load of each point and its judgement. The caller measures the points.

use std::sync::Arc;

use crate::analysis::capacity::{NextPoint, TieredSearch, judge_concurrency, judge_point};
use crate::analysis::metrics::{self, DefinitionSet, Metric, MetricInputs};
use crate::base::ids::ContentHash;
use crate::base::units::HumanDuration;
use crate::config::scenario::{Scenario, Slo};
use crate::config::search::{Search, SearchVariable, Tier};
use crate::plan::Protocol;
use crate::results::record::request::count_failures;
use crate::results::record::search::{Point, SearchRecord};
use crate::results::record::validity::Reason;
use crate::runner::load::{LoadOutcome, PreparedLoad};
use crate::runner::probe_monitor::{ProbeGoal, ProbeProgress};
use crate::runner::prompt_store::PreparedWorkload;
use crate::runner::requests::PromptRange;

/// Measures the points of a search and receives their judgement.
pub(crate) trait PointMeasurement {
    type Measured: AsRef<LoadOutcome>;
    /// An error that ends a search without a result.
    type Failure;

    /// Creates the failure of a point whose requests cannot be made.
    fn not_prepared(&mut self, reason: String) -> Self::Failure;

    /// Sends the load of a point.
    async fn measure(
        &mut self,
        value: f64,
        load: PreparedLoad,
        search: &TieredSearch,
    ) -> Result<PointResult<Self::Measured>, Self::Failure>;

    /// Receives a judged point; `search` includes it.
    async fn point_judged(
        &mut self,
        point: JudgedPoint,
        measured: Self::Measured,
        search: &TieredSearch,
    ) -> Result<(), Self::Failure>;
}

/// A point with its judgements.
pub(crate) struct JudgedPoint {
    /// As every tier of the SLO judges it.
    pub(crate) tiers: Vec<Point>,
    /// Index of the tier for which it was measured.
    pub(crate) tier: usize,
}

/// Result of sending the load of a point.
pub(crate) enum PointResult<M> {
    Measured(Box<MeasuredPoint<M>>),
    /// The search was stopped after `prompts` prompts of the point. An incomplete point says nothing about
    /// its value.
    Stopped {
        prompts: usize,
    },
}

/// A completely measured point.
pub(crate) struct MeasuredPoint<M> {
    pub(crate) load: M,
    pub(crate) metric_inputs: MetricInputs,
    /// Reasons to doubt the state of the engine's caches, if known.
    pub(crate) caches: Vec<Reason>,
}

pub(crate) struct SearchOutcome {
    pub(crate) record: SearchRecord,
    /// Number of prompts that the points sent.
    pub(crate) used_prompts: usize,
}

/// Measures point after point until the search ends or is stopped.
pub(crate) async fn run<M: PointMeasurement>(
    search: &Search,
    scenario: &Scenario,
    workload: &PreparedWorkload,
    protocol: Protocol,
    points: &mut M,
) -> Result<SearchOutcome, M::Failure> {
    let tiers = scenario.tiers();
    let mut state = TieredSearch::new(search, tiers.len());
    let mut used = 0;
    while let Some(next) = state.next() {
        let load = load_at(scenario, search, workload, protocol, next, used);
        let load = load.map_err(|reason| points.not_prepared(reason))?;
        let schedule = load.schedule.clone();
        let measured = match points.measure(next.value, load, &state).await? {
            PointResult::Measured(measured) => measured,
            PointResult::Stopped { prompts } => {
                used += prompts;
                break;
            }
        };
        used += measured.load.as_ref().prompts;
        let judge = |slo: &Slo| new_point(search, scenario, slo, next.value, schedule.clone(), &measured);
        let judged: Vec<Point> = tiers.iter().map(judge).collect();
        state.add_point(next.tier, judged.clone());
        let point = JudgedPoint {
            tiers: judged,
            tier: next.tier,
        };
        points.point_judged(point, measured.load, &state).await?;
    }
    Ok(SearchOutcome {
        record: state.record(),
        used_prompts: used,
    })
}

/// The load of a point. It continues after the `used` prompts of earlier points, and repeats the
/// data set at its end. While prompts suffice, no point finds the prompts of another one in a cache. Fails
/// with a message if the prompts cannot contain images.
fn load_at(
    scenario: &Scenario,
    search: &Search,
    workload: &PreparedWorkload,
    protocol: Protocol,
    NextPoint { tier, value }: NextPoint,
    used: usize,
) -> Result<PreparedLoad, String> {
    let mut slos = scenario.tiers();
    let shown_tier = (slos.len() > 1).then(|| Tier::all().nth(tier)).flatten();
    let mut scenario = scenario.clone();
    scenario.arrival = search.arrival_at(&scenario.arrival, value);
    scenario.pacing = search.pacing_at(&scenario.pacing, value);
    let prompts = workload.prepared.prompts.len();
    if search.duration.is_some() {
        scenario.limits.duration = search.duration;
    }
    let part = PromptRange {
        first_prompt: used,
        count: search
            .prompts
            .map_or(prompts, |count| prompts.min(count as usize)),
        // Later requests do not fall due.
        due_before: search
            .duration
            .filter(|_| search.by == SearchVariable::Rate)
            .map(HumanDuration::duration),
    };
    let mut draws = workload.prepared.rng.clone();
    let goal = ProbeGoal {
        slo: slos.swap_remove(tier),
        target: search.target,
        is_closed: scenario.arrival.rate.is_infinite(),
        progress: Arc::new(ProbeProgress::new(search.by, value, shown_tier)),
    };
    let load = PreparedLoad::for_range(scenario, workload, protocol, part, &mut draws)?;
    Ok(PreparedLoad {
        goal: Some(goal),
        ..load
    })
}

/// Judges a point by its requests and a tier of the SLO; without limits every completed answer is good. If
/// prompts run out before anything is decided, a rate was not held for the time of the point; a concurrency was.
fn new_point<M: AsRef<LoadOutcome>>(
    search: &Search,
    scenario: &Scenario,
    slo: &Slo,
    value: f64,
    schedule: ContentHash,
    measured: &MeasuredPoint<M>,
) -> Point {
    let (basis, outcome) = (&measured.metric_inputs, measured.load.as_ref());
    let (requests, ran_out) = (&outcome.requests, outcome.ran_out.as_ref());
    let [figures] = metrics::compute_sets(requests, basis, [DefinitionSet::Matrix]);
    let is_closed = search.arrival_at(&scenario.arrival, value).rate.is_infinite();
    let judged = judge_point(requests, slo, search, outcome.decided, is_closed);
    let judged = match search.by {
        SearchVariable::Concurrency => metrics::metric_value(&figures, Metric::PeakConcurrency)
            .map_or(judged, |peak| judge_concurrency(judged, value, peak)),
        SearchVariable::Sessions => {
            let sessions = requests.iter().filter(|request| request.is_first_round()).count();
            judge_concurrency(judged, value, sessions as f64)
        }
        SearchVariable::Rate => ran_out
            .filter(|_| search.duration.is_some())
            .map_or(judged, |short| judged.cut_short(short.duration.as_secs_f64())),
    };
    Point {
        value,
        judged,
        schedule_hash: schedule,
        figures,
        failures: count_failures(requests),
        caches: measured.caches.clone(),
    }
}
