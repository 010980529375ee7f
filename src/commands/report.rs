//! `matrix report`: the tables of finished runs, drawn again; and the same tables at the end of a run.

use std::fs;

use anyhow::Context;

use crate::cli::{ReportArgs, ReportFormat};
use crate::commands::{Colors, Outcome, Refusal, print};
use crate::exit::Exit;
use crate::report::{self, Format, Shown, tables};
use crate::results::store::{Run, Store};

/// The file of the comparison.
const COMPARISON: &str = "report.md";

/// Draws the tables of runs.
///
/// # Errors
/// A folder that is no run; a folder that cannot be written.
pub fn execute(args: &ReportArgs, colors: Colors) -> Outcome {
    for folder in &args.runs {
        let run = Run::read(folder).map_err(|error| Refusal::usage(format!("error: {error}\n")))?;
        if let Some(out) = &args.out {
            fs::create_dir_all(out).with_context(|| format!("cannot make the folder {}", out.display()))?;
            for (name, text) in documents(&run) {
                let path = out.join(name);
                fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
                print(&format!("wrote {}\n", path.display()));
            }
            continue;
        }
        match args.format {
            ReportFormat::Terminal => print(&terminal(&run, colors)),
            ReportFormat::Markdown => print(&markdown(&run)),
        }
    }
    Ok(Exit::Done)
}

/// Writes the documents of a run beside its records, and gives the tables for the terminal.
pub(crate) fn write(store: &Store, colors: Colors) -> anyhow::Result<String> {
    results(store)?;
    let run = Run::read(store.folder())?;
    for (name, text) in documents(&run) {
        store.write_report(&name, &text)?;
    }
    Ok(terminal(&run, colors))
}

/// Writes `results.jsonl` anew: one line of bench_serving's keys for each finished measurement.
pub(crate) fn results(store: &Store) -> anyhow::Result<()> {
    let run = Run::read(store.folder())?;
    let lines: Vec<serde_json::Value> = run
        .summaries
        .iter()
        .map(|summary| {
            let cell = run.plan.cell(&summary.cell);
            let line = report::jsonl::line(run.plan.launch(&cell.launch), cell, summary);
            serde_json::from_str(&line).context("a line of results is JSON")
        })
        .collect::<anyhow::Result<_>>()?;
    store.write_results(&lines)?;
    Ok(())
}

/// Every markdown document of a run: the comparison, and a report for each engine.
fn documents(run: &Run) -> Vec<(String, String)> {
    let mut documents = vec![(COMPARISON.to_owned(), markdown(run))];
    let shown = Shown::of_plan(&run.plan, &run.summaries);
    for (name, of_engine) in report::engine_report::by_engine(&shown) {
        let safe: String = name
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') {
                    c
                } else {
                    '-'
                }
            })
            .collect();
        let text = report::engine_report::engine_report(&of_engine, Some(&run.machine));
        documents.push((format!("engine-{safe}.md"), text));
    }
    documents
}

fn markdown(run: &Run) -> String {
    let shown = Shown::of_plan(&run.plan, &run.summaries);
    let mut text = format!(
        "# {}\n\nRun `{}`, begun {}, {}.\n\n",
        run.plan.matrix, run.about.run, run.about.began, run.about.tool
    );
    let reference = run.plan.reference.as_deref();
    let across = tables::across(&shown, reference);
    if !across.rows.is_empty() {
        text.push_str(&report::draw(&across, Format::Markdown));
        text.push('\n');
    }
    text.push_str(&report::draw(&tables::overview(&shown), Format::Markdown));
    for table in tables::comparison(&shown, run.plan.reference.as_deref()) {
        text.push('\n');
        text.push_str(&report::draw(&table, Format::Markdown));
    }
    if !run.plan.left_out.is_empty() {
        text.push_str("\n## Left out\n\n");
        for left in &run.plan.left_out {
            text.push_str(&format!(
                "- `{}`: {}\n",
                left.cell.as_str().replace('`', "'"),
                left.why.replace('\n', " ")
            ));
        }
    }
    text
}

fn terminal(run: &Run, colors: Colors) -> String {
    let width = width();
    let format = Format::Terminal {
        width,
        colors: colors.stdout,
    };
    let shown = Shown::of_plan(&run.plan, &run.summaries);
    let mut text = String::from("\n");
    for table in tables::comparison(&shown, run.plan.reference.as_deref()) {
        text.push_str(&report::draw(&table, format));
        text.push('\n');
    }
    text
}

/// Columns of the terminal; a pipe is as wide as a page.
pub(super) fn width() -> u16 {
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or(160, |size| size.ws_col.max(60))
}
