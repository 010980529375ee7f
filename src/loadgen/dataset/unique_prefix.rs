//! Gives prompts a prefix that no earlier prompt had, for engines whose prefix cache cannot be reset.
//!
//! An engine finds a prompt in its cache from the first token on: the key of a block covers all tokens before
//! it, and a prefix tree branches at the first different token. So a few letters at the start are enough. All
//! prompts of a measurement get the same letters, so that prefixes shared among them stay shared. The letters
//! replace as many tokens, so that no length changes.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::prompt::Content;
use super::template::ChatTemplate;
use super::tokenizer::{Tokenizer, TokenizerError};
use crate::base::ids::ContentHash;

/// Number of letters of the prefix. There are 26^8 = 2·10¹¹ prefixes, so in a run of 1000 measurements the
/// probability that two share a prefix is 1 in 400 000.
const PREFIX_LETTERS: usize = 8;

/// Number of characters of a prompt in which the end of the replaced part is searched; far more than the
/// letters have tokens.
const SEARCH_CHARS: usize = 128;

/// The prefix of the prompts of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PrefixLetters {
    letters: String,
}

/// The result of adding the prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrefixStats {
    /// Number of tokens of the letters alone.
    pub(crate) tokens: usize,
    /// Number of unchanged prompts: they do not begin with text, or no replacement of equal length was found.
    pub(crate) unchanged: usize,
}

impl PrefixLetters {
    /// Derives the prefix from a name: the same for the same name, another for another name.
    pub(crate) fn from_name(name: &impl Serialize) -> Self {
        let digest = ContentHash::from_value(name);
        let mut number = u64::from_str_radix(digest.as_str(), 16).expect("a digest has 16 hex digits");
        let letters = (0..PREFIX_LETTERS).map(|_| {
            let letter = b'a' + u8::try_from(number % 26).expect("it is below 26");
            number /= 26;
            char::from(letter)
        });
        Self {
            letters: letters.collect(),
        }
    }

    pub(crate) fn letters(&self) -> &str {
        &self.letters
    }

    /// Replaces the beginning of each content, so that the number of tokens stays. Tokenizes on all cores, so
    /// it must not run during a measurement.
    pub(crate) fn apply<'c>(
        &self,
        contents: impl Iterator<Item = &'c mut Content>,
        tokenizer: &Tokenizer,
    ) -> Result<PrefixStats, TokenizerError> {
        let ids = tokenizer.encode(&self.letters, false)?;
        let mut stats = PrefixStats {
            tokens: ids.len(),
            unchanged: 0,
        };
        let mut texts: Vec<&mut String> = Vec::new();
        for content in contents {
            match content {
                Content::Text(text) => texts.push(Arc::make_mut(text)),
                Content::Ids(old) => {
                    let length = old.len().min(ids.len());
                    Arc::make_mut(old)[..length].copy_from_slice(&ids[..length]);
                }
                Content::Messages(messages) => match first_text(messages) {
                    Some(text) => texts.push(text),
                    None => stats.unchanged += 1,
                },
                // The images come before the text.
                Content::Images { .. } | Content::Audio(_) => stats.unchanged += 1,
            }
        }
        let count = |texts: &[&str]| tokenizer.count_batch(texts, false);
        let old: Vec<&str> = texts.iter().map(|text| text.as_str()).collect();
        let before = count(&old)?;
        let head = template_head(tokenizer);
        let rewritten = |text: &&str| self.with_unique_prefix(text, &head, tokenizer);
        let new: Vec<Option<String>> = old.iter().map(rewritten).collect::<Result<_, _>>()?;
        let tried: Vec<&str> = new
            .iter()
            .map(|text| text.as_deref().unwrap_or_default())
            .collect();
        let after = count(&tried)?;
        for (((text, new), before), after) in texts.into_iter().zip(new).zip(before).zip(after) {
            match new.filter(|_| before == after) {
                Some(new) => *text = new,
                None => stats.unchanged += 1,
            }
        }
        Ok(stats)
    }

    /// Returns the text with the prefix and an unchanged number of tokens; `None` if there is none. The head
    /// of the chat template stays first.
    fn with_unique_prefix(
        &self,
        text: &str,
        head: &str,
        tokenizer: &Tokenizer,
    ) -> Result<Option<String>, TokenizerError> {
        let head = match text.starts_with(head) {
            true => head,
            false => "",
        };
        let text = &text[head.len()..];
        let places = text.char_indices().map(|(at, _)| at);
        let end = places.clone().nth(SEARCH_CHARS).unwrap_or(text.len());
        let token_count = tokenizer.count(&text[..end], false)?;
        // Prompts shorter than the letters get fewer letters; the shortest of them fill no cache block.
        for letters in (1..=PREFIX_LETTERS).rev().map(|length| &self.letters[..length]) {
            // A cut before whitespace leaves the following tokens unchanged; other cuts change the tokens of
            // a word.
            for is_word in [true, false] {
                let fits = |at: &usize| text[*at..].starts_with(char::is_whitespace) == is_word;
                let cuts = places.clone().take_while(|at| *at < end).filter(fits);
                for cut in cuts.filter(|at| *at > 0).chain([end]) {
                    let count = tokenizer.count(&format!("{letters}{}", &text[cut..end]), false)?;
                    if count == token_count {
                        return Ok(Some(format!("{head}{letters}{}", &text[cut..])));
                    }
                    // A later cut leaves fewer tokens, except for a few if it splits a word.
                    if count + PREFIX_LETTERS < token_count {
                        break;
                    }
                }
            }
        }
        Ok(None)
    }
}

