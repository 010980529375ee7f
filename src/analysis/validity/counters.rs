//! Compares the tokens that answers report with the engine's own counters.

use super::caches::Met;
use super::{Evidence, found, percent};
use crate::config::validity::Bounds;
use crate::results::record::request::{Class, Request, Usage};
use crate::results::record::search::ReportedTokens;
use crate::results::record::telemetry::{EngineWindow, Source};
use crate::results::record::validity::{Code, Reason};

/// Below this many tokens a difference of counts is meaningless.
pub(super) const FEW_TOKENS: f64 = 100.0;

/// Share of answers that may lack a count of prompt tokens.
const UNTOLD: f64 = 0.01;

/// Sums up the token counts that the requests of one load report.
pub(crate) fn reported(met: &Met<'_>) -> ReportedTokens {
    let requests = met.requests;
    let completed = || requests.iter().filter(|request| request.is_completed());
    let of_prompt = |request: &Request| request.usage.and_then(|usage| usage.prompt).map(f64::from);
    let ours = |request: &Request| f64::from(request.prompt_sent());
    let told = |read: fn(Usage) -> Option<u32>| {
        let counts = completed().filter_map(|request| read(request.usage?));
        counts.map(f64::from).sum::<f64>()
    };
    let prompt: f64 = completed()
        .map(|request| of_prompt(request).unwrap_or_else(|| ours(request)))
        .sum();
    let own: f64 = completed().map(ours).sum();
    // The template is added to the prompts of failed requests as well.
    let around = if own > 0.0 { (prompt / own).max(1.0) } else { 1.0 };
    let unfinished = || {
        let sent = requests.iter().filter(|request| request.sent_ns.is_some());
        sent.filter(|request| !request.is_completed())
    };
    let most = |request: &Request| f64::from(request.limit());
    let untold = completed().filter(|request| of_prompt(request).is_none()).count();
    let is_several = |request: &Request| {
        request
            .limit_tokens
            .is_some_and(|limit| limit > request.asked_tokens)
    };
    ReportedTokens {
        output: told(|usage| usage.completion),
        output_unfinished: unfinished()
            .filter(|request| !is_refused(request))
            .map(most)
            .sum(),
        prompt,
        prompt_unfinished: unfinished().map(|request| around * ours(request)).sum(),
        prompt_known: met.repeated.map(|share| share * prompt + met.common(prompt)),
        prompt_cached: told(|usage| usage.cached),
        // Some engines count a prompt once per choice.
        is_prompt_exact: untold as f64 <= UNTOLD * completed().count() as f64 && !completed().any(is_several),
        longest: requests
            .iter()
            .map(|request| ours(request) + most(request))
            .fold(0.0, f64::max),
    }
}

/// Returns whether the server rejected the request and generated nothing for it.
fn is_refused(request: &Request) -> bool {
    let class = request.failure.as_ref().map(|failure| failure.class);
    matches!(class, Some(Class::Connect | Class::Refused | Class::Status))
}

/// Compares the engine's counters with the answers of a measurement, or of all points of a search.
pub(super) fn judge(evidence: &Evidence<'_>) -> Option<Reason> {
    let engine = heard(evidence)?;
    let reported = match &evidence.summary.search {
        Some(search) => search.reported?,
        None => reported(&Met::of(evidence)),
    };
    outputs(engine, &reported, evidence.bounds).or_else(|| prompts(engine, &reported, evidence.bounds))
}

/// Returns the engine's own metrics, if they were read before and after the window and no counter fell. Those
/// of a search include all its points.
pub(super) fn heard<'e>(evidence: &Evidence<'e>) -> Option<&'e EngineWindow> {
    let telemetry = evidence.summary.telemetry.as_ref()?;
    let mut sources = telemetry.sources.iter();
    let is_heard =
        sources.all(|facts| facts.source != Source::Engine || facts.is_bracketed && facts.trouble.is_none());
    let engine = telemetry.engine.as_ref();
    engine.filter(|engine| is_heard && engine.reset.is_empty())
}

