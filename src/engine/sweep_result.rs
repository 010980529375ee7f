/// Result of removing orphans.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SweepResult {
    pub removed: Vec<String>,
    /// What could not be removed, and why.
    pub remaining: Vec<String>,
    pub notes: Vec<String>,
    /// Why the containers could not be checked, if a daemon is expected.
    pub containers_error: Option<String>,
}
