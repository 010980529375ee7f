//! `matrix check`: reports every error of a matrix and its recipes, and notes available tokenizers without a
//! chat template. With `--ask-engines` it also reports flags that an available engine does not know. Without
//! that flag it runs no program that a recipe names, so that recipes of others can be checked safely. It does
//! not check the host; with `--cluster` it asks the scheduler what a job would lack.

use crate::base::secrets::mask_url_secrets;
use crate::base::text::{line_start, pluralize};
use crate::cli::{CheckArgs, command_line};
use crate::commands::cluster;
use crate::commands::diagnostics::diagnostics_error;
use crate::commands::environment::{cache_dirs, environment};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::{containers, print_notes};
use crate::commands::output::{Colors, eprint, print};
use crate::config::yaml::{Diagnostic, Source};
use crate::exit::Exit;
use crate::plan::Plan;
use crate::runner::check_flags::{self, FlagCheck};
use crate::runner::load_matrix;
use crate::runner::preflight;

/// Checks a matrix and prints its errors, or a summary of its plan.
pub(crate) fn execute(args: &CheckArgs, colors: Colors) -> Outcome {
    let containers = containers(&args.matrix, args.cluster.as_deref(), colors)?;
    match load_matrix::load(&args.matrix, Some(containers)) {
        Ok(read) => {
            let plan = &read.plan;
            print_notes(&read);
            let flags = match args.ask_engines {
                true => check_flags::check(&read, &environment(), &args.places.cache())?,
                false => FlagCheck::default(),
            };
            for note in &flags.notes {
                eprint(&format!("note: {note}\n"));
            }
            if !flags.unknown.is_empty() {
                return report_errors(args, &flags.unknown, &read.sources, colors);
            }
            if !args.ask_engines && plan.launches.iter().any(|launch| !launch.help.is_empty()) {
                eprint(
                    "note: the flags of engines are not checked; `--ask-engines` runs the `help:` commands of their recipes to check them\n",
                );
            }
            let caches = cache_dirs(&args.places, false).input_caches();
            let lacking = preflight::check_templates(plan, &read.folder, &caches);
            for finding in lacking.needed.iter().chain(&lacking.expected) {
                eprint(&finding.to_note());
            }
            if let Some(name) = &args.cluster {
                cluster::check(&read, name, colors)?;
            }
            if args.json {
                print("[]\n");
            } else {
                print(&format!(
                    "{}: {} in {}, {}; no error found\n",
                    line_start(&plan.matrix),
                    pluralize(plan.cells.len(), "cell", "cells"),
                    pluralize(plan.launches.len(), "launch", "launches"),
                    pluralize(plan.measurements(), "measurement", "measurements")
                ));
                print(&describe_loads(plan));
                print(&format!(
                    "to see what this host needs for the matrix, run: {}\n",
                    command_line::doctor_command(&args.matrix)
                ));
            }
            Ok(Exit::Done)
        }
        Err(errors) => report_errors(args, &errors.diagnostics, &errors.sources, colors),
    }
}

/// One line for each scenario, with its prompts and arrival.
fn describe_loads(plan: &Plan) -> String {
    let mut lines: Vec<String> = Vec::new();
    for scenario in plan.cells.iter().map(|cell| &cell.scenario) {
        let work = &scenario.workload;
        let line = format!(
            "  {}: {} prompts, {}\n",
            line_start(&scenario.name),
            work.prompts,
            work.rules().lengths(scenario.profile)
        );
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.concat()
}

fn report_errors(
    args: &CheckArgs,
    diagnostics: &[Diagnostic],
    sources: &[Source],
    colors: Colors,
) -> Outcome {
    if !args.json {
        return Err(diagnostics_error(diagnostics, sources, colors.stderr));
    }
    let list: Vec<_> = diagnostics
        .iter()
        .map(|diagnostic| diagnostic_json(diagnostic, sources))
        .collect();
    print(&format!(
        "{}\n",
        serde_json::to_string_pretty(&list).expect("JSON values are always written")
    ));
    Err(CommandError::usage(String::new()))
}

fn diagnostic_json(diagnostic: &Diagnostic, sources: &[Source]) -> serde_json::Value {
    let place = diagnostic.place.as_ref().and_then(|place| {
        let source = sources.iter().find(|source| *source.name == *place.file)?;
        let before = source.text.get(..place.range.start)?;
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        Some((source.name.clone(), line, column))
    });
    let shown = |text: &String| mask_url_secrets(text).into_owned();
    serde_json::json!({
        "message": shown(&diagnostic.message),
        "file": place.as_ref().map(|(file, _, _)| file),
        "line": place.as_ref().map(|(_, line, _)| line),
        "column": place.as_ref().map(|(_, _, column)| column),
        "label": shown(&diagnostic.label),
        "notes": diagnostic.notes.iter().map(shown).collect::<Vec<_>>(),
        "help": diagnostic.help.as_ref().map(shown),
        "replacement": diagnostic.replacement.as_ref().map(|(_, with)| shown(with)),
    })
}
