//! The report of one engine in one version: how to get it, how it was started, and a result block for each
//! workload.
//!
//! Everything in it comes from the plan and the records; unknown facts are left out.

pub(crate) mod command;
mod reproduce;
mod workload;

use std::collections::BTreeMap;

use super::document::machine_facts;
use super::markdown::{anchor, code_block, draw, escape, list};
use super::tables::{self, ReportCell, engine_results, group_by_name};
use crate::plan::Launch;
use crate::plan::command::container_name;
use crate::results::record::cell::{MeasurementSummary, Origin};
use crate::results::record::machine::Machine;
use crate::results::record::provenance::UnknownFact;
use command::command_of;
use reproduce::is_imported;
use workload::workload_in_words;

/// Groups cells by engine and version, in the order of first appearance.
pub(crate) fn group_by_engine<'a>(report_cells: &[ReportCell<'a>]) -> Vec<(String, Vec<ReportCell<'a>>)> {
    group_by_name(report_cells.iter().map(|cell| (cell.engine(), cell.clone())))
}

/// Draws the report in Markdown; `shown` holds the cells of one engine in one version, as [`group_by_engine`]
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

fn is_simulated(cell: &ReportCell<'_>) -> bool {
    let is_simulated = |summary: &&MeasurementSummary| summary.origin == Origin::Simulated;
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
        let image = place
            .settings()
            .image()
            .map(|image| format!("docker pull {image}"));
        let way = image.map(|line| ("Get the image:", line));
        let way = way.or_else(|| Some(("Install it:", place.settings().pip_install()?)));
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
        let command = command_of(cells).replace(&container_name(launch), "matrix");
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
    let reported =
        |fact: &dyn Fn(&MeasurementSummary) -> Option<String>| summaries().find_map(|summary| fact(summary));
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

#[cfg(test)]
mod tests;
