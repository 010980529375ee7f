//! Errors of a workload.

/// An option of a workload that is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadError {
    /// The field, as it is written: `input_len`.
    pub(crate) field: String,
    /// What is wrong and how to fix it.
    pub(crate) message: String,
}

/// Records an error of a field: its name, and what is wrong and how to fix it.
pub(crate) type ReportError<'a> = dyn FnMut(&'static str, String) + 'a;

/// Why an option is refused that came after the rules of `classic`.
pub(crate) const NOT_CLASSIC: &str =
    "the `classic` profile does not support this option; remove it, or use the `current` profile";
