//! Analyses answers after the load, off the timed path: one-token answers, loops, canned answers, echoes and
//! token counts.

mod canned;
pub(super) mod checks;
mod echoes;
mod repetition;
mod rounds;

use std::sync::{Mutex, PoisonError};

pub(super) use canned::{find_canned, find_common_beginning};
pub(super) use echoes::find_echoes;
use repetition::{is_loop, uniformity};
pub(super) use rounds::count_rounds;

use crate::base::threads;
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::dataset::words::WordEncoder;
use crate::loadgen::dataset::{Content, Prompt};
use crate::results::record::request::{ChunkKind, Request};
use crate::results::record::spilled::SpilledText;

/// Differences of at most this many tokens between the server's and the data set's count of a prompt are
/// ignored.
const CLOSE_TOKENS: u32 = 8;

/// Counts prompt tokens where the server's count differs from the data set's: a text that was cut to a number
/// of tokens may be split into a few more or fewer.
pub(super) fn count_prompts(requests: &mut [Request], prompts: &[Prompt], tokenizer: &Tokenizer) {
    for request in requests {
        let reported = request.usage.and_then(|usage| usage.prompt);
        let is_apart =
            reported.is_some_and(|reported| reported.abs_diff(request.prompt_tokens) > CLOSE_TOKENS);
        if !is_apart || request.round.is_some() {
            continue;
        }
        let prompt = usize::try_from(request.index)
            .ok()
            .and_then(|row| prompts.get(row));
        // The documents of a query may be counted with the query, each or once; tools stand in the prompt as the chat template
        // writes them.
        let is_text_alone = |prompt: &&Prompt| {
            let extras = prompt.extras.as_ref();
            extras.is_none_or(|extras| extras.documents().is_none() && !extras.body.contains_key("tools"))
        };
        let counted = match prompt.filter(is_text_alone).map(|prompt| &prompt.content) {
            Some(Content::Text(text)) => tokenizer.count(text, false).ok(),
            Some(Content::Ids(ids)) => Some(ids.len()),
            Some(Content::Messages(_) | Content::Images { .. } | Content::Audio(_)) | None => None,
        };
        request.counted_prompt = counted.and_then(|count| u32::try_from(count).ok());
    }
}

/// Counts the tokens and the repetition of answers and of their reasoning, on all cores. An answer
/// whose events have neither text nor tool calls, as from a server without a tokenizer, gets no count.
pub(super) fn count_outputs(requests: &mut [Request], tokenizer: &Tokenizer) {
    for_each_request(requests, || WordEncoder::new(tokenizer), count_output);
}

/// Drops the counts of a tokenizer that is not the model's: only the server's count then.
pub(super) fn drop_counts(requests: &mut [Request]) {
    for request in requests {
        request.counted_first = None;
        request.counted_reasoning = None;
        request.counted_tokens = None;
    }
}

/// Calls `work` for every request on all cores. Each core has its own `means` and holds one text in memory at
/// a time.
pub(super) fn for_each_request<M>(
    requests: &mut [Request],
    means: impl Fn() -> M + Sync,
    work: impl Fn(&mut Request, &mut M) + Sync,
) {
    let count = requests.len();
    let remaining = Mutex::new(requests.iter_mut());
    let all = || {
        let mut means = means();
        loop {
            let next = remaining.lock().unwrap_or_else(PoisonError::into_inner).next();
            match next {
                Some(request) => work(request, &mut means),
                None => return,
            }
        }
    };
    threads::on_all_cores(count, all);
}

fn count_output(request: &mut Request, encoder: &mut WordEncoder<'_>) {
    let Some(text) = request.text.as_ref().map(SpilledText::read) else {
        return;
    };
    let calls = request.tool_text.as_deref();
    if text.is_empty() && calls.is_none() && !request.chunks.is_empty() {
        return;
    }
    let Ok(ids) = encoder.encode(&text) else {
        return;
    };
    let mut count = |text: &str| Some(encoder.encode(text).ok()?.len());
    let pieces = chunk_texts(request, &text);
    let uniform = uniformity(&ids, pieces.as_deref(), &text);
    let is_loop = is_loop(&ids, pieces.as_deref());
    let is_blank = |piece: &&&str| !piece.is_empty() && piece.chars().all(is_blank);
    let blank_events = pieces.iter().flatten().take_while(is_blank).count();
    let counted_first = pieces
        .as_deref()
        .and_then(|pieces| first_tokens(request, pieces, &mut count));
    let reasoning = pieces
        .and_then(|pieces| reasoning_text(request, &pieces))
        .and_then(|text| count(&text));
    let tokens = calls.map_or(Some(0), count).map(|called| ids.len() + called);
    drop(text);
    request.blank_events = u32::try_from(blank_events).unwrap_or(u32::MAX);
    request.counted_first = counted_first;
    request.uniform = uniform;
    request.is_loop = is_loop;
    request.counted_reasoning = reasoning.and_then(|tokens| u32::try_from(tokens).ok());
    request.counted_tokens = tokens.and_then(|tokens| u32::try_from(tokens).ok());
}

