//! Exports a history as JSON and CSV.

use super::History;
use crate::analysis::compare::time_series::ContextChangeKind;
use crate::analysis::metrics::Direction;
use crate::report::csv::{csv_line, without_formulas};

pub(crate) fn json(history: &History<'_>) -> serde_json::Value {
    let series = history.series.iter().map(|series| {
        let nights: Vec<_> = series
            .nights
            .iter()
            .map(|night| {
                serde_json::json!({
                    "at": night.at,
                    "run": night.run,
                    "value": night.value,
                    "starts": night.starts,
                    "baseline": night.baseline,
                })
            })
            .collect();
        let gaps: Vec<_> = series
            .gaps
            .iter()
            .map(|gap| serde_json::json!({ "at": gap.at, "why": gap.reason }))
            .collect();
        let changes: Vec<_> = series
            .changes
            .iter()
            .map(|step| {
                let at = &series.nights[step.index].at;
                serde_json::json!({ "at": at, "change_share": step.change, "p": step.p })
            })
            .collect();
        let turns: Vec<_> = series
            .context_changes
            .iter()
            .map(|turn| {
                serde_json::json!({
                    "at": series.nights[turn.index].at,
                    "what": turn.text,
                    "is_cut": turn.kind == ContextChangeKind::SeriesBreak,
                })
            })
            .collect();
        serde_json::json!({
            "cell": series.cell,
            "figure": series.metric.name(),
            "origin": series.origin,
            "nights": nights,
            "gaps": gaps,
            "turns": turns,
            "changes": changes,
        })
    });
    let events = history
        .events
        .iter()
        .map(|event| serde_json::json!({ "at": event.at, "what": event.text, "cells": event.cells }));
    serde_json::json!({
        "matrix": history.matrix,
        "series": series.collect::<Vec<_>>(),
        "events": events.collect::<Vec<_>>(),
    })
}

const COLUMNS: [&str; 13] = [
    "night",
    "run",
    "cell",
    "figure",
    "label",
    "unit",
    "better",
    "value",
    "starts",
    "baseline",
    "change_share",
    "change_p",
    "what",
];

/// A row for every nightly run of every series, as CSV (RFC 4180). A run without the figure has no value; the
/// column `what` says why, and names other changes. `change_share` is on the first run of a new level.
pub(crate) fn csv(history: &History<'_>) -> String {
    let mut text = csv_line(COLUMNS.map(str::to_owned).into());
    for series in &history.series {
        let better = match series.metric.direction() {
            Some(Direction::Higher) => "higher",
            Some(Direction::Lower) => "lower",
            None => "",
        };
        let row = |at: &str, run: &str, [value, starts, baseline, change, p, what]: [String; 6]| {
            let known = [
                without_formulas(at),
                without_formulas(run),
                without_formulas(series.cell.as_str()),
                series.metric.name(),
                series.metric.label(),
                series.metric.unit().symbol().to_owned(),
                better.to_owned(),
            ];
            let rest = [value, starts, baseline, change, p, without_formulas(&what)];
            csv_line(known.into_iter().chain(rest).collect())
        };
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let mut gaps = series.gaps.iter().peekable();
        for at in 0..=series.nights.len() {
            while let Some(gap) = gaps.next_if(|gap| gap.index <= at) {
                let none = [const { String::new() }; 5];
                let [value, starts, baseline, change, p] = none;
                text.push_str(&row(
                    &gap.at,
                    "",
                    [value, starts, baseline, change, p, gap.reason.clone()],
                ));
            }
            let Some(night) = series.nights.get(at) else {
                continue;
            };
            let step = series.changes.iter().find(|step| step.index == at);
            let turns = series.context_changes.iter().filter(|turn| turn.index == at);
            let what: Vec<&str> = turns.map(|turn| turn.text.as_str()).collect();
            let fields = [
                night.value.to_string(),
                night.starts.to_string(),
                number(night.baseline),
                number(step.map(|step| step.change)),
                number(step.map(|step| step.p)),
                what.join("; "),
            ];
            text.push_str(&row(&night.at, night.run.as_str(), fields));
        }
    }
    text
}
