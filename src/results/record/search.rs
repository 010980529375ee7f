//! A search: the points that were measured, and the result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::ids::ContentHash;
use crate::config::search::{SearchVariable, Tier};
use crate::results::record::metric_values::MetricValues;
use crate::results::record::request_failure::{RequestFailureClass, format_failures};
use crate::results::record::validity::{Reason, Verdict};

/// Points and result of a search for the highest rate or concurrency that meets an SLO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchRecord {
    /// The variable of the search.
    pub by: SearchVariable,
    /// Required attainment: the share of requests that must meet the SLO.
    pub(crate) target: f64,
    /// Share by which the ends of the interval may differ; absent in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) resolution: Option<f64>,
    /// Every point, in the order of measurement.
    pub points: Vec<Point>,
    /// The highest value that met the SLO, below every one that failed; `None` if none did.
    pub found: Option<f64>,
    /// The lowest attainment measured at `found`.
    pub attainment: Option<f64>,
    /// The lowest value that failed, above every one that met the SLO; `None` if none failed.
    pub fails_at: Option<f64>,
    /// The capacity with its interval; `None` unless two probes agree on each end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<Capacity>,
    /// Why the search ended.
    pub ending: SearchStopReason,
    /// The searches for the further tiers of the SLO, which share the points.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub further_tiers: Vec<Self>,
    /// Token counts reported in the answers of all points, if the engine's counters cover all points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reported: Option<ReportedTokens>,
}

/// The highest load that meets the SLO, for one start of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// The estimate: where the probes suggest that the target is just met.
    pub value: f64,
    /// The highest load at which two probes showed that the target is met.
    pub low: f64,
    /// The lowest load at which two probes showed that it is missed.
    pub high: f64,
}

impl Capacity {
    /// Largest probability that the capacity is not within the interval.
    pub(crate) const ERROR: f64 = 0.05;
}

/// Token counts reported in answers, for comparison with the engine's counters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReportedTokens {
    /// Output tokens of completed requests.
    pub(crate) output: f64,
    /// Upper bound of the output tokens of requests that the server had accepted and that failed or were cancelled.
    pub(crate) output_unfinished: f64,
    /// Prompt tokens of completed requests.
    pub(crate) prompt: f64,
    /// Output tokens of the requests that the client cancelled; absent if it cancelled none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cancelled: Option<CancelledTokens>,
    /// Prompt tokens of requests that were sent and failed or were cancelled.
    pub(crate) prompt_unfinished: f64,
    /// Prompt tokens that repeat other prompts, so that a cache may hold them; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prompt_known: Option<f64>,
    /// Prompt tokens from a cache.
    pub(crate) prompt_cached: f64,
    /// Whether almost every completed answer reports its prompt tokens, and every prompt has only one answer.
    pub(crate) is_prompt_exact: bool,
    /// Tokens of the longest request: prompt and answer.
    pub(crate) longest: f64,
}

/// Output tokens of requests that the client cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CancelledTokens {
    /// Tokens that had arrived.
    pub(crate) received: f64,
    /// Tokens that the requests allowed.
    pub(crate) allowed: f64,
}

