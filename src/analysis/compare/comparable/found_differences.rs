//! Differences of two cells, by their consequence.

/// Differences found so far, by their consequence.
#[derive(Default)]
pub(crate) struct FoundDifferences {
    pub incomparable: Vec<String>,
    pub per_gpu: Vec<String>,
    pub environment: Vec<String>,
    pub noted: Vec<String>,
}
