//! The LoRA adapters of requests and their distribution. Does not draw.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// LoRA adapters, and how requests get one each.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lora {
    /// The adapters' names, as the engine knows them; the warm-up asks for the first.
    pub names: Vec<String>,
    /// How they are dealt.
    #[serde(default)]
    #[serde(rename = "distribution", alias = "dealt")]
    pub distribution: AdapterDistribution,
}

/// How adapters are dealt to requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum AdapterDistribution {
    /// Drawn, each as likely as the other.
    #[default]
    Uniform,
    /// In turn, from the first.
    Distinct,
    /// Drawn, each `alpha` times as likely as the next.
    Skewed {
        /// How many times as likely; above 1.
        alpha: f64,
    },
}

impl Lora {
    /// Describes an invalid setting and its fix; `None` if it is valid.
    pub(crate) fn find_error(&self) -> Option<String> {
        if self.names.is_empty() || self.names.iter().any(String::is_empty) {
            return Some("an adapter has no name; write at least one, such as `names: [a, b]`".to_owned());
        }
        if self.names.len() < 2 && self.distribution != AdapterDistribution::Uniform {
            return Some(
                "there is only one adapter to deal; name at least two, or deal `uniform`".to_owned(),
            );
        }
        match self.distribution {
            AdapterDistribution::Skewed { alpha } if !(alpha.is_finite() && alpha > 1.0) => Some(format!(
                "an `alpha` of {alpha} does not skew; write a number above 1"
            )),
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
            (lora(&[], AdapterDistribution::Uniform), "no name"),
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