impl ReportedTokens {
    /// Adds the counts of another load.
    pub(crate) fn add(&mut self, other: &Self) {
        self.output += other.output;
        self.output_unfinished += other.output_unfinished;
        let pair = self.cancelled.zip(other.cancelled);
        self.cancelled = match pair {
            Some((ours, theirs)) => Some(CancelledTokens {
                received: ours.received + theirs.received,
                allowed: ours.allowed + theirs.allowed,
            }),
            None => self.cancelled.or(other.cancelled),
        };
        self.prompt += other.prompt;
        self.prompt_unfinished += other.prompt_unfinished;
        self.prompt_known = self
            .prompt_known
            .zip(other.prompt_known)
            .map(|(ours, theirs)| ours + theirs);
        self.prompt_cached += other.prompt_cached;
        self.is_prompt_exact &= other.is_prompt_exact;
        self.longest = self.longest.max(other.longest);
    }
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SearchStopReason {
    /// Two probes each showed the ends of an interval, which is as narrow as the resolution or as the probes can
    /// decide.
    Bracketed,
    /// The lowest or the highest allowed value was too close to call.
    Undecided,
    /// The highest allowed value still met the SLO: the bound lies above it.
    AllHeld,
    /// The lowest value already failed: the bound lies below it.
    NoneHeld,
    /// The limit of points was reached before the resolution.
    OutOfPoints,
    /// The run was stopped.
    Stopped,
    /// A point found its prompts in the engine's cache, so that its result says nothing about its value.
    CacheWarm,
    /// A point did not reach its concurrency, because it had too few prompts or answers came faster than
    /// requests were sent.
    NotReached,
    /// A point ran out of prompts before its time was over, so that its result says nothing about its value.
    OutOfPrompts,
    /// No server accepted the connections of a point, so that its result says nothing about its value.
    Unanswered,
}

/// Share of a point's requests that may find no server.
const MAX_UNANSWERED_SHARE: f64 = 0.01;

/// One point of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Requests per second, or concurrent requests.
    pub value: f64,
    /// The judgement against the SLO.
    pub judged: PointJudgement,
    /// Digest of its due times.
    pub schedule_hash: ContentHash,
    /// Its metrics in the set `matrix`.
    pub figures: MetricValues,
    /// Failed requests by class.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) failures: BTreeMap<RequestFailureClass, u32>,
    /// Reasons to doubt the state of the caches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) caches: Vec<Reason>,
}

impl Point {
    /// Its judged requests.
    pub(crate) const fn counts(&self, by: SearchVariable, tier: Option<Tier>) -> PointProgress {
        PointProgress {
            by,
            tier,
            value: self.value,
            judged: self.judged.requests,
            good: self.judged.good,
            after_start: self.judged.after_start,
        }
    }

    /// Whether its prompts were in the engine's cache, so that it neither meets nor fails the SLO.
    pub fn has_warm_cache(&self) -> bool {
        self.caches.iter().any(|reason| reason.weight == Verdict::Invalid)
    }

    /// Whether it failed because no server accepted its connections. An overloaded server would accept them.
    pub(crate) fn is_unanswered(&self) -> bool {
        let refused = [RequestFailureClass::Connect, RequestFailureClass::Refused]
            .map(|class| self.failures.get(&class).copied());
        let refused: u32 = refused.into_iter().flatten().sum();
        !self.judged.holds && f64::from(refused) > MAX_UNANSWERED_SHARE * self.judged.requests as f64
    }

    /// Describes its failed requests; `None` without failures.
    pub(crate) fn describe_failures(&self) -> Option<String> {
        let failed: u32 = self.failures.values().sum();
        let classes = format_failures(self.failures.iter().map(|(class, count)| (*class, *count)));
        (failed > 0).then(|| format!("{failed} of {} requests failed ({classes})", self.judged.requests))
    }
}

/// How far a point of a search is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointProgress {
    /// The variable of the search.
    pub by: SearchVariable,
    /// Requests per second, or concurrent requests.
    pub value: f64,
    /// Requests that were judged so far.
    pub judged: u64,
    /// Those of `judged` that met the SLO.
    pub good: u64,
    /// The requests that decide it; absent until it is judged, and in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after_start: Option<RequestsAfterStart>,
    /// The tier of the SLO; absent if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
}

impl PointProgress {
    /// The load and its requests, such as `8 req/s: 118 of 120 requests meet the SLO`.
    pub(crate) fn describe(&self) -> String {
        let Self {
            value,
            judged,
            good,
            tier,
            by,
            ..
        } = self;
        let tier = tier.map_or_else(String::new, |tier| format!(" of tier {tier}"));
        format!(
            "{value} {}: {good} of {judged} requests meet the SLO{tier}",
            by.unit()
        )
    }

    /// The requests after the start, such as `, after the start 416 of 416 (100.00 %)`, if the start had misses; else empty.
    pub(crate) fn describe_after_start(&self) -> String {
        describe_after_start(self.judged.saturating_sub(self.good), self.after_start)
    }
}

