//! Compares the tokens that answers report with the engine's own counters.

use super::caches::CacheEvidence;
use super::evidence::Evidence;
use super::reason::{new_reason, percent};
use crate::config::validity::ValidityBounds;
use crate::results::record::request::{Request, RequestFailureClass, Usage};
use crate::results::record::search::{CancelledTokens, ReportedTokens};
use crate::results::record::telemetry::{EngineWindow, TelemetrySource};
use crate::results::record::validity::{Reason, ReasonCode};

/// Below this many tokens a difference of counts is meaningless.
pub(super) const MIN_TOKENS: f64 = 100.0;

/// Share of the tokens of cancelled requests that an engine may generate after their cancellation.
const MAX_WASTED_SHARE: f64 = 0.5;

/// Share of answers that may lack a count of prompt tokens.
const MAX_UNREPORTED_SHARE: f64 = 0.01;

/// Sums up the token counts that the requests of one load report.
pub(crate) fn reported_tokens(met: &CacheEvidence<'_>) -> ReportedTokens {
    let requests = met.requests;
    let completed = || requests.iter().filter(|request| request.is_completed());
    let of_prompt = |request: &Request| request.usage.and_then(|usage| usage.prompt).map(f64::from);
    let sent_tokens = |request: &Request| f64::from(request.prompt_sent());
    let tokens_of = |read: fn(Usage) -> Option<u32>| {
        let counts = completed().filter_map(|request| read(request.usage?));
        counts.map(f64::from).sum::<f64>()
    };
    let reported_sum: f64 = completed()
        .map(|request| of_prompt(request).unwrap_or_else(|| sent_tokens(request)))
        .sum();
    let sent_sum: f64 = completed().map(sent_tokens).sum();
    // The chat template lengthens the prompts of unfinished requests as much as those of completed ones.
    let template_factor = if sent_sum > 0.0 {
        (reported_sum / sent_sum).max(1.0)
    } else {
        1.0
    };
    let unfinished = || {
        let sent = requests.iter().filter(|request| request.sent_ns.is_some());
        sent.filter(|request| !request.is_completed())
    };
    let max_tokens = |request: &Request| f64::from(request.max_output_tokens());
    let untold = completed().filter(|request| of_prompt(request).is_none()).count();
    let is_several = |request: &Request| {
        request
            .limit_tokens
            .is_some_and(|limit| limit > request.requested_tokens)
    };
    ReportedTokens {
        output: tokens_of(|usage| usage.completion),
        output_unfinished: unfinished()
            .filter(|request| !is_rejected(request))
            .map(max_tokens)
            .sum(),
        cancelled: cancelled_tokens(requests),
        prompt: reported_sum,
        prompt_unfinished: unfinished()
            .map(|request| template_factor * sent_tokens(request))
            .sum(),
        prompt_known: met
            .shared_share
            .map(|share| share * reported_sum + met.expected_cached_tokens(reported_sum)),
        prompt_cached: tokens_of(|usage| usage.cached),
        // Some engines count a prompt once per choice.
        is_prompt_exact: untold as f64 <= MAX_UNREPORTED_SHARE * completed().count() as f64
            && !completed().any(is_several),
        longest: requests
            .iter()
            .map(|request| sent_tokens(request) + max_tokens(request))
            .fold(0.0, f64::max),
    }
}

/// Sums up the output tokens of requests that the client cancelled; `None` if it cancelled none.
fn cancelled_tokens(requests: &[Request]) -> Option<CancelledTokens> {
    let cancelled = || requests.iter().filter(|request| request.cancelled);
    cancelled().next()?;
    Some(CancelledTokens {
        received: cancelled()
            .map(|request| f64::from(request.received_tokens()))
            .sum(),
        allowed: cancelled()
            .map(|request| f64::from(request.max_output_tokens()))
            .sum(),
    })
}

