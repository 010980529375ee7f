//! The events of an answer, packed, because a long load has a hundred million of them.
//!
//! Each event is stored as its difference from the previous one: about 6 bytes instead of 24. Blocks may lie
//! outside memory ([`SpilledBytes`]) and are read on demand. The JSON form is a plain list.

pub(crate) mod moments;
mod packing;
mod view;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::chunk::{Chunk, ChunkKind};
use super::spilled::SpilledBytes;
use moments::Moments;
use packing::{pack, unpack};
use view::ChunkView;

/// Approximate bytes per packed event, and the most bytes that one call reserves.
const EVENT_BYTES: usize = 6;
const MAX_RESERVED_EVENTS: usize = 4096;

/// Events in order of arrival. Clones of a closed list share the events.
#[derive(Clone, Default)]
pub struct Chunks {
    events: ChunkStorage,
    view: ChunkView,
}

/// A list that still grows, or a closed one.
#[derive(Clone)]
enum ChunkStorage {
    Growing(Box<PackedChunks>),
    Shared(Arc<PackedChunks>),
}

impl Default for ChunkStorage {
    fn default() -> Self {
        Self::Growing(Box::default())
    }
}

impl Deref for ChunkStorage {
    type Target = PackedChunks;

    fn deref(&self) -> &PackedChunks {
        match self {
            Self::Growing(packed) => packed,
            Self::Shared(packed) => packed,
        }
    }
}

impl DerefMut for ChunkStorage {
    fn deref_mut(&mut self) -> &mut PackedChunks {
        match self {
            Self::Growing(packed) => packed,
            Self::Shared(packed) => Arc::make_mut(packed),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct PackedChunks {
    bytes: SpilledBytes,
    length: usize,
    first: Option<Chunk>,
    last: Option<Chunk>,
    /// Number of events that report a token count, and the last reported count.
    counted: usize,
    last_tokens: Option<u32>,
    has_reasoning: bool,
    /// Bytes of text in all events, and the byte up to which the text is reasoning.
    text_bytes: usize,
    thought_bytes: usize,
    moments: Moments,
}

impl Chunks {
    pub(crate) fn push(&mut self, chunk: Chunk) {
        debug_assert_eq!(
            self.view,
            ChunkView::Recorded,
            "chunks can be added to a recording, but not to a view of it"
        );
        let events = &mut *self.events;
        pack(events.bytes.memory_mut(), chunk, events.last);
        events.moments.add(chunk, events.last);
        events.first.get_or_insert(chunk);
        events.last = Some(chunk);
        events.length += 1;
        events.counted += usize::from(chunk.tokens.is_some());
        events.last_tokens = chunk.tokens.or(events.last_tokens);
        events.has_reasoning |= chunk.kind.is_reasoning();
        events.text_bytes += text_bytes(chunk);
    }

    /// Closes the list, so that clones share its events.
    pub(crate) fn close(&mut self) {
        if let ChunkStorage::Growing(packed) = &mut self.events {
            packed.bytes.shrink_to_fit();
            self.events = ChunkStorage::Shared(Arc::new(std::mem::take(packed)));
        }
    }

    /// Marks answer events whose text ends within the first `until` bytes as reasoning. An event that reaches
    /// beyond stays an answer.
    pub(crate) fn mark_thoughts(&mut self, until: usize) {
        self.events.thought_bytes = until;
    }

    /// Reserves memory for about this many events.
    pub(crate) fn reserve(&mut self, events: usize) {
        self.events
            .bytes
            .memory_mut()
            .reserve((events * EVENT_BYTES).min(MAX_RESERVED_EVENTS));
    }

    pub fn len(&self) -> usize {
        self.events.length
    }

    /// Whether there are no events.
    pub fn is_empty(&self) -> bool {
        self.events.length == 0
    }

    pub(crate) fn first(&self) -> Option<Chunk> {
        let first = self.events.first?;
        Some(self.read_as(first, 0, text_bytes(first)))
    }

    pub(crate) fn last(&self) -> Option<Chunk> {
        let last = self.events.last?;
        Some(self.read_as(last, self.events.length.saturating_sub(1), self.events.text_bytes))
    }

    pub(crate) fn moments(&self) -> Moments {
        self.events.moments
    }

    /// Whether every event has a token count.
    pub(crate) fn are_counted(&self) -> bool {
        match self.view {
            ChunkView::Spread => true,
            ChunkView::Uncounted => self.is_empty(),
            ChunkView::Recorded | ChunkView::Answers => self.events.counted == self.events.length,
        }
    }

    /// The last reported token count.
    pub(crate) fn last_tokens(&self) -> Option<u32> {
        match self.view {
            ChunkView::Spread => self.last().and_then(|chunk| chunk.tokens),
            ChunkView::Recorded | ChunkView::Answers => self.events.last_tokens,
            ChunkView::Uncounted => None,
        }
    }

    /// Whether an event is reasoning.
    pub(crate) fn has_reasoning(&self) -> bool {
        match (self.view, self.events.thought_bytes) {
            (ChunkView::Recorded, 0) => self.events.has_reasoning,
            _ => self.iter().any(|chunk| chunk.kind.is_reasoning()),
        }
    }

    /// All of them, in order.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            chunks: self,
            block: 0,
            block_offset: 0,
            buffer: Vec::new(),
            is_read: false,
            previous: None,
            index: 0,
            text_bytes: 0,
            ready: [EMPTY_CHUNK; BLOCK_CHUNKS],
            ready_count: 0,
        }
    }

    /// Returns an event as the view presents it. `nth` is its index, `text` the number of bytes of text up to
    /// its end.
    fn read_as(&self, mut chunk: Chunk, nth: usize, text: usize) -> Chunk {
        if self.events.thought_bytes > 0
            && chunk.kind == ChunkKind::Answer
            && text <= self.events.thought_bytes
        {
            chunk.kind = ChunkKind::Thought;
        }
        self.view.apply(chunk, nth)
    }

    /// Yields each event except the first, together with the previous one.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (Chunk, Chunk)> + '_ {
        let mut events = self.iter();
        let mut before = events.next();
        std::iter::from_fn(move || {
            let next = events.next()?;
            before.replace(next).map(|before| (before, next))
        })
    }

