//! `matrix tune`: searches for the best configuration of an engine, and confirms it against the default one.

mod budget;
mod confirm;
mod page;
mod prepare;
mod search;
mod space;
mod trials;
mod tuned_cell;

use crate::analysis::tune::{Point, Tuner};
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
    let Some(result) = conclude(&mut trials)? else {
        return Ok(interrupted(&trials));
    };
    let exit = exit(&result);
    trials.record.result = Some(result);
    trials.save()?;
    if let Some(folder) = &trials.folder {
        rewrite_reports(folder, &search.args.run.places.cache(), search.args.floor, colors)
            .map_err(CommandError::unwritable)?;
    }
    show(&trials);
    Ok(exit)
}

/// The result of the finished trials; `None` if a signal stopped a confirmation. A winner that cannot win is followed by the next best
/// configuration.
fn conclude(trials: &mut Trials<'_>) -> Result<Option<TuneResult>, CommandError> {
    loop {
        let tuner = trials.tuner();
        let (winner, found) = match found(trials, &tuner) {
            Ok(found) => found,
            Err(result) => return Ok(Some(*result)),
        };
        let Some(result) = confirm::confirm(trials, &winner, found)? else {
            return Ok(None);
        };
        trials.save()?;
        let last = trials.record.confirmations.last();
        if last.is_some_and(|last| !last.is_rejected) {
            return Ok(Some(finished(result)));
        }
    }
}

/// The configuration to confirm, with what is known of it; otherwise the result.
fn found(trials: &Trials<'_>, tuner: &Tuner) -> Result<(Point, TuneResult), Box<TuneResult>> {
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
    let Some(best) = tuner.winner() else {
        return Err(Box::new(undecided(
            "no configuration could be measured".to_owned(),
        )));
    };
    let confirmations = || trials.record.confirmations.iter();
    // Further trials may make another configuration look better, and do not decide what fresh starts left open.
    let open = || confirmations().rev().find(|earlier| earlier.is_undecided);
    let winner = match open().and_then(|open| trials.point_of(&open.set)) {
        Some(open) if best == default => open,
        _ => best,
    };
    if winner == default {
        let rejected: Vec<&str> = confirmations()
            .filter(|earlier| earlier.is_rejected)
            .map(|earlier| earlier.set.as_str())
            .collect();
        let reason = match rejected.as_slice() {
            [] => "according to the trials, no configuration is expected to be better than the default"
                .to_owned(),
            rejected => format!(
                "some configurations were better in the trials, but they failed or answered worse in fresh starts ({}); no other configuration is expected to be better than the default",
                rejected.join(", ")
            ),
        };
        return Err(Box::new(TuneResult {
            kind: TuneResultKind::DefaultIsBest,
            reason,
            winner: Some(trials.set_name(&default)),
            ..undecided(String::new())
        }));
    }
    let name = trials.set_name(&winner);
    let found = TuneResult {
        entry: Some(page::entry(search, &winner)),
        contributions: page::contributions(search, tuner, &winner),
        winner: Some(name.clone()),
        ..undecided(String::new())
    };
    if let Some(reason) = trials.why_default_fails() {
        return Err(Box::new(TuneResult {
            reason: format!("nothing can be compared with the default configuration: {reason}"),
            ..found
        }));
    }
    let made = confirmations().find(|earlier| earlier.set == name);
    let more = (2 * search.confirm_starts).saturating_sub(made.map_or(0, |earlier| earlier.starts));
    match budget::why_unconfirmed(search.budget, more, &trials.costs()) {
        Some(reason) => Err(Box::new(TuneResult { reason, ..found })),
        None => Ok((winner, found)),
    }
}

/// A confirmed result without what does not belong to it.
fn finished(mut result: TuneResult) -> TuneResult {
    // What was not better is no entry to paste.
    if result.kind == TuneResultKind::NoBetter {
        result.entry = None;
        result.contributions.clear();
    }
    // A single setting contributes all that was confirmed.
    if let [only] = result.contributions.as_mut_slice() {
        only.change = result
            .confirmation
            .as_ref()
            .and_then(|confirmation| confirmation.change);
    }
    result
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
    if let Some(step) = next_step(trials) {
        print(&format!("{step}\n"));
    }
}

/// What decides an open search, or improves a decided one; `None` if nothing does.
fn next_step(trials: &Trials<'_>) -> Option<String> {
    let (search, record) = (trials.search, &trials.record);
    let run = trials.run.as_ref().map_or("latest", |run| run.as_str());
    let larger = || budget::larger(search.budget, search.confirm_starts, &trials.costs()).to_string();
    let with = |flags: &[(&str, &str)]| command_line::resume_command_with(run, flags);
    let result = record.result.as_ref();
    let is_open = result.is_none_or(|result| result.kind == TuneResultKind::NotDecided);
    let confirmation = result.and_then(|result| result.confirmation.as_ref());
    if let Some(confirmation) = confirmation.filter(|_| is_open) {
        let fewest = confirmation.starts.into_iter().min().unwrap_or(0) as u32;
        if confirmation.failed_starts.iter().all(|failed| *failed > 0) {
            return Some(
                "starts of both sides failed, and further starts do not change that: repair what fails, and start a new search without `--resume`"
                    .to_owned(),
            );
        }
        if fewest < search.confirm_starts {
            let failed = command_line::resume_command_with_flag(run, "--failed");
            return Some(format!("some starts do not count; repeat them with: {failed}"));
        }
        let needed = confirmation
            .starts_to_decide
            .filter(|starts| *starts > fewest as usize);
        if let Some(starts) = needed {
            let budget = budget::for_confirmation(search.budget, starts as u32, &trials.costs()).to_string();
            let command = with(&[("--confirm-starts", &starts.to_string()), ("--budget", &budget)]);
            return Some(format!(
                "more fresh starts may show which configuration is better: {command}"
            ));
        }
        if trials.has_tried_all() {
            return Some(
                "every configuration was tried, and even 100 fresh starts of each side would not show which configuration is better"
                    .to_owned(),
            );
        }
    }
    (is_open || !trials.has_tried_all()).then(|| {
        format!(
            "continue with a larger budget: {}",
            with(&[("--budget", &larger())])
        )
    })
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
