//! Checks that the server's token counts match the text and the events of its answers.

use super::input::Responses;
use crate::analysis::validity::reason::{new_reason, percent};
use crate::config::scenario::Scenario;
use crate::results::record::request::{ChunkKind, Request};
use crate::results::record::validity::{Reason, ReasonCode, Verdict};

/// Factor by which the server's count must exceed both the events and our count of the text in most answers.
const MAX_COUNT_FACTOR: f64 = 1.05;

/// The same if answers continue beyond the end of text. Special tokens of the model then show no text.
const MAX_COUNT_FACTOR_BEYOND_END: f64 = 1.15;

/// The same if only some answers do so. Texts that are tokenized differently make single answers differ by
/// more.
const MAX_COUNT_FACTOR_IN_FEW: f64 = 1.5;

/// Share of all reported tokens that the surplus of these answers must reach to affect a metric.
const MIN_EXCESS_SHARE: f64 = 0.02;

/// Token counts of an answer that both sides counted.
#[derive(Clone, Copy)]
pub(crate) struct ResponseTokens {
    pub(crate) reported: f64,
    pub(crate) counted: f64,
    pub(crate) events: f64,
}

impl ResponseTokens {
    /// Returns `None` if a count is missing or includes reasoning that no event showed.
    pub(crate) fn from_request(request: &Request) -> Option<Self> {
        let reported = request.usage?.completion.filter(|tokens| *tokens > 0)?;
        let own = match request.chunks.is_empty() {
            // No event had any output.
            true => 0,
            false => request.counted_tokens.filter(|tokens| *tokens > 0)?,
        };
        (request.is_completed() && request.hidden_tokens() == 0).then(|| Self {
            reported: f64::from(reported),
            counted: f64::from(own),
            events: request.chunks.len() as f64,
        })
    }

    /// Returns whether more tokens are reported than text and events support. If events have several tokens
    /// each, the text decides.
    fn exceeds(&self, bound: f64) -> bool {
        let came = self.counted.max(self.events);
        self.reported > bound * came && self.reported - came >= 2.0
    }
}

/// Returns the factor above text and events by which most answers report more tokens. `None` if they do not.
pub(crate) fn excess_factor(requests: &[Request], scenario: &Scenario) -> Option<f64> {
    let bound = match scenario.stop_at_eos {
        true => MAX_COUNT_FACTOR,
        false => MAX_COUNT_FACTOR_BEYOND_END,
    };
    let counted: Vec<ResponseTokens> = requests.iter().filter_map(ResponseTokens::from_request).collect();
    let more = counted.iter().filter(|tokens| tokens.exceeds(bound)).count();
    (2 * more > counted.len()).then_some(bound)
}

/// Reports a minority of answers with far more tokens than text and events support, if this affects token
/// rates. If answers continue beyond the end of text, it is a note, because special tokens show no text.
pub(crate) fn excess_reason(requests: &[Request], scenario: &Scenario) -> Option<Reason> {
    let counted: Vec<ResponseTokens> = requests.iter().filter_map(ResponseTokens::from_request).collect();
    let more: Vec<&ResponseTokens> = counted
        .iter()
        .filter(|tokens| tokens.exceeds(MAX_COUNT_FACTOR_IN_FEW))
        .collect();
    let total: f64 = counted.iter().map(|tokens| tokens.reported).sum();
    let surplus: f64 = more
        .iter()
        .map(|tokens| tokens.reported - tokens.counted.max(tokens.events))
        .sum();
    if more.len() < 2 || surplus <= MIN_EXCESS_SHARE * total {
        return None;
    }
    let mut reason = new_reason(
        ReasonCode::TokensDisagree,
        format!(
            "{} of {} answers report more tokens than their text and events show: {surplus} too many in total, which is {} of all tokens",
            more.len(),
            counted.len(),
            percent(surplus / total)
        ),
        Some(format!("{} of the tokens", percent(MIN_EXCESS_SHARE))),
    );
    if !scenario.stop_at_eos {
        reason.weight = Verdict::Valid;
    }
    Some(reason)
}

/// Reports more events than tokens. A token comes in at most one event, so an additional event is no token
/// and may start the TTFT. Parsers of reasoning and of tool calls split tokens, so such answers are left out.
pub(crate) fn judge_events(responses: &Responses<'_>, reasons: &mut Vec<Reason>) {
    let is_plain = |request: &&Request| {
        let mut kinds = request.chunks.iter().map(|chunk| chunk.kind);
        kinds.all(|kind| kind == ChunkKind::Answer)
    };
    let counted: Vec<(u64, u64, bool)> = responses
        .completed_requests()
        .filter(is_plain)
        .filter_map(|request| {
            let reported = request.usage?.completion.filter(|tokens| *tokens > 0)?;
            Some((
                request.chunks.len() as u64,
                u64::from(reported),
                request.blank_events > 0,
            ))
        })
        .collect();
    let more: Vec<_> = counted
        .iter()
        .filter(|(events, reported, _)| events > reported)
        .collect();
    if 2 * more.len() <= counted.len() {
        return;
    }
    let (event_count, reported_tokens) = more.iter().fold(
        (0u64, 0u64),
        |(event_count, reported_tokens), (events, reported, _)| {
            (event_count + events, reported_tokens + reported)
        },
    );
    let blank = more.iter().filter(|(.., is_blank)| *is_blank).count();
    let blank = match blank {
        0 => String::new(),
        blank => format!(
            "; in {blank} of these answers the first event is only white space, and TTFT is measured to this event"
        ),
    };
    reasons.push(new_reason(
        ReasonCode::TokensDisagree,
        format!(
            "in {} of {} answers, there are more events with text than tokens ({event_count} events; the server counted {reported_tokens} tokens){blank}",
            more.len(),
            counted.len()
        ),
        Some("at least half of the answers must have no more events than tokens".to_owned()),
    ));
}
