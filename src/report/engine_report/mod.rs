//! The report of one engine in one version: how to get it, how it was started, and a result block for each
//! workload.
//!
//! Everything in it comes from the plan and the records; unknown facts are left out.

mod reproduce;

use std::collections::BTreeMap;

use super::ReportCell;
use super::bench_serving::block::{self, BlockFacts, Layout};
use super::bench_serving::traffic::Traffic;
use super::caveats::{Itl, latency_caveats};
use super::document::machine_facts;
use super::markdown::{anchor, code_block, draw, escape, list};
use super::table::Value;
use super::tables::{self, engine_results, group_by_name};
use crate::analysis::metrics::{Metric, Quantity};
use crate::config::dataset::PromptForm;
use crate::config::workload::Profile;
use crate::plan::{Launch, command};
use crate::results::record::cell::{Definitions, MeasurementStatus, MetricValues, Origin, Summary};
use crate::results::record::client::ClientFacts;
use crate::results::record::machine::Machine;
use crate::results::record::provenance::UnknownFact;
use crate::results::record::request::format_failures;

/// Groups cells by engine and version, in the order of first appearance.
pub(crate) fn group_by_engine<'a>(report_cells: &[ReportCell<'a>]) -> Vec<(String, Vec<ReportCell<'a>>)> {
    group_by_name(report_cells.iter().map(|cell| (cell.engine(), cell.clone())))
}

