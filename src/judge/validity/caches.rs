//! Were the prompts new to the engine?

use super::{Evidence, found, percent};
use crate::matrix::plan::Protocol;
use crate::results::record::cell::{ResetProof, UniquePrefix};
use crate::results::record::validity::{Code, Reason, Verdict};

/// Tokens of each prompt that a chat template gives to all of them.
const TEMPLATE: f64 = 64.0;

pub(super) fn judge(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    // The points of a search may send the same prompts again, and say so themselves.
    if evidence.summary.search.is_some() {
        return;
    }
    // What prompts share among themselves is no warm cache; where nobody can tell how much that is, nothing is judged.
    let Some(repeated) = evidence.summary.prompts_repeated else {
        return;
    };
    let bound = repeated + evidence.bounds.warm;
    let proof = evidence.summary.reset.as_ref();
    let hits = warm_share(evidence, proof);
    if let Some((share, told)) = &hits
        && *share > bound
    {
        let told_bound = format!(
            "{}, since the prompts themselves repeat {}",
            percent(bound),
            percent(repeated)
        );
        reasons.push(found(Code::CacheWarm, told.clone(), Some(told_bound)));
    }
    // What begins as nothing before it did is in no cache, whether anybody counts or not.
    let is_new = prefix(proof).is_some_and(|prefix| prefix.kept == 0);
    if is_fresh(evidence) || is_new {
        return;
    }
    let refused = proof.filter(|proof| proof.possible && proof.success != Some(true));
    let told = match (refused, proof.is_some_and(|proof| proof.possible)) {
        (Some(proof), _) => {
            let answer = proof.answer.as_deref().unwrap_or("no answer");
            let status = proof
                .status
                .map_or_else(String::new, |status| format!("status {status}: "));
            format!("the engine did not empty its caches: {status}{answer}")
        }
        (None, true) => "the engine says success, and counts no hits that would prove it".to_owned(),
        (None, false) => "the engine has no way to empty its caches, and counts no hits".to_owned(),
    };
    // Hits that were counted and near zero prove more than any answer.
    if refused.is_none() && hits.is_some() {
        return;
    }
    let mut reason = found(
        Code::ResetUnproven,
        told,
        Some("hits near zero over the window".to_owned()),
    );
    if hits.is_some_and(|(share, _)| share <= bound) {
        reason.measured.push_str("; no hits were counted though");
        reason.weight = Verdict::Valid;
    }
    reasons.push(reason);
}

/// What the prompts began with in the place of their own tokens.
fn prefix(proof: Option<&ResetProof>) -> Option<&UniquePrefix> {
    proof?.unique_prefix.as_ref()
}

/// Whether nothing was measured on this start before.
fn is_fresh(evidence: &Evidence<'_>) -> bool {
    evidence
        .summary
        .reset
        .as_ref()
        .is_some_and(|proof| proof.is_fresh_start)
}

/// The share of prompt tokens that came from the cache, and who says so. Of a chat template's own tokens nobody expects otherwise.
fn warm_share(evidence: &Evidence<'_>, proof: Option<&ResetProof>) -> Option<(f64, String)> {
    let is_chat = evidence.launch.contact.dialect.protocol == Protocol::Chat
        || evidence.cell.scenario.workload.apply_chat_template
        || evidence.cell.scenario.workload.dataset.is_templated();
    let template = if is_chat {
        TEMPLATE * evidence.requests.len() as f64
    } else {
        0.0
    };
    // All prompts have it, so that an engine that keeps single tokens finds it for each but the first.
    let prefix = prefix(proof).map_or(0.0, |prefix| f64::from(prefix.tokens));
    let common = template + prefix * evidence.requests.len() as f64 + warmed_up(evidence, proof);
    if let Some(proof) = proof
        && let (Some(hits), Some(queries)) = (proof.hits_in_window, proof.queries_in_window)
        && queries > 0.0
    {
        let share = (hits - common).max(0.0) / queries;
        return Some((
            share,
            format!(
                "{hits} of {queries} by the engine's counters ({})",
                percent(hits / queries)
            ),
        ));
    }
    let (mut cached, mut prompt, mut told) = (0u64, 0u64, false);
    for request in evidence.completed() {
        if let Some(count) = request.usage.and_then(|usage| usage.cached) {
            (cached, told) = (cached + u64::from(count), true);
        }
        prompt += u64::from(request.prompt_tokens);
    }
    (told && prompt > 0).then(|| {
        let share = (cached as f64 - common).max(0.0) / prompt as f64;
        (
            share,
            format!(
                "{cached} of {prompt} prompt tokens by its answers ({})",
                percent(cached as f64 / prompt as f64)
            ),
        )
    })
}

/// Tokens of the prompt that warms up, which the engine knows by our own doing unless its caches were emptied after it.
fn warmed_up(evidence: &Evidence<'_>, proof: Option<&ResetProof>) -> f64 {
    let is_emptied = proof.is_some_and(|proof| proof.possible && proof.success == Some(true));
    // The prompt that warms up begins otherwise than those of the load.
    let is_other = prefix(proof).is_some();
    if evidence.cell.scenario.limits.warmup == 0 || is_emptied || is_other {
        return 0.0;
    }
    let first = evidence.requests.iter().min_by_key(|request| request.index);
    first.map_or(0.0, |request| f64::from(request.prompt_tokens))
}
