//! Which published generator's rules decide the prompts.

use serde::{Deserialize, Serialize};

/// The published load generator whose rules make the prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// LMDeploy's `profile_restful_api` of 2024, which the reports of August 2025 used.
    Classic,
    /// The rules of `sglang.bench_serving` 0.5.23.
    #[default]
    Current,
}
