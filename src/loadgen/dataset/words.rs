//! Encodes long texts faster, for tokenizers that split text into words first, as GPT-2, Llama 3 and Qwen do.
//!
//! The library needs a microsecond per token, and most words of a text repeat. This module cuts a text
//! between a letter and a space before a letter, where every known splitting pattern ends a piece, and caches
//! the ids of short pieces. The library encodes new pieces. For tokenizers with other patterns the library
//! encodes the whole text. A property test compares the results with the library's.

use std::collections::HashMap;

use serde_json::Value;
use tokenizers::{ModelWrapper, NormalizerWrapper};

use super::tokenizer::{Tokenizer, TokenizerError};

/// Maximum length of a cached piece.
const MAX_PIECE_BYTES: usize = 24;
/// Maximum number of cached pieces.
const MAX_PIECES: usize = 1 << 15;
/// After this many new pieces, caching continues only if there were more hits than misses.
const MIN_SAMPLE: usize = 1 << 12;

// Alternatives of splitting patterns as models ship them. None matches over a letter, a space and a letter.
//
// Source: the `tokenizer.json` of GPT-2, Qwen3, Llama 3.1, DeepSeek-V3 and gpt-oss.

/// Alternatives that match letters, up to the last letter or its contraction.
const LETTER_PATTERNS: [&str; 8] = [
    r" ?\p{L}+",
    r"[^\r\n\p{L}\p{N}]?\p{L}+",
    r"[^\r\n\p{L}\p{N}]?+\p{L}+",
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+",
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
];
const OTHER_PATTERNS: [&str; 23] = [
    "'s",
    "'t",
    "'re",
    "'ve",
    "'m",
    "'ll",
    "'d",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"##,
    r"\p{N}",
    r"\p{N}{1,3}",
    r" ?\p{N}+",
    r" ?[^\s\p{L}\p{N}]+",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*",
    r" ?[^\s\p{L}\p{N}]++[\r\n]*",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
    r" ?[\p{P}\p{S}]+[\r\n]*",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"\s*[\r\n]+",
    r"\s*[\r\n]",
    r"\s+(?!\S)",
    r"\s+",
];

/// Encodes long texts; each thread needs its own.
pub(crate) struct WordEncoder<'t> {
    tokenizer: &'t Tokenizer,
    /// Whether the tokenizer allows cutting texts.
    can_cut: bool,
    cache: HashMap<Box<str>, Box<[u32]>>,
    misses: usize,
    hits: usize,
}

impl<'t> WordEncoder<'t> {
    pub(crate) fn new(tokenizer: &'t Tokenizer) -> Self {
        Self {
            tokenizer,
            can_cut: tokenizer.library().is_some_and(splits_words),
            cache: HashMap::new(),
            misses: 0,
            hits: 0,
        }
    }

    /// Returns the ids of a text, without tokens that the tokenizer adds around texts.
    pub(crate) fn encode(&mut self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        if !self.can_cut {
            return self.tokenizer.encode(text, false);
        }
        let mut ids = Vec::with_capacity(text.len() / 4);
        // The text from `left_letter` on is not encoded yet.
        let (mut left_letter, mut from) = (0, 0);
        for to in cut_positions(text).chain([text.len()]) {
            let piece = &text[from..to];
            if let Some(cached) = self.cache.get(piece) {
                self.tokenizer.encode_into(&text[left_letter..from], &mut ids)?;
                ids.extend_from_slice(cached);
                self.hits += 1;
                left_letter = to;
            } else if piece.len() <= MAX_PIECE_BYTES && self.is_learning() {
                self.tokenizer.encode_into(&text[left_letter..from], &mut ids)?;
                let new = self.tokenizer.encode(piece, false)?;
                ids.extend_from_slice(&new);
                self.cache.insert(piece.into(), new.into());
                self.misses += 1;
                left_letter = to;
            }
            from = to;
        }
        self.tokenizer.encode_into(&text[left_letter..], &mut ids)?;
        Ok(ids)
    }

    /// Whether new pieces are cached: there is space, and pieces repeat as far as is known.
    fn is_learning(&self) -> bool {
        self.cache.len() < MAX_PIECES && (self.misses < MIN_SAMPLE || self.hits > self.misses)
    }
}

/// Returns the positions of spaces between two ASCII letters.
fn cut_positions(text: &str) -> impl Iterator<Item = usize> + '_ {
    let bytes = text.as_bytes();
    let is_letter = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at))
            .is_some_and(u8::is_ascii_alphabetic)
    };
    memchr::memchr_iter(b' ', bytes).filter(move |at| is_letter(at.checked_sub(1)) && is_letter(Some(at + 1)))
}

/// Whether the ids of a text are those of its parts, for cuts at [`cut_positions`].
fn splits_words(library: &tokenizers::Tokenizer) -> bool {
    let is_plain = match library.get_normalizer() {
        None | Some(NormalizerWrapper::NFC(_)) => true,
        Some(_) => false,
    };
    let is_steady = match library.get_model() {
        ModelWrapper::BPE(model) => model.dropout.is_none(),
        _ => false,
    };
    let is_within = library
        .get_added_tokens_decoder()
        .into_values()
        .all(|token| !token.lstrip && !token.rstrip && !token.single_word && !token.content.contains(' '));
    let splitter = serde_json::to_value(library.get_pre_tokenizer()).unwrap_or_default();
    is_plain && is_steady && is_within && split_rule(&splitter) == SplitRule::BetweenWords
}

/// How a pre-tokenizer treats a letter, a space and a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SplitRule {
    Never,
    /// A piece ends between the first letter and the space.
    BetweenWords,
    Unknown,
}

