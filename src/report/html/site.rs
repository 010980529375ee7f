//! The content of the index of a site, as its template expects it.

use minijinja::Value as Safe;
use serde::Serialize;

use super::components::{Entry, FigureView, Key, chart_views};
use super::site_charts::{frontier_chart, history_chart};
use crate::analysis::metrics::{Direction, Metric};
use crate::base::text::pluralize;
use crate::report::chart::{Chart, PlotEventStyle, event_sample};
use crate::report::site::frontier::{Frontier, frontiers};
use crate::report::site::history::{self, SiteSeries, all_series};
use crate::report::site::row::{FIGURES, MAIN_FIGURES, RowState, SiteFigure, SiteRow};
use crate::report::site::{Site, SiteRun, data, day};
use crate::report::table::{MISSING, single_line};
use crate::results::record::validity::Verdict;

/// Maximum number of rows in the page itself. The script has all rows.
const MAX_STATIC_ROWS: usize = 1000;
/// Maximum number of charts of throughput against interactivity.
const MAX_FRONTIERS: usize = 24;
/// Maximum number of cells that are drawn over dates.
const MAX_SERIES: usize = 40;

#[derive(Serialize)]
pub(super) struct SiteView {
    title: String,
    about: String,
    warnings: Vec<String>,
    contents: Vec<Entry>,
    columns: Vec<ColumnView>,
    rows: Vec<RowView>,
    rows_left_out: usize,
    frontiers: Vec<FigureView>,
    frontiers_left_out: usize,
    histories: Vec<FigureGroup>,
    series_left_out: usize,
    legend: Vec<Key>,
    runs: Vec<RunView>,
    data: Safe,
}

/// A column of the table of cells.
#[derive(Serialize)]
struct ColumnView {
    head: String,
    /// The unit below the head; empty without one.
    unit: String,
    is_right: bool,
    /// The sort direction of the first click.
    first: &'static str,
}

/// A row of the table of cells.
#[derive(Serialize)]
struct RowView {
    page: String,
    run: String,
    /// The engine with its version.
    engine: String,
    /// `suspect`, `invalid` or nothing, for narrow screens, which do not show the verdict beside the engine.
    doubt: Option<&'static str>,
    question: String,
    tp: String,
    date: String,
    host: String,
    /// Marks of its origin, beside the host.
    marks: Vec<&'static str>,
    figures: Vec<FigureCell>,
    verdict: String,
    /// The class of the verdict.
    state: &'static str,
}

#[derive(Serialize)]
struct FigureCell {
    text: String,
    is_invalid: bool,
}

/// Charts of one figure over dates.
#[derive(Serialize)]
struct FigureGroup {
    id: String,
    title: String,
    figures: Vec<FigureView>,
}

/// A row of the table of runs.
#[derive(Serialize)]
struct RunView {
    page: String,
    run: String,
    texts: Vec<String>,
    counts: Vec<usize>,
    tool: String,
}

pub(super) fn view(site: &Site) -> SiteView {
    let rows: Vec<(&SiteRun, &SiteRow)> = site.rows().collect();
    let (frontiers, frontiers_left_out) = newest(frontiers(site), MAX_FRONTIERS, |one| {
        std::cmp::Reverse(one.versions.len())
    });
    let (series, series_left_out) = newest(all_series(site), MAX_SERIES, |one| {
        std::cmp::Reverse(one.moments.len())
    });
    let frontiers: Vec<FigureView> = frontiers.iter().filter_map(frontier_view).collect();
    let histories: Vec<FigureGroup> = history::figures()
        .iter()
        .filter_map(|metric| history_group(&series, *metric))
        .collect();
    let mut contents = vec![Entry::new("cells", "Cells")];
    contents.extend((!frontiers.is_empty()).then(|| Entry::new("frontier", "Versions")));
    contents.extend((!histories.is_empty()).then(|| Entry::new("history", "History")));
    contents.push(Entry::new("runs", "Runs"));
    SiteView {
        title: "Benchmark runs".to_owned(),
        about: about(site, rows.len()),
        warnings: warnings(&rows),
        contents,
        columns: columns(),
        rows: rows
            .iter()
            .take(MAX_STATIC_ROWS)
            .map(|(run, row)| row_view(run, row))
            .collect(),
        rows_left_out: rows.len().saturating_sub(MAX_STATIC_ROWS),
        frontiers,
        frontiers_left_out,
        histories,
        series_left_out,
        legend: legend(),
        runs: site.runs.iter().map(run_view).collect(),
        data: Safe::from_safe_string(data::json(site)),
    }
}