/// Requests after the start of a point, which alone decide it: a system that was empty before serves its first requests faster
/// or, where they come all at once, slower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestsAfterStart {
    pub(crate) requests: u64,
    /// Those that met the SLO.
    pub(crate) good: u64,
}

/// The requests after the start in words, if some of all misses are not among them.
fn describe_after_start(misses: u64, after_start: Option<RequestsAfterStart>) -> String {
    match after_start {
        Some(RequestsAfterStart { requests, good }) if requests.saturating_sub(good) < misses => {
            let percent = 100.0 * good as f64 / requests.max(1) as f64;
            format!(", after the start {good} of {requests} ({percent:.2} %)")
        }
        Some(_) | None => String::new(),
    }
}

/// What a point shows of its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointDecision {
    /// The target is met.
    Holds,
    /// The target is missed.
    Fails,
    /// It is too close to call, or there were too few requests.
    Undecided,
}

/// Why a point is undecided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PointDoubt {
    /// It has fewer requests than show that the target is met, even if all are good.
    TooFew,
    /// The share of good requests is near the target: so many requests cannot tell one from the other.
    NearTarget,
    /// The share is not near the target, but misses may come together, so that so many requests show nothing.
    Clustered,
    /// Latencies still grew.
    Growing,
    /// Latencies change so slowly that neighbouring requests are alike, which leaves too few independent ones.
    Unsettled,
}

impl PointDoubt {
    pub(crate) const fn describe(self) -> &'static str {
        match self {
            Self::TooFew => "there are too few requests to decide, even if all meet the SLO",
            Self::NearTarget => {
                "the share of requests that meet the SLO is too near to the target to decide with this number of requests"
            }
            Self::Clustered => {
                "there are too few requests to decide: slow requests may come together, so more requests are needed than if they were independent"
            }
            Self::Growing => "latencies were still growing",
            Self::Unsettled => {
                "latencies change slowly, so neighbouring requests are alike and give less evidence than independent requests"
            }
        }
    }
}

/// How a point met its SLO.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointJudgement {
    /// Requests that fell due, including failed ones.
    pub requests: u64,
    /// Requests that met every limit, counted from when they were due.
    pub(crate) good: u64,
    /// `good` / `requests`.
    pub(crate) attainment: f64,
    /// 95 % confidence interval of the attainment, by means of batches.
    pub(crate) interval: [f64; 2],
    /// Whether it is shown that the target is met, and the rate or concurrency was reached.
    pub holds: bool,
    /// What the point shows; absent in records of older versions, which only compared the attainment with the
    /// target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<PointDecision>,
    /// Why it is undecided; absent if it is not, and in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) doubt: Option<PointDoubt>,
    /// The requests that decide it; absent if there are too few, and in records of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after_start: Option<RequestsAfterStart>,
    /// The share of a limit of the SLO that the target share of requests does not exceed; absent if it is
    /// infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) severity: Option<f64>,
    /// Requests that count as one, because their misses come together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dispersion: Option<f64>,
    /// Rate of the drawn due times; only if the rate is varied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_per_s: Option<f64>,
    /// The rates, if the planned rate was not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unreached: Option<UnreachedRate>,
    /// The largest number of concurrent requests, if it is below the planned concurrency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peak_concurrency: Option<f64>,
    /// Time in seconds after which the prompts ran out, if nothing was decided until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_out_s: Option<f64>,
}

impl PointJudgement {
    /// What the point shows.
    pub(crate) fn decision(&self) -> PointDecision {
        self.decision.unwrap_or(match (self.holds, self.ran_out_s) {
            (true, _) => PointDecision::Holds,
            (false, Some(_)) => PointDecision::Undecided,
            (false, None) => PointDecision::Fails,
        })
    }

    /// The requests after the start, such as `, after the start 416 of 416 (100.00 %)`, if the start had misses; else empty.
    pub(crate) fn describe_after_start(&self) -> String {
        describe_after_start(self.requests.saturating_sub(self.good), self.after_start)
    }

