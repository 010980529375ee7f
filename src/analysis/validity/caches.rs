//! Checks that the prompts were new to the engine.

use super::evidence::Evidence;
use super::reason::{new_reason, percent};
use crate::config::api::ServerTemplate;
use crate::config::dataset::TemplateUse;
use crate::config::scenario::Scenario;
use crate::config::validity::ValidityBounds;
use crate::plan::Protocol;
use crate::results::record::cell::{CacheResetRecord, UniquePrefix};
use crate::results::record::request::Request;
use crate::results::record::search::SearchRecord;
use crate::results::record::validity::{Reason, ReasonCode, Verdict};

/// Tokens per prompt that a chat template adds to all prompts, unless the server counts even more beyond
/// ours.
const TEMPLATE_TOKENS: f64 = 64.0;

/// The same for other prompts: the token with which a text begins, for a cache that stores single tokens.
const FIRST_TOKENS: f64 = 1.0;

/// One load on an engine, and what is known about the caches at its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CacheEvidence<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) scenario: &'a Scenario,
    pub(crate) bounds: &'a ValidityBounds,
    /// Share of prompt tokens that prompts share with each other. `None` if it is unknown.
    pub(crate) shared_share: Option<f64>,
    /// How the caches were reset before the load, and the hits that the engine counted.
    pub(crate) reset_proof: Option<&'a CacheResetRecord>,
    pub(crate) requests: &'a [Request],
}

impl<'a> CacheEvidence<'a> {
    /// Returns the load of a measurement that is no search.
    pub(super) fn from_evidence(evidence: &Evidence<'a>) -> Self {
        Self {
            protocol: evidence.launch.api.dialect.protocol,
            scenario: &evidence.cell.scenario,
            bounds: evidence.bounds,
            shared_share: evidence.summary.prompts_repeated,
            reset_proof: evidence.summary.cache_reset.as_ref(),
            requests: evidence.requests,
        }
    }

    /// Returns the highest share of prompt tokens that may come from the cache. The share that prompts have
    /// in common does not mean that the cache was warm. `None` if that share is unknown; nothing is judged
    /// then.
    fn max_cached_share(&self) -> Option<f64> {
        Some(self.shared_share? + self.bounds.max_cache_hits)
    }

    /// Returns the number of prompt tokens that a cache may hold because of our own requests, if the engine
    /// counts `counted` tokens: those that a unique prefix or a chat template adds to all prompts, and the
    /// warm-up prompt.
    pub(super) fn expected_cached_tokens(&self, counted: f64) -> f64 {
        let is_chat = self.protocol.facts().template == ServerTemplate::Applied
            || self.scenario.workload.facts().template != TemplateUse::None;
        let count = self.requests.len() as f64;
        let template = if is_chat { TEMPLATE_TOKENS } else { FIRST_TOKENS } * count;
        // All prompts have it, so an engine that caches single tokens finds it for each prompt but the first.
        let prefix = unique_prefix(self.reset_proof).map_or(0.0, |prefix| f64::from(prefix.tokens));
        let expected = self
            .requests
            .iter()
            .map(|request| f64::from(request.prompt_sent()));
        // An engine that counts more prompt tokens than we do may do so in the shared parts. Tools and other
        // texts that a template adds to each request are among these tokens.
        prefix * count + cached_warm_up_tokens(self) + template.max(counted - expected.sum::<f64>())
    }
}

pub(super) fn judge(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    // The points of a search are judged one by one.
    if let Some(record) = &evidence.summary.search {
        judge_points(record, reasons);
        return;
    }
    let proof = evidence.summary.cache_reset.as_ref();
    let cache = CacheEvidence::from_evidence(evidence);
    reasons.extend(cache_reasons(
        &cache,
        proof.is_some_and(|proof| proof.is_fresh_start),
    ));
    reasons.extend(missed_cache_reason(&cache));
}

