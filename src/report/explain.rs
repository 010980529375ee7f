//! Explains the validity of one measurement with its evidence, as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::analysis::metrics::{self, LatencyKind, Metric, Statistic};
use crate::base::text::wrap;
use crate::report::connection_notes;
use crate::report::table::single_line;
use crate::results::record::cell::{CacheResetRecord, Definitions, MeasurementStatus, MeasurementSummary};
use crate::results::record::client::ClientFacts;
use crate::results::record::telemetry::{
    Energy, EnergySource, GpuWindow, HostWindow, SampledRange, SourceFacts, Telemetry,
};
use crate::results::record::validity::{Reason, Validity};

/// Maximum width of a line.
const WIDTH: usize = 110;

/// Maximum number of engine log lines that are shown.
const MAX_LOG_LINES: usize = 10;

/// Explains the validity of a measurement. `post_mortem` is the path of the file about a failure. Text from
/// elsewhere loses its control characters.
pub(crate) fn explain(
    summary: &MeasurementSummary,
    validity: Option<&Validity>,
    post_mortem: Option<&Path>,
) -> String {
    let began = match summary.began.is_empty() {
        true => String::new(),
        false => format!(", {}", summary.began),
    };
    let mut text = format!(
        "{}\n  start {}, repeat {}{began}: {}\n",
        single_line(summary.cell.as_str()),
        summary.start,
        summary.repeat,
        verdict(summary, validity)
    );
    for reason in validity.iter().flat_map(|validity| &validity.reasons) {
        text.push_str(&finding(reason));
    }
    let evidence = evidence(summary);
    if !evidence.is_empty() {
        text.push_str("\n  evidence\n");
    }
    for (name, body) in evidence {
        append_wrapped(&mut text, &format!("    {name:<12}"), &single_line(&body));
    }
    if let MeasurementStatus::Failed { tail, .. } = &summary.status
        && !tail.is_empty()
    {
        text.push_str("\n  last lines of the engine's log\n");
        for line in &tail[tail.len().saturating_sub(MAX_LOG_LINES)..] {
            let _ = writeln!(text, "    | {}", single_line(line));
        }
    }
    if let Some(path) = post_mortem {
        let _ = writeln!(text, "\n  details: {}", path.display());
    }
    text
}

/// One line for each measurement: its verdict and the codes of its reasons.
pub(crate) fn overview(judged: &[(&MeasurementSummary, Option<Validity>)]) -> String {
    let mut text = String::new();
    for (summary, validity) in judged {
        let reasons = validity.iter().flat_map(|validity| &validity.reasons);
        let codes: Vec<&str> = reasons.map(|reason| reason.code.name()).collect();
        let codes_in_words = match codes.is_empty() {
            true => String::new(),
            false => format!(" ({})", codes.join(", ")),
        };
        let _ = writeln!(
            text,
            "{} start {}, repeat {}: {}{codes_in_words}",
            single_line(summary.cell.as_str()),
            summary.start,
            summary.repeat,
            verdict(summary, validity.as_ref())
        );
    }
    text.push_str("\n`matrix explain CELL` shows the evidence for one cell; a part of its name is enough.\n");
    text
}

fn verdict(summary: &MeasurementSummary, validity: Option<&Validity>) -> String {
    match (&summary.status, validity) {
        (MeasurementStatus::Done, Some(validity)) => validity.verdict.name().to_owned(),
        (MeasurementStatus::Done, None) => "not judged (measured by an older version of matrix)".to_owned(),
        (MeasurementStatus::Failed { phase, reason, .. }, _) => {
            format!("failed in {}: {}", phase.name(), single_line(reason))
        }
        (MeasurementStatus::Skipped { reason }, _) => format!("skipped: {}", single_line(reason)),
        (MeasurementStatus::Interrupted, _) => "interrupted".to_owned(),
    }
}

fn finding(reason: &Reason) -> String {
    let weight = reason.describe_weight();
    let mut text = format!("\n  {weight:<7}  {}\n", reason.code.name());
    append_wrapped(&mut text, "           measured  ", &single_line(&reason.measured));
    if let Some(bound) = &reason.bound {
        append_wrapped(&mut text, "           bound     ", &single_line(bound));
    }
    append_wrapped(&mut text, "           ", &single_line(&reason.advice));
    text
}

/// Appends a text after its head, wrapped at words and indented like its first line.
fn append_wrapped(text: &mut String, head: &str, body: &str) {
    text.push_str(&wrap(head, head.chars().count(), body, WIDTH));
}

