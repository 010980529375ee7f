//! `matrix explain`: explains the validity of a measurement, or a reason code.

use std::path::{Path, PathBuf};

use crate::analysis::validity::{self, CodeEntry, Evidence};
use crate::base::text::wrap;
use crate::cli::report::ExplainArgs;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{eprint, print};
use crate::commands::terminal::terminal_width;
use crate::config::select::Selector;
use crate::config::yaml::nearest_name;
use crate::exit::Exit;
use crate::plan::Measurement;
use crate::report;
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::validity::{ReasonCode, Validity};
use crate::results::store::{self, Run};

/// Largest number of measurements that are printed with all their evidence if no cell is named.
const MAX_DETAILED: usize = 4;

/// Width in columns of the text on a code if the output is no terminal.
const DEFAULT_WIDTH: usize = 100;

/// Prints the validity of the selected measurements, the text on a code, or the table of codes.
pub(crate) fn execute(args: &ExplainArgs) -> Outcome {
    if args.codes {
        print(&validity::table_as_document());
        return Ok(Exit::Done);
    }
    // With a run, the argument is always a cell.
    if args.run.is_none()
        && let Some(code) = args.cell.as_deref().and_then(find_code)
    {
        let entry = validity::code_entry(code);
        print(&match args.json {
            true => entry_as_json(entry),
            false => format_entry(entry, terminal_width().map_or(DEFAULT_WIDTH, usize::from)),
        });
        return Ok(Exit::Done);
    }
    let args = &with_run_of_folder(args.clone());
    let usage = |error: store::StoreError| CommandError::usage(format!("error: {error}\n"));
    let run = find_run(args).map_err(|refusal| suggest_code(refusal, args))?;
    for doubt in &run.warnings {
        eprint(&format!("warning: {}\n", report::single_line(doubt)));
    }
    let chosen = select_measurements(args, &run).map_err(|refusal| suggest_code(refusal, args))?;
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
                    "ending": summary.status,
                    "validity": validity,
                    "telemetry": summary.telemetry,
                    "client": summary.client,
                    "reset": summary.cache_reset,
                    "post_mortem": post_mortem(&run, summary),
                })
            })
            .collect();
        let text = serde_json::to_string_pretty(&lines).expect("judgements are JSON");
        print(&format!("{text}\n"));
        return Ok(Exit::Done);
    }
    if args.cell.is_none() && judged.len() > MAX_DETAILED {
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

/// Takes the folder of a run for the run, where it was given as the cells.
fn with_run_of_folder(mut args: ExplainArgs) -> ExplainArgs {
    let is_run = |name: &String| store::read_run_info(Path::new(name)).is_ok();
    if args.run.is_none()
        && let Some(folder) = args.cell.take_if(|name| is_run(name))
    {
        args.run = Some(folder);
    }
    args
}

fn find_code(name: &str) -> Option<ReasonCode> {
    ReasonCode::from_name(name)
}

/// Adds the nearest code to the error about an unknown cell.
fn suggest_code(refusal: CommandError, args: &ExplainArgs) -> CommandError {
    // With a run, the argument is always a cell.
    let name = args.cell.as_deref().filter(|_| args.run.is_none());
    let codes = ReasonCode::ALL.iter().map(|code| code.name());
    match name.and_then(|name| nearest_name(name, codes)) {
        None => refusal,
        Some(code) => CommandError {
            message: format!(
                "{}  = help: did you mean the reason code `{code}`? `matrix explain --codes` prints all codes\n",
                refusal.message
            ),
            ..refusal
        },
    }
}

/// Names of the codes that may occur together with this one.
fn implied_codes(entry: &CodeEntry) -> Vec<&'static str> {
    entry.implied_codes.iter().map(|code| code.name()).collect()
}

/// Names of the metric families that a code concerns; empty if it concerns the whole measurement.
fn affected_families(entry: &CodeEntry) -> Vec<&'static str> {
    entry.families.iter().map(|family| family.name()).collect()
}

