//! One event of an answer.

use serde::{Deserialize, Serialize};

/// One event with output. On disk `[at_ns, kind, tokens, bytes]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    from = "(u64, ChunkKind, Option<u32>, u32)",
    into = "(u64, ChunkKind, Option<u32>, u32)"
)]
pub struct Chunk {
    /// When its bytes arrived.
    pub at_ns: u64,
    pub(crate) kind: ChunkKind,
    /// Output tokens so far, if the server reports them in this event.
    pub(crate) tokens: Option<u32>,
    /// Bytes of text in the event.
    pub(crate) bytes: u32,
}

impl From<(u64, ChunkKind, Option<u32>, u32)> for Chunk {
    fn from((at_ns, kind, tokens, bytes): (u64, ChunkKind, Option<u32>, u32)) -> Self {
        Self {
            at_ns,
            kind,
            tokens,
            bytes,
        }
    }
}

impl From<Chunk> for (u64, ChunkKind, Option<u32>, u32) {
    fn from(chunk: Chunk) -> Self {
        (chunk.at_ns, chunk.kind, chunk.tokens, chunk.bytes)
    }
}

/// The kind of output in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ChunkKind {
    /// Text of the answer.
    #[serde(rename = "a")]
    Answer,
    /// Text of the reasoning before the answer.
    #[serde(rename = "r")]
    Reasoning,
    /// Reasoning inside the text of the answer, between `<think>` and `</think>`.
    #[serde(rename = "h")]
    Thought,
    /// A piece of a tool call.
    #[serde(rename = "t")]
    Tool,
}

impl ChunkKind {
    /// Whether it is reasoning, in either form.
    pub(crate) const fn is_reasoning(self) -> bool {
        matches!(self, Self::Reasoning | Self::Thought)
    }
}