/// Notes that the engine found fewer tokens in its cache than the scenario makes prompts share.
fn missed_cache_reason(evidence: &CacheEvidence<'_>) -> Option<Reason> {
    evidence.scenario.workload.facts().common_prefix?;
    let expected = evidence.shared_share?;
    let counted =
        counted_hits(evidence).map(|(hits, queries)| (hits / queries, counted_hits_in_words(hits, queries)));
    let shares = [counted, found_share_by_responses(evidence)];
    // If the two disagree, the worse one counts.
    let (share, source) = shares
        .into_iter()
        .flatten()
        .min_by(|(one, _), (other, _)| one.total_cmp(other))?;
    let bound = expected - evidence.bounds.max_cache_hits;
    (share < bound).then(|| {
        let told_bound = format!(
            "at least {} of the prompt tokens must be cached, because the prompts share {} of their tokens with each other",
            percent(bound),
            percent(expected)
        );
        new_reason(ReasonCode::CacheMissed, source, Some(told_bound))
    })
}

/// Returns cache hits and looked-up tokens by the engine's counters.
fn counted_hits(evidence: &CacheEvidence<'_>) -> Option<(f64, f64)> {
    let proof = evidence.reset_proof?;
    let (hits, queries) = (proof.hits_in_window?, proof.queries_in_window?);
    (queries > 0.0).then_some((hits, queries))
}

fn counted_hits_in_words(hits: f64, queries: f64) -> String {
    format!(
        "the engine's counters show {hits} cache hits in {queries} cache queries ({})",
        percent(hits / queries)
    )
}

/// Merges the reasons of the points of a search to one per code: that of the worst point, with the number of
/// points.
fn judge_points(record: &SearchRecord, reasons: &mut Vec<Reason>) {
    for code in [ReasonCode::CacheWarm, ReasonCode::ResetUnproven] {
        let reasons_of_points: Vec<(f64, &Reason)> = record
            .points
            .iter()
            .flat_map(|point| point.caches.iter().map(|reason| (point.value, reason)))
            .filter(|(_, reason)| reason.code == code)
            .collect();
        let Some(weight) = reasons_of_points.iter().map(|(_, reason)| reason.weight).max() else {
            continue;
        };
        let worst = reasons_of_points
            .iter()
            .find(|(_, reason)| reason.weight == weight);
        let (value, reason) = worst.expect("the heaviest is one of them");
        reasons.push(Reason {
            measured: format!(
                "this concerns {} of {} points of the search, first at {value} {}: {}",
                reasons_of_points.len(),
                record.points.len(),
                record.by.unit(),
                reason.measured
            ),
            ..(*reason).clone()
        });
    }
}

/// Judges the caches at the start of a load. `is_unseen`: no similar prompts were sent on this start before.
pub(crate) fn cache_reasons(evidence: &CacheEvidence<'_>, is_unseen: bool) -> Vec<Reason> {
    let hits = cached_share(evidence);
    let mut reasons: Vec<Reason> = warm_cache_reason(evidence, hits.as_ref()).into_iter().collect();
    let Some(bound) = evidence.max_cached_share() else {
        return reasons;
    };
    let proof = evidence.reset_proof;
    // A prompt with a new prefix is in no cache, whether or not hits are counted.
    let is_new = unique_prefix(proof).is_some_and(|prefix| prefix.kept == 0);
    if is_unseen || is_new {
        return reasons;
    }
    let refused = proof.filter(|proof| proof.possible && proof.success != Some(true));
    let refusal = match (refused, proof.is_some_and(|proof| proof.possible)) {
        (Some(proof), _) => {
            let answer = proof.answer.as_deref().unwrap_or("no response");
            let status = proof
                .status
                .map_or_else(String::new, |status| format!("status {status}: "));
            format!("the engine did not empty its caches: {status}{answer}")
        }
        (None, true) => {
            "the engine reports that it emptied its caches, but it does not report cache hits, so this is not proven"
                .to_owned()
        }
        (None, false) => {
            "the engine has no way to empty its caches, and reports no counts of cache hits".to_owned()
        }
    };
    // Counted hits near zero prove more than any answer.
    if refused.is_none() && hits.is_some() {
        return reasons;
    }
    let mut reason = new_reason(
        ReasonCode::ResetUnproven,
        refusal,
        Some("cache hits must be near zero during the measurement".to_owned()),
    );
    if hits.is_some_and(|(share, _)| share <= bound) {
        reason
            .measured
            .push_str("; however, the measured cache hits were near zero");
        reason.weight = Verdict::Valid;
    }
    reasons.push(reason);
    reasons
}

