//! `matrix history`: the nights of a matrix, figure by figure, and where they changed.

use std::collections::BTreeMap;

use crate::base::ids::CellKey;
use crate::cli::compare::{CompareFormat, HistoryArgs};
use crate::commands::{Colors, Outcome, Refusal, complain, print};
use crate::exit::Exit;
use crate::judge::compare::{fingerprint, series};
use crate::report::verdicts;
use crate::results::record::night::Night;
use crate::results::store;

/// Shows a history.
///
/// # Errors
/// There is none, or it cannot be read.
pub fn execute(args: &HistoryArgs, colors: Colors) -> Outcome {
    let (nights, doubts) = store::nightly::history(&args.results, &args.matrix)
        .map_err(|error| Refusal::usage(format!("error: {error}\n")))?;
    for doubt in doubts {
        complain(&format!("warning: {doubt}\n"));
    }
    if nights.is_empty() {
        return Err(Refusal::usage(format!(
            "error: no night of `{}` below {}\n  = help: `matrix nightly` measures one\n",
            args.matrix,
            args.results.display()
        )));
    }
    let all = series::all(&nights, args.floor);
    if args.format == CompareFormat::Json {
        let text =
            serde_json::to_string_pretty(&verdicts::history_json(&all)).map_err(anyhow::Error::from)?;
        print(&format!("{text}\n"));
        return Ok(Exit::Done);
    }
    let tables = [verdicts::history(&args.matrix, &all, &events(&nights))];
    super::compare::draw(&tables, args.format, colors);
    Ok(Exit::Done)
}

/// What changed from night to night besides figures, with the night on which it was first seen.
fn events(nights: &[Night]) -> Vec<(String, String)> {
    let mut events = Vec::new();
    for pair in nights.windows(2) {
        let (before, after) = (&pair[0], &pair[1]);
        let mut told: BTreeMap<String, Vec<&CellKey>> = BTreeMap::new();
        for difference in fingerprint::of_machines(&before.machine, &after.machine) {
            told.entry(difference.told()).or_default();
        }
        for (key, cell) in &after.cells {
            let Some(earlier) = before.cells.get(key) else {
                continue;
            };
            for difference in fingerprint::of_engines(&earlier.engine, &cell.engine) {
                told.entry(difference.told()).or_default().push(key);
            }
        }
        if before.baseline != after.baseline {
            let run = after.baseline.as_ref().map_or("none", |run| run.as_str());
            told.entry(format!("baseline: {run}")).or_default();
        }
        events.extend(told.into_iter().map(|(event, cells)| {
            let of = match cells.len() {
                0 => String::new(),
                n => format!(" ({n} cells)"),
            };
            (after.at.clone(), format!("{event}{of}"))
        }));
    }
    events
}