/// Reports that the engine generated another number of output tokens than the answers report.
fn outputs(engine: &EngineWindow, reported: &ReportedTokens, bounds: &Bounds) -> Option<Reason> {
    let counter = *engine.grown.get("generation_tokens")?;
    let (told, unfinished) = (reported.output, reported.output_unfinished);
    // For a failed request, the engine may have generated all requested tokens or none of them, and counted
    // them or not.
    let apart = (told - counter).max(counter - told - unfinished) / told;
    (told >= FEW_TOKENS && apart > bounds.tokens).then(|| {
        found(
            Code::TokensDisagree,
            format!(
                "{told} output tokens in answers{}, {counter} by the engine's counter ({})",
                beside(unfinished),
                percent(apart)
            ),
            Some(percent(bounds.tokens)),
        )
    })
}

/// Reports that the engine counted far fewer prompt tokens than its answers, or more, which means that other
/// clients used it. Shared and cached tokens may be missing from the counter, because some engines
/// (llama.cpp) count only what they compute.
fn prompts(engine: &EngineWindow, reported: &ReportedTokens, bounds: &Bounds) -> Option<Reason> {
    let grown = |name: &str| engine.grown.get(name).copied();
    let counter = grown("prompt_tokens")?;
    let (told, unfinished) = (reported.prompt, reported.prompt_unfinished);
    if told < FEW_TOKENS {
        return None;
    }
    let cached = grown("cached_tokens").or(grown("prefix_hits"));
    let cached = cached.unwrap_or(0.0).max(reported.prompt_cached);
    let least = reported
        .prompt_known
        .map(|known| told - known - told * bounds.warm.max(bounds.prompt_tokens) - cached);
    if let Some(least) = least.filter(|least| counter < *least) {
        return Some(found(
            Code::PromptTokensDisagree,
            format!("{told} prompt tokens in answers, {counter} by the engine's counter"),
            Some(format!(
                "{least:.0}, without what caches held and prompts have in common"
            )),
        ));
    }
    // A preempted request is computed again, and some engines count it again.
    let again = grown("preemptions").unwrap_or(0.0) * reported.longest;
    let most = (told + unfinished) * (1.0 + bounds.prompt_tokens) + again;
    let beyond = counter - told - unfinished;
    (reported.is_prompt_exact && counter > most && beyond >= FEW_TOKENS).then(|| {
        found(
            Code::TokensDisagree,
            format!(
                "{told} prompt tokens in answers{}, {counter} by the engine's counter ({} more)",
                beside(unfinished),
                percent(beyond / told)
            ),
            Some(percent(bounds.prompt_tokens)),
        )
    })
}

