//! How much of prompts a prefix cache may know by right, in tokens.

use super::prompt::{Content, Prompt, repeated_share};
use super::tokenizer::{Tokenizer, TokenizerError};

/// From this share of bytes on, tokens of what is repeated are as long as others on average, and are not counted one by one.
const MIN_SHARE: f64 = 0.2;

/// The share of the tokens of all prompts that begins like another prompt before it; `None` where prompts grow turn by turn or hold more than text.
/// Prompts of random tokens that begin with the same few short ones repeat more tokens than bytes, and a cache counts tokens.
///
/// # Errors
/// The tokenizer failed.
pub(crate) fn repeated_token_share(
    prompts: &[Prompt],
    tokenizer: &Tokenizer,
) -> Result<Option<f64>, TokenizerError> {
    let of_bytes = match repeated_share(prompts) {
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

/// What both begin with.
fn common_prefix<'t>(one: &'t str, other: &str) -> &'t str {
    let same = one.char_indices().zip(other.chars()).find(|((_, a), b)| a != b);
    let end = same.map_or(one.len().min(other.len()), |((place, _), _)| place);
    &one[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_texts_begin_with_ends_at_a_character() {
        assert_eq!(common_prefix("äb", "äc"), "ä");
        assert_eq!(common_prefix("ä", "ö"), "");
        assert_eq!(common_prefix("ab", "abc"), "ab");
        assert_eq!(common_prefix("abc", "ab"), "ab");
    }
}
