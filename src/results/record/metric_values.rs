//! Metrics by name, and where they come from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Metrics by name, such as `mean_ttft_ms`; `None` where a metric has no meaning.
pub(crate) type MetricValues = BTreeMap<String, Option<f64>>;

/// The set of definitions that a metric follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Definitions {
    /// As printed by the bench_serving fork in LMDeploy (2025).
    Classic,
    /// As printed by bench_serving of SGLang 0.5.23.
    Current,
    /// The definitions of `matrix`, without the known faults of the others.
    Matrix,
}

impl Definitions {
    /// The name on disk.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Current => "current",
            Self::Matrix => "matrix",
        }
    }
}

/// How the metrics were obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Measured on an engine.
    Measured,
    /// Imported from the output of another tool.
    Imported,
    /// Measured on the simulated engine.
    Simulated,
}

impl Origin {
    /// The name on disk.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Imported => "imported",
            Self::Simulated => "simulated",
        }
    }
}
