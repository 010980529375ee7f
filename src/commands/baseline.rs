//! `matrix baseline`: sets, shows and moves the baseline of nightly runs.

use std::path::{Path, PathBuf};

use crate::analysis::compare::decision::{STARTS_NOISE_KNOWN, STARTS_NOISE_UNKNOWN};
use crate::analysis::compare::stored;
use crate::base::clock;
use crate::base::ids::CellKey;
use crate::cli;
use crate::cli::regression::{BaselineAction, BaselineArgs, BaselineMove};
use crate::commands::compare::{gates, noise_of, of_run};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::load;
use crate::commands::output::{Colors, complain, print};
use crate::exit::Exit;
use crate::plan::arms::BASELINE;
use crate::plan::{Launch, Plan, Start};
use crate::report;
use crate::results::record::FORMAT;
use crate::results::record::cell_stats::{Accepted, Baseline, Excluded, Noise, Side, SideCell};
use crate::results::store::{self, Run, StoreError};

/// Sets, shows or moves a baseline.
pub(crate) fn execute(args: &BaselineArgs, colors: Colors) -> Outcome {
    match &args.action {
        BaselineAction::Show { matrix, baseline } => {
            let path = file(matrix, baseline.as_deref());
            let kept = store::nightly::baseline(&path).map_err(usage)?;
            let kept = kept.ok_or_else(|| none_yet(&path, matrix))?;
            print(&shown(&path, &kept));
            Ok(Exit::Done)
        }
        BaselineAction::Set(moved) => {
            let path = file(&moved.matrix, moved.baseline.as_deref());
            if store::nightly::baseline(&path).map_err(usage)?.is_some() {
                return Err(CommandError::usage(format!(
                    "error: `{}` is there already\n  = help: move it with `matrix baseline accept --reason`, which keeps on record what it was\n",
                    path.display()
                )));
            }
            write(moved, &path, Vec::new(), colors)
        }
        BaselineAction::Accept(moved) => {
            let path = file(&moved.matrix, moved.baseline.as_deref());
            let kept = store::nightly::baseline(&path).map_err(usage)?;
            let kept = kept.ok_or_else(|| none_yet(&path, &moved.matrix))?;
            write(moved, &path, kept.accepted, colors)
        }
    }
}

fn usage(error: StoreError) -> CommandError {
    CommandError::usage(format!("error: {error}\n"))
}

fn none_yet(path: &Path, matrix: &Path) -> CommandError {
    let help = match matrix.exists() {
        true => format!(
            "`matrix baseline set {} <run> --reason <text>` makes one",
            matrix.display()
        ),
        false => format!(
            "there is no matrix `{}` either; give the path of its file",
            matrix.display()
        ),
    };
    CommandError::usage(format!(
        "error: there is no baseline `{}`\n  = help: {help}\n",
        path.display()
    ))
}

/// Path of the baseline, by default beside the matrix, so that git keeps both.
pub(super) fn file(matrix: &Path, wish: Option<&Path>) -> PathBuf {
    wish.map_or_else(|| matrix.with_extension("baseline.json"), Path::to_owned)
}

/// The launches on which a side's cells were measured.
fn launches(plan: &Plan, side: &Side) -> Vec<Launch> {
    let is_used = |launch: &&Launch| {
        side.cells
            .values()
            .any(|cell| cell.launch.as_ref() == Some(&launch.id))
    };
    plan.launches.iter().filter(is_used).cloned().collect()
}

/// Writes a run as the baseline; `accepted` lists the earlier acceptances.
fn write(moved: &BaselineMove, path: &Path, mut accepted: Vec<Accepted>, colors: Colors) -> Outcome {
    if moved.reason.trim().is_empty() {
        return Err(CommandError::usage(
            "error: `--reason` is empty\n  = help: say why, for those who read the baseline's history\n",
        ));
    }
    let plan = load(&moved.matrix, colors)?.plan;
    let run = named_run(moved, &plan)?;
    let mut side = of_run(&run, &gates(&moved.gate)?);
    let all = side.cells.len();
    complain(&leave_out(&mut side));
    if !plan.paired {
        let few = too_few_starts(&side, noise_of(&moved.places.cache(), &side).as_ref());
        complain(&few.map_or_else(String::new, |few| few.told(&run, &moved.matrix)));
    }
    if side.cells.is_empty() {
        return Err(CommandError::usage(format!(
            "error: not one of the {all} cells of `{}` counts; nothing is changed\n",
            run.about.run
        )));
    }
    accepted.insert(
        0,
        Accepted {
            at: clock::timestamp(),
            run: run.about.run.clone(),
            reason: moved.reason.trim().to_owned(),
        },
    );
    let baseline = Baseline {
        format: FORMAT,
        accepted,
        launches: launches(&run.plan, &side),
        side,
    };
    store::nightly::keep_baseline(path, &baseline).map_err(anyhow::Error::from)?;
    print(&format!(
        "{} now holds {} of {all} cells of `{}`; commit it\n",
        path.display(),
        baseline.side.cells.len(),
        baseline.side.run
    ));
    Ok(Exit::Done)
}

