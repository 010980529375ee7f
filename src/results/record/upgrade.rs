//! What an upgrade compares, and what is known of both builds: `upgrade.json`. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The two sides of an upgrade.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct UpgradeRecord {
    /// Version of the files on disk.
    pub(crate) format: u32,
    /// The engine whose cells were measured; absent if the sides are two engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) engine: Option<String>,
    /// The setting that is upgraded, such as `image`.
    pub(crate) setting: String,
    /// Its values as they were given: of the baseline and of the candidate.
    pub(crate) given: [String; 2],
    /// The axis in which the sides differ.
    pub(crate) axis: String,
    /// Values of the axis: of the baseline and of the candidate.
    pub(crate) values: [String; 2],
    /// What is known of both builds.
    pub(crate) builds: [BuildFacts; 2],
}

/// What is known of a build besides what its server reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct BuildFacts {
    /// Long flags, each with the default that the help of the engine states.
    pub(crate) flags: Known<BTreeMap<String, Option<String>>>,
    /// Versions of the Python packages beside it; empty if it is no Python program.
    pub(crate) packages: Known<BTreeMap<String, String>>,
    /// Settings that it logs at its start, the same in every start.
    pub(crate) configuration: BTreeMap<String, String>,
}

/// A value, or why it is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Known<T> {
    Known(T),
    Unknown(String),
}

impl<T: Default> Default for Known<T> {
    fn default() -> Self {
        Self::Known(T::default())
    }
}

impl<T> From<Result<T, String>> for Known<T> {
    fn from(result: Result<T, String>) -> Self {
        match result {
            Ok(value) => Self::Known(value),
            Err(why) => Self::Unknown(why),
        }
    }
}
