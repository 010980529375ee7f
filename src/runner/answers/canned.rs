//! Answers that do not depend on their prompt, as a whole or in their first events.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use super::repetition::MIN_MEMBERS;
use crate::loadgen::dataset::tokenizer::{CleanUp, Tokenizer};
use crate::loadgen::dataset::{Content, Prompt};
use crate::results::record::request::{Chunk, ChunkKind, Request};

/// A shorter answer may equal another one by accident.
const CANNED_TOKENS: u32 = 6;

/// Number of first events that may depend on the prompt in a canned answer, and that honest answers may
/// share.
const OPENING_EVENTS: usize = 8;

/// Number of first events that are compared if the prompts have nothing in common.
const LONG_OPENING_EVENTS: usize = 32;

/// Number of characters at the beginning and at the end of prompts that are compared, to detect a common task
/// or form of question.
const TASK_CHARS: usize = 8;

/// Minimum length, in bytes, of a text that counts as equal to a longer one that begins with it: it was only
/// cut off earlier.
const LONG_TEXT_BYTES: usize = 64;

/// Number of characters of answers that are compared.
const CANNED_CHARACTERS: usize = 1024;

/// Share of answers with the same beginning from which it is not an accident.
const COMMON_SHARE: f64 = 0.9;

/// A digest that distinguishes prompts.
fn prompt_digest(content: &Content) -> u64 {
    let mut hasher = DefaultHasher::new();
    match content {
        Content::Text(text) => text.hash(&mut hasher),
        Content::Ids(ids) => ids.hash(&mut hasher),
        Content::Messages(messages) => messages
            .iter()
            .for_each(|message| message.to_string().hash(&mut hasher)),
        Content::Images { text, images } => {
            text.hash(&mut hasher);
            images.hash(&mut hasher);
        }
        Content::Audio(clip) => clip.digest().as_str().hash(&mut hasher),
    }
    hasher.finish()
}

/// Bytes of an answer's first events, which may depend on the prompt (a number, for example) even if the rest
/// is canned; 0 for a short answer.
fn opening_bytes(request: &Request) -> usize {
    let visible = request
        .chunks
        .iter()
        .filter(|chunk| chunk.kind != ChunkKind::Tool);
    let bytes = visible
        .take(OPENING_EVENTS)
        .map(|chunk| chunk.bytes as usize)
        .sum();
    if request.chunks.len() >= 3 * OPENING_EVENTS {
        bytes
    } else {
        0
    }
}

/// Marks answers that equal the answer to another prompt, except for the first events. One of the two may end
/// earlier.
pub(in crate::runner) fn find_canned(requests: &mut [Request], prompts: &[Prompt]) {
    let mut answers: Vec<(String, u64, usize)> = Vec::new();
    for (place, request) in requests.iter().enumerate() {
        let row = usize::try_from(request.index).unwrap_or(usize::MAX);
        let is_told = request
            .counted_tokens
            .is_some_and(|tokens| tokens >= CANNED_TOKENS);
        if let (Some(text), Some(prompt)) = (&request.text, prompts.get(row))
            && is_told
            && request.round.is_none()
        {
            // Long answers may lie on disk; comparing their beginning is enough.
            let opening = opening_bytes(request);
            let text = text.read_prefix(opening + 4 * CANNED_CHARACTERS);
            let text = text.get(opening..).unwrap_or_default();
            let text: String = text.chars().take(CANNED_CHARACTERS).collect();
            if text.len() >= MIN_MEMBERS {
                answers.push((text, prompt_digest(&prompt.content), place));
            }
        }
    }
    // After sorting, a text is directly followed by the texts that begin with it.
    answers.sort_unstable();
    let is_alike = |one: &str, other: &str| {
        other.starts_with(one) && (one.len() == other.len() || one.len() >= LONG_TEXT_BYTES)
    };
    for alike in answers.chunk_by(|(one, ..), (other, ..)| is_alike(one, other)) {
        let prompts: HashSet<u64> = alike.iter().map(|(_, prompt, _)| *prompt).collect();
        for (.., place) in alike.iter().filter(|_| prompts.len() > 1) {
            requests[*place].is_canned = true;
        }
    }
}

/// Whether texts have neither beginnings nor ends in common, so that no two of them ask the same.
fn have_no_common_ends(texts: &[&str]) -> bool {
    let is_common = |end_of: fn(&str) -> String| {
        let mut counts: HashMap<String, usize> = HashMap::new();
        for text in texts {
            *counts.entry(end_of(text)).or_default() += 1;
        }
        let most = counts.into_values().max().unwrap_or(0);
        10 * most > texts.len()
    };
    let begin = |text: &str| text.trim().chars().take(TASK_CHARS).collect();
    let end = |text: &str| text.trim().chars().rev().take(TASK_CHARS).collect();
    texts.len() >= MIN_MEMBERS && !is_common(begin) && !is_common(end)
}

