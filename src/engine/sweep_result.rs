//! What came of removing what dead runs left.

/// What became of what dead runs left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Swept {
    pub removed: Vec<String>,
    /// What is still there, and why.
    pub remaining: Vec<String>,
    /// What else is to be known.
    pub notes: Vec<String>,
    /// Why the containers could not be looked at, where there is, or should be, a daemon.
    pub unseen: Option<String>,
}
