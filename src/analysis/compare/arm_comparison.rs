//! Compares two arms of one run, round by round if they alternated.

use thiserror::Error;

use super::arms::{self, Arms};
use super::pairwise::{self, CompareOptions, Comparison, QuestionFn};
use super::question;
use crate::base::ids::CellKey;
use crate::plan::Plan;
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::cell_stats::RunStats;

#[derive(Debug, Error)]
pub(crate) enum ArmsError {
    #[error("`{axis}={},{}`: {reason}", .values[0], .values[1])]
    Ambiguous {
        axis: String,
        values: [String; 2],
        reason: String,
    },
    #[error(
        "`{run}` has no two cells that differ only in `{axis}={},{}`\n  = help: values of {axis} in its cells: {known}",
        .values[0],
        .values[1]
    )]
    NoPairs {
        run: String,
        axis: String,
        values: [String; 2],
        /// Values that the cells have.
        known: String,
    },
}

/// Compares the cells of two values of an axis. `side` has the cells of the run of `plan` and `summaries`.
///
/// # Errors
/// No cells of the two arms form a pair, or a cell fits several.
pub(crate) fn compare_arms(
    plan: &Plan,
    summaries: &[MeasurementSummary],
    side: &RunStats,
    axis: &str,
    values: [&str; 2],
    terms: &CompareOptions<'_>,
) -> Result<Comparison, ArmsError> {
    let owned = || values.map(str::to_owned);
    let arm_pairs = arms::arm_pairs(&side.cells, axis, values).map_err(|reason| ArmsError::Ambiguous {
        axis: axis.to_owned(),
        values: owned(),
        reason,
    })?;
    if arm_pairs.is_empty() {
        return Err(ArmsError::NoPairs {
            run: side.run.to_string(),
            axis: axis.to_owned(),
            values: owned(),
            known: axis_values(side, axis),
        });
    }
    let arm = |value: &str| {
        let mut arm = side.clone();
        arm.cells
            .retain(|_, cell| cell.axes.get(axis).is_some_and(|own| own == value));
        arm
    };
    let (first, second) = (arm(values[0]), arm(values[1]));
    let cell_key =
        |side: &'_ RunStats, key: &CellKey| side.cells.get_key_value(key).map(|(key, _)| key.clone());
    let pairs: Vec<(CellKey, CellKey)> = arm_pairs
        .iter()
        .filter_map(|(one, two)| Some((cell_key(&first, one)?, cell_key(&second, two)?)))
        .collect();
    let partner = |key: &CellKey| pairs.iter().find(|(_, two)| two == key).map(|(one, _)| one);
    let matched = pairs.iter().filter_map(|(one, two)| {
        let (key, two) = second.cells.get_key_value(two)?;
        Some((key, first.cells.get(one)?, two))
    });
    let ask: QuestionFn<'_> = &|key, [one, two], metric, noise| match partner(key) {
        Some(baseline) => {
            let arms = Arms {
                baseline: (baseline, one),
                candidate: (key, two),
            };
            arms::arms_question(plan, summaries, arms, metric, noise)
        }
        None => question::cell_question(one, two, metric, noise),
    };
    Ok(pairwise::compare_pairs(
        &first,
        &second,
        matched.collect(),
        terms,
        ask,
    ))
}

/// Returns the values of an axis, each once, in the order of the cells.
fn axis_values(side: &RunStats, axis: &str) -> String {
    let mut values: Vec<&str> = Vec::new();
    for value in side.cells.values().filter_map(|cell| cell.axes.get(axis)) {
        if !values.contains(&value.as_str()) {
            values.push(value);
        }
    }
    match values.is_empty() {
        true => "–".to_owned(),
        false => values.join(", "),
    }
}
