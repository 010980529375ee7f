//! Prompt tokens of the rounds of conversations.

use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::dataset::{Content, Prompt};
use crate::results::record::request::Request;

/// The state of a conversation after a round.
#[derive(Clone, Copy)]
struct ConversationHistory {
    /// Index of the conversation's last request.
    index: u32,
    /// Tokens of all messages and answers so far; `None` if one of them has no known count.
    tokens: Option<usize>,
    /// Tokens of these that a chat template may leave out.
    omittable: usize,
}

/// Counts the prompts of rounds: all earlier messages and answers, and the new message. The chat template is
/// not included.
pub(in crate::runner) fn count_rounds(requests: &mut [Request], prompts: &[Prompt], tokenizer: &Tokenizer) {
    let turns = prompts.iter().flat_map(|prompt| {
        let turns = prompt.extras.as_ref().and_then(|extras| extras.turns.as_deref());
        let later = turns
            .unwrap_or_default()
            .iter()
            .map(move |turn| (prompt, Some(turn)));
        std::iter::once((prompt, None)).chain(later)
    });
    let mut places = requests.iter_mut();
    let mut before: Option<ConversationHistory> = None;
    for (index, (prompt, turn)) in turns.enumerate() {
        let Some(request) = places.as_slice().first() else {
            return;
        };
        if usize::try_from(request.index) != Ok(index) {
            before = None;
            continue;
        }
        let Some(request) = places.next() else {
            return;
        };
        if request.round.is_none() {
            continue;
        }
        let history = match turn {
            None => Some(ConversationHistory {
                index: request.index,
                tokens: first_turn(prompt, tokenizer),
                omittable: 0,
            }),
            Some(turn) => before
                .filter(|before| before.index + 1 == request.index)
                .map(|before| ConversationHistory {
                    index: request.index,
                    tokens: before
                        .tokens
                        .zip(message_tokens(turn, tokenizer))
                        .map(|(all, next)| all + next),
                    ..before
                }),
        };
        if let Some(history) = history {
            let count = |tokens| u32::try_from(tokens).unwrap_or(u32::MAX);
            request.counted_prompt = history.tokens.map(count);
            request.omittable_prompt = count(history.omittable);
        }
        if request.usage.is_some_and(|usage| usage.prompt.is_some()) {
            request.prompt_tokens = request.prompt_sent();
        }
        before = history.map(|history| with_answer(history, request, tokenizer));
    }
}

/// Tokens of the first turn of a conversation; `None` if it holds more than text, or the request holds more
/// than messages.
fn first_turn(prompt: &Prompt, tokenizer: &Tokenizer) -> Option<usize> {
    const MORE: [&str; 3] = ["tools", "functions", "documents"];
    let body = prompt.extras.as_ref().map(|extras| &extras.body);
    if body.is_some_and(|body| MORE.iter().any(|key| body.contains_key(*key))) {
        return None;
    }
    match &prompt.content {
        Content::Text(text) => tokenizer.count(text, false).ok(),
        Content::Messages(messages) => message_tokens(messages, tokenizer),
        Content::Ids(_) | Content::Images { .. } | Content::Audio(_) => None,
    }
}

/// Tokens of the text of messages; `None` if they hold more than text.
fn message_tokens(messages: &[serde_json::Value], tokenizer: &Tokenizer) -> Option<usize> {
    let count = |message: &serde_json::Value| {
        let is_call = message.get("tool_calls").is_some_and(|calls| !calls.is_null());
        let text = message["content"].as_str().filter(|_| !is_call)?;
        tokenizer.count(text, false).ok()
    };
    messages.iter().map(count).sum()
}

