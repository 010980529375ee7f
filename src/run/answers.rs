//! What is read of answers once they are all there, off the timed path: how much of each is one token, and how long prompts were that
//! the server counts otherwise.

use std::collections::HashMap;
use std::hash::Hash;

use crate::load::dataset::tokenizer::Tokenizer;
use crate::load::dataset::{Content, Prompt};
use crate::results::record::request::Request;

/// Below this many tokens, events or characters nothing is said of how often one of them comes.
const FEW: usize = 8;

/// A server's count of a prompt that lies no further from the data set's is not looked into.
const CLOSE: u32 = 8;

/// The share of a sequence that its most frequent member takes; `None` where it is short.
fn share_of_most_frequent<T: Eq + Hash>(members: impl Iterator<Item = T>) -> Option<f64> {
    let mut counts: HashMap<T, usize> = HashMap::new();
    let mut all = 0;
    for member in members {
        *counts.entry(member).or_default() += 1;
        all += 1;
    }
    let most = counts.into_values().max()?;
    (all >= FEW).then(|| most as f64 / all as f64)
}

/// How much of an answer is one and the same token, event or character. A run of one token may be told as other tokens when its text
/// is split again (`!!!!` is one of its own), so events and characters are counted too.
pub(super) fn uniformity(ids: &[u32], pieces: Option<&[&str]>, text: &str) -> Option<f64> {
    let pieces = pieces.map(|pieces| pieces.iter().filter(|piece| !piece.is_empty()));
    let share = [
        share_of_most_frequent(ids.iter()),
        pieces.and_then(share_of_most_frequent),
        share_of_most_frequent(text.chars()),
    ]
    .into_iter()
    .flatten()
    .fold(None, |most: Option<f64>, share| {
        Some(most.unwrap_or(0.0).max(share))
    });
    share.map(|share| (share * 1000.0).round() / 1000.0)
}

/// Counts the text of prompts that the server counts otherwise than the data set does: text that was cut to a length in tokens may
/// split into a few more or fewer of them.
pub(super) fn count_prompts(requests: &mut [Request], prompts: &[Prompt], tokenizer: &Tokenizer) {
    for request in requests {
        let reported = request.usage.and_then(|usage| usage.prompt);
        let is_apart = reported.is_some_and(|reported| reported.abs_diff(request.prompt_tokens) > CLOSE);
        if !is_apart || request.round.is_some() {
            continue;
        }
        let prompt = usize::try_from(request.index)
            .ok()
            .and_then(|row| prompts.get(row));
        let counted = match prompt.map(|prompt| &prompt.content) {
            Some(Content::Text(text)) => tokenizer.count(text, false).ok(),
            Some(Content::Ids(ids)) => Some(ids.len()),
            Some(Content::Messages(_) | Content::Pictures { .. }) | None => None,
        };
        request.counted_prompt = counted.and_then(|count| u32::try_from(count).ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_is_seen_however_its_text_splits() {
        assert_eq!(
            uniformity(&[7, 8], None, "!!!!!!!!!!!!"),
            Some(1.0),
            "as characters"
        );
        let pieces = ["the end"; 9];
        let text = pieces.concat();
        assert_eq!(
            uniformity(&[1, 2, 3], Some(&pieces), &text),
            Some(1.0),
            "as events"
        );
        assert_eq!(uniformity(&[4; 10], None, "abcdefghijkl"), Some(1.0), "as tokens");
        let ids: Vec<u32> = (0..20).collect();
        let text = "the quick brown fox jumps over the lazy dog";
        assert!(uniformity(&ids, None, text) < Some(0.25));
        assert_eq!(uniformity(&[1, 1], None, "aa"), None, "too short to say");
    }
}