/// Number of first events to compare in answers to these prompts. It is small for messages, which may hold
/// instructions that make answers begin alike.
fn opening_events(prompts: &[Prompt], tokenizer: &Tokenizer) -> usize {
    let text = |prompt: &Prompt| match &prompt.content {
        Content::Text(text) if prompt.extras.is_none() => Some(Arc::clone(text)),
        Content::Ids(ids) => {
            let ends = [
                &ids[..ids.len().min(TASK_CHARS)],
                &ids[ids.len().saturating_sub(TASK_CHARS)..],
            ];
            tokenizer
                .decode(&ends.concat(), CleanUp::AsConfigured)
                .ok()
                .map(Arc::new)
        }
        Content::Text(_) | Content::Messages(_) | Content::Images { .. } | Content::Audio(_) => None,
    };
    let texts: Option<Vec<Arc<String>>> = prompts.iter().map(text).collect();
    let is_unlike = texts.is_some_and(|texts| {
        let texts: Vec<&str> = texts.iter().map(|text| text.as_str()).collect();
        have_no_common_ends(&texts)
    });
    if is_unlike {
        LONG_OPENING_EVENTS
    } else {
        OPENING_EVENTS
    }
}

/// Marks answers whose first events almost all answers share, with the number of these events.
pub(in crate::runner) fn find_common_beginning(
    requests: &mut [Request],
    prompts: &[Prompt],
    tokenizer: &Tokenizer,
) {
    for events in 1..=opening_events(prompts, tokenizer) {
        let beginnings: Vec<Option<String>> = requests
            .iter()
            .map(|request| first_events_text(request, events))
            .collect();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        for beginning in beginnings.iter().flatten() {
            *counts.entry(beginning).or_default() += 1;
        }
        let all: usize = counts.values().sum();
        let common = counts.into_iter().max_by_key(|(_, count)| *count);
        let Some((common, _)) =
            common.filter(|(_, count)| all >= MIN_MEMBERS && *count as f64 >= COMMON_SHARE * all as f64)
        else {
            return;
        };
        for (request, beginning) in requests.iter_mut().zip(&beginnings) {
            if beginning.as_deref() == Some(common) {
                request.common_events = u32::try_from(events).unwrap_or(u32::MAX);
            }
        }
    }
}