/// Adds the answer of the last round as the next round repeats it.
fn with_answer(
    history: ConversationHistory,
    request: &Request,
    tokenizer: &Tokenizer,
) -> ConversationHistory {
    let Some(text) = request.text.as_ref().filter(|_| !request.is_failed()) else {
        return history;
    };
    let text = text.read();
    let count = |text: &str| tokenizer.count(text, false).ok();
    // Tool calls are included in the count of the text, but are not repeated.
    let counted = request.counted_tokens.filter(|_| request.tool_text.is_none());
    let all = counted.map(|tokens| tokens as usize).or_else(|| count(&text));
    // Chat templates drop reasoning and trim white space.
    let answer = text
        .rsplit_once("</think>")
        .map_or(&*text, |(_, answer)| answer)
        .trim();
    let rest = match answer.len() == text.len() {
        true => all,
        false => count(answer),
    };
    let dropped = all.zip(rest).map_or(0, |(all, rest)| all.saturating_sub(rest));
    let reasoning = match request.counted_reasoning {
        Some(tokens) => tokens as usize,
        None if request.chunks.has_reasoning() => all.unwrap_or(0),
        None => 0,
    };
    ConversationHistory {
        tokens: history.tokens.zip(all).map(|(before, all)| before + all),
        omittable: history.omittable + dropped.max(reasoning),
        ..history
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::runner::answers::tests::request;

    /// A conversation of these turns.
    fn conversation(first: &str, later: &[&str]) -> Prompt {
        use crate::loadgen::dataset::Extras;
        let turn = |text: &&str| vec![serde_json::json!({"role": "user", "content": text})];
        Prompt {
            content: Content::Text(first.to_owned().into()),
            prompt_tokens: 3,
            output_tokens: 2,
            extras: Some(Arc::new(Extras {
                turns: Some(later.iter().map(turn).collect()),
                ..Extras::default()
            })),
        }
    }

    #[test]
    fn a_count_of_the_server_that_what_was_said_bears_out_is_that_of_a_round_and_another_one_is_not() {
        let prompts = [conversation(
            &"a".repeat(100),
            &[&"b".repeat(100), &"c".repeat(100)],
        )];
        let sent = |answer: &str, reported: [u32; 3]| {
            let mut requests: Vec<Request> = (0..)
                .zip(reported)
                .map(|(index, prompt)| {
                    let length = u32::try_from(answer.len()).unwrap();
                    let mut round = request(Some(answer), &[("a", length)]);
                    (round.index, round.round, round.prompt_tokens) = (index, Some(index), 100);
                    round.counted_tokens = Some(length);
                    round.usage = Some(crate::results::record::request::Usage {
                        prompt: Some(prompt),
                        ..Default::default()
                    });
                    round
                })
                .collect();
            count_rounds(&mut requests, &prompts, &Tokenizer::bytes());
            let sent: Vec<u32> = requests.iter().map(Request::prompt_sent).collect();
            sent
        };
        let answer = "d".repeat(100);
        assert_eq!(sent(&answer, [105, 320, 530]), [105, 320, 530], "with a template");
        assert_eq!(sent(&answer, [105, 105, 105]), [105, 300, 500], "no history");
        assert_eq!(
            sent(&answer, [105, 1600, 2650]),
            [105, 300, 500],
            "five times as many"
        );
        let thinking = format!("{}</think>\n\nd", "t".repeat(97));
        assert_eq!(
            sent(&thinking, [105, 210, 315]),
            [105, 210, 315],
            "reasoning is dropped"
        );
        assert_eq!(
            sent(&thinking, [105, 320, 530]),
            [105, 320, 530],
            "and where it is kept"
        );
    }

    #[test]
    fn rounds_without_a_count_hold_what_was_said_before() {
        let prompt = conversation("abc", &["de", "f"]);
        let mut requests = Vec::new();
        for index in 0..6 {
            let mut round = request(Some("xy"), &[("a", 2)]);
            (round.index, round.round, round.prompt_tokens) = (index, Some(index % 3), 3);
            round.counted_tokens = Some(2);
            requests.push(round);
        }
        count_rounds(&mut requests, &[prompt.clone(), prompt], &Tokenizer::bytes());
        let counted: Vec<u32> = requests.iter().map(Request::prompt_sent).collect();
        assert_eq!(counted, [3, 7, 10, 3, 7, 10]);
    }
}
