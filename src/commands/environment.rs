//! Collects the environment variables and cache folders for a run.

use crate::cli::cache::CacheArgs;
use crate::cli::{self, PullArg, environment};
use crate::runner::environment::PullPolicy;
use crate::runner::environment::{CacheDirs, Environment};

pub(crate) fn environment() -> Environment {
    Environment {
        variable: cli::env_variable,
        names: environment::env_variable_names(),
        tool: format!("matrix {}", cli::VERSION),
        nvml_library: environment::nvml_library(),
        pretended_gpus: environment::pretended_gpus(),
        visible_gpus: environment::visible_gpus(),
        lock_folder: environment::lock_folder(),
    }
}

/// The cache folders, with or without that of prepared prompts.
pub(crate) fn cache_dirs(places: &CacheArgs, uses_prompts: bool) -> CacheDirs {
    CacheDirs {
        hf_home: places.hf_home(),
        cache: places.cache(),
        prompts: uses_prompts.then(|| places.prompts_folder()),
    }
}

pub(crate) const fn pull_policy(arg: PullArg) -> PullPolicy {
    match arg {
        PullArg::Never => PullPolicy::Never,
        PullArg::Missing => PullPolicy::Missing,
        PullArg::Always => PullPolicy::Always,
    }
}
