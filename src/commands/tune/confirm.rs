//! Confirms the best configuration: it and the default are started in turn, in a run of their own.

use std::path::PathBuf;

use anyhow::Context;

use super::page;
use super::space::load_sets;
use super::trials::{DEFAULT_SET, Trials, check_journal, damaged};
use crate::analysis::compare::decision::CONFIDENCE;
use crate::analysis::compare::extra_starts;
use crate::analysis::compare::pairwise::row::Row;
use crate::analysis::compare::verdict::Verdict;
use crate::analysis::tune::Point;
use crate::analysis::tuning::doubts::SideDoubts;
use crate::analysis::tuning::outcome::{self, Goal};
use crate::analysis::upgrade::{TUNED, Upgrade};
use crate::commands::error::CommandError;
use crate::commands::measure::{MeasuredRun, measure, run_request};
use crate::commands::output::eprint;
use crate::commands::upgrade_page::{Sides, judge, write};
use crate::config::tune::SET_AXIS;
use crate::exit::Exit;
use crate::results::record::cell::{MeasurementStatus, MeasurementSummary};
use crate::results::record::tune::{Confirmation, ConfirmationRun, TuneResult, TuneResultKind};
use crate::results::store::{self, Run};
use crate::runner::session::request::ExtraStarts;
use crate::runner::shutdown::is_command_stopping;

/// Level of the interval whose upper end shows that a gain is below the floor: one-sided 5 %.
const ONE_SIDED_LEVEL: f64 = 0.90;

/// Starts winner and default in turn, notes it, and completes the result; `None` if a signal stopped it.
pub(super) fn confirm(
    trials: &mut Trials<'_>,
    winner: &Point,
    found: TuneResult,
) -> Result<Option<TuneResult>, CommandError> {
    let search = trials.search;
    let name = trials.set_name(winner);
    let Some((measured, folder)) = measure_both(trials, &name, winner)? else {
        return Ok(None);
    };
    let run = &measured.records;
    let goal = Goal {
        objective: search.objective,
        scenario: &search.scenario,
        has_gpus: search.has_gpus,
    };
    let gates = [goal
        .metric()
        .map_err(|why| CommandError::usage(format!("error: {why}\n")))?];
    let sides = Sides {
        engine: Some(search.tuned.engine.clone()),
        setting: TUNED.to_owned(),
        given: [DEFAULT_SET.to_owned(), page::settings_in_words(search, winner)],
        axis: SET_AXIS.to_owned(),
        values: [DEFAULT_SET.to_owned(), name.clone()],
    };
    let measured_sides = [0, 1].map(|side| side_summaries(run, &sides.values[side]));
    let doubts = [0, 1].map(|side| {
        let starts = measured_sides[side].iter().copied();
        SideDoubts::new(starts, |summary| {
            // Both sides are held against the default of the trials: its fresh starts may fail too.
            let tried = trials
                .default_trial
                .as_ref()
                .filter(|_| summary.status == MeasurementStatus::Done);
            let unlike = || outcome::why_unlike(summary, tried?);
            goal.why_slo_missed(summary).or_else(unlike)
        })
    });
    let (record, upgrade) = judge(&search.view(), run, &gates, sides, &folder)?;
    write(&measured.folder, &record, &upgrade)?;
    let row = upgrade.speed.rows.first();
    let flaw = failing_side(&doubts).or_else(|| disqualification(&upgrade));
    let is_rejected = flaw.is_some();
    let moved = || row.and_then(|row| why_moved(trials, &name, row));
    let (kind, reason) = match flaw {
        Some(why) => (TuneResultKind::NoBetter, why),
        None => match (
            judged(&upgrade),
            faults(&doubts),
            unpaired(&measured_sides, row),
            moved(),
        ) {
            // Which of two configurations that fail is better is not decided by the starts that did not.
            (_, [Some(of_default), Some(of_winner)], ..) => (
                TuneResultKind::NotDecided,
                format!(
                    "both configurations have problems. With the tuned settings, {of_winner}. With the default settings, {of_default}"
                ),
            ),
            // What is left out may say otherwise.
            (_, [of_default, _], Some(unpaired), _) => {
                let reason = match of_default {
                    Some(of_default) => format!("with the default settings, {of_default}, so {unpaired}"),
                    None => unpaired,
                };
                (TuneResultKind::NotDecided, reason)
            }
            ((TuneResultKind::Confirmed, _), .., Some(why)) => (TuneResultKind::NotDecided, why),
            (judged, ..) => judged,
        },
    };
    let is_undecided = kind == TuneResultKind::NotDecided;
    note(trials, name, run, &reason, is_rejected, is_undecided);
    Ok(Some(TuneResult {
        kind,
        reason,
        confirmation: row.map(|row| Confirmation {
            failed_starts: [0, 1].map(|side| doubts[side].faults()),
            doubts: doubts.map(|doubts| doubts.in_words()),
            ..confirmation(run, row)
        }),
        ..found
    }))
}

