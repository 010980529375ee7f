//! Which cell's answers those of a graded cell are compared with.

use std::collections::BTreeMap;

use crate::base::ids::CellKey;
use crate::config::matrix::Matrix;
use crate::config::quality::AnswerReference;
use crate::config::select::AxisValues;
use crate::config::yaml::{Diagnostic, Spanned};
use crate::plan::Cell;

/// Axes in which a cell and its reference are alike: the model and the load.
const COMMON_AXES: [&str; 4] = ["model", "scenario", "rate", "concurrency"];

/// An error names at most this many cells.
const MAX_NAMED_CELLS: usize = 8;

/// The reference of every graded cell that is none itself, by their keys. A cell of a model and load for which no cell is
/// selected has none.
///
/// # Errors
/// No graded cell is selected, or several of one model and load are.
pub(super) fn resolve(
    matrix: &Matrix,
    cells: &[Cell],
) -> Result<BTreeMap<CellKey, CellKey>, Box<Diagnostic>> {
    let quality = matrix.quality.as_ref();
    let Some(reference) = quality.and_then(|quality| quality.value.reference.as_ref()) else {
        return Ok(BTreeMap::new());
    };
    if reference.run.is_some() {
        // Paired when the run starts, see `StoredReference`.
        return Ok(BTreeMap::new());
    }
    let graded = || cells.iter().filter(|cell| cell.scenario.quality.is_some());
    let is_selected = |cell: &&Cell| reference.value.cells.matches(&cell.axes);
    let mut selected: BTreeMap<Vec<Option<&String>>, Vec<&Cell>> = BTreeMap::new();
    for cell in graded().filter(is_selected) {
        selected.entry(common_values(&cell.axes)).or_default().push(cell);
    }
    if selected.is_empty() {
        return Err(Box::new(nothing_selected(reference, graded())));
    }
    if let Some(several) = selected.values().find(|cells| cells.len() > 1) {
        return Err(Box::new(ambiguous(reference, several)));
    }
    let others = graded().filter(|cell| !is_selected(cell));
    let pairs = others.filter_map(|cell| {
        let found = selected.get(&common_values(&cell.axes))?;
        Some((cell.key.clone(), found[0].key.clone()))
    });
    Ok(pairs.collect())
}

pub(super) fn common_values(axes: &AxisValues) -> Vec<Option<&String>> {
    COMMON_AXES.iter().map(|axis| axes.get(*axis)).collect()
}

fn nothing_selected<'a>(
    reference: &Spanned<AnswerReference>,
    graded: impl Iterator<Item = &'a Cell>,
) -> Diagnostic {
    let cells: Vec<&Cell> = graded.collect();
    let diagnostic = Diagnostic::new("the `reference` of `quality` selects no cell with graded answers");
    let diagnostic = match &reference.place {
        Some(place) => diagnostic.with_place(place, "no cell matches"),
        None => diagnostic,
    };
    diagnostic
        .with_note(format!("graded cells: {}", names(&cells)))
        .with_help("name an engine of this matrix, such as `reference: vllm`")
}

fn ambiguous(reference: &Spanned<AnswerReference>, cells: &[&Cell]) -> Diagnostic {
    let differing = differing_axis(cells);
    let help = match differing {
        Some((axis, value)) => {
            let selector = &reference.value.cells;
            let known = selector.0.iter().filter(|(known, _)| known.value != axis);
            let mut parts: Vec<String> = known
                .map(|(axis, patterns)| format!("{axis}: {}", written(patterns)))
                .collect();
            parts.push(format!("{axis}: {value}"));
            format!(
                "select one of the cells, such as `reference: {{ {} }}`",
                parts.join(", ")
            )
        }
        None => "write axes in `reference` that select only one of these cells".to_owned(),
    };
    let diagnostic =
        Diagnostic::new("the `reference` of `quality` selects several cells with the same model and load");
    let diagnostic = match &reference.place {
        Some(place) => diagnostic.with_place(place, format!("{} cells match", cells.len())),
        None => diagnostic,
    };
    diagnostic
        .with_note(format!("they are: {}", names(cells)))
        .with_help(help)
}

/// Patterns of an axis as they are written in YAML.
fn written(patterns: &[String]) -> String {
    match patterns {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

/// The first axis in which cells differ, with the value of the first cell.
pub(super) fn differing_axis<'a>(cells: &[&'a Cell]) -> Option<(&'static str, &'a str)> {
    let first = cells.first()?;
    crate::config::select::AXES.into_iter().find_map(|axis| {
        let value = first.axes.get(axis);
        let differs = cells.iter().any(|cell| cell.axes.get(axis) != value);
        differs.then_some((axis, value?.as_str()))
    })
}

pub(super) fn names(cells: &[&Cell]) -> String {
    let named = cells.iter().take(MAX_NAMED_CELLS);
    let mut text: Vec<String> = named.map(|cell| format!("`{}`", cell.key)).collect();
    if let Some(more) = cells.len().checked_sub(MAX_NAMED_CELLS).filter(|more| *more > 0) {
        text.push(format!("and {more} more"));
    }
    text.join(", ")
}