/// The text of the first events of an answer; `None` if it has fewer.
fn first_events_text(request: &Request, events: usize) -> Option<String> {
    let text = request.text.as_ref().filter(|_| request.is_completed())?;
    let calls = request.tool_text.as_deref();
    let is_known = |chunk: &Chunk| chunk.bytes > 0 && (chunk.kind != ChunkKind::Tool || calls.is_some());
    let (mut count, mut shown, mut called) = (0, 0, 0);
    for chunk in request.chunks.iter().filter(is_known).take(events) {
        count += 1;
        let bytes = usize::try_from(chunk.bytes).ok()?;
        match chunk.kind {
            ChunkKind::Tool => called += bytes,
            _ => shown += bytes,
        }
    }
    let calls = calls.unwrap_or_default().get(..called)?;
    (count == events).then(|| text.read_prefix(shown).into_owned() + calls)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::answers::tests::request;

    #[test]
    fn the_same_answer_to_different_prompts_is_canned() {
        let canned = |prompts: [&str; 3], answers: [&str; 3]| {
            let prompts = prompts.map(|text| Prompt {
                content: Content::Text(text.to_owned().into()),
                prompt_tokens: 3,
                output_tokens: 20,
                extras: None,
            });
            let mut requests: Vec<Request> = (0..)
                .zip(answers)
                .map(|(index, answer)| Request {
                    index,
                    counted_tokens: u32::try_from(answer.len()).ok(),
                    ..request(Some(answer), &[])
                })
                .collect();
            find_canned(&mut requests, &prompts);
            let canned: Vec<bool> = requests.iter().map(|request| request.is_canned).collect();
            canned
        };
        let (same, other) = ("a long answer of many words", "another answer of many words");
        assert_eq!(canned(["a", "b", "c"], [same, other, same]), [true, false, true]);
        assert_eq!(
            canned(["a", "b", "a"], [same, other, same]),
            [false; 3],
            "to one prompt"
        );
        assert_eq!(
            canned(["a", "b", "c"], ["yes", other, "yes"]),
            [false; 3],
            "short ones"
        );
        // Every text that several prompts received counts, not only the most frequent one.
        let (one, two) = ("a fixed text of many words", "another fixed text of many words");
        assert_eq!(canned(["a", "b", "c"], [one, one, two]), [true, true, false]);
    }

    #[test]
    fn an_answer_that_depends_on_its_prompt_in_the_first_events_alone_is_canned() {
        let rest = " and a text of many words that is always the same";
        let mut requests: Vec<Request> = ["Request 1:", "Request 25:"]
            .into_iter()
            .zip(0..)
            .map(|(first, index)| {
                let mut events = vec![("a", u32::try_from(first.len()).unwrap())];
                events.extend([("a", 0); 7]);
                events.extend([("a", 3); 17]);
                Request {
                    index,
                    counted_tokens: Some(30),
                    ..request(Some(&format!("{first}{rest}")), &events)
                }
            })
            .collect();
        let prompts = ["a", "b"].map(|text| Prompt {
            content: Content::Text(text.to_owned().into()),
            prompt_tokens: 3,
            output_tokens: 20,
            extras: None,
        });
        find_canned(&mut requests, &prompts);
        assert!(requests.iter().all(|request| request.is_canned));
    }

    #[test]
    fn a_first_event_that_nearly_all_answers_share_is_common() {
        let common = |firsts: &[&str]| {
            let answer = |first: &&str| {
                let text = format!("{first} and more");
                request(
                    Some(&text),
                    &[("t", 9), ("a", u32::try_from(first.len()).unwrap()), ("a", 9)],
                )
            };
            let mut requests: Vec<Request> = firsts.iter().map(answer).collect();
            find_common_beginning(&mut requests, &[], &Tokenizer::bytes());
            requests
                .iter()
                .filter(|request| request.common_events > 0)
                .count()
        };
        assert_eq!(common(&["Sure"; 8]), 8);
        assert_eq!(common(&["Sure"; 7]), 0, "few");
        let mut mixed = ["Sure"; 20];
        mixed[3] = "No";
        assert_eq!(common(&mixed), 19);
        mixed[4..7].fill("No");
        assert_eq!(common(&mixed), 0);
        let canned = |nth: usize| {
            let text = format!("Sure here is {nth} and more");
            request(Some(&text), &[("a", 4), ("a", 5), ("a", 3), ("a", 2), ("a", 9)])
        };
        let mut requests: Vec<Request> = (0..9).map(canned).collect();
        find_common_beginning(&mut requests, &[], &Tokenizer::bytes());
        assert!(requests.iter().all(|request| request.common_events == 3));
        let calling = |nth: usize| {
            let arguments = format!("{{\"nth\":{nth}}}");
            let length = u32::try_from(arguments.len()).unwrap();
            let mut request = request(Some(""), &[("t", 6), ("t", length), ("t", 1)]);
            request.tool_text = Some(format!("search{arguments}."));
            request
        };
        let mut requests: Vec<Request> = (0..9).map(calling).collect();
        find_common_beginning(&mut requests, &[], &Tokenizer::bytes());
        assert!(requests.iter().all(|request| request.common_events == 1));
    }

    #[test]
    fn a_long_beginning_is_looked_at_where_prompts_have_nothing_in_common() {
        let begin = |prompts: &[String]| {
            let prompts: Vec<Prompt> = prompts
                .iter()
                .map(|text| Prompt {
                    content: Content::Text(text.clone().into()),
                    prompt_tokens: 9,
                    output_tokens: 20,
                    extras: None,
                })
                .collect();
            let mut requests: Vec<Request> = (0..prompts.len())
                .map(|nth| {
                    request(
                        Some(&format!("{}{nth:02}", "opener".repeat(12))),
                        &[&[("a", 6); 12][..], &[("a", 2)]].concat(),
                    )
                })
                .collect();
            find_common_beginning(&mut requests, &prompts, &Tokenizer::bytes());
            requests[0].common_events
        };
        let prompts = |begin: &str, end: &str| -> Vec<String> {
            (0..20)
                .map(|nth| format!("{begin}{nth}{}{nth}{end}", "x".repeat(40)))
                .collect()
        };
        assert_eq!(begin(&prompts("", "")), 12);
        assert_eq!(begin(&prompts("Translate into German: ", "")), 8);
        assert_eq!(begin(&prompts("", " Write a short summary.")), 8);
    }
}
