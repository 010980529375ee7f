//! Finds degenerate answers: one token over and over, the prompt itself, or one text for all prompts.

use super::input::{ONE_TOKEN_SHARE, Responses, reported_tokens};
use super::summary::summarize_answers;
use crate::analysis::metrics;
use crate::analysis::validity::reason::{new_reason, percent};
use crate::results::record::cell::AnswerStats;
use crate::results::record::request::Request;
use crate::results::record::validity::{Reason, ReasonCode, Verdict};

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

/// Answers of at least this many tokens are equal for different prompts only if the prompts were not read.
const MIN_IDENTICAL_TOKENS: u32 = 16;

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
pub(crate) fn degenerate_reason(responses: &Responses<'_>) -> Option<Reason> {
    let answers = summarize_answers(responses.requests);
    let kinds = degenerate_kinds(responses, &answers);
    // A note on one kind must not hide another kind that makes the measurement invalid. The first of equal
    // weight counts.
    let reasons = kinds
        .iter()
        .filter_map(|kind| kind.reason(responses, answers.read));
    reasons.rev().max_by_key(|reason| reason.weight)
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
            what: "answers repeat one token over and over",
            of_each: format!(", {} of each", percent(ONE_TOKEN_SHARE)),
            weight: Verdict::Invalid,
        },
        DegenerateKind {
            share: answers.echo_share(),
            count: answers.echoes,
            sign: Some((is_echo, ReportRule::Always)),
            what: "answers begin with their own prompt",
            of_each: String::new(),
            weight: Verdict::Invalid,
        },
        DegenerateKind {
            share: answers.canned_share(),
            count: answers.canned,
            sign: Some((is_long, ReportRule::IfQuick)),
            what: "answers to different prompts are the same text",
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
            what: "answers repeat a few tokens in a loop",
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
            "{}: {} of {read} answers ({})",
            self.what,
            self.count,
            percent(share)
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
                "; the time per token of these answers is only {} of that of other answers",
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