/// Returns whether the server rejected the request and generated nothing for it.
fn is_rejected(request: &Request) -> bool {
    let class = request.failure.as_ref().map(|failure| failure.class);
    matches!(
        class,
        Some(RequestFailureClass::Connect | RequestFailureClass::Refused | RequestFailureClass::Status)
    )
}

/// Returns the token counts that the requests of a measurement, or of all points of a search, report.
fn all_reported(evidence: &Evidence<'_>) -> Option<ReportedTokens> {
    match &evidence.summary.search {
        Some(search) => search.reported,
        None => Some(reported_tokens(&CacheEvidence::from_evidence(evidence))),
    }
}

/// Notes that the engine generated most of what the client had cancelled.
pub(super) fn cancellation_reason(evidence: &Evidence<'_>) -> Option<Reason> {
    let counter = *reliable_counters(evidence)?.grown.get("generation_tokens")?;
    ignored_cancellation(counter, &all_reported(evidence)?)
}

fn ignored_cancellation(counter: f64, reported: &ReportedTokens) -> Option<Reason> {
    let cancelled = reported.cancelled?;
    let rest = cancelled.allowed - cancelled.received;
    // Failed requests may explain as many tokens as they allowed.
    let failed = reported.output_unfinished - cancelled.allowed;
    let wasted = counter - reported.output - failed - cancelled.received;
    (rest >= MIN_TOKENS && wasted > MAX_WASTED_SHARE * rest).then(|| {
        new_reason(
            ReasonCode::CancelIgnored,
            format!(
                "by the engine's counter, {wasted} of {rest} output tokens were generated after the client had cancelled their requests"
            ),
            Some(percent(MAX_WASTED_SHARE)),
        )
    })
}

/// Compares the engine's counters with the answers of a measurement, or of all points of a search.
pub(super) fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let engine = reliable_counters(evidence)?;
    let reported = all_reported(evidence)?;
    output_mismatch(engine, &reported, evidence.bounds)
        .or_else(|| prompt_mismatch(engine, &reported, evidence.bounds))
}

/// Returns the engine's own metrics, if they were read before and after the window and no counter fell. Those
/// of a search include all its points.
pub(super) fn reliable_counters<'e>(evidence: &Evidence<'e>) -> Option<&'e EngineWindow> {
    let telemetry = evidence.summary.telemetry.as_ref()?;
    let mut sources = telemetry.sources.iter();
    let is_heard = sources.all(|facts| {
        facts.source != TelemetrySource::Engine || facts.is_bracketed && facts.trouble.is_none()
    });
    let engine = telemetry.engine.as_ref();
    engine.filter(|engine| is_heard && engine.reset.is_empty())
}

/// Reports that the engine generated another number of output tokens than the answers report.
fn output_mismatch(
    engine: &EngineWindow,
    reported: &ReportedTokens,
    bounds: &ValidityBounds,
) -> Option<Reason> {
    let counter = *engine.grown.get("generation_tokens")?;
    let (reported_tokens, unfinished) = (reported.output, reported.output_unfinished);
    // For a failed or cancelled request, the engine may have generated all requested tokens or none of them, and
    // counted them or not.
    let apart = (reported_tokens - counter).max(counter - reported_tokens - unfinished) / reported_tokens;
    (reported_tokens >= MIN_TOKENS && apart > bounds.tokens).then(|| {
        new_reason(
            ReasonCode::TokensDisagree,
            format!(
                "answers report {reported_tokens} output tokens{}, but by the engine's counter there were {counter} (a difference of {})",
                unfinished_in_words(unfinished),
                percent(apart)
            ),
            Some(percent(bounds.tokens)),
        )
    })
}

