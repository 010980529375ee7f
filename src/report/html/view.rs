//! The content of a report's page, as its template expects it.

use serde::Serialize;

use super::charts;
use super::components::{Entry, FigureView, TableView, chart_views, table_view, with_caption};
use super::load_charts;
use crate::report::document::{
    ConclusionOutcome, Document, Fact, Headline, LeftOutFact, NO_WINNER, ReportTables,
};
use crate::report::table::single_line;
use crate::report::tables::group_by_name;
use crate::results::record::cell::Origin;

/// Maximum number of cells with charts over time, to limit the size of the page.
const MAX_CELL_CHARTS: usize = 60;

#[derive(Serialize)]
pub(super) struct ReportView {
    title: String,
    runs: Vec<RunView>,
    warnings: Vec<String>,
    contents: Vec<Entry>,
    headlines: Vec<HeadlineView>,
    overview: TableView,
    across: Option<TableView>,
    standings: Option<TableView>,
    comparisons: Vec<ScenarioSection>,
    tradeoffs: Vec<FigureView>,
    loads: Vec<FigureView>,
    interpolations: Vec<TableView>,
    searches: Vec<TableView>,
    courses: Vec<CellCharts>,
    courses_left_out: usize,
    answers: Option<TableView>,
    probes: Option<TableView>,
    findings: Option<TableView>,
    notes: Option<TableView>,
    legend: Vec<String>,
    launches: Vec<LaunchView>,
    redraw: String,
}

#[derive(Serialize)]
struct HeadlineView {
    about: String,
    /// How the sentence begins, in bold type: the winner, or that there is none.
    beginning: String,
    /// The rest of the sentence.
    sentence: String,
    outcome: ConclusionOutcome,
}

#[derive(Serialize)]
struct RunView {
    run: String,
    about: String,
    began: String,
    tool: String,
    machine: Vec<Fact>,
    left_out: Vec<LeftOutFact>,
    doubts: Vec<String>,
    again: String,
}

/// The comparisons of one scenario and model, one for each of its loads.
#[derive(Serialize)]
struct ScenarioSection {
    id: String,
    title: String,
    loads: Vec<Group>,
}

#[derive(Serialize)]
struct Group {
    id: String,
    /// The load where the scenario has several, otherwise empty.
    title: String,
    table: TableView,
    latencies: TableView,
    figures: Vec<FigureView>,
}

#[derive(Serialize)]
struct CellCharts {
    title: String,
    figures: Vec<FigureView>,
}

#[derive(Serialize)]
struct LaunchView {
    title: String,
    facts: Vec<Fact>,
    command: String,
}

pub(super) fn view(document: &Document) -> ReportView {
    let tables = &document.tables;
    let with_course = || document.cells.iter().filter(|cell| !cell.series.is_empty());
    let tradeoffs = chart_views(load_charts::tradeoff_charts(document));
    let loads = chart_views(load_charts::load_charts(document));
    let courses: Vec<CellCharts> = with_course()
        .take(MAX_CELL_CHARTS)
        .map(|cell| CellCharts {
            title: single_line(&charts::cell_name(document, cell)),
            figures: chart_views(charts::time_series_charts(cell)),
        })
        .collect();
    ReportView {
        title: single_line(&document.title),
        runs: document.runs.iter().map(run).collect(),
        warnings: origin_warnings(document),
        contents: contents(
            tables,
            !document.headlines().is_empty(),
            !tradeoffs.is_empty(),
            !loads.is_empty(),
            !courses.is_empty(),
        ),
        headlines: document.headlines().iter().map(headline).collect(),
        overview: table_view(&tables.overview),
        across: tables.overview_matrix.as_ref().map(table_view),
        standings: tables.rankings.as_ref().map(table_view),
        comparisons: scenario_sections(document),
        tradeoffs,
        loads,
        interpolations: tables.interpolations.iter().map(table_view).collect(),
        searches: tables.searches.iter().map(table_view).collect(),
        courses_left_out: with_course().count().saturating_sub(courses.len()),
        courses,
        answers: tables.answers.as_ref().map(table_view),
        probes: tables.probes.as_ref().map(table_view),
        findings: tables.findings.as_ref().map(table_view),
        notes: tables.notes.as_ref().map(table_view),
        legend: tables.legend.iter().map(|line| single_line(line)).collect(),
        launches: launches(document),
        redraw: {
            let runs = document.runs.iter().map(|run| format!("results/{}", run.run));
            let runs: Vec<String> = runs.collect();
            single_line(&format!("matrix report {} --out report", runs.join(" ")))
        },
    }
}

fn headline(headline: &Headline) -> HeadlineView {
    let sentence = single_line(&headline.sentence);
    let beginning = match headline.outcome {
        ConclusionOutcome::NoWinner => NO_WINNER.to_owned(),
        _ => headline.winner.as_deref().map(single_line).unwrap_or_default(),
    };
    let (beginning, sentence) = match sentence.strip_prefix(&beginning) {
        Some(rest) => (beginning, rest.to_owned()),
        None => (String::new(), sentence),
    };
    HeadlineView {
        about: single_line(&headline.about),
        beginning,
        sentence,
        outcome: headline.outcome,
    }
}

