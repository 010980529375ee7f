//! `matrix explain`: explains the validity of a measurement, or a reason code.

use std::path::PathBuf;

use crate::analysis::validity::{self, Entry, Evidence};
use crate::base::text::wrapped;
use crate::cli::ExplainArgs;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{complain, print};
use crate::commands::terminal::terminal_width;
use crate::config::select::Selector;
use crate::config::yaml::nearest;
use crate::exit::Exit;
use crate::plan::Measurement;
use crate::report;
use crate::results::record::cell::Summary;
use crate::results::record::validity::{Code, Validity};
use crate::results::store::{self, Run};

/// Largest number of measurements that are printed with all their evidence if no cell is named.
const WHOLE: usize = 4;

/// Width in columns of the text on a code if the output is no terminal.
const USUAL_WIDTH: usize = 100;

/// Prints the validity of the selected measurements, the text on a code, or the table of codes.
pub(crate) fn execute(args: &ExplainArgs) -> Outcome {
    if args.codes {
        print(&validity::described());
        return Ok(Exit::Done);
    }
    // With a run, the argument is always a cell.
    if args.run.is_none()
        && let Some(code) = args.cell.as_deref().and_then(code_named)
    {
        let entry = validity::entry(code);
        print(&match args.json {
            true => entry_as_json(entry),
            false => told(entry, terminal_width().map_or(USUAL_WIDTH, usize::from)),
        });
        return Ok(Exit::Done);
    }
    let usage = |error: store::StoreError| CommandError::usage(format!("error: {error}\n"));
    let run = named(args).map_err(|refusal| with_code(refusal, args))?;
    for doubt in &run.doubts {
        complain(&format!("warning: {}\n", report::plain(doubt)));
    }
    let chosen = chosen(args, &run).map_err(|refusal| with_code(refusal, args))?;
    let mut judged = Vec::new();
    for summary in chosen {
        judged.push((summary, judgement(&run, summary).map_err(usage)?));
    }
    if args.json {
        let lines: Vec<serde_json::Value> = judged
            .iter()
            .map(|(summary, validity)| {
                serde_json::json!({
                    "cell": summary.cell,
                    "start": summary.start,
                    "repeat": summary.repeat,
                    "ending": summary.ending,
                    "validity": validity,
                    "telemetry": summary.telemetry,
                    "client": summary.client,
                    "reset": summary.reset,
                    "post_mortem": post_mortem(&run, summary),
                })
            })
            .collect();
        let text = serde_json::to_string_pretty(&lines).expect("judgements are JSON");
        print(&format!("{text}\n"));
        return Ok(Exit::Done);
    }
    if args.cell.is_none() && judged.len() > WHOLE {
        print(&report::explain::overview(&judged));
        return Ok(Exit::Done);
    }
    let texts: Vec<String> = judged
        .iter()
        .map(|(summary, validity)| {
            report::explain::explain(summary, validity.as_ref(), post_mortem(&run, summary).as_deref())
        })
        .collect();
    print(&texts.join("\n"));
    Ok(Exit::Done)
}

fn code_named(name: &str) -> Option<Code> {
    Code::ALL.iter().copied().find(|code| code.name() == name)
}

/// Adds the nearest code to the error about an unknown cell.
fn with_code(refusal: CommandError, args: &ExplainArgs) -> CommandError {
    // With a run, the argument is always a cell.
    let asked = args.cell.as_deref().filter(|_| args.run.is_none());
    let codes = Code::ALL.iter().map(|code| code.name());
    match asked.and_then(|asked| nearest(asked, codes)) {
        None => refusal,
        Some(code) => CommandError {
            message: format!(
                "{}  = help: did you mean the code `{code}`? `matrix explain --codes` prints them all\n",
                refusal.message
            ),
            ..refusal
        },
    }
}

/// Names of the codes that may occur together with this one.
fn brought(entry: &Entry) -> Vec<&'static str> {
    entry.brings.iter().map(|code| code.name()).collect()
}

/// Names of the metric families that a code concerns; empty if it concerns the whole measurement.
fn concerned(entry: &Entry) -> Vec<&'static str> {
    entry.only.iter().map(|family| family.name()).collect()
}