    /// Returns the judgement of a point whose prompts ran out after `seconds`.
    #[must_use]
    pub(crate) fn cut_short(self, seconds: f64) -> Self {
        let is_undecided = self.decision() == PointDecision::Undecided;
        Self {
            ran_out_s: is_undecided.then_some(seconds),
            ..self
        }
    }
}

/// A rate that was not reached, in requests per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UnreachedRate {
    /// Rate at which requests fell due.
    pub(crate) due_per_s: f64,
    /// Rate at which requests were sent.
    pub(crate) sent_per_s: f64,
}

/// What to do about points that are too close to call.
const LONGER_POINTS: &str = "measure more requests per point: raise `prompts` or `duration` of the search (in `bench`: `--search-prompts` or `--search-seconds`)";

impl SearchRecord {
    /// This record and those of further tiers, each with its number.
    pub(crate) fn tiers(&self) -> impl Iterator<Item = (Tier, &Self)> {
        Tier::all().zip(std::iter::once(self).chain(&self.further_tiers))
    }

    /// Describes the point that did not reach its concurrency, and the fix.
    fn describe_not_reached(&self) -> String {
        let short = |point: &Point| Some((point.judged.peak_concurrency?, point.value));
        let (peak, value) = self.points.iter().rev().find_map(short).unwrap_or_default();
        let what = match self.by {
            SearchVariable::Sessions => "sessions",
            SearchVariable::Rate | SearchVariable::Concurrency => "requests",
        };
        format!(
            "at most {peak} of the required {value} {what} ran at the same time: raise the number of prompts, or lower the highest {}",
            self.by.name()
        )
    }

    /// Describes the failed requests at the lowest value that does not hold.
    pub(crate) fn describe_failed_above(&self) -> Option<String> {
        let fails_at = self.fails_at?;
        let point = self.points.iter().rev().find(|point| point.value == fails_at)?;
        point.describe_failures()
    }

    /// Describes the first point at which no server accepted connections.
    pub(crate) fn describe_unanswered(&self) -> Option<String> {
        let point = self.points.iter().find(|point| point.is_unanswered())?;
        let (value, unit) = (point.value, self.by.unit());
        Some(format!(
            "at {value} {unit} {}: the server had ended or accepted no connections, so the capacity of the server at this load is unknown",
            point.describe_failures()?
        ))
    }

    /// Describes the result in one sentence.
    pub fn describe(&self) -> String {
        let (name, unit) = (self.by.name(), self.by.unit());
        let target = format_percent(self.target);
        let Some(found) = self.found else {
            return self.describe_nothing_found();
        };
        let failed = self
            .describe_failed_above()
            .map_or_else(String::new, |failed| format!(", where {failed}"));
        if let Some(Capacity { value, low, high }) = self.capacity {
            let confidence = format_percent(1.0 - Capacity::ERROR);
            let wide = match self.is_wide() {
                true => format!("; to find the capacity more precisely, {LONGER_POINTS}"),
                false => String::new(),
            };
            return format!(
                "the highest {name} at which {target} of requests meet the SLO is {value} {unit}, between {low} and {high} ({confidence} \
                 confidence, for this start){failed}{wide}"
            );
        }
        let fails = self
            .fails_at
            .map_or_else(String::new, |value| format!(", but not at {value}{failed}"));
        match self.ending {
            SearchStopReason::AllHeld => format!(
                "at least {target} of requests meet the SLO at {found} {unit}, the highest allowed value: the \
                 capacity lies above it and was not found"
            ),
            SearchStopReason::Bracketed
            | SearchStopReason::NoneHeld
            | SearchStopReason::Undecided
            | SearchStopReason::OutOfPoints
            | SearchStopReason::Stopped
            | SearchStopReason::CacheWarm
            | SearchStopReason::NotReached
            | SearchStopReason::OutOfPrompts
            | SearchStopReason::Unanswered => {
                let why = match self.ending {
                    SearchStopReason::Stopped => "the search was stopped".to_owned(),
                    SearchStopReason::CacheWarm => {
                        "the search ended because the prompts of its next point were in the engine's cache"
                            .to_owned()
                    }
                    SearchStopReason::NotReached => format!("at the next point {}", self.describe_not_reached()),
                    SearchStopReason::OutOfPrompts => {
                        "the search ended because its next point ran out of prompts before its time was over (raise the number of prompts)"
                            .to_owned()
                    }
                    SearchStopReason::Unanswered => self.describe_unanswered().unwrap_or_default(),
                    SearchStopReason::OutOfPoints => "the points ran out".to_owned(),
                    _ => self.describe_undecided(),
                };
                format!(
                    "at least {target} of requests meet the SLO at {found} {unit}{fails}; {why}, and the exact \
                     capacity was not found"
                )
            }
        }
    }

