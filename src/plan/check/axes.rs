//! Checks the axes of a matrix, the sizes of its models and its selectors.

use super::diagnostics::{unknown_name, with_place};
use crate::config::forms::{ByEngine, OneOrMany};
use crate::config::matrix::{Matrix, engine_name};
use crate::config::select::{AXES, Selector};
use crate::config::yaml::{Diagnostic, SourceSpan, Spanned};

/// An axis that is written without a value.
pub(super) fn refuse_empty<T>(axis: &Option<Spanned<OneOrMany<T>>>, diagnostics: &mut Vec<Diagnostic>) {
    if let Some(list) = axis
        && list.0.is_empty()
    {
        diagnostics.push(empty_axis(list.place.as_ref()));
    }
}

pub(super) fn empty_axis(place: Option<&SourceSpan>) -> Diagnostic {
    with_place(
        Diagnostic::new("the axis is empty"),
        place,
        "an axis without values produces no cells",
    )
    .with_help("add at least one value, or remove the key")
}

fn check_sizes(axis: &str, sizes: &Spanned<ByEngine<OneOrMany<u32>>>, diagnostics: &mut Vec<Diagnostic>) {
    for list in sizes.values() {
        check_size_list(axis, list, sizes.place.as_ref(), diagnostics);
    }
}

fn check_size_list(
    axis: &str,
    list: &OneOrMany<u32>,
    place: Option<&SourceSpan>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    if list.0.is_empty() {
        diagnostics.push(empty_axis(place));
    }
    for size in list.0.iter().filter(|size| **size == 0 || **size > 4096) {
        diagnostics.push(
            with_place(
                Diagnostic::new(format!("`{axis}` is {size}")),
                place,
                "not a parallel size",
            )
            .with_help("a parallel size is a number of devices from 1 to 4096"),
        );
    }
}

pub(super) fn check_models(matrix: &Matrix, diagnostics: &mut Vec<Diagnostic>) {
    let engines: Vec<&str> = matrix
        .engines
        .iter()
        .map(|named| engine_name(named).value.as_str())
        .collect();
    for named in matrix.models.iter() {
        let entry = &named.value;
        for (axis, value) in [
            ("tp", &entry.tp),
            ("pp", &entry.pp),
            ("dp", &entry.dp),
            ("ep", &entry.ep),
        ] {
            if let Some(value) = value {
                check_sizes(axis, value, diagnostics);
                check_engine_names(value, &engines, diagnostics);
            }
        }
        if let Some(value) = &entry.args {
            check_engine_names(value, &engines, diagnostics);
        }
        if let Some(value) = &entry.precision {
            check_engine_names(value, &engines, diagnostics);
        }
        if let Some(value) = &entry.checkpoint {
            check_engine_names(value, &engines, diagnostics);
        }
    }
}

fn check_engine_names<T>(value: &ByEngine<T>, engines: &[&str], diagnostics: &mut Vec<Diagnostic>) {
    for (name, _) in value.entries() {
        if name.value != "default" && !engines.contains(&name.as_str()) {
            diagnostics.push(unknown_name(
                "engine",
                name,
                engines,
                "this matrix has no engine with this name",
            ));
        }
    }
}

pub(super) fn check_axes(matrix: &Matrix, diagnostics: &mut Vec<Diagnostic>) {
    let axes = &matrix.axes;
    for (axis, list) in [
        ("tp", &axes.tp),
        ("pp", &axes.pp),
        ("dp", &axes.dp),
        ("ep", &axes.ep),
    ] {
        if let Some(list) = list {
            check_size_list(axis, &list.value, list.place.as_ref(), diagnostics);
        }
    }
    refuse_empty(&axes.version, diagnostics);
    refuse_empty(&axes.precision, diagnostics);
    refuse_empty(&axes.executor, diagnostics);
    refuse_empty(&axes.rate, diagnostics);
    refuse_empty(&axes.concurrency, diagnostics);
    let known: Vec<&str> = AXES
        .into_iter()
        .filter(|axis| !["engine", "model", "scenario", "variant"].contains(axis))
        .collect();
    for group in &matrix.zip {
        for name in group.iter().filter(|name| !known.contains(&name.as_str())) {
            diagnostics.push(unknown_name(
                "axis",
                name,
                &known,
                "`zip` cannot combine this axis",
            ));
        }
        if let [only] = group.as_slice() {
            diagnostics.push(
                with_place(
                    Diagnostic::new("a group of `zip` needs at least two axes"),
                    only.place.as_ref(),
                    "the only axis",
                )
                .with_help("name the axes that change together, such as `[rate, concurrency]`"),
            );
        }
    }
}

pub(super) fn check_selectors(matrix: &Matrix, diagnostics: &mut Vec<Diagnostic>) {
    let all = matrix
        .exclude
        .iter()
        .map(|exclusion| &exclusion.when)
        .chain(matrix.overrides.iter().map(|over| &over.when));
    for selector in all {
        check_selector(selector, diagnostics);
    }
    for exclusion in matrix
        .exclude
        .iter()
        .filter(|exclusion| exclusion.why.trim().is_empty())
    {
        diagnostics.push(
            with_place(
                Diagnostic::new("an exclusion needs a reason"),
                exclusion.place.as_ref(),
                "`why` is empty",
            )
            .with_help(
                "write in one sentence why the cells are excluded; `matrix plan` and the reports show it",
            ),
        );
    }
}

fn check_selector(selector: &Spanned<Selector>, diagnostics: &mut Vec<Diagnostic>) {
    if selector.value.0.is_empty() {
        diagnostics.push(
            with_place(
                Diagnostic::new("`when` is empty"),
                selector.place.as_ref(),
                "an empty selector matches every cell",
            )
            .with_help("write at least one axis with its value, such as `{ engine: vllm }`"),
        );
    }
    check_selector_axes(&selector.value, diagnostics);
}

/// The errors of axes that no cell has.
pub(super) fn check_selector_axes(selector: &Selector, diagnostics: &mut Vec<Diagnostic>) {
    let axes = selector.0.iter().map(|(axis, _)| axis);
    for axis in axes.filter(|axis| !AXES.contains(&axis.as_str())) {
        diagnostics.push(unknown_name(
            "axis",
            axis,
            &AXES,
            "cells have no axis with this name",
        ));
    }
}
