//! Runs a session for `run`, `nightly`, `noise`, `bisect` and `upgrade`, shows its events and writes its report.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;

use crate::base::ids::RunId;
use crate::base::text::{one_line, pluralize};
use crate::cli::{RunArgs, command_line};
use crate::commands::environment::{cache_dirs, environment, pull_policy};
use crate::commands::error::CommandError;
use crate::commands::log;
use crate::commands::output::{Colors, eprint, print, with_signal_message};
use crate::commands::report;
use crate::commands::session_error::{describe_outdated, session_error};
use crate::exit::Exit;
use crate::progress::Progress;
use crate::progress::metrics::MetricsServer;
use crate::results::record::event::Event;
use crate::results::store::{self, Run};
use crate::runner::job;
use crate::runner::load_matrix::LoadedMatrix;
use crate::runner::session::Session;
use crate::runner::session::observer::{Notice, Observer, OutdatedMeasurements};
use crate::runner::session::outcome::{MeasurementCounts, RunOutcome};
use crate::runner::session::request::{ExtraStarts, RunRequest};

/// A run that has ended, with its report.
pub(super) struct MeasuredRun {
    pub(super) run: RunId,
    pub(super) folder: PathBuf,
    /// The run as read from its folder.
    pub(super) records: Run,
    /// The tables for the terminal.
    pub(super) tables: String,
    pub(super) measurements: MeasurementCounts,
    /// The exit code of `matrix run`.
    pub(super) exit: Exit,
}

/// Options for showing a run.
#[derive(Clone, Copy)]
pub(super) struct RunView<'a> {
    pub(super) args: &'a RunArgs,
    /// The folder of the job that executes the run on a node of a cluster.
    pub(super) job_folder: Option<&'a Path>,
    /// Smallest change that counts in the tables.
    pub(super) min_change: f64,
    pub(super) colors: Colors,
}

/// The request of a run with the flags of `matrix run`.
pub(super) fn run_request(args: &RunArgs, matrix: LoadedMatrix) -> RunRequest<'static> {
    RunRequest {
        matrix,
        matrix_file: args.matrix.clone(),
        results: args.results.clone(),
        only: args.only.clone(),
        resume: args.resume.clone(),
        repeat_failed: args.failed,
        retry_invalid: args.retry_invalid,
        pull: pull_policy(args.pull),
        calibrate: !args.no_calibration,
        gpus: args.gpus.clone(),
        dirs: cache_dirs(&args.places, !args.fresh_prompts),
        environment: environment(),
        extra_starts: ExtraStarts::FromMatrix,
    }
}

/// Executes a request and writes the report of the run.
pub(super) fn measure(request: RunRequest<'_>, view: RunView<'_>) -> Result<MeasuredRun, CommandError> {
    let only = request.only.clone();
    let is_resumed = request.resume.is_some();
    let console = SessionConsole { yes: view.args.yes };
    let failed = |error| session_error(error, view.colors);
    let metrics = view.args.metrics_listen.map(listen).transpose()?;
    let mut session = Session::open(request, &console).map_err(failed)?;
    if let Some(folder) = view.job_folder {
        job::record_run(folder, session.store().run()).map_err(|error| {
            CommandError::cannot_continue(format!("error: cannot write to {}: {error}\n", folder.display()))
        })?;
    }
    let abort = |session: &Session<'_>, error: anyhow::Error| failed(session.abort_error(error.as_ref()));
    if let Err(error) = open_outputs(&session, is_resumed) {
        return Err(abort(&session, error));
    }
    let progress = add_listeners(&mut session, view.args);
    if let Some(metrics) = &metrics {
        session.listen(metrics.listener());
    }
    let ran = session.run();
    drop(metrics);
    progress.finish();
    ran.map_err(failed)?;
    with_signal_message(no_report_message(session.store().folder()), || {
        let outcome = session.finish().map_err(failed)?;
        let cache = view.args.places.cache();
        let (records, tables) = report::write_documents(
            session.store(),
            only.as_ref(),
            &cache,
            view.min_change,
            view.colors,
        )
        .context("the measurements are saved, but the report cannot be written")
        .map_err(|error| abort(&session, error))?;
        let wrong = outcome.measurements.wrong;
        if view.args.failed && wrong > 0 {
            eprint(&format!(
                "note: `--failed` does not repeat {} with wrong answers, because a better repeat would not make the engine correct; repair the engine, then start a new run\n",
                pluralize(wrong, "measurement", "measurements")
            ));
        }
        let exit = run_exit(&outcome);
        Ok(MeasuredRun {
            run: outcome.run,
            folder: outcome.folder,
            records,
            tables,
            measurements: outcome.measurements,
            exit,
        })
    })
}

/// Listens for readers of metrics, before anything starts.
fn listen(address: SocketAddr) -> Result<MetricsServer, CommandError> {
    let server = MetricsServer::listen(address).map_err(|error| {
        CommandError::usage(format!(
            "error: `--metrics-listen {address}`: {error}; nothing was started\n  = help: name an address of this host and a free port\n"
        ))
    })?;
    eprint(&format!("metrics at http://{}/metrics\n", server.address()));
    Ok(server)
}

