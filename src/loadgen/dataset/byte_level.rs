//! Decodes many lists of ids for tokenizers that represent bytes as letters, as GPT-2, Llama 3 and Qwen do.
//!
//! The `tokenizers` library makes a string of each token of each list. This module decodes each distinct
//! token once and joins bytes, so that millions of ids of random prompts take milliseconds. A property test
//! compares it with the library.

use tokenizers::{DecoderWrapper, Tokenizer};

struct ByteVocab {
    bytes: Vec<u8>,
    /// By id: the range of its bytes; `None` for an id without a token.
    ranges: Vec<Option<(u32, u32)>>,
}

/// Decodes the lists. Special tokens are kept and ids without a token are left out. `None` if the tokenizer
/// does not represent bytes as letters.
pub(super) fn decode_batch(model: &Tokenizer, lists: &[&[u32]]) -> Option<Vec<String>> {
    if !matches!(model.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
        return None;
    }
    let vocab = ByteVocab::new(model, lists)?;
    Some(lists.iter().map(|ids| vocab.text(ids)).collect())
}

impl ByteVocab {
    /// Returns `None` if the largest id would make the table too large.
    fn new(model: &Tokenizer, lists: &[&[u32]]) -> Option<Self> {
        const MAX_IDS: usize = 1 << 22;
        let max = lists
            .iter()
            .flat_map(|ids| ids.iter())
            .max()
            .copied()
            .unwrap_or(0) as usize;
        if max >= MAX_IDS {
            return None;
        }
        let mut occurs = vec![false; max + 1];
        for id in lists.iter().flat_map(|ids| ids.iter()) {
            occurs[*id as usize] = true;
        }
        let mut vocab = Self {
            bytes: Vec::new(),
            ranges: vec![None; max + 1],
        };
        for (id, _) in (0..).zip(occurs).filter(|(_, occurs)| *occurs) {
            let Some(token) = model.id_to_token(id) else {
                continue;
            };
            let from = vocab.bytes.len();
            match token.chars().map(byte).collect::<Option<Vec<u8>>>() {
                Some(bytes) => vocab.bytes.extend(bytes),
                // An added token is written verbatim.
                None => vocab.bytes.extend(token.as_bytes()),
            }
            let range = (u32::try_from(from).ok()?, u32::try_from(vocab.bytes.len()).ok()?);
            vocab.ranges[id as usize] = Some(range);
        }
        Some(vocab)
    }

    fn text(&self, ids: &[u32]) -> String {
        let places = || ids.iter().filter_map(|id| self.ranges[*id as usize]);
        let mut bytes = Vec::with_capacity(places().map(|(from, to)| (to - from) as usize).sum());
        for (from, to) in places() {
            bytes.extend_from_slice(&self.bytes[from as usize..to as usize]);
        }
        String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
    }
}

/// Returns the byte of a letter: printable bytes stand for themselves, the others are the letters from U+0100
/// on, in order. Source: `bytes_to_unicode` of GPT-2's encoder.
fn byte(letter: char) -> Option<u8> {
    let is_seen = |code: u32| matches!(code, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let code = u32::from(letter);
    let byte = match code {
        0..=0xff => return u8::try_from(code).ok().filter(|_| is_seen(code)),
        // 0x00 to 0x20, 0x7f to 0xa0, 0xad.
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7f,
        0x143 => 0xad,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shipped() -> Tokenizer {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/matrices/data/tokenizer.json");
        Tokenizer::from_file(path).unwrap()
    }

    #[test]
    fn every_byte_has_one_letter() {
        let mut bytes: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(byte).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!(
            (byte('Ġ'), byte('Ċ'), byte('A')),
            (Some(b' '), Some(b'\n'), Some(b'A'))
        );
    }

    #[test]
    fn whatever_the_ids_the_library_says_the_same() {
        let model = shipped();
        let count = u32::try_from(model.get_vocab_size(true)).unwrap();
        let lists = prop::collection::vec(prop::collection::vec(0..count + 9, 0..50), 0..8);
        proptest!(|(lists in lists)| {
            let lists: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
            let library = model.decode_batch(&lists, false).unwrap();
            prop_assert_eq!(decode_batch(&model, &lists).unwrap(), library);
        });
        assert_eq!(decode_batch(&model, &[&[u32::MAX]]), None);
    }
}
