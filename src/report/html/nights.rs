//! The content of a history's page, as its template expects it.

use serde::Serialize;

use super::components::{Entry, FigureView, Key, TableView, chart_views, table_view, with_caption};
use super::history_charts;
use crate::analysis::compare::time_series::Series;
use crate::config::select::AxisValues;
use crate::report::history::{self, History, date};
use crate::report::labels;
use crate::report::nightly;
use crate::report::table::single_line;
use crate::results::record::cell::Origin;

/// Maximum number of charts, to limit the size of the page.
const MAX_DRAWN_SERIES: usize = 90;

#[derive(Serialize)]
pub(super) struct HistoryView {
    title: String,
    about: String,
    warnings: Vec<String>,
    contents: Vec<Entry>,
    last: String,
    last_findings: Option<TableView>,
    figures_table: TableView,
    legend: Vec<Key>,
    groups: Vec<Group>,
    left_out: usize,
    events: Option<TableView>,
    findings: Option<TableView>,
    redraw: String,
}

/// The series of one model.
#[derive(Serialize)]
struct Group {
    id: String,
    title: String,
    figures: Vec<FigureView>,
}

pub(super) fn view(history: &History<'_>) -> HistoryView {
    let drawn = drawn_series(&history.series);
    let groups = groups(history, &drawn);
    let events = (!history.events.is_empty()).then(|| table_view(&history::events_table(history)));
    let findings = history::findings_table(history, history.nights);
    let findings = (!findings.rows.is_empty()).then(|| table_view(&findings));
    let last = history.nights.last();
    let last_findings = last.map(|night| history::findings_table(history, std::slice::from_ref(night)));
    let mut contents = vec![
        Entry::new("last", "The last nightly run"),
        Entry::new("figures", "Figures"),
        Entry::new("trends", "Trends"),
    ];
    contents.extend(events.is_some().then(|| Entry::new("events", "Events")));
    contents.extend(findings.is_some().then(|| Entry::new("findings", "Findings")));
    let every = history::series_table(history);
    HistoryView {
        title: single_line(&format!("Nightly runs of {}", history.matrix)),
        about: subtitle(history),
        warnings: warnings(&history.series),
        contents,
        last: last.map_or_else(String::new, |last| {
            let baseline = last
                .baseline
                .as_ref()
                .map_or_else(|| "no baseline".to_owned(), |run| format!("compared with {run}"));
            single_line(&format!(
                "{}, run {}, {baseline}: {}.",
                date(&last.at),
                last.run,
                nightly::headline(last)
            ))
        }),
        last_findings: last_findings
            .filter(|findings| !findings.rows.is_empty())
            .map(|findings| with_caption(table_view(&findings), "Its findings")),
        figures_table: with_caption(table_view(&every), "Every gating figure"),
        legend: history_charts::legend(),
        left_out: history.series.len() - drawn.len(),
        groups,
        events,
        findings,
        redraw: single_line(&format!(
            "matrix history {} --format html --out history.html",
            history.matrix
        )),
    }
}

fn subtitle(history: &History<'_>) -> String {
    let count = match history.nights.len() {
        1 => "1 nightly run".to_owned(),
        count => format!("{count} nightly runs"),
    };
    match history.nights {
        [] => "No nightly run".to_owned(),
        [first, .., last] => single_line(&format!("{count}, {} to {}", date(&first.at), date(&last.at))),
        [only] => single_line(&format!("{count}, {}", date(&only.at))),
    }
}

fn warnings(all_series: &[Series]) -> Vec<String> {
    let simulated = all_series
        .iter()
        .filter(|series| series.origin == Some(Origin::Simulated))
        .count();
    let note = match simulated {
        0 => return Vec::new(),
        count if count == all_series.len() => "Every figure was".to_owned(),
        count => format!("{count} of {} figures were", all_series.len()),
    };
    vec![format!(
        "{note} measured on the simulated engine: such figures say nothing about a real one."
    )]
}

/// The series to draw, in their order. If there are too many, series with level changes have priority.
fn drawn_series(all_series: &[Series]) -> Vec<&Series> {
    let mut order: Vec<usize> = (0..all_series.len()).collect();
    order.sort_by_key(|at| all_series[*at].changes.is_empty());
    order.truncate(MAX_DRAWN_SERIES);
    order.sort_unstable();
    order.into_iter().map(|at| &all_series[at]).collect()
}

/// Groups series by model, in the order of their cells.
fn groups(history: &History<'_>, drawn: &[&Series]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for series in drawn {
        let mut values = history.labels.shown_axes(&series.cell);
        let model = values.remove("model").unwrap_or_else(|| "all".to_owned());
        let model = single_line(&model);
        let Some(figure) = figure(series, &values) else {
            continue;
        };
        match groups.iter_mut().find(|group| group.title == model) {
            Some(group) => group.figures.push(figure),
            None => groups.push(Group {
                id: format!("model-{}", groups.len() + 1),
                title: model,
                figures: vec![figure],
            }),
        }
    }
    groups
}

fn figure(series: &Series, values: &AxisValues) -> Option<FigureView> {
    let words = labels::axis_words(values);
    let name = match words.is_empty() {
        true => series.cell.to_string(),
        false => words.join(" · "),
    };
    let title = format!("{name}: {}", series.metric.label());
    let mut figure = chart_views(vec![history_charts::series_chart(series, &title)?]).pop()?;
    figure.legend = Vec::new();
    figure.notes = series
        .changes
        .iter()
        .map(|step| single_line(&history::level_change_in_words(series, step)))
        .collect();
    figure.words = single_line(&format!("{} {}", series.cell, series.metric.label()));
    Some(figure)
}
