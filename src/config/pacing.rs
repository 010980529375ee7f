//! How sessions and conversations are paced: how many run at a time, and the pauses between their requests.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::base::text::pluralize;
use crate::base::units::HumanDuration;
use crate::config::dataset::PromptForm;
use crate::config::workload::Workload;

/// The pacing of a scenario; by default, turns follow one another at once, and recorded pauses are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Pacing {
    /// Largest number of sessions that have begun and not ended; unlimited if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sessions: Option<NonZeroU32>,
    /// The pause before each turn after the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) think_time: Option<ThinkTime>,
    /// The longest pause; longer ones are cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) max_idle: Option<HumanDuration>,
}

/// The pause between the end of a turn and the next turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ThinkTime {
    /// As recorded in the data set.
    Recorded,
    Fixed(HumanDuration),
    /// Drawn from an exponential distribution.
    Exponential {
        mean: HumanDuration,
    },
    /// Drawn from a lognormal distribution; `sigma` is the standard deviation of the logarithm.
    Lognormal {
        median: HumanDuration,
        sigma: f64,
    },
}

impl Pacing {
    /// Whether nothing is set.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What is set, each in words.
    pub(crate) fn in_words(&self) -> impl Iterator<Item = String> {
        let sessions = self.sessions.map(|sessions| {
            format!(
                "at most {} at once",
                pluralize(sessions.get() as usize, "session", "sessions")
            )
        });
        let pause = self.think_time.map(|pause| format!("think time {pause}"));
        let longest = self
            .max_idle
            .map(|longest| format!("pauses between turns limited to {longest}"));
        [sessions, pause, longest].into_iter().flatten()
    }

    /// Everything that the data set has no use for: the key, and what to do.
    pub(crate) fn find_errors(&self, workload: &Workload) -> Vec<(&'static str, String)> {
        let facts = workload.facts();
        let name = workload.dataset.bench_serving_name();
        let is_session = facts.prompts == PromptForm::Sessions;
        let has_turns = facts.has_turns();
        let mut errors = Vec::new();
        let set = [
            ("sessions", self.sessions.is_some()),
            ("think_time", self.think_time.is_some()),
            ("max_idle", self.max_idle.is_some()),
        ];
        for (key, _) in set.into_iter().filter(|(_, is_set)| *is_set && !has_turns) {
            errors.push((
                key,
                format!(
                    "`{name}` has no sessions and no conversations; remove this setting, or use `agentic-sessions`, \
                     `agentic-trace` or `generated-shared-prefix` with several turns"
                ),
            ));
        }
        if has_turns && !is_session {
            if self.think_time == Some(ThinkTime::Recorded) {
                errors.push((
                    "think_time",
                    format!(
                        "`{name}` has no recorded pauses; write a duration such as `2s` or `exponential:2s`"
                    ),
                ));
            }
            if self.max_idle.is_some() && self.think_time.is_none() {
                errors.push((
                    "max_idle",
                    format!("the turns of `{name}` have no pauses to limit; set a think time, or remove this limit"),
                ));
            }
        }
        errors
    }
}

impl std::str::FromStr for ThinkTime {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let duration = |text: &str| text.parse::<HumanDuration>();
        let mut parts = text.trim().split(':');
        let all = (
            parts.next().unwrap_or_default(),
            parts.next(),
            parts.next(),
            parts.next(),
        );
        match all {
            ("recorded", None, ..) => Ok(Self::Recorded),
            ("exponential", Some(mean), None, _) => Ok(Self::Exponential {
                mean: duration(mean)?,
            }),
            ("lognormal", Some(median), Some(sigma), None) => {
                let sigma = sigma
                    .parse()
                    .ok()
                    .filter(|sigma: &f64| sigma.is_finite() && *sigma >= 0.0);
                Ok(Self::Lognormal {
                    median: duration(median)?,
                    sigma: sigma.ok_or_else(|| {
                        format!("the sigma of `{text}` is not a number of at least 0; write it like `lognormal:2s:0.6`")
                    })?,
                })
            }
            (fixed, None, ..) if fixed.starts_with(|first: char| first.is_ascii_digit() || first == '-') => {
                duration(fixed).map(Self::Fixed)
            }
            _ => Err(format!(
                "`{text}` is not a think time; write `recorded`, a duration such as `2s`, `exponential:MEAN` as in \
                 `exponential:2s`, or `lognormal:MEDIAN:SIGMA` as in `lognormal:2s:0.6`"
            )),
        }
    }
}

impl fmt::Display for ThinkTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recorded => f.write_str("recorded"),
            Self::Fixed(pause) => write!(f, "{pause}"),
            Self::Exponential { mean } => write!(f, "exponential:{mean}"),
            Self::Lognormal { median, sigma } => write!(f, "lognormal:{median}:{sigma}"),
        }
    }
}

impl Serialize for ThinkTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ThinkTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
impl schemars::JsonSchema for ThinkTime {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ThinkTime".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "A pause between turns: `recorded`, `2s`, `exponential:2s` (mean), `lognormal:2s:0.6` (median, sigma).",
            "examples": ["recorded", "2s", "exponential:2s", "lognormal:2s:0.6"]
        })
    }
}

/// Cuts a pause to the longest.
pub(crate) fn capped(pause: Duration, longest: Option<HumanDuration>) -> Duration {
    longest.map_or(pause, |longest| pause.min(longest.duration()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::dataset::DatasetName;

    #[test]
    fn a_think_time_reads_what_it_writes() {
        for text in ["recorded", "1s 500ms", "exponential:2s", "lognormal:2s:0.6", "0s"] {
            assert_eq!(text.parse::<ThinkTime>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_think_time_that_is_none_says_how_to_write_it() {
        for (text, why) in [
            ("", "is not a think time; write `recorded`"),
            ("poisson:2s", "is not a think time"),
            ("exponential", "is not a think time"),
            ("lognormal:2s", "is not a think time"),
            ("lognormal:2s:-1", "sigma"),
            ("lognormal:2s:inf", "sigma"),
            ("2", "has no unit; write `2s`"),
            ("-2s", "is negative"),
            ("exponential:-2s", "is negative"),
        ] {
            let error = text.parse::<ThinkTime>().unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn what_has_no_turns_has_no_pauses() {
        let keys = |pacing: &Pacing, name: DatasetName| -> Vec<&str> {
            let errors = pacing.find_errors(&Workload::new(name));
            errors.into_iter().map(|(key, _)| key).collect()
        };
        let all = Pacing {
            sessions: NonZeroU32::new(2),
            think_time: Some(ThinkTime::Fixed(HumanDuration::from_secs(1))),
            max_idle: Some(HumanDuration::from_secs(1)),
        };
        assert_eq!(
            keys(&all, DatasetName::Sharegpt),
            ["sessions", "think_time", "max_idle"]
        );
        assert_eq!(keys(&all, DatasetName::AgenticTrace), [""; 0]);
        let recorded = Pacing {
            think_time: Some(ThinkTime::Recorded),
            ..Pacing::default()
        };
        assert_eq!(keys(&recorded, DatasetName::AgenticTrace), ["think_time"]);
        assert_eq!(keys(&recorded, DatasetName::AgenticSessions), [""; 0]);
        let only_cap = Pacing {
            think_time: None,
            ..all
        };
        assert_eq!(keys(&only_cap, DatasetName::AgenticTrace), ["max_idle"]);
        assert_eq!(keys(&only_cap, DatasetName::AgenticSessions), [""; 0]);
    }
}