/// Reports that a load on a server without a recipe found its prompts in the cache, by what the server
/// reports. `None` if it did not, or if that is unknown.
pub(crate) fn unknown_server_cache_reason(evidence: &CacheEvidence<'_>) -> Option<Reason> {
    let reason = warm_cache_reason(evidence, cached_share(evidence).as_ref())?;
    Some(Reason {
        advice: "Send other prompts (another `--seed`), empty the caches before the load (`--flush-cache`), or restart the server, or \
                 start it without its prefix cache."
            .to_owned(),
        ..reason
    })
}

fn warm_cache_reason(evidence: &CacheEvidence<'_>, hits: Option<&(f64, String)>) -> Option<Reason> {
    let (bound, (share, source)) = (evidence.max_cached_share()?, hits?);
    let told_bound = || {
        format!(
            "at most {} of the prompt tokens may be cached, because the prompts share {} of their tokens with each other",
            percent(bound),
            percent(evidence.shared_share.unwrap_or_default())
        )
    };
    (*share > bound).then(|| new_reason(ReasonCode::CacheWarm, source.clone(), Some(told_bound())))
}

/// Returns the unique prefix that replaced the first tokens of the prompts.
fn unique_prefix(proof: Option<&CacheResetRecord>) -> Option<&UniquePrefix> {
    proof?.unique_prefix.as_ref()
}

/// Returns the share of prompt tokens that came from the cache, and a text with its source. Tokens that may
/// be cached ([`CacheEvidence::expected_cached_tokens`]) are left out.
fn cached_share(evidence: &CacheEvidence<'_>) -> Option<(f64, String)> {
    let counted = counted_hits(evidence).map(|(hits, queries)| {
        let unexpected = (hits - evidence.expected_cached_tokens(queries)).max(0.0);
        (unexpected / queries, counted_hits_in_words(hits, queries))
    });
    let reported = evidence
        .requests
        .iter()
        .filter_map(|request| request.usage?.prompt)
        .map(f64::from);
    let answered = cached_share_by_responses(evidence, evidence.expected_cached_tokens(reported.sum()));
    // If the two disagree, the worse one counts.
    match (counted, answered) {
        (Some(counted), Some(answered)) if answered.0 > counted.0 => Some(answered),
        (counted, answered) => counted.or(answered),
    }
}

/// Returns the same share by what the answers report, of the prompts as we count them.
fn cached_share_by_responses(evidence: &CacheEvidence<'_>, common: f64) -> Option<(f64, String)> {
    let tokens = reported_tokens(evidence)?;
    let share = (tokens.cached as f64 - common).max(0.0) / tokens.prompt as f64;
    Some((share, tokens.in_words()))
}

/// Returns the share of prompt tokens that the answers report as cached, both as the server counts them. Its chat template
/// and its tokenizer are in both.
fn found_share_by_responses(evidence: &CacheEvidence<'_>) -> Option<(f64, String)> {
    let tokens = reported_tokens(evidence)?;
    Some((tokens.share(), tokens.in_words()))
}

/// Tokens of the prompts of completed requests.
struct ReportedTokens {
    cached: u64,
    /// Our own count.
    prompt: u64,
    /// The server's count, if it is not below ours.
    counted: u64,
}

impl ReportedTokens {
    fn share(&self) -> f64 {
        self.cached as f64 / self.counted as f64
    }

    fn in_words(&self) -> String {
        format!(
            "according to the server's answers, {} of {} prompt tokens were cached ({})",
            self.cached,
            self.counted,
            percent(self.share())
        )
    }
}

/// Sums up what the answers report; `None` if none reports cached tokens.
fn reported_tokens(evidence: &CacheEvidence<'_>) -> Option<ReportedTokens> {
    let mut tokens = ReportedTokens {
        cached: 0,
        prompt: 0,
        counted: 0,
    };
    let mut is_reported = false;
    for request in evidence.requests.iter().filter(|request| request.is_completed()) {
        if let Some(count) = request.usage.and_then(|usage| usage.cached) {
            (tokens.cached, is_reported) = (tokens.cached + u64::from(count), true);
        }
        // A server counts the tokens of its chat template too.
        let reported = request.usage.and_then(|usage| usage.prompt);
        tokens.prompt += u64::from(request.prompt_sent());
        tokens.counted += u64::from(request.prompt_sent().max(reported.unwrap_or(0)));
    }
    (is_reported && tokens.prompt > 0).then_some(tokens)
}