/// The text on a code, wrapped at words.
fn format_entry(entry: &CodeEntry, width: usize) -> String {
    let only = match affected_families(entry)[..] {
        [] => String::new(),
        ref only => format!(" ({} only)", only.join(", ")),
    };
    let mut text = format!("{}: {}{only}\n\n", entry.code.name(), entry.weight.weight_name());
    let brought = implied_codes(entry).join(", ");
    let (bound, rules) = entry.bound.split_first().expect("each code has a bound");
    let blocks = [
        ("means", entry.meaning),
        ("what to do", entry.fix),
        ("bound", *bound),
    ]
    .into_iter()
    .chain(rules.iter().map(|rule| ("", *rule)))
    .chain([("why", entry.source), ("may imply", brought.as_str())]);
    for (head, text_block) in blocks {
        if !text_block.is_empty() {
            text.push_str(&wrap(&format!("  {head:<12}"), 14, text_block, width));
        }
    }
    text.push('\n');
    text.push_str(&wrap(
        "",
        0,
        "`matrix explain CELL` shows the evidence of one cell, `matrix explain --codes` prints all codes.",
        width,
    ));
    text
}

fn entry_as_json(entry: &CodeEntry) -> String {
    let value = serde_json::json!({
        "code": entry.code.name(),
        "weight": entry.weight.weight_name(),
        "only": affected_families(entry),
        "means": entry.meaning,
        "fix": entry.fix,
        "bound": entry.bound.join(" "),
        "source": entry.source,
        "brings": implied_codes(entry),
    });
    let text = serde_json::to_string_pretty(&value).expect("an entry is JSON");
    format!("{text}\n")
}

fn post_mortem(run: &Run, summary: &MeasurementSummary) -> Option<PathBuf> {
    run.post_mortem(&Measurement {
        cell: summary.cell.clone(),
        start: summary.start,
        repeat: summary.repeat,
    })
}

/// The stored validity of a measurement; a measurement of an older version is judged now.
fn judgement(run: &Run, summary: &MeasurementSummary) -> store::Result<Option<Validity>> {
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
        machine: Some(summary.machine.as_deref().unwrap_or(&run.machine)),
        bounds: &run.plan.validity,
    }))
}

/// The named run, or the newest one.
fn find_run(args: &ExplainArgs) -> Result<Run, CommandError> {
    let usage = |error: store::StoreError| CommandError::usage(format!("error: {error}\n"));
    if let Some(name) = &args.run {
        return store::nightly::find_run(&args.results, name).map_err(usage);
    }
    let newest = store::list_runs(&args.results).map_err(usage)?.into_iter().next();
    match newest {
        Some(listed) => Run::read(&listed.folder).map_err(usage),
        None => Err(CommandError::usage(format!(
            "error: there is no run in {}\n  = help: name a run with `--run <run>`\n",
            args.results.display()
        ))),
    }
}

/// The measurements of the selected cells: by a part of their names, or by a selector as for `--only`.
fn select_measurements<'a>(
    args: &ExplainArgs,
    run: &'a Run,
) -> Result<Vec<&'a MeasurementSummary>, CommandError> {
    let Some(selection) = &args.cell else {
        return Ok(run.summaries.iter().collect());
    };
    let selector: Option<Selector> = selection.parse().ok();
    let fits = |summary: &&MeasurementSummary| {
        summary.cell.as_str().contains(selection.as_str())
            || selector
                .as_ref()
                .is_some_and(|selector| selector.matches(&run.plan.cell(&summary.cell).axes))
    };
    let chosen: Vec<&MeasurementSummary> = run.summaries.iter().filter(fits).collect();
    if chosen.is_empty() {
        let known: Vec<String> = run
            .summaries
            .iter()
            .take(5)
            .map(|summary| summary.cell.to_string())
            .collect();
        return Err(CommandError::usage(format!(
            "error: no measured cell of {} matches `{selection}`\n  = help: give a part of a name, or choose another run with `--run`; cells of this run look like this:\n      {}\n",
            run.info.run,
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
        for code in ReasonCode::ALL.iter().copied() {
            assert_eq!(find_code(code.name()), Some(code));
            let text = format_entry(validity::code_entry(code), 80);
            assert!(text.starts_with(&format!("{}: ", code.name())), "{text}");
            for line in text.lines() {
                // A word longer than the line is not split.
                assert!(line.chars().count() <= 80 || !line.trim().contains(' '), "{line}");
            }
        }
        assert_eq!(find_code("host"), None);
    }
}
