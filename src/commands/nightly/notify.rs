//! Outputs of a nightly run: its page, the charts of all nightly runs, JUnit, GitHub, and the webhook.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::base::secrets::Redactor;
use crate::base::text::line_start;
use crate::cli::regression::NightlyArgs;
use crate::cli::{command_line, env_variable};
use crate::commands::error::CommandError;
use crate::commands::files;
use crate::commands::measure::MeasuredRun;
use crate::commands::output::{eprint, print};
use crate::report::history::History;
use crate::report::{html, nightly as nightly_report};
use crate::results::record::nightly::{Finding, NightlyRun};
use crate::results::store::nightly::NightlyStore;
use crate::results::store::{self, Store};
use crate::runner::webhook;

/// The page of a nightly run, in the run's folder.
const PAGE_FILE: &str = "nightly.md";
/// The charts of all nightly runs up to this one, in the same folder.
const CHARTS_FILE: &str = "history.html";

/// Checks at the beginning that the webhook has a valid address.
pub(super) fn check_webhook(args: &NightlyArgs) -> Result<(), CommandError> {
    let is_url = |url: &String| url.starts_with("https://") || url.starts_with("http://");
    match args.webhook.as_ref().is_none_or(is_url) {
        true => Ok(()),
        // The address of a webhook is a secret and is not printed.
        false => Err(CommandError::usage(
            "error: the webhook (`--webhook`, or the variable MATRIX_WEBHOOK) is not a URL\n  = help: give a URL that begins with `https://`\n",
        )),
    }
}

/// Refuses an address of a webhook that would get into the script of a job.
pub(super) fn check_job_webhook() -> Result<(), CommandError> {
    match command_line::is_given("--webhook") {
        false => Ok(()),
        true => Err(CommandError::usage(
            "error: with `--cluster`, `--webhook` would write its secret address into the script of the job\n  = help: set the variable MATRIX_WEBHOOK instead, which the job inherits\n"
                .to_owned(),
        )),
    }
}

/// Checks at the beginning that the JUnit file can be written. The folder of nightly runs exists by now.
pub(super) fn check_outputs(args: &NightlyArgs) -> Result<(), CommandError> {
    let Some(file) = &args.junit else { return Ok(()) };
    files::refuse_pipe(file)
        .and_then(|()| files::try_open(file))
        .map_err(|error| {
            CommandError::usage(format!(
                "error: `--junit {}` cannot be written: {error}\n  = help: name a file in an existing folder\nnothing was started\n",
                file.display()
            ))
        })
}

/// Writes and prints the outputs for users and CI.
pub(super) fn publish(
    args: &NightlyArgs,
    night: &NightlyRun,
    measured: &MeasuredRun,
) -> Result<(), CommandError> {
    let page = nightly_report::markdown(night);
    let store = Store::open(&args.run.results, &night.run, Redactor::default())
        .context("cannot write the page of the nightly run")?;
    let path = store
        .write_report(PAGE_FILE, &page)
        .context("cannot write the page of the nightly run")?;
    drop(store);
    if let Some(file) = &args.junit
        && let Err(error) = fs::write(file, nightly_report::junit(night))
    {
        // The folder existed at the beginning. The findings count without the file.
        eprint(&format!("error: cannot write {}: {error}\n", file.display()));
    }
    if let Some(summary) = env_variable("GITHUB_STEP_SUMMARY") {
        let path = Path::new(&summary);
        let mut file = files::refuse_pipe(path).and_then(|()| files::open(path));
        let written = file.as_mut().map(|file| file.write_all(page.as_bytes()));
        if !matches!(written, Ok(Ok(()))) {
            eprint(&format!("warning: cannot write the job summary `{summary}`\n"));
        }
    }
    if args.run.json {
        let text = serde_json::to_string(night).map_err(anyhow::Error::from)?;
        print(&format!("{text}\n"));
        return Ok(());
    }
    if env_variable("GITHUB_ACTIONS").is_some() {
        print(&nightly_report::annotations(night));
    }
    print(&format!(
        "{}: {}\n",
        line_start(&night.matrix),
        nightly_report::headline(night)
    ));
    for line in nightly_report::finding_lines(night) {
        print(&format!(
            "  {}: {}: {}\n",
            line.kind.name(),
            line.cells,
            line.text
        ));
    }
    print(&format!("\n{}", measured.tables));
    print(&format!("page: {}\n", path.display()));
    Ok(())
}

/// Writes the charts of all nightly runs up to this one into its run.
pub(super) fn write_charts(args: &NightlyArgs, night: &NightlyRun) {
    let drawn = || -> store::Result<PathBuf> {
        let (nights, _) = store::nightly::history(&args.run.results, &night.matrix)?;
        let page = html::draw_history(&History::from_nights(&night.matrix, &nights, args.judging.floor));
        Store::open(&args.run.results, &night.run, Redactor::default())?.write_report(CHARTS_FILE, &page)
    };
    match drawn() {
        Ok(path) if !args.run.json => print(&format!("charts: {}\n", path.display())),
        Ok(_) => {}
        Err(error) => eprint(&format!(
            "warning: cannot write the charts of all nightly runs: {error}\n"
        )),
    }
}

/// Sends a message if a finding is new or has ended since the last message. A message that could not be sent
/// is sent by the next nightly run.
pub(super) fn notify(args: &NightlyArgs, nights: &NightlyStore, night: &NightlyRun) {
    let news = night.findings.iter().filter(|finding| finding.kind.is_notified());
    let mut now: Vec<String> = news.map(Finding::identity).collect();
    now.sort();
    now.dedup();
    let before = nights.notified();
    let over = before.iter().filter(|identity| !now.contains(identity)).count();
    if now == before {
        return;
    }
    if let Some(url) = &args.webhook
        && let Err(error) = webhook::post(url, &nightly_report::message(night, over))
    {
        eprint(&format!(
            "warning: cannot send the message to the webhook; the next nightly run tries again: {:#}\n",
            anyhow::Error::from(error)
        ));
        return;
    }
    if let Err(error) = nights.save_notified(&now) {
        eprint(&format!("warning: {error}\n"));
    }
}
