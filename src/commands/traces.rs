//! `matrix report --format perfetto`: a trace for each measurement.

use std::fs;
use std::path::Path;

use anyhow::Context;

use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{eprint, print};
use crate::config::select::Selector;
use crate::exit::Exit;
use crate::report::labels::Labels;
use crate::report::perfetto::{self, TraceInput};
use crate::report::single_line;
use crate::results::store::{self, Run, StoreError, atomic};

/// The value of `--format`.
pub(super) const FORMAT: &str = "perfetto";

/// Writes a trace of each measurement of the selected cells into a folder.
pub(super) fn write(runs: &[Run], only: Option<&Selector>, out: &Path) -> Outcome {
    fs::create_dir_all(out)
        .with_context(|| format!("cannot create the folder {}", out.display()))
        .map_err(CommandError::unwritable)?;
    let mut written = 0;
    for run in runs {
        let labels = Labels::from_keys(run.plan.cells.iter().map(|cell| &cell.key));
        for summary in &run.summaries {
            let cell = run.plan.cell(&summary.cell);
            if only.is_some_and(|only| !only.matches(&cell.axes)) {
                continue;
            }
            let measurement = summary.measurement();
            let requests = match run.read_requests(&measurement) {
                Ok(requests) => requests,
                Err(error) => {
                    eprint(&format!("warning: {}: {error}\n", single_line(cell.key.as_str())));
                    continue;
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
                labels.name(&cell.key),
                summary.start,
                summary.repeat
            );
            let trace = perfetto::trace(&TraceInput {
                title: &title,
                requests: &requests,
                samples: &samples.unwrap_or_default(),
                phases: &summary.phases,
            });
            let name = format!(
                "{}-{}-start-{}-repeat-{}.perfetto-trace",
                run.info.run,
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
