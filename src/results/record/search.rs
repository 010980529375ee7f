//! A search: the points that were measured, and the result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::base::ids::ContentHash;
use crate::config::search::SearchVariable;
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
    /// Every point, in the order of measurement.
    pub points: Vec<Point>,
    /// The highest value that met the SLO; `None` if none did.
    pub found: Option<f64>,
    /// Attainment at `found`.
    pub attainment: Option<f64>,
    /// The lowest value above `found` that failed; `None` if none failed.
    pub fails_at: Option<f64>,
    /// Why the search ended.
    pub ending: SearchStopReason,
    /// Token counts reported in the answers of all points, if the engine's counters cover all points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reported: Option<ReportedTokens>,
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
    /// The bound lies between two points, within the resolution.
    Bracketed,
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

/// How a point met its SLO.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PointJudgement {
    /// Requests that fell due, including failed ones.
    pub requests: u64,
    /// Requests that met every limit, counted from when they were due.
    pub(crate) good: u64,
    /// `good` / `requests`.
    pub(crate) attainment: f64,
    /// 95 % confidence interval of the attainment, by Wilson's method; assumes independent requests.
    pub(crate) interval: [f64; 2],
    /// Whether attainment reaches the target, and the rate or concurrency was reached for the whole time of
    /// the point.
    pub holds: bool,
    /// Rate of the drawn due times; only if the rate is varied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_per_s: Option<f64>,
    /// The rates, if the planned rate was not reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unreached: Option<UnreachedRate>,
    /// The largest number of concurrent requests, if it is below the planned concurrency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peak_concurrency: Option<f64>,
    /// Time in seconds after which the prompts ran out, at a rate that met the SLO until then. The point
    /// neither meets nor fails the SLO.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran_out_s: Option<f64>,
}

