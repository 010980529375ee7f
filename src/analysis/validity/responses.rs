//! Checks that responses match the requests: prompts have the length that was sent, answers the requested
//! length, and texts are not one token over and over.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::untimed::choice_count;
use super::{new_reason, percent};
use crate::analysis::metrics;
use crate::config::dataset::PromptForm;
use crate::config::scenario::Scenario;
use crate::config::validity::Bounds;
use crate::plan::Protocol;
use crate::results::record::cell::AnswerStats;
use crate::results::record::prompt::{CountedPrompt, SLACK_TOKENS, TEMPLATE_TOKENS};
use crate::results::record::request::{ChunkKind, Request, is_known_finish, is_limit_finish};
use crate::results::record::validity::{MetricFamily, Reason, ReasonCode, Verdict};

/// An answer repeats one token if that token makes up at least this share of it.
const ONE_TOKEN_SHARE: f64 = 0.9;

/// If at least this share of answers repeats one token, the engine computes nonsense. Smaller shares are left
/// to comparisons, because small models repeat themselves if they may not end.
const NONSENSE_SHARE: f64 = 0.5;

/// If at least this share of answers repeats one token, it is reported. The real engines of the tests repeat
/// one token in up to 3 of 100 answers.
const REPEATED_NOTE_SHARE: f64 = 0.05;

/// Such answers were not computed like the others if their time per token is below this share of that of the
/// others.
const QUICK_TIME_SHARE: f64 = 0.8;

/// Fewest quick answers that are reported. Fewer are quick by chance.
const MIN_QUICK_RESPONSES: usize = 5;

/// Share of prompts or answers that may be outside of a bound.
const MAX_OUTLIER_SHARE: f64 = 0.01;

/// Fewest prompt tokens that an image needs. With fewer, the server did not process it.
const MIN_IMAGE_TOKENS: u32 = 4;

/// Without usage, an answer ended early if our count is below this share of the requested tokens. Tokenizing
/// a text again gives a few percent more or fewer tokens.
const COUNTED_SHORT: f64 = 0.9;

/// The same if the server says that the answer ended at the requested length.
const COUNTED_SHORT_THOUGH_FULL: f64 = 0.5;

/// Without usage, an answer is too long if both our counts exceed the requested tokens by this factor.
const COUNTED_LONG: f64 = 1.25;

/// Factor by which the server's count must exceed both the events and our count of the text in most answers.
const MAX_COUNT_FACTOR: f64 = 1.05;

/// The same if answers continue beyond the end of text. Special tokens of the model then show no text.
const MAX_COUNT_FACTOR_BEYOND_END: f64 = 1.15;

/// The same if only some answers do so. Texts that are tokenized differently make single answers differ by
/// more.
const MAX_COUNT_FACTOR_IN_FEW: f64 = 1.5;

/// Share of all reported tokens that the surplus of these answers must reach to affect a metric.
const MIN_EXCESS_SHARE: f64 = 0.02;

/// The first event came ahead of the tokens if the gap after it is at least this many times the usual gap.
const EARLY_GAP_FACTOR: f64 = 3.0;

/// The same factor for the gap between the name of a tool and its first arguments, relative to the mean gap.
/// Parsers of tool calls hold back the tokens between them.
const TOOL_NAME_GAP_FACTOR: f64 = 16.0;

/// Several first events came ahead of the others if the wait after them is at least this many times the usual
/// gap.
const EARLY_GAP_FACTOR_OF_SEVERAL: f64 = 5.0;

/// Number of first events that may be equal in answers to different prompts.
const MAX_SHARED_FIRST_EVENTS: usize = 8;

/// Fields of a body that request text of a certain form.
const STRUCTURED_OUTPUT_FIELDS: [&str; 13] = [
    "documents",
    "ebnf",
    "functions",
    "grammar",
    "guided_choice",
    "guided_grammar",
    "guided_json",
    "guided_regex",
    "json_schema",
    "regex",
    "response_format",
    "structured_outputs",
    "tools",
];

/// Answers of at least this many tokens are equal for different prompts only if the prompts were not read.
const MIN_IDENTICAL_TOKENS: u32 = 16;

