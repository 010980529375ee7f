//! The arrival of requests: rate, its changes, the distribution of gaps, and the limit of concurrent
//! requests. Does not draw gaps.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::base::units::{HumanDuration, RequestRate};

/// Shape of gamma-distributed gaps: 1 is Poisson, below 1 is burstier, above 1 is more even.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(try_from = "f64", into = "f64")]
#[cfg_attr(test, schemars(extend("exclusiveMinimum" = 0)))]
pub(crate) struct Burstiness(f64);

impl Burstiness {
    /// Returns a burstiness if `shape` is finite and above zero.
    pub(crate) fn new(shape: f64) -> Option<Self> {
        (shape > 0.0 && shape.is_finite()).then_some(Self(shape))
    }

    /// The shape parameter of the gamma distribution.
    pub(crate) const fn shape(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Burstiness {
    type Error = String;

    fn try_from(shape: f64) -> Result<Self, String> {
        Self::new(shape)
            .ok_or_else(|| format!("`{shape}` is not a burstiness; write a number above 0 (1 is Poisson)"))
    }
}

impl From<Burstiness> for f64 {
    fn from(burstiness: Burstiness) -> Self {
        burstiness.0
    }
}

/// Distribution of the gaps between requests around their mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum ArrivalProcess {
    /// Exponential gaps: requests arrive independently of each other, as from many users.
    #[default]
    Poisson,
    /// Equal gaps between requests.
    Constant,
    /// Gamma-distributed gaps, burstier or more even than Poisson.
    Gamma {
        /// The shape of the distribution: 1 is Poisson, below 1 is burstier, above 1 is more even.
        burstiness: Burstiness,
    },
}

/// Curve of a ramp from one rate to the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RampCurve {
    /// The rate grows by the same amount every second.
    #[default]
    Linear,
    /// The rate grows by the same factor every second.
    Exponential,
}

impl RampCurve {
    /// The name in YAML.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Exponential => "exponential",
        }
    }
}

/// A rate that increases or decreases steadily with time.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Ramp {
    /// Requests per second at the beginning.
    pub(crate) from: RequestRate,
    /// Requests per second at the end.
    pub(crate) to: RequestRate,
    /// Curve of the ramp; default `linear`.
    #[serde(default)]
    pub(crate) curve: RampCurve,
    /// Duration of the ramp, after which the rate stays at `to`; default: the whole measurement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) over: Option<HumanDuration>,
}

impl Ramp {
    /// The mean rate during the ramp, in requests per second.
    pub(crate) fn mean_rate(&self) -> f64 {
        let (from, to) = (self.from.per_second(), self.to.per_second());
        match self.curve {
            RampCurve::Exponential if from != to => (to - from) / (to / from).ln(),
            _ => f64::midpoint(from, to),
        }
    }

    /// Mean number of requests that fall due within `seconds`; `None` if the duration of the ramp is unknown.
    fn expected_requests(&self, seconds: f64) -> Option<f64> {
        let (from, to) = (self.from.per_second(), self.to.per_second());
        let over = self.over?.duration().as_secs_f64();
        let on_it = seconds.min(over);
        let on_ramp = match self.curve {
            RampCurve::Exponential if from != to => {
                let growth = (to / from).ln() / over;
                from * (growth * on_it).exp_m1() / growth
            }
            _ => from * on_it + (to - from) / over * on_it * on_it / 2.0,
        };
        Some(on_ramp + to * (seconds - on_it))
    }
}

/// A constant rate for some time.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Stage {
    /// Requests per second, above zero.
    pub(crate) rate: RequestRate,
    /// Duration of the stage.
    pub(crate) duration: HumanDuration,
}

/// How the rate changes.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RateProfile {
    /// From one rate to another.
    Ramp(Ramp),
    /// Rates one after another. No request falls due after the last stage.
    Stages(Vec<Stage>),
}

