//! Reads what is tuned: the engine and the load, the space, the objective and the budget.

use std::collections::BTreeSet;

use super::Search;
use super::budget;
use crate::analysis::tune::outcome::Goal;
use crate::base::ids::ContentHash;
use crate::cli::tune::TuneArgs;
use crate::commands::diagnostics::diagnostics_error;
use crate::commands::environment::{cache_dirs, environment};
use crate::commands::error::CommandError;
use crate::commands::matrix_file::{load_changed, select};
use crate::commands::output::{Colors, eprint};
use crate::commands::required_starts::required_starts;
use crate::config::matrix::{Matrix, engine_name};
use crate::config::template::Template;
use crate::config::tune::{
    DefaultSettings, KnobChange, Objective, TrialSet, TuneBudget, TuneEntry, TuneSpace, TunedCell, TunedKnob,
    is_flag, knobs,
};
use crate::config::yaml::{Spanned, backtick_list, nearest_name};
use crate::plan::{Cell, Launch, Plan};
use crate::results::record::FORMAT;
use crate::results::record::tune::{SpaceRow, Spent, TuneRecord};
use crate::runner::check_flags;
use crate::runner::load_matrix::LoadedMatrix;

/// Fewest prompts of a load that is measured with a quarter of them first.
const MIN_PROMPTS_TO_SHORTEN: u32 = 32;

fn usage(message: &str, help: &str) -> CommandError {
    CommandError::usage(format!("error: {message}\n  = help: {help}\n"))
}

/// Reads the matrix with these configurations of a cell.
pub(super) fn load_sets(
    args: &TuneArgs,
    tuned: &TunedCell,
    sets: &[TrialSet],
    colors: Colors,
) -> Result<LoadedMatrix, CommandError> {
    load_changed(
        &args.run.matrix,
        None,
        &mut |matrix| {
            tuned.add_sets(matrix, sets);
            Ok(())
        },
        colors,
    )
}

pub(super) fn prepare(args: &TuneArgs, colors: Colors) -> Result<Search<'_>, CommandError> {
    let mut read = None;
    let keep = &mut |matrix: &mut Matrix| {
        read = Some(matrix.clone());
        Ok(())
    };
    let mut loaded = load_changed(&args.run.matrix, None, keep, colors)?;
    let matrix = read.expect("a matrix that was read was changed");
    let entry = matrix.tune.as_ref().map(|entry| entry.value.clone()).unwrap_or_default();
    let cell = default_cell(args, &entry, &mut loaded.plan)?;
    let launch = loaded.plan.launch(&cell.launch).clone();
    if launch.is_attached() {
        return Err(usage(
            &format!("`{}` is attached, so `matrix` does not start it", launch.engine.name),
            "tune an engine that `matrix` starts",
        ));
    }
    let space = space(&entry, &loaded, &launch)?;
    let all = knobs(&space.value, &default_settings(&launch))
        .map_err(|error| diagnostics_error(&[*error], &loaded.sources, colors.stderr))?;
    let tuned = TunedCell {
        engine: launch.engine.name.clone(),
        model: launch.model.clone(),
        scenario: cell.scenario.name.clone(),
        axes: cell.axes.clone(),
        varied_axes: varied_axes(&all),
        replaced_args: replaced_args(&matrix, &launch, &all),
    };
    let (knobs, notes) = known_knobs(args, &tuned, all, colors)?;
    if knobs.is_empty() {
        return Err(usage(
            "nothing is left to tune",
            "add settings that the engine knows, such as `tune: { space: { --max-num-seqs: [64, 128, 256] } }`",
        ));
    }
    let objective = objective(args, &entry, &cell, launch.devices > 0)?;
    let goal = Goal {
        objective,
        scenario: &cell.scenario,
        has_gpus: launch.devices > 0,
    };
    let metric = goal.metric().map_err(|why| {
        let help = "choose another `--objective`, or a scenario that has it";
        usage(&why, help)
    })?;
    let judged = goal.judged_metric().map_err(|why| usage(&why, "choose another `--objective`"))?;
    let confirm_starts = required_starts(
        "--confirm-starts",
        args.confirm_starts,
        &args.run,
        &loaded.plan,
        &[judged],
    )?;
    let limit = args.budget.or(entry.budget).unwrap_or_default();
    budget::check_starts(limit, confirm_starts)?;
    let begins_short = matches!(limit, TuneBudget::GpuMinutes(_))
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
        budget: limit.to_string(),
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
        has_gpus: launch.devices > 0,
        budget: limit,
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
    let engine = args.engine.as_deref().or(entry.engine.as_ref().map(|name| name.as_str()));
    keep_named(plan, "engine", engine, "--engine")?;
    let scenario = args.scenario.as_deref().or(entry.scenario.as_ref().map(|name| name.as_str()));
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

