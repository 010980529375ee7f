//! `matrix baseline`: sets, shows and moves the baseline of nightly runs.

use std::path::{Path, PathBuf};

use crate::analysis::compare::decision::{MIN_STARTS_NOISE_KNOWN, MIN_STARTS_NOISE_UNKNOWN};
use crate::analysis::compare::stored;
use crate::base::clock;
use crate::base::ids::CellKey;
use crate::base::text::pluralize;
use crate::cli::command_line;
use crate::cli::regression::{BaselineAction, BaselineArgs, BaselineMoveArgs};
use crate::commands::compare::{gating_metrics, run_stats, saved_noise};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::load;
use crate::commands::output::{Colors, eprint, print};
use crate::exit::Exit;
use crate::plan::arms::BASELINE_VERSION;
use crate::plan::{Launch, Plan, Start};
use crate::report;
use crate::results::record::FORMAT;
use crate::results::record::cell_stats::{
    Baseline, BaselineMove, CellStats, ExcludedMeasurement, Noise, RunStats,
};
use crate::results::store::{self, Run, StoreError};

/// Sets, shows or moves a baseline.
pub(crate) fn execute(args: &BaselineArgs, colors: Colors) -> Outcome {
    match &args.action {
        BaselineAction::Show { matrix, baseline } => {
            let path = baseline_path(matrix, baseline.as_deref());
            let stored_baseline = store::nightly::read_baseline(&path).map_err(usage_error)?;
            let stored_baseline = stored_baseline.ok_or_else(|| no_baseline_error(&path, matrix))?;
            print(&describe_baseline(&path, &stored_baseline));
            Ok(Exit::Done)
        }
        BaselineAction::Set(moved) => {
            let path = baseline_path(&moved.matrix, moved.baseline.as_deref());
            if store::nightly::read_baseline(&path)
                .map_err(usage_error)?
                .is_some()
            {
                return Err(CommandError::usage(format!(
                    "error: the baseline `{}` already exists\n  = help: to make it name this run instead, use `matrix baseline accept --reason`, which keeps a record of the earlier run\n",
                    path.display()
                )));
            }
            write_baseline(moved, &path, Vec::new(), colors)
        }
        BaselineAction::Accept(moved) => {
            let path = baseline_path(&moved.matrix, moved.baseline.as_deref());
            let stored_baseline = store::nightly::read_baseline(&path).map_err(usage_error)?;
            let stored_baseline = stored_baseline.ok_or_else(|| no_baseline_error(&path, &moved.matrix))?;
            write_baseline(moved, &path, stored_baseline.accepted, colors)
        }
    }
}

fn usage_error(error: StoreError) -> CommandError {
    CommandError::usage(format!("error: {error}\n"))
}

fn no_baseline_error(path: &Path, matrix: &Path) -> CommandError {
    let help = match matrix.exists() {
        true => format!(
            "create it with `matrix baseline set {} <run> --reason <text>`",
            matrix.display()
        ),
        false => format!(
            "the matrix file `{}` does not exist; check its path",
            matrix.display()
        ),
    };
    CommandError::usage(format!(
        "error: there is no baseline `{}`\n  = help: {help}\n",
        path.display()
    ))
}

/// Path of the baseline, by default beside the matrix, so that git keeps both.
pub(super) fn baseline_path(matrix: &Path, named: Option<&Path>) -> PathBuf {
    named.map_or_else(|| matrix.with_extension("baseline.json"), Path::to_owned)
}

/// The launches on which a side's cells were measured.
fn measured_launches(plan: &Plan, side: &RunStats) -> Vec<Launch> {
    let is_used = |launch: &&Launch| {
        side.cells
            .values()
            .any(|cell| cell.launch.as_ref() == Some(&launch.id))
    };
    plan.launches.iter().filter(is_used).cloned().collect()
}

