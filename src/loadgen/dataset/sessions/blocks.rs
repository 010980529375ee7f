//! Tokens for the ids of KV blocks: the same id becomes the same tokens, another id becomes others.
//!
//! The tokens are words of the vocabulary that stay one token each wherever they stand, so that a prompt has
//! exactly as many tokens as its trace says, also if it is sent as text.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::super::tokenizer::{CleanUp, Tokenizer, TokenizerError};

/// Fewer words than this are not worth a vocabulary of their own.
const MIN_WORDS: usize = 64;
/// Number of draws after which blocks are too short to differ.
const MAX_DRAWS: u64 = 1_000;

/// Makes the tokens of blocks.
pub(super) struct BlockTokens {
    seed: u64,
    vocabulary: Vec<u32>,
    made: HashMap<Key, Arc<[u32]>>,
    /// Every block that was made, so that no two ids have the same tokens.
    used: HashSet<Arc<[u32]>>,
}

/// Scope, id and length of a block.
type Key = (u64, u64, u32);

impl BlockTokens {
    pub(super) fn new(seed: u64, tokenizer: &Tokenizer) -> Result<Self, TokenizerError> {
        Ok(Self {
            seed,
            vocabulary: words(tokenizer)?,
            made: HashMap::new(),
            used: HashSet::new(),
        })
    }

    /// The tokens of a prompt: those of its blocks, cut to its length, or continued by tokens of its own. `None`
    /// if blocks are so short that they cannot all differ.
    pub(super) fn prompt(
        &mut self,
        scope: u64,
        ids: &[u64],
        block: u32,
        tokens: u32,
        own: u64,
    ) -> Option<Vec<u32>> {
        let mut prompt = Vec::with_capacity(tokens as usize);
        for id in ids {
            let tokens = self.block((scope, *id, block))?;
            prompt.extend_from_slice(&tokens);
        }
        prompt.truncate(tokens as usize);
        let rest = tokens as usize - prompt.len();
        if rest > 0 {
            let mut draws = Draws::new(&[self.seed, OWN_TOKENS, own]);
            prompt.extend((0..rest).map(|_| draws.choice(&self.vocabulary)));
        }
        Some(prompt)
    }

    fn block(&mut self, key: Key) -> Option<Arc<[u32]>> {
        if let Some(tokens) = self.made.get(&key) {
            return Some(Arc::clone(tokens));
        }
        let (scope, id, length) = key;
        for attempt in 0..MAX_DRAWS {
            let mut draws = Draws::new(&[self.seed, scope, id, attempt]);
            let tokens: Arc<[u32]> = (0..length).map(|_| draws.choice(&self.vocabulary)).collect();
            if self.used.insert(Arc::clone(&tokens)) {
                self.made.insert(key, Arc::clone(&tokens));
                return Some(tokens);
            }
        }
        None
    }
}

/// Sets the draws of tokens without a block apart from those of blocks.
const OWN_TOKENS: u64 = u64::MAX;

/// Returns words that are one token each after a space, as text and as a part of a longer text; the whole
/// vocabulary of a tokenizer without such words.
fn words(tokenizer: &Tokenizer) -> Result<Vec<u32>, TokenizerError> {
    let base = u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
    let all: Vec<u32> = tokenizer
        .vocabulary()
        .into_iter()
        .filter(|id| *id < base)
        .collect();
    let single: Vec<&[u32]> = all.chunks(1).collect();
    let texts = tokenizer.decode_batch(&single, CleanUp::ExceptBpe)?;
    let is_word = |text: &str| {
        let letters = text.strip_prefix(' ').unwrap_or_default();
        letters.len() >= 2 && letters.bytes().all(|letter| letter.is_ascii_lowercase())
    };
    let candidates: Vec<(u32, &str)> = all
        .iter()
        .copied()
        .zip(texts.iter().map(String::as_str))
        .filter(|(_, text)| is_word(text))
        .collect();
    let texts: Vec<&str> = candidates.iter().map(|(_, text)| *text).collect();
    let encoded = tokenizer.encode_batch(&texts, false)?;
    let words: Vec<u32> = candidates
        .iter()
        .zip(encoded)
        .filter(|((id, _), encoded)| encoded[..] == [*id])
        .map(|((id, _), _)| *id)
        .collect();
    Ok(if words.len() < MIN_WORDS { all } else { words })
}

/// Draws by SplitMix64, whose state is a hash of what is drawn for.
struct Draws(u64);

impl Draws {
    fn new(parts: &[u64]) -> Self {
        let fold = |state: u64, part: &u64| mix(state ^ part.wrapping_add(STEP));
        Self(parts.iter().fold(STEP, fold))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }

    fn choice(&mut self, items: &[u32]) -> u32 {
        let place = (u128::from(self.next()) * items.len() as u128) >> 64;
        items[place as usize]
    }
}

/// Source: Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

const fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::super::hf_cache::Caches;
    use super::*;

    fn shipped() -> Tokenizer {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/matrices/data"));
        Tokenizer::open("tokenizer.json", folder, &Caches::default()).unwrap()
    }

    #[test]
    fn equal_ids_are_equal_tokens_and_others_differ() {
        let mut blocks = BlockTokens::new(1, &shipped()).unwrap();
        let one = blocks.prompt(0, &[7, 8, 9], 16, 48, 0).unwrap();
        let other = blocks.prompt(0, &[7, 8, 10], 16, 40, 1).unwrap();
        assert_eq!((one.len(), other.len()), (48, 40));
        assert_eq!(one[..32], other[..32]);
        assert_ne!(one[32..40], other[32..]);
        assert_ne!(
            blocks.prompt(1, &[7], 16, 16, 0).unwrap(),
            one[..16],
            "another scope"
        );
        let again = BlockTokens::new(1, &shipped())
            .unwrap()
            .prompt(0, &[7, 8, 9], 16, 48, 5)
            .unwrap();
        assert_eq!(again, one);
        assert_ne!(
            BlockTokens::new(2, &shipped())
                .unwrap()
                .prompt(0, &[7], 16, 16, 0)
                .unwrap(),
            one[..16]
        );
    }

    #[test]
    fn what_has_no_block_is_of_its_own() {
        let mut blocks = BlockTokens::new(1, &shipped()).unwrap();
        let one = blocks.prompt(0, &[7], 16, 30, 1).unwrap();
        let other = blocks.prompt(0, &[7], 16, 30, 2).unwrap();
        assert_eq!((one.len(), &one[..16]), (30, &other[..16]));
        assert_ne!(one[16..], other[16..]);
        assert_eq!(blocks.prompt(0, &[7], 16, 30, 1).unwrap(), one);
        assert_eq!(blocks.prompt(0, &[], 16, 5, 1).unwrap().len(), 5);
    }

    #[test]
    fn text_has_the_same_tokens() {
        let tokenizer = shipped();
        let mut blocks = BlockTokens::new(3, &tokenizer).unwrap();
        let ids: Vec<u64> = (0..40).collect();
        let prompt = blocks.prompt(0, &ids, 64, 2550, 0).unwrap();
        let text = tokenizer.decode(&prompt, CleanUp::ExceptBpe).unwrap();
        assert_eq!(tokenizer.encode(&text, false).unwrap(), prompt);
    }

    #[test]
    fn blocks_that_cannot_all_differ_are_refused() {
        let mut blocks = BlockTokens::new(1, &Tokenizer::bytes()).unwrap();
        assert_eq!(blocks.vocabulary.len(), 256);
        let ids: Vec<u64> = (0..257).collect();
        assert_eq!(blocks.prompt(0, &ids, 1, 257, 0), None);
    }
}