    /// Presents tool calls and reasoning as answers; `spread` counts one token for each event.
    #[must_use]
    pub(crate) fn as_answers(&self, spread: bool) -> Self {
        let view = if spread {
            ChunkView::Spread
        } else {
            ChunkView::Answers
        };
        Self { view, ..self.clone() }
    }

    /// Presents tool calls and reasoning as answers without token counts.
    #[must_use]
    pub(crate) fn as_uncounted_answers(&self) -> Self {
        Self {
            view: ChunkView::Uncounted,
            ..self.clone()
        }
    }

    #[cfg(test)]
    pub(crate) fn map_chunks(&mut self, change: impl Fn(usize, &mut Chunk)) {
        let edited = self.iter().enumerate().map(|(nth, mut chunk)| {
            change(nth, &mut chunk);
            chunk
        });
        *self = edited.collect();
    }

    /// The packed bytes.
    pub(crate) fn storage_bytes(&mut self) -> &mut SpilledBytes {
        &mut self.events.bytes
    }
}

/// Bytes that an event adds to the text; tool calls add none.
fn text_bytes(chunk: Chunk) -> usize {
    match chunk.kind {
        ChunkKind::Tool => 0,
        _ => chunk.bytes as usize,
    }
}

/// Number of events that are unpacked together.
const BLOCK_CHUNKS: usize = 32;
const EMPTY_CHUNK: Chunk = Chunk {
    at_ns: 0,
    kind: ChunkKind::Answer,
    tokens: None,
    bytes: 0,
};

/// Reads events in order.
#[derive(Debug)]
pub struct Iter<'c> {
    chunks: &'c Chunks,
    block: usize,
    /// Bytes of the block that are already read.
    block_offset: usize,
    /// The block, if it lies outside memory.
    buffer: Vec<u8>,
    is_read: bool,
    previous: Option<Chunk>,
    /// Number of unpacked events, and bytes of text in them.
    index: usize,
    text_bytes: usize,
    /// The unpacked events, and how many of them are not yet returned.
    ready: [Chunk; BLOCK_CHUNKS],
    ready_count: usize,
}