/// The run that becomes the baseline: the named one, or the matrix's newest.
fn named_run(moved: &BaselineMove, plan: &Plan) -> Result<Run, CommandError> {
    let name = moved.run.clone().unwrap_or_else(|| plan.matrix.clone());
    let run = store::nightly::named(&moved.results, &name).map_err(|error| match error {
        StoreError::Unnamed { .. } if moved.run.is_none() => CommandError::usage(format!(
            "error: there is no run of `{name}` below {}\n  = help: `matrix nightly {}` measures one; `--results` names another folder of runs\n",
            moved.results.display(),
            moved.matrix.display()
        )),
        other => usage(other),
    })?;
    if run.about.matrix != plan.matrix {
        return Err(CommandError::usage(format!(
            "error: `{}` is a run of matrix `{}`, not of `{}`\n",
            run.about.run, run.about.matrix, plan.matrix
        )));
    }
    Ok(run)
}

/// Removes cells that cannot be a baseline, and returns a note for each cell without a valid measurement.
fn leave_out(side: &mut Side) -> String {
    let notes: String = side
        .cells
        .iter()
        .filter_map(|(key, cell)| {
            let (cause, reason) = cell.refused()?;
            Some(format!("note: {key} is left out: {}: {reason}\n", cause.name()))
        })
        .collect();
    // Cells measured beside the candidate belong to the old baseline.
    let is_twin = |cell: &SideCell| {
        cell.axes
            .get("version")
            .is_some_and(|version| version == BASELINE)
    };
    side.cells
        .retain(|_, cell| cell.refused().is_none() && !is_twin(cell));
    notes
}

/// Cells of a baseline with too few starts for any verdict.
struct TooFewStarts<'a> {
    /// Number of these cells, and of all cells.
    few: usize,
    all: usize,
    /// The first of these cells, and its number of starts that count.
    first: &'a CellKey,
    starts: usize,
    /// Fewest starts that a verdict on it needs.
    least: usize,
    /// The first of its measurements that does not count.
    excluded: Option<&'a Excluded>,
    /// Whether the noise of the host is known for all these cells.
    is_noise_known: bool,
}

impl TooFewStarts<'_> {
    /// Describes the effect on nightly runs, and the fix.
    fn told(&self, run: &Run, matrix: &Path) -> String {
        let Self {
            few, first, starts, ..
        } = self;
        let needed = match self.is_noise_known {
            true => "three starts",
            false => {
                "five starts (three where the noise of this host is known, which `matrix noise` measures)"
            }
        };
        let is_of_first = |start: &&Start| start.cells.iter().any(|measured| measured.cell == **first);
        let planned = run.plan.starts.iter().filter(is_of_first).count();
        let help = match planned >= self.least && planned > *starts {
            true => format!(
                "{} of the {planned} starts that were planned {} not count{}; `{} --failed` measures again what failed or is invalid, and `--retry-invalid` does so at once",
                planned - starts,
                if planned - starts == 1 { "does" } else { "do" },
                self.excluded.map_or_else(String::new, |excluded| format!(
                    " ({})",
                    report::plain(&excluded.reason)
                )),
                cli::resume_of(matrix, &run.about.run),
            ),
            false => "measure with `repeats: { starts: 5 }`".to_owned(),
        };
        format!(
            "note: {few} of {} too few starts that count, such as {first} with {starts}: of such a cell a night judges nothing but suspects, by fresh starts (exit code 5 where it judges nothing), until the baseline has {needed} of a cell; {help}\n",
            match self.all {
                1 => "1 cell has".to_owned(),
                all => format!("{all} cells have"),
            }
        )
    }
}

/// The cells of a baseline with too few starts for any verdict; `None` if there are none.
fn too_few_starts<'a>(side: &'a Side, noise: Option<&Noise>) -> Option<TooFewStarts<'a>> {
    let lacks = |key: &CellKey, cell: &SideCell| {
        let of_gate = |gate: &String| {
            let is_known = noise
                .and_then(|noise| stored::known(noise, key, gate))
                .is_some_and(|noise| noise.is_enough());
            let least = if is_known {
                STARTS_NOISE_KNOWN
            } else {
                STARTS_NOISE_UNKNOWN
            };
            let starts = cell.starts(gate).len();
            (starts < least).then_some((starts, least, is_known))
        };
        cell.gates.iter().filter_map(of_gate).min()
    };
    let cells = side.cells.iter();
    let few: Vec<(&CellKey, (usize, usize, bool))> = cells
        .filter_map(|(key, cell)| Some((key, lacks(key, cell)?)))
        .collect();
    let (first, (starts, least, _)) = *few.first()?;
    Some(TooFewStarts {
        few: few.len(),
        all: side.cells.len(),
        first,
        starts,
        least,
        excluded: side.cells[first].excluded.first(),
        is_noise_known: few.iter().all(|(_, (.., is_known))| *is_known),
    })
}

fn shown(path: &Path, baseline: &Baseline) -> String {
    let side = &baseline.side;
    let mut text = format!(
        "{}\nrun {} of {}, begun {}, {}\n",
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
                .starts(gate)
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
    for Accepted { at, run, reason } in &baseline.accepted {
        text.push_str(&format!("  {at}  {run}  {reason}\n"));
    }
    text
}