fn split_rule(splitter: &Value) -> SplitRule {
    match splitter["type"].as_str() {
        Some("Sequence") => {
            let parts = splitter["pretokenizers"].as_array();
            let parts = parts.into_iter().flatten().map(split_rule);
            parts.max().unwrap_or(SplitRule::Unknown)
        }
        Some("ByteLevel") if splitter["use_regex"] == Value::Bool(false) => SplitRule::Never,
        Some("ByteLevel") => SplitRule::BetweenWords,
        Some("Split") if splitter["behavior"] == "Isolated" && splitter["invert"] == Value::Bool(false) => {
            splitter["pattern"]["Regex"]
                .as_str()
                .map_or(SplitRule::Unknown, pattern_split_rule)
        }
        _ => SplitRule::Unknown,
    }
}

/// Returns the rule of a pattern of alternatives.
fn pattern_split_rule(pattern: &str) -> SplitRule {
    let (mut rest, mut split) = (pattern, SplitRule::Never);
    loop {
        let after = |alternative: &&str| {
            let after = rest.strip_prefix(*alternative)?;
            (after.is_empty() || after.starts_with('|')).then_some(after)
        };
        let letters = LETTER_PATTERNS.iter().find_map(after);
        let Some(left) = letters.or_else(|| OTHER_PATTERNS.iter().find_map(after)) else {
            return SplitRule::Unknown;
        };
        if letters.is_some() {
            split = SplitRule::BetweenWords;
        }
        match left.strip_prefix('|') {
            Some(next) => rest = next,
            None => return split,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::hf_cache::Caches;
    use super::*;

    const QWEN: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const LLAMA: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    const DEEPSEEK: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;

    fn isolated(pattern: &str) -> Value {
        json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
    }

    fn sequence(patterns: &[&str]) -> Value {
        let mut parts: Vec<Value> = patterns.iter().map(|pattern| isolated(pattern)).collect();
        parts.push(
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}),
        );
        json!({"type": "Sequence", "pretokenizers": parts})
    }

    /// Pre-tokenizers of published models.
    fn shipped() -> Vec<Value> {
        vec![
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}),
            json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
            sequence(&[QWEN]),
            sequence(&[LLAMA]),
            sequence(&[O200K]),
            sequence(&[r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK]),
        ]
    }

    /// The shipped tokenizer with another pre-tokenizer.
    fn with(splitter: &Value, normalizer: Value) -> Tokenizer {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/matrices/data/tokenizer.json");
        let mut file: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        file["pre_tokenizer"] = splitter.clone();
        file["normalizer"] = normalizer;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
        let tokenizer = Tokenizer::open("tokenizer.json", folder.path(), &Caches::default()).unwrap();
        tokenizer.load().unwrap();
        tokenizer
    }

    fn text() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            4 => "[ ]?[a-z]{1,6}",
            1 => "[ ]?[A-Z][a-z]{0,4}",
            1 => Just("don't we'LL I'd it's".to_owned()),
            1 => "[ ]{0,3}[0-9]{1,5}",
            1 => "[.,!?/'\"\\-]{1,3}",
            1 => "[ \t\r\n]{1,4}",
            1 => Just("<|end|>".to_owned()),
            1 => "[éß中文ひ́ ]{1,3}",
            1 => any::<String>(),
        ];
        prop::collection::vec(part, 0..30).prop_map(|parts| parts.concat())
    }

    #[test]
    fn whatever_the_text_the_library_says_the_same() {
        for splitter in shipped() {
            for normalizer in [Value::Null, json!({"type": "NFC"})] {
                let tokenizer = with(&splitter, normalizer);
                let mut words = WordEncoder::new(&tokenizer);
                assert!(words.can_cut, "{splitter}");
                let words = std::cell::RefCell::new(&mut words);
                proptest!(ProptestConfig::with_cases(64), |(text in text())| {
                    let ids = words.borrow_mut().encode(&text).unwrap();
                    prop_assert_eq!(ids, tokenizer.encode(&text, false).unwrap());
                });
                assert!(words.borrow().hits > 0);
            }
        }
    }

    #[test]
    fn pieces_that_do_not_come_again_are_left_to_the_library() {
        let tokenizer = with(&shipped()[0], Value::Null);
        let mut words = WordEncoder::new(&tokenizer);
        let letter = |number: usize| char::from(b'a' + (number % 26) as u8);
        let name = |number: usize| {
            String::from_iter([number, number / 26, number / 676, number / 17_576].map(letter))
        };
        let text: Vec<String> = (0..MIN_SAMPLE + 1000).map(name).collect();
        let text = text.join(" ");
        assert_eq!(
            words.encode(&text).unwrap(),
            tokenizer.encode(&text, false).unwrap()
        );
        assert_eq!((words.misses, words.cache.len()), (MIN_SAMPLE, MIN_SAMPLE));
    }

    #[test]
    fn what_is_not_known_to_end_at_words_is_not_cut() {
        let unknown = [
            json!(null),
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
            json!({"type": "Whitespace"}),
            isolated(r"\p{N}{1,3}|[a-z ]+"),
            json!({"type": "Split", "pattern": {"Regex": QWEN}, "behavior": "MergedWithNext", "invert": false}),
            json!({"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated", "invert": false}),
        ];
        for splitter in &unknown {
            assert_eq!(split_rule(splitter), SplitRule::Unknown, "{splitter}");
        }
        assert_eq!(split_rule(&sequence(&[r"\p{N}{1,3}"])), SplitRule::Never);
        let lower = with(&shipped()[0], json!({"type": "Lowercase"}));
        assert!(!WordEncoder::new(&lower).can_cut);
        let bytes = Tokenizer::bytes();
        assert_eq!(
            WordEncoder::new(&bytes).encode("a b").unwrap(),
            bytes.encode("a b", false).unwrap()
        );
    }
}