/// Returns what the tokenizer's chat template writes before the user's text; empty if there is no template.
fn template_head(tokenizer: &Tokenizer) -> String {
    let rendered = |words: &str| ChatTemplate::open(tokenizer).ok()?.render_user(words).ok();
    let (Some(one), Some(other)) = (rendered("a"), rendered("b")) else {
        return String::new();
    };
    let alike = one
        .chars()
        .zip(other.chars())
        .take_while(|(one, other)| one == other);
    alike.map(|(letter, _)| letter).collect()
}

/// Returns the first text of a chat.
fn first_text(messages: &mut [Value]) -> Option<&mut String> {
    let content = messages.first_mut()?.get_mut("content")?;
    let text = match content {
        Value::Array(parts) => parts.first_mut()?.get_mut("text")?,
        content => content,
    };
    match text {
        Value::String(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::loadgen::dataset::Caches;

    fn tokenizer() -> Tokenizer {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("matrices/data");
        Tokenizer::open("tokenizer.json", &data, &Caches::default()).unwrap()
    }

    fn put(name: u32, texts: &[&str], tokenizer: &Tokenizer) -> (Vec<String>, PrefixStats) {
        let mut contents: Vec<Content> = texts
            .iter()
            .map(|text| Content::Text(Arc::new((*text).to_owned())))
            .collect();
        let stats = PrefixLetters::from_name(&name)
            .apply(contents.iter_mut(), tokenizer)
            .unwrap();
        let texts = contents.into_iter().map(|content| match content {
            Content::Text(text) => text.to_string(),
            other => panic!("{other:?}"),
        });
        (texts.collect(), stats)
    }

    #[test]
    fn the_same_name_gives_the_same_beginning_and_another_another() {
        let name = |repeat: u32| PrefixLetters::from_name(&("seed", 1, repeat));
        assert_eq!(name(1), name(1));
        let all: std::collections::BTreeSet<String> = (0..1000)
            .map(|repeat| name(repeat).letters().to_owned())
            .collect();
        assert_eq!(all.len(), 1000);
        assert!(all.iter().all(
            |letters| letters.len() == PREFIX_LETTERS && letters.bytes().all(|b| b.is_ascii_lowercase())
        ));
    }

    #[test]
    fn what_prompts_share_they_share_as_before() {
        let tokenizer = tokenizer();
        let common = "The quick brown fox jumps over the lazy dog, again and again, until the dog has had enough of it. ".repeat(3);
        let texts = [format!("{common}One."), format!("{common}Another one.")];
        let (rewritten, stats) = put(7, &texts.each_ref().map(String::as_str), &tokenizer);
        assert_eq!(stats.unchanged, 0);
        let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
        let before = shared(&texts[0], &texts[1]);
        assert!(
            shared(&rewritten[0], &rewritten[1]).abs_diff(before) < 64,
            "{rewritten:?}"
        );
        let (others, _) = put(8, &[&texts[0]], &tokenizer);
        assert!(
            shared(&rewritten[0], &others[0]) < PREFIX_LETTERS,
            "{rewritten:?} {others:?}"
        );
    }

    #[test]
    fn each_kind_of_content_begins_with_it_and_keeps_its_length() {
        let tokenizer = Tokenizer::bytes();
        let prefix = PrefixLetters::from_name(&1);
        let letters = prefix.letters();
        let text = "some words of a user who has to say a little more";
        let mut contents = [
            Content::Text(
                "<|user|>\nsome words of a user<|end|>\n<|assistant|>\n"
                    .to_owned()
                    .into(),
            ),
            Content::Ids(vec![1; 12].into()),
            Content::Ids(vec![1; 3].into()),
            Content::Messages(vec![
                json!({"role": "system", "content": text}),
                json!({"role": "user", "content": text}),
            ]),
            Content::Messages(vec![
                json!({"role": "user", "content": [{"type": "text", "text": text}]}),
            ]),
            Content::Messages(vec![
                json!({"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": text}]}),
            ]),
            Content::Images {
                text: text.to_owned(),
                images: Vec::new(),
            },
        ];
        let stats = prefix.apply(contents.iter_mut(), &tokenizer).unwrap();
        assert_eq!(
            stats,
            PrefixStats {
                tokens: 8,
                unchanged: 2
            }
        );
        let begins =
            |text: &Value| text.as_str().unwrap().starts_with(letters) && text.as_str().unwrap().len() == 49;
        let Content::Text(templated) = &contents[0] else {
            panic!()
        };
        assert!(
            templated.starts_with(&format!("<|user|>\n{letters}")),
            "{templated}"
        );
        assert_eq!(templated.len(), 51);
        let ids: Vec<u32> = letters.bytes().map(u32::from).collect();
        assert_eq!(contents[1], Content::Ids([&ids[..], &[1; 4]].concat().into()));
        assert_eq!(contents[2], Content::Ids(ids[..3].to_vec().into()));
        let Content::Messages(messages) = &contents[3] else {
            panic!()
        };
        assert!(begins(&messages[0]["content"]) && messages[1]["content"] == text);
        let Content::Messages(messages) = &contents[4] else {
            panic!()
        };
        assert!(begins(&messages[0]["content"][0]["text"]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_length_changes(texts in prop::collection::vec("[ -~é你\n]{1,300}", 1..6), name in 0u32..100) {
            let tokenizer = tokenizer();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let (rewritten, stats) = put(name, &texts, &tokenizer);
            let letters = PrefixLetters::from_name(&name);
            let mut unchanged = 0;
            for (text, rewritten) in texts.iter().zip(&rewritten) {
                prop_assert_eq!(tokenizer.count(text, false).unwrap(), tokenizer.count(rewritten, false).unwrap());
                unchanged += usize::from(!rewritten.starts_with(&letters.letters()[..1]));
            }
            // A text may happen to begin with the first letter.
            prop_assert!(unchanged <= stats.unchanged, "{:?}", rewritten);
        }
    }
}
