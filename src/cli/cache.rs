//! The cache folders: their flags, and where they are by default.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::path::PathBuf;
use std::sync::OnceLock;

use clap::Args;
use rustix::process::geteuid;

use super::environment::env_variable;
use crate::base::private_files;

#[derive(Args, Clone, Debug)]
pub(crate) struct CacheArgs {
    /// Hugging Face's cache folder; `~/.cache/huggingface` by default.
    #[arg(long, env = "HF_HOME", value_name = "DIR")]
    pub(crate) hf_home: Option<PathBuf>,
    /// The cache folder of `matrix`: Python environments, prepared prompts, calibration, noise and records of starts;
    /// `~/.cache/matrix` by default.
    #[arg(long, env = "MATRIX_CACHE", value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
}

impl CacheArgs {
    /// The places that the environment names, for commands without flags for them.
    pub(crate) fn from_environment() -> Self {
        Self {
            hf_home: env_variable("HF_HOME").map(PathBuf::from),
            cache: env_variable("MATRIX_CACHE").map(PathBuf::from),
        }
    }

    /// Hugging Face's cache folder.
    pub(crate) fn hf_home(&self) -> Option<PathBuf> {
        self.hf_home
            .clone()
            .or_else(|| Some(PathBuf::from(env_variable("HOME")?).join(".cache/huggingface")))
    }

    /// The folder for environments and prepared data.
    pub(crate) fn cache(&self) -> PathBuf {
        self.cache.clone().unwrap_or_else(|| {
            let home = env_variable("XDG_CACHE_HOME").map(PathBuf::from);
            let home = home.or_else(|| Some(PathBuf::from(env_variable("HOME")?).join(".cache")));
            home.map_or_else(fallback_cache, |home| home.join("matrix"))
        })
    }

    /// The folder for prepared prompts.
    pub(crate) fn prompts_folder(&self) -> PathBuf {
        self.cache().join("prompts")
    }
}

/// The cache folder of a process without a home, as with `env -i` and in system services. A folder of another
/// user is never used, because its owner could change the content.
fn fallback_cache() -> PathBuf {
    static CHOSEN: OnceLock<PathBuf> = OnceLock::new();
    let choose = || {
        let folder = PathBuf::from(format!("/tmp/matrix-{}", geteuid().as_raw()));
        match private_files::create_folder(&folder) {
            Ok(()) => folder,
            // A random name that other users cannot predict.
            Err(_) => folder.with_extension(format!("{:016x}", RandomState::new().build_hasher().finish())),
        }
    };
    CHOSEN.get_or_init(choose).clone()
}
