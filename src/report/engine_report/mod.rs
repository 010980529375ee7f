//! The report of one engine in one version: how to get it, how it was started, and a result block for each
//! workload.
//!
//! Everything in it comes from the plan and the records; unknown facts are left out.

mod reproduce;

use std::collections::BTreeMap;

use super::bench_serving::block::{self, Facts, Layout};
use super::bench_serving::traffic::Traffic;
use super::caveats::{Itl, traps};
use super::document::machine_facts;
use super::markdown::{anchor, draw, escaped, fenced, list};
use super::tables::{self, engine_results, grouped};
use super::{Shown, Value};
use crate::analysis::metrics::{Flow, Metric};
use crate::config::dataset::PromptForm;
use crate::config::workload::Profile;
use crate::plan::{Launch, command};
use crate::results::record::cell::{Definitions, Ending, Figures, Origin, Summary};
use crate::results::record::client::ClientFacts;
use crate::results::record::machine::Machine;
use crate::results::record::provenance::Unknown;
use crate::results::record::request::by_class;

/// Groups cells by engine and version, in the order of first appearance.
pub(crate) fn by_engine<'a>(shown: &[Shown<'a>]) -> Vec<(String, Vec<Shown<'a>>)> {
    grouped(shown.iter().map(|one| (one.engine(), one.clone())))
}

