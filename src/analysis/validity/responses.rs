//! Do the responses hold what was asked for: prompts as long as they were sent, answers as long as they were asked for, and text that
//! is more than one token over and over.

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

/// The share of an answer that is one token from which on it is nothing but that token.
const ONE_TOKEN: f64 = 0.9;

/// The share of answers that are one token from which on the engine computes nonsense. Below it that is left to comparisons: small
/// models that may not end repeat themselves.
const NONSENSE: f64 = 0.5;

/// The share of answers that are one token from which on that is told. The real engines of the tests repeat one token in up to 3 of 100.
const REPEATED: f64 = 0.05;

/// Answers that are one token and whose tokens take less than this share of the time of those of the others were not computed as those were.
const QUICK: f64 = 0.8;

/// Fewer answers that are quick by chance are not named.
const FEW: usize = 5;

/// The share of prompts or answers that may lie outside of a bound.
const STRAY: f64 = 0.01;

/// Fewer prompt tokens than these stand for no picture that was looked at.
const PICTURE_TOKENS: u32 = 4;

/// Without usage an answer ended early if our counts come to less than this share of what was asked for. Text splits again into a
/// few percent more or fewer tokens than made it.
const COUNTED_SHORT: f64 = 0.9;

/// The same where the server says that the length that was asked for ended the answer.
const COUNTED_SHORT_THOUGH_FULL: f64 = 0.5;

/// Without usage an answer is too long if both our counts exceed what was asked for by this factor.
const COUNTED_LONG: f64 = 1.25;

/// By how much the server's count must exceed both the events and our count of the text, in most answers, to be doubted.
const MORE: f64 = 1.05;

/// The same where answers go on beyond the end of text: the special tokens that a model says then show no text.
const MORE_BEYOND_END: f64 = 1.15;

/// The same where few answers do so: with text that is cut into tokens otherwise, single ones are off by more.
const MORE_IN_FEW: f64 = 1.5;

/// The share of all reported tokens that such answers have too many from which on it moves a figure.
const MATERIAL: f64 = 0.02;

/// How many times longer than usual the gap after the first event is, where that event comes ahead of the tokens.
const AHEAD: f64 = 3.0;

/// How many times the mean gap it is between the name of a tool and its first arguments: parsers of tool calls keep back the tokens between.
const BEHIND_NAME: f64 = 16.0;

/// How many times longer than usual the wait behind several first events is, where these come ahead of the others.
const AHEAD_OF_SEVERAL: f64 = 5.0;

/// So many first events may be the same in answers of a model that read different prompts.
const OWN_BEGINNING: usize = 8;

/// Fields of a body that ask for text of a certain form.
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

/// Answers of so many tokens are the same to different prompts only where these were not read.
const LONG: u32 = 16;

/// An answer that the server ends at the limit ended at a limit of the server's own below this share of the tokens that were asked for.
const OWN_LIMIT: f64 = 0.95;

/// The share of answers without anything in them from which on they are told.
const EMPTY: f64 = 0.05;

/// So many events of white space before anything else are no tokens of an answer.
const MANY_BLANKS: usize = 4;

/// So many reasons that are not known are named.
const ENDS: usize = 3;

/// So many characters of each.
const ENDS_LENGTH: usize = 32;

/// Fewer answers than this may do something alike by accident.
const FEW_ANSWERS: usize = 8;

/// What a server answered to a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Responses<'a> {
    /// A record of each request.
    pub requests: &'a [Request],
    pub scenario: &'a Scenario,
    /// Names of the model, first that which requests ask for.
    pub names: &'a [&'a str],
    /// The models that the server lists, where it was asked.
    pub listed: &'a [String],
    /// How the server is spoken to.
    pub protocol: Protocol,
    /// Whether it is the simulated engine, which has no tokenizer.
    pub is_simulated: bool,
    /// From where on answers are doubted.
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

/// What speaks against the answers of a server, by themselves.
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

/// An answer whose tokens both sides counted.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    pub(super) reported: f64,
    pub(super) own: f64,
    pub(super) events: f64,
}

