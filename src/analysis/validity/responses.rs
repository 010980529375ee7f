//! Checks that responses match the requests: prompts have the length that was sent, answers the requested
//! length, and texts are not one token over and over.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::untimed::several_choices;
use super::{found, percent};
use crate::analysis::metrics;
use crate::config::dataset::PromptForm;
use crate::config::scenario::Scenario;
use crate::config::validity::Bounds;
use crate::plan::Protocol;
use crate::results::record::cell::Answers;
use crate::results::record::prompt::{CountedPrompt, FEW_TOKENS, TEMPLATE_TOKENS};
use crate::results::record::request::{ChunkKind, Request, is_known_end, is_limit_end};
use crate::results::record::validity::{Code, Family, Reason, Verdict};

/// An answer repeats one token if that token makes up at least this share of it.
const ONE_TOKEN: f64 = 0.9;

/// If at least this share of answers repeats one token, the engine computes nonsense. Smaller shares are left
/// to comparisons, because small models repeat themselves if they may not end.
const NONSENSE: f64 = 0.5;

/// If at least this share of answers repeats one token, it is reported. The real engines of the tests repeat
/// one token in up to 3 of 100 answers.
const REPEATED: f64 = 0.05;

/// Such answers were not computed like the others if their time per token is below this share of that of the
/// others.
const QUICK: f64 = 0.8;

/// Fewest quick answers that are reported. Fewer are quick by chance.
const FEW: usize = 5;

/// Share of prompts or answers that may be outside of a bound.
const STRAY: f64 = 0.01;

/// Fewest prompt tokens that an image needs. With fewer, the server did not process it.
const PICTURE_TOKENS: u32 = 4;

/// Without usage, an answer ended early if our count is below this share of the requested tokens. Tokenizing
/// a text again gives a few percent more or fewer tokens.
const COUNTED_SHORT: f64 = 0.9;

/// The same if the server says that the answer ended at the requested length.
const COUNTED_SHORT_THOUGH_FULL: f64 = 0.5;

/// Without usage, an answer is too long if both our counts exceed the requested tokens by this factor.
const COUNTED_LONG: f64 = 1.25;

/// Factor by which the server's count must exceed both the events and our count of the text in most answers.
const MORE: f64 = 1.05;

/// The same if answers continue beyond the end of text. Special tokens of the model then show no text.
const MORE_BEYOND_END: f64 = 1.15;

/// The same if only some answers do so. Texts that are tokenized differently make single answers differ by
/// more.
const MORE_IN_FEW: f64 = 1.5;

/// Share of all reported tokens that the surplus of these answers must reach to affect a metric.
const MATERIAL: f64 = 0.02;

/// The first event came ahead of the tokens if the gap after it is at least this many times the usual gap.
const AHEAD: f64 = 3.0;

/// The same factor for the gap between the name of a tool and its first arguments, relative to the mean gap.
/// Parsers of tool calls hold back the tokens between them.
const BEHIND_NAME: f64 = 16.0;

/// Several first events came ahead of the others if the wait after them is at least this many times the usual
/// gap.
const AHEAD_OF_SEVERAL: f64 = 5.0;

/// Number of first events that may be equal in answers to different prompts.
const OWN_BEGINNING: usize = 8;

/// Fields of a body that request text of a certain form.
const FORMS: [&str; 13] = [
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
const LONG: u32 = 16;

/// An answer that ended at a limit below this share of the requested tokens ended at the server's own limit.
const OWN_LIMIT: f64 = 0.95;

/// If at least this share of answers is empty, it is reported.
const EMPTY: f64 = 0.05;

/// This many leading white-space events are no tokens of the answer.
const MANY_BLANKS: usize = 4;

/// Highest number of unknown finish reasons in a message.
const ENDS: usize = 3;

/// Highest number of characters of each.
const ENDS_LENGTH: usize = 32;

/// Fewest answers that are judged. Fewer may be alike by chance.
const FEW_ANSWERS: usize = 8;

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
    fn completed(&self) -> impl Iterator<Item = &Request> {
        self.requests.iter().filter(|request| request.is_completed())
    }

    fn has_ttft_target(&self) -> bool {
        let slo = self.scenario.slo.as_ref();
        slo.is_some_and(|slo| slo.ttft.is_some())
    }
}

