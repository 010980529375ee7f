//! Draws documents as JSON.

use crate::analysis::compare::pairwise::Comparison;
use crate::analysis::compare::time_series::ContextChangeKind;
use crate::report::comparison;
use crate::report::history::History;

pub(super) fn comparison(comparison: &Comparison) -> String {
    format!("{:#}\n", comparison::json::json(comparison))
}

pub(super) fn history(history: &History<'_>) -> String {
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
    let history = serde_json::json!({
        "matrix": history.matrix,
        "series": series.collect::<Vec<_>>(),
        "events": events.collect::<Vec<_>>(),
    });
    format!("{history:#}\n")
}