/// Writes a run as the baseline; `accepted` lists the earlier acceptances.
fn write_baseline(
    moved: &BaselineMoveArgs,
    path: &Path,
    mut accepted: Vec<BaselineMove>,
    colors: Colors,
) -> Outcome {
    if moved.reason.trim().is_empty() {
        return Err(CommandError::usage(
            "error: `--reason` is empty\n  = help: state why the baseline changes; the reason is recorded in its history\n",
        ));
    }
    let plan = load(&moved.matrix, colors)?.plan;
    let run = named_run(moved, &plan)?;
    let mut side = run_stats(&run, &gating_metrics(&moved.gate)?);
    let all = side.cells.len();
    eprint(&drop_unusable_cells(&mut side));
    if !plan.paired {
        let few = too_few_starts(&side, saved_noise(&moved.places.cache(), &side).as_ref());
        eprint(&few.map_or_else(String::new, |few| few.describe(&run, &moved.matrix)));
    }
    if side.cells.is_empty() {
        return Err(CommandError::usage(format!(
            "error: none of the {all} cells of `{}` can be used; the baseline is not changed\n",
            run.info.run
        )));
    }
    accepted.insert(
        0,
        BaselineMove {
            at: clock::timestamp(),
            run: run.info.run.clone(),
            reason: moved.reason.trim().to_owned(),
        },
    );
    let baseline = Baseline {
        format: FORMAT,
        accepted,
        launches: measured_launches(&run.plan, &side),
        side,
    };
    store::nightly::save_baseline(path, &baseline).map_err(anyhow::Error::from)?;
    print(&format!(
        "the baseline file {} now has {} of the {all} cells of run `{}`; commit this file\n",
        path.display(),
        baseline.side.cells.len(),
        baseline.side.run
    ));
    Ok(Exit::Done)
}

/// The run that becomes the baseline: the named one, or the matrix's newest.
fn named_run(moved: &BaselineMoveArgs, plan: &Plan) -> Result<Run, CommandError> {
    let name = moved.run.clone().unwrap_or_else(|| plan.matrix.clone());
    let run = store::nightly::find_run(&moved.results, &name).map_err(|error| match error {
        StoreError::UnknownName { .. } if moved.run.is_none() => CommandError::usage(format!(
            "error: there is no run of the matrix `{name}` in {}\n  = help: measure one with `matrix nightly {}`, or choose another folder of runs with `--results`\n",
            moved.results.display(),
            moved.matrix.display()
        )),
        other => usage_error(other),
    })?;
    if run.info.matrix != plan.matrix {
        return Err(CommandError::usage(format!(
            "error: `{}` is a run of the matrix `{}`, not of the matrix `{}`\n",
            run.info.run, run.info.matrix, plan.matrix
        )));
    }
    Ok(run)
}

/// Removes cells that cannot be a baseline, and returns a note for each cell without a valid measurement.
fn drop_unusable_cells(side: &mut RunStats) -> String {
    let notes: String = side
        .cells
        .iter()
        .filter_map(|(key, cell)| {
            let (cause, reason) = cell.exclusion()?;
            Some(format!(
                "note: the cell {key} is left out of the baseline ({}): {reason}\n",
                cause.name()
            ))
        })
        .collect();
    // Cells measured beside the candidate belong to the old baseline.
    let is_twin = |cell: &CellStats| {
        cell.axes
            .get("version")
            .is_some_and(|version| version == BASELINE_VERSION)
    };
    side.cells
        .retain(|_, cell| cell.exclusion().is_none() && !is_twin(cell));
    notes
}

/// Cells of a baseline with too few starts for any verdict.
struct TooFewStarts<'a> {
    /// Number of these cells, and of all cells.
    short_cells: usize,
    total_cells: usize,
    /// The first of these cells, and its number of starts that count.
    first_cell: &'a CellKey,
    starts: usize,
    /// Fewest starts that a verdict on it needs.
    required_starts: usize,
    /// The first of its measurements that does not count.
    excluded: Option<&'a ExcludedMeasurement>,
    /// Whether the noise of the host is known for all these cells.
    is_noise_known: bool,
}

