//! Environment variables: the only place that reads them, except those that stand in for a flag.

use std::path::PathBuf;

use crate::config::gpus::GpuList;

/// Number of GPUs to simulate, from `MATRIX_PRETEND_GPUS`: for trying out matrices on a host without GPUs,
/// and for tests. Rows measured on them are marked. Fails with a message if the value is no number.
pub(crate) fn pretended_gpus() -> Result<Option<u32>, String> {
    let Some(text) = env_variable("MATRIX_PRETEND_GPUS") else {
        return Ok(None);
    };
    match text.parse() {
        Ok(count) if (1..=64).contains(&count) => Ok(Some(count)),
        _ => Err(format!(
            "MATRIX_PRETEND_GPUS is `{text}`; set a number from 1 to 64, or unset it"
        )),
    }
}

/// The visible GPUs of the environment, and the variable that sets them: `CUDA_VISIBLE_DEVICES`, otherwise
/// `NVIDIA_VISIBLE_DEVICES`. `all` and `void` are no list; an empty value or `none` means no GPU.
pub(crate) fn visible_gpus() -> Option<(&'static str, Option<GpuList>)> {
    ["CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"]
        .into_iter()
        .find_map(|name| match env_variable(name)?.trim() {
            "all" | "void" => None,
            "" | "none" | "-1" | "NoDevFiles" => Some((name, None)),
            text => Some((name, Some(text.parse().ok()?))),
        })
}

/// Width of pages from `COLUMNS`, if stdout is no terminal.
pub(crate) fn columns() -> Option<u16> {
    env_variable("COLUMNS")?.parse().ok()
}

/// Path of NVIDIA's management library from `MATRIX_NVML_LIBRARY`, if it is not the one that the loader
/// finds: for drivers in an unusual place, and for tests.
pub(crate) fn nvml_library() -> Option<PathBuf> {
    env_variable("MATRIX_NVML_LIBRARY").map(PathBuf::from)
}

/// The folder of GPU locks from `MATRIX_LOCKS`, if it is not the one that all users of a host share: for runs
/// in containers that see the same GPUs, and for tests. Runs with different folders do not see each other's
/// locks.
pub(crate) fn lock_folder() -> Option<PathBuf> {
    env_variable("MATRIX_LOCKS").map(PathBuf::from)
}

/// Reads an environment variable; `None` if it is unset or empty. Secrets are read with it.
pub fn env_variable(name: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "environment variables are read only in this file"
    )]
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub(crate) fn env_variable_names() -> Vec<String> {
    std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .collect()
}