impl Iter<'_> {
    /// Unpacks more events into the end of `ready`; returns their number.
    fn unpack(&mut self) -> usize {
        let packed = &self.chunks.events.bytes;
        let elsewhere = packed.block_count();
        let mut count = 0;
        loop {
            if self.block < elsewhere && !self.is_read {
                packed.read_block(self.block, &mut self.buffer);
                self.is_read = true;
            }
            let block = if self.block < elsewhere {
                &self.buffer
            } else {
                packed.in_memory()
            };
            let mut rest = &block[self.block_offset..];
            while count < BLOCK_CHUNKS
                && let Some(chunk) = unpack(&mut rest, self.previous)
            {
                self.previous = Some(chunk);
                self.text_bytes += text_bytes(chunk);
                self.ready[count] = self.chunks.read_as(chunk, self.index, self.text_bytes);
                (self.index, count) = (self.index + 1, count + 1);
            }
            self.block_offset = block.len() - rest.len();
            if count == BLOCK_CHUNKS || self.block == elsewhere {
                self.ready[..count].reverse();
                return count;
            }
            (self.block, self.block_offset, self.is_read) = (self.block + 1, 0, false);
        }
    }
}

impl Iterator for Iter<'_> {
    type Item = Chunk;

    #[inline]
    fn next(&mut self) -> Option<Chunk> {
        if self.ready_count == 0 {
            self.ready_count = self.unpack();
        }
        self.ready_count = self.ready_count.checked_sub(1)?;
        Some(self.ready[self.ready_count])
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.chunks.len().saturating_sub(self.index) + self.ready_count;
        (0, Some(left))
    }
}

impl<'c> IntoIterator for &'c Chunks {
    type Item = Chunk;
    type IntoIter = Iter<'c>;

    fn into_iter(self) -> Iter<'c> {
        self.iter()
    }
}

impl FromIterator<Chunk> for Chunks {
    fn from_iter<I: IntoIterator<Item = Chunk>>(chunks: I) -> Self {
        let mut all = Self::default();
        chunks.into_iter().for_each(|chunk| all.push(chunk));
        all.close();
        all
    }
}

impl From<Vec<Chunk>> for Chunks {
    fn from(chunks: Vec<Chunk>) -> Self {
        chunks.into_iter().collect()
    }
}