/// Judges the answers of a server by themselves.
pub(crate) fn of_responses(responses: &Responses<'_>) -> Vec<Reason> {
    let mut reasons = Vec::new();
    prompts(responses, &mut reasons);
    if responses.protocol != Protocol::Embeddings {
        lengths(responses, &mut reasons);
        degenerate(responses, &mut reasons);
        events(responses, &mut reasons);
        reasons.extend(beginnings(responses));
    }
    reasons
}

/// Token counts of an answer that both sides counted.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    pub(super) reported: f64,
    pub(super) own: f64,
    pub(super) events: f64,
}

impl Tokens {
    /// Returns `None` if a count is missing or includes reasoning that no event showed.
    pub(super) fn of(request: &Request) -> Option<Self> {
        let reported = request.usage?.completion.filter(|tokens| *tokens > 0)?;
        let own = request.counted_tokens.filter(|tokens| *tokens > 0)?;
        (request.is_completed() && request.hidden_tokens() == 0).then(|| Self {
            reported: f64::from(reported),
            own: f64::from(own),
            events: request.chunks.len() as f64,
        })
    }

    /// Returns whether more tokens are reported than text and events support. If events have several tokens
    /// each, the text decides.
    fn is_more(&self, bound: f64) -> bool {
        let came = self.own.max(self.events);
        self.reported > bound * came && self.reported - came >= 2.0
    }
}

/// Returns the factor above text and events by which most answers report more tokens. `None` if they do not.
pub(super) fn most_report_more(requests: &[Request], scenario: &Scenario) -> Option<f64> {
    let bound = match scenario.stop_at_eos {
        true => MORE,
        false => MORE_BEYOND_END,
    };
    let counted: Vec<Tokens> = requests.iter().filter_map(Tokens::of).collect();
    let more = counted.iter().filter(|tokens| tokens.is_more(bound)).count();
    (2 * more > counted.len()).then_some(bound)
}

/// Reports a minority of answers with far more tokens than text and events support, if this affects token
/// rates. If answers continue beyond the end of text, it is a note, because special tokens show no text.
pub(super) fn some_report_more(requests: &[Request], scenario: &Scenario) -> Option<Reason> {
    let counted: Vec<Tokens> = requests.iter().filter_map(Tokens::of).collect();
    let more: Vec<&Tokens> = counted
        .iter()
        .filter(|tokens| tokens.is_more(MORE_IN_FEW))
        .collect();
    let all: f64 = counted.iter().map(|tokens| tokens.reported).sum();
    let surplus: f64 = more
        .iter()
        .map(|tokens| tokens.reported - tokens.own.max(tokens.events))
        .sum();
    if more.len() < 2 || surplus <= MATERIAL * all {
        return None;
    }
    let mut reason = found(
        Code::TokensDisagree,
        format!(
            "{} of {} answers report more tokens than their text and events hold: {surplus} more in all, {} of the tokens",
            more.len(),
            counted.len(),
            percent(surplus / all)
        ),
        Some(format!("{} of the tokens", percent(MATERIAL))),
    );
    if !scenario.stop_at_eos {
        reason.weight = Verdict::Valid;
    }
    Some(reason)
}

