//! When requests are sent: the rate, how the gaps spread around it, how many may be under way. Draws no gap.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::units::RequestRate;

/// How evenly the gaps of gamma arrivals spread: 1 is Poisson, below 1 is burstier, above 1 is more even.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
#[schemars(extend("exclusiveMinimum" = 0))]
pub struct Burstiness(f64);

impl Burstiness {
    /// A burstiness, if it is finite and above zero.
    pub fn new(shape: f64) -> Option<Self> {
        (shape > 0.0 && shape.is_finite()).then_some(Self(shape))
    }

    /// The shape of the gamma distribution.
    pub const fn shape(self) -> f64 {
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

/// How the gaps between requests spread around their mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Spacing {
    /// Exponential gaps: requests arrive independently of each other, as from many users.
    #[default]
    Poisson,
    /// Every gap is the same.
    Constant,
    /// Gamma-distributed gaps, burstier or more even than Poisson.
    Gamma {
        /// The shape of the distribution: 1 is Poisson, below 1 is burstier, above 1 is more even.
        burstiness: Burstiness,
    },
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Arrival {
    /// Requests per second that fall due, whether or not the engine keeps up; `inf`: all at once.
    pub rate: RequestRate,
    /// How the gaps spread around their mean; without effect at an infinite rate.
    #[serde(default)]
    pub spacing: Spacing,
    /// How many requests may be under way at once; without it, any number.
    pub concurrency: Option<NonZeroU32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arrival_reads_what_it_writes() {
        for text in [
            r#"{"rate":"inf","spacing":"poisson","concurrency":null}"#,
            r#"{"rate":4.0,"spacing":"constant","concurrency":16}"#,
            r#"{"rate":0.5,"spacing":{"gamma":{"burstiness":2.0}},"concurrency":null}"#,
        ] {
            let arrival: Arrival = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&arrival).unwrap(), text);
        }
    }

    #[test]
    fn a_burstiness_is_finite_and_above_zero() {
        let wrong = serde_json::from_str::<Spacing>(r#"{"gamma": {"burstiness": 0}}"#).unwrap_err();
        assert!(wrong.to_string().contains("`0` is not a burstiness"), "{wrong}");
        assert_eq!(Burstiness::new(f64::INFINITY), None);
    }

    #[test]
    fn the_schema_bounds_the_burstiness() {
        let schema = serde_json::to_value(schemars::schema_for!(Burstiness)).unwrap();
        assert_eq!(schema["exclusiveMinimum"], 0);
    }
}