impl RateProfile {
    /// The name that is printed in place of a single rate.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Ramp(_) => "ramp",
            Self::Stages(_) => "stages",
        }
    }

    /// Mean number of requests of the stages; `None` for a ramp, which extends over all prompts.
    pub(crate) fn expected_requests(&self) -> Option<f64> {
        match self {
            Self::Ramp(_) => None,
            Self::Stages(stages) => Some(
                stages
                    .iter()
                    .map(|stage| stage.rate.per_second() * stage.duration.duration().as_secs_f64())
                    .sum(),
            ),
        }
    }

    /// Describes why the pace is impossible with this number of prompts; `None` if it is possible.
    pub(crate) fn find_error(&self, prompts: u32) -> Option<String> {
        const FINITE: &str = "the rates of a ramp or stage must be finite; write requests per second";
        match self {
            Self::Ramp(ramp) if ramp.from.is_infinite() || ramp.to.is_infinite() => Some(FINITE.to_owned()),
            Self::Ramp(ramp) if ramp.over.is_some_and(|over| over.duration().is_zero()) => {
                Some("a ramp must take longer than 0s".to_owned())
            }
            Self::Ramp(_) => None,
            Self::Stages(stages) if stages.is_empty() => {
                Some("`stages` is empty; write at least one stage".to_owned())
            }
            Self::Stages(stages) if stages.iter().any(|stage| stage.rate.is_infinite()) => {
                Some(FINITE.to_owned())
            }
            Self::Stages(stages) if stages.iter().any(|stage| stage.duration.duration().is_zero()) => {
                Some("a stage must be longer than 0s".to_owned())
            }
            Self::Stages(_) => {
                let needed = self.expected_requests().unwrap_or(0.0);
                (needed > f64::from(prompts)).then(|| {
                    format!(
                        "the stages need {} requests, but there are {prompts} prompts",
                        needed.ceil()
                    )
                })
            }
        }
    }
}

impl std::fmt::Display for RateProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ramp(ramp) => {
                write!(f, "{} ramp from {} to {}", ramp.curve.name(), ramp.from, ramp.to)?;
                ramp.over.map_or(Ok(()), |over| write!(f, " over {over}"))
            }
            Self::Stages(stages) => {
                f.write_str("stages ")?;
                for (at, stage) in stages.iter().enumerate() {
                    let comma = if at > 0 { ", " } else { "" };
                    write!(f, "{comma}{} for {}", stage.rate, stage.duration)?;
                }
                Ok(())
            }
        }
    }
}

/// When requests are sent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub(crate) struct Arrival {
    /// Rate at which requests fall due, independent of the engine; `inf`: all at once, or according to
    /// `pace`.
    pub(crate) rate: RequestRate,
    /// How the rate changes; `rate` is then infinite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pace: Option<RateProfile>,
    /// Distribution of the gaps around their mean; without effect at an infinite rate.
    #[serde(default)]
    pub(crate) spacing: ArrivalProcess,
    /// Largest number of concurrent requests; unlimited if absent.
    pub(crate) concurrency: Option<NonZeroU32>,
}

impl Arrival {
    /// The rate that `vllm bench serve` applies to one of `count` requests, per second: a ramp grows with the
    /// number of requests, not with time.
    pub(crate) fn rate_of_request(&self, row: usize, count: usize) -> f64 {
        let Some(RateProfile::Ramp(ramp)) = &self.pace else {
            return self.rate.per_second();
        };
        let (from, to) = (ramp.from.per_second(), ramp.to.per_second());
        let progress = row as f64 / (count.max(2) - 1) as f64;
        match ramp.curve {
            RampCurve::Linear => from + (to - from) * progress,
            RampCurve::Exponential => from * (to / from).powf(progress),
        }
    }

    /// Whether requests fall due at a rate, and not all at once or as slots become free.
    pub(crate) fn is_paced(&self) -> bool {
        self.pace.is_some() || !self.rate.is_infinite()
    }

