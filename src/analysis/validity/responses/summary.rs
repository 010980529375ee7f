//! Summarizes the content of answers.

use super::input::ONE_TOKEN_SHARE;
use super::prompts::counted_prompt;
use super::token_counts::ResponseTokens;
use crate::results::record::cell::AnswerStats;
use crate::results::record::request::Request;

/// Summarizes the content of the answers of a measurement.
pub(crate) fn summarize_answers(requests: &[Request]) -> AnswerStats {
    let mut answers = AnswerStats::default();
    for request in requests.iter().filter(|request| request.is_completed()) {
        if let Some(share) = request.uniform {
            answers.read += 1;
            answers.one_token += u32::from(share >= ONE_TOKEN_SHARE);
            answers.loops += u32::from(request.is_loop);
            answers.canned += u32::from(request.is_canned);
            answers.echoes += u32::from(request.echoes_prompt);
        }
        if let Some(tokens) = ResponseTokens::from_request(request) {
            answers.counted += 1;
            answers.reported_tokens += tokens.reported as u64;
            answers.counted_tokens += tokens.counted as u64;
            answers.events += tokens.events as u64;
        }
        if request.usage.is_some_and(|usage| usage.prompt.is_some()) {
            answers.prompts_reported += 1;
            answers.vision_tokens += u64::from(request.vision_tokens);
        }
        if let Some(prompt) = counted_prompt(request) {
            answers.prompts += 1;
            answers.prompt_tokens += u64::from(prompt.sent);
            answers.reported_prompt_tokens += u64::from(prompt.reported);
        }
    }
    answers
}