/// Measures the default and the winner in turn, in a run of their own. Returns it with the folder of the matrix; `None` if a signal
/// stopped it.
fn measure_both(
    trials: &Trials<'_>,
    name: &str,
    winner: &Point,
) -> Result<Option<(MeasuredRun, PathBuf)>, CommandError> {
    let search = trials.search;
    let sets = [
        search.set(DEFAULT_SET, &search.default_point(), None),
        search.set(name, winner, None),
    ];
    let mut loaded = load_sets(search.args, &search.tuned, &sets, search.colors)?;
    let run_name = format!("{}-{name}", search.name);
    loaded
        .plan
        .plan_tune(&run_name, &search.tuned, &sets, &[DEFAULT_SET, name]);
    let earlier = earlier_run(trials, &run_name)?;
    // Starts that were made once count always, whatever number is asked for later.
    let made = earlier.as_ref().map_or(0, |run| run.plan.starts.len() as u32 / 2);
    let starts = search.confirm_starts.max(made);
    loaded.plan.set_starts(starts);
    let folder = loaded.folder.clone();
    let mut request = run_request(&search.args.run, loaded);
    request.only = None;
    request.resume = earlier.map(|run| run.info.run.to_string());
    request.calibrate = false;
    request.extra_starts = ExtraStarts::None;
    if !search.args.run.json {
        eprint(&format!(
            "confirming {name}: it and the default configuration are started in turn, {starts} times each\n"
        ));
    }
    let of_trials = trials.run.as_ref().map_or("latest", |run| run.as_str());
    let measured =
        measure(request, search.view()).map_err(|error| resuming_search(error, &run_name, of_trials))?;
    let is_stopped = measured.exit == Exit::Interrupted || is_command_stopping();
    Ok((!is_stopped).then_some((measured, folder)))
}

/// The faults of the default and of the winner.
fn faults(doubts: &[SideDoubts; 2]) -> [Option<String>; 2] {
    [0, 1].map(|side| doubts[side].faults_in_words())
}

/// Notes a confirmation that ended, instead of an earlier one of the same configuration.
fn note(
    trials: &mut Trials<'_>,
    set: String,
    run: &Run,
    finding: &str,
    is_rejected: bool,
    is_undecided: bool,
) {
    let costs = extra_starts::start_costs(&run.plan, &run.journal);
    let confirmations = &mut trials.record.confirmations;
    confirmations.retain(|earlier| earlier.set != set);
    confirmations.push(ConfirmationRun {
        set,
        run: run.info.run.clone(),
        finding: finding.to_owned(),
        is_rejected,
        is_undecided,
        starts: costs.len() as u32,
        repeated_starts: extra_starts::engine_starts(&run.journal).saturating_sub(costs.len()) as u32,
        gpu_minutes: costs.values().sum::<f64>() / 60.0,
    });
    trials.count_spent();
}

/// An error whose command continues the run of the trials: that of a confirmation cannot be continued alone.
fn resuming_search(mut error: CommandError, confirmation: &str, trials: &str) -> CommandError {
    let flag = "--resume ";
    if let Some(at) = error.message.find(&format!("{flag}{confirmation}")) {
        let begin = at + flag.len();
        let rest = &error.message[begin..];
        let end = begin + rest.find(char::is_whitespace).unwrap_or(rest.len());
        error.message.replace_range(begin..end, trials);
    }
    error
}

/// The finished measurements of a configuration.
fn side_summaries<'r>(run: &'r Run, set: &String) -> Vec<&'r MeasurementSummary> {
    let is_of_set = |summary: &&MeasurementSummary| {
        let mut cells = run.plan.cells.iter();
        cells.any(|cell| cell.key == summary.cell && cell.axes.get(SET_AXIS) == Some(set))
    };
    run.summaries.iter().filter(is_of_set).collect()
}

/// Why the fresh starts say nothing about the settings: a side measured something else in its trials.
fn why_moved(trials: &Trials<'_>, winner: &str, row: &Row) -> Option<String> {
    let sides = [(DEFAULT_SET, "the default"), (winner, "the winner")];
    sides.into_iter().enumerate().find_map(|(side, (set, who))| {
        let (tried, fresh) = (trials.full_figure(set)?, row.value(side)?);
        outcome::has_moved(tried, fresh).then(|| {
            format!("{who} reached {tried:.2} in the trials but {fresh:.2} in its fresh starts, so something other than the settings changed")
        })
    })
}

