//! The result block of a workload with its remarks.

use super::reproduce;
use crate::analysis::metrics::{self, Metric, Quantity};
use crate::config::dataset::PromptForm;
use crate::config::workload::Profile;
use crate::report::bench_serving::block::{self, BlockFacts, Layout};
use crate::report::bench_serving::traffic::Traffic;
use crate::report::caveats::{Itl, latency_caveats};
use crate::report::connection_notes;
use crate::report::markdown::{code_block, escape, list};
use crate::report::table::Value;
use crate::report::tables::{ReportCell, concurrent_launches_note};
use crate::results::record::cell::{Definitions, MeasurementStatus, MeasurementSummary, MetricValues};
use crate::results::record::client::ClientFacts;
use crate::results::record::request::format_failures;

pub(super) fn workload_in_words(cell: &ReportCell<'_>) -> String {
    let scenario = &cell.cell.scenario;
    let mut text = format!("### {}\n\n", escape(&cell.scenario()));
    let chosen = cell.median_summary();
    if let Some(summary) = chosen {
        let (profile, definitions) = match scenario.profile {
            Profile::Classic => (Profile::Classic, Definitions::Classic),
            Profile::Current => (Profile::Current, Definitions::Current),
        };
        let none = MetricValues::new();
        let arrival = summary.arrival(scenario);
        let facts = BlockFacts {
            backend: &cell.launch.engine.backend,
            rate: Traffic::from_scenario(scenario, &arrival),
            concurrency: arrival.concurrency,
            slo: scenario.slo.as_ref(),
            cache: None,
            has_images: scenario.workload.facts().prompts == PromptForm::Pictures,
            embeds: false,
            layout: match &summary.imported {
                Some(imported) => Layout::AsPrinted {
                    vision: imported.vision_line,
                },
                None => Layout::Whole,
            },
        };
        let figures = summary.figures.get(&definitions).unwrap_or(&none);
        let block = block::block(profile, &facts, figures);
        text.push_str(&code_block(block.trim_matches('\n'), "text"));
        text.push('\n');
    }
    text.push_str(&list(&remarks(cell, chosen)));
    text.push('\n');
    for summary in &cell.summaries {
        if let MeasurementStatus::Failed { tail, .. } = &summary.status
            && !tail.is_empty()
        {
            text.push_str("Last lines of the engine's log:\n\n");
            text.push_str(&code_block(&tail.join("\n"), "text"));
            text.push('\n');
        }
    }
    text
}

const COMPARED_METRIC: Metric = Metric::Throughput(Quantity::Output);

/// Remarks beside a block: what was requested, failures, repeats, validity.
fn remarks(cell: &ReportCell<'_>, chosen: Option<&MeasurementSummary>) -> Vec<String> {
    let mut remarks = Vec::new();
    let requested = cell.cell.scenario.workload.prompts;
    match cell.summaries.iter().find_map(|summary| summary.prompts) {
        Some(sent) if sent != requested => {
            remarks.push(format!("prompts: {sent} of {requested} requested"));
        }
        _ => remarks.push(format!("prompts: {requested}")),
    }
    let mut hashes: Vec<&str> = cell
        .summaries
        .iter()
        .filter_map(|summary| summary.prompts_hash.as_ref())
        .map(|hash| hash.as_str())
        .collect();
    hashes.dedup();
    if !hashes.is_empty() {
        remarks.push(format!("digest of the prompts: {}", hashes.join(", ")));
    }
    if let Some(summary) = chosen.filter(|_| cell.summaries.len() > 1) {
        let values = cell.values(COMPARED_METRIC);
        let spread = cell.value_with_range(COMPARED_METRIC, 2);
        let word = if matches!(spread, Value::Spread { .. }) {
            "mean and range of output throughput"
        } else {
            "output throughput"
        };
        remarks.push(format!(
            "{} of {} measurements are complete; the figures above belong to start {}, repeat {}; {word} of all measurements: {spread} tok/s",
            values.len(),
            cell.summaries.len(),
            summary.start,
            summary.repeat,
        ));
    }
    for summary in &cell.summaries {
        let which = if cell.summaries.len() > 1 {
            format!("start {}, repeat {}: ", summary.start, summary.repeat)
        } else {
            String::new()
        };
        remarks.extend(
            measurement_remarks(summary)
                .into_iter()
                .map(|remark| format!("{which}{remark}")),
        );
    }
    if let Some(figures) = chosen.and_then(|summary| summary.figures.get(&Definitions::Matrix)) {
        let launch = cell.launch;
        let protocol = launch.api.dialect.protocol;
        let itl = Itl::for_block(cell.cell.scenario.profile, protocol, &launch.engine.backend, None);
        let figure = |metric| metrics::metric_value(figures, metric);
        remarks.extend(
            latency_caveats(&figure, itl)
                .into_iter()
                .map(|trap| format!("note: {trap}")),
        );
    }
    if cell.summaries.is_empty() {
        remarks.push("not measured".to_owned());
    }
    remarks
}