/// At most `limit` entries, those with the lowest rank, in their order, and how many are left out.
fn newest<T, K: Ord>(all: Vec<T>, limit: usize, rank: impl Fn(&T) -> K) -> (Vec<T>, usize) {
    let left_out = all.len().saturating_sub(limit);
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| rank(&all[*at]));
    order.truncate(limit);
    let chosen = all.into_iter().enumerate().filter(|(at, _)| order.contains(at));
    (chosen.map(|(_, one)| one).collect(), left_out)
}

fn about(site: &Site, rows: usize) -> String {
    let mut words = vec![
        pluralize(site.runs.len(), "run", "runs"),
        pluralize(rows, "cell", "cells"),
    ];
    let mut hosts: Vec<&String> = site
        .rows()
        .filter_map(|(_, row)| row.host_name.as_ref())
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    if !hosts.is_empty() {
        words.push(pluralize(hosts.len(), "host", "hosts"));
    }
    if let (Some(last), Some(first)) = (site.runs.first(), site.runs.last()) {
        let (first, last) = (day(&first.began), day(&last.began));
        words.push(match first == last {
            true => first.to_owned(),
            false => format!("{first} to {last}"),
        });
    }
    single_line(&words.join(", "))
}

fn warnings(rows: &[(&SiteRun, &SiteRow)]) -> Vec<String> {
    let simulated = rows.iter().filter(|(_, row)| row.is_simulated).count();
    let share = match simulated {
        0 => return Vec::new(),
        count if count == rows.len() => "Every cell was".to_owned(),
        1 => format!("1 of {} cells was", rows.len()),
        count => format!("{count} of {} cells were", rows.len()),
    };
    vec![format!(
        "{share} measured on the simulated engine: such figures say nothing about a real one."
    )]
}

fn columns() -> Vec<ColumnView> {
    let text = |head: &str, first| ColumnView {
        head: head.to_owned(),
        unit: String::new(),
        is_right: false,
        first,
    };
    // A narrow screen shows the first ones.
    let mut columns = vec![
        text("engine", "ascending"),
        text("model, scenario and load", "ascending"),
    ];
    columns.extend(FIGURES[..MAIN_FIGURES].iter().map(|metric| column_head(*metric)));
    columns.extend([
        text("verdict", "ascending"),
        ColumnView {
            is_right: true,
            ..text("tp", "ascending")
        },
        text("date", "descending"),
        text("host (GPU)", "ascending"),
        text("run", "ascending"),
    ]);
    columns
}

/// The head of a figure's column: its short name above its unit.
fn column_head(metric: Metric) -> ColumnView {
    let symbol = metric.unit().symbol();
    let label = metric.label();
    let (head, unit) = match metric {
        Metric::Throughput(_) => ("output".to_owned(), symbol.to_owned()),
        _ => match label.split_once(' ') {
            Some((statistic, time)) => (time.to_owned(), format!("{statistic} {symbol}")),
            None => (label, symbol.to_owned()),
        },
    };
    ColumnView {
        head,
        unit,
        is_right: true,
        first: match metric.direction() {
            Some(Direction::Lower) => "ascending",
            _ => "descending",
        },
    }
}