impl PointJudgement {
    /// Returns the judgement of a point whose prompts ran out after `seconds`. Requests fell due only until
    /// then. A point that failed before that still fails.
    #[must_use]
    pub(crate) fn cut_short(self, seconds: f64) -> Self {
        Self {
            holds: false,
            due_per_s: self
                .due_per_s
                .and((seconds > 0.0).then(|| self.requests as f64 / seconds)),
            ran_out_s: self.holds.then_some(seconds),
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

impl SearchRecord {
    /// Returns the requests of the smaller of the two points around the result, and the number that is needed
    /// to judge the target: enough for five misses. `None` if there are enough.
    pub(crate) fn few_requests(&self) -> Option<(u64, f64)> {
        const MISSES: f64 = 5.0;
        let needed = (MISSES / (1.0 - self.target) - 1e-9).ceil();
        let bounds = [self.found, self.fails_at];
        let points = self
            .points
            .iter()
            .filter(|point| bounds.contains(&Some(point.value)));
        let fewest = points.map(|point| point.judged.requests).min()?;
        ((fewest as f64) < needed).then_some((fewest, needed))
    }

    /// Returns the rate at which requests fell due at the found point.
    pub(crate) fn due_rate_found(&self) -> Option<f64> {
        let value = self.found?;
        let point = self.points.iter().find(|point| point.value == value)?;
        point.judged.due_per_s
    }

    /// Returns the largest relative deviation of the drawn from the nominal rates, of the points around the
    /// result; `None` if no rate was drawn.
    pub(crate) fn draw_deviation(&self) -> Option<f64> {
        let bounds = [self.found, self.fails_at];
        let points = self
            .points
            .iter()
            .filter(|point| bounds.contains(&Some(point.value)));
        let apart = |point: &Point| Some((point.judged.due_per_s? / point.value - 1.0).abs());
        points.filter_map(apart).reduce(f64::max)
    }

    /// Describes the point that did not reach its concurrency, and the fix.
    fn describe_not_reached(&self) -> String {
        let short = |point: &Point| Some((point.judged.peak_concurrency?, point.value));
        let (peak, value) = self.points.iter().rev().find_map(short).unwrap_or_default();
        format!(
            "at most {peak} requests of {value} were under way at once: raise the number of prompts, or lower the highest {}",
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
            "at {value} {unit} {}: the server had gone, or took no connections, which says nothing of what it can do",
            point.describe_failures()?
        ))
    }

    /// Describes the result in one sentence.
    pub fn describe(&self) -> String {
        let (name, unit) = (self.by.name(), self.by.unit());
        let target = format_percent(self.target);
        let Some((found_value, attainment)) = self.found.zip(self.attainment) else {
            return self.describe_nothing_found();
        };
        let due = match self.due_rate_found() {
            Some(due) if (due / found_value - 1.0).abs() > 0.005 => format!(" ({due:.2} {unit} fell due)"),
            _ => String::new(),
        };
        let at = format!(
            "the highest {name} that holds {target} attainment is {found_value} {unit}{due}, with {}",
            format_percent(attainment)
        );
        let coarse = match (self.fails_at, self.draw_deviation()) {
            (Some(fails_at), Some(error)) if error > fails_at / found_value - 1.0 => format!(
                ", and the arrivals as they were drawn differ from these rates by up to {}, more than the two lie apart: longer \
                 points tell them apart",
                format_percent((error * 1000.0).round() / 1000.0)
            ),
            _ => String::new(),
        };
        let fails = self.fails_at.map_or_else(String::new, |value| {
            let failed = self
                .describe_failed_above()
                .map_or_else(String::new, |failed| format!(", where {failed}"));
            format!("; {value} {unit} does not hold{failed}{coarse}")
        });
        match self.ending {
            SearchStopReason::Bracketed | SearchStopReason::NoneHeld => format!("{at}{fails}"),
            SearchStopReason::AllHeld => {
                format!("{at}; that is the highest that was allowed, and the bound is not bracketed")
            }
            SearchStopReason::OutOfPoints
            | SearchStopReason::Stopped
            | SearchStopReason::CacheWarm
            | SearchStopReason::NotReached
            | SearchStopReason::OutOfPrompts
            | SearchStopReason::Unanswered => {
                let why = match self.ending {
                    SearchStopReason::Stopped => "the search was stopped".to_owned(),
                    SearchStopReason::CacheWarm => {
                        "the prompts of the next point were in the engine's cache, which ended the search"
                            .to_owned()
                    }
                    SearchStopReason::NotReached => format!("at the next point {}", self.describe_not_reached()),
                    SearchStopReason::OutOfPrompts => {
                        "the prompts of the next point ran out before its time was over, which ended the search: raise their number"
                            .to_owned()
                    }
                    SearchStopReason::Unanswered => self.describe_unanswered().unwrap_or_default(),
                    _ => "the points ran out".to_owned(),
                };
                let open = match self.fails_at {
                    Some(_) => "the bound is known less well than asked for",
                    None => "the bound is not bracketed",
                };
                format!("{at}{fails}; {why}, and {open}")
            }
        }
    }

    fn describe_nothing_found(&self) -> String {
        let (name, unit) = (self.by.name(), self.by.unit());
        let target = format_percent(self.target);
        match self.points.first().map(|point| point.value) {
            Some(lowest) if self.ending == SearchStopReason::OutOfPrompts => format!(
                "no {name} was found: the prompts of the first point, {lowest} {unit}, ran out before its time was over; raise their \
                 number"
            ),
            Some(lowest) if self.ending == SearchStopReason::CacheWarm => format!(
                "no {name} was found: the prompts of the first point, {lowest} {unit}, were in the engine's cache"
            ),
            Some(lowest) if self.ending == SearchStopReason::NotReached => {
                format!(
                    "no {name} was found: at {lowest} {unit} {}",
                    self.describe_not_reached()
                )
            }
            Some(_) if self.ending == SearchStopReason::Unanswered => {
                format!(
                    "no {name} was found: {}",
                    self.describe_unanswered().unwrap_or_default()
                )
            }
            Some(lowest) => format!(
                "no {name} was found that holds {target} attainment: already {lowest} {unit} does not; the bound lies below \
                 and is not bracketed"
            ),
            None => format!("no {name} was measured"),
        }
    }
}

fn format_percent(share: f64) -> String {
    let text = format!("{:.2}", share * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}
