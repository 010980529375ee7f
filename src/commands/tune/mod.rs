//! `matrix tune`: searches for the best configuration of an engine, and confirms it against the default one.

mod budget;
mod confirm;
mod page;
mod prepare;
mod space;
mod trials;

use crate::analysis::tune::{Point, Tuner};
use crate::cli::command_line;
use crate::cli::tune::TuneArgs;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{Colors, eprint, print};
use crate::config::scenario::Scenario;
use crate::config::tune::{Objective, TrialSet, TuneBudget, TunedCell, TunedKnob};
use crate::exit::Exit;
use crate::results::record::tune::{TuneRecord, TuneResult, TuneResultKind};
use trials::{Trials, TrialsEnd};

/// A search that was prepared.
pub(super) struct Search<'a> {
    pub(super) args: &'a TuneArgs,
    pub(super) colors: Colors,
    pub(super) tuned: TunedCell,
    pub(super) knobs: Vec<TunedKnob>,
    pub(super) objective: Objective,
    /// The scenario of the default cell.
    pub(super) scenario: Scenario,
    /// Whether the engine has GPUs.
    pub(super) has_gpus: bool,
    pub(super) budget: TuneBudget,
    /// Starts of each side in the confirmation.
    pub(super) confirm_starts: u32,
    /// The name under which the trials run.
    pub(super) name: String,
    /// Whether configurations are measured with fewer prompts first.
    pub(super) begins_short: bool,
    /// The record without trials and result.
    pub(super) record: TuneRecord,
}

impl Search<'_> {
    /// The position of every value of the default configuration.
    pub(super) fn default_point(&self) -> Point {
        self.knobs.iter().map(|knob| knob.default).collect()
    }

    /// The configuration of a point, under a name.
    pub(super) fn set(&self, name: &str, point: &[usize], prompts: Option<u32>) -> TrialSet {
        let changes = self.knobs.iter().zip(point);
        TrialSet {
            name: name.to_owned(),
            changes: changes
                .filter_map(|(knob, at)| Some(knob.values.get(*at)?.change.clone()))
                .collect(),
            prompts,
        }
    }
}

pub(crate) fn execute(args: &TuneArgs, colors: Colors) -> Outcome {
    let search = prepare::prepare(args, colors)?;
    for note in &search.record.notes {
        eprint(&format!("note: {note}\n"));
    }
    let mut trials = Trials::open(&search)?;
    match trials.run()? {
        TrialsEnd::Finished => {}
        TrialsEnd::Interrupted => return Ok(interrupted(&trials)),
    }
    let tuner = trials.tuner();
    let Some(result) = conclude(&mut trials, &tuner)? else {
        return Ok(interrupted(&trials));
    };
    let exit = exit(&result);
    trials.record.result = Some(result);
    trials.save()?;
    page::show(&search, &trials)?;
    Ok(exit)
}

/// The result of the finished trials; `None` if a signal stopped the confirmation.
fn conclude(trials: &mut Trials<'_>, tuner: &Tuner) -> Result<Option<TuneResult>, CommandError> {
    let undecided = |reason: String| TuneResult {
        kind: TuneResultKind::NotDecided,
        reason,
        winner: None,
        entry: None,
        contributions: Vec::new(),
        confirmation: None,
    };
    let search = trials.search;
    let default = search.default_point();
    let Some(winner) = tuner.winner() else {
        return Ok(Some(undecided("no configuration could be measured".to_owned())));
    };
    if winner == default {
        return Ok(Some(TuneResult {
            kind: TuneResultKind::DefaultIsBest,
            reason: "no configuration was better than the default in the trials".to_owned(),
            winner: Some(trials.set_name(&default)),
            ..undecided(String::new())
        }));
    }
    let contributions = page::contributions(search, tuner, &winner);
    let found = TuneResult {
        winner: Some(trials.set_name(&winner)),
        entry: Some(page::entry(search, &winner)),
        contributions,
        ..undecided(String::new())
    };
    if let Some(reason) = trials.why_default_fails() {
        return Ok(Some(TuneResult {
            reason: format!("the default configuration cannot be compared with: {reason}"),
            ..found
        }));
    }
    confirm::confirm(trials, &winner, found)
}

fn interrupted(trials: &Trials<'_>) -> Exit {
    if !trials.search.args.run.json {
        let run = trials.run.as_ref().map_or("latest", |run| run.as_str());
        print(&format!("continue with: {}\n", command_line::resume_command(run)));
    }
    Exit::Interrupted
}

const fn exit(result: &TuneResult) -> Exit {
    match result.kind {
        TuneResultKind::Confirmed | TuneResultKind::NoBetter | TuneResultKind::DefaultIsBest => Exit::Done,
        TuneResultKind::NotDecided => Exit::CellFailed,
    }
}
