//! The LoRA adapters of requests and their distribution. Does not draw.

use serde::{Deserialize, Serialize};

/// LoRA adapters, and how they are distributed over requests.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Lora {
    /// Names of the adapters in the engine. The warm-up uses the first.
    pub(crate) names: Vec<String>,
    /// How adapters are assigned to requests; default `uniform`.
    #[serde(default)]
    #[serde(rename = "distribution", alias = "dealt")]
    pub(crate) distribution: AdapterDistribution,
}

/// How adapters are assigned to requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum AdapterDistribution {
    /// Drawn with equal probability.
    #[default]
    Uniform,
    /// In turn, beginning with the first.
    Distinct,
    /// Drawn; each adapter is `alpha` times as likely as the next.
    Skewed {
        /// Ratio of the probabilities of neighbouring adapters; above 1.
        alpha: f64,
    },
}

impl Lora {
    /// Describes an invalid setting and its fix; `None` if it is valid.
    pub(crate) fn find_error(&self) -> Option<String> {
        if self.names.is_empty() || self.names.iter().any(String::is_empty) {
            return Some("there is no adapter, or one with an empty name; write at least one name, such as `names: [a, b]`".to_owned());
        }
        if self.names.len() < 2 && self.distribution != AdapterDistribution::Uniform {
            return Some(
                "there is only one adapter; name at least two, or use the distribution `uniform`".to_owned(),
            );
        }
        match self.distribution {
            AdapterDistribution::Skewed { alpha } if !(alpha.is_finite() && alpha > 1.0) => {
                Some(format!("`alpha` is {alpha}; write a number above 1"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deal_that_cannot_be_made_is_objected_to() {
        let lora = |names: &[&str], dealt| Lora {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            distribution: dealt,
        };
        assert_eq!(lora(&["a"], AdapterDistribution::Uniform).find_error(), None);
        assert_eq!(
            lora(&["a", "b"], AdapterDistribution::Skewed { alpha: 1.5 }).find_error(),
            None
        );
        for (wrong, why) in [
            (lora(&[], AdapterDistribution::Uniform), "no adapter"),
            (lora(&["a"], AdapterDistribution::Distinct), "only one"),
            (
                lora(&["a", "b"], AdapterDistribution::Skewed { alpha: 1.0 }),
                "above 1",
            ),
        ] {
            assert!(wrong.find_error().unwrap().contains(why));
        }
    }
}
