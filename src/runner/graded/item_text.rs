//! What an item of a task says.

use serde_json::{Map, Value};

use crate::loadgen::Content;

/// A prompt of an item, and its right answer.
pub(super) struct ItemText {
    pub(super) content: Content,
    /// Fields of the request body.
    pub(super) fields: Map<String, Value>,
    pub(super) expected: Value,
}