impl TooFewStarts<'_> {
    /// Describes the effect on nightly runs, and the fix.
    fn describe(&self, run: &Run, matrix: &Path) -> String {
        let Self {
            short_cells: few,
            first_cell: first,
            starts,
            ..
        } = self;
        let needed = match self.is_noise_known {
            true => "a verdict needs at least three starts",
            false => "a verdict needs at least five starts, or three if `matrix noise` measured this host",
        };
        let is_of_first = |start: &&Start| start.cells.iter().any(|measured| measured.cell == **first);
        let planned = run.plan.starts.iter().filter(is_of_first).count();
        let help = match planned >= self.required_starts && planned > *starts {
            true => format!(
                "{} of the {planned} planned starts {} not count{}. To measure failed and invalid cells again, use `{} --failed`; a run with `--retry-invalid` measures them again by itself",
                planned - starts,
                if planned - starts == 1 { "does" } else { "do" },
                self.excluded.map_or_else(String::new, |excluded| format!(
                    " ({})",
                    report::single_line(&excluded.reason)
                )),
                command_line::resume_matrix_command(matrix, &run.info.run),
            ),
            false => "Measure with `repeats: { starts: 5 }`".to_owned(),
        };
        format!(
            "note: {few} of {} in the baseline {} too few usable starts. For example, {first} has {starts}; {needed}. Until then, a nightly run judges such a cell only if it suspects a loss, and only by fresh starts. If it judges nothing, its exit code is 5. {help}\n",
            pluralize(self.total_cells, "cell", "cells"),
            if self.total_cells == 1 { "has" } else { "have" }
        )
    }
}

/// The cells of a baseline with too few starts for any verdict; `None` if there are none.
fn too_few_starts<'a>(side: &'a RunStats, noise: Option<&Noise>) -> Option<TooFewStarts<'a>> {
    let lacks = |key: &CellKey, cell: &CellStats| {
        let of_gate = |gate: &String| {
            let is_known = noise
                .and_then(|noise| stored::known_noise(noise, key, gate))
                .is_some_and(|noise| noise.is_sufficient());
            let required = if is_known {
                MIN_STARTS_NOISE_KNOWN
            } else {
                MIN_STARTS_NOISE_UNKNOWN
            };
            let starts = cell.start_values(gate).len();
            (starts < required).then_some((starts, required, is_known))
        };
        cell.gates.iter().filter_map(of_gate).min()
    };
    let cells = side.cells.iter();
    let few: Vec<(&CellKey, (usize, usize, bool))> = cells
        .filter_map(|(key, cell)| Some((key, lacks(key, cell)?)))
        .collect();
    let (first, (starts, required, _)) = *few.first()?;
    Some(TooFewStarts {
        short_cells: few.len(),
        total_cells: side.cells.len(),
        first_cell: first,
        starts,
        required_starts: required,
        excluded: side.cells[first].excluded.first(),
        is_noise_known: few.iter().all(|(_, (.., is_known))| *is_known),
    })
}

fn describe_baseline(path: &Path, baseline: &Baseline) -> String {
    let side = &baseline.side;
    let mut text = format!(
        "{}\nrun {} of {}, started {}, {}\n",
        path.display(),
        side.run,
        side.matrix,
        side.began,
        side.tool
    );
    let facts: Vec<String> = side
        .machine
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    text.push_str(&format!("machine: {}\n\n", facts.join(", ")));
    for (key, cell) in &side.cells {
        for gate in &cell.gates {
            let starts: Vec<String> = cell
                .start_values(gate)
                .iter()
                .map(|value| format!("{value:.2}"))
                .collect();
            text.push_str(&format!(
                "{key}\n    {gate}: {} (n = {})\n",
                starts.join(" "),
                starts.len()
            ));
        }
    }
    text.push_str("\nmoved:\n");
    for BaselineMove { at, run, reason } in &baseline.accepted {
        text.push_str(&format!("  {at}  {run}  {reason}\n"));
    }
    text
}
