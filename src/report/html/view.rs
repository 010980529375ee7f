//! The content of a report's page, as its template expects it.

use serde::Serialize;

use super::charts;
use super::components::{Entry, FigureView, TableView, called, figures, table};
use crate::report::document::{Document, Fact, LeftOutFact};
use crate::report::plain;
use crate::results::record::cell::Origin;

/// Maximum number of cells with charts over time, to limit the size of the page.
const COURSES: usize = 60;

#[derive(Serialize)]
pub(super) struct View {
    title: String,
    runs: Vec<RunView>,
    warnings: Vec<String>,
    contents: Vec<Entry>,
    overview: TableView,
    across: Option<TableView>,
    standings: Option<TableView>,
    comparisons: Vec<Group>,
    tradeoffs: Vec<FigureView>,
    courses: Vec<Course>,
    courses_left_out: usize,
    validity: Option<TableView>,
    legend: Vec<String>,
    launches: Vec<LaunchView>,
    redraw: String,
}

#[derive(Serialize)]
struct RunView {
    run: String,
    began: String,
    tool: String,
    machine: Vec<Fact>,
    left_out: Vec<LeftOutFact>,
    doubts: Vec<String>,
    again: String,
}

#[derive(Serialize)]
struct Group {
    id: String,
    title: String,
    table: TableView,
    latencies: TableView,
    figures: Vec<FigureView>,
}

#[derive(Serialize)]
struct Course {
    title: String,
    figures: Vec<FigureView>,
}

#[derive(Serialize)]
struct LaunchView {
    title: String,
    facts: Vec<Fact>,
    command: String,
}

pub(super) fn view(document: &Document) -> View {
    let tables = &document.tables;
    let groups = document.comparisons.iter().zip(&tables.comparisons).enumerate();
    let comparisons: Vec<Group> = groups
        .map(|(at, (comparison, compared))| Group {
            id: format!("comparison-{}", at + 1),
            title: plain(&comparison.title),
            table: called(table(&compared.figures), "Comparison"),
            latencies: called(table(&compared.latencies), "Latencies"),
            figures: figures(charts::of_comparison(document, comparison)),
        })
        .collect();
    let with_course = || document.cells.iter().filter(|cell| !cell.series.is_empty());
    let tradeoffs = figures(charts::tradeoffs(document));
    let courses: Vec<Course> = with_course()
        .take(COURSES)
        .map(|cell| Course {
            title: plain(&charts::name_of(document, cell)),
            figures: figures(charts::over_time(cell)),
        })
        .collect();
    View {
        title: plain(&document.title),
        runs: document.runs.iter().map(run).collect(),
        warnings: warnings(document),
        contents: contents(!tradeoffs.is_empty(), !courses.is_empty()),
        overview: table(&tables.overview),
        across: tables.across.as_ref().map(table),
        standings: tables.standings.as_ref().map(table),
        comparisons,
        tradeoffs,
        courses_left_out: with_course().count().saturating_sub(courses.len()),
        courses,
        validity: tables.validity.as_ref().map(table),
        legend: tables.legend.iter().map(|line| plain(line)).collect(),
        launches: launches(document),
        redraw: {
            let runs = document.runs.iter().map(|run| format!("results/{}", run.run));
            let runs: Vec<String> = runs.collect();
            plain(&format!("matrix report {} --out report", runs.join(" ")))
        },
    }
}

fn run(run: &crate::report::document::RunFacts) -> RunView {
    let fact = |fact: &Fact| Fact {
        name: plain(&fact.name),
        value: plain(&fact.value),
    };
    let left_out = run.left_out.iter().map(|left| LeftOutFact {
        cell: plain(&left.cell),
        why: plain(&left.why),
    });
    RunView {
        run: plain(&run.run),
        began: plain(&run.began),
        tool: plain(&run.tool),
        machine: run.machine.iter().map(fact).collect(),
        left_out: left_out.collect(),
        doubts: run.doubts.iter().map(|doubt| plain(doubt)).collect(),
        again: format!(
            "cp results/{}/matrix.yaml matrices/again.yaml\nmatrix run matrices/again.yaml",
            plain(&run.run)
        ),
    }
}

fn warnings(document: &Document) -> Vec<String> {
    let count = |origin| document.cells.iter().filter(|cell| cell.origin == origin).count();
    let mut warnings = Vec::new();
    let of = |count: usize| match count == document.cells.len() {
        true => "Every cell".to_owned(),
        false => format!("{count} of {} cells", document.cells.len()),
    };
    if let simulated @ 1.. = count(Origin::Simulated) {
        warnings.push(format!(
            "{} measured on the simulated engine: such figures say nothing about a real one.",
            of(simulated)
                + if simulated == document.cells.len() {
                    " was"
                } else {
                    " were"
                }
        ));
    }
    if let imported @ 1.. = count(Origin::Imported) {
        warnings.push(format!(
            "{} read from what other tools wrote; what those did not write is unknown.",
            of(imported)
                + if imported == document.cells.len() {
                    " was"
                } else {
                    " were"
                }
        ));
    }
    warnings
}

fn contents(has_tradeoffs: bool, has_courses: bool) -> Vec<Entry> {
    let entry = Entry::new;
    let mut entries = vec![entry("summary", "Summary"), entry("comparisons", "Side by side")];
    entries.extend(has_tradeoffs.then(|| entry("tradeoffs", "Users against GPUs")));
    entries.extend(has_courses.then(|| entry("time", "Over time")));
    entries.push(entry("validity", "Validity"));
    entries.push(entry("machine", "Machine"));
    entries.push(entry("commands", "Commands"));
    entries
}

/// The launches of every run, each once.
fn launches(document: &Document) -> Vec<LaunchView> {
    let mut seen = Vec::new();
    let mut launches = Vec::new();
    for cell in &document.cells {
        let key = (&cell.run, &cell.launch);
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        let title = match document.runs.len() {
            1 => cell.launch.clone(),
            _ => format!("{}: {}", cell.run, cell.launch),
        };
        let known = [
            ("engine", Some(cell.engine.clone())),
            ("model", Some(cell.model.clone())),
            (
                "checkpoint",
                Some(cell.checkpoint.clone()).filter(|checkpoint| *checkpoint != cell.model),
            ),
            ("precision", cell.precision.clone()),
            ("GPUs", cell.gpus.map(|gpus| gpus.to_string())),
            ("image digest", cell.image_digest.clone()),
        ];
        let fact = |(name, value): (&str, Option<String>)| {
            Some(Fact {
                name: name.to_owned(),
                value: plain(&value?),
            })
        };
        let lines: Vec<String> = cell.command.split('\n').map(plain).collect();
        launches.push(LaunchView {
            title: plain(&title),
            facts: known.into_iter().filter_map(fact).collect(),
            command: lines.join("\n"),
        });
    }
    launches
}
