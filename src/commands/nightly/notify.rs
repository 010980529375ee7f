//! What people and CI learn of a night: its page, the charts of all nights, JUnit, GitHub, the webhook.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::base::secrets::Redactor;
use crate::base::text::line_start;
use crate::cli::regression::NightlyArgs;
use crate::cli::variable;
use crate::commands::error::CommandError;
use crate::commands::files;
use crate::commands::measure::MeasuredRun;
use crate::commands::output::{complain, print};
use crate::report::history::History;
use crate::report::{html, nightly as told};
use crate::results::record::night::{Finding, Night};
use crate::results::store::nightly::Nights;
use crate::results::store::{self, Store};
use crate::runner::webhook;

/// The file of a night's page, in the run's folder.
const PAGE: &str = "nightly.md";
/// The file of the charts of all nights up to this one, beside it.
const CHARTS: &str = "history.html";

/// Refuses what could not be told when the night is over.
pub(super) fn reachable(args: &NightlyArgs) -> Result<(), CommandError> {
    let is_url = |url: &String| url.starts_with("https://") || url.starts_with("http://");
    match args.webhook.as_ref().is_none_or(is_url) {
        true => Ok(()),
        // The address of a webhook is its password.
        false => Err(CommandError::usage(
            "error: the webhook (`--webhook`, or the variable MATRIX_WEBHOOK) is no address\n  = help: it begins with `https://`\n",
        )),
    }
}

/// Refuses what could not be written when the night is over. The folder of nights is there by now.
pub(super) fn writable(args: &NightlyArgs) -> Result<(), CommandError> {
    let Some(file) = &args.junit else { return Ok(()) };
    files::no_pipe(file)
        .and_then(|()| files::try_open(file))
        .map_err(|error| {
            CommandError::usage(format!(
                "error: `--junit {}` cannot be written: {error}\n  = help: name a file in a folder that is there\nnothing was started\n",
                file.display()
            ))
        })
}

/// Writes and prints what people and CI read.
pub(super) fn publish(args: &NightlyArgs, night: &Night, measured: &MeasuredRun) -> Result<(), CommandError> {
    let page = told::markdown(night);
    let store = Store::open(&args.run.results, &night.run, Redactor::default())
        .context("the page cannot be written")?;
    let path = store
        .write_report(PAGE, &page)
        .context("the page cannot be written")?;
    drop(store);
    if let Some(file) = &args.junit
        && let Err(error) = fs::write(file, told::junit(night))
    {
        // The folder was there when the night began; what the night found counts all the same.
        complain(&format!("error: cannot write {}: {error}\n", file.display()));
    }
    if let Some(summary) = variable("GITHUB_STEP_SUMMARY") {
        let path = Path::new(&summary);
        let mut file = files::no_pipe(path).and_then(|()| files::open(path));
        let written = file.as_mut().map(|file| file.write_all(page.as_bytes()));
        if !matches!(written, Ok(Ok(()))) {
            complain(&format!("warning: cannot write the job summary `{summary}`\n"));
        }
    }
    if args.run.json {
        let text = serde_json::to_string(night).map_err(anyhow::Error::from)?;
        print(&format!("{text}\n"));
        return Ok(());
    }
    if variable("GITHUB_ACTIONS").is_some() {
        print(&told::annotations(night));
    }
    print(&format!(
        "{}: {}\n",
        line_start(&night.matrix),
        told::headline(night)
    ));
    for line in told::lines(night) {
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

/// Writes the charts of all nights up to this one into its run.
pub(super) fn chart(args: &NightlyArgs, night: &Night) {
    let drawn = || -> store::Result<PathBuf> {
        let (nights, _) = store::nightly::history(&args.run.results, &night.matrix)?;
        let page = html::nights(&History::of(&night.matrix, &nights, args.judging.floor));
        Store::open(&args.run.results, &night.run, Redactor::default())?.write_report(CHARTS, &page)
    };
    match drawn() {
        Ok(path) if !args.run.json => print(&format!("charts: {}\n", path.display())),
        Ok(_) => {}
        Err(error) => complain(&format!(
            "warning: the charts of all nights are not drawn: {error}\n"
        )),
    }
}

/// Sends the message where something is new or over since the last one. What could not be sent is sent the next night.
pub(super) fn notify(args: &NightlyArgs, nights: &Nights, night: &Night) {
    let news = night.findings.iter().filter(|finding| finding.kind.is_news());
    let mut now: Vec<String> = news.map(Finding::identity).collect();
    now.sort();
    now.dedup();
    let before = nights.told();
    let over = before.iter().filter(|told| !now.contains(told)).count();
    if now == before {
        return;
    }
    if let Some(url) = &args.webhook
        && let Err(error) = webhook::post(url, &told::message(night, over))
    {
        complain(&format!(
            "warning: the webhook did not take the message, the next night tries again: {:#}\n",
            anyhow::Error::from(error)
        ));
        return;
    }
    if let Err(error) = nights.tell(&now) {
        complain(&format!("warning: {error}\n"));
    }
}
