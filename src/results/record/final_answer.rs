//! What the events at the end of an answer say of it.

use super::spilled::SpilledText;

/// The answer as the end of its stream has it, which clients use instead of the pieces.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FinalAnswer {
    /// Its text without reasoning; `None` if the pieces have the same one, or the end has none.
    pub(crate) text: Option<SpilledText>,
    /// Whether the model refused to answer, in a part beside the text.
    pub(crate) is_refusal: bool,
}