/// Draws the report in Markdown; `shown` holds the cells of one engine in one version, as [`by_engine`]
/// groups them.
pub(crate) fn engine_report(shown: &[Shown<'_>], machine: Option<&Machine>) -> String {
    let Some(first) = shown.first() else {
        return String::new();
    };
    let title = title(first);
    let launches = launches(shown);
    // The machine is not the one on which imported cells were measured.
    let machine = machine.filter(|_| !shown.iter().all(is_imported));
    let mut text = format!("# {}\n\n", escaped(&title));
    if shown.iter().any(|one| is_simulated(one)) {
        text.push_str("**Simulated**: these figures come from the simulated engine and say nothing about a real one.\n\n");
    }
    if shown.iter().any(is_imported) {
        text.push_str("**Imported**: these figures were read from what another tool wrote; they are as good as that.\n\n");
    }
    text.push_str(&reproduce::when(shown));
    text.push_str(&getting(&launches));
    text.push_str(&serving(&launches));
    let again = reproduce::section(shown);
    text.push_str(&contents(&title, &launches, machine.is_some(), again.is_some()));
    if let Some(machine) = machine {
        text.push_str("## Machine\n\n");
        let facts: Vec<String> = machine_facts(machine).iter().map(ToString::to_string).collect();
        text.push_str(&list(&facts));
        text.push('\n');
    }
    text.push_str("## Results\n\n");
    for table in engine_results(shown) {
        text.push_str(&draw(&table, 3));
        text.push('\n');
    }
    for (heading, cells) in &launches {
        text.push_str(&format!("## {}\n\n", escaped(heading)));
        text.push_str(&launched(cells));
        for one in cells {
            text.push_str(&workload(one));
        }
    }
    text.extend(again);
    text
}

fn title(shown: &Shown<'_>) -> String {
    let reported = shown
        .summaries
        .iter()
        .find_map(|summary| summary.engine.version.as_deref());
    let engine = &shown.launch.engine;
    match engine.version.as_deref().or(reported) {
        Some(version) if version.starts_with(|first: char| first.is_ascii_digit()) => {
            format!("{} v{version}", engine.title)
        }
        Some(version) => format!("{} {version}", engine.title),
        None => engine.title.clone(),
    }
}

fn is_imported(shown: &Shown<'_>) -> bool {
    shown
        .summaries
        .iter()
        .any(|summary| summary.origin == Origin::Imported)
}

fn is_simulated(shown: &Shown<'_>) -> bool {
    let is_simulated = |summary: &&Summary| summary.origin == Origin::Simulated;
    shown.launch.engine.simulated || shown.summaries.iter().any(is_simulated)
}

/// Groups cells by launch. The heading is the last part of the checkpoint's name, with the launch's id if two
/// launches share it.
fn launches<'s, 'a>(shown: &'s [Shown<'a>]) -> Vec<(String, Vec<&'s Shown<'a>>)> {
    let mut groups: Vec<(String, Vec<&Shown<'a>>)> = Vec::new();
    for one in shown {
        let is_same = |group: &&mut (String, Vec<&Shown<'a>>)| group.1[0].launch.id == one.launch.id;
        match groups.iter_mut().find(is_same) {
            Some((_, group)) => group.push(one),
            None => groups.push((short_name(one.launch), vec![one])),
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
fn getting(launches: &[(String, Vec<&Shown<'_>>)]) -> String {
    let mut ways: Vec<(&str, String)> = Vec::new();
    for (_, cells) in launches {
        let place = &cells[0].launch.place;
        let image = place.image().map(|image| format!("docker pull {image}"));
        let way = image.map(|line| ("Get the image:", line));
        let way = way.or_else(|| Some(("Install it:", place.pip_install()?)));
        ways.extend(way.filter(|way| !ways.contains(way)));
    }
    ways.iter()
        .map(|(words, line)| format!("{words}\n\n{}\n", fenced(line, "shell")))
        .collect()
}

/// How to serve a model: the command with `$MODEL`, if all commands are equal apart from the model.
fn serving(launches: &[(String, Vec<&Shown<'_>>)]) -> String {
    let general = |cells: &Vec<&Shown<'_>>| {
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
        [one] if one.contains("$MODEL") => format!("Serve a model:\n\n{}\n", fenced(one, "shell")),
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

fn contents(
    title: &str,
    launches: &[(String, Vec<&Shown<'_>>)],
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
            escaped(&heading),
            anchor(&heading)
        ));
    }
    text.push('\n');
    text
}

/// The facts of one launch and its exact command.
fn launched(cells: &[&Shown<'_>]) -> String {
    let launch = cells[0].launch;
    let mut facts = vec![format!("model: {}", launch.model)];
    if launch.checkpoint != launch.model {
        facts.push(format!("checkpoint: {}", launch.checkpoint));
    }
    if let Some(precision) = &launch.precision {
        facts.push(format!("precision: {precision}"));
    }
    let or_unknown = |what, number: u32| match tables::lacks(cells[0], what) {
        true => "unknown".to_owned(),
        false => number.to_string(),
    };
    let tp = or_unknown(Unknown::Tp, launch.parallel.tp);
    facts.push(format!("tensor-parallel size: {tp}"));
    facts.push(format!(
        "GPUs: {}",
        or_unknown(Unknown::Gpus, launch.gpus().unwrap_or(0))
    ));
    let summaries = || cells.iter().flat_map(|one| &one.summaries);
    let said = |fact: &dyn Fn(&Summary) -> Option<String>| summaries().find_map(|summary| fact(summary));
    if let Some(version) = said(&|summary| summary.engine.version.clone()) {
        facts.push(format!("version that the engine reports: {version}"));
    }
    if let Some(digest) = said(&|summary| summary.engine.image_digest.clone()) {
        let size = said(&|summary| Some(format!(" ({:.2} GB)", summary.engine.image_bytes? as f64 / 1e9)));
        facts.push(format!("image digest: {digest}{}", size.unwrap_or_default()));
    }
    format!("{}\n{}\n", list(&facts), fenced(&command_of(cells), "shell"))
}

/// The command that started the engine: the recorded one, or the planned one with line breaks if both are
/// equal or none is recorded.
pub(super) fn command_of(cells: &[&Shown<'_>]) -> String {
    let planned = command::line(cells[0].launch);
    let recorded = cells
        .iter()
        .flat_map(|one| &one.summaries)
        .find_map(|summary| summary.engine.command.clone());
    match recorded {
        Some(recorded) if recorded != planned.joined() => recorded,
        _ => planned.wrapped(),
    }
}

fn workload(shown: &Shown<'_>) -> String {
    let scenario = &shown.cell.scenario;
    let mut text = format!("### {}\n\n", escaped(&shown.scenario()));
    let chosen = shown.middle();
    if let Some(summary) = chosen {
        let (profile, definitions) = match scenario.profile {
            Profile::Classic => (Profile::Classic, Definitions::Classic),
            Profile::Current => (Profile::Current, Definitions::Current),
        };
        let none = Figures::new();
        let arrival = summary.arrival(scenario);
        let facts = Facts {
            backend: &shown.launch.engine.backend,
            rate: Traffic::of(scenario, &arrival),
            concurrency: arrival.concurrency,
            slo: scenario.slo.as_ref(),
            cache: None,
            has_pictures: scenario.workload.facts().prompts == PromptForm::Pictures,
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
        text.push_str(&fenced(block.trim_matches('\n'), "text"));
        text.push('\n');
    }
    text.push_str(&list(&remarks(shown, chosen)));
    text.push('\n');
    for summary in &shown.summaries {
        if let Ending::Failed { tail, .. } = &summary.ending
            && !tail.is_empty()
        {
            text.push_str("The engine's last words:\n\n");
            text.push_str(&fenced(&tail.join("\n"), "text"));
            text.push('\n');
        }
    }
    text
}

const COMPARED: Metric = Metric::Throughput(Flow::Output);

/// Remarks beside a block: what was requested, failures, repeats, validity.
fn remarks(shown: &Shown<'_>, chosen: Option<&Summary>) -> Vec<String> {
    let mut remarks = Vec::new();
    let asked = shown.cell.scenario.workload.prompts;
    match shown.summaries.iter().find_map(|summary| summary.prompts) {
        Some(given) if given != asked => {
            remarks.push(format!("prompts: {given}, of {asked} that were asked for"));
        }
        _ => remarks.push(format!("prompts: {asked}")),
    }
    let mut hashes: Vec<&str> = shown
        .summaries
        .iter()
        .filter_map(|summary| summary.prompts_hash.as_ref())
        .map(|hash| hash.as_str())
        .collect();
    hashes.dedup();
    if !hashes.is_empty() {
        remarks.push(format!("digest of the prompts: {}", hashes.join(", ")));
    }
    if let Some(summary) = chosen.filter(|_| shown.summaries.len() > 1) {
        let values = shown.values(COMPARED);
        let spread = shown.spread(COMPARED, 2);
        let word = if matches!(spread, Value::Spread { .. }) {
            "mean and range of output throughput"
        } else {
            "output throughput"
        };
        remarks.push(format!(
            "measured {} times, {} of them done; shown is start {}, repeat {}; {word}: {spread} tok/s",
            shown.summaries.len(),
            values.len(),
            summary.start,
            summary.repeat,
        ));
    }
    for summary in &shown.summaries {
        let which = if shown.summaries.len() > 1 {
            format!("start {}, repeat {}: ", summary.start, summary.repeat)
        } else {
            String::new()
        };
        remarks.extend(
            of_measurement(summary)
                .into_iter()
                .map(|remark| format!("{which}{remark}")),
        );
    }
    if let Some(figures) = chosen.and_then(|summary| summary.figures.get(&Definitions::Matrix)) {
        let launch = shown.launch;
        let protocol = launch.contact.dialect.protocol;
        let itl = Itl::of_block(
            shown.cell.scenario.profile,
            protocol,
            &launch.engine.backend,
            None,
        );
        let figure = |metric| crate::analysis::metrics::figure(figures, metric);
        remarks.extend(
            traps(&figure, itl)
                .into_iter()
                .map(|trap| format!("note: {trap}")),
        );
    }
    if shown.summaries.is_empty() {
        remarks.push("not measured".to_owned());
    }
    remarks
}

fn of_measurement(summary: &Summary) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(imported) = &summary.imported {
        let unknown: Vec<&str> = imported.unknown.iter().map(|what| what.name()).collect();
        let unknown = match unknown.is_empty() {
            true => String::new(),
            false => format!("; it does not tell {}", unknown.join(", ")),
        };
        remarks.push(format!(
            "read from {}, line {}, measured with {}{unknown}",
            imported.file,
            imported.line,
            imported.tool.name()
        ));
    }
    match &summary.ending {
        Ending::Done => {}
        Ending::Failed { phase, reason, .. } => {
            remarks.push(format!("failed in {}: {reason}", phase.name()));
        }
        Ending::Skipped { reason } => remarks.push(format!("skipped: {reason}")),
        Ending::Interrupted => remarks.push("interrupted".to_owned()),
    }
    remarks.extend(reproduce::validity(summary));
    let failures = by_class(summary.failures.iter().map(|(class, count)| (*class, *count)));
    if !failures.is_empty() {
        remarks.push(format!("failed requests: {failures}"));
    }
    if let Some(client) = &summary.client {
        remarks.push(client_words(client));
    }
    if !summary.beside.is_empty() {
        remarks.push(tables::beside(&summary.beside));
    }
    for retry in &summary.retries {
        remarks.push(format!(
            "tried again after a failure of class {} in {}: {}",
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
fn client_words(client: &ClientFacts) -> String {
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
