//! `tune:`: what `matrix tune` varies, what it maximises, and what it may spend.

mod space;
mod trials;

use std::fmt;
use std::str::FromStr;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

pub(crate) use space::{DefaultSettings, KnobChange, SetByRecipe, TuneSpace, TunedKnob, knobs};
pub(crate) use trials::{SET_AXIS, TrialSet, TunedCell, flag_name, is_flag};

use crate::config::yaml::{Spanned, nearest_name};

/// What `matrix tune` does with this matrix. Its flags take precedence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TuneEntry {
    /// The engine whose flags are tuned, by its name in this matrix; needed if the matrix has several.
    pub(crate) engine: Option<Spanned<String>>,
    /// The scenario whose load is measured; needed if the matrix has several.
    pub(crate) scenario: Option<Spanned<String>>,
    /// What is maximised: `capacity` (the highest load that a scenario with `search` finds within its SLO),
    /// `throughput` (output tokens per second), `energy` (output tokens per joule) or `cost` (output tokens per
    /// GPU-hour, shown as a price). Default: `capacity` for a scenario with `search`, otherwise `throughput`.
    pub(crate) objective: Option<Objective>,
    /// Limit for trials and confirmation together, such as `24 starts` or `120 gpu-min`; default `24 starts`.
    pub(crate) budget: Option<TuneBudget>,
    /// Price of a GPU for an hour, in any currency; `objective: cost` needs it.
    pub(crate) gpu_hour_price: Option<Spanned<f64>>,
    /// Settings and their values, such as `--max-num-seqs: [64, 128, 256]`; replaces the space of the recipe. A flag has
    /// values, or `[on, off]` if it takes none. `default` stands for the flag as it is without a change, which is always a
    /// value. `tp` and `precision` have values, and `env` a map such as `{ VLLM_ATTENTION_BACKEND: [A, B] }`. Any other
    /// name is a choice between arguments, such as `prefill: [--enable-chunked-prefill, --no-enable-chunked-prefill]`.
    pub(crate) space: Option<Spanned<TuneSpace>>,
}

/// What a search maximises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Objective {
    /// The highest load within an SLO.
    Capacity,
    /// Output tokens per second.
    Throughput,
    /// Output tokens per joule, within the SLO if there is one.
    Energy,
    /// Output tokens per GPU-hour, within the SLO if there is one.
    Cost,
}

impl Objective {
    pub(crate) const ALL: [Self; 4] = [Self::Capacity, Self::Throughput, Self::Energy, Self::Cost];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Throughput => "throughput",
            Self::Energy => "energy",
            Self::Cost => "cost",
        }
    }
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = Self::ALL.map(Self::name);
        Self::ALL
            .into_iter()
            .find(|objective| objective.name() == text)
            .ok_or_else(|| match nearest_name(text, names) {
                Some(near) => format!("`{text}` is not an objective; did you mean `{near}`?"),
                None => format!("`{text}` is not an objective; known: {}", names.join(", ")),
            })
    }
}

/// Limit for all starts of a search and its confirmation together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TuneBudget {
    /// Number of starts of the engine.
    Starts(u32),
    /// Minutes from the start command to the engine's end, times its GPUs; an engine without GPUs counts as one.
    GpuMinutes(f64),
}

impl Default for TuneBudget {
    fn default() -> Self {
        Self::Starts(24)
    }
}

impl FromStr for TuneBudget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a budget; write `24 starts`, `120 gpu-min` or `2 gpu-h`");
        let at = text
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .ok_or_else(wrong)?;
        let (number, unit) = text.split_at(at);
        let amount: f64 = number.parse().map_err(|_| wrong())?;
        let is_count = amount.fract() == 0.0 && (1.0..=100_000.0).contains(&amount);
        match unit.trim() {
            "start" | "starts" if is_count => Ok(Self::Starts(amount as u32)),
            "gpu-min" if amount > 0.0 => Ok(Self::GpuMinutes(amount)),
            "gpu-h" if amount > 0.0 => Ok(Self::GpuMinutes(60.0 * amount)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for TuneBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starts(starts) => write!(f, "{starts} starts"),
            Self::GpuMinutes(minutes) => write!(f, "{minutes} gpu-min"),
        }
    }
}

impl Serialize for TuneBudget {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TuneBudget {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
impl JsonSchema for TuneBudget {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TuneBudget".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "Number of starts or time of a GPU: `24 starts`, `120 gpu-min`, `2 gpu-h`.",
            "examples": ["24 starts", "120 gpu-min"]
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_a_number_of_starts_or_the_time_of_a_gpu() {
        for (text, budget) in [
            ("24 starts", TuneBudget::Starts(24)),
            ("1 start", TuneBudget::Starts(1)),
            ("120 gpu-min", TuneBudget::GpuMinutes(120.0)),
            ("0.5gpu-h", TuneBudget::GpuMinutes(30.0)),
        ] {
            assert_eq!(text.parse(), Ok(budget), "{text}");
        }
        for text in [
            "24",
            "starts",
            "0 starts",
            "1.5 starts",
            "3 h",
            "-1 starts",
            "0 gpu-min",
            "",
        ] {
            let error = text.parse::<TuneBudget>().unwrap_err();
            assert!(error.contains("`24 starts`"), "{text}: {error}");
        }
    }

    #[test]
    fn a_misspelt_objective_is_answered_with_the_nearest() {
        assert_eq!("energy".parse(), Ok(Objective::Energy));
        let error = "throughputs".parse::<Objective>().unwrap_err();
        assert!(error.contains("did you mean `throughput`?"), "{error}");
    }
}