/// Reports that the engine counted far fewer prompt tokens than its answers, or more, which means that other
/// clients used it. Shared and cached tokens may be missing from the counter, because some engines
/// (llama.cpp) count only what they compute.
fn prompt_mismatch(
    engine: &EngineWindow,
    reported: &ReportedTokens,
    bounds: &ValidityBounds,
) -> Option<Reason> {
    let grown = |name: &str| engine.grown.get(name).copied();
    let counter = grown("prompt_tokens")?;
    let (reported_tokens, unfinished) = (reported.prompt, reported.prompt_unfinished);
    if reported_tokens < MIN_TOKENS {
        return None;
    }
    let cached = grown("cached_tokens").or(grown("prefix_hits"));
    let cached = cached.unwrap_or(0.0).max(reported.prompt_cached);
    let min_prompts = reported.prompt_known.map(|expected| {
        reported_tokens
            - expected
            - reported_tokens * bounds.max_cache_hits.max(bounds.prompt_tokens)
            - cached
    });
    if let Some(min_prompts) = min_prompts.filter(|min_prompts| counter < *min_prompts) {
        return Some(new_reason(
            ReasonCode::PromptTokensDisagree,
            format!(
                "answers report {reported_tokens} prompt tokens, but by the engine's counter there were only {counter}"
            ),
            Some(format!(
                "the engine must count at least {min_prompts:.0} prompt tokens; it may leave out cached tokens and tokens that prompts have in common"
            )),
        ));
    }
    // A preempted request is computed again, and some engines count it again.
    let again = grown("preemptions").unwrap_or(0.0) * reported.longest;
    let max_prompts = (reported_tokens + unfinished) * (1.0 + bounds.prompt_tokens) + again;
    let beyond = counter - reported_tokens - unfinished;
    (reported.is_prompt_exact && counter > max_prompts && beyond >= MIN_TOKENS).then(|| {
        new_reason(
            ReasonCode::TokensDisagree,
            format!(
                "answers report {reported_tokens} prompt tokens{}, but by the engine's counter there were {counter}, which is {} more",
                unfinished_in_words(unfinished),
                percent(beyond / reported_tokens)
            ),
            Some(percent(bounds.prompt_tokens)),
        )
    })
}

