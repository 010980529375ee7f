//! Collects the environment variables and cache folders for a run.

use crate::cli::{self, Places, PullWish};
use crate::runner::environment::PullPolicy;
use crate::runner::environment::{CacheDirs, Environment};

pub(crate) fn environment() -> Environment {
    Environment {
        variable: cli::variable,
        names: cli::variables(),
        tool: format!("matrix {}", cli::VERSION),
        nvml_library: cli::nvml_library(),
        pretended_gpus: cli::pretended_gpus(),
        visible_gpus: cli::visible_gpus(),
        locks: cli::locks(),
    }
}

/// The cache folders, with or without that of prepared prompts.
pub(crate) fn cache_dirs(places: &Places, uses_prompts: bool) -> CacheDirs {
    CacheDirs {
        hf_home: places.hf_home(),
        cache: places.cache(),
        prompts: uses_prompts.then(|| places.prompts()),
    }
}

pub(crate) const fn pull_policy(wish: PullWish) -> PullPolicy {
    match wish {
        PullWish::Never => PullPolicy::Never,
        PullWish::Missing => PullPolicy::Missing,
        PullWish::Always => PullPolicy::Always,
    }
}