    /// Time during which requests fall due: until the end of the stages or `duration`, whichever is earlier.
    /// `None` if neither is set.
    pub(crate) fn sending_window(&self, duration: Option<HumanDuration>) -> Option<Duration> {
        let stages = match &self.pace {
            Some(RateProfile::Stages(stages)) => {
                Some(stages.iter().map(|stage| stage.duration.duration()).sum())
            }
            _ => None,
        };
        let duration = duration.map(HumanDuration::duration);
        [stages, duration].into_iter().flatten().min()
    }

    /// Number of prompts that suffice: the expected number plus four standard deviations, which about one of
    /// 30 000 draws exceeds. `None` if requests have no due times of their own or no end.
    pub(crate) fn sufficient_prompts(&self, duration: Option<HumanDuration>) -> Option<u32> {
        let expected = self.expected_requests(duration)?;
        let spread = match self.spacing {
            ArrivalProcess::Poisson => 1.0,
            ArrivalProcess::Constant => 0.0,
            ArrivalProcess::Gamma { burstiness } => 1.0 / burstiness.shape(),
        };
        Some((expected + 4.0 * (expected * spread).sqrt()).ceil() as u32)
    }

    /// Mean number of requests that fall due in total; `None` if requests have no due times of their own or
    /// no end.
    pub(crate) fn expected_requests(&self, duration: Option<HumanDuration>) -> Option<f64> {
        let window = self.sending_window(duration)?.as_secs_f64();
        match &self.pace {
            Some(RateProfile::Ramp(ramp)) => ramp.expected_requests(window),
            Some(RateProfile::Stages(stages)) => {
                let mut remaining = window;
                let in_stage = |stage: &Stage| {
                    let lasts = stage.duration.duration().as_secs_f64().min(remaining);
                    remaining -= lasts;
                    stage.rate.per_second() * lasts
                };
                Some(stages.iter().map(in_stage).sum())
            }
            None if self.rate.is_infinite() => None,
            None => Some(self.rate.per_second() * window),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_reads_what_it_writes() {
        for text in [
            r#"{"rate":"inf","spacing":"poisson","concurrency":null}"#,
            r#"{"rate":"inf","pace":{"ramp":{"from":1.0,"to":8.0,"curve":"exponential"}},"spacing":"poisson","concurrency":null}"#,
            r#"{"rate":"inf","pace":{"stages":[{"rate":2.0,"duration":"30s"}]},"spacing":"poisson","concurrency":4}"#,
            r#"{"rate":4.0,"spacing":"constant","concurrency":16}"#,
            r#"{"rate":0.5,"spacing":{"gamma":{"burstiness":2.0}},"concurrency":null}"#,
        ] {
            let arrival: Arrival = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&arrival).unwrap(), text);
        }
    }

