//! Reads what is tuned: the engine and the load, the objective and the budget.

use std::collections::BTreeSet;

use super::Search;
use super::{budget, space};
use crate::analysis::tune::outcome::Goal;
use crate::base::ids::ContentHash;
use crate::cli::tune::TuneArgs;
use crate::commands::error::CommandError;
use crate::commands::matrix_file::{load_changed, select};
use crate::commands::output::{Colors, eprint};
use crate::commands::required_starts::required_starts;
use crate::config::matrix::Matrix;
use crate::config::tune::{Objective, TuneBudget, TuneEntry, TunedKnob};
use crate::config::yaml::{backtick_list, nearest_name};
use crate::plan::{Cell, Launch, Plan};
use crate::results::record::FORMAT;
use crate::results::record::tune::{SpaceRow, Spent, TuneRecord};
use crate::runner::load_matrix::LoadedMatrix;

/// Fewest prompts of a load that is measured with a quarter of them first.
const MIN_PROMPTS_TO_SHORTEN: u32 = 32;

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

fn read(args: &TuneArgs, colors: Colors) -> Result<TunedMatrix, CommandError> {
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
            &format!("`{name}` is attached, so `matrix` does not start it"),
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

pub(super) fn prepare(args: &TuneArgs, colors: Colors) -> Result<Search<'_>, CommandError> {
    let read = read(args, colors)?;
    let (tuned, knobs, notes) = space::tuned_space(args, &read, colors)?;
    let TunedMatrix {
        matrix,
        loaded,
        entry,
        cell,
        launch,
    } = read;
    let has_gpus = launch.devices > 0;
    let objective = objective(args, &entry, &cell, has_gpus)?;
    let goal = Goal {
        objective,
        scenario: &cell.scenario,
        has_gpus,
    };
    let refused = |why: String| usage(&why, "choose another `--objective`, or a scenario that has it");
    let metric = goal.metric().map_err(refused)?;
    let gates = [goal.judged_metric().map_err(refused)?];
    let flag = "--confirm-starts";
    let confirm_starts = required_starts(flag, args.confirm_starts, &args.run, &loaded.plan, &gates)?;
    let budget = args.budget.or(entry.budget).unwrap_or_default();
    budget::check_starts(budget, confirm_starts)?;
    let begins_short = matches!(budget, TuneBudget::GpuMinutes(_))
        && cell.scenario.workload.prompts >= MIN_PROMPTS_TO_SHORTEN;
    let record = TuneRecord {
        format: FORMAT,
        matrix: matrix.name.value.clone(),
        engine: tuned.engine.clone(),
        model: tuned.model.clone(),
        scenario: tuned.scenario.clone(),
        objective: objective.name().to_owned(),
        metric: metric.label(),
        unit: metric.unit().symbol().to_owned(),
        budget: budget.to_string(),
        seed: args.seed,
        confirm_starts,
        space: knobs.iter().map(space_row).collect(),
        notes,
        trials: Vec::new(),
        spent: Spent::default(),
        is_simulated: launch.engine.simulated,
        gpu_hour_price: price(args, &entry).filter(|_| objective == Objective::Cost),
        result: None,
    };
    Ok(Search {
        args,
        colors,
        name: format!("{}-tune-{}", matrix.name.value, digest(&record, &cell)),
        tuned,
        knobs,
        objective,
        scenario: cell.scenario,
        has_gpus,
        budget,
        confirm_starts,
        begins_short,
        record,
    })
}

/// A digest by which the runs of the same search are found again; a larger budget continues it.
fn digest(record: &TuneRecord, cell: &Cell) -> String {
    let content = (&record.objective, record.seed, &record.space, &cell.content);
    ContentHash::from_value(&content).as_str()[..6].to_owned()
}

fn space_row(knob: &TunedKnob) -> SpaceRow {
    SpaceRow {
        setting: knob.name.clone(),
        values: knob.values.iter().map(|value| value.label.clone()).collect(),
        default: knob.values[knob.default].label.clone(),
    }
}

fn price(args: &TuneArgs, entry: &TuneEntry) -> Option<f64> {
    args.gpu_hour_price
        .or(entry.gpu_hour_price.as_ref().map(|price| price.value))
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
                    "{} cells could be tuned, such as:\n  {}",
                    cells.len(),
                    keys.join("\n  ")
                ),
                "select one with `--only`, such as `--only model=NAME,precision=bf16`",
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

fn objective(
    args: &TuneArgs,
    entry: &TuneEntry,
    cell: &Cell,
    has_gpus: bool,
) -> Result<Objective, CommandError> {
    let usual = match cell.scenario.search {
        Some(_) => Objective::Capacity,
        None => Objective::Throughput,
    };
    let objective = args.objective.or(entry.objective).unwrap_or(usual);
    if objective != Objective::Cost {
        return Ok(objective);
    }
    match price(args, entry) {
        None => Err(usage(
            "`objective: cost` needs the price of a GPU",
            "give it with `--gpu-hour-price 2.5`, or as `tune: { gpu_hour_price: 2.5 }`; without a price, `--objective throughput` has the same winner on the same GPUs",
        )),
        Some(price) if !(price.is_finite() && price > 0.0) => Err(usage(
            &format!("the price of a GPU is {price}"),
            "give a price above 0 for an hour",
        )),
        Some(_) => {
            if !has_gpus {
                eprint("note: the engine has no GPUs; it counts as one\n");
            }
            Ok(objective)
        }
    }
}
