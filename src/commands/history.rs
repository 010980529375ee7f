//! `matrix history`: shows the nightly runs of a matrix metric by metric, with level changes.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::cli::regression::HistoryArgs;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::matrix_file::load;
use crate::commands::output::{Colors, eprint, print};
use crate::commands::terminal;
use crate::config::select::{self, Selector};
use crate::exit::Exit;
use crate::report::format;
use crate::report::history::History;
use crate::report::terminal::PageLayout;
use crate::results::record::nightly::NightlyRun;
use crate::results::store;

pub(crate) fn execute(args: &HistoryArgs, colors: Colors) -> Outcome {
    let matrix = matrix_name(&args.matrix, colors)?;
    let (mut nights, doubts) = store::nightly::history(&args.results, &matrix)
        .map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
    for doubt in doubts {
        eprint(&format!("warning: {doubt}\n"));
    }
    if nights.is_empty() {
        return Err(no_history_error(&matrix, &args.results));
    }
    if let Some(only) = &args.only {
        select_cells(&mut nights, only)?;
    }
    let history = History::from_nights(&matrix, &nights, args.floor);
    let layout = match &args.out {
        Some(_) => PageLayout::FILE,
        None => terminal::layout(colors),
    };
    let text = format::draw_history(&args.format, &history, layout);
    match &args.out {
        None => print(&text),
        Some(path) => {
            fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
            print(&format!("wrote {}\n", path.display()));
        }
    }
    Ok(Exit::Done)
}

/// The name of a matrix, given directly or by the matrix's file.
pub(super) fn matrix_name(argument: &str, colors: Colors) -> Result<String, CommandError> {
    let path = Path::new(argument);
    if !path.is_file() {
        return Ok(argument.to_owned());
    }
    let read = load(path, colors)?;
    Ok(read.plan.matrix)
}

/// The error if there is no history of that name; lists the existing ones.
fn no_history_error(matrix: &str, results: &Path) -> CommandError {
    let known = store::nightly::matrices(results);
    let help = match known.as_slice() {
        [] => "make a nightly run with `matrix nightly`, or choose another folder of runs with `--results`"
            .to_owned(),
        known => format!(
            "give the `name` that the matrix file contains; there are nightly runs of {}",
            known.join(", ")
        ),
    };
    CommandError::usage(format!(
        "error: there is no nightly run of `{}` in {}\n  = help: {help}\n",
        matrix,
        results.display()
    ))
}

/// Keeps the selected cells and their findings.
fn select_cells(nights: &mut [NightlyRun], only: &Selector) -> Result<(), CommandError> {
    let fits = |key: &crate::base::ids::CellKey| only.matches(&select::parse_key(key.as_str()));
    let mut known: Vec<String> = Vec::new();
    for night in nights.iter_mut() {
        known.extend(night.cells.keys().map(ToString::to_string));
        night.cells.retain(|key, _| fits(key));
        night
            .findings
            .retain(|finding| finding.cell.as_ref().is_none_or(fits));
    }
    if nights.iter().all(|night| night.cells.is_empty()) {
        known.sort_unstable();
        known.dedup();
        let some: Vec<&str> = known.iter().take(3).map(String::as_str).collect();
        return Err(CommandError::usage(format!(
            "error: `--only {only}` matches none of the {} cells of these nightly runs\n  = help: names of cells look like this:\n      {}\n",
            known.len(),
            some.join("\n      ")
        )));
    }
    Ok(())
}
