//! The search for the highest rate or concurrency at which enough requests meet the SLO. Does not choose
//! points.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::base::units::{HumanDuration, RequestRate};
use crate::config::arrival::Arrival;
use crate::config::pacing::Pacing;

/// What a search varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SearchVariable {
    /// The search varies requests per second.
    Rate,
    /// Maximum number of requests in flight.
    Concurrency,
    /// Maximum number of conversations that have begun and not ended.
    Sessions,
}

impl SearchVariable {
    pub(crate) const ALL: [Self; 3] = [Self::Rate, Self::Concurrency, Self::Sessions];

    /// The name for users.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Concurrency => "concurrency",
            Self::Sessions => "number of sessions",
        }
    }

    /// The name in YAML.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            other => other.name(),
        }
    }

    /// The unit of its values, for users.
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Rate => "req/s",
            Self::Concurrency => "at once",
            Self::Sessions => "sessions",
        }
    }
}

/// A tier of an SLO, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub struct Tier(u8);

impl Tier {
    pub(crate) const FIRST: Self = Self(1);
    /// Largest number of tiers.
    pub(crate) const MAX: u8 = 6;

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (1..=Self::MAX).map(Self)
    }

    /// The place among the tiers, from 0.
    pub(crate) const fn index(self) -> usize {
        self.0 as usize - 1
    }
}

impl std::fmt::Display for Tier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A search for the highest rate or concurrency that meets the SLO. It doubles the value from `from` until a
/// point fails, then probes just below and just above where the capacity seems to lie. A point ends as soon as its
/// requests show whether the target is met.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    /// What is varied: `rate`, `concurrency`, or `sessions` of a data set of conversations.
    pub(crate) by: SearchVariable,
    /// Lowest value, measured first; default 1.
    #[serde(default = "default_from")]
    pub(crate) from: f64,
    /// Highest value; default 1024.
    #[serde(default = "default_to")]
    pub(crate) to: f64,
    /// Share of all requests that must meet the SLO; failed requests count as misses. Default 0.99.
    #[serde(default = "default_target")]
    pub(crate) target: f64,
    /// Share by which the ends of the interval of the capacity may differ; default 0.05. The interval is wider if the
    /// points are too short for that. For a concurrency the search ends at the latest when the ends differ by 1.
    #[serde(default = "default_resolution")]
    pub(crate) resolution: f64,
    /// Maximum number of measured points for each tier of the SLO; default 24.
    #[serde(default = "default_points")]
    pub(crate) points: u32,
    /// Largest number of requests of a point, or of conversations; default: all prompts of the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prompts: Option<u32>,
    /// Longest time that a point sends requests, instead of `prompts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) duration: Option<HumanDuration>,
}

const fn default_from() -> f64 {
    1.0
}

const fn default_to() -> f64 {
    1024.0
}

const fn default_target() -> f64 {
    0.99
}

const fn default_resolution() -> f64 {
    0.05
}

const fn default_points() -> u32 {
    24
}

/// Requests that would miss at the target, of which none is beyond chance for a point that is to show that fewer miss.
const MIN_EXPECTED_MISSES: f64 = 6.8;
/// Requests are judged in multiples of this number, and in twice as many at least.
const JUDGED_STEP: f64 = 32.0;
/// Requests per judged one: those at the start are not.
const STARTED_SHARE: f64 = 8.0 / 7.0;
/// Highest target. No number of requests shows that all of them meet the SLO.
const MAX_TARGET: f64 = 0.9999;

impl Search {
    /// Returns the fewest requests with which a point can show that the target is met.
    pub(crate) fn min_requests(&self) -> u64 {
        let judged = (MIN_EXPECTED_MISSES / (1.0 - self.target) / JUDGED_STEP)
            .ceil()
            .max(2.0)
            * JUDGED_STEP;
        (judged * STARTED_SHARE).ceil() as u64
    }

    /// Describes why no point can show that the target is met.
    fn find_short_point(&self) -> Option<String> {
        let needed = self.min_requests();
        let seconds = self.duration.map(|duration| duration.duration().as_secs_f64());
        let target = self.target * 100.0;
        let (what, needs) = match (self.prompts, seconds, self.by) {
            // A conversation has any number of requests.
            (_, _, SearchVariable::Sessions) => return None,
            (Some(prompts), ..) if u64::from(prompts) < needed => (
                format!("the search sends only {prompts} requests at each load"),
                format!("{needed} requests"),
            ),
            (None, Some(seconds), SearchVariable::Rate) if self.from * seconds < needed as f64 => (
                format!("the search measures for only {seconds} s at {} req/s", self.from),
                format!(
                    "{needed} requests, which take {:.0} s",
                    (needed as f64 / self.from).ceil()
                ),
            ),
            _ => return None,
        };
        Some(format!(
            "{what}, but to show that {target} % of requests meet the SLO, it needs {needs}; allow more requests or time \
             per load, start at a higher value, or lower the target"
        ))
    }

    /// A search with default bounds, target and points.
    pub(crate) const fn new(by: SearchVariable) -> Self {
        Self {
            by,
            from: default_from(),
            to: default_to(),
            target: default_target(),
            resolution: default_resolution(),
            points: default_points(),
            prompts: None,
            duration: None,
        }
    }