/// Returns a text about the tokens that failed and cancelled requests may have added.
fn unfinished_in_words(unfinished: f64) -> String {
    match unfinished > 0.0 {
        true => format!(" (failed or cancelled requests may have added up to {unfinished:.0} tokens)"),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::scenario::Scenario;
    use crate::plan::{Plan, Protocol};
    use crate::results::record::cell::CacheResetRecord;

    /// Returns requests of 50 prompt and 40 output tokens, of which the last `failed` ones failed.
    fn requests(completed: usize, failed: usize) -> Vec<Request> {
        let request = |rest: Value| -> Request {
            let mut request = json!({
                "index": 0, "prompt_tokens": 50, "asked_tokens": 40, "due_ns": 0, "sent_ns": 1, "chunks": [], "end_ns": 2,
            });
            let fields = request.as_object_mut().unwrap();
            fields.extend(rest.as_object().unwrap().clone());
            serde_json::from_value(request).unwrap()
        };
        let whole = request(json!({"usage": {"prompt": 50, "completion": 40, "cached": null}}));
        let lost = request(json!({"failure": {"class": "status", "message": "503"}}));
        [vec![whole; completed], vec![lost; failed]].concat()
    }

    fn scenario() -> Scenario {
        let plan = include_str!("../../../tests/fixtures/run-format-1/plan.json");
        let plan: Plan = serde_json::from_str(plan).unwrap();
        let mut scenario = plan.cells[0].scenario.clone();
        scenario.limits.warmup = 0;
        scenario
    }

    fn report_tokens(
        requests: &[Request],
        protocol: Protocol,
        proof: Option<&CacheResetRecord>,
    ) -> ReportedTokens {
        reported_tokens(&CacheEvidence {
            protocol,
            scenario: &scenario(),
            bounds: &ValidityBounds::default(),
            shared_share: Some(0.0),
            reset_proof: proof,
            requests,
        })
    }

    fn reported_load(completed: usize, failed: usize) -> ReportedTokens {
        report_tokens(&requests(completed, failed), Protocol::Completions, None)
    }

    fn judged_code(reported: &ReportedTokens, counters: &[(&str, f64)]) -> Option<ReasonCode> {
        let engine = EngineWindow {
            grown: counters
                .iter()
                .map(|(name, grown)| ((*name).to_owned(), *grown))
                .collect(),
            ..EngineWindow::default()
        };
        let bounds = ValidityBounds::default();
        let reason = output_mismatch(&engine, reported, &bounds)
            .or_else(|| prompt_mismatch(&engine, reported, &bounds));
        reason.map(|reason| reason.code)
    }

    #[test]
    fn counters_that_agree_are_nothing_whatever_failed_requests_came_to() {
        for (failed, prompt, output) in [(0, 5000.0, 4000.0), (1, 5000.0, 4000.0), (1, 5050.0, 4040.0)] {
            let counters = [("prompt_tokens", prompt), ("generation_tokens", output)];
            assert_eq!(
                judged_code(&reported_load(100, failed), &counters),
                None,
                "{failed} failed, {prompt}"
            );
        }
    }

    /// SGLang reports the number of tokens with each event, but its counters include only requests that end
    /// normally.
    #[test]
    fn what_a_failed_request_reported_may_be_in_no_counter() {
        let mut requests = requests(100, 1);
        requests[100].usage = requests[0].usage;
        let reported = report_tokens(&requests, Protocol::Completions, None);
        for counter in [4000.0, 4040.0] {
            assert_eq!(judged_code(&reported, &[("generation_tokens", counter)]), None);
        }
    }

    #[test]
    fn tokens_of_somebody_else_are_found_beside_a_failed_request() {
        for failed in [0, 1] {
            let code_for = |counters: &[(&str, f64)]| judged_code(&reported_load(100, failed), counters);
            assert_eq!(
                code_for(&[("generation_tokens", 7500.0)]),
                Some(ReasonCode::TokensDisagree)
            );
            // Long prompts and answers of one token.
            assert_eq!(
                code_for(&[("prompt_tokens", 20_000.0), ("generation_tokens", 4006.0)]),
                Some(ReasonCode::TokensDisagree)
            );
        }
    }

    #[test]
    fn prompts_that_are_cut_short_are_found_beside_a_failed_request() {
        for failed in [0, 1] {
            assert_eq!(
                judged_code(&reported_load(100, failed), &[("prompt_tokens", 2000.0)]),
                Some(ReasonCode::PromptTokensDisagree)
            );
        }
    }

    /// A server that rejects requests at once may have generated nothing for thousands of them.
    #[test]
    fn requests_that_were_turned_away_explain_no_tokens() {
        let counters = [("generation_tokens", 4400.0)];
        assert_eq!(
            judged_code(&reported_load(100, 1000), &counters),
            Some(ReasonCode::TokensDisagree)
        );
        let mut cut = requests(100, 1000);
        for request in &mut cut[100..] {
            request.failure.as_mut().unwrap().class = RequestFailureClass::TimeoutBeforeFirst;
        }
        assert_eq!(
            judged_code(&report_tokens(&cut, Protocol::Completions, None), &counters),
            None
        );
    }

    /// 100 completed requests of 40 tokens, and 50 that were cancelled after 8 of 40: 1600 tokens are left of them.
    #[test]
    fn an_engine_that_goes_on_after_a_cancellation_is_noted_and_no_other_excess_is_excused() {
        let mut load = requests(100, 50);
        for request in &mut load[100..] {
            request.failure = None;
            request.cancelled = true;
            request.counted_tokens = Some(8);
        }
        let reported = report_tokens(&load, Protocol::Completions, None);
        for (counter, is_noted, disagreement) in [
            // SGLang counts only requests that end normally, vLLM every token.
            (4000.0, false, None),
            (4400.0, false, None),
            (5000.0, false, None),
            (5300.0, true, None),
            (6000.0, true, None),
            (6500.0, true, Some(ReasonCode::TokensDisagree)),
            (3500.0, false, Some(ReasonCode::TokensDisagree)),
        ] {
            let note = ignored_cancellation(counter, &reported);
            assert_eq!(note.is_some(), is_noted, "{counter}: {note:?}");
            let counters = [("generation_tokens", counter)];
            assert_eq!(judged_code(&reported, &counters), disagreement, "{counter}");
        }
        let prompts = [("prompt_tokens", 5000.0), ("generation_tokens", 4400.0)];
        assert_eq!(judged_code(&reported, &prompts), None);
        let prompts = [("prompt_tokens", 9000.0), ("generation_tokens", 4400.0)];
        assert_eq!(judged_code(&reported, &prompts), Some(ReasonCode::TokensDisagree));
    }

    /// Failed requests may have generated all that they allowed, so they explain as much.
    #[test]
    fn failed_requests_explain_tokens_before_cancelled_ones_do() {
        let mut load = requests(100, 50);
        for request in &mut load[100..] {
            request.failure.as_mut().unwrap().class = RequestFailureClass::Reset;
        }
        for request in &mut load[125..] {
            request.failure = None;
            request.cancelled = true;
        }
        let reported = report_tokens(&load, Protocol::Completions, None);
        assert_eq!(ignored_cancellation(5000.0, &reported), None);
        assert!(ignored_cancellation(5600.0, &reported).is_some());
    }

    /// llama.cpp counts only the prompt tokens that it computes.
    #[test]
    fn what_all_prompts_begin_with_may_be_in_no_counter() {
        let counted = |tokens: f64| [("prompt_tokens", tokens)];
        let proof: CacheResetRecord = serde_json::from_value(json!({
            "is_fresh_start": false, "possible": false, "status": null, "success": null, "answer": null,
            "hits_in_window": null, "queries_in_window": null, "unique_prefix": {"letters": "a b", "tokens": 8, "kept": 0},
        }))
        .unwrap();
        let requests = requests(100, 0);
        let tokens_for = |protocol, proof| report_tokens(&requests, protocol, proof);
        let computed = counted(5000.0 - 8.0 * 100.0);
        assert_eq!(
            judged_code(&tokens_for(Protocol::Completions, Some(&proof)), &computed),
            None
        );
        let disagree = Some(ReasonCode::PromptTokensDisagree);
        assert_eq!(
            judged_code(&tokens_for(Protocol::Completions, None), &computed),
            disagree
        );
        let computed = counted(5000.0 - 25.0 * 100.0);
        assert_eq!(judged_code(&tokens_for(Protocol::Chat, None), &computed), None);
        let mut cached = requests.clone();
        for request in &mut cached {
            request.usage.as_mut().unwrap().cached = Some(25);
        }
        assert_eq!(
            judged_code(&report_tokens(&cached, Protocol::Completions, None), &computed),
            None
        );
    }

    #[test]
    fn what_is_computed_again_is_counted_again() {
        let counters = [("prompt_tokens", 5500.0), ("preemptions", 6.0)];
        assert_eq!(judged_code(&reported_load(100, 0), &counters), None);
        assert_eq!(
            judged_code(&reported_load(100, 0), &counters[..1]),
            Some(ReasonCode::TokensDisagree)
        );
    }

    #[test]
    fn where_a_prompt_has_several_choices_its_counter_may_be_higher() {
        let mut reported = reported_load(100, 0);
        reported.is_prompt_exact = false;
        assert_eq!(judged_code(&reported, &[("prompt_tokens", 10_000.0)]), None);
    }

    #[test]
    fn loads_add_up() {
        let mut both = reported_load(60, 1);
        both.add(&reported_load(40, 0));
        assert_eq!(both, reported_load(100, 1));
    }
}
