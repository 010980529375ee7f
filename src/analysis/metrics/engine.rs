//! Metrics of the engine itself: speculative decoding and prefix cache. `None` if they are not reported,
//! never 0.

use super::inputs::MetricInputs;
use super::metric::Metric;
use super::metric_set::MetricSet;
use crate::results::record::request::Request;
use crate::results::record::telemetry::EngineWindow;

pub(super) fn add_engine_metrics(metrics: &mut MetricSet, requests: &[Request], inputs: &MetricInputs) {
    let engine = inputs.engine.as_ref().filter(|engine| engine.reset.is_empty());
    metrics.insert(
        Metric::AcceptLength,
        inputs.accept_length.or_else(|| accept_length(engine?)),
    );
    metrics.insert(Metric::AcceptRate, engine.and_then(accept_rate));
    let hit_share = reported_hit_share(requests).or_else(|| counted_hit_share(engine?));
    metrics.insert(Metric::CacheHitShare, hit_share);
    if let Some(share) = theoretical_hit_share(requests) {
        metrics.insert(Metric::TheoreticalHitShare, Some(share));
    }
}

fn counter_growth(engine: &EngineWindow, name: &str) -> Option<f64> {
    engine.grown.get(name).copied()
}

/// Returns the tokens per step: one from the step itself, and the accepted draft tokens.
fn accept_length(engine: &EngineWindow) -> Option<f64> {
    let drafts = counter_growth(engine, "spec_drafts").filter(|drafts| *drafts > 0.0);
    let by_counters =
        drafts.and_then(|drafts| Some(1.0 + counter_growth(engine, "spec_accepted_tokens")? / drafts));
    let gauge = engine.gauges.get("accepted_length").map(|range| range.mean);
    by_counters.or(gauge.filter(|length| *length > 0.0))
}

fn accept_rate(engine: &EngineWindow) -> Option<f64> {
    let drafted = counter_growth(engine, "spec_draft_tokens").filter(|tokens| *tokens > 0.0)?;
    Some(counter_growth(engine, "spec_accepted_tokens")? / drafted)
}

/// Returns the cached share of all prompt tokens, if every answer reports it.
pub(super) fn reported_hit_share<'r>(requests: impl IntoIterator<Item = &'r Request>) -> Option<f64> {
    let completed = requests.into_iter().filter(|request| request.is_completed());
    let (mut prompt, mut cached) = (0u64, 0u64);
    for request in completed {
        let usage = request.usage?;
        let of_prompt = usage.prompt.unwrap_or_else(|| request.prompt_sent());
        cached += u64::from(usage.cached.filter(|cached| *cached <= of_prompt)?);
        prompt += u64::from(of_prompt);
    }
    (prompt > 0).then(|| cached as f64 / prompt as f64)
}

/// Returns the share of prompt tokens of completed requests that an unlimited prefix cache would hold, by our own count
/// of both, which includes the chat template; `None` where that was not computed for each.
pub(crate) fn theoretical_hit_share<'r>(requests: impl IntoIterator<Item = &'r Request>) -> Option<f64> {
    let (mut prompt, mut reusable) = (0u64, 0u64);
    for request in requests.into_iter().filter(|request| request.is_completed()) {
        reusable += u64::from(request.reusable_prompt?);
        prompt += u64::from(request.queried_prompt.unwrap_or(request.prompt_tokens));
    }
    (prompt > 0).then(|| reusable as f64 / prompt as f64)
}

/// Returns the cached share of all prompt tokens, by the engine's counters.
fn counted_hit_share(engine: &EngineWindow) -> Option<f64> {
    let queries = counter_growth(engine, "prefix_queries").filter(|queries| *queries > 0.0)?;
    Some((counter_growth(engine, "prefix_hits")? / queries).min(1.0))
}
