//! Checks that the prompts were new to the engine.

use super::{Evidence, found, percent};
use crate::config::dataset::TemplateUse;
use crate::config::scenario::Scenario;
use crate::config::validity::Bounds;
use crate::plan::Protocol;
use crate::results::record::cell::{ResetProof, UniquePrefix};
use crate::results::record::request::Request;
use crate::results::record::search::SearchRecord;
use crate::results::record::validity::{Code, Reason, Verdict};

/// Tokens per prompt that a chat template adds to all prompts, unless the server counts even more beyond
/// ours.
const TEMPLATE: f64 = 64.0;

/// The same for other prompts: the token with which a text begins, for a cache that stores single tokens.
const BEGIN: f64 = 1.0;

/// One load on an engine, and what is known about the caches at its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Met<'a> {
    pub protocol: Protocol,
    pub scenario: &'a Scenario,
    pub bounds: &'a Bounds,
    /// Share of prompt tokens that prompts share with each other. `None` if it is unknown.
    pub repeated: Option<f64>,
    /// How the caches were reset before the load, and the hits that the engine counted.
    pub proof: Option<&'a ResetProof>,
    pub requests: &'a [Request],
}

impl<'a> Met<'a> {
    /// Returns the load of a measurement that is no search.
    pub(super) fn of(evidence: &Evidence<'a>) -> Self {
        Self {
            protocol: evidence.launch.contact.dialect.protocol,
            scenario: &evidence.cell.scenario,
            bounds: evidence.bounds,
            repeated: evidence.summary.prompts_repeated,
            proof: evidence.summary.reset.as_ref(),
            requests: evidence.requests,
        }
    }

    /// Returns the highest share of prompt tokens that may come from the cache. The share that prompts have
    /// in common does not mean that the cache was warm. `None` if that share is unknown; nothing is judged
    /// then.
    fn bound(&self) -> Option<f64> {
        Some(self.repeated? + self.bounds.warm)
    }

    /// Returns the number of prompt tokens that a cache may hold because of our own requests, if the engine
    /// counts `counted` tokens: those that a unique prefix or a chat template adds to all prompts, and the
    /// warm-up prompt.
    pub(super) fn common(&self, counted: f64) -> f64 {
        let is_chat =
            self.protocol == Protocol::Chat || self.scenario.workload.facts().template != TemplateUse::None;
        let count = self.requests.len() as f64;
        let template = if is_chat { TEMPLATE } else { BEGIN } * count;
        // All prompts have it, so an engine that caches single tokens finds it for each prompt but the first.
        let prefix = prefix(self.proof).map_or(0.0, |prefix| f64::from(prefix.tokens));
        let ours = self
            .requests
            .iter()
            .map(|request| f64::from(request.prompt_sent()));
        // An engine that counts more prompt tokens than we do may do so in the shared parts. Tools and other
        // texts that a template adds to each request are among these tokens.
        prefix * count + warmed_up(self) + template.max(counted - ours.sum::<f64>())
    }
}

pub(super) fn judge(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    // The points of a search are judged one by one.
    if let Some(record) = &evidence.summary.search {
        of_points(record, reasons);
        return;
    }
    let proof = evidence.summary.reset.as_ref();
    reasons.extend(caches(
        &Met::of(evidence),
        proof.is_some_and(|proof| proof.is_fresh_start),
    ));
}

/// Merges the reasons of the points of a search to one per code: that of the worst point, with the number of
/// points.
fn of_points(record: &SearchRecord, reasons: &mut Vec<Reason>) {
    for code in [Code::CacheWarm, Code::ResetUnproven] {
        let found: Vec<(f64, &Reason)> = record
            .points
            .iter()
            .flat_map(|point| point.caches.iter().map(|reason| (point.value, reason)))
            .filter(|(_, reason)| reason.code == code)
            .collect();
        let Some(weight) = found.iter().map(|(_, reason)| reason.weight).max() else {
            continue;
        };
        let worst = found.iter().find(|(_, reason)| reason.weight == weight);
        let (value, reason) = worst.expect("the heaviest is one of them");
        reasons.push(Reason {
            measured: format!(
                "{} of {} points, first at {value} {}: {}",
                found.len(),
                record.points.len(),
                record.by.unit(),
                reason.measured
            ),
            ..(*reason).clone()
        });
    }
}

