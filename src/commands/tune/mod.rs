//! `matrix tune`: searches for the best configuration of an engine, and confirms it against the default one.

mod budget;
mod confirm;
mod page;
mod prepare;
mod search;
mod space;
mod trials;
mod tuned_cell;

use crate::analysis::tune::Tuner;
use crate::cli::command_line;
use crate::cli::tune::TuneArgs;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{Colors, eprint, print};
use crate::commands::report::rewrite_reports;
use crate::commands::terminal;
use crate::exit::Exit;
use crate::report::tune::TunePage;
use crate::results::record::tune::{TuneResult, TuneResultKind};
use trials::{Trials, TrialsEnd};

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
    if let Some(folder) = &trials.folder {
        rewrite_reports(folder, &search.args.run.places.cache(), search.args.floor)
            .map_err(CommandError::unwritable)?;
    }
    show(&trials);
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
    if let Some(reason) = budget::why_unconfirmed(search.budget, search.confirm_starts, &trials.costs) {
        return Ok(Some(TuneResult { reason, ..found }));
    }
    let result = confirm::confirm(trials, &winner, found)?;
    // What was not better is no entry to paste.
    Ok(result.map(|result| match result.kind {
        TuneResultKind::NoBetter => TuneResult {
            entry: None,
            contributions: Vec::new(),
            ..result
        },
        _ => result,
    }))
}

/// Prints the result, or its record as a line of JSON.
fn show(trials: &Trials<'_>) {
    let (search, record) = (trials.search, &trials.record);
    if search.args.run.json {
        let json = serde_json::json!({ "tune": record });
        print(&format!("{json}\n"));
        return;
    }
    print(&TunePage::new(record).terminal(terminal::layout(search.colors)));
    if let Some(folder) = &trials.folder {
        print(&format!("page: {}\n", folder.join(page::MARKDOWN_FILE).display()));
    }
    let run = trials.run.as_ref().map_or("latest", |run| run.as_str());
    print(&format!(
        "for more trials, with a `--budget` above {}: {}\n",
        search.budget,
        command_line::resume_command(run)
    ));
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