/// Returns a text about the tokens that failed requests may have added.
fn beside(unfinished: f64) -> String {
    match unfinished > 0.0 {
        true => format!(" and up to {unfinished:.0} of requests that failed"),
        false => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config::scenario::Scenario;
    use crate::plan::{Plan, Protocol};
    use crate::results::record::cell::ResetProof;

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

    fn told(requests: &[Request], protocol: Protocol, proof: Option<&ResetProof>) -> ReportedTokens {
        reported(&Met {
            protocol,
            scenario: &scenario(),
            bounds: &Bounds::default(),
            repeated: Some(0.0),
            proof,
            requests,
        })
    }

    fn load(completed: usize, failed: usize) -> ReportedTokens {
        told(&requests(completed, failed), Protocol::Completions, None)
    }

    fn judged(reported: &ReportedTokens, counters: &[(&str, f64)]) -> Option<Code> {
        let engine = EngineWindow {
            grown: counters
                .iter()
                .map(|(name, grown)| ((*name).to_owned(), *grown))
                .collect(),
            ..EngineWindow::default()
        };
        let bounds = Bounds::default();
        let reason = outputs(&engine, reported, &bounds).or_else(|| prompts(&engine, reported, &bounds));
        reason.map(|reason| reason.code)
    }

    #[test]
    fn counters_that_agree_are_nothing_whatever_failed_requests_came_to() {
        for (failed, prompt, output) in [(0, 5000.0, 4000.0), (1, 5000.0, 4000.0), (1, 5050.0, 4040.0)] {
            let counters = [("prompt_tokens", prompt), ("generation_tokens", output)];
            assert_eq!(
                judged(&load(100, failed), &counters),
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
        let reported = told(&requests, Protocol::Completions, None);
        for counter in [4000.0, 4040.0] {
            assert_eq!(judged(&reported, &[("generation_tokens", counter)]), None);
        }
    }

    #[test]
    fn tokens_of_somebody_else_are_found_beside_a_failed_request() {
        for failed in [0, 1] {
            let of = |counters: &[(&str, f64)]| judged(&load(100, failed), counters);
            assert_eq!(of(&[("generation_tokens", 7500.0)]), Some(Code::TokensDisagree));
            // Long prompts and answers of one token.
            assert_eq!(
                of(&[("prompt_tokens", 20_000.0), ("generation_tokens", 4006.0)]),
                Some(Code::TokensDisagree)
            );
        }
    }

    #[test]
    fn prompts_that_are_cut_short_are_found_beside_a_failed_request() {
        for failed in [0, 1] {
            assert_eq!(
                judged(&load(100, failed), &[("prompt_tokens", 2000.0)]),
                Some(Code::PromptTokensDisagree)
            );
        }
    }

    /// A server that rejects requests at once may have generated nothing for thousands of them.
    #[test]
    fn requests_that_were_turned_away_explain_no_tokens() {
        let counters = [("generation_tokens", 4400.0)];
        assert_eq!(judged(&load(100, 1000), &counters), Some(Code::TokensDisagree));
        let mut cut = requests(100, 1000);
        for request in &mut cut[100..] {
            request.failure.as_mut().unwrap().class = Class::TimeoutBeforeFirst;
        }
        assert_eq!(judged(&told(&cut, Protocol::Completions, None), &counters), None);
    }

    /// llama.cpp counts only the prompt tokens that it computes.
    #[test]
    fn what_all_prompts_begin_with_may_be_in_no_counter() {
        let counted = |tokens: f64| [("prompt_tokens", tokens)];
        let proof: ResetProof = serde_json::from_value(json!({
            "is_fresh_start": false, "possible": false, "status": null, "success": null, "answer": null,
            "hits_in_window": null, "queries_in_window": null, "unique_prefix": {"letters": "a b", "tokens": 8, "kept": 0},
        }))
        .unwrap();
        let requests = requests(100, 0);
        let of = |protocol, proof| told(&requests, protocol, proof);
        let computed = counted(5000.0 - 8.0 * 100.0);
        assert_eq!(judged(&of(Protocol::Completions, Some(&proof)), &computed), None);
        let disagree = Some(Code::PromptTokensDisagree);
        assert_eq!(judged(&of(Protocol::Completions, None), &computed), disagree);
        let computed = counted(5000.0 - 25.0 * 100.0);
        assert_eq!(judged(&of(Protocol::Chat, None), &computed), None);
        let mut cached = requests.clone();
        for request in &mut cached {
            request.usage.as_mut().unwrap().cached = Some(25);
        }
        assert_eq!(
            judged(&told(&cached, Protocol::Completions, None), &computed),
            None
        );
    }

    #[test]
    fn what_is_computed_again_is_counted_again() {
        let counters = [("prompt_tokens", 5500.0), ("preemptions", 6.0)];
        assert_eq!(judged(&load(100, 0), &counters), None);
        assert_eq!(judged(&load(100, 0), &counters[..1]), Some(Code::TokensDisagree));
    }

    #[test]
    fn where_a_prompt_has_several_choices_its_counter_may_be_higher() {
        let mut reported = load(100, 0);
        reported.is_prompt_exact = false;
        assert_eq!(judged(&reported, &[("prompt_tokens", 10_000.0)]), None);
    }

    #[test]
    fn loads_add_up() {
        let mut both = load(60, 1);
        both.add(&load(40, 0));
        assert_eq!(both, load(100, 1));
    }
}
