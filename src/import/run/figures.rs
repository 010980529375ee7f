//! The figures of an imported result, by definition set.

use std::collections::BTreeMap;

use crate::analysis::metrics::{LatencyKind, Metric, Quantity, Statistic, TokenCount};
use crate::config::workload::Profile;
use crate::import::result_block::ResultBlock;
use crate::plan::{Launch, Protocol};
use crate::results::record::cell::{self, Definitions};
use crate::results::record::provenance::UnknownFact;

/// The figures under the profile of the file, and those with the same meaning under `matrix`.
pub(super) fn figures(
    result: &ResultBlock,
    launch: &Launch,
    unknown: &[UnknownFact],
) -> BTreeMap<Definitions, cell::MetricValues> {
    let own: cell::MetricValues = result
        .figures
        .iter()
        .map(|(metric, printed)| (metric.name(), printed.value))
        .collect();
    let definitions = match result.profile {
        Profile::Classic => Definitions::Classic,
        Profile::Current => Definitions::Current,
    };
    // Figures measured by `matrix` use counted tokens; those under bench_serving's keys use requested tokens.
    let matrix = result.matrix_figures.clone();
    BTreeMap::from([
        (definitions, own),
        (
            Definitions::Matrix,
            matrix.unwrap_or_else(|| matrix_figures(result, launch, unknown)),
        ),
    ])
}

/// Figures that `matrix` defines as the other tools do, under the names of `matrix`. ITL is not among them, as
/// it may be a chunk gap, and E2E only if the tool ends it with the last token, not with the last line.
fn matrix_figures(result: &ResultBlock, launch: &Launch, unknown: &[UnknownFact]) -> cell::MetricValues {
    let mut figures = cell::MetricValues::new();
    let mut put = |metric: Metric, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            figures.insert(metric.name(), Some(value));
        }
    };
    let figure = |metric| result.figure(metric);
    for metric in [
        Metric::Duration,
        Metric::Completed,
        Metric::Cancelled,
        Metric::Tokens(TokenCount::Input),
        Metric::Tokens(TokenCount::InputVision),
        Metric::Tokens(TokenCount::InputReported),
        Metric::Tokens(TokenCount::InputCached),
        Metric::Tokens(TokenCount::Output),
        Metric::Tokens(TokenCount::OutputReported),
        Metric::Tokens(TokenCount::OutputReasoning),
        Metric::Tokens(TokenCount::OutputCounted),
        Metric::Throughput(Quantity::Requests),
        Metric::Throughput(Quantity::Input),
        Metric::Throughput(Quantity::Output),
        Metric::AcceptLength,
    ] {
        put(metric, figure(metric));
    }
    let flow = |flow| figure(Metric::Throughput(flow));
    let total = flow(Quantity::Total).or_else(|| Some(flow(Quantity::Input)? + flow(Quantity::Output)?));
    put(Metric::Throughput(Quantity::Total), total);
    let requested_tokens = result.options.output_tokens.map(|(_, tokens)| tokens as f64);
    put(Metric::Tokens(TokenCount::OutputRequested), requested_tokens);
    if let Some(failed) = failed_requests(result) {
        let completed = figure(Metric::Completed).unwrap_or(0.0);
        put(Metric::Failed, Some(failed));
        put(Metric::Due, Some(completed + failed));
        put(Metric::ErrorShare, Some(failed / (completed + failed)));
    }
    if !unknown.contains(&UnknownFact::Gpus) && launch.devices > 0 {
        for each in Quantity::ALL {
            let total_rate = match each {
                Quantity::Total => total,
                other => flow(other),
            };
            put(
                Metric::PerDevice(each),
                total_rate.map(|total_rate| total_rate / f64::from(launch.devices)),
            );
        }
    }
    let is_divided = result.profile == Profile::Current
        && launch.api.dialect.protocol == Protocol::SglangNative
        || figure(Metric::AcceptLength).is_some();
    let e2e = match result.e2e_ends_at_token {
        true => LatencyKind::E2e,
        false => LatencyKind::E2eLine,
    };
    for statistic in Statistic::ALL {
        let value_of = |sample| figure(Metric::Time(statistic, sample));
        put(
            Metric::Time(statistic, LatencyKind::Ttft),
            value_of(LatencyKind::Ttft),
        );
        put(Metric::Time(statistic, e2e), value_of(LatencyKind::E2e));
        let gap = value_of(LatencyKind::Itl).filter(|_| !is_divided);
        put(Metric::Time(statistic, LatencyKind::ChunkGap), gap);
    }
    figures
}

/// The number of failed requests, if known. Fewer successes than prompts may also mean that the data set gave
/// fewer prompts.
pub(super) fn failed_requests(result: &ResultBlock) -> Option<f64> {
    if let Some(failed) = result.figure(Metric::Failed) {
        return Some(failed);
    }
    let completed = result.figure(Metric::Completed)?;
    let prompts = result.options.prompts.map(|prompts| prompts as f64);
    let all_sent =
        |(_, tokens): (u32, u64)| result.figure(Metric::Tokens(TokenCount::Input)) == Some(tokens as f64);
    if prompts == Some(completed) || result.options.input_tokens.is_some_and(all_sent) {
        return Some(0.0);
    }
    prompts
        .filter(|prompts| result.options.is_random() && *prompts >= completed)
        .map(|prompts| prompts - completed)
}