fn evidence(summary: &MeasurementSummary) -> Vec<(String, String)> {
    let lines = [
        ("requests", requests_in_words(summary)),
        ("percentiles", percentiles(summary)),
        ("client", summary.client.as_ref().map(client_in_words)),
        (
            "connections",
            summary
                .connections
                .as_ref()
                .map(|counts| connection_notes::notes(counts, &connection_notes::KEYS).join("; "))
                .filter(|notes| !notes.is_empty()),
        ),
        ("caches", summary.cache_reset.as_ref().map(cache_reset_in_words)),
    ];
    let lines = lines
        .into_iter()
        .filter_map(|(name, words)| Some((name.to_owned(), words?)));
    lines
        .chain(summary.telemetry.iter().flat_map(telemetry_evidence))
        .collect()
}

fn figure(summary: &MeasurementSummary, metric: Metric) -> Option<f64> {
    metrics::metric_value(summary.figures.get(&Definitions::Matrix)?, metric)
}

fn requests_in_words(summary: &MeasurementSummary) -> Option<String> {
    let (due, completed) = (figure(summary, Metric::Due)?, figure(summary, Metric::Completed)?);
    let classes: Vec<String> = summary
        .failures
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(class, count)| format!("{} {count}", class.name()))
        .collect();
    let failed = match classes.is_empty() {
        true => String::new(),
        false => format!("; failed: {}", classes.join(", ")),
    };
    let cancelled = figure(summary, Metric::Cancelled).map_or_else(String::new, |cancelled| {
        format!("; cancelled by the client: {cancelled}")
    });
    Some(format!("{completed} of {due} completed{failed}{cancelled}"))
}

/// For each latency, the highest percentile that has a confidence interval.
fn percentiles(summary: &MeasurementSummary) -> Option<String> {
    let highest = [
        Statistic::P999,
        Statistic::P99,
        Statistic::P95,
        Statistic::P90,
        Statistic::Median,
    ];
    let highest_known = |sample: LatencyKind| {
        let mut metrics = highest.iter().map(|statistic| Metric::Time(*statistic, sample));
        metrics.find_map(|metric| {
            let [low, high] = summary.intervals.get(&metric.name())?;
            let value = figure(summary, metric)?;
            Some(format!("{} {value:.2} ms ({low:.2}–{high:.2})", metric.label()))
        })
    };
    let known: Vec<String> = [LatencyKind::Ttft, LatencyKind::Tpot, LatencyKind::E2e]
        .into_iter()
        .filter_map(highest_known)
        .collect();
    (!known.is_empty()).then(|| format!("{}, 95 % by order statistics", known.join(", ")))
}

fn client_in_words(client: &ClientFacts) -> String {
    let mut words = Vec::new();
    if let Some(lag) = &client.send_lag {
        words.push(format!(
            "send lag mean {:.2}, P99 {:.2}, maximum {:.2} ms",
            lag.mean_ms, lag.p99_ms, lag.max_ms
        ));
    }
    if let Some(share) = client.cpu_share {
        words.push(format!(
            "busiest of {} client threads at {:.0} % of a processor",
            client.threads,
            100.0 * share
        ));
    }
    if let Some(error) = &client.error {
        words.push(format!(
            "timing error by calibration at {} streams: TTFT ±{:.2}, ITL ±{:.3} ms",
            error.streams, error.ttft_ms.p99, error.itl_ms.p99
        ));
    }
    if let Some(late) = client.late.filter(|late| late.max_ms > 0.0) {
        words.push(format!(
            "timestamps of events that were read together may be wrong by {:.3} ms (P99), at most {:.2} ms",
            late.p99_ms, late.max_ms
        ));
    }
    words.join("; ")
}

fn cache_reset_in_words(proof: &CacheResetRecord) -> String {
    let reset_note = match (proof.possible, proof.status, proof.success) {
        (false, ..) => match &proof.unique_prefix {
            Some(prefix) => format!(
                "prompts start with the unique prefix `{}`, which replaces {} of their tokens",
                prefix.letters, prefix.tokens
            ),
            None => "cannot be reset".to_owned(),
        },
        (true, status, success) => {
            let status = status.map_or_else(|| "no response".to_owned(), |status| format!("status {status}"));
            let success = match success {
                Some(true) => ", success",
                Some(false) => ", no success",
                None => ", success not reported",
            };
            format!("reset: {status}{success}")
        }
    };
    let hits = match (proof.hits_in_window, proof.queries_in_window) {
        (Some(hits), Some(queries)) => {
            format!("; {hits} cache hits of {queries} queries in the measurement window")
        }
        _ => "; hits not counted".to_owned(),
    };
    let fresh = if proof.is_fresh_start {
        "; this was the first measurement after the start of the engine"
    } else {
        ""
    };
    format!("{reset_note}{hits}{fresh}")
}