/// The run of this confirmation that a resumed search already has.
fn earlier_run(trials: &Trials<'_>, name: &str) -> Result<Option<Run>, CommandError> {
    let args = &trials.search.args.run;
    if args.resume.is_none() {
        return Ok(None);
    }
    let runs = store::list_runs(&args.results).context("cannot read the results")?;
    let is_later = |began: &String| trials.began.as_ref().is_none_or(|first| began >= first);
    let found = runs
        .into_iter()
        .find(|entry| entry.info.matrix == name && is_later(&entry.info.began));
    let Some(entry) = found else {
        let mut earlier = trials.record.confirmations.iter();
        if let Some(lost) = earlier.find(|earlier| name == format!("{}-{}", trials.search.name, earlier.set))
        {
            eprint(&format!(
                "note: the run {} of the earlier confirmation is gone, so the confirmation is measured again\n",
                lost.run
            ));
        }
        return Ok(None);
    };
    let run = Run::read(&entry.folder).map_err(|error| damaged(&error.to_string()))?;
    check_journal(&run)?;
    Ok(Some(run))
}

fn confirmation(run: &Run, row: &Row) -> Confirmation {
    let estimate = row.estimate();
    let interval = estimate.and_then(|estimate| estimate.interval(CONFIDENCE));
    Confirmation {
        run: run.info.run.clone(),
        metric: row.metric.label(),
        verdict: row.verdict_word().to_owned(),
        starts: row.answer.starts,
        values: [row.value(0), row.value(1)],
        change: estimate.map(|estimate| estimate.change()),
        interval: interval.map(|interval| [interval.low, interval.high]),
        failed_starts: [0, 0],
        doubts: [None, None],
        starts_to_decide: row.answer.starts_to_decide(),
    }
}

/// That valid starts are left out, since the start in turn with each of them does not count; `None` if none are.
fn unpaired(sides: &[Vec<&MeasurementSummary>; 2], row: Option<&Row>) -> Option<String> {
    let is_valid =
        |summary: &&&MeasurementSummary| summary.status == MeasurementStatus::Done && !summary.is_invalid();
    let counted = row.map_or([0, 0], |row| row.answer.starts);
    let valid = [0, 1].map(|side| sides[side].iter().filter(is_valid).count());
    let left_out: usize = (0..2).map(|side| valid[side].saturating_sub(counted[side])).sum();
    match left_out {
        0 => None,
        1 => Some("1 valid start has no counterpart to be compared with".to_owned()),
        count => Some(format!(
            "{count} valid starts have no counterpart to be compared with"
        )),
    }
}

/// Why the winner cannot win: starts of it fail, and those of the default do not.
fn failing_side([of_default, of_winner]: &[SideDoubts; 2]) -> Option<String> {
    of_winner.faults_in_words().filter(|_| of_default.faults() == 0)
}

/// What the figures of the two sides show.
fn judged(upgrade: &Upgrade) -> (TuneResultKind, String) {
    let Some(row) = upgrade.speed.rows.first() else {
        return (
            TuneResultKind::NotDecided,
            "the fresh starts gave no figures that can be compared".to_owned(),
        );
    };
    let bound = upgrade.speed.bound;
    let highest = row
        .estimate()
        .and_then(|estimate| estimate.interval(ONE_SIDED_LEVEL))
        .map(|interval| interval.high);
    match row.verdict() {
        Some(Verdict::Better) => (TuneResultKind::Confirmed, row.reason()),
        Some(Verdict::Same | Verdict::Worse) => (TuneResultKind::NoBetter, row.reason()),
        Some(Verdict::Unclear) if highest.is_some_and(|high| high <= bound) => (
            TuneResultKind::NoBetter,
            format!("a gain of {:.0} % or more is ruled out", 100.0 * bound),
        ),
        Some(Verdict::Unclear) | None => (TuneResultKind::NotDecided, row.reason()),
    }
}

/// Why the winner is none whatever its figure: it fails more often, or answers worse.
fn disqualification(upgrade: &Upgrade) -> Option<String> {
    let mut failures = upgrade.speed.failures.iter();
    if let Some(failure) = failures.find(|failure| failure.is_regression) {
        return Some(format!("it is less reliable: {}", failure.text));
    }
    if let Some((_, why)) = upgrade.wrong_answers.first() {
        return Some(format!("the answers of the tuned configuration are wrong: {why}"));
    }
    let mut compared = upgrade.answers.iter();
    compared.find_map(|answers| {
        let result = answers.result.as_ref().ok()?;
        result.is_worse().then(|| {
            format!(
                "the tuned configuration answers the task {} worse than the default",
                answers.task
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirmation_that_cannot_go_on_is_continued_by_the_run_of_the_trials() {
        let of = |message: &str| {
            resuming_search(
                CommandError::cannot_continue(message),
                "a-tune-1-t03",
                "a-tune-1-20260101",
            )
            .message
        };
        assert_eq!(
            of("full\n  = help: continue with: matrix tune a.yaml --resume a-tune-1-t03-20260102\n"),
            "full\n  = help: continue with: matrix tune a.yaml --resume a-tune-1-20260101\n"
        );
        assert_eq!(of("--resume a-tune-1-t03-20260102"), "--resume a-tune-1-20260101");
        assert_eq!(of("other"), "other");
    }
}
