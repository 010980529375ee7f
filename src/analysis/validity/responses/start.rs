//! Checks that TTFT is measured to the first event of the answer itself.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::input::{ONE_TOKEN_SHARE, Responses};
use crate::analysis::validity::reason::new_reason;
use crate::results::record::request::{ChunkKind, Request};
use crate::results::record::validity::{MetricFamily, Reason, ReasonCode, Verdict};

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

/// This many leading white-space events are no tokens of the answer.
const MIN_BLANK_EVENTS: usize = 4;

/// Fewest answers that are judged. Fewer may be alike by chance.
const MIN_RESPONSES: usize = 8;

/// Reports that most answers begin with the same number of events well ahead of the next one, so that TTFT is
/// measured to the wrong event. White space, or a word that does not depend on the prompt, does not come from
/// the model. For one other word it is unknown, because an engine may hand the request over after it. No
/// engine waits after two or more words.
pub(crate) fn early_start_reason(responses: &Responses<'_>) -> Option<Reason> {
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
        (
            "an event that is the same for every prompt".to_owned(),
            Verdict::Suspect,
        )
    } else if place > 1 {
        (format!("{place} events"), Verdict::Suspect)
    } else {
        ("one event".to_owned(), Verdict::Valid)
    };
    let mut reason = new_reason(
        ReasonCode::FirstEventAhead,
        format!(
            "{} of {} answers begin with {what}, and the next event comes much later",
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
        Some(format!(
            "at most half of the answers may begin with the same events, if these are more than {MAX_SHARED_FIRST_EVENTS}"
        )),
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