    #[test]
    fn a_burstiness_is_finite_and_above_zero() {
        let wrong = serde_json::from_str::<ArrivalProcess>(r#"{"gamma": {"burstiness": 0}}"#).unwrap_err();
        assert!(wrong.to_string().contains("`0` is not a burstiness"), "{wrong}");
        assert_eq!(Burstiness::new(f64::INFINITY), None);
    }

    fn rate(per_second: f64) -> RequestRate {
        RequestRate::new(per_second).unwrap()
    }

    #[test]
    fn a_pace_that_cannot_be_says_why() {
        let ramp = |from: RequestRate, to: RequestRate, over: Option<HumanDuration>| {
            RateProfile::Ramp(Ramp {
                from,
                to,
                curve: RampCurve::Linear,
                over,
            })
        };
        let stages = |stages: &[(f64, u64)]| {
            let stage = |&(per_second, seconds): &(f64, u64)| Stage {
                rate: rate(per_second),
                duration: HumanDuration::from_secs(seconds),
            };
            RateProfile::Stages(stages.iter().map(stage).collect())
        };
        assert_eq!(ramp(rate(1.0), rate(9.0), None).find_error(1), None);
        assert_eq!(stages(&[(2.0, 30), (8.0, 5)]).find_error(100), None);
        for (pace, why) in [
            (ramp(rate(1.0), RequestRate::INFINITE, None), "must be finite"),
            (
                ramp(rate(1.0), rate(2.0), Some(HumanDuration::from_secs(0))),
                "longer than 0s",
            ),
            (stages(&[]), "`stages` is empty"),
            (stages(&[(1.0, 0)]), "longer than 0s"),
            (
                stages(&[(2.0, 30), (8.0, 5)]),
                "100 requests, but there are 99 prompts",
            ),
        ] {
            let said = pace.find_error(99).unwrap();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn enough_prompts_are_four_deviations_above_the_expected_number() {
        let arrival = |text: &str| serde_json::from_str::<Arrival>(text).unwrap();
        let seconds = |seconds: u64| Some(HumanDuration::from_secs(seconds));
        for (text, duration, enough) in [
            // 400 expected, with a standard deviation of 20.
            (r#"{"rate": 20.0, "concurrency": null}"#, seconds(20), Some(480)),
            (
                r#"{"rate": 20.0, "spacing": "constant", "concurrency": null}"#,
                seconds(20),
                Some(400),
            ),
            (
                r#"{"rate": 20.0, "spacing": {"gamma": {"burstiness": 0.25}}, "concurrency": null}"#,
                seconds(20),
                Some(560),
            ),
            (r#"{"rate": 20.0, "concurrency": null}"#, None, None),
            (r#"{"rate": "inf", "concurrency": 4}"#, seconds(20), None),
            // 20/s for 2 s and 40/s for 2 s give 120; cut after 3 s they give 80.
            (
                r#"{"rate": "inf", "pace": {"stages": [{"rate": 20, "duration": "2s"}, {"rate": 40, "duration": "2s"}]},
                   "spacing": "constant", "concurrency": null}"#,
                None,
                Some(120),
            ),
            (
                r#"{"rate": "inf", "pace": {"stages": [{"rate": 20, "duration": "2s"}, {"rate": 40, "duration": "2s"}]},
                   "spacing": "constant", "concurrency": null}"#,
                seconds(3),
                Some(80),
            ),
            // From 5/s to 15/s within 4 s gives 40, of which 15 in the first half; then 15 per second.
            (
                r#"{"rate": "inf", "pace": {"ramp": {"from": 5, "to": 15, "over": "4s"}}, "spacing": "constant", "concurrency": null}"#,
                seconds(2),
                Some(15),
            ),
            (
                r#"{"rate": "inf", "pace": {"ramp": {"from": 5, "to": 15, "over": "4s"}}, "spacing": "constant", "concurrency": null}"#,
                seconds(6),
                Some(70),
            ),
            (
                r#"{"rate": "inf", "pace": {"ramp": {"from": 5, "to": 15}}, "concurrency": null}"#,
                seconds(6),
                None,
            ),
        ] {
            assert_eq!(
                arrival(text).sufficient_prompts(duration),
                enough,
                "{text} {duration:?}"
            );
        }
    }

    #[test]
    fn a_pace_is_told_in_words() {
        let pace: RateProfile =
            serde_json::from_str(r#"{"ramp": {"from": 1, "to": 8, "over": "30s"}}"#).unwrap();
        assert_eq!(pace.to_string(), "linear ramp from 1 to 8 over 30s");
        let pace: RateProfile = serde_json::from_str(
            r#"{"stages": [{"rate": 2, "duration": "30s"}, {"rate": 4.5, "duration": "1m"}]}"#,
        )
        .unwrap();
        assert_eq!(pace.to_string(), "stages 2 for 30s, 4.5 for 1m");
    }

    #[test]
    fn the_schema_bounds_the_burstiness() {
        let schema = serde_json::to_value(schemars::schema_for!(Burstiness)).unwrap();
        assert_eq!(schema["exclusiveMinimum"], 0);
    }
}