impl Tokens {
    /// `None` where one of the counts is missing, or holds reasoning that no event showed.
    pub(super) fn of(request: &Request) -> Option<Self> {
        let reported = request.usage?.completion.filter(|tokens| *tokens > 0)?;
        let own = request.counted_tokens.filter(|tokens| *tokens > 0)?;
        (request.is_completed() && request.hidden_tokens() == 0).then(|| Self {
            reported: f64::from(reported),
            own: f64::from(own),
            events: request.chunks.len() as f64,
        })
    }

    /// Whether more tokens are reported than text and events bear out. Events of several tokens each are few, and the text decides.
    fn is_more(&self, bound: f64) -> bool {
        let came = self.own.max(self.events);
        self.reported > bound * came && self.reported - came >= 2.0
    }
}

/// The factor above text and events that most of these answers report more tokens than; `None` where they do not.
pub(super) fn most_report_more(requests: &[Request], scenario: &Scenario) -> Option<f64> {
    let bound = match scenario.stop_at_eos {
        true => MORE,
        false => MORE_BEYOND_END,
    };
    let counted: Vec<Tokens> = requests.iter().filter_map(Tokens::of).collect();
    let more = counted.iter().filter(|tokens| tokens.is_more(bound)).count();
    (2 * more > counted.len()).then_some(bound)
}

/// Answers, fewer than most, that report far more tokens than text and events bear out, where that moves rates of tokens. Where answers go on
/// beyond the end of text it is a note: special tokens show no text.
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

/// A token comes in one event at most, so that an event beyond them is none, and may start the clock of TTFT. Parsers of reasoning and
/// of tool calls cut tokens in two.
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

/// That most answers begin with an event, or with the same number of them, that comes well ahead of the next one: TTFT is its moment. White
/// space or a word that does not depend on the prompt is none of the model's; of another first word that is not known, as an engine may hand
/// the request on behind it. Behind two words or more no engine waits.
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
    // What is canned has one length; waits at any place are those of a busy engine.
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

/// That answers to prompts that have nothing in common begin with the same events, more of them than a model does by itself: at whatever pace
/// these come, nobody had read the prompt. Text of a form that was asked for begins alike by right.
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

/// First events of all answers.
struct Firsts {
    /// Their moments, in order.
    moments: Vec<u64>,
    /// The median time from sending to them: about what it takes at most to read one prompt.
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

    /// Whether an answer whose second event came so late was held up by the prompts of others: their first events came meanwhile, the last
    /// of them shortly before, and reading them takes as long.
    fn hold_up(&self, begin: u64, own: u64, late: u64) -> bool {
        let at = |moment: u64| self.moments.partition_point(|first| *first <= moment);
        let meanwhile = at(own + late / 3).saturating_sub(at(begin)) as u64;
        let shortly = at(own + late / 3).saturating_sub(at(own.saturating_sub(late).max(begin)));
        shortly > 0 && meanwhile * self.ttft_ns + late >= own - begin
    }
}

/// How the beginning of an answer relates to what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beginning {
    Usual,
    /// The next event is late, and first events of other answers came shortly before it: an engine that reads prompts first.
    HeldUp,
    /// The event behind so many first ones is late, and nothing explains it; white space counts as one.
    Ahead(usize),
}

impl Beginning {
    /// `None` of answers too short to say.
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

    /// The same of the first event, or of those that nearly all answers begin with.
    fn of_first(request: &Request, moments: &[u64], kinds: &[ChunkKind], firsts: &Firsts) -> Option<Self> {
        let blanks = request.blank_events as usize;
        let gap = |at: usize| moments[at].saturating_sub(moments[at - 1]);
        // Of events that nearly all answers begin with, the model's own begin behind the longest wait.
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
        // A model may well begin with some white space, at its own pace.
        if own.saturating_sub(begin) <= late * blanks.max(1) as u64 {
            return Some(Self::Usual);
        }
        let is_held_up = blanks == 0 && firsts.hold_up(begin, own, late);
        Some(match is_held_up {
            true => Self::HeldUp,
            false => Self::Ahead(if blanks > 0 { 1 } else { lead }),
        })
    }