impl PartialEq for Chunks {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Chunks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for Chunks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Chunks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ChunkStorage;
        impl<'de> serde::de::Visitor<'de> for ChunkStorage {
            type Value = Chunks;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of events")
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut events: A) -> Result<Chunks, A::Error> {
                let mut chunks = Chunks::default();
                while let Some(chunk) = events.next_element()? {
                    chunks.push(chunk);
                }
                chunks.close();
                Ok(chunks)
            }
        }
        deserializer.deserialize_seq(ChunkStorage)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::super::spilled::testing::MemoryBlocks;
    use super::packing::KINDS;
    use super::*;

    fn chunk() -> impl Strategy<Value = Chunk> {
        let kind = prop::sample::select(KINDS.to_vec());
        let number = || prop_oneof![Just(0u32), 1..5u32, any::<u32>()];
        (
            prop_oneof![0..1_000_000u64, any::<u64>()],
            kind,
            prop::option::of(number()),
            number(),
        )
            .prop_map(|(at_ns, kind, tokens, bytes)| Chunk {
                at_ns,
                kind,
                tokens,
                bytes,
            })
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_back_wherever_it_lies(
            events in prop::collection::vec((chunk(), any::<bool>()), 0..50),
        ) {
            let memory_blocks = Arc::new(MemoryBlocks::default());
            let mut chunks = Chunks::default();
            for (chunk, is_put_elsewhere) in &events {
                chunks.push(*chunk);
                if *is_put_elsewhere {
                    memory_blocks.spill(chunks.storage_bytes());
                }
            }
            let plain: Vec<Chunk> = events.iter().map(|(chunk, _)| *chunk).collect();
            prop_assert_eq!(chunks.iter().collect::<Vec<_>>(), plain.clone());
            prop_assert_eq!((chunks.first(), chunks.last()), (plain.first().copied(), plain.last().copied()));
            prop_assert_eq!(chunks.len(), plain.len());
            prop_assert_eq!(chunks.are_counted(), plain.iter().all(|chunk| chunk.tokens.is_some()));
            prop_assert_eq!(chunks.last_tokens(), plain.iter().rev().find_map(|chunk| chunk.tokens));
            let json = serde_json::to_string(&chunks).unwrap();
            prop_assert_eq!(&json, &serde_json::to_string(&plain).unwrap());
            prop_assert_eq!(serde_json::from_str::<Chunks>(&json).unwrap(), chunks);
        }
    }

    #[test]
    fn evenly_spaced_tokens_take_six_bytes_each() {
        let chunks: Chunks = (0..1000u64)
            .map(|nth| Chunk {
                at_ns: nth * 20_000_000 + nth % 7 * 1000,
                kind: ChunkKind::Answer,
                tokens: Some(nth as u32 + 1),
                bytes: 3 + (nth % 2) as u32,
            })
            .collect();
        assert!(chunks.events.bytes.len() <= 6010, "{}", chunks.events.bytes.len());
    }

    #[test]
    fn the_largest_moment_is_known_with_the_time_before_it() {
        let moments = |events: &[(u64, u32)]| {
            let events = events.iter().map(|(at_ms, bytes)| Chunk {
                at_ns: at_ms * 1_000_000,
                kind: ChunkKind::Answer,
                tokens: None,
                bytes: *bytes,
            });
            events.collect::<Chunks>().moments()
        };
        // One byte every 10 ms; then three events after 40 ms, and two at the end.
        let late = moments(&[
            (5, 1),
            (15, 1),
            (25, 1),
            (65, 2),
            (65, 1),
            (65, 1),
            (75, 1),
            (85, 2),
            (85, 1),
        ]);
        assert_eq!(
            (
                late.count,
                late.bytes,
                late.largest,
                late.second_largest,
                late.first_bytes
            ),
            (6, 11, 4, 3, 1)
        );
        assert_eq!((late.before_largest_ns, late.waited_ns), (40_000_000, 80_000_000));
        // The other moments brought six bytes within 40 ms.
        let paced = late.largest_at_pace_ns().unwrap();
        assert!((paced - 4.0 * 40e6 / 6.0).abs() < 1.0, "{paced}");
        let first = moments(&[(5, 3), (5, 3), (15, 1), (25, 1)]);
        assert_eq!(
            (first.largest, first.second_largest, first.before_largest_ns),
            (6, 1, 0)
        );
        assert_eq!(moments(&[(5, 9)]).largest_at_pace_ns(), None);
    }

    #[test]
    fn thoughts_end_where_the_answer_begins() {
        let event = |kind, bytes| Chunk {
            at_ns: 1,
            kind,
            tokens: None,
            bytes,
        };
        let (answer, tool) = (ChunkKind::Answer, ChunkKind::Tool);
        let events = [(answer, 3), (tool, 9), (answer, 2), (answer, 1), (answer, 1)];
        let mut chunks: Chunks = events.iter().map(|(kind, bytes)| event(*kind, *bytes)).collect();
        assert!(!chunks.has_reasoning());
        chunks.mark_thoughts(5);
        let thought = ChunkKind::Thought;
        let kinds: Vec<ChunkKind> = chunks.iter().map(|chunk| chunk.kind).collect();
        assert_eq!(kinds, [thought, tool, thought, answer, answer]);
        assert!(chunks.has_reasoning());
        let ends =
            |chunks: &Chunks| [chunks.first(), chunks.last()].map(|chunk| chunk.map(|chunk| chunk.kind));
        assert_eq!(ends(&chunks), [Some(thought), Some(answer)]);
        chunks.mark_thoughts(7);
        assert_eq!(ends(&chunks), [Some(thought), Some(thought)]);
    }

    #[test]
    fn as_answers_each_is_one_and_may_be_a_token() {
        let event = |kind, tokens| Chunk {
            at_ns: 1,
            kind,
            tokens,
            bytes: 1,
        };
        let chunks = Chunks::from(vec![
            event(ChunkKind::Thought, None),
            event(ChunkKind::Tool, Some(7)),
        ]);
        let actual =
            |chunks: &Chunks| -> Vec<_> { chunks.iter().map(|chunk| (chunk.kind, chunk.tokens)).collect() };
        let answers = chunks.as_answers(false);
        assert_eq!(
            actual(&answers),
            [(ChunkKind::Answer, None), (ChunkKind::Answer, Some(7))]
        );
        assert!(!answers.are_counted() && !answers.has_reasoning() && chunks.has_reasoning());
        let spread = chunks.as_answers(true);
        assert_eq!(
            actual(&spread),
            [(ChunkKind::Answer, Some(1)), (ChunkKind::Answer, Some(2))]
        );
        assert_eq!((spread.are_counted(), spread.last_tokens()), (true, Some(2)));
    }
}