/// The text on a code, wrapped at words.
fn told(entry: &Entry, width: usize) -> String {
    let only = match concerned(entry)[..] {
        [] => String::new(),
        ref only => format!(" ({} only)", only.join(", ")),
    };
    let mut text = format!("{}: {}{only}\n\n", entry.code.name(), entry.weight.as_weight());
    let brought = brought(entry).join(", ");
    for (head, words) in [
        ("means", entry.means),
        ("what to do", entry.mend),
        ("bound", entry.bound),
        ("why", entry.source),
        ("may bring", brought.as_str()),
    ] {
        if !words.is_empty() {
            text.push_str(&wrapped(&format!("  {head:<12}"), 14, words, width));
        }
    }
    text.push('\n');
    text.push_str(&wrapped(
        "",
        0,
        "`matrix explain CELL` shows what was measured for one cell, `--codes` prints every code.",
        width,
    ));
    text
}

fn entry_as_json(entry: &Entry) -> String {
    let value = serde_json::json!({
        "code": entry.code.name(),
        "weight": entry.weight.as_weight(),
        "only": concerned(entry),
        "means": entry.means,
        "fix": entry.mend,
        "bound": entry.bound,
        "source": entry.source,
        "brings": brought(entry),
    });
    let text = serde_json::to_string_pretty(&value).expect("an entry is JSON");
    format!("{text}\n")
}

fn post_mortem(run: &Run, summary: &Summary) -> Option<PathBuf> {
    run.post_mortem(&Measurement {
        cell: summary.cell.clone(),
        start: summary.start,
        repeat: summary.repeat,
    })
}

/// The stored validity of a measurement; a measurement of an older version is judged now.
fn judgement(run: &Run, summary: &Summary) -> store::Result<Option<Validity>> {
    if summary.validity.is_some() {
        return Ok(summary.validity.clone());
    }
    let cell = run.plan.cell(&summary.cell);
    let requests = run.read_requests(&Measurement {
        cell: summary.cell.clone(),
        start: summary.start,
        repeat: summary.repeat,
    })?;
    Ok(validity::judge(&Evidence {
        launch: run.plan.launch(&cell.launch),
        cell,
        summary,
        requests: &requests,
        machine: Some(&run.machine),
        bounds: &run.plan.validity,
    }))
}

/// The named run, or the newest one.
fn named(args: &ExplainArgs) -> Result<Run, CommandError> {
    let usage = |error: store::StoreError| CommandError::usage(format!("error: {error}\n"));
    if let Some(name) = &args.run {
        return store::nightly::named(&args.results, name).map_err(usage);
    }
    let newest = store::list(&args.results).map_err(usage)?.into_iter().next();
    match newest {
        Some(listed) => Run::read(&listed.folder).map_err(usage),
        None => Err(CommandError::usage(format!(
            "error: there is no run in {}\n  = help: name one with `--run <run>`\n",
            args.results.display()
        ))),
    }
}

/// The measurements of the selected cells: by a part of their names, or by a selector as for `--only`.
fn chosen<'a>(args: &ExplainArgs, run: &'a Run) -> Result<Vec<&'a Summary>, CommandError> {
    let Some(asked) = &args.cell else {
        return Ok(run.summaries.iter().collect());
    };
    let selector: Option<Selector> = asked.parse().ok();
    let fits = |summary: &&Summary| {
        summary.cell.as_str().contains(asked.as_str())
            || selector
                .as_ref()
                .is_some_and(|selector| selector.fits(&run.plan.cell(&summary.cell).axes))
    };
    let chosen: Vec<&Summary> = run.summaries.iter().filter(fits).collect();
    if chosen.is_empty() {
        let known: Vec<String> = run
            .summaries
            .iter()
            .take(5)
            .map(|summary| summary.cell.to_string())
            .collect();
        return Err(CommandError::usage(format!(
            "error: no measured cell of {} is called or fits `{asked}`\n  = help: cells are called like this, and `--run` names another run:\n      {}\n",
            run.about.run,
            known.join("\n      ")
        )));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_name_and_told_within_the_width() {
        for code in Code::ALL.iter().copied() {
            assert_eq!(code_named(code.name()), Some(code));
            let text = told(validity::entry(code), 80);
            assert!(text.starts_with(&format!("{}: ", code.name())), "{text}");
            for line in text.lines() {
                // A word longer than the line is not split.
                assert!(line.chars().count() <= 80 || !line.trim().contains(' '), "{line}");
            }
        }
        assert_eq!(code_named("host"), None);
    }
}
