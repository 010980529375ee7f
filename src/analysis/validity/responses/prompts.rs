//! Checks that prompts have the length that was sent.

use super::input::{MAX_OUTLIER_SHARE, Responses};
use crate::analysis::validity::reason::{new_reason, percent};
use crate::config::api::ServerTemplate;
use crate::config::dataset::PromptForm;
use crate::results::record::prompt::{CountedPrompt, MIN_COMPARED_TOKENS, SLACK_TOKENS, TEMPLATE_TOKENS};
use crate::results::record::request::Request;
use crate::results::record::validity::{Reason, ReasonCode, Verdict};

/// Fewest prompt tokens that an image needs. With fewer, the server did not process it.
const MIN_IMAGE_TOKENS: u32 = 4;

/// Returns `None` for prompts that cannot be compared: images and recordings have no known count.
pub(crate) fn counted_prompt(request: &Request) -> Option<CountedPrompt> {
    let reported = request.usage?.prompt?;
    if request.vision_tokens > 0 || request.audio.is_some() {
        return None;
    }
    if request.round.is_some() {
        return CountedPrompt::from_round(request);
    }
    let is_close = f64::from(reported.abs_diff(request.prompt_tokens)) <= SLACK_TOKENS;
    let sent = request
        .counted_prompt
        .or_else(|| is_close.then_some(request.prompt_tokens))?;
    Some(CountedPrompt {
        sent,
        reported,
        omittable: 0,
        extra_messages: 0,
    })
}

/// Reports that images add hardly any prompt tokens in the server's count, so the server may have ignored
/// them.
fn unread_images_reason(responses: &Responses<'_>) -> Option<Reason> {
    if responses.scenario.workload.facts().prompts != PromptForm::Pictures {
        return None;
    }
    let image_requests = responses
        .completed_requests()
        .filter(|request| request.usage.is_some_and(|usage| usage.prompt.is_some()));
    let tokens: Vec<u32> = image_requests.map(|request| request.vision_tokens).collect();
    let few = tokens.iter().filter(|tokens| **tokens < MIN_IMAGE_TOKENS).count();
    (few as f64 > MAX_OUTLIER_SHARE * tokens.len() as f64).then(|| {
        let mut reason = new_reason(
            ReasonCode::PromptTokensDisagree,
            format!(
                "in {few} of {} prompts with images, the images have fewer than {MIN_IMAGE_TOKENS} tokens by the server's count",
                tokens.len()
            ),
            Some(format!("{MIN_IMAGE_TOKENS} tokens")),
        );
        reason.weight = Verdict::Suspect;
        reason
    })
}

/// Reports answers with more cached tokens than their prompts have: one of the two counts is wrong.
fn impossible_cache_reason(responses: &Responses<'_>) -> Option<Reason> {
    let impossible: Vec<(u32, u32)> = responses
        .completed_requests()
        .filter(|request| request.cached_tokens().is_none())
        .filter_map(|request| {
            let usage = request.usage?;
            Some((
                usage.cached?,
                usage.prompt.unwrap_or_else(|| request.prompt_sent()),
            ))
        })
        .collect();
    let (cached, prompt) = impossible.first()?;
    let mut reason = new_reason(
        ReasonCode::PromptTokensDisagree,
        format!(
            "{} of {} answers report more cached tokens than their prompts have, for example {cached} cached tokens for a prompt of {prompt} tokens",
            impossible.len(),
            responses.completed_requests().count()
        ),
        Some("an answer must not report more cached tokens than its prompt has".to_owned()),
    );
    reason.weight = Verdict::Suspect;
    Some(reason)
}

