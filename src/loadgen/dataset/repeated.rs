//! The share of prompt tokens that a prefix cache may legitimately know.

use super::prompt::{Content, Prompt, repeated_share};
use super::tokenizer::{Tokenizer, TokenizerError};

/// If at least this share of bytes is repeated, repeated tokens have average length, so bytes are a good
/// estimate.
const MIN_SHARE: f64 = 0.2;

/// Returns the share of prompt tokens that repeat the beginning of an earlier prompt; `None` as in
/// [`repeated_share`].
///
/// Prompts of random tokens may repeat more tokens than bytes, because a few short tokens are common at the
/// start, and caches count tokens. `is_exact`: texts are counted in tokens however much they repeat, which takes time.
pub(crate) fn repeated_token_share(
    prompts: &[Prompt],
    tokenizer: &Tokenizer,
    is_exact: bool,
) -> Result<Option<f64>, TokenizerError> {
    let are_texts = prompts
        .iter()
        .all(|prompt| matches!(prompt.content, Content::Text(_)));
    let of_bytes = match repeated_share(prompts) {
        Some(_) if is_exact && are_texts => 0.0,
        Some(share) if share < MIN_SHARE => share,
        byte_share => return Ok(byte_share),
    };
    let mut texts: Vec<&str> = prompts
        .iter()
        .filter_map(|prompt| match &prompt.content {
            Content::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    texts.sort_unstable();
    let common: Vec<&str> = texts
        .windows(2)
        .map(|pair| common_prefix(pair[0], pair[1]))
        .collect();
    let tokens: usize = tokenizer.encode_batch(&common, false)?.iter().map(Vec::len).sum();
    let total: u64 = prompts.iter().map(|prompt| u64::from(prompt.prompt_tokens)).sum();
    let of_tokens = if total == 0 {
        0.0
    } else {
        tokens as f64 / total as f64
    };
    Ok(Some(of_bytes.max(of_tokens)))
}

/// Returns the common prefix.
fn common_prefix<'t>(one: &'t str, other: &str) -> &'t str {
    let same = one.char_indices().zip(other.chars()).find(|((_, a), b)| a != b);
    let end = same.map_or(one.len().min(other.len()), |((place, _), _)| place);
    &one[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadgen::dataset::Caches;

    /// The common words have twice as many letters as the others.
    #[test]
    fn the_share_of_texts_is_one_of_tokens_where_it_must_be_exact() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/matrices/data");
        let tokenizer =
            Tokenizer::open("tokenizer.json", std::path::Path::new(folder), &Caches::default()).unwrap();
        let prompts: Vec<Prompt> = ["a b c d e f", "u v w x y z"]
            .iter()
            .map(|end| {
                let text = format!("something something something something {end}");
                let count = u32::try_from(tokenizer.count(&text, false).unwrap()).unwrap();
                Prompt::new(Content::Text(text.into()), count, 1)
            })
            .collect();
        let total: u32 = prompts.iter().map(|prompt| prompt.prompt_tokens).sum();
        let common = "something something something something ";
        let tokens = tokenizer.count(common, false).unwrap();
        let share = |is_exact| {
            repeated_token_share(&prompts, &tokenizer, is_exact)
                .unwrap()
                .unwrap()
        };
        assert_eq!(share(true), tokens as f64 / f64::from(total));
        assert!(share(false) > share(true), "bytes: {}", share(false));
    }

    #[test]
    fn what_two_texts_begin_with_ends_at_a_character() {
        assert_eq!(common_prefix("äb", "äc"), "ä");
        assert_eq!(common_prefix("ä", "ö"), "");
        assert_eq!(common_prefix("ab", "abc"), "ab");
        assert_eq!(common_prefix("abc", "ab"), "ab");
    }
}
