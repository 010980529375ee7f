//! How often each cell is measured, and the stopping rule for extra starts. Does not decide anything.

use std::fmt;
use std::num::NonZeroU32;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::base::units::HumanDuration;
use crate::config::yaml::Spanned;

/// Number and order of starts and measurements of each cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Repeats {
    /// Number of starts of each engine; default 1, with `target_ci` at least 5.
    #[serde(default = "default_count")]
    pub(crate) starts: NonZeroU32,
    /// Number of measurements of each cell on one start; default 1.
    #[serde(default = "default_count")]
    pub(crate) per_start: NonZeroU32,
    /// Order of several starts. `alternate` (the default) alternates the engines and versions of one model and
    /// load, A B B A, and then continues with the next model, so that drift of the host affects all equally.
    /// `blocks` makes all starts of one engine before the first of the next.
    #[serde(default)]
    pub(crate) order: Option<Spanned<StartOrder>>,
    /// Earlier form of `order`: `true` is `alternate`, `false` is `blocks`.
    #[serde(default)]
    pub(crate) interleave: Option<Spanned<bool>>,
    /// Adds starts to a cell until its 95 % confidence interval reaches at most this share to either side, such
    /// as `2%`. It is the interval of the gating metric: the result of a search, otherwise output throughput,
    /// or median E2E if requests arrive at a rate. Launches alternate. The number of added starts is estimated
    /// from the first ones (Stein's two-stage procedure), of which there are at least five: fewer `starts` are
    /// raised to five.
    #[serde(default)]
    #[serde(rename = "target_ci")]
    pub(crate) target_ci: Option<Spanned<HalfWidth>>,
    /// Maximum number of starts of a cell with `target_ci`; default 20, or `starts` if that is more.
    #[serde(default)]
    #[serde(rename = "max_starts")]
    pub(crate) max_starts: Option<Spanned<NonZeroU32>>,
    /// Limit of GPU time for all starts of the run, such as `90m`: no start is added for `target_ci` that would
    /// exceed it. GPU time is the time from the start command to the engine's end, including loading, times its
    /// GPUs; an engine without GPUs counts as one.
    #[serde(default)]
    pub(crate) budget: Option<Spanned<HumanDuration>>,
}

impl Default for Repeats {
    fn default() -> Self {
        Self {
            starts: NonZeroU32::MIN,
            per_start: NonZeroU32::MIN,
            order: None,
            interleave: None,
            target_ci: None,
            max_starts: None,
            budget: None,
        }
    }
}

/// Order of the starts, if engines are started several times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StartOrder {
    /// Engines and versions of one model and load alternate, forward, then backward; then the next model
    /// follows.
    #[default]
    Alternate,
    /// All starts of one engine, then all of the next.
    Blocks,
}

impl StartOrder {
    /// The name in YAML.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Alternate => "alternate",
            Self::Blocks => "blocks",
        }
    }
}

const fn default_count() -> NonZeroU32 {
    NonZeroU32::MIN
}

/// Largest number of starts of a cell by default.
const DEFAULT_MAX_STARTS: u32 = 20;
/// Fewest starts from which the number of further starts can be estimated.
const MIN_FIRST_STAGE: NonZeroU32 = NonZeroU32::new(5).expect("it is not zero");

impl Repeats {
    /// Number of planned starts of each launch: as written, and with `target_ci` at least five.
    pub(crate) fn planned_starts(&self) -> NonZeroU32 {
        match self.target_ci {
            Some(_) => self.starts.max(MIN_FIRST_STAGE),
            None => self.starts,
        }
    }

    /// The order of starts.
    pub(crate) fn order(&self) -> StartOrder {
        let older = match self.interleave.as_ref().map(|interleave| interleave.value) {
            Some(false) => StartOrder::Blocks,
            Some(true) | None => StartOrder::Alternate,
        };
        self.order.as_ref().map_or(older, |order| order.value)
    }

    /// The stopping rule for extra starts, if `target_ci` is set.
    pub(crate) fn stop_rule(&self) -> Option<StopRule> {
        let max_starts = self.max_starts.as_ref().map(|max_starts| max_starts.value.get());
        Some(StopRule {
            half_width: self.target_ci.as_ref()?.value,
            most: max_starts.unwrap_or(DEFAULT_MAX_STARTS.max(self.starts.get())),
            stage: self.planned_starts().get(),
            raised_from: (self.starts < MIN_FIRST_STAGE).then_some(self.starts.get()),
            budget: self.budget.as_ref().map(|budget| budget.value),
        })
    }
}

/// Stopping rule: no cell is started again once its metrics are precise enough or a limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StopRule {
    /// Target for half the width of the 95 % interval of each gating metric.
    pub(crate) half_width: HalfWidth,
    /// Largest number of starts of a cell.
    pub(crate) most: u32,
    /// Number of starts that are planned before the rule is applied; the estimate of further starts uses only
    /// these. 0 in older plans.
    #[serde(default)]
    pub(crate) stage: u32,
    /// Number of starts in the matrix, if it was raised to allow an estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) raised_from: Option<u32>,
    /// Limit for the time of all starts of the run together, as time of one GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) budget: Option<HumanDuration>,
}

