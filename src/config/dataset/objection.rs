//! What is wrong with a workload.

/// Something a workload asks for that cannot be, and the field that asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// The field, as it is written: `input_len`.
    pub field: String,
    /// What is wrong and how to fix it.
    pub says: String,
}

/// Takes down a field and what is wrong with it.
pub(crate) type Say<'a> = dyn FnMut(&'static str, String) + 'a;

/// Why an option is refused that came after the rules of `classic`.
pub(crate) const NOT_CLASSIC: &str =
    "the `classic` profile does not support this option; remove it, or use the `current` profile";
