//! The content of a history's page, as its template expects it.

use serde::Serialize;

use super::components::{Entry, FigureView, Key, TableView, called, figures, table};
use super::history_charts;
use crate::analysis::compare::time_series::Series;
use crate::config::select::AxisValues;
use crate::report::history::{self, History, day};
use crate::report::labels;
use crate::report::{nightly, plain};
use crate::results::record::cell::Origin;

/// Maximum number of charts, to limit the size of the page.
const DRAWN: usize = 90;

#[derive(Serialize)]
pub(super) struct View {
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

pub(super) fn view(history: &History<'_>) -> View {
    let drawn = chosen(&history.series);
    let groups = groups(history, &drawn);
    let events = (!history.events.is_empty()).then(|| table(&history::events(history)));
    let findings = history::findings(history, history.nights);
    let findings = (!findings.rows.is_empty()).then(|| table(&findings));
    let last = history.nights.last();
    let last_findings = last.map(|night| history::findings(history, std::slice::from_ref(night)));
    let mut contents = vec![
        Entry::new("last", "The last night"),
        Entry::new("figures", "Figures"),
        Entry::new("trends", "Night after night"),
    ];
    contents.extend(events.is_some().then(|| Entry::new("events", "Events")));
    contents.extend(findings.is_some().then(|| Entry::new("findings", "Findings")));
    let every = history::figures(history);
    View {
        title: plain(&format!("Nights of {}", history.matrix)),
        about: about(history),
        warnings: warnings(&history.series),
        contents,
        last: last.map_or_else(String::new, |last| {
            let against = last.baseline.as_ref().map_or_else(
                || "held against nothing".to_owned(),
                |run| format!("held against {run}"),
            );
            plain(&format!(
                "{}, run {}, {against}: {}.",
                day(&last.at),
                last.run,
                nightly::headline(last)
            ))
        }),
        last_findings: last_findings
            .filter(|findings| !findings.rows.is_empty())
            .map(|findings| called(table(&findings), "What it found")),
        figures_table: called(table(&every), "Every gating figure"),
        legend: history_charts::legend(),
        left_out: history.series.len() - drawn.len(),
        groups,
        events,
        findings,
        redraw: plain(&format!(
            "matrix history {} --format html --out history.html",
            history.matrix
        )),
    }
}

fn about(history: &History<'_>) -> String {
    let count = match history.nights.len() {
        1 => "1 night".to_owned(),
        count => format!("{count} nights"),
    };
    match history.nights {
        [] => "No night".to_owned(),
        [first, .., last] => plain(&format!("{count}, {} to {}", day(&first.at), day(&last.at))),
        [only] => plain(&format!("{count}, {}", day(&only.at))),
    }
}

fn warnings(all: &[Series]) -> Vec<String> {
    let simulated = all
        .iter()
        .filter(|series| series.origin == Some(Origin::Simulated))
        .count();
    let told = match simulated {
        0 => return Vec::new(),
        count if count == all.len() => "Every figure was".to_owned(),
        count => format!("{count} of {} figures were", all.len()),
    };
    vec![format!(
        "{told} measured on the simulated engine: such figures say nothing about a real one."
    )]
}

/// The series to draw, in their order. If there are too many, series with level changes have priority.
fn chosen(all: &[Series]) -> Vec<&Series> {
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by_key(|at| all[*at].changes.is_empty());
    order.truncate(DRAWN);
    order.sort_unstable();
    order.into_iter().map(|at| &all[at]).collect()
}

/// Groups series by model, in the order of their cells.
fn groups(history: &History<'_>, drawn: &[&Series]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for series in drawn {
        let mut values = history.labels.said(&series.cell);
        let model = values.remove("model").unwrap_or_else(|| "all".to_owned());
        let model = plain(&model);
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
    let words = labels::words(values);
    let name = match words.is_empty() {
        true => series.cell.to_string(),
        false => words.join(" · "),
    };
    let title = format!("{name}: {}", series.metric.label());
    let mut figure = figures(vec![history_charts::picture(series, &title)?]).pop()?;
    figure.legend = Vec::new();
    figure.notes = series
        .changes
        .iter()
        .map(|step| plain(&history::told(series, step)))
        .collect();
    figure.words = plain(&format!("{} {}", series.cell, series.metric.label()));
    Some(figure)
}