fn telemetry_evidence(telemetry: &Telemetry) -> Vec<(String, String)> {
    let mut lines = vec![("window".to_owned(), format!("{:.2} s", telemetry.seconds))];
    if let Some(engine) = &telemetry.engine {
        let mut words = numbers_in_words(&engine.grown, "");
        words.extend(ranges_in_words(&engine.gauges));
        words.extend(numbers_in_words(&engine.means, " on average"));
        lines.push(("engine".to_owned(), words.join(", ")));
    }
    if let Some(host) = &telemetry.host {
        lines.push(("host".to_owned(), host_in_words(host)));
    }
    for node in &telemetry.nodes {
        let host = node.host.as_ref().map(host_in_words);
        let words: Vec<String> = host.into_iter().chain(node.trouble.clone()).collect();
        lines.push((format!("host of {}", node.node), words.join("; ")));
    }
    for (source, ranges) in &telemetry.ranges {
        let words: Vec<String> = ranges_in_words(ranges).collect();
        lines.push((source.name().to_owned(), words.join(", ")));
    }
    lines.extend(
        telemetry
            .gpus
            .iter()
            .map(|gpu| (gpu.id().to_string(), gpu_in_words(gpu))),
    );
    if let Some(energy) = &telemetry.energy {
        lines.push(("energy".to_owned(), energy_in_words(energy)));
    }
    lines.extend(
        telemetry
            .sources
            .iter()
            .map(|facts| ("source".to_owned(), source_in_words(facts))),
    );
    lines
}

fn host_in_words(host: &HostWindow) -> String {
    let busy = |who: &str, cpus: Option<f64>| cpus.map(|cpus| format!("{who} {cpus:.2}"));
    let mut words = vec![format!("{} processors", host.cpus)];
    words.extend(busy("client", host.client_cpus));
    words.extend(busy("engine", host.engine_cpus));
    words.extend(busy("others", host.other_cpus));
    words.extend(
        host.client_wait_s
            .map(|wait| format!("client waited {wait:.3} s for a processor")),
    );
    words.extend(ranges_in_words(&host.ranges));
    words.join(", ")
}

fn gpu_in_words(gpu: &GpuWindow) -> String {
    let mut words: Vec<String> = ranges_in_words(&gpu.ranges).collect();
    if let Some(clock) = gpu.busy_clock_mhz {
        let spread = gpu
            .clock_spread
            .map_or_else(String::new, |spread| format!(", spread {:.1} %", 100.0 * spread));
        words.push(format!(
            "busy clock {clock:.0} MHz over {} samples{spread}",
            gpu.busy_samples
        ));
    }
    words.extend(
        gpu.throttled
            .iter()
            .filter(|(_, share)| **share > 0.0)
            .map(|(name, share)| format!("throttled ({name}) {:.1} %", 100.0 * share)),
    );
    words.extend(gpu.foreign.iter().map(|process| {
        format!(
            "process {} ({})",
            process.pid,
            process.name.as_deref().unwrap_or("?")
        )
    }));
    words.join(", ")
}

fn energy_in_words(energy: &Energy) -> String {
    let source = match energy.source {
        EnergySource::Counter => "energy counters",
        EnergySource::Power => "power over time",
        EnergySource::Engine => "the engine's own figures",
    };
    let simulated = if energy.is_simulated { ", simulated" } else { "" };
    let mut text = format!(
        "{:.1} J by {source}{simulated}, mean {:.1} W",
        energy.joules, energy.mean_w
    );
    match energy.peak_w {
        Some(peak) => _ = write!(text, ", peak {peak:.1} W"),
        None => text.push_str(", peak –"),
    }
    if let Some(above) = energy.above_idle_j {
        let _ = write!(text, ", {above:.1} J above idle");
    }
    if let Some(other) = energy.disagrees_j {
        let _ = write!(text, "; another method of measurement gives {other:.1} J instead");
    }
    text
}

fn source_in_words(facts: &SourceFacts) -> String {
    let bracketed = if facts.is_bracketed {
        ""
    } else {
        "; the samples do not cover the whole measurement window"
    };
    let trouble = facts
        .trouble
        .as_ref()
        .map_or_else(String::new, |trouble| format!(": {trouble}"));
    format!(
        "{}: {} samples every {} s, longest gap {:.2} s{bracketed}{trouble}",
        facts.name(),
        facts.samples,
        facts.period_s,
        facts.longest_gap_s
    )
}

fn numbers_in_words(values: &BTreeMap<String, f64>, after: &str) -> Vec<String> {
    values
        .iter()
        .map(|(name, value)| format!("{name} {}{after}", short_number(*value)))
        .collect()
}

fn ranges_in_words(ranges: &BTreeMap<String, SampledRange>) -> impl Iterator<Item = String> {
    ranges
        .iter()
        .map(|(name, range)| format!("{name} {}", range_in_words(range)))
}

fn range_in_words(range: &SampledRange) -> String {
    if range.min == range.max {
        return short_number(range.mean);
    }
    format!(
        "{} ({}–{})",
        short_number(range.mean),
        short_number(range.min),
        short_number(range.max)
    )
}

/// Formats a number with few digits.
fn short_number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1e9 => format!("{:.1}e9", value / 1e9),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}
