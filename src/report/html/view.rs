//! What the page shows, as its template asks for it.

use minijinja::Value as Safe;
use serde::Serialize;

use super::pictures;
use crate::judge::metrics::Better;
use crate::report::chart::Picture;
use crate::report::document::{Document, Fact, LeftOutFact};
use crate::report::{Align, Mark, Table, Value, plain};
use crate::results::record::cell::Origin;

/// Cells whose course over time is drawn: more would make the page too large to be sent around.
const COURSES: usize = 60;
/// Letters from which a text may be broken into lines.
const LONG: usize = 40;

/// Everything on the page.
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
struct Entry {
    id: String,
    title: String,
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

#[derive(Serialize)]
struct FigureView {
    title: String,
    svg: Safe,
    legend: Vec<Key>,
    table: TableView,
}

#[derive(Serialize)]
struct Key {
    sample: Safe,
    name: String,
}

#[derive(Serialize)]
struct TableView {
    title: String,
    /// What stands above it, where a heading tells the title already.
    caption: String,
    columns: Vec<ColumnView>,
    rows: Vec<RowView>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct ColumnView {
    head: String,
    unit: &'static str,
    is_right: bool,
    /// Which way it is ordered at the first click.
    first: &'static str,
}

#[derive(Serialize)]
struct RowView {
    cells: Vec<CellView>,
    marks: Vec<&'static str>,
    is_doubtful: bool,
}

#[derive(Serialize)]
struct CellView {
    text: String,
    /// By what it is ordered, where that is not its text.
    value: Option<String>,
    class: &'static str,
}

pub(super) fn view(document: &Document) -> View {
    let tables = &document.tables;
    let groups = document.comparisons.iter().zip(&tables.comparisons).enumerate();
    let comparisons: Vec<Group> = groups
        .map(|(at, (comparison, compared))| Group {
            id: format!("comparison-{}", at + 1),
            title: plain(&comparison.title),
            table: called(table(&compared.figures), "Throughput, and the ratio"),
            latencies: called(table(&compared.latencies), "Latencies"),
            figures: figures(pictures::of_comparison(document, comparison)),
        })
        .collect();
    let with_course = || document.cells.iter().filter(|cell| !cell.series.is_empty());
    let tradeoffs = figures(pictures::tradeoffs(document));
    let courses: Vec<Course> = with_course()
        .take(COURSES)
        .map(|cell| Course {
            title: plain(&pictures::name_of(document, cell)),
            figures: figures(pictures::over_time(cell)),
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
    let entry = |id: &str, title: &str| Entry {
        id: id.to_owned(),
        title: title.to_owned(),
    };
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

fn figures(pictures: Vec<Picture>) -> Vec<FigureView> {
    let figure = |picture: Picture| FigureView {
        title: plain(picture.title()),
        svg: Safe::from_safe_string(picture.svg()),
        legend: picture
            .legend()
            .into_iter()
            .map(|(sample, name)| Key {
                sample: Safe::from_safe_string(sample),
                name: plain(&name),
            })
            .collect(),
        table: table(&picture.table()),
    };
    pictures.into_iter().map(figure).collect()
}

fn called(table: TableView, caption: &str) -> TableView {
    TableView {
        caption: caption.to_owned(),
        ..table
    }
}

fn table(table: &Table) -> TableView {
    // A column in which nothing is known only takes room.
    let is_known = |at: usize| {
        let mut cells = table.rows.iter().map(|row| &row.cells[at]);
        at == 0 || table.rows.is_empty() || cells.any(|cell| *cell != Value::Missing)
    };
    let kept: Vec<usize> = (0..table.columns.len()).filter(|&at| is_known(at)).collect();
    let columns = kept
        .iter()
        .map(|&at| &table.columns[at])
        .map(|column| ColumnView {
            head: plain(&column.head),
            unit: column.unit,
            is_right: column.align == Align::Right,
            first: match (column.better, column.align) {
                (Some(Better::Lower), _) | (None, Align::Left) => "ascending",
                _ => "descending",
            },
        });
    let rows = table.rows.iter().map(|row| RowView {
        cells: kept
            .iter()
            .map(|&at| cell(&row.cells[at], table.columns[at].align))
            .collect(),
        marks: row.marks.iter().filter_map(|mark| mark.word()).collect(),
        is_doubtful: row
            .marks
            .iter()
            .any(|mark| matches!(mark, Mark::Warned | Mark::Suspect | Mark::Invalid | Mark::Failed)),
    });
    TableView {
        title: plain(&table.title),
        caption: plain(&table.title),
        columns: columns.collect(),
        rows: rows.collect(),
        notes: table.notes.iter().map(|note| plain(note)).collect(),
    }
}

fn cell(value: &Value, align: Align) -> CellView {
    let text = plain(&value.to_string());
    CellView {
        value: match value {
            Value::Missing | Value::Text(_) => None,
            Value::Count(count) => Some(count.to_string()),
            Value::Number { value, .. } => Some(value.to_string()),
            Value::Spread { median, .. } => Some(median.to_string()),
        },
        class: match align {
            Align::Right => "right",
            Align::Left if text.chars().count() > LONG => "long",
            Align::Left => "",
        },
        text,
    }
}