/// Reports more events than tokens. A token comes in at most one event, so an additional event is no token
/// and may start the TTFT. Parsers of reasoning and of tool calls split tokens, so such answers are left out.
fn events(responses: &Responses<'_>, reasons: &mut Vec<Reason>) {
    let is_plain = |request: &&Request| {
        let mut kinds = request.chunks.iter().map(|chunk| chunk.kind);
        kinds.all(|kind| kind == ChunkKind::Answer)
    };
    let counted: Vec<(u64, u64, bool)> = responses
        .completed()
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
    let (came, told) = more
        .iter()
        .fold((0u64, 0u64), |(came, told), (events, reported, _)| {
            (came + events, told + reported)
        });
    let blank = more.iter().filter(|(.., is_blank)| *is_blank).count();
    let blank = match blank {
        0 => String::new(),
        blank => format!("; the first event of {blank} is white space alone, and TTFT is its moment"),
    };
    reasons.push(found(
        Code::TokensDisagree,
        format!(
            "{} of {} answers came in more events with text than the server counts tokens ({came} events, {told} tokens){blank}",
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
fn beginnings(responses: &Responses<'_>) -> Option<Reason> {
    let firsts = Firsts::of(responses);
    let judged: Vec<(&Request, Beginning)> = responses
        .completed()
        .filter_map(|request| Some((request, Beginning::of(request, &firsts)?)))
        .filter(|(_, beginning)| *beginning != Beginning::HeldUp)
        .collect();
    let mut places: BTreeMap<usize, Vec<&Request>> = BTreeMap::new();
    for (request, beginning) in &judged {
        if let Beginning::Ahead(place) = beginning {
            places.entry(*place).or_default().push(request);
        }
    }
    // Canned beginnings have the same length. Waits at various places are those of a busy engine.
    let most_frequent = places.into_iter().max_by_key(|(_, requests)| requests.len());
    let (place, ahead) = most_frequent.unwrap_or_default();
    if ahead.len() < FEW_ANSWERS || 2 * ahead.len() <= judged.len() {
        return long_beginnings(responses);
    }
    let most = |is_its: fn(&Request) -> bool| {
        2 * ahead.iter().filter(|request| is_its(request)).count() > ahead.len()
    };
    let (what, weight) = if most(|request| request.blank_events > 0) {
        ("white space alone".to_owned(), Verdict::Suspect)
    } else if most(|request| request.common_events > 0) {
        ("the same event whatever the prompt".to_owned(), Verdict::Suspect)
    } else if place > 1 {
        (format!("{place} events"), Verdict::Suspect)
    } else {
        ("an event".to_owned(), Verdict::Valid)
    };
    let mut reason = found(
        Code::FirstEventAhead,
        format!(
            "{} of {} answers begin with {what}, well ahead of the next one",
            ahead.len(),
            judged.len()
        ),
        Some("half of the answers".to_owned()),
    );
    reason
        .only
        .extend(responses.has_ttft_target().then_some(Family::Goodput));
    reason.weight = weight;
    Some(reason)
}

/// Reports that answers to unrelated prompts begin with the same events, and with more of them than a model
/// would give. The prompt was then not read, at whatever pace they come. Text of a requested form may begin
/// alike.
fn long_beginnings(responses: &Responses<'_>) -> Option<Reason> {
    let is_formed = |body: &Map<String, Value>| body.keys().any(|key| FORMS.contains(&key.as_str()));
    let body = &responses.scenario.body;
    let nested = body.get("sampling_params").and_then(Value::as_object);
    if is_formed(body) || nested.is_some_and(is_formed) {
        return None;
    }
    let is_long = |request: &&Request| {
        let is_call = || request.chunks.iter().any(|chunk| chunk.kind == ChunkKind::Tool);
        let is_one_token = request.uniform.is_some_and(|share| share >= ONE_TOKEN);
        request.common_events as usize > OWN_BEGINNING
            && !(request.is_canned || request.is_loop || is_one_token || is_call())
    };
    let long = responses.completed().filter(is_long).count();
    let all = responses.completed().count();
    if long < FEW_ANSWERS || 2 * long <= all {
        return None;
    }
    let events = responses
        .completed()
        .filter(is_long)
        .map(|request| request.common_events);
    let mut reason = found(
        Code::FirstEventAhead,
        format!(
            "{long} of {all} answers begin with the same {} events, though their prompts have nothing in common",
            events.max().unwrap_or(0)
        ),
        Some(format!("{OWN_BEGINNING} events in half of the answers")),
    );
    match responses.has_ttft_target() {
        true => reason.only.push(Family::Goodput),
        false => reason.weight = Verdict::Valid,
    }
    Some(reason)
}

struct Firsts {
    /// Their times, in order.
    moments: Vec<u64>,
    /// Median time from sending to the first event: an upper estimate of the time to read one prompt.
    ttft_ns: u64,
}

impl Firsts {
    fn of(responses: &Responses<'_>) -> Self {
        let first = |request: &Request| Some((request.sent_ns?, request.chunks.first()?.at_ns));
        let (mut ttfts, mut moments): (Vec<u64>, Vec<u64>) = responses
            .completed()
            .filter_map(first)
            .map(|(sent, at)| (at.saturating_sub(sent), at))
            .unzip();
        ttfts.sort_unstable();
        moments.sort_unstable();
        let ttft_ns = ttfts.get(ttfts.len() / 2).copied().unwrap_or(0);
        Self { moments, ttft_ns }
    }

    /// Returns whether an answer with a late second event was held up by other prompts: their first events
    /// came in the meantime, the last one shortly before, and reading them takes that long.
    fn hold_up(&self, begin: u64, own: u64, late: u64) -> bool {
        let at = |moment: u64| self.moments.partition_point(|first| *first <= moment);
        let meanwhile = at(own + late / 3).saturating_sub(at(begin)) as u64;
        let shortly = at(own + late / 3).saturating_sub(at(own.saturating_sub(late).max(begin)));
        shortly > 0 && meanwhile * self.ttft_ns + late >= own - begin
    }
}

/// How the beginning of an answer relates to the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    Usual,
    /// The next event is late, and first events of other answers came shortly before it. The engine reads
    /// prompts first.
    HeldUp,
    /// The event after this number of first events is late without an explanation. White space counts as one
    /// event.
    Ahead(usize),
}

impl Beginning {
    /// Returns `None` for answers that are too short.
    fn of(request: &Request, firsts: &Firsts) -> Option<Self> {
        let (moments, kinds): (Vec<u64>, Vec<ChunkKind>) = request
            .chunks
            .iter()
            .map(|chunk| (chunk.at_ns, chunk.kind))
            .unzip();
        let of_first = Self::of_first(request, &moments, &kinds, firsts)?;
        let is_open = of_first == Self::Usual && request.blank_events == 0;
        let of_several = || Self::of_several(request.sent_ns?, &moments, &kinds, firsts);
        let several = if is_open { of_several() } else { None };
        Some(several.unwrap_or(of_first))
    }

    /// Judges the first event, or the events that nearly all answers begin with.
    fn of_first(request: &Request, moments: &[u64], kinds: &[ChunkKind], firsts: &Firsts) -> Option<Self> {
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
        let mut late = (AHEAD * gaps[gaps.len() / 2] as f64) as u64;
        let is_call = |at: usize| kinds.get(at) == Some(&ChunkKind::Tool);
        if is_call(lead - 1) || is_call(lead) {
            let mean = gaps.iter().sum::<u64>() as f64 / gaps.len() as f64;
            late = late.max((BEHIND_NAME * mean) as u64);
        }
        if blanks >= MANY_BLANKS {
            return Some(Self::Ahead(1));
        }
        // A model may begin with some white space at its own pace.
        if own.saturating_sub(begin) <= late * blanks.max(1) as u64 {
            return Some(Self::Usual);
        }
        let is_held_up = blanks == 0 && firsts.hold_up(begin, own, late);
        Some(match is_held_up {
            true => Self::HeldUp,
            false => Self::Ahead(if blanks > 0 { 1 } else { lead }),
        })
    }

    /// Finds two or more first events, whatever their words, that came in less than half of the following
    /// wait, if this wait is longer than TTFT and far longer than the others. If several events come
    /// together, the usual waits are those between these groups.
    fn of_several(sent: u64, moments: &[u64], kinds: &[ChunkKind], firsts: &Firsts) -> Option<Self> {
        let gap = |at: usize| moments[at].saturating_sub(moments[at - 1]);
        // At least as many events must follow as came before.
        let most = OWN_BEGINNING.min(moments.len().checked_sub(1)? / 2);
        let lead = (1..=most).max_by_key(|at| gap(*at)).filter(|lead| *lead > 1)?;
        let (first, begin, own) = (moments[0], moments[lead - 1], moments[lead]);
        let mut gaps: Vec<u64> = (lead + 1..moments.len()).map(gap).collect();
        let mean = gaps.iter().sum::<u64>() as f64 / gaps.len().max(1) as f64;
        gaps.retain(|gap| 2.0 * *gap as f64 >= mean);
        gaps.sort_unstable();
        let usual = mean.max(*gaps.get(gaps.len() / 2)? as f64);
        // Parsers hold back what is between reasoning, text and tool calls.
        let is_one_kind = kinds[lead - 1] == kinds[lead] && kinds[lead] != ChunkKind::Tool;
        let times = if is_one_kind {
            AHEAD_OF_SEVERAL
        } else {
            BEHIND_NAME
        };
        let late = (times * usual) as u64;
        let wait = own.saturating_sub(begin);
        let is_ahead =
            wait > late && wait > first.saturating_sub(sent) && 2 * begin.saturating_sub(first) < wait;
        is_ahead.then(|| match firsts.hold_up(begin, own, late) {
            true => Self::HeldUp,
            false => Self::Ahead(lead),
        })
    }
}

/// Summarizes the content of the answers of a measurement.
pub(crate) fn answers(requests: &[Request]) -> Answers {
    let mut answers = Answers::default();
    for request in requests.iter().filter(|request| request.is_completed()) {
        if let Some(share) = request.uniform {
            answers.read += 1;
            answers.one_token += u32::from(share >= ONE_TOKEN);
            answers.loops += u32::from(request.is_loop);
            answers.canned += u32::from(request.is_canned);
            answers.echoes += u32::from(request.echoes_prompt);
        }
        if let Some(tokens) = Tokens::of(request) {
            answers.counted += 1;
            answers.reported_tokens += tokens.reported as u64;
            answers.counted_tokens += tokens.own as u64;
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
        return CountedPrompt::of_round(request);
    }
    let is_close = f64::from(reported.abs_diff(request.prompt_tokens)) <= FEW_TOKENS;
    let sent = request
        .counted_prompt
        .or_else(|| is_close.then_some(request.prompt_tokens))?;
    Some(CountedPrompt {
        sent,
        reported,
        omittable: 0,
        further: 0,
    })
}

/// Reports that images add hardly any prompt tokens in the server's count, so the server may have ignored
/// them.
fn pictures(responses: &Responses<'_>) -> Option<Reason> {
    if responses.scenario.workload.facts().prompts != PromptForm::Pictures {
        return None;
    }
    let told = responses
        .completed()
        .filter(|request| request.usage.is_some_and(|usage| usage.prompt.is_some()));
    let tokens: Vec<u32> = told.map(|request| request.vision_tokens).collect();
    let few = tokens.iter().filter(|tokens| **tokens < PICTURE_TOKENS).count();
    (few as f64 > STRAY * tokens.len() as f64).then(|| {
        let mut reason = found(
            Code::PromptTokensDisagree,
            format!(
                "in {few} of {} prompts with pictures fewer than {PICTURE_TOKENS} tokens stand for these, by the server's count",
                tokens.len()
            ),
            Some(format!("{PICTURE_TOKENS} tokens")),
        );
        reason.weight = Verdict::Suspect;
        reason
    })
}

/// Reports prompts that are shorter or longer in the server's count. An engine that reads less than was sent
/// is fast for the wrong reason.
fn prompts(responses: &Responses<'_>, reasons: &mut Vec<Reason>) {
    reasons.extend(pictures(responses).filter(|_| !responses.is_simulated));
    // The simulated engine has no tokenizer: of text it counts pieces.
    let is_text = !responses.scenario.workload.facts().sends_ids;
    if responses.is_simulated && is_text {
        return;
    }
    let counted: Vec<CountedPrompt> = responses.completed().filter_map(counted_prompt).collect();
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
    let stray = STRAY * counted.len() as f64;
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
        "{} or {FEW_TOKENS} tokens of each prompt{template}",
        percent(share)
    );
    let mut reason = found(
        Code::PromptTokensDisagree,
        format!(
            "{count} of {} prompts are {word} by the server's count: {reported} tokens in all, {sent} were sent",
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
    AsAsked,
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
fn length(request: &Request) -> Option<(u32, Length)> {
    let asked = request.limit();
    if let Some(reported) = reported_tokens(request) {
        // One additional token may be the end of text.
        let is_long = f64::from(reported) > f64::from(asked) + (STRAY * f64::from(asked)).max(1.0);
        let length = match reported < asked {
            true => Length::Short,
            false if is_long => Length::Long,
            false => Length::AsAsked,
        };
        return Some((reported, length));
    }
    let own = request.counted_tokens?;
    let events = u32::try_from(request.chunks.len()).unwrap_or(u32::MAX);
    let least = match request.finish.as_deref() {
        Some("length") => COUNTED_SHORT_THOUGH_FULL,
        _ => COUNTED_SHORT,
    };
    let asked = f64::from(asked);
    let length = match () {
        () if f64::from(own.max(events)) < least * asked => Length::Short,
        () if f64::from(own.min(events)) > COUNTED_LONG * asked => Length::Long,
        () => Length::AsAsked,
    };
    Some((own, length))
}

/// Reports answers of the wrong length. Short answers improve latencies and reduce the load, long ones
/// improve throughput.
fn lengths(responses: &Responses<'_>, reasons: &mut Vec<Reason>) {
    let answers: Vec<(u32, u32, Length)> = responses
        .completed()
        .filter_map(|request| {
            let (tokens, length) = length(request)?;
            Some((tokens, request.limit(), length))
        })
        .collect();
    let (came, asked) = answers.iter().fold((0u64, 0u64), |(came, asked), (a, b, _)| {
        (came + u64::from(*a), asked + u64::from(*b))
    });
    let mut judge = |code: Code, what: Length, word: &str| {
        let count = answers.iter().filter(|(.., length)| *length == what).count();
        if count as f64 > responses.bounds.short_outputs * answers.len() as f64 {
            reasons.push(found(
                code,
                format!(
                    "{count} of {} answers are {word}; {came} of {asked} tokens came",
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
        judge(Code::OutputShort, Length::Short, "shorter than asked");
    }
    judge(Code::OutputLong, Length::Long, "longer than asked");
    if responses.scenario.stop_at_eos {
        reasons.extend(own_limit(responses));
    }
    reasons.extend(unknown_ends(responses));
    let done = responses.completed().count();
    let empty = responses
        .completed()
        .filter(|request| request.chunks.is_empty() && request.visible_tokens().unwrap_or(0) <= 1)
        .count();
    if responses.scenario.stop_at_eos && empty as f64 > EMPTY * done as f64 {
        let measured = format!("{empty} of {done} answers are empty");
        let mut reason = found(Code::OutputShort, measured, Some(percent(EMPTY)));
        reason.weight = Verdict::Suspect;
        reasons.push(reason);
    }
    let all = responses.completed().count();
    let uncounted = responses
        .completed()
        .filter(|request| reported_tokens(request).is_none())
        .count();
    if uncounted as f64 > STRAY * all as f64 {
        reasons.push(found(
            Code::TokensUncounted,
            format!("{uncounted} of {all} answers came without a count"),
            Some("a count with each".to_owned()),
        ));
    }
}

/// Reports that the server ends answers at a limit below the requested one, in scenarios in which the model
/// may end answers. The work is then less than requested. With several choices per answer, only one of them
/// may have reached the limit.
fn own_limit(responses: &Responses<'_>) -> Option<Reason> {
    if several_choices(responses.scenario).is_some() {
        return None;
    }
    let is_limited = |request: &&Request| {
        let ended = request.finish.as_deref().is_some_and(is_limit_end);
        let is_less = |(tokens, length): (u32, Length)| {
            // One missing token may be the end of text.
            let is_clear = f64::from(tokens) < OWN_LIMIT * f64::from(request.limit());
            length == Length::Short && is_clear && tokens + 1 < request.limit()
        };
        ended && length(request).is_some_and(is_less)
    };
    let limited: Vec<&Request> = responses.completed().filter(is_limited).collect();
    let all = responses.completed().count();
    if limited.len() as f64 <= responses.bounds.short_outputs * all as f64 {
        return None;
    }
    let (came, asked) = limited.iter().fold((0u64, 0u64), |(came, asked), request| {
        let tokens = length(request).map_or(0, |(tokens, _)| tokens);
        (came + u64::from(tokens), asked + u64::from(request.limit()))
    });
    Some(found(
        Code::OutputShort,
        format!(
            "{} of {all} answers end at a limit of the server's own; {came} of {asked} tokens came in them",
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
fn unknown_ends(responses: &Responses<'_>) -> Option<Reason> {
    let is_early = |request: &Request| length(request).is_none_or(|(_, length)| length == Length::Short);
    let mut words: BTreeMap<&str, usize> = BTreeMap::new();
    for request in responses.completed().filter(|request| is_early(request)) {
        if let Some(finish) = request.finish.as_deref() {
            *words.entry(finish).or_default() += 1;
        }
    }
    let (known, unknown): (Vec<_>, Vec<_>) = words.into_iter().partition(|(word, _)| is_known_end(word));
    let count: usize = unknown.iter().map(|(_, count)| count).sum();
    let all = responses.completed().count();
    if count as f64 <= STRAY * all as f64 {
        return None;
    }
    let named = unknown
        .iter()
        .take(ENDS)
        .map(|(word, count)| format!("`{}` {count}", word.chars().take(ENDS_LENGTH).collect::<String>()));
    let named = named.collect::<Vec<_>>().join(", ");
    let mut reason = found(
        Code::OutputShort,
        format!(
            "{count} of {all} answers ({}) end early for a reason that is not known: {named}",
            percent(count as f64 / all as f64)
        ),
        Some(percent(STRAY)),
    );
    reason.weight = match known.is_empty() {
        true => Verdict::Valid,
        false => Verdict::Suspect,
    };
    Some(reason)
}

/// Whether an answer is of a certain kind.
type IsIts = fn(&Request) -> bool;

/// When a small share of answers of a kind is reported.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Always,
    /// If their tokens come faster than those of the others.
    IfQuick,
}

/// Reports degenerate answers. Weights that became NaN, or a kernel that returns nothing, give one token over
/// and over, and quickly. A server that echoes the prompt computes nothing.
fn degenerate(responses: &Responses<'_>, reasons: &mut Vec<Reason>) {
    let answers = answers(responses.requests);
    let is_one_token: IsIts = |request| request.uniform.is_some_and(|share| share >= ONE_TOKEN);
    let is_echo: IsIts = |request| request.uniform.is_some() && request.echoes_prompt;
    // Short answers may be equal for good reasons: a class, a refusal.
    let is_long: IsIts =
        |request| request.is_canned && request.counted_tokens.is_some_and(|tokens| tokens >= LONG);
    let canned = responses.completed().filter(|request| request.is_canned);
    let long = responses.completed().filter(|request| is_long(request));
    let are_long = 2 * long.count() >= canned.count();
    // For kinds with a clear sign, a small share is reported too, either always or if these answers are
    // quick.
    let kinds: [(_, _, Option<(IsIts, Named)>, _, _, _); 4] = [
        (
            answers.one_token_share(),
            answers.one_token,
            Some((is_one_token, Named::Always)),
            "are one token over and over",
            format!(", {} of each", percent(ONE_TOKEN)),
            Verdict::Invalid,
        ),
        (
            answers.echo_share(),
            answers.echoes,
            Some((is_echo, Named::Always)),
            "begin with their own prompt",
            String::new(),
            Verdict::Invalid,
        ),
        (
            answers.canned_share(),
            answers.canned,
            Some((is_long, Named::IfQuick)),
            "are the same text for different prompts",
            String::new(),
            if are_long {
                Verdict::Invalid
            } else {
                Verdict::Suspect
            },
        ),
        // A small model that may not end produces these as well.
        (
            answers.loop_share(),
            answers.loops,
            None,
            "are a loop of a few tokens",
            format!(", {} of each", percent(ONE_TOKEN)),
            Verdict::Suspect,
        ),
    ];
    for (share, count, is_its, what, of_each, weight) in kinds {
        let least = if is_its.is_some() { REPEATED } else { NONSENSE };
        let Some(share) = share.filter(|share| *share >= least && count > 1) else {
            continue;
        };
        let bound = if share >= NONSENSE { NONSENSE } else { REPEATED };
        let few = |is_its: IsIts| {
            let its = responses.completed().filter(|request| is_its(request)).count();
            its < FEW || (its as f64) < REPEATED * f64::from(answers.read)
        };
        let measured = format!("{count} of {} answers ({}) {what}", answers.read, percent(share));
        let bound = format!("{} of the answers{of_each}", percent(bound));
        let mut reason = found(Code::AnswersDegenerate, measured, Some(bound));
        reason.weight = weight;
        if let Some((is_its, named)) = is_its.filter(|_| share < NONSENSE) {
            let quick = pace(responses, is_its).filter(|pace| *pace < QUICK);
            if named == Named::IfQuick && (quick.is_none() || few(is_its)) {
                continue;
            }
            reason.weight = if quick.is_some() {
                Verdict::Suspect
            } else {
                Verdict::Valid
            };
            if let Some(pace) = quick {
                reason.measured += &format!(
                    ", and their tokens take {} of the time of the others",
                    percent(pace)
                );
            }
        }
        reasons.push(reason);
        return;
    }
}

/// Returns the time per token of the quickest quarter of the answers of a kind, relative to that of all
/// others. `None` if either has no time. A cache repeats answers, so half of the equal answers may have been
/// computed. With speculative decoding one kind of answers may have more tokens per event and is not quicker.
/// So the ratio of the times per event counts if it is larger.
fn pace(responses: &Responses<'_>, is_its: IsIts) -> Option<f64> {
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
        let chosen = responses.completed().filter(|request| is_its(request) == wanted);
        let mut times: Vec<f64> = chosen.filter_map(time).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 4).copied()
    };
    let relative = |time: &dyn Fn(&Request) -> Option<f64>| {
        Some(quarter(true, time)? / quarter(false, time).filter(|time| *time > 0.0)?)
    };
    Some(relative(&of_token)?.max(relative(&of_event)?))
}
