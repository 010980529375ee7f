//! The search for the highest rate or concurrency at which enough requests meet the SLO. Does not choose
//! points.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::units::{HumanDuration, RequestRate};
use crate::config::arrival::Arrival;

/// What a search varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SearchVariable {
    /// The search varies requests per second.
    Rate,
    /// Maximum number of requests in flight.
    Concurrency,
}

impl SearchVariable {
    /// The name in YAML.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Concurrency => "concurrency",
        }
    }

    /// The unit of its values, for users.
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Rate => "req/s",
            Self::Concurrency => "at once",
        }
    }
}

/// A search for the highest rate or concurrency that meets the SLO. It doubles the value from `from` until a
/// point fails, then halves the interval until it is narrow enough.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Search {
    /// What is varied: `rate` or `concurrency`.
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
    /// Share by which the lowest failing value may exceed the highest passing one when the search ends; default
    /// 0.05. For a concurrency the search ends at the latest when they differ by 1.
    #[serde(default = "default_resolution")]
    pub(crate) resolution: f64,
    /// Maximum number of measured points; default 24.
    #[serde(default = "default_points")]
    pub(crate) points: u32,
    /// Number of requests per point; default: all prompts of the scenario.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) prompts: Option<u32>,
    /// Time that a point sends requests, instead of `prompts`.
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

impl Search {
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
        }
        arrival
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
                "`from` {from} and `to` {to} are not a range of a {name}; `from` must be above 0, and `to` at least `from`"
            ));
        }
        if *by == SearchVariable::Concurrency && !is_whole {
            return Some(format!(
                "`from` {from} and `to` {to} are not a range of a concurrency; write whole numbers"
            ));
        }
        if !(self.target > 0.0 && self.target <= 1.0) {
            return Some(format!(
                "`target` is {}; write a share above 0 and at most 1",
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
        (self.prompts.is_some() && self.duration.is_some())
            .then(|| "both `prompts` and `duration` limit a point; remove one of them".to_owned())
    }
}

impl std::fmt::Display for Search {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { by, from, to, .. } = self;
        let percent = self.target * 100.0;
        write!(
            f,
            "search for the highest {} from {from} to {to} at {percent} % attainment",
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
            "search for the highest rate from 1 to 1024 at 99 % attainment"
        );
    }

    #[test]
    fn a_search_that_cannot_be_says_why() {
        let usual = || Search::new(SearchVariable::Concurrency);
        for (search, why) in [
            (Search { from: 0.0, ..usual() }, "are not a range"),
            (
                Search {
                    from: 8.0,
                    to: 4.0,
                    ..usual()
                },
                "are not a range",
            ),
            (
                Search {
                    to: f64::NAN,
                    ..usual()
                },
                "are not a range",
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
