//! Applies `--only` to a plan.

use std::collections::BTreeSet;

use crate::config::select::{self, Selector};
use crate::config::yaml::nearest_name;
use crate::plan::Plan;

/// `--only` matches no cell.
#[derive(Debug, thiserror::Error)]
#[error(
    "`--only {selector}` matches none of the {cells} cells\n  = help: cells are named like this:\n      {}",
    .examples.join("\n      ")
)]
pub(crate) struct NothingSelected {
    selector: String,
    /// Number of cells in the plan.
    cells: usize,
    /// The first cells of the plan.
    examples: Vec<String>,
}

/// Keeps the matching cells, and returns notes about values that match no cell.
pub(crate) fn select(plan: &mut Plan, only: &Selector) -> Result<Vec<String>, NothingSelected> {
    let known: Vec<String> = plan.cells.iter().map(|cell| cell.key.to_string()).collect();
    let unmatched = unmatched_values(plan, only);
    plan.retain_cells(|cell| only.matches(&cell.axes));
    plan.left_out
        .retain(|left_out| only.matches(&select::parse_key(left_out.cell.as_str())));
    if plan.cells.is_empty() {
        return Err(NothingSelected {
            selector: only.to_string(),
            cells: known.len(),
            examples: known.into_iter().take(3).collect(),
        });
    }
    Ok(unmatched)
}

/// Notes about values that match no cell; they may be typos.
fn unmatched_values(plan: &Plan, only: &Selector) -> Vec<String> {
    let mut notes = Vec::new();
    for (axis, patterns) in &only.0 {
        let values: BTreeSet<&str> = plan
            .cells
            .iter()
            .map(|cell| cell.axes.get(&axis.value).map_or("", String::as_str))
            .collect();
        for pattern in patterns {
            let bare_pattern = pattern.strip_prefix('!').unwrap_or(pattern);
            if values
                .iter()
                .any(|value| select::pattern_matches(bare_pattern, value))
            {
                continue;
            }
            let near = nearest_name(bare_pattern, values.iter().copied());
            let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            notes.push(format!(
                "no value of the axis `{}` matches `{bare_pattern}` in `--only`{near}",
                axis.value
            ));
        }
    }
    notes
}
