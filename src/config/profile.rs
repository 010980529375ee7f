//! Which published generator's rules decide the prompts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Which published generator's rules decide the prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// The 2024 rules that the reports of August 2025 were made with (LMDeploy's `profile_restful_api`).
    Classic,
    /// The rules of today's `sglang.bench_serving` (0.5.23).
    #[default]
    Current,
}
