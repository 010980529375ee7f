//! `matrix report --format perfetto`: a trace for each measurement.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::commands::error::{CommandError, Outcome};
use crate::commands::files::free_name;
use crate::commands::output::{eprint, print};
use crate::config::select::Selector;
use crate::exit::Exit;
use crate::report::labels::Labels;
use crate::report::perfetto::{self, TraceInput};
use crate::report::single_line;
use crate::results::record::cell::MeasurementSummary;
use crate::results::store::{self, Run, StoreError, atomic};

/// The value of `--format`.
pub(super) const FORMAT: &str = "perfetto";

/// Writes a trace of each measurement of the selected cells into a folder.
pub(super) fn write(runs: &[Run], only: Option<&Selector>, out: &Path) -> Outcome {
    fs::create_dir_all(out)
        .with_context(|| format!("cannot create the folder {}", out.display()))
        .map_err(CommandError::unwritable)?;
    let mut written = 0;
    for (run, stem) in with_stems(runs) {
        let labels = Labels::from_keys(run.plan.cells.iter().map(|cell| &cell.key));
        for summary in &run.summaries {
            let cell = run.plan.cell(&summary.cell);
            if only.is_some_and(|only| !only.matches(&cell.axes)) {
                continue;
            }
            let Some(trace) = trace(run, summary, &labels) else {
                continue;
            };
            let name = format!(
                "{stem}-{}-start-{}-repeat-{}.perfetto-trace",
                store::file_name(cell.key.as_str()),
                summary.start,
                summary.repeat
            );
            let path = out.join(name);
            atomic::write(&path, &trace)
                .with_context(|| format!("cannot write {}", path.display()))
                .map_err(CommandError::unwritable)?;
            print(&format!("wrote {}\n", path.display()));
            written += 1;
        }
    }
    match written {
        0 => Err(CommandError::usage(
            "error: no measurement with recorded requests is selected\n  = help: `--only` selects cells, such as `engine=vllm`; `matrix report RUN` lists them\n",
        )),
        _ => {
            print("open the traces at https://ui.perfetto.dev, which reads them in the browser\n");
            Ok(Exit::Done)
        }
    }
}

/// The trace of a measurement; `None` with a warning if its requests cannot be read.
fn trace(run: &Run, summary: &MeasurementSummary, labels: &Labels) -> Option<Vec<u8>> {
    let measurement = summary.measurement();
    let requests = match run.read_requests(&measurement) {
        Ok(requests) => requests,
        Err(error) => {
            eprint(&format!(
                "warning: {}: {error}\n",
                single_line(summary.cell.as_str())
            ));
            return None;
        }
    };
    let samples = run
        .read_telemetry(&measurement)
        .unwrap_or_else(|error: StoreError| {
            eprint(&format!("warning: {error}\n"));
            None
        });
    let title = format!(
        "{}, start {}, repeat {}",
        labels.name(&summary.cell),
        summary.start,
        summary.repeat
    );
    Some(perfetto::trace(&TraceInput {
        title: &title,
        requests: &requests,
        samples: &samples.unwrap_or_default(),
        phases: &summary.phases,
    }))
}

/// Each run with the first part of its file names, which differs for runs of one name in several folders. A run that was
/// named twice is there once.
fn with_stems(runs: &[Run]) -> Vec<(&Run, String)> {
    let (mut seen, mut taken) = (BTreeSet::new(), BTreeSet::new());
    let is_safe = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    let mut stem = |run: &Run| {
        let name = run.info.run.as_str();
        match name.chars().all(is_safe) && !name.starts_with('.') {
            true => free_name(name, &mut taken),
            false => free_name(&store::file_name(name), &mut taken),
        }
    };
    runs.iter()
        .filter(|run| seen.insert(fs::canonicalize(&run.folder).unwrap_or_else(|_| run.folder.clone())))
        .map(|run| (run, stem(run)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::RunId;
    use crate::base::secrets::Redactor;
    use crate::results::store::testing::{create_and_begin, plan, write_all_cells};

    #[test]
    fn runs_of_one_name_in_two_folders_have_traces_of_their_own() {
        let roots = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let plan = plan();
        let mut runs = roots.each_ref().map(|root| {
            let store = create_and_begin(root.path(), "small-1", &plan, Redactor::default());
            write_all_cells(&store, &plan);
            Run::read(store.folder()).unwrap()
        });
        let out = tempfile::tempdir().unwrap();
        let names = || {
            let entries = fs::read_dir(out.path()).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        let measurements = plan.cells.len();
        write(&[runs[0].clone(), runs[0].clone()], None, out.path()).unwrap();
        assert_eq!(
            names().len(),
            measurements,
            "a run that is named twice: {:?}",
            names()
        );
        write(&runs, None, out.path()).unwrap();
        assert_eq!(names().len(), 2 * measurements, "{:?}", names());
        let numbered = names()
            .iter()
            .filter(|name| name.starts_with("small-1~2-"))
            .count();
        assert_eq!(numbered, measurements, "{:?}", names());
        // The name in `run.json` cannot lead out of the folder.
        runs[0].info.run = RunId::new("../outside");
        write(&runs[..1], None, out.path()).unwrap();
        assert_eq!(names().len(), 3 * measurements, "{:?}", names());
    }
}