    /// The arrival at a value, which must be within the range of a valid search.
    pub(crate) fn arrival_at(&self, base: &Arrival, value: f64) -> Arrival {
        let mut arrival = base.clone();
        match self.by {
            SearchVariable::Rate => arrival.rate = RequestRate::new(value).expect("a range begins above 0"),
            SearchVariable::Concurrency => arrival.concurrency = NonZeroU32::new(value as u32),
            SearchVariable::Sessions => {}
        }
        arrival
    }

    /// How sessions are paced at a value, which must be within the range of a valid search.
    pub(crate) fn pacing_at(&self, base: &Pacing, value: f64) -> Pacing {
        match self.by {
            SearchVariable::Sessions => Pacing {
                sessions: NonZeroU32::new(value as u32),
                ..base.clone()
            },
            SearchVariable::Rate | SearchVariable::Concurrency => base.clone(),
        }
    }

    /// Describes why the search is impossible; `None` if it is possible.
    pub(crate) fn find_error(&self) -> Option<String> {
        let Self { by, from, to, .. } = self;
        let name = by.name();
        // The comparison is false for NaN.
        let is_range = *from > 0.0 && *to >= *from && to.is_finite();
        let is_whole = from.fract() == 0.0 && to.fract() == 0.0 && *to <= f64::from(u32::MAX);
        if !is_range {
            return Some(format!(
                "`from` {from} and `to` {to} are not a valid range for {name}; `from` must be above 0, and `to` at least `from`"
            ));
        }
        if *by != SearchVariable::Rate && !is_whole {
            return Some(format!(
                "`from` {from} and `to` {to} are not a valid range for {name}; `from` and `to` must be whole numbers"
            ));
        }
        if !(self.target > 0.0 && self.target <= MAX_TARGET) {
            return Some(format!(
                "`target` is {}; write a share above 0 and at most {MAX_TARGET}",
                self.target
            ));
        }
        if !(self.resolution > 0.0 && self.resolution <= 1.0) {
            return Some(format!(
                "`resolution` is {}; write a share above 0 and at most 1",
                self.resolution
            ));
        }
        if self.points == 0 || self.prompts == Some(0) {
            return Some("`points` and `prompts` must be at least 1".to_owned());
        }
        if self
            .duration
            .is_some_and(|duration| duration.duration().is_zero())
        {
            return Some("`duration` must be longer than 0s".to_owned());
        }
        if self.prompts.is_some() && self.duration.is_some() {
            return Some(
                "`prompts` and `duration` both limit each load of the search; remove one of them".to_owned(),
            );
        }
        self.find_short_point()
    }
}

impl std::fmt::Display for Search {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { by, from, to, .. } = self;
        let percent = self.target * 100.0;
        write!(
            f,
            "search for the highest {} from {from} to {to} at which {percent} % of requests meet the SLO",
            by.name()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_open_has_a_default() {
        let search: Search = serde_json::from_str(r#"{"by": "rate"}"#).unwrap();
        assert_eq!(search, Search::new(SearchVariable::Rate));
        assert_eq!(search.find_error(), None);
        assert_eq!(
            search.to_string(),
            "search for the highest rate from 1 to 1024 at which 99 % of requests meet the SLO"
        );
    }

    #[test]
    fn a_search_that_cannot_be_says_why() {
        let usual = || Search::new(SearchVariable::Concurrency);
        for (search, why) in [
            (Search { from: 0.0, ..usual() }, "are not a valid range"),
            (
                Search {
                    from: 8.0,
                    to: 4.0,
                    ..usual()
                },
                "are not a valid range",
            ),
            (
                Search {
                    to: f64::NAN,
                    ..usual()
                },
                "are not a valid range",
            ),
            (Search { from: 1.5, ..usual() }, "whole numbers"),
            (
                Search {
                    target: 1.5,
                    ..usual()
                },
                "`target` is 1.5",
            ),
            (
                Search {
                    resolution: 0.0,
                    ..usual()
                },
                "`resolution` is 0",
            ),
            (Search { points: 0, ..usual() }, "must be at least 1"),
            (
                Search {
                    prompts: Some(100),
                    ..usual()
                },
                "the search sends only 100 requests at each load, but to show that 99 % of requests meet the SLO, it needs 805 requests",
            ),
            (
                Search {
                    duration: Some(HumanDuration::from_secs(10)),
                    target: 0.95,
                    ..Search::new(SearchVariable::Rate)
                },
                "the search measures for only 10 s at 1 req/s, but to show that 95 % of requests meet the SLO, it needs 183 requests, which take 183 s",
            ),
            (
                Search {
                    target: 1.0,
                    ..usual()
                },
                "`target` is 1; write a share above 0 and at most 0.9999",
            ),
            (
                Search {
                    duration: Some(HumanDuration::from_secs(0)),
                    ..usual()
                },
                "longer than 0s",
            ),
            (
                Search {
                    prompts: Some(10),
                    duration: Some(HumanDuration::from_secs(1)),
                    ..usual()
                },
                "remove one of them",
            ),
        ] {
            let said = search.find_error().unwrap();
            assert!(said.contains(why), "{said}");
        }
    }
}
