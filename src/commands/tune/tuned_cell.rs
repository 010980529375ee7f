//! The one cell that is tuned: an engine with the load of a scenario.

use std::collections::BTreeSet;

use crate::cli::tune::TuneArgs;
use crate::commands::error::CommandError;
use crate::commands::matrix_file::{load_changed, select};
use crate::commands::output::Colors;
use crate::config::matrix::Matrix;
use crate::config::tune::TuneEntry;
use crate::config::yaml::{backtick_list, nearest_name};
use crate::plan::{Cell, Launch, Plan};
use crate::runner::load_matrix::LoadedMatrix;

pub(super) fn usage(message: &str, help: &str) -> CommandError {
    CommandError::usage(format!("error: {message}\n  = help: {help}\n"))
}

/// A matrix with the one cell that is tuned.
pub(super) struct TunedMatrix {
    pub(super) matrix: Matrix,
    pub(super) loaded: LoadedMatrix,
    pub(super) entry: TuneEntry,
    /// The cell in the default configuration.
    pub(super) cell: Cell,
    pub(super) launch: Launch,
}

/// Reads the matrix, and selects the cell.
pub(super) fn read(args: &TuneArgs, colors: Colors) -> Result<TunedMatrix, CommandError> {
    let mut read = None;
    let keep = &mut |matrix: &mut Matrix| {
        read = Some(matrix.clone());
        Ok(())
    };
    let mut loaded = load_changed(&args.run.matrix, None, keep, colors)?;
    let matrix = read.expect("a matrix that was read was changed");
    let entry = matrix.tune.as_ref().map(|entry| entry.value.clone());
    let entry = entry.unwrap_or_default();
    let cell = default_cell(args, &entry, &mut loaded.plan)?;
    let launch = loaded.plan.launch(&cell.launch).clone();
    if launch.is_attached() {
        let name = &launch.engine.name;
        return Err(usage(
            &format!("the engine `{name}` is attached, so `matrix` does not start it"),
            "tune an engine that `matrix` starts",
        ));
    }
    Ok(TunedMatrix {
        matrix,
        loaded,
        entry,
        cell,
        launch,
    })
}

/// The one cell that is tuned, in the default configuration.
fn default_cell(args: &TuneArgs, entry: &TuneEntry, plan: &mut Plan) -> Result<Cell, CommandError> {
    if let Some(only) = &args.run.only {
        select(plan, only)?;
    }
    let engine = args
        .engine
        .as_deref()
        .or(entry.engine.as_ref().map(|name| name.as_str()));
    keep_named(plan, "engine", engine, "--engine")?;
    let scenario = args
        .scenario
        .as_deref()
        .or(entry.scenario.as_ref().map(|name| name.as_str()));
    keep_named(plan, "scenario", scenario, "--scenario")?;
    match plan.cells.as_slice() {
        [cell] => Ok(cell.clone()),
        cells => {
            let keys: Vec<&str> = cells.iter().take(3).map(|cell| cell.key.as_str()).collect();
            Err(usage(
                &format!(
                    "only one cell can be tuned, but {} are selected, such as:\n  {}",
                    cells.len(),
                    keys.join("\n  ")
                ),
                "select one cell with `--only`, such as `--only model=NAME,precision=bf16`",
            ))
        }
    }
}

/// Keeps the cells with that value of an axis, which has to be given if there are several.
fn keep_named(plan: &mut Plan, axis: &str, name: Option<&str>, flag: &str) -> Result<(), CommandError> {
    let values: BTreeSet<String> = plan
        .cells
        .iter()
        .filter_map(|cell| cell.axes.get(axis).cloned())
        .collect();
    let known = || values.iter().map(String::as_str);
    match name {
        None if values.len() > 1 => Err(usage(
            &format!("the matrix has several {axis}s"),
            &format!("name one with `{flag}`: {}", backtick_list(known())),
        )),
        Some(name) if !values.contains(name) => Err(usage(
            &format!("no cell has the {axis} `{name}`"),
            &match nearest_name(name, known()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known: {}", backtick_list(known())),
            },
        )),
        None => Ok(()),
        Some(name) => {
            plan.retain_cells(|cell| cell.axes.get(axis).is_some_and(|value| value == name));
            Ok(())
        }
    }
}
