//! Text without a tokenizer: counts the tokens of a prompt, and provides words for answers.
//!
//! A prompt given as ids counts one token per id. A prompt given as text is split roughly as byte-level BPE
//! tokenizers do: a run of letters with the space before it is one piece per 8 letters begun; each digit,
//! each punctuation mark and each run of up to four white-space characters is one piece; other characters are
//! one piece each. For English, the count differs from that of real tokenizers by some tens of percent;
//! clients that need exact prompt lengths send ids. Each chat message adds 5 pieces, and the opening of the
//! answer 3, as in ChatML.
//!
//! Answers consist of words that are one token in common tokenizers, so that a client's own count is close.
//! The `usage` that the server reports is exact.

use crate::sim::rng::{chain_hash, mix};

const LETTERS_PER_PIECE: usize = 8;

/// Words that are one token after a space in the vocabularies of GPT-2, Llama and Qwen.
const WORDS: [&str; 64] = [
    "the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "be", "by", "on", "not",
    "he", "his", "but", "at", "are", "this", "have", "from", "or", "had", "an", "they", "which", "one",
    "you", "were", "her", "all", "their", "there", "would", "we", "him", "been", "has", "when", "who",
    "will", "more", "no", "if", "out", "so", "said", "what", "up", "its", "about", "into", "than", "them",
    "can", "only", "other", "new", "some", "time", "two",
];

/// The word of token `index` of the answer with this key, without a space before it.
pub(crate) fn word(key: u64, index: u64) -> &'static str {
    WORDS[(mix(key ^ mix(index)) % WORDS.len() as u64) as usize]
}

/// The id of token `index` of the answer, equal to that of the same word in a prompt.
pub(crate) fn word_id(key: u64, index: u64) -> u64 {
    piece_id(word(key, index).as_bytes())
}

/// Appends the ids of a text's pieces, until there are more than `most` ids: how many more makes no difference to a prompt that
/// is longer than the context.
pub(crate) fn append_pieces(text: &str, most: usize, ids: &mut Vec<u64>) {
    let mut rest = text;
    while ids.len() <= most
        && let Some((blank, length)) = first_piece(rest)
    {
        ids.push(piece_id(&rest.as_bytes()[blank..blank + length]));
        rest = &rest[blank + length..];
    }
}

/// The pieces of a text, each with the space before it.
pub(crate) fn pieces(text: &str) -> Vec<String> {
    let (mut rest, mut pieces) = (text, Vec::new());
    while let Some((blank, length)) = first_piece(rest) {
        let (piece, after) = rest.split_at(blank + length);
        pieces.push(piece.to_owned());
        rest = after;
    }
    pieces
}

/// Length of the space before the first piece of a text, and that of the piece; `None` for an empty text.
fn first_piece(text: &str) -> Option<(usize, usize)> {
    let first = text.chars().next()?;
    let blank = usize::from(first == ' ' && text[1..].starts_with(char::is_alphabetic));
    let body = &text[blank..];
    let kind = body.chars().next()?;
    let length = if kind.is_ascii_alphabetic() {
        run_length(body, LETTERS_PER_PIECE, |next| next.is_ascii_alphabetic())
    } else if kind.is_whitespace() {
        run_length(body, 4, char::is_whitespace)
    } else {
        kind.len_utf8()
    };
    Some((blank, length))
}

/// Appends the ids of a chat, including the opening of the answer, until there are more than `most` ids.
pub(crate) fn append_chat<'a>(
    messages: impl Iterator<Item = (&'a str, &'a str)>,
    most: usize,
    ids: &mut Vec<u64>,
) {
    for (role, content) in messages {
        if ids.len() > most {
            return;
        }
        ids.extend([mark_id(b"<start>"), piece_id(role.as_bytes()), mark_id(b"\n")]);
        append_pieces(content, most, ids);
        ids.extend([mark_id(b"<end>"), mark_id(b"\n")]);
    }
    ids.extend([mark_id(b"<start>"), piece_id(b"assistant"), mark_id(b"\n")]);
}

fn run_length(text: &str, most: usize, belongs: impl Fn(char) -> bool) -> usize {
    text.chars()
        .take(most)
        .take_while(|next| belongs(*next))
        .map(char::len_utf8)
        .sum()
}

pub(crate) fn piece_id(bytes: &[u8]) -> u64 {
    bytes.iter().fold(bytes.len() as u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn mark_id(bytes: &[u8]) -> u64 {
    mix(piece_id(bytes))
}

/// The key of an answer. The same seed and prompt give the same answer.
pub(crate) fn answer_key(seed: u64, ids: &[u64]) -> u64 {
    ids.iter().fold(mix(seed), |hash, id| chain_hash(hash, *id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        let mut ids = Vec::new();
        append_pieces(text, usize::MAX, &mut ids);
        ids.len()
    }

    #[test]
    fn text_counts_about_what_a_tokenizer_says() {
        assert_eq!(count(""), 0);
        assert_eq!(count("The quick brown fox jumps over the lazy dog."), 10);
        assert_eq!(count("in 2024, 3.5%"), 12);
        assert_eq!(count("internationalization"), 3);
        assert_eq!(count("你好"), 2);
        assert_eq!(count("  \n\n x"), 2);
    }

    #[test]
    fn a_prompt_above_the_context_is_not_read_to_its_end() {
        let text = "a ".repeat(1000);
        let mut ids = Vec::new();
        append_pieces(&text, 10, &mut ids);
        assert_eq!(ids.len(), 11);
        let messages = std::iter::repeat_n(("user", text.as_str()), 1000);
        let mut chat = Vec::new();
        append_chat(messages, 10, &mut chat);
        assert!((11..20).contains(&chat.len()), "{}", chat.len());
    }

    #[test]
    fn an_answer_counts_one_per_word_when_it_comes_back_as_a_prompt() {
        let key = answer_key(7, &[1, 2, 3]);
        let text = (0..100)
            .map(|index| word(key, index))
            .collect::<Vec<_>>()
            .join(" ");
        let mut ids = Vec::new();
        append_pieces(&text, usize::MAX, &mut ids);
        assert_eq!(ids, (0..100).map(|index| word_id(key, index)).collect::<Vec<_>>());
    }

    #[test]
    fn a_second_turn_starts_with_the_first() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        append_chat([("user", "hi")].into_iter(), usize::MAX, &mut first);
        append_chat(
            [("user", "hi"), ("assistant", "the of"), ("user", "more")].into_iter(),
            usize::MAX,
            &mut second,
        );
        assert!(second.starts_with(&first));
        assert_eq!(first.len(), 9);
    }
}
