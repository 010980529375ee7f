//! Prepares a search: its space, objective and budget.

use super::search::Search;
use super::tuned_cell::{TunedMatrix, read, usage};
use super::{budget, space};
use crate::analysis::tuning::outcome::Goal;
use crate::base::ids::ContentHash;
use crate::cli::tune::TuneArgs;
use crate::commands::error::CommandError;
use crate::commands::output::{Colors, eprint};
use crate::commands::required_starts::required_starts;
use crate::config::prices::{Dollars, MatrixPrice};
use crate::config::tune::{Objective, TuneBudget, TuneEntry, TunedKnob};
use crate::plan::Cell;
use crate::results::record::FORMAT;
use crate::results::record::tune::{SpaceRow, Spent, TuneRecord};

/// Fewest prompts of a load that is measured with a quarter of them first.
const MIN_PROMPTS_TO_SHORTEN: u32 = 32;

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
    let objective = objective(args, &entry, &matrix.price, &cell, has_gpus)?;
    let goal = Goal {
        objective,
        scenario: &cell.scenario,
        has_gpus,
    };
    let refused = |why: String| {
        usage(
            &why,
            "choose another `--objective`, or a scenario for which this objective is possible",
        )
    };
    let metric = goal.metric().map_err(refused)?;
    let gates = [metric];
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
        confirmations: Vec::new(),
        spent: Spent::default(),
        is_simulated: launch.engine.simulated,
        gpu_hour_price: price(args, &entry, &matrix.price).filter(|_| objective == Objective::Cost),
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

fn price(args: &TuneArgs, entry: &TuneEntry, of_matrix: &MatrixPrice) -> Option<f64> {
    args.gpu_hour_price
        .or(entry.gpu_hour_price.as_ref().map(|price| price.value))
        .or(of_matrix.gpu_hour.map(Dollars::get))
}

fn objective(
    args: &TuneArgs,
    entry: &TuneEntry,
    of_matrix: &MatrixPrice,
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
    match price(args, entry, of_matrix) {
        None => Err(usage(
            "`objective: cost` needs the price of a GPU",
            "give the price with `--gpu-hour-price 2.5`, or as `price: { gpu_hour: 2.5 }` in the matrix; or use `--objective throughput`, which needs no price and has the same winner on the same GPUs",
        )),
        Some(price) if !(price.is_finite() && price > 0.0) => Err(usage(
            &format!("the price of a GPU must be above 0, not {price}"),
            "give the price of a GPU for one hour",
        )),
        Some(_) => {
            if !has_gpus {
                eprint("note: the engine has no GPUs; its cost is computed as for one GPU\n");
            }
            Ok(objective)
        }
    }
}