/// Judges the caches at the start of a load. `is_unseen`: no similar prompts were sent on this start before.
pub(crate) fn caches(met: &Met<'_>, is_unseen: bool) -> Vec<Reason> {
    let hits = warm_share(met);
    let mut reasons: Vec<Reason> = warm(met, hits.as_ref()).into_iter().collect();
    let Some(bound) = met.bound() else {
        return reasons;
    };
    let proof = met.proof;
    // A prompt with a new prefix is in no cache, whether or not hits are counted.
    let is_new = prefix(proof).is_some_and(|prefix| prefix.kept == 0);
    if is_unseen || is_new {
        return reasons;
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
    // Counted hits near zero prove more than any answer.
    if refused.is_none() && hits.is_some() {
        return reasons;
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
    reasons
}

/// Reports that a load on a server without a recipe found its prompts in the cache, by what the server
/// reports. `None` if it did not, or if that is unknown.
pub(crate) fn cache_warm(met: &Met<'_>) -> Option<Reason> {
    let reason = warm(met, warm_share(met).as_ref())?;
    Some(Reason {
        advice: "Send other prompts (another `--seed`), or have the caches emptied before the load (`--flush-cache`), or start the \
                 server anew or without its prefix cache."
            .to_owned(),
        ..reason
    })
}

fn warm(met: &Met<'_>, hits: Option<&(f64, String)>) -> Option<Reason> {
    let (bound, (share, told)) = (met.bound()?, hits?);
    let told_bound = || {
        format!(
            "{}, since the prompts themselves repeat {}",
            percent(bound),
            percent(met.repeated.unwrap_or_default())
        )
    };
    (*share > bound).then(|| found(Code::CacheWarm, told.clone(), Some(told_bound())))
}

/// Returns the unique prefix that replaced the first tokens of the prompts.
fn prefix(proof: Option<&ResetProof>) -> Option<&UniquePrefix> {
    proof?.unique_prefix.as_ref()
}

/// Returns the share of prompt tokens that came from the cache, and a text with its source. Tokens that may
/// be cached ([`Met::common`]) are left out.
fn warm_share(met: &Met<'_>) -> Option<(f64, String)> {
    let proof = met.proof;
    let counted = proof.and_then(|proof| {
        let (hits, queries) = (proof.hits_in_window?, proof.queries_in_window?);
        let told = || {
            format!(
                "{hits} of {queries} by the engine's counters ({})",
                percent(hits / queries)
            )
        };
        (queries > 0.0).then(|| ((hits - met.common(queries)).max(0.0) / queries, told()))
    });
    let reported = met
        .requests
        .iter()
        .filter_map(|request| request.usage?.prompt)
        .map(f64::from);
    let answered = warm_in_answers(met, met.common(reported.sum()));
    // If the two disagree, the worse one counts.
    match (counted, answered) {
        (Some(counted), Some(answered)) if answered.0 > counted.0 => Some(answered),
        (counted, answered) => counted.or(answered),
    }
}

/// Returns the same share by what the answers report.
fn warm_in_answers(met: &Met<'_>, common: f64) -> Option<(f64, String)> {
    let (mut cached, mut prompt, mut told) = (0u64, 0u64, false);
    for request in met.requests.iter().filter(|request| request.is_completed()) {
        if let Some(count) = request.usage.and_then(|usage| usage.cached) {
            (cached, told) = (cached + u64::from(count), true);
        }
        prompt += u64::from(request.prompt_sent());
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

/// Returns the tokens of the warm-up prompt. They may be in the cache, unless it was emptied after the
/// warm-up.
fn warmed_up(met: &Met<'_>) -> f64 {
    let proof = met.proof;
    let is_emptied = proof.is_some_and(|proof| proof.possible && proof.success == Some(true));
    // With unique prefixes the warm-up prompt has another prefix than those of the load.
    let is_other = prefix(proof).is_some();
    if met.scenario.limits.warmup == 0 || is_emptied || is_other {
        return 0.0;
    }
    let first = met.requests.iter().min_by_key(|request| request.index);
    first.map_or(0.0, |request| f64::from(request.prompt_sent()))
}