/// Counts the tokens of the text that arrived at the first moment, if the answer has more tokens than events.
fn first_tokens(
    request: &Request,
    pieces: &[&str],
    count: impl FnOnce(&str) -> Option<usize>,
) -> Option<u32> {
    let events = request.chunks.moments().first;
    let has_more = request
        .visible_tokens()
        .is_some_and(|tokens| tokens as usize > request.chunks.len());
    let text = pieces.get(..events).filter(|_| has_more)?.concat();
    u32::try_from(count(&text)?).ok()
}

/// Whether a character is invisible.
fn is_blank(letter: char) -> bool {
    letter.is_whitespace() || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
}

/// The text of the reasoning; `None` without reasoning.
fn reasoning_text(request: &Request, pieces: &[&str]) -> Option<String> {
    if !request.chunks.has_reasoning() {
        return None;
    }
    let chunks = request.chunks.iter().zip(pieces);
    let text: String = chunks
        .filter(|(chunk, _)| chunk.kind.is_reasoning())
        .map(|(_, piece)| *piece)
        .collect();
    (!text.is_empty()).then_some(text)
}

/// Tokens of each chunk's text alone; `None` if the text was not kept.
pub(super) fn count_chunks(request: &Request, encoder: &mut WordEncoder<'_>) -> Option<Vec<u32>> {
    let text = request.text.as_ref()?.read();
    let counts = chunk_texts(request, &text)?;
    let counts = counts
        .iter()
        .map(|piece| u32::try_from(encoder.encode(piece).ok()?.len()).ok());
    counts.collect()
}

/// The text of each chunk; empty for a piece of a tool call, which the text does not contain.
pub(super) fn chunk_texts<'t>(request: &Request, text: &'t str) -> Option<Vec<&'t str>> {
    let mut rest = text;
    let chunks = request.chunks.iter();
    chunks
        .map(|chunk| {
            if chunk.kind == ChunkKind::Tool {
                return Some("");
            }
            let (piece, after) = rest.split_at_checked(usize::try_from(chunk.bytes).ok()?)?;
            rest = after;
            Some(piece)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn request(text: Option<&str>, chunks: &[(&str, u32)]) -> Request {
        let chunks: Vec<_> = chunks
            .iter()
            .map(|(kind, bytes)| serde_json::json!([0, kind, null, bytes]))
            .collect();
        serde_json::from_value(serde_json::json!({
            "index": 0, "prompt_tokens": 1, "asked_tokens": 2, "due_ns": 0, "end_ns": 0,
            "chunks": chunks, "text": text,
        }))
        .unwrap()
    }

    #[test]
    fn a_text_is_cut_where_its_chunks_meet_and_tool_calls_are_not_in_it() {
        let actual = request(None, &[("r", 1), ("t", 9), ("a", 3), ("a", 3)]);
        assert_eq!(chunk_texts(&actual, "hméllo").unwrap(), ["h", "", "mé", "llo"]);
    }

    #[test]
    fn a_text_that_does_not_fit_its_chunks_is_not_cut() {
        assert_eq!(chunk_texts(&request(None, &[("a", 1)]), "é"), None);
        assert_eq!(chunk_texts(&request(None, &[("a", 2)]), "e"), None);
    }

    #[test]
    fn what_has_no_text_has_no_count_and_tool_calls_and_reasoning_have_theirs() {
        let tokenizer = Tokenizer::bytes();
        let mut silent = request(Some(""), &[("a", 0)]);
        let mut calling = request(Some("ab"), &[("h", 1), ("a", 1), ("t", 3)]);
        silent.index = 1;
        calling.tool_text = Some("f()".to_owned());
        let mut requests = [silent, calling];
        count_outputs(&mut requests, &tokenizer);
        assert_eq!(requests[0].counted_tokens, None);
        assert_eq!(
            (requests[1].counted_tokens, requests[1].counted_reasoning),
            (Some(5), Some(1))
        );
    }
}