/// Reports that the server counts less than half of the tokens of prompts whose exact number is unknown, because the
/// tokenizer is not the model's. That tokenizer may split a text from a file into far more tokens than the model's
/// does (other languages, program code), so only drawn texts are judged.
fn half_read_reason(responses: &Responses<'_>) -> Option<Reason> {
    let facts = responses.scenario.workload.facts();
    if facts.prompts != PromptForm::Text || facts.file.is_some() {
        return None;
    }
    let is_rough = |request: &&Request| {
        let is_text = request.vision_tokens == 0 && request.audio.is_none() && request.round.is_none();
        is_text && request.prompt_tokens >= MIN_COMPARED_TOKENS && counted_prompt(request).is_none()
    };
    let counts: Vec<[u64; 2]> = responses
        .completed_requests()
        .filter(is_rough)
        .filter_map(|request| Some([request.prompt_tokens, request.usage?.prompt?].map(u64::from)))
        .collect();
    let few = counts
        .iter()
        .filter(|[sent, reported]| 2 * reported < *sent)
        .count();
    if few as f64 <= MAX_OUTLIER_SHARE * counts.len() as f64 {
        return None;
    }
    let [sent, reported] = [0, 1].map(|side| counts.iter().map(|count| count[side]).sum::<u64>());
    let mut reason = new_reason(
        ReasonCode::PromptTokensDisagree,
        format!(
            "by the server's count, {few} of {} prompts have less than half of the tokens that were sent: the server counted {reported} tokens in total, but {sent} were sent by the count of the data set",
            counts.len()
        ),
        Some(format!(
            "the server must count at least half of the tokens of a prompt of {MIN_COMPARED_TOKENS} tokens or more"
        )),
    );
    reason.weight = Verdict::Suspect;
    Some(reason)
}

/// Reports prompts that are shorter or longer in the server's count. An engine that reads less than was sent
/// is fast for the wrong reason.
pub(crate) fn judge_prompts(responses: &Responses<'_>, reasons: &mut Vec<Reason>) {
    reasons.extend(unread_images_reason(responses).filter(|_| !responses.is_simulated));
    reasons.extend(impossible_cache_reason(responses));
    // The simulated engine has no tokenizer: of text it counts pieces.
    let is_text = !responses.scenario.workload.facts().sends_ids;
    if responses.is_simulated && is_text {
        return;
    }
    reasons.extend(half_read_reason(responses));
    let counted: Vec<CountedPrompt> = responses
        .completed_requests()
        .filter_map(counted_prompt)
        .collect();
    if counted.is_empty() {
        return;
    }
    let share = responses.bounds.prompt_tokens;
    let template = match responses.protocol.facts().template == ServerTemplate::Applied {
        true => TEMPLATE_TOKENS,
        false => 0.0,
    };
    let lower = counted.iter().filter(|prompt| prompt.is_fewer(share)).count();
    let higher = counted
        .iter()
        .filter(|prompt| prompt.is_more(share, template))
        .count();
    let stray = MAX_OUTLIER_SHARE * counted.len() as f64;
    let (count, word, weight) = match (lower as f64 > stray, higher as f64 > stray) {
        (true, _) => (lower, "shorter", Verdict::Invalid),
        (false, true) => (higher, "longer", Verdict::Suspect),
        (false, false) => return,
    };
    let sum =
        |tokens: fn(&CountedPrompt) -> u32| counted.iter().map(|prompt| u64::from(tokens(prompt))).sum();
    let (sent, reported): (u64, u64) = (sum(|prompt| prompt.sent), sum(|prompt| prompt.reported));
    let template = match template > 0.0 {
        true => format!("; for a chat template, the server may count {template} more tokens"),
        false => String::new(),
    };
    let bound = format!(
        "for each prompt, the server may count {} or {SLACK_TOKENS} tokens more or fewer than were sent, whichever is larger{template}",
        percent(share)
    );
    let mut reason = new_reason(
        ReasonCode::PromptTokensDisagree,
        format!(
            "by the server's count, {count} of {} prompts are {word} than the sent prompts: the server counted {reported} tokens in total, but {sent} were sent",
            counted.len()
        ),
        Some(bound),
    );
    reason.weight = weight;
    reasons.push(reason);
}