/// Returns how many tokens of the warm-up prompt may still be in the cache: 0 if it was emptied after the
/// warm-up, or if prefixes are unique.
fn cached_warm_up_tokens(evidence: &CacheEvidence<'_>) -> f64 {
    let proof = evidence.reset_proof;
    let is_emptied = proof.is_some_and(|proof| proof.possible && proof.success == Some(true));
    // With unique prefixes the warm-up prompt has another prefix than those of the load.
    let is_other = unique_prefix(proof).is_some();
    if evidence.scenario.limits.warmup == 0 || is_emptied || is_other {
        return 0.0;
    }
    let first = evidence.requests.iter().min_by_key(|request| request.index);
    first.map_or(0.0, |request| f64::from(request.prompt_sent()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config::workload::Workload;
    use crate::plan::{Plan, Protocol};

    fn judged(is_planned: bool, cached: Option<u32>, counters: Option<(f64, f64)>) -> Option<Reason> {
        judged_of(is_planned, 100, cached, counters)
    }

    /// Judges 20 answers of 100 prompt tokens, which the server counts as `reported`, each with so many of them cached, whose
    /// prompts share half of their tokens.
    fn judged_of(
        is_planned: bool,
        reported: u32,
        cached: Option<u32>,
        counters: Option<(f64, f64)>,
    ) -> Option<Reason> {
        let plan: Plan =
            serde_json::from_str(include_str!("../../../tests/fixtures/run-format-1/plan.json")).unwrap();
        let mut scenario = plan.cells[0].scenario.clone();
        let prefix = is_planned.then(|| json!({"share": 0.5}));
        let workload = json!({
            "dataset": "random-ids", "path": null, "prompts": 20, "input_len": 100, "output_len": 4, "range_ratio": 1.0,
            "common_prefix": prefix,
        });
        scenario.workload = serde_json::from_value::<Workload>(workload).unwrap();
        let request = json!({
            "index": 0, "prompt_tokens": 100, "asked_tokens": 4, "due_ns": 0, "sent_ns": 1, "chunks": [], "end_ns": 2,
            "usage": {"prompt": reported, "completion": 4, "cached": cached},
        });
        let requests: Vec<Request> = vec![serde_json::from_value(request).unwrap(); 20];
        let proof = counters.map(|(hits, queries)| -> CacheResetRecord {
            serde_json::from_value(json!({
                "is_fresh_start": true, "possible": false, "status": null, "success": null, "answer": null,
                "hits_in_window": hits, "queries_in_window": queries,
            }))
            .unwrap()
        });
        missed_cache_reason(&CacheEvidence {
            protocol: Protocol::Completions,
            scenario: &scenario,
            bounds: &ValidityBounds::default(),
            shared_share: Some(0.5),
            reset_proof: proof.as_ref(),
            requests: &requests,
        })
    }

    #[test]
    fn a_cache_that_finds_less_than_the_prompts_share_is_noted_whichever_count_says_so() {
        for (cached, counters, is_noted) in [
            (Some(50), None, false),
            (Some(46), None, false),
            (Some(44), None, true),
            (Some(0), None, true),
            (None, None, false),
            (None, Some((1000.0, 2000.0)), false),
            (None, Some((400.0, 2000.0)), true),
            // One of the two is wrong.
            (Some(50), Some((0.0, 2000.0)), true),
            (Some(0), Some((1000.0, 2000.0)), true),
        ] {
            let reason = judged(true, cached, counters);
            assert_eq!(reason.is_some(), is_noted, "{cached:?} {counters:?}: {reason:?}");
            assert!(reason.is_none_or(|reason| reason.weight == Verdict::Valid));
        }
        assert_eq!(judged(false, Some(0), None), None);
    }

    #[test]
    fn found_tokens_are_a_share_of_the_prompt_as_the_server_counts_it() {
        // A chat template of 50 tokens is found for each prompt, and nothing of what the prompts share by design.
        let reason = judged_of(true, 150, Some(50), None).expect("a third is less than half");
        assert!(
            reason.measured.contains("1000 of 3000 prompt tokens"),
            "{}",
            reason.measured
        );
        // The template and the shared half.
        assert_eq!(judged_of(true, 150, Some(100), None), None);
    }
}
