//! `matrix upgrade --from run=A --to run=B`: two stored runs as the sides of an upgrade, for what cannot alternate within one run.

use std::collections::BTreeSet;

use crate::analysis::compare::machines::DRIVER;
use crate::analysis::compare::pairwise::{self, CompareOptions};
use crate::analysis::graded::sides::GradedRun;
use crate::analysis::upgrade::{MayUpgrade, StoredUpgrade};
use crate::base::ids::CellKey;
use crate::cli::command_line;
use crate::cli::upgrade::UpgradeArgs;
use crate::commands::compare::{gating_metrics, run_stats};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{Colors, eprint, print};
use crate::commands::terminal;
use crate::commands::upgrade_page::{Sides, logged_configuration, record, write};
use crate::config::yaml::nearest_name;
use crate::exit::Exit;
use crate::results::record::cell_stats::RunStats;
use crate::results::record::upgrade::BuildFacts;
use crate::results::store::{self, Run};

/// Flags that say how engines are started.
const FLAGS_OF_STARTS: [&str; 4] = ["--starts", "--budget", "--resume", "--cluster"];

pub(super) fn execute(args: &UpgradeArgs, colors: Colors) -> Outcome {
    refuse_starts()?;
    let gates = gating_metrics(&args.judging.gate)?;
    let names = [&args.from, &args.to].map(|side| side.value.clone());
    let read = |name: &String| {
        let run = store::nightly::find_run(&args.run.results, name)
            .map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
        for doubt in &run.warnings {
            eprint(&format!("warning: {doubt}\n"));
        }
        Ok::<Run, CommandError>(run)
    };
    let runs = [read(&names[0])?, read(&names[1])?];
    let sides = [0, 1].map(|side| selected(args, run_stats(&runs[side], &gates)));
    if sides.iter().all(|side| side.cells.is_empty()) {
        return Err(nothing_selected(args, &runs));
    }
    if sides[0].began == sides[1].began && sides[0].cells == sides[1].cells {
        return Err(CommandError::usage(
            "error: `--from` and `--to` name the same measurements\n  = help: `--from` must name the run before the change, and `--to` the run after the change\n",
        ));
    }
    let speed = pairwise::compare(
        &sides[0],
        &sides[1],
        &CompareOptions {
            bound: args.judging.floor,
            noise: None,
            // The machine may be what is upgraded.
            allow_environment: true,
            further_questions: 0,
        },
    );
    if speed.rows.is_empty() {
        return Err(CommandError::usage(format!(
            "error: `{}` and `{}` have no cell in common\n  = help: two cells are compared if they have the same values of all axes (engine, model, scenario, args, …) except the version. Compare two runs of one matrix\n",
            names[0], names[1]
        )));
    }
    let record = record(
        Sides {
            engine: args.engine.clone(),
            setting: "run".to_owned(),
            given: [0, 1].map(|side| runs[side].info.run.to_string()),
            axis: "run".to_owned(),
            values: labels(&sides),
        },
        [0, 1].map(|side| known_build(&runs[side], &sides[side])),
    );
    let upgrade = StoredUpgrade {
        runs: [graded_run(&runs[0]), graded_run(&runs[1])],
        sides: &sides,
    }
    .judge(&record, speed);
    let (page, written) = write(&runs[1].folder, &record, &upgrade)?;
    if !args.run.json {
        print(&page.terminal(terminal::layout(colors)));
        print(&format!("page: {}\n", written.display()));
    }
    Ok(match page.answer {
        MayUpgrade::Yes => Exit::Done,
        MayUpgrade::No => Exit::Regression,
        MayUpgrade::Undecided => Exit::NotJudged,
    })
}

/// Refuses flags of starts, of which there are none.
fn refuse_starts() -> Result<(), CommandError> {
    match FLAGS_OF_STARTS
        .into_iter()
        .find(|flag| command_line::is_given(flag))
    {
        None => Ok(()),
        Some(flag) => Err(CommandError::usage(format!(
            "error: `{flag}` does nothing with `run=`: two stored runs are compared, and nothing is started\n  = help: leave it out, or measure again with `matrix run`\n"
        ))),
    }
}

/// The error that neither run has a cell that `--engine` and `--only` select.
fn nothing_selected(args: &UpgradeArgs, runs: &[Run; 2]) -> CommandError {
    let cells = || runs.iter().flat_map(|run| &run.plan.cells);
    let engines: BTreeSet<&str> = cells()
        .filter_map(|cell| cell.axes.get("engine").map(String::as_str))
        .collect();
    let known: Vec<String> = engines.iter().map(|engine| format!("`{engine}`")).collect();
    let unknown = args
        .engine
        .as_ref()
        .filter(|engine| !engines.contains(engine.as_str()));
    CommandError::usage(match unknown {
        Some(engine) => {
            let near = nearest_name(engine, engines.iter().copied());
            let near = near.map_or_else(String::new, |near| format!("did you mean `{near}`? "));
            format!(
                "error: neither run has an engine `{engine}`\n  = help: {near}they have {}\n",
                known.join(", ")
            )
        }
        None => "error: neither run has a cell that `--engine` and `--only` select\n  = help: `matrix report RUN` shows the cells of a run\n".to_owned(),
    })
}

fn graded_run(run: &Run) -> GradedRun<'_> {
    GradedRun {
        stored: Some(&run.info.run),
        plan: &run.plan,
        summaries: &run.summaries,
    }
}

/// The cells that `--engine` and `--only` select.
fn selected(args: &UpgradeArgs, mut side: RunStats) -> RunStats {
    side.cells.retain(|_, cell| {
        let is_of_engine = args.engine.is_none() || cell.axes.get("engine") == args.engine.as_ref();
        is_of_engine && args.run.only.as_ref().is_none_or(|only| only.matches(&cell.axes))
    });
    side
}

/// The drivers, if they differ, or else the names of the runs.
fn labels(sides: &[RunStats; 2]) -> [String; 2] {
    let drivers = [0, 1].map(|side| sides[side].machine.get(DRIVER));
    match drivers {
        [Some(from), Some(to)] if from != to => [from, to].map(|driver| format!("driver {driver}")),
        _ => [0, 1].map(|side| sides[side].run.to_string()),
    }
}

/// What the engine of the first cell logged.
fn known_build(run: &Run, side: &RunStats) -> BuildFacts {
    let first: Option<&CellKey> = side.cells.keys().next();
    let launch = first.map(|key| run.plan.launch(&run.plan.cell(key).launch));
    BuildFacts {
        configuration: launch
            .map(|launch| logged_configuration(run, launch))
            .unwrap_or_default(),
        ..BuildFacts::default()
    }
}