    /// That two first events or more, whatever their words, came in less than half of the wait behind them, which is longer than TTFT and far
    /// longer than the others; `None` where they did not. Where several events come together, the waits between these groups
    /// are the usual ones.
    fn of_several(sent: u64, moments: &[u64], kinds: &[ChunkKind], firsts: &Firsts) -> Option<Self> {
        let gap = |at: usize| moments[at].saturating_sub(moments[at - 1]);
        // More events follow than came before.
        let most = OWN_BEGINNING.min(moments.len().checked_sub(1)? / 2);
        let lead = (1..=most).max_by_key(|at| gap(*at)).filter(|lead| *lead > 1)?;
        let (first, begin, own) = (moments[0], moments[lead - 1], moments[lead]);
        let mut gaps: Vec<u64> = (lead + 1..moments.len()).map(gap).collect();
        let mean = gaps.iter().sum::<u64>() as f64 / gaps.len().max(1) as f64;
        gaps.retain(|gap| 2.0 * *gap as f64 >= mean);
        gaps.sort_unstable();
        let usual = mean.max(*gaps.get(gaps.len() / 2)? as f64);
        // Parsers keep back what stands between thoughts, text and calls of tools.
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

/// What the answers of a measurement held.
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

/// `None` for what cannot be compared: pictures have no known count.
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

/// That pictures add next to nothing to the prompts that the server counts: it may not have looked at them.
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

/// An engine that reads less than it was sent is fast for another reason than the one that is looked for.
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

/// How long an answer is against what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Length {
    Short,
    AsAsked,
    Long,
}

/// The output tokens that the server itself reports, at the end or in an event.
pub(super) fn reported_tokens(request: &Request) -> Option<u32> {
    let in_events = || request.chunks.last_tokens();
    request
        .usage
        .and_then(|usage| usage.completion)
        .or_else(in_events)
}

/// The length of an answer by the server's own count; where it reports none, by the events and by our count of the text.
fn length(request: &Request) -> Option<(u32, Length)> {
    let asked = request.limit();
    if let Some(reported) = reported_tokens(request) {
        // One more may be the end of text.
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

/// Answers that end early make latencies look better and load the engine less; answers that go on make throughput look better.
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

/// That the server ends answers at a limit of its own, below the one that was asked for, where answers may end by themselves: the work is less
/// than was asked for. Of several choices in one answer only one may have come to the limit.
fn own_limit(responses: &Responses<'_>) -> Option<Reason> {
    if several_choices(responses.scenario).is_some() {
        return None;
    }
    let is_limited = |request: &&Request| {
        let ended = request.finish.as_deref().is_some_and(is_limit_end);
        let is_less = |(tokens, length): (u32, Length)| {
            // One less may be the end of text.
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

/// That answers end early for reasons that nobody knows: these may be cut. A server may have a word of its own for the end of text, so that this
/// is a note unless other answers end early for known reasons.
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

/// Whether an answer is one of a kind.
type IsIts = fn(&Request) -> bool;

/// When a small share of answers of a kind is named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Named {
    Always,
    /// Where their tokens come faster than those of the others.
    IfQuick,
}

/// Weights that went to NaN, or a kernel that returns nothing, answer with one token all the time, and quickly; a server that sends the
/// prompt back computes nothing at all.
fn degenerate(responses: &Responses<'_>, reasons: &mut Vec<Reason>) {
    let answers = answers(responses.requests);
    let is_one_token: IsIts = |request| request.uniform.is_some_and(|share| share >= ONE_TOKEN);
    let is_echo: IsIts = |request| request.uniform.is_some() && request.echoes_prompt;
    // Short ones may rightly be the same: a class, a refusal.
    let is_long: IsIts =
        |request| request.is_canned && request.counted_tokens.is_some_and(|tokens| tokens >= LONG);
    let canned = responses.completed().filter(|request| request.is_canned);
    let long = responses.completed().filter(|request| is_long(request));
    let are_long = 2 * long.count() >= canned.count();
    // Of a kind that has a sign a small share is named too: in each case, or where these answers are quick.
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
        // A small model that may not end comes to this too.
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

/// The time of a token of the quickest quarter of some answers, relative to that of all others; `None` without either. A cache gives out again
/// what it has seen, so that half of the answers that are alike may have been computed. Where engines speculate, one kind of answers has more
/// tokens in an event than another, and is no quicker: the time of an event decides where it is less unlike.
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