/// An answer that ended at a limit below this share of the requested tokens ended at the server's own limit.
const MAX_OWN_LIMIT_SHARE: f64 = 0.95;

/// If at least this share of answers is empty, it is reported.
const MAX_EMPTY_SHARE: f64 = 0.05;

/// This many leading white-space events are no tokens of the answer.
const MIN_BLANK_EVENTS: usize = 4;

/// Highest number of unknown finish reasons in a message.
const MAX_NAMED_ENDS: usize = 3;

/// Highest number of characters of each.
const MAX_END_CHARS: usize = 32;

/// Fewest answers that are judged. Fewer may be alike by chance.
const MIN_RESPONSES: usize = 8;

/// The responses of a server to a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Responses<'a> {
    pub requests: &'a [Request],
    pub scenario: &'a Scenario,
    /// Names of the model, beginning with the one in requests.
    pub names: &'a [&'a str],
    /// Models that the server lists, if it was asked.
    pub listed: &'a [String],
    pub protocol: Protocol,
    /// The simulated engine has no tokenizer.
    pub is_simulated: bool,
    pub bounds: &'a Bounds,
}

impl Responses<'_> {
    fn completed_requests(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| request.is_completed())
    }

    fn has_ttft_target(&self) -> bool {
        let slo = self.scenario.slo.as_ref();
        slo.is_some_and(|slo| slo.ttft.is_some())
    }
}

/// Judges the answers of a server by themselves.
pub(crate) fn response_reasons(responses: &Responses<'_>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    judge_prompts(responses, &mut reasons);
    if responses.protocol != Protocol::Embeddings {
        judge_lengths(responses, &mut reasons);
        reasons.extend(degenerate_reason(responses));
        judge_events(responses, &mut reasons);
        reasons.extend(early_start_reason(responses));
    }
    reasons
}

/// Token counts of an answer that both sides counted.
#[derive(Clone, Copy)]
pub(super) struct ResponseTokens {
    pub(super) reported: f64,
    pub(super) counted: f64,
    pub(super) events: f64,
}