fn space(
    entry: &TuneEntry,
    loaded: &LoadedMatrix,
    launch: &Launch,
) -> Result<Spanned<TuneSpace>, CommandError> {
    let recipe = loaded.recipes.get(&launch.engine.recipe);
    let shipped = recipe.and_then(|recipe| recipe.tune.as_ref());
    entry.space.as_ref().or(shipped).cloned().ok_or_else(|| {
        usage(
            &format!("nothing to tune: the recipe `{}` has no `tune:`", launch.engine.recipe),
            "write settings with their values into the matrix, such as `tune: { space: { --max-num-seqs: [64, 128, 256] } }`",
        )
    })
}

fn default_settings(launch: &Launch) -> DefaultSettings {
    let words = launch.command_args(launch.api.port.default);
    let env = launch.place.settings().env().iter();
    DefaultSettings {
        words: words.iter().map(|word| word.as_str().to_owned()).collect(),
        env: env
            .map(|(name, value)| (name.clone(), value.as_str().to_owned()))
            .collect(),
        tp: launch.parallel.tp,
        precision: launch.precision.clone(),
    }
}

/// Axes that the space varies besides arguments and variables.
fn varied_axes(knobs: &[TunedKnob]) -> Vec<String> {
    let changes = || knobs.iter().flat_map(|knob| &knob.values).map(|value| &value.change);
    let has_size = changes().any(|change| matches!(change, KnobChange::Tp(_)));
    let has_precision = changes().any(|change| matches!(change, KnobChange::Precision(_)));
    [("tp", has_size), ("precision", has_precision)]
        .into_iter()
        .filter(|(_, is_varied)| *is_varied)
        .map(|(axis, _)| axis.to_owned())
        .collect()
}

/// The arguments of the engine's entry, if the space has flags that are among them.
fn replaced_args(matrix: &Matrix, launch: &Launch, knobs: &[TunedKnob]) -> Option<Vec<Template>> {
    let mut engines = matrix.engines.iter();
    let entry = engines.find(|named| engine_name(named).value == launch.engine.name)?;
    let args: Vec<Template> = entry.value.args.iter().map(|arg| arg.value.clone()).collect();
    let changes = knobs.iter().flat_map(|knob| &knob.values).map(|value| &value.change);
    let mut flags = changes.flat_map(|change| match change {
        KnobChange::Args(words) => words.as_slice(),
        _ => &[],
    });
    let is_written = |flag: &String| {
        let names = args.iter().map(|arg| arg.as_str().split('=').next().unwrap_or_default());
        is_flag(flag) && names.into_iter().any(|name| name == flag)
    };
    flags.any(is_written).then_some(args)
}

/// Leaves out values with a flag that the engine's help does not list, with a note about each.
fn known_knobs(
    args: &TuneArgs,
    tuned: &TunedCell,
    knobs: Vec<TunedKnob>,
    colors: Colors,
) -> Result<(Vec<TunedKnob>, Vec<String>), CommandError> {
    let changes: Vec<&KnobChange> = knobs
        .iter()
        .flat_map(|knob| &knob.values)
        .map(|value| &value.change)
        .filter(|change| **change != KnobChange::AsItIs)
        .collect();
    let probe = |(at, change): (usize, &&KnobChange)| TrialSet {
        name: format!("probe{at}"),
        changes: vec![(*change).clone()],
        prompts: None,
    };
    let sets: Vec<TrialSet> = changes.iter().enumerate().map(probe).collect();
    let mut loaded = load_sets(args, tuned, &sets, colors)?;
    loaded.plan.plan_tune("probe", tuned, &sets, &[]);
    let cache = cache_dirs(&args.run.places, true).cache;
    let report = check_flags::unknown_flags(&loaded, &environment(), &cache)?;
    let mut notes = Vec::new();
    let mut kept = Vec::new();
    for mut knob in knobs {
        let default = knob.values[knob.default].clone();
        knob.values.retain(|value| {
            let KnobChange::Args(words) = &value.change else {
                return true;
            };
            let flag_of = |word: &String| word.split('=').next().unwrap_or_default().to_owned();
            let flags: Vec<String> = words.iter().map(flag_of).collect();
            let unknown = report.unknown.iter().find(|unknown| flags.contains(&unknown.flag));
            if let Some(unknown) = unknown {
                let near = unknown.nearest.as_ref();
                let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                notes.push(format!(
                    "`{}` is left out of the space: `{}` has no such flag{near}",
                    unknown.flag, unknown.source
                ));
            }
            unknown.is_none()
        });
        knob.default = knob.values.iter().position(|value| *value == default).unwrap_or_default();
        if knob.values.len() > 1 {
            kept.push(knob);
        }
    }
    notes.dedup();
    Ok((kept, notes))
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
