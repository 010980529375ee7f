//! The environment, as a run gets it.

use crate::cli::{self, PullWish};
use crate::runner::environment::Environment;
use crate::runner::environment::PullPolicy;

/// The environment of this process.
pub(crate) fn environment() -> Environment {
    Environment {
        variable: cli::variable,
        names: cli::variables(),
    }
}

/// When images are pulled.
pub(crate) const fn pull_policy(wish: PullWish) -> PullPolicy {
    match wish {
        PullWish::Never => PullPolicy::Never,
        PullWish::Missing => PullPolicy::Missing,
        PullWish::Always => PullPolicy::Always,
    }
}
