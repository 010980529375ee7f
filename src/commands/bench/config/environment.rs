/// The environment variables that a bench reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    pub(crate) bearer: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) anthropic: Option<String>,
    pub(crate) in_ci: Option<String>,
    pub(crate) profiler_dir: Option<String>,
}