fn row_view(run: &SiteRun, row: &SiteRow) -> RowView {
    let or_missing = |text: &Option<String>| text.clone().unwrap_or_else(|| MISSING.to_owned());
    let host = match &row.gpu {
        Some(gpu) => format!("{} ({gpu})", or_missing(&row.host_name)),
        None => or_missing(&row.host_name),
    };
    RowView {
        page: run.page.clone(),
        run: single_line(&run.name),
        engine: single_line(&match &row.version {
            Some(version) => format!("{} {version}", row.engine),
            None => row.engine.clone(),
        }),
        question: single_line(&format!("{} · {}", row.model, row.load)),
        tp: row.tp.map_or_else(|| MISSING.to_owned(), |tp| tp.to_string()),
        doubt: match row.state {
            RowState::Suspect | RowState::Invalid => row.state.name(),
            RowState::Valid | RowState::NotJudged | RowState::NoFigures => None,
        },
        date: single_line(day(&run.began)),
        host: single_line(&host),
        marks: data::origin(row)
            .split(", ")
            .filter(|mark| !mark.is_empty())
            .collect(),
        figures: row.figures[..MAIN_FIGURES]
            .iter()
            .map(|figure| figure_cell(*figure))
            .collect(),
        verdict: single_line(&row.verdict()),
        state: state_class(row.state),
    }
}

const fn state_class(state: RowState) -> &'static str {
    match state {
        RowState::Valid => "valid",
        RowState::Suspect => "suspect",
        RowState::Invalid => "invalid",
        RowState::NotJudged => "unknown",
        RowState::NoFigures => "failed",
    }
}

fn figure_cell(figure: Option<SiteFigure>) -> FigureCell {
    FigureCell {
        text: figure.map_or_else(|| MISSING.to_owned(), |figure| figure_text(figure.value)),
        is_invalid: figure.is_some_and(|figure| figure.verdict == Verdict::Invalid),
    }
}

/// A figure with three or more digits; the script of the page writes it alike.
fn figure_text(value: f64) -> String {
    let decimals = match value.abs() {
        large if large >= 100.0 => 0,
        medium if medium >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

fn frontier_view(frontier: &Frontier) -> Option<FigureView> {
    let mut view = chart_views(vec![frontier_chart(frontier)]).pop()?;
    if let [only] = &frontier.versions[..] {
        view.notes.push(single_line(&format!("version {}", only.version)));
    }
    view.notes
        .extend(frontier.notes.iter().map(|note| single_line(note)));
    let versions: Vec<&str> = frontier.versions.iter().map(|one| one.version.as_str()).collect();
    view.words = single_line(&format!("{} {}", frontier.title, versions.join(" ")));
    Some(view)
}

fn history_group(series: &[SiteSeries<'_>], metric: Metric) -> Option<FigureGroup> {
    let charts: Vec<Chart> = series
        .iter()
        .filter_map(|one| history_chart(one, metric))
        .collect();
    let figures: Vec<FigureView> = chart_views(charts)
        .into_iter()
        .map(|mut view| {
            view.legend = Vec::new();
            view.words.clone_from(&view.title);
            view
        })
        .collect();
    (!figures.is_empty()).then(|| FigureGroup {
        id: format!("history-{}", metric.name()),
        title: metric.label(),
        figures,
    })
}

/// The legend of marks, the same for all charts over dates.
fn legend() -> Vec<Key> {
    let marks = [
        (
            PlotEventStyle::Break,
            "host, load or settings changed: earlier values are not comparable",
        ),
        (PlotEventStyle::Note, "another version"),
        (PlotEventStyle::MissingValue, "invalid: not drawn"),
    ];
    marks
        .map(|(style, name)| Key::new(event_sample(style), name))
        .into()
}

fn run_view(run: &SiteRun) -> RunView {
    let mut hosts: Vec<&str> = run
        .rows
        .iter()
        .filter_map(|row| row.host_name.as_deref())
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    let hosts = match hosts.is_empty() {
        true => MISSING.to_owned(),
        false => hosts.join(", "),
    };
    let count = |states: &[RowState]| run.rows.iter().filter(|row| states.contains(&row.state)).count();
    RunView {
        page: run.page.clone(),
        run: single_line(&run.name),
        texts: [day(&run.began), run.matrix.as_str(), hosts.as_str()]
            .map(single_line)
            .into(),
        counts: vec![
            run.rows.len(),
            count(&[RowState::Valid]),
            count(&[RowState::Suspect]),
            count(&[RowState::Invalid]),
            count(&[RowState::NotJudged, RowState::NoFigures]),
        ],
        tool: single_line(&run.tool),
    }
}