fn run(run: &crate::report::document::RunFacts) -> RunView {
    let fact = |fact: &Fact| Fact {
        name: single_line(&fact.name),
        value: single_line(&fact.value),
    };
    let left_out = run.left_out.iter().map(|cell| LeftOutFact {
        cell: single_line(&cell.cell),
        why: single_line(&cell.why),
    });
    RunView {
        run: single_line(&run.run),
        about: single_line(run.about.as_deref().unwrap_or_default()),
        began: single_line(&run.began),
        tool: single_line(&run.tool),
        machine: run.machine.iter().map(fact).collect(),
        left_out: left_out.collect(),
        doubts: run.doubts.iter().map(|doubt| single_line(doubt)).collect(),
        again: format!(
            "cp results/{}/matrix.yaml matrices/again.yaml\nmatrix run matrices/again.yaml",
            single_line(&run.run)
        ),
    }
}

/// Sentences on cells that no real engine, or another tool, measured.
pub(crate) fn origin_warnings(document: &Document) -> Vec<String> {
    let count = |origin| document.cells.iter().filter(|cell| cell.origin == origin).count();
    let mut warnings = Vec::new();
    let share_in_words = |count: usize| match count == document.cells.len() {
        true => "Every cell".to_owned(),
        false => format!("{count} of {} cells", document.cells.len()),
    };
    if let simulated @ 1.. = count(Origin::Simulated) {
        warnings.push(format!(
            "{} measured on the simulated engine: such figures say nothing about a real one.",
            share_in_words(simulated)
                + if simulated == document.cells.len() {
                    " was"
                } else {
                    " were"
                }
        ));
    }
    if let imported @ 1.. = count(Origin::Imported) {
        warnings.push(format!(
            "{} read from the output of other tools; facts that this output lacks are unknown.",
            share_in_words(imported)
                + if imported == document.cells.len() {
                    " was"
                } else {
                    " were"
                }
        ));
    }
    warnings
}

/// The comparisons, grouped by model and scenario in the order of first appearance.
fn scenario_sections(document: &Document) -> Vec<ScenarioSection> {
    let compared = document.comparisons.iter().zip(&document.tables.comparisons);
    let named = compared.enumerate().map(|(at, (comparison, tables))| {
        let cell = comparison
            .rows
            .first()
            .and_then(|row| document.cells.get(row.cell));
        let title = cell.map_or_else(
            || comparison.title.clone(),
            |cell| format!("{} · {}", cell.model, cell.scenario),
        );
        let group = Group {
            id: format!("comparison-{}", at + 1),
            title: single_line(&comparison.title),
            table: with_caption(table_view(&tables.figures), "Comparison"),
            latencies: with_caption(table_view(&tables.latencies), "Latencies"),
            figures: chart_views(charts::comparison_charts(document, comparison)),
        };
        (title, group)
    });
    let sections = group_by_name(named).into_iter().zip(1..);
    sections
        .map(|((scenario, mut loads), number)| {
            let mut title = single_line(&scenario);
            match &mut loads[..] {
                [only] => title = std::mem::take(&mut only.title),
                several => several.iter_mut().for_each(|group| {
                    let load = group.title.strip_prefix(&title).unwrap_or(&group.title);
                    group.title = load.trim_start_matches([',', ' ']).to_owned();
                }),
            }
            ScenarioSection {
                id: format!("scenario-{number}"),
                title,
                loads,
            }
        })
        .collect()
}

fn contents(
    tables: &ReportTables,
    has_headlines: bool,
    has_tradeoffs: bool,
    has_loads: bool,
    has_courses: bool,
) -> Vec<Entry> {
    let entry = Entry::new;
    let mut entries = Vec::new();
    entries.extend(has_headlines.then(|| entry("answer", "Answer")));
    entries.extend(has_tradeoffs.then(|| entry("tradeoffs", "Throughput per GPU vs. interactivity")));
    entries.push(entry("summary", "Summary"));
    entries.extend(has_loads.then(|| entry("loads", "Latency vs. load")));
    entries.push(entry("validity", "Findings"));
    entries.push(entry("comparisons", "Side by side"));
    entries.extend(tables.answers.iter().map(|_| entry("answers", "Graded answers")));
    entries.extend(tables.probes.iter().map(|_| entry("probes", "Greedy probes")));
    entries.extend(has_courses.then(|| entry("time", "Over time")));
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
                value: single_line(&value?),
            })
        };
        let lines: Vec<String> = cell.command.split('\n').map(single_line).collect();
        launches.push(LaunchView {
            title: single_line(&title),
            facts: known.into_iter().filter_map(fact).collect(),
            command: lines.join("\n"),
        });
    }
    launches
}
