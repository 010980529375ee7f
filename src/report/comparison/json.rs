//! The comparison of two sides as JSON.

use crate::analysis::compare::decision::{CONFIDENCE, Outcome};
use crate::analysis::compare::pairwise::Comparison;
use crate::analysis::compare::pairwise::row::Row;
use crate::analysis::compare::verdict::Verdict;

pub(crate) fn json(comparison: &Comparison) -> serde_json::Value {
    let rows: Vec<serde_json::Value> = comparison.rows.iter().map(row_json).collect();
    let differences: Vec<serde_json::Value> = comparison
        .differences
        .iter()
        .map(|(difference, cells)| {
            serde_json::json!({
                "of": difference.kind.name(),
                "what": difference.what,
                "before": difference.before,
                "after": difference.after,
                "cells": cells,
            })
        })
        .collect();
    let unpaired: Vec<serde_json::Value> = comparison
        .unpaired_cells
        .iter()
        .map(|unpaired| serde_json::json!({ "cell": unpaired.cell, "only_in": unpaired.side }))
        .collect();
    serde_json::json!({
        "figures": comparison.figure_count(),
        "judged": comparison.judged_count(),
        "bound_share": comparison.bound,
        "failures": comparison.failures.iter().map(|failure| serde_json::json!({
            "cell": failure.cell, "text": failure.text, "is_regression": failure.is_regression,
        })).collect::<Vec<_>>(),
        "differences": differences,
        "rows": rows,
        "unpaired": unpaired,
    })
}

fn row_json(row: &Row) -> serde_json::Value {
    let answer = &row.answer;
    let precision = row.estimate().and_then(|estimate| estimate.precision);
    let starts = |at: usize| -> Vec<f64> {
        let value = |log: &f64| if row.is_zero[at] { 0.0 } else { log.exp() };
        row.samples[at].logs.iter().map(value).collect()
    };
    let estimate = row.estimate().filter(|_| row.change_from_zero().is_none());
    let interval = estimate.and_then(|estimate| estimate.interval(CONFIDENCE));
    let to_zero = (row.is_zero == [false, true]).then_some(-1.0);
    let gap = match &answer.outcome {
        Outcome::Judged(_) => None,
        Outcome::NotJudged(gap) => Some(gap.name()),
    };
    serde_json::json!({
        "cell": row.cell,
        "figure": row.metric.name(),
        "verdict": answer.verdict().map(Verdict::name),
        "not_judged": gap,
        "refused": row.refusal_cause.map(|_| row.verdict_word()),
        "reason": row.reason(),
        "baseline_starts": starts(0),
        "candidate_starts": starts(1),
        "baseline": row.value(0),
        "candidate": row.value(1),
        "baseline_interval": row.percentile_bounds[0],
        "candidate_interval": row.percentile_bounds[1],
        "change_share": estimate.map(|estimate| estimate.change()).or(to_zero),
        "interval_share": interval.map(|interval| [interval.low, interval.high]),
        "p": precision.map(|precision| precision.p),
        "adjusted_p": precision.and_then(|precision| precision.adjusted_p),
        "df": precision.map(|precision| precision.df),
        "visible_loss_share": precision.and_then(|_| answer.smallest_detectable_loss()),
        "starts_to_decide": answer.starts_to_decide(),
        "knows_drift": answer.knows_drift(),
        "is_noise_known": row.noise.is_some(),
        "noise_share": row.noise.map(|noise| noise.sigma),
        "within_share": row.variance_components.within.map(f64::sqrt),
        "between_share": row.variance_components.between.map(f64::sqrt),
        "left_out": row.excluded_measurements,
        "suspect": row.suspect_starts.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
