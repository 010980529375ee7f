//! Bytes and texts whose beginning may lie outside memory, such as in a file, because all answers of a long
//! load exceed memory.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Storage for blocks of bytes that were moved out of memory.
pub(crate) trait Blocks: fmt::Debug + Send + Sync {
    /// Appends the block at `place` to `into`.
    fn read(&self, place: Place, into: &mut Vec<u8>);
}

/// Position of a block in its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub at: u64,
    /// Length in bytes.
    pub length: u32,
}

/// A growing list of bytes, whose beginning may lie outside memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outsourced {
    elsewhere: Option<(Arc<dyn Blocks>, Vec<Place>)>,
    /// The end, which is in memory.
    here: Vec<u8>,
}

impl Outsourced {
    /// Length in bytes, including blocks outside memory.
    pub(crate) fn len(&self) -> usize {
        let places = self.elsewhere.iter().flat_map(|(_, places)| places);
        places.map(|place| place.length as usize).sum::<usize>() + self.here.len()
    }

    /// The bytes to be appended to.
    pub(crate) fn end(&mut self) -> &mut Vec<u8> {
        &mut self.here
    }

    /// Records the place of bytes that the caller took from [`Self::end`] and stored in `blocks`.
    pub(crate) fn lies(&mut self, blocks: &Arc<dyn Blocks>, place: Place) {
        let (_, places) = self
            .elsewhere
            .get_or_insert_with(|| (Arc::clone(blocks), Vec::new()));
        places.push(place);
    }

    pub(crate) fn shrink(&mut self) {
        self.here.shrink_to_fit();
    }

    /// Number of blocks outside memory.
    pub(crate) fn blocks(&self) -> usize {
        self.elsewhere.as_ref().map_or(0, |(_, places)| places.len())
    }

    /// Reads one of the blocks outside memory into `buffer`.
    pub(crate) fn read(&self, nth: usize, buffer: &mut Vec<u8>) {
        buffer.clear();
        if let Some((blocks, places)) = &self.elsewhere {
            blocks.read(places[nth], buffer);
        }
    }

    /// The part in memory.
    pub(crate) fn here(&self) -> &Vec<u8> {
        &self.here
    }

    pub(crate) fn all(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        if let Some((blocks, places)) = &self.elsewhere {
            places.iter().for_each(|place| blocks.read(*place, &mut all));
        }
        all.extend_from_slice(&self.here);
        all
    }
}

/// A growing text, whose beginning may lie outside memory.
#[derive(Clone, Default)]
pub struct Text(Outsourced);

impl Text {
    pub(crate) fn push_str(&mut self, text: &str) {
        self.0.end().extend_from_slice(text.as_bytes());
    }

    /// Replaces the text; all of it must be in memory.
    pub(crate) fn set(&mut self, text: &str) {
        self.0.end().clear();
        self.push_str(text);
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn read(&self) -> Cow<'_, str> {
        if self.0.blocks() == 0 {
            return String::from_utf8_lossy(self.0.here());
        }
        let all = String::from_utf8(self.0.all());
        Cow::Owned(all.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// The longest beginning of at most `bytes` bytes that ends between characters.
    pub(crate) fn beginning(&self, bytes: usize) -> Cow<'_, str> {
        let cut = |bytes: &[u8]| match std::str::from_utf8(bytes) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            _ => bytes.len(),
        };
        if self.0.blocks() == 0 {
            let begin = &self.0.here()[..bytes.min(self.0.here().len())];
            return String::from_utf8_lossy(&begin[..cut(begin)]);
        }
        let (mut begin, mut block) = (Vec::new(), Vec::new());
        for nth in 0..self.0.blocks() {
            if begin.len() < bytes {
                self.0.read(nth, &mut block);
                begin.extend_from_slice(&block);
            }
        }
        begin.extend_from_slice(self.0.here());
        begin.truncate(bytes);
        begin.truncate(cut(&begin));
        Cow::Owned(String::from_utf8_lossy(&begin).into_owned())
    }

    /// The part in memory.
    pub(crate) fn here(&self) -> &str {
        // Blocks are moved out between whole characters, so that this part is valid UTF-8.
        std::str::from_utf8(self.0.here()).unwrap_or_default()
    }

    /// The bytes of the text.
    pub(crate) fn bytes(&mut self) -> &mut Outsourced {
        &mut self.0
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        let mut bytes = Outsourced::default();
        *bytes.end() = text.into_bytes();
        Self(bytes)
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::from(text.to_owned())
    }
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.read() == other.read()
    }
}

impl PartialEq<&str> for Text {
    fn eq(&self, other: &&str) -> bool {
        self.read() == *other
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read().fmt(f)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.read())
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    pub(crate) struct Shelf(Mutex<Vec<u8>>);

    impl Shelf {
        /// Moves the part in memory to the storage.
        pub(crate) fn take(self: &Arc<Self>, bytes: &mut Outsourced) {
            let taken = std::mem::take(bytes.end());
            let place = {
                let mut shelf = self.0.lock().unwrap();
                let at = shelf.len() as u64;
                shelf.extend_from_slice(&taken);
                Place {
                    at,
                    length: u32::try_from(taken.len()).unwrap(),
                }
            };
            let blocks: Arc<dyn Blocks> = self.clone();
            bytes.lies(&blocks, place);
        }
    }

    impl Blocks for Shelf {
        fn read(&self, place: Place, into: &mut Vec<u8>) {
            let bytes = self.0.lock().unwrap();
            let at = usize::try_from(place.at).unwrap();
            into.extend_from_slice(&bytes[at..at + place.length as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Shelf;
    use super::*;

    #[test]
    fn a_text_is_the_same_wherever_it_lies() {
        let shelf = Arc::new(Shelf::default());
        let mut text = Text::default();
        for piece in ["hé", "", "llo"] {
            text.push_str(piece);
            shelf.take(text.bytes());
        }
        text.push_str("!");
        assert_eq!((text.read(), text.here(), text.len()), ("héllo!".into(), "!", 7));
        assert_eq!(text, Text::from("héllo!"));
        for text in [&text, &Text::from("héllo!")] {
            let begin = [1, 2, 3, 7, 9].map(|bytes| text.beginning(bytes));
            assert_eq!(begin, ["h", "h", "hé", "héllo!", "héllo!"]);
        }
        assert_eq!(serde_json::to_string(&text).unwrap(), "\"héllo!\"");
        assert_eq!(serde_json::from_str::<Text>("\"héllo!\"").unwrap(), text);
    }
}