impl fmt::Display for StopRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { most, half_width, .. } = self;
        match self.budget {
            Some(budget) => write!(
                f,
                "up to {most} starts until the confidence interval is within {half_width}, \
                 using at most {budget} of GPU time"
            ),
            None => write!(
                f,
                "up to {most} starts until the confidence interval is within {half_width}"
            ),
        }
    }
}

/// Half the width of an interval, as a share of its centre, between 0 and 1 exclusive. Users write `2%` or
/// `0.02`; serialized as a number.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(crate) struct HalfWidth(f64);

impl HalfWidth {
    /// Returns a half-width if `share` is above 0 and below 1.
    pub(crate) fn new(share: f64) -> Option<Self> {
        (share > 0.0 && share < 1.0).then_some(Self(share))
    }

    pub(crate) const fn share(self) -> f64 {
        self.0
    }
}

impl fmt::Display for HalfWidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rounding is needed: 0.07 × 100 is 7.000000000000001.
        write!(f, "±{} %", (self.0 * 1e8).round() / 1e6)
    }
}

impl Serialize for HalfWidth {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for HalfWidth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HalfWidthVisitor;
        impl de::Visitor<'_> for HalfWidthVisitor {
            type Value = HalfWidth;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a share above 0% and below 100%, such as `2%` or `0.02`")
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<HalfWidth, E> {
                HalfWidth::new(value).ok_or_else(|| invalid_half_width(&value.to_string()))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<HalfWidth, E> {
                self.visit_f64(value as f64)
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<HalfWidth, E> {
                self.visit_f64(value as f64)
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<HalfWidth, E> {
                let text = value.trim();
                let share = match text.strip_suffix('%') {
                    Some(percent) => percent.trim().parse().map(|percent: f64| percent / 100.0),
                    None => text.parse(),
                };
                share
                    .ok()
                    .and_then(HalfWidth::new)
                    .ok_or_else(|| invalid_half_width(value))
            }
        }
        deserializer.deserialize_any(HalfWidthVisitor)
    }
}

fn invalid_half_width<E: de::Error>(text: &str) -> E {
    E::custom(format!(
        "`{text}` is not a valid half-width of an interval; write a share above 0% and below 100%, such as `2%` or `0.02`"
    ))
}

#[cfg(test)]
impl JsonSchema for HalfWidth {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HalfWidth".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "oneOf": [
                { "type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1 },
                { "type": "string", "pattern": "^[0-9.]+ ?%$" }
            ],
            "description": "A share above 0% and below 100%, such as `2%` or `0.02`.",
            "examples": ["2%", 0.02]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_width_is_read_in_percent_or_as_a_share_and_told_in_percent() {
        for (written, actual) in [
            ("\"2%\"", "±2 %"),
            ("0.02", "±2 %"),
            ("\"7 %\"", "±7 %"),
            ("0.0125", "±1.25 %"),
        ] {
            let half: HalfWidth = serde_json::from_str(written).unwrap();
            assert_eq!(half.to_string(), actual);
            let again: HalfWidth = serde_json::from_str(&serde_json::to_string(&half).unwrap()).unwrap();
            assert_eq!(again, half);
        }
        for wrong in ["0", "1", "\"200%\"", "-0.1", "\"two\"", "\"nan\""] {
            assert!(serde_json::from_str::<HalfWidth>(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_most_starts_are_never_fewer_than_those_that_are_planned() {
        let repeats = |starts: u32, most: Option<u32>| Repeats {
            starts: NonZeroU32::new(starts).unwrap(),
            target_ci: Some(HalfWidth::new(0.02).unwrap().into()),
            max_starts: most.map(|most| NonZeroU32::new(most).unwrap().into()),
            ..Repeats::default()
        };
        assert_eq!(repeats(3, None).stop_rule().unwrap().most, 20);
        assert_eq!(repeats(30, None).stop_rule().unwrap().most, 30);
        assert_eq!(
            repeats(3, Some(12)).stop_rule().unwrap().to_string(),
            "up to 12 starts until the confidence interval is within ±2 %"
        );
        assert_eq!(Repeats::default().stop_rule(), None);
    }

    #[test]
    fn fewer_than_five_first_starts_are_raised_where_they_decide_how_many_follow() {
        let repeats = |starts: u32, until: Option<f64>| Repeats {
            starts: NonZeroU32::new(starts).unwrap(),
            target_ci: until.and_then(HalfWidth::new).map(Into::into),
            ..Repeats::default()
        };
        for (starts, planned, raised_from) in [(1, 5, Some(1)), (3, 5, Some(3)), (5, 5, None), (8, 8, None)] {
            let repeats = repeats(starts, Some(0.02));
            let until = repeats.stop_rule().unwrap();
            assert_eq!(repeats.planned_starts().get(), planned);
            assert_eq!((until.stage, until.raised_from), (planned, raised_from));
        }
        assert_eq!(repeats(3, None).planned_starts().get(), 3);
    }
}