impl ResponseTokens {
    /// Returns `None` if a count is missing or includes reasoning that no event showed.
    pub(super) fn from_request(request: &Request) -> Option<Self> {
        let reported = request.usage?.completion.filter(|tokens| *tokens > 0)?;
        let own = request.counted_tokens.filter(|tokens| *tokens > 0)?;
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
pub(super) fn excess_factor(requests: &[Request], scenario: &Scenario) -> Option<f64> {
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
pub(super) fn excess_reason(requests: &[Request], scenario: &Scenario) -> Option<Reason> {
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
            "{} of {} answers report more tokens than their text and events hold: {surplus} more in total, {} of the tokens",
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
fn judge_events(responses: &Responses<'_>, reasons: &mut Vec<Reason>) {
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
        blank => format!("; the first event of {blank} is only white space, and TTFT is measured to it"),
    };
    reasons.push(new_reason(
        ReasonCode::TokensDisagree,
        format!(
            "{} of {} answers have more events with text than tokens by the server's count ({event_count} events, {reported_tokens} tokens){blank}",
            more.len(),
            counted.len()
        ),
        Some("no more events than tokens in half of the answers".to_owned()),
    ));
}

/// Reports that most answers begin with the same number of events well ahead of the next one, so that TTFT is
/// measured to the wrong event. White space, or a word that does not depend on the prompt, does not come from
/// the model. For one other word it is unknown, because an engine may hand the request over after it. No
/// engine waits after two or more words.
fn early_start_reason(responses: &Responses<'_>) -> Option<Reason> {
    let firsts = FirstEvents::from_responses(responses);
    let judged: Vec<(&Request, ResponseStart)> = responses
        .completed_requests()
        .filter_map(|request| Some((request, ResponseStart::from_request(request, &firsts)?)))
        .filter(|(_, beginning)| *beginning != ResponseStart::Delayed)
        .collect();
    let mut places: BTreeMap<usize, Vec<&Request>> = BTreeMap::new();
    for (request, beginning) in &judged {
        if let ResponseStart::Early(place) = beginning {
            places.entry(*place).or_default().push(request);
        }
    }
    // Canned beginnings have the same length. Waits at various places are those of a busy engine.
    let most_frequent = places.into_iter().max_by_key(|(_, requests)| requests.len());
    let (place, ahead) = most_frequent.unwrap_or_default();
    if ahead.len() < MIN_RESPONSES || 2 * ahead.len() <= judged.len() {
        return identical_start_reason(responses);
    }
    let applies_to_most = |is_its: fn(&Request) -> bool| {
        2 * ahead.iter().filter(|request| is_its(request)).count() > ahead.len()
    };
    let (what, weight) = if applies_to_most(|request| request.blank_events > 0) {
        ("only white space".to_owned(), Verdict::Suspect)
    } else if applies_to_most(|request| request.common_events > 0) {
        ("the same event for every prompt".to_owned(), Verdict::Suspect)
    } else if place > 1 {
        (format!("{place} events"), Verdict::Suspect)
    } else {
        ("one event".to_owned(), Verdict::Valid)
    };
    let mut reason = new_reason(
        ReasonCode::FirstEventAhead,
        format!(
            "{} of {} answers begin with {what}, well before the next event",
            ahead.len(),
            judged.len()
        ),
        Some("half of the answers".to_owned()),
    );
    reason
        .only
        .extend(responses.has_ttft_target().then_some(MetricFamily::Goodput));
    reason.weight = weight;
    Some(reason)
}

/// Reports that answers to unrelated prompts begin with the same events, and with more of them than a model
/// would give. The prompt was then not read, at whatever pace they come. Text of a requested form may begin
/// alike.
fn identical_start_reason(responses: &Responses<'_>) -> Option<Reason> {
    let is_formed = |body: &Map<String, Value>| {
        body.keys()
            .any(|key| STRUCTURED_OUTPUT_FIELDS.contains(&key.as_str()))
    };
    let body = &responses.scenario.body;
    let nested = body.get("sampling_params").and_then(Value::as_object);
    if is_formed(body) || nested.is_some_and(is_formed) {
        return None;
    }
    let is_long = |request: &&Request| {
        let is_call = || request.chunks.iter().any(|chunk| chunk.kind == ChunkKind::Tool);
        let is_one_token = request.uniform.is_some_and(|share| share >= ONE_TOKEN_SHARE);
        request.common_events as usize > MAX_SHARED_FIRST_EVENTS
            && !(request.is_canned || request.is_loop || is_one_token || is_call())
    };
    let long = responses.completed_requests().filter(is_long).count();
    let total = responses.completed_requests().count();
    if long < MIN_RESPONSES || 2 * long <= total {
        return None;
    }
    let events = responses
        .completed_requests()
        .filter(is_long)
        .map(|request| request.common_events);
    let mut reason = new_reason(
        ReasonCode::FirstEventAhead,
        format!(
            "{long} of {total} answers begin with the same {} events, although their prompts have nothing in common",
            events.max().unwrap_or(0)
        ),
        Some(format!("{MAX_SHARED_FIRST_EVENTS} events in half of the answers")),
    );
    match responses.has_ttft_target() {
        true => reason.only.push(MetricFamily::Goodput),
        false => reason.weight = Verdict::Valid,
    }
    Some(reason)
}

struct FirstEvents {
    /// Their times, in order.
    times_ns: Vec<u64>,
    /// Median time from sending to the first event: an upper estimate of the time to read one prompt.
    ttft_ns: u64,
}

impl FirstEvents {
    fn from_responses(responses: &Responses<'_>) -> Self {
        let first = |request: &Request| Some((request.sent_ns?, request.chunks.first()?.at_ns));
        let (mut ttfts, mut moments): (Vec<u64>, Vec<u64>) = responses
            .completed_requests()
            .filter_map(first)
            .map(|(sent, at)| (at.saturating_sub(sent), at))
            .unzip();
        ttfts.sort_unstable();
        moments.sort_unstable();
        let ttft_ns = ttfts.get(ttfts.len() / 2).copied().unwrap_or(0);
        Self {
            times_ns: moments,
            ttft_ns,
        }
    }

    /// Returns whether an answer with a late second event was held up by other prompts: their first events
    /// came in the meantime, the last one shortly before, and reading them takes that long.
    fn delays(&self, begin: u64, own: u64, late: u64) -> bool {
        let at = |moment: u64| self.times_ns.partition_point(|first| *first <= moment);
        let meanwhile = at(own + late / 3).saturating_sub(at(begin)) as u64;
        let shortly = at(own + late / 3).saturating_sub(at(own.saturating_sub(late).max(begin)));
        shortly > 0 && meanwhile * self.ttft_ns + late >= own - begin
    }
}

/// How the beginning of an answer relates to the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseStart {
    Normal,
    /// The next event is late, and first events of other answers came shortly before it. The engine reads
    /// prompts first.
    Delayed,
    /// The event after this number of first events is late without an explanation. White space counts as one
    /// event.
    Early(usize),
}

impl ResponseStart {
    /// Returns `None` for answers that are too short.
    fn from_request(request: &Request, firsts: &FirstEvents) -> Option<Self> {
        let (moments, kinds): (Vec<u64>, Vec<ChunkKind>) = request
            .chunks
            .iter()
            .map(|chunk| (chunk.at_ns, chunk.kind))
            .unzip();
        let of_first = Self::from_first_event(request, &moments, &kinds, firsts)?;
        let is_open = of_first == Self::Normal && request.blank_events == 0;
        let of_several = || Self::from_several_events(request.sent_ns?, &moments, &kinds, firsts);
        let several = if is_open { of_several() } else { None };
        Some(several.unwrap_or(of_first))
    }

    /// Judges the first event, or the events that nearly all answers begin with.
    fn from_first_event(
        request: &Request,
        moments: &[u64],
        kinds: &[ChunkKind],
        firsts: &FirstEvents,
    ) -> Option<Self> {
        let blanks = request.blank_events as usize;
        let gap = |at: usize| moments[at].saturating_sub(moments[at - 1]);
        // Among the events that nearly all answers begin with, the model's own events start after the longest
        // wait.
        let lead = match (blanks, request.common_events as usize) {
            (0, common @ 2..) => (1..=common.min(moments.len().checked_sub(1)?))
                .rev()
                .max_by_key(|at| gap(*at))?,
            _ => blanks.max(1),
        };
        let rest = moments.get(lead..).filter(|rest| rest.len() > 1)?;
        let (begin, own) = match blanks {
            0 => (moments[lead - 1], rest[0]),
            _ => (moments[0], rest[0]),
        };
        let mut gaps: Vec<u64> = rest
            .windows(2)
            .map(|pair| pair[1].saturating_sub(pair[0]))
            .collect();
        gaps.sort_unstable();
        let mut late = (EARLY_GAP_FACTOR * gaps[gaps.len() / 2] as f64) as u64;
        let is_call = |at: usize| kinds.get(at) == Some(&ChunkKind::Tool);
        if is_call(lead - 1) || is_call(lead) {
            let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
            late = late.max((TOOL_NAME_GAP_FACTOR * mean) as u64);
        }
        if blanks >= MIN_BLANK_EVENTS {
            return Some(Self::Early(1));
        }
        // A model may begin with some white space at its own pace.
        if own.saturating_sub(begin) <= late * blanks.max(1) as u64 {
            return Some(Self::Normal);
        }
        let is_held_up = blanks == 0 && firsts.delays(begin, own, late);
        Some(match is_held_up {
            true => Self::Delayed,
            false => Self::Early(if blanks > 0 { 1 } else { lead }),
        })
    }

    /// Finds two or more first events, whatever their words, that came in less than half of the following
    /// wait, if this wait is longer than TTFT and far longer than the others. If several events come
    /// together, the usual waits are those between these groups.
    fn from_several_events(
        sent: u64,
        moments: &[u64],
        kinds: &[ChunkKind],
        firsts: &FirstEvents,
    ) -> Option<Self> {
        let gap = |at: usize| moments[at].saturating_sub(moments[at - 1]);
        // At least as many events must follow as came before.
        let max_events = MAX_SHARED_FIRST_EVENTS.min(moments.len().checked_sub(1)? / 2);
        let lead = (1..=max_events)
            .max_by_key(|at| gap(*at))
            .filter(|lead| *lead > 1)?;
        let (first, begin, own) = (moments[0], moments[lead - 1], moments[lead]);
        let mut gaps: Vec<u64> = (lead + 1..moments.len()).map(gap).collect();
        let mean = gaps.iter().sum::<u64>() as f64 / gaps.len().max(1) as f64;
        gaps.retain(|gap| 2.0 * *gap as f64 >= mean);
        gaps.sort_unstable();
        let usual = mean.max(*gaps.get(gaps.len() / 2)? as f64);
        // Parsers hold back what is between reasoning, text and tool calls.
        let is_one_kind = kinds[lead - 1] == kinds[lead] && kinds[lead] != ChunkKind::Tool;
        let times = if is_one_kind {
            EARLY_GAP_FACTOR_OF_SEVERAL
        } else {
            TOOL_NAME_GAP_FACTOR
        };
        let late = (times * usual) as u64;
        let wait = own.saturating_sub(begin);
        let is_ahead =
            wait > late && wait > first.saturating_sub(sent) && 2 * begin.saturating_sub(first) < wait;
        is_ahead.then(|| match firsts.delays(begin, own, late) {
            true => Self::Delayed,
            false => Self::Early(lead),
        })
    }
}

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

/// Returns `None` for prompts that cannot be compared: images have no known count.
fn counted_prompt(request: &Request) -> Option<CountedPrompt> {
    let reported = request.usage?.prompt?;
    if request.vision_tokens > 0 {
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

/// Reports prompts that are shorter or longer in the server's count. An engine that reads less than was sent
/// is fast for the wrong reason.
fn judge_prompts(responses: &Responses<'_>, reasons: &mut Vec<Reason>) {
    reasons.extend(unread_images_reason(responses).filter(|_| !responses.is_simulated));
    // The simulated engine has no tokenizer: of text it counts pieces.
    let is_text = !responses.scenario.workload.facts().sends_ids;
    if responses.is_simulated && is_text {
        return;
    }
    let counted: Vec<CountedPrompt> = responses
        .completed_requests()
        .filter_map(counted_prompt)
        .collect();
    if counted.is_empty() {
        return;
    }
    let share = responses.bounds.prompt_tokens;
    let template = match responses.protocol == Protocol::Chat {
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
        true => format!(", {template} more for a chat template"),
        false => String::new(),
    };
    let bound = format!(
        "{} or {SLACK_TOKENS} tokens of each prompt{template}",
        percent(share)
    );
    let mut reason = new_reason(
        ReasonCode::PromptTokensDisagree,
        format!(
            "{count} of {} prompts are {word} by the server's count: {reported} tokens in total, {sent} were sent",
            counted.len()
        ),
        Some(bound),
    );
    reason.weight = weight;
    reasons.push(reason);
}

/// Length of an answer relative to the requested length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Short,
    AsRequested,
    Long,
}

/// Returns the output tokens that the server reports, at the end or in an event.
pub(super) fn reported_tokens(request: &Request) -> Option<u32> {
    let in_events = || request.chunks.last_tokens();
    request
        .usage
        .and_then(|usage| usage.completion)
        .or_else(in_events)
}

/// Returns the length of an answer by the server's own count, or else by the events and by our count of the
/// text.
fn response_length(request: &Request) -> Option<(u32, Length)> {
    let requested = request.max_output_tokens();
    if let Some(reported) = reported_tokens(request) {
        // One additional token may be the end of text.
        let is_long =
            f64::from(reported) > f64::from(requested) + (MAX_OUTLIER_SHARE * f64::from(requested)).max(1.0);
        let length = match reported < requested {
            true => Length::Short,
            false if is_long => Length::Long,
            false => Length::AsRequested,
        };
        return Some((reported, length));
    }
    let own = request.counted_tokens?;
    let events = u32::try_from(request.chunks.len()).unwrap_or(u32::MAX);
    let min_share = match request.finish.as_deref() {
        Some("length") => COUNTED_SHORT_THOUGH_FULL,
        _ => COUNTED_SHORT,
    };
    let requested = f64::from(requested);
    let length = match () {
        () if f64::from(own.max(events)) < min_share * requested => Length::Short,
        () if f64::from(own.min(events)) > COUNTED_LONG * requested => Length::Long,
        () => Length::AsRequested,
    };
    Some((own, length))
}

/// Reports answers of the wrong length. Short answers improve latencies and reduce the load, long ones
/// improve throughput.
fn judge_lengths(responses: &Responses<'_>, reasons: &mut Vec<Reason>) {
    let answers: Vec<(u32, u32, Length)> = responses
        .completed_requests()
        .filter_map(|request| {
            let (tokens, length) = response_length(request)?;
            Some((tokens, request.max_output_tokens(), length))
        })
        .collect();
    let (received, requested) = answers
        .iter()
        .fold((0u64, 0u64), |(received, requested), (a, b, _)| {
            (received + u64::from(*a), requested + u64::from(*b))
        });
    let mut judge = |code: ReasonCode, what: Length, word: &str| {
        let count = answers.iter().filter(|(.., length)| *length == what).count();
        if count as f64 > responses.bounds.short_outputs * answers.len() as f64 {
            reasons.push(new_reason(
                code,
                format!(
                    "{count} of {} answers are {word}; {received} of {requested} tokens arrived",
                    answers.len()
                ),
                Some(format!(
                    "{} of the answers",
                    percent(responses.bounds.short_outputs)
                )),
            ));
        }
    };
    if !responses.scenario.stop_at_eos {
        judge(ReasonCode::OutputShort, Length::Short, "shorter than requested");
    }
    judge(ReasonCode::OutputLong, Length::Long, "longer than requested");
    if responses.scenario.stop_at_eos {
        reasons.extend(own_limit_reason(responses));
    }
    reasons.extend(unknown_ends_reason(responses));
    let done = responses.completed_requests().count();
    let empty = responses
        .completed_requests()
        .filter(|request| request.chunks.is_empty() && request.visible_tokens().unwrap_or(0) <= 1)
        .count();
    if responses.scenario.stop_at_eos && empty as f64 > MAX_EMPTY_SHARE * done as f64 {
        let measured = format!("{empty} of {done} answers are empty");
        let mut reason = new_reason(ReasonCode::OutputShort, measured, Some(percent(MAX_EMPTY_SHARE)));
        reason.weight = Verdict::Suspect;
        reasons.push(reason);
    }
    let total = responses.completed_requests().count();
    let uncounted = responses
        .completed_requests()
        .filter(|request| reported_tokens(request).is_none())
        .count();
    if uncounted as f64 > MAX_OUTLIER_SHARE * total as f64 {
        reasons.push(new_reason(
            ReasonCode::TokensUncounted,
            format!("{uncounted} of {total} answers have no token count"),
            Some("a token count in each".to_owned()),
        ));
    }
}

/// Reports that the server ends answers at a limit below the requested one, in scenarios in which the model
/// may end answers. The work is then less than requested. With several choices per answer, only one of them
/// may have reached the limit.
fn own_limit_reason(responses: &Responses<'_>) -> Option<Reason> {
    if choice_count(responses.scenario).is_some() {
        return None;
    }
    let is_limited = |request: &&Request| {
        let ended = request.finish.as_deref().is_some_and(is_limit_finish);
        let is_less = |(tokens, length): (u32, Length)| {
            // One missing token may be the end of text.
            let is_clear = f64::from(tokens) < MAX_OWN_LIMIT_SHARE * f64::from(request.max_output_tokens());
            length == Length::Short && is_clear && tokens + 1 < request.max_output_tokens()
        };
        ended && response_length(request).is_some_and(is_less)
    };
    let limited: Vec<&Request> = responses.completed_requests().filter(is_limited).collect();
    let total = responses.completed_requests().count();
    if limited.len() as f64 <= responses.bounds.short_outputs * total as f64 {
        return None;
    }
    let (received, requested) = limited
        .iter()
        .fold((0u64, 0u64), |(received, requested), request| {
            let tokens = response_length(request).map_or(0, |(tokens, _)| tokens);
            (
                received + u64::from(tokens),
                requested + u64::from(request.max_output_tokens()),
            )
        });
    Some(new_reason(
        ReasonCode::OutputShort,
        format!(
            "{} of {total} answers end at a limit of the server; they have {received} of {requested} requested tokens",
            limited.len()
        ),
        Some(format!(
            "{} of the answers",
            percent(responses.bounds.short_outputs)
        )),
    ))
}

/// Reports answers that end early for unknown reasons, because they may be cut. A server may have its own
/// word for the end of text, so it is a note unless other answers end early for known reasons.
fn unknown_ends_reason(responses: &Responses<'_>) -> Option<Reason> {
    let is_early =
        |request: &Request| response_length(request).is_none_or(|(_, length)| length == Length::Short);
    let mut words: BTreeMap<&str, usize> = BTreeMap::new();
    for request in responses.completed_requests().filter(|request| is_early(request)) {
        if let Some(finish) = request.finish.as_deref() {
            *words.entry(finish).or_default() += 1;
        }
    }
    let (known, unknown): (Vec<_>, Vec<_>) = words.into_iter().partition(|(word, _)| is_known_finish(word));
    let count: usize = unknown.iter().map(|(_, count)| count).sum();
    let total = responses.completed_requests().count();
    if count as f64 <= MAX_OUTLIER_SHARE * total as f64 {
        return None;
    }
    let named = unknown.iter().take(MAX_NAMED_ENDS).map(|(word, count)| {
        format!(
            "`{}` {count}",
            word.chars().take(MAX_END_CHARS).collect::<String>()
        )
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let mut reason = new_reason(
        ReasonCode::OutputShort,
        format!(
            "{count} of {total} answers ({}) end early for an unknown reason: {named}",
            percent(count as f64 / total as f64)
        ),
        Some(percent(MAX_OUTLIER_SHARE)),
    );
    reason.weight = match known.is_empty() {
        true => Verdict::Valid,
        false => Verdict::Suspect,
    };
    Some(reason)
}

/// Whether an answer is of a certain kind.
type ResponsePredicate = fn(&Request) -> bool;

/// When a small share of answers of a kind is reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReportRule {
    Always,
    /// If their tokens come faster than those of the others.
    IfQuick,
}

/// A kind of degenerate answers, and how common it is.
struct DegenerateKind {
    share: Option<f64>,
    count: u32,
    /// The sign of such an answer, for kinds that have a clear one. A small share of them is reported too.
    sign: Option<(ResponsePredicate, ReportRule)>,
    what: &'static str,
    of_each: String,
    weight: Verdict,
}

/// Reports degenerate answers. Weights that became NaN, or a kernel that returns nothing, give one token over
/// and over, and quickly. A server that echoes the prompt computes nothing.
fn degenerate_reason(responses: &Responses<'_>) -> Option<Reason> {
    let answers = summarize_answers(responses.requests);
    degenerate_kinds(responses, &answers)
        .iter()
        .find_map(|kind| kind.reason(responses, answers.read))
}

fn degenerate_kinds(responses: &Responses<'_>, answers: &AnswerStats) -> [DegenerateKind; 4] {
    let is_one_token: ResponsePredicate =
        |request| request.uniform.is_some_and(|share| share >= ONE_TOKEN_SHARE);
    let is_echo: ResponsePredicate = |request| request.uniform.is_some() && request.echoes_prompt;
    // Short answers may be equal for good reasons: a class, a refusal.
    let is_long: ResponsePredicate = |request| {
        request.is_canned
            && request
                .counted_tokens
                .is_some_and(|tokens| tokens >= MIN_IDENTICAL_TOKENS)
    };
    let canned = responses.completed_requests().filter(|request| request.is_canned);
    let long = responses.completed_requests().filter(|request| is_long(request));
    let are_long = 2 * long.count() >= canned.count();
    [
        DegenerateKind {
            share: answers.one_token_share(),
            count: answers.one_token,
            sign: Some((is_one_token, ReportRule::Always)),
            what: "are one token over and over",
            of_each: format!(", {} of each", percent(ONE_TOKEN_SHARE)),
            weight: Verdict::Invalid,
        },
        DegenerateKind {
            share: answers.echo_share(),
            count: answers.echoes,
            sign: Some((is_echo, ReportRule::Always)),
            what: "begin with their own prompt",
            of_each: String::new(),
            weight: Verdict::Invalid,
        },
        DegenerateKind {
            share: answers.canned_share(),
            count: answers.canned,
            sign: Some((is_long, ReportRule::IfQuick)),
            what: "are the same text for different prompts",
            of_each: String::new(),
            weight: match are_long {
                true => Verdict::Invalid,
                false => Verdict::Suspect,
            },
        },
        // A small model that may not end produces these as well.
        DegenerateKind {
            share: answers.loop_share(),
            count: answers.loops,
            sign: None,
            what: "are a loop of a few tokens",
            of_each: format!(", {} of each", percent(ONE_TOKEN_SHARE)),
            weight: Verdict::Suspect,
        },
    ]
}

impl DegenerateKind {
    /// Returns `None` if too few of the `read` answers are of this kind.
    fn reason(&self, responses: &Responses<'_>, read: u32) -> Option<Reason> {
        let min_share = match self.sign {
            Some(_) => REPEATED_NOTE_SHARE,
            None => NONSENSE_SHARE,
        };
        let share = self.share.filter(|share| *share >= min_share && self.count > 1)?;
        let bound = if share >= NONSENSE_SHARE {
            NONSENSE_SHARE
        } else {
            REPEATED_NOTE_SHARE
        };
        let measured = format!(
            "{} of {read} answers ({}) {}",
            self.count,
            percent(share),
            self.what
        );
        let bound = format!("{} of the answers{}", percent(bound), self.of_each);
        let mut reason = new_reason(ReasonCode::AnswersDegenerate, measured, Some(bound));
        reason.weight = self.weight;
        let Some((is_its, rule)) = self.sign.filter(|_| share < NONSENSE_SHARE) else {
            return Some(reason);
        };
        let quick = relative_token_time(responses, is_its).filter(|pace| *pace < QUICK_TIME_SHARE);
        let its = responses.completed_requests().filter(|request| is_its(request));
        let its = its.count();
        let are_few = its < MIN_QUICK_RESPONSES || (its as f64) < REPEATED_NOTE_SHARE * f64::from(read);
        if rule == ReportRule::IfQuick && (quick.is_none() || are_few) {
            return None;
        }
        reason.weight = match quick {
            Some(_) => Verdict::Suspect,
            None => Verdict::Valid,
        };
        if let Some(pace) = quick {
            reason.measured += &format!(
                ", and their tokens take {} of the time of the others",
                percent(pace)
            );
        }
        Some(reason)
    }
}

/// Returns the time per token of the quickest quarter of the answers of a kind, relative to that of all
/// others. `None` if either has no time. A cache repeats answers, so half of the equal answers may have been
/// computed. With speculative decoding one kind of answers may have more tokens per event and is not quicker.
/// So the ratio of the times per event counts if it is larger.
fn relative_token_time(responses: &Responses<'_>, is_its: ResponsePredicate) -> Option<f64> {
    // An answer that came at one moment has no TPOT.
    let whole = |request: &Request| {
        let took = request.chunks.last()?.at_ns.saturating_sub(request.sent_ns?);
        let tokens = reported_tokens(request).filter(|tokens| *tokens > 0)?;
        Some(took as f64 / 1e6 / f64::from(tokens))
    };
    let of_token = |request: &Request| metrics::tpot_ms(request).or_else(|| whole(request));
    let of_event = |request: &Request| {
        let Some(moments) = request
            .chunks
            .moments()
            .count
            .checked_sub(1)
            .filter(|gaps| *gaps > 0)
        else {
            return whole(request);
        };
        let (first, last) = (request.chunks.first()?, request.chunks.last()?);
        Some(last.at_ns.saturating_sub(first.at_ns) as f64 / 1e6 / moments as f64)
    };
    let quarter = |wanted: bool, time: &dyn Fn(&Request) -> Option<f64>| {
        let chosen = responses
            .completed_requests()
            .filter(|request| is_its(request) == wanted);
        let mut times: Vec<f64> = chosen.filter_map(time).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 4).copied()
    };
    let relative = |time: &dyn Fn(&Request) -> Option<f64>| {
        Some(quarter(true, time)? / quarter(false, time).filter(|time| *time > 0.0)?)
    };
    Some(relative(&of_token)?.max(relative(&of_event)?))
}