/// Opens the files that commands write during a run: `matrix.log` and `results.jsonl`.
fn open_outputs(session: &Session<'_>, is_resumed: bool) -> anyhow::Result<()> {
    let store = session.store();
    if is_resumed {
        let run = Run::read(store.folder()).context("cannot read the run")?;
        // The lines of repeated measurements are appended when they end.
        let open = session.open_measurements();
        report::write_results(&run, store, |measurement| !open.contains(measurement))?;
    }
    log::add_run_log(
        store
            .log()
            .context("cannot open `matrix.log`, the log of the run")?,
    );
    Ok(())
}

/// Appends measurements to `results.jsonl` as they end, and shows events: as JSON on stdout, or as progress
/// on stderr.
fn add_listeners(session: &mut Session<'_>, args: &RunArgs) -> Arc<Progress> {
    let plan = session.plan().clone();
    let past = store::durations::last_durations(&args.results, &plan.matrix, &plan.cells).unwrap_or_default();
    let expected: BTreeMap<_, _> = past.into_iter().map(|(key, past)| (key, past.seconds)).collect();
    let progress = Arc::new(Progress::new(expected));
    let store = Arc::clone(session.store());
    session.listen(move |event| {
        if let Event::CellEnded { measurement, .. } = event
            && let Err(error) = report::append_result(&plan, &store, measurement)
        {
            tracing::error!("results.jsonl: {error:#}");
        }
    });
    if args.json {
        session.listen(|event| {
            print(&format!(
                "{}\n",
                serde_json::to_string(&store::JournalLine::now(event)).expect("events are JSON")
            ))
        });
    } else {
        let shown = Arc::clone(&progress);
        session.listen(move |event| shown.show(event));
    }
    progress
}

/// The message if a signal ends the command before the report is written.
pub(super) fn no_report_message(folder: &Path) -> String {
    format!(
        "the command was stopped while it wrote the report; the measurements are saved\n  = help: write the report with: {} --out {}\n",
        command_line::report_command(folder),
        command_line::shell_quote(&folder.to_string_lossy())
    )
}

pub(super) const fn run_exit(outcome: &RunOutcome) -> Exit {
    if outcome.is_interrupted {
        Exit::Interrupted
    } else if outcome.unstopped > 0 || outcome.measurements.failed > 0 || outcome.measurements.invalid > 0 {
        Exit::CellFailed
    } else {
        Exit::Done
    }
}

/// Prints the notices of a session and asks the user.
pub(super) struct SessionConsole {
    /// Whether `--yes` was given.
    pub(super) yes: bool,
}

impl Observer for SessionConsole {
    fn notice(&self, notice: Notice) {
        eprint(&notice_line(&notice));
    }

    fn accepts_replacement(&self, outdated: &OutdatedMeasurements) -> bool {
        let cells = describe_outdated(outdated);
        if self.yes {
            eprint(&format!("note: {cells}"));
            return true;
        }
        if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            return false;
        }
        eprint(&format!("{cells}continue? [y/N] "));
        let mut answer = String::new();
        let read = std::io::stdin().read_line(&mut answer);
        read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes")
    }
}

pub(super) fn notice_line(notice: &Notice) -> String {
    match notice {
        Notice::Note(text) => format!("note: {text}\n"),
        Notice::Warning(text) => format!("warning: {text}\n"),
        Notice::Matrix(text) => format!("{}\n", one_line(text)),
        Notice::Input(finding) => finding.to_note(),
        Notice::Progress(text) => format!("{text}\n"),
    }
}

/// Prints the tables of a run that has ended, and what to do next.
pub(super) fn show(measured: &MeasuredRun, args: &RunArgs) {
    if args.json {
        return;
    }
    print(&measured.tables);
    print(&format!("{}\n", describe_counts(measured.measurements)));
    print(&format!("results: {}\n", measured.folder.display()));
    print(&format!(
        "page: {}\n",
        measured.folder.join("report.html").display()
    ));
    let resume = command_line::resume_command(measured.run.as_str());
    if measured.exit == Exit::Interrupted {
        print(&format!("continue with: {resume}\n"));
    } else if let Some(what) = describe_repeatable(measured.measurements) {
        let failed = if args.failed { "" } else { " --failed" };
        print(&format!("measure {what} again: {resume}{failed}\n"));
    }
}

/// The kinds of measurements that can be repeated, in words.
const fn describe_repeatable(counts: MeasurementCounts) -> Option<&'static str> {
    match (counts.failed > 0, counts.invalid > counts.wrong) {
        (true, true) => Some("failed and invalid cells"),
        (true, false) => Some("failed cells"),
        (false, true) => Some("invalid cells"),
        (false, false) => None,
    }
}

/// Counts of measurements, in words.
fn describe_counts(counts: MeasurementCounts) -> String {
    let mut text = format!("{} done", counts.done);
    let others = [
        (counts.invalid, "invalid"),
        (counts.failed, "failed"),
        (counts.interrupted, "interrupted"),
        (counts.missing, "not measured"),
    ];
    for (count, word) in others {
        if count > 0 {
            text.push_str(&format!(", {count} {word}"));
        }
    }
    text
}