fn measurement_remarks(summary: &MeasurementSummary) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(imported) = &summary.imported {
        let unknown: Vec<&str> = imported.unknown.iter().map(|what| what.name()).collect();
        let unknown = match unknown.is_empty() {
            true => String::new(),
            false => format!("; unknown: {}", unknown.join(", ")),
        };
        remarks.push(format!(
            "imported from {}, line {}; measured with {}{unknown}",
            imported.file,
            imported.line,
            imported.tool_in_words()
        ));
    }
    match &summary.status {
        MeasurementStatus::Done => {}
        MeasurementStatus::Failed { phase, reason, .. } => {
            remarks.push(format!("failed in {}: {reason}", phase.name()));
        }
        MeasurementStatus::Skipped { reason } => remarks.push(format!("skipped: {reason}")),
        MeasurementStatus::Interrupted => remarks.push("interrupted".to_owned()),
    }
    remarks.extend(reproduce::validity_lines(summary));
    let failures = format_failures(summary.failures.iter().map(|(class, count)| (*class, *count)));
    if !failures.is_empty() {
        remarks.push(format!("failed requests: {failures}"));
    }
    if let Some(client) = &summary.client {
        remarks.push(client_in_words(client));
    }
    if !summary.concurrent_launches.is_empty() {
        remarks.push(concurrent_launches_note(&summary.concurrent_launches));
    }
    for retry in &summary.retries {
        remarks.push(format!(
            "the measurement was retried after a failure of class {} in the phase {}: {}",
            retry.class.name(),
            retry.phase.name(),
            retry.reason
        ));
    }
    let connections = summary.connections.iter();
    remarks.extend(connections.flat_map(|counts| connection_notes::notes(counts, &connection_notes::KEYS)));
    for warning in &summary.warnings {
        remarks.push(format!("warning: {warning}"));
    }
    remarks
}

/// The load of the client and its timing error.
fn client_in_words(client: &ClientFacts) -> String {
    let mut words = Vec::new();
    if let Some(lag) = &client.send_lag {
        words.push(format!(
            "requests sent at most {:.2} ms late (p99 {:.2} ms)",
            lag.max_ms, lag.p99_ms
        ));
    }
    if let Some(share) = client.cpu_share {
        words.push(format!("busiest thread {:.0} % of a CPU", share * 100.0));
    }
    match &client.error {
        Some(point) => words.push(format!(
            "timing error by calibration at {} streams: TTFT {:+.2} ms (p99 {:.2}), ITL {:+.3} ms (p99 {:.3})",
            point.streams, point.ttft_ms.bias, point.ttft_ms.p99, point.itl_ms.bias, point.itl_ms.p99
        )),
        None => words.push("not calibrated".to_owned()),
    }
    format!("client: {}", words.join("; "))
}
