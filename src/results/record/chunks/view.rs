//! How events are presented to readers.

use crate::results::record::chunk::{Chunk, ChunkKind};

/// How events are presented to readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ChunkView {
    #[default]
    Recorded,
    /// Tool calls and reasoning as answers.
    Answers,
    /// As `Answers`, with one more token for each event.
    Spread,
    /// As `Answers`, without token counts.
    Uncounted,
}

impl ChunkView {
    pub(super) fn apply(self, chunk: Chunk, nth: usize) -> Chunk {
        if self == Self::Recorded {
            return chunk;
        }
        Chunk {
            kind: match chunk.kind {
                ChunkKind::Tool | ChunkKind::Thought => ChunkKind::Answer,
                kind => kind,
            },
            tokens: match self {
                Self::Spread => u32::try_from(nth + 1).ok(),
                Self::Recorded | Self::Answers => chunk.tokens,
                Self::Uncounted => None,
            },
            ..chunk
        }
    }
}