    /// Whether the interval is wider than asked for.
    pub(crate) fn is_wide(&self) -> bool {
        let width = self.capacity.map(|capacity| capacity.high / capacity.low - 1.0);
        let is_next = self.by != SearchVariable::Rate
            && self
                .capacity
                .is_some_and(|capacity| capacity.high - capacity.low <= 1.0);
        !is_next
            && width
                .zip(self.resolution)
                .is_some_and(|(width, asked)| width > 1.01 * asked)
    }

    /// Describes the last point that shows nothing, and the fix.
    fn describe_undecided(&self) -> String {
        let undecided = |point: &&Point| point.judged.decision() == PointDecision::Undecided;
        let (unit, target) = (self.by.unit(), format_percent(self.target));
        match self.points.iter().rev().find(undecided) {
            Some(Point { value, judged, .. }) => {
                let doubt = judged
                    .doubt
                    .map_or_else(String::new, |doubt| format!(": {}", doubt.describe()));
                format!(
                    "{value} {unit} is undecided: {} of {} requests meet the SLO{}, and the target is {target}{doubt}; {LONGER_POINTS}",
                    judged.good,
                    judged.requests,
                    judged.describe_after_start()
                )
            }
            None => "the results at different points of the search contradict each other".to_owned(),
        }
    }

    /// Names the last load that is undecided, such as `undecided at 32 req/s, where 146 of 146 requests met it`; `None` if there is
    /// none.
    pub(crate) fn describe_undecided_load(&self) -> Option<String> {
        let is_undecided = |point: &&Point| {
            point.judged.decision() == PointDecision::Undecided
                && !point.has_warm_cache()
                && !point.is_unanswered()
        };
        let Point { value, judged, .. } = self.points.iter().rev().find(is_undecided)?;
        Some(format!(
            "undecided at {value} {}, where {} of {} requests met it",
            self.by.unit(),
            judged.good,
            judged.requests
        ))
    }

    fn describe_nothing_found(&self) -> String {
        let (name, unit) = (self.by.name(), self.by.unit());
        let target = format_percent(self.target);
        match self.points.first().map(|point| point.value) {
            Some(lowest) if self.ending == SearchStopReason::OutOfPrompts => format!(
                "no {name} was found: the first point, {lowest} {unit}, ran out of prompts before its time was over; raise the number \
                 of prompts"
            ),
            Some(lowest) if self.ending == SearchStopReason::CacheWarm => format!(
                "no {name} was found: at the first point, {lowest} {unit}, the prompts were already in the engine's cache"
            ),
            Some(lowest) if self.ending == SearchStopReason::NotReached => {
                format!(
                    "no {name} was found: at {lowest} {unit}, {}",
                    self.describe_not_reached()
                )
            }
            Some(_) if self.ending == SearchStopReason::Unanswered => {
                format!(
                    "no {name} was found: {}",
                    self.describe_unanswered().unwrap_or_default()
                )
            }
            Some(_) if self.ending == SearchStopReason::Undecided => {
                format!("no {name} was found: {}", self.describe_undecided())
            }
            Some(lowest) => format!(
                "no {name} was found at which {target} of requests meet the SLO: even {lowest} {unit} is too high; the \
                 capacity lies below it"
            ),
            None => format!("no {name} was measured"),
        }
    }
}

fn format_percent(share: f64) -> String {
    let text = format!("{:.2}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}
