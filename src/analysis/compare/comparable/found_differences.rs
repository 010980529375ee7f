//! Differences of two cells, by their consequence.

/// Differences found so far, by their consequence.
#[derive(Default)]
pub(crate) struct FoundDifferences {
    pub(crate) incomparable: Vec<String>,
    pub(crate) per_gpu: Vec<String>,
    pub(crate) environment: Vec<String>,
    pub(crate) noted: Vec<String>,
}
