/// Result of removing orphans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SweepResult {
    pub(crate) removed: Vec<String>,
    /// What could not be removed, and why.
    pub(crate) remaining: Vec<String>,
    pub(crate) notes: Vec<String>,
    /// Why the containers could not be checked, if a daemon is expected.
    pub(crate) containers_error: Option<String>,
}
