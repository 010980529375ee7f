//! The environment variables that a bench reads.

/// The environment variables that a bench reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// `OPENAI_API_KEY`.
    pub(crate) bearer: Option<String>,
    /// `API_KEY`.
    pub(crate) key: Option<String>,
    /// `SGLANG_IS_IN_CI`.
    pub(crate) in_ci: Option<String>,
    /// `SGLANG_TORCH_PROFILER_DIR`.
    pub(crate) profiler_dir: Option<String>,
}
