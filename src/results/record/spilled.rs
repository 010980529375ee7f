//! Bytes and texts whose beginning may lie outside memory, such as in a file, because all answers of a long
//! load exceed memory.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Storage for blocks of bytes that were moved out of memory.
pub(crate) trait BlockStore: fmt::Debug + Send + Sync {
    /// Appends the block at `place` to `into`.
    fn read(&self, place: BlockRange, into: &mut Vec<u8>);
}

/// Position of a block in its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRange {
    pub(crate) at: u64,
    /// Length in bytes.
    pub(crate) length: u32,
}

/// A growing list of bytes, whose beginning may lie outside memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpilledBytes {
    spilled: Option<(Arc<dyn BlockStore>, Vec<BlockRange>)>,
    /// The end, which is in memory.
    in_memory: Vec<u8>,
}

impl SpilledBytes {
    /// Length in bytes, including blocks outside memory.
    pub(crate) fn len(&self) -> usize {
        let places = self.spilled.iter().flat_map(|(_, places)| places);
        places.map(|place| place.length as usize).sum::<usize>() + self.in_memory.len()
    }

    /// The bytes to be appended to.
    pub(crate) fn memory_mut(&mut self) -> &mut Vec<u8> {
        &mut self.in_memory
    }

    /// Records the place of bytes that the caller took from [`Self::memory_mut`] and stored in `blocks`.
    pub(crate) fn mark_spilled(&mut self, blocks: &Arc<dyn BlockStore>, place: BlockRange) {
        let (_, places) = self
            .spilled
            .get_or_insert_with(|| (Arc::clone(blocks), Vec::new()));
        places.push(place);
    }

    pub(crate) fn shrink_to_fit(&mut self) {
        self.in_memory.shrink_to_fit();
    }

    /// Number of blocks outside memory.
    pub(crate) fn block_count(&self) -> usize {
        self.spilled.as_ref().map_or(0, |(_, places)| places.len())
    }

    /// Reads one of the blocks outside memory into `buffer`.
    pub(crate) fn read_block(&self, nth: usize, buffer: &mut Vec<u8>) {
        buffer.clear();
        if let Some((blocks, places)) = &self.spilled {
            blocks.read(places[nth], buffer);
        }
    }

    /// The part in memory.
    pub(crate) fn in_memory(&self) -> &Vec<u8> {
        &self.in_memory
    }

    pub(crate) fn read_all(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        if let Some((blocks, places)) = &self.spilled {
            places.iter().for_each(|place| blocks.read(*place, &mut bytes));
        }
        bytes.extend_from_slice(&self.in_memory);
        bytes
    }
}

/// A growing text, whose beginning may lie outside memory.
#[derive(Clone, Default)]
pub(crate) struct SpilledText(SpilledBytes);

impl SpilledText {
    pub(crate) fn push_str(&mut self, text: &str) {
        self.0.memory_mut().extend_from_slice(text.as_bytes());
    }

    /// Replaces the text; all of it must be in memory.
    pub(crate) fn set(&mut self, text: &str) {
        self.0.memory_mut().clear();
        self.push_str(text);
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn read(&self) -> Cow<'_, str> {
        if self.0.block_count() == 0 {
            return String::from_utf8_lossy(self.0.in_memory());
        }
        let text = String::from_utf8(self.0.read_all());
        Cow::Owned(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// The longest beginning of at most `bytes` bytes that ends between characters.
    pub(crate) fn read_prefix(&self, bytes: usize) -> Cow<'_, str> {
        let cut = |bytes: &[u8]| match std::str::from_utf8(bytes) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => bytes.len(),
        };
        if self.0.block_count() == 0 {
            let begin = &self.0.in_memory()[..bytes.min(self.0.in_memory().len())];
            return String::from_utf8_lossy(&begin[..cut(begin)]);
        }
        let (mut begin, mut block) = (Vec::new(), Vec::new());
        for nth in 0..self.0.block_count() {
            if begin.len() < bytes {
                self.0.read_block(nth, &mut block);
                begin.extend_from_slice(&block);
            }
        }
        begin.extend_from_slice(self.0.in_memory());
        begin.truncate(bytes);
        begin.truncate(cut(&begin));
        Cow::Owned(String::from_utf8_lossy(&begin).into_owned())
    }

    /// The part in memory.
    pub(crate) fn in_memory(&self) -> &str {
        // Blocks are moved out between whole characters, so that this part is valid UTF-8.
        std::str::from_utf8(self.0.in_memory()).unwrap_or_default()
    }

    /// The bytes of the text.
    pub(crate) fn bytes_mut(&mut self) -> &mut SpilledBytes {
        &mut self.0
    }
}

impl From<String> for SpilledText {
    fn from(text: String) -> Self {
        let mut bytes = SpilledBytes::default();
        *bytes.memory_mut() = text.into_bytes();
        Self(bytes)
    }
}

impl From<&str> for SpilledText {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl PartialEq for SpilledText {
    fn eq(&self, other: &Self) -> bool {
        self.read() == other.read()
    }
}

impl PartialEq<&str> for SpilledText {
    fn eq(&self, other: &&str) -> bool {
        self.read() == *other
    }
}

impl fmt::Debug for SpilledText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

impl Serialize for SpilledText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.read())
    }
}

impl<'de> Deserialize<'de> for SpilledText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    pub(crate) struct MemoryBlocks(Mutex<Vec<u8>>);

    impl MemoryBlocks {
        /// Moves the part in memory to the storage.
        pub(crate) fn spill(self: &Arc<Self>, bytes: &mut SpilledBytes) {
            let take_written = std::mem::take(bytes.memory_mut());
            let place = {
                let mut memory_blocks = self.0.lock().unwrap();
                let at = memory_blocks.len() as u64;
                memory_blocks.extend_from_slice(&take_written);
                BlockRange {
                    at,
                    length: u32::try_from(take_written.len()).unwrap(),
                }
            };
            let blocks: Arc<dyn BlockStore> = self.clone();
            bytes.mark_spilled(&blocks, place);
        }
    }

    impl BlockStore for MemoryBlocks {
        fn read(&self, place: BlockRange, into: &mut Vec<u8>) {
            let bytes = self.0.lock().unwrap();
            let at = usize::try_from(place.at).unwrap();
            into.extend_from_slice(&bytes[at..at + place.length as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::MemoryBlocks;
    use super::*;

    #[test]
    fn a_text_is_the_same_wherever_it_lies() {
        let memory_blocks = Arc::new(MemoryBlocks::default());
        let mut text = SpilledText::default();
        for piece in ["hé", "", "llo"] {
            text.push_str(piece);
            memory_blocks.spill(text.bytes_mut());
        }
        text.push_str("!");
        assert_eq!(
            (text.read(), text.in_memory(), text.len()),
            ("héllo!".into(), "!", 7)
        );
        assert_eq!(text, SpilledText::from("héllo!"));
        for text in [&text, &SpilledText::from("héllo!")] {
            let begin = [1, 2, 3, 7, 9].map(|bytes| text.read_prefix(bytes));
            assert_eq!(begin, ["h", "h", "hé", "héllo!", "héllo!"]);
        }
        assert_eq!(serde_json::to_string(&text).unwrap(), "\"héllo!\"");
        assert_eq!(serde_json::from_str::<SpilledText>("\"héllo!\"").unwrap(), text);
    }
}
