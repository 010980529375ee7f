//! Answers that begin with their prompt.

use crate::loadgen::dataset::tokenizer::{CleanUp, Tokenizer};
use crate::loadgen::dataset::{Content, Prompt};
use crate::results::record::request::Request;

/// Characters at the start of a prompt that are skipped before the piece that is searched for in its answer,
/// because a unique prefix may replace them.
const ECHO_SKIP_CHARS: usize = 64;

/// The same in tokens, for a prompt of token ids.
const ECHO_SKIP_IDS: usize = 8;

/// Length of the piece in characters: longer than what two texts share by accident.
const ECHO_CHARS: usize = 32;

/// The piece must occur within this many characters at the start of the answer.
const ECHO_SEARCH_CHARS: usize = 256;

/// Marks answers that begin with their prompt: the engine was told to echo it, or does not compute anything.
pub(in crate::runner) fn find_echoes(requests: &mut [Request], prompts: &[Prompt], tokenizer: &Tokenizer) {
    for request in requests.iter_mut().filter(|request| request.round.is_none()) {
        let prompt = usize::try_from(request.index)
            .ok()
            .and_then(|row| prompts.get(row));
        let (Some(prompt), Some(answer)) = (prompt, &request.text) else {
            continue;
        };
        let piece = match &prompt.content {
            Content::Text(text) => prompt_piece(text, ECHO_SKIP_CHARS),
            Content::Ids(ids) => {
                let begin = ids.iter().skip(ECHO_SKIP_IDS).take(ECHO_CHARS);
                let begin: Vec<u32> = begin.copied().collect();
                let text = tokenizer.decode(&begin, CleanUp::AsConfigured).ok();
                text.and_then(|text| prompt_piece(&text, 0))
            }
            Content::Messages(messages) => {
                let mut texts = messages
                    .iter()
                    .rev()
                    .filter_map(|message| message["content"].as_str());
                texts.next().and_then(|text| prompt_piece(text, ECHO_SKIP_CHARS))
            }
            Content::Images { .. } | Content::Audio(_) => None,
        };
        request.echoes_prompt = piece
            .is_some_and(|piece| contains_near_start(&answer.read_prefix(4 * ECHO_SEARCH_CHARS), &piece));
    }
}

/// The piece of a prompt after its first `begin` characters; `None` if the prompt is too short.
fn prompt_piece(text: &str, begin: usize) -> Option<String> {
    let piece: String = text.chars().skip(begin).take(ECHO_CHARS).collect();
    (piece.chars().count() == ECHO_CHARS).then_some(piece)
}

/// Whether the piece of the prompt occurs near the beginning of the answer; a chat template may precede it.
fn contains_near_start(answer: &str, piece: &str) -> bool {
    let begin: String = answer.chars().take(ECHO_SEARCH_CHARS).collect();
    begin.contains(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_begins_with_its_prompt_is_an_echo() {
        let prompt = "once upon a time there was a benchmark that measured nothing at all, and it was the fastest one of all times";
        let is_echo = |prompt: &str, answer: &str| {
            let piece = prompt_piece(prompt, ECHO_SKIP_CHARS);
            piece.is_some_and(|prompt_piece| contains_near_start(answer, &prompt_piece))
        };
        assert!(is_echo(prompt, prompt));
        assert!(is_echo(prompt, &format!("<|user|>{prompt}<|assistant|>")));
        assert!(
            is_echo(prompt, &prompt.replace("once upon a time", "zqxwvuts")),
            "behind a beginning of its own"
        );
        assert!(!is_echo(prompt, "there was a benchmark that measured nothing"));
        assert!(
            !is_echo(prompt, &format!("{}{prompt}", "word ".repeat(80))),
            "a quotation"
        );
        assert!(!is_echo("short", "short"));
    }
}