/// Draws the report in Markdown; `shown` holds the cells of one engine in one version, as [`by_engine`]
/// groups them.
pub(crate) fn engine_report(report_cells: &[ReportCell<'_>], machine: Option<&Machine>) -> String {
    let Some(first) = report_cells.first() else {
        return String::new();
    };
    let title = title(first);
    let launches = launches(report_cells);
    // The machine is not the one on which imported cells were measured.
    let machine = machine.filter(|_| !report_cells.iter().all(is_imported));
    let mut text = format!("# {}\n\n", escape(&title));
    if report_cells.iter().any(|cell| is_simulated(cell)) {
        text.push_str("**Simulated**: these figures come from the simulated engine and say nothing about a real one.\n\n");
    }
    if report_cells.iter().any(is_imported) {
        text.push_str("**Imported**: these figures were read from the output of another tool and are only as reliable as that output.\n\n");
    }
    text.push_str(&reproduce::measured_period(report_cells));
    text.push_str(&installation(&launches));
    text.push_str(&serve_command(&launches));
    let again = reproduce::reproduce_section(report_cells);
    text.push_str(&table_of_contents(
        &title,
        &launches,
        machine.is_some(),
        again.is_some(),
    ));
    if let Some(machine) = machine {
        text.push_str("## Machine\n\n");
        let facts: Vec<String> = machine_facts(machine).iter().map(ToString::to_string).collect();
        text.push_str(&list(&facts));
        text.push('\n');
    }
    text.push_str("## Results\n\n");
    for table in engine_results(report_cells) {
        text.push_str(&draw(&table, 3));
        text.push('\n');
    }
    for (heading, cells) in &launches {
        text.push_str(&format!("## {}\n\n", escape(heading)));
        text.push_str(&launch_facts(cells));
        for cell in cells {
            text.push_str(&workload_in_words(cell));
        }
    }
    text.extend(again);
    text
}

fn title(cell: &ReportCell<'_>) -> String {
    let reported = cell
        .summaries
        .iter()
        .find_map(|summary| summary.engine.version.as_deref());
    let engine = &cell.launch.engine;
    match engine.version.as_deref().or(reported) {
        Some(version) if version.starts_with(|first: char| first.is_ascii_digit()) => {
            format!("{} v{version}", engine.title)
        }
        Some(version) => format!("{} {version}", engine.title),
        None => engine.title.clone(),
    }
}

fn is_imported(cell: &ReportCell<'_>) -> bool {
    cell.summaries
        .iter()
        .any(|summary| summary.origin == Origin::Imported)
}

fn is_simulated(cell: &ReportCell<'_>) -> bool {
    let is_simulated = |summary: &&Summary| summary.origin == Origin::Simulated;
    cell.launch.engine.simulated || cell.summaries.iter().any(is_simulated)
}

/// Groups cells by launch. The heading is the last part of the checkpoint's name, with the launch's id if two
/// launches share it.
fn launches<'s, 'a>(cells: &'s [ReportCell<'a>]) -> Vec<(String, Vec<&'s ReportCell<'a>>)> {
    let mut groups: Vec<(String, Vec<&ReportCell<'a>>)> = Vec::new();
    for cell in cells {
        let is_same = |group: &&mut (String, Vec<&ReportCell<'a>>)| group.1[0].launch.id == cell.launch.id;
        match groups.iter_mut().find(is_same) {
            Some((_, group)) => group.push(cell),
            None => groups.push((short_name(cell.launch), vec![cell])),
        }
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (heading, _) in &groups {
        *counts.entry(heading.clone()).or_default() += 1;
    }
    for (heading, group) in &mut groups {
        if counts[heading] > 1 {
            *heading = format!("{heading} ({})", group[0].launch.id);
        }
    }
    groups
}

fn short_name(launch: &Launch) -> String {
    let checkpoint = launch.checkpoint.trim_end_matches('/');
    checkpoint.rsplit('/').next().unwrap_or(checkpoint).to_owned()
}

/// How to get the engine: each image or installation that its launches use, once.
fn installation(launches: &[(String, Vec<&ReportCell<'_>>)]) -> String {
    let mut ways: Vec<(&str, String)> = Vec::new();
    for (_, cells) in launches {
        let place = &cells[0].launch.place;
        let image = place.image().map(|image| format!("docker pull {image}"));
        let way = image.map(|line| ("Get the image:", line));
        let way = way.or_else(|| Some(("Install it:", place.pip_install()?)));
        ways.extend(way.filter(|way| !ways.contains(way)));
    }
    ways.iter()
        .map(|(words, line)| format!("{words}\n\n{}\n", code_block(line, "shell")))
        .collect()
}

/// How to serve a model: the command with `$MODEL`, if all commands are equal apart from the model.
fn serve_command(launches: &[(String, Vec<&ReportCell<'_>>)]) -> String {
    let general = |cells: &Vec<&ReportCell<'_>>| {
        let launch = cells[0].launch;
        let command = command_of(cells).replace(&command::container_name(launch), "matrix");
        if launch.checkpoint.is_empty() {
            command
        } else {
            without_model(&command, &launch.checkpoint)
        }
    };
    let mut commands: Vec<String> = launches.iter().map(|(_, cells)| general(cells)).collect();
    commands.dedup();
    match &commands[..] {
        [one] if one.contains("$MODEL") => format!("Serve a model:\n\n{}\n", code_block(one, "shell")),
        _ => "Each model below shows the command that served it.\n\n".to_owned(),
    }
}

/// Replaces every word that equals the model by `$MODEL`; words that only contain its name stay.
fn without_model(command: &str, model: &str) -> String {
    let quoted = format!("'{model}'");
    let words = command.split(' ').map(|word| {
        if word == model || word == quoted {
            "$MODEL"
        } else {
            word
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn table_of_contents(
    title: &str,
    launches: &[(String, Vec<&ReportCell<'_>>)],
    has_machine: bool,
    has_again: bool,
) -> String {
    let mut headings: Vec<(usize, String)> = vec![(0, title.to_owned()), (1, "Table of Contents".to_owned())];
    if has_machine {
        headings.push((1, "Machine".to_owned()));
    }
    headings.push((1, "Results".to_owned()));
    headings.extend(launches.iter().map(|(heading, _)| (1, heading.clone())));
    headings.extend(has_again.then(|| (1, reproduce::HEADING.to_owned())));
    let mut text = "## Table of Contents\n\n".to_owned();
    for (depth, heading) in headings {
        let indent = "  ".repeat(depth);
        text.push_str(&format!(
            "{indent}- [{}](#{})\n",
            escape(&heading),
            anchor(&heading)
        ));
    }
    text.push('\n');
    text
}

/// The facts of one launch and its exact command.
fn launch_facts(cells: &[&ReportCell<'_>]) -> String {
    let launch = cells[0].launch;
    let mut facts = vec![format!("model: {}", launch.model)];
    if launch.checkpoint != launch.model {
        facts.push(format!("checkpoint: {}", launch.checkpoint));
    }
    if let Some(precision) = &launch.precision {
        facts.push(format!("precision: {precision}"));
    }
    let or_unknown = |what, number: u32| match tables::is_unknown(cells[0], what) {
        true => "unknown".to_owned(),
        false => number.to_string(),
    };
    let tp = or_unknown(UnknownFact::Tp, launch.parallel.tp);
    facts.push(format!("tensor-parallel size: {tp}"));
    facts.push(format!(
        "GPUs: {}",
        or_unknown(UnknownFact::Gpus, launch.gpus().unwrap_or(0))
    ));
    let summaries = || cells.iter().flat_map(|cell| &cell.summaries);
    let reported = |fact: &dyn Fn(&Summary) -> Option<String>| summaries().find_map(|summary| fact(summary));
    if let Some(version) = reported(&|summary| summary.engine.version.clone()) {
        facts.push(format!("version that the engine reports: {version}"));
    }
    if let Some(digest) = reported(&|summary| summary.engine.image_digest.clone()) {
        let size =
            reported(&|summary| Some(format!(" ({:.2} GB)", summary.engine.image_bytes? as f64 / 1e9)));
        facts.push(format!("image digest: {digest}{}", size.unwrap_or_default()));
    }
    format!("{}\n{}\n", list(&facts), code_block(&command_of(cells), "shell"))
}

/// The command that started the engine: the recorded one, or the planned one with line breaks if both are
/// equal or none is recorded.
pub(super) fn command_of(cells: &[&ReportCell<'_>]) -> String {
    let planned = command::command_line(cells[0].launch);
    let recorded = cells
        .iter()
        .flat_map(|cell| &cell.summaries)
        .find_map(|summary| summary.engine.command.clone());
    match recorded {
        Some(recorded) if recorded != planned.to_line() => recorded,
        _ => planned.to_wrapped(),
    }
}

fn workload_in_words(cell: &ReportCell<'_>) -> String {
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
fn remarks(cell: &ReportCell<'_>, chosen: Option<&Summary>) -> Vec<String> {
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
            "measured {} times, {} of them done; the block shows start {}, repeat {}; {word}: {spread} tok/s",
            cell.summaries.len(),
            values.len(),
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
        let figure = |metric| crate::analysis::metrics::metric_value(figures, metric);
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

fn measurement_remarks(summary: &Summary) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(imported) = &summary.imported {
        let unknown: Vec<&str> = imported.unknown.iter().map(|what| what.name()).collect();
        let unknown = match unknown.is_empty() {
            true => String::new(),
            false => format!("; unknown: {}", unknown.join(", ")),
        };
        remarks.push(format!(
            "read from {}, line {}, measured with {}{unknown}",
            imported.file,
            imported.line,
            imported.tool.name()
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
        remarks.push(tables::concurrent_launches_note(&summary.concurrent_launches));
    }
    for retry in &summary.retries {
        remarks.push(format!(
            "retried after a failure of class {} in {}: {}",
            retry.class.name(),
            retry.phase.name(),
            retry.reason
        ));
    }
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
            "sent at most {:.2} ms late (p99 {:.2})",
            lag.max_ms, lag.p99_ms
        ));
    }
    if let Some(share) = client.cpu_share {
        words.push(format!("busiest thread {:.0} % of a CPU", share * 100.0));
    }
    match &client.error {
        Some(point) => words.push(format!(
            "calibrated at {} streams: TTFT {:+.2} ms (p99 {:.2}), ITL {:+.3} ms (p99 {:.3})",
            point.streams, point.ttft_ms.bias, point.ttft_ms.p99, point.itl_ms.bias, point.itl_ms.p99
        )),
        None => words.push("not calibrated".to_owned()),
    }
    format!("client: {}", words.join("; "))
}

#[cfg(test)]
mod tests;
