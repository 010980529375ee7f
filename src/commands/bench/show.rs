//! Output of a measured load.

use std::fmt::Write as _;

use crate::analysis::metrics::{MetricSets, SteadyState};
use crate::commands::bench::outputs;
use crate::commands::bench::partial;
use crate::commands::bench::result::BenchResult;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{eprint, print};
use crate::exit::Exit;
use crate::report::bench_serving::{bench_line, block, classic_csv, notes};

/// Prints the block, writes the files, and prints notes and failures.
pub(super) fn print_result(result: &BenchResult<'_>) -> Outcome {
    let figures = result.metric_sets();
    if result.config.output.draws_plot {
        print(&result.plots());
    }
    print(&result.result_block(&figures));
    let steady = result.steady_state();
    if let Some(steady) = &steady {
        print(&block::steady_block(steady));
    }
    print(&result.extra_metrics(&figures));
    let notes = result.notes(&figures);
    let failures = notes::failure_lines(&result.measured.load.requests);
    let mut stderr_text = failures.join("");
    for note in &notes {
        let _ = writeln!(stderr_text, "note: {note}");
    }
    for extra_line in result.client_error().into_iter().chain(result.energy(&figures)) {
        let _ = writeln!(stderr_text, "note: {extra_line}");
    }
    eprint(&stderr_text);
    write_files(result, &figures, &notes, steady.as_ref())?;
    let has_failed = result.has_failed();
    if has_failed && !result.measured.is_interrupted() {
        eprint(&result.too_many_failed());
    }
    Ok(match (result.measured.is_interrupted(), has_failed) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::CellFailed,
        (false, false) => Exit::Done,
    })
}

/// Writes every file that was asked for; one that cannot be written does not keep the others from being written.
///
/// # Errors
/// All files that could not be written.
fn write_files(
    result: &BenchResult<'_>,
    figures: &MetricSets,
    notes: &[String],
    steady: Option<&SteadyState>,
) -> Result<(), CommandError> {
    let config = result.config;
    let mut errors = vec![append_line(result, figures, notes)];
    if let Some(path) = &config.output.vllm_json {
        errors.push(outputs::write_file(path, &result.vllm_json(figures, notes)));
    }
    let steady_file = config
        .steady_state
        .as_ref()
        .and_then(|steady| steady.output_file.as_ref());
    if let (Some(steady), Some(path)) = (steady, steady_file) {
        errors.push(outputs::append(
            path,
            &format!("{}\n", bench_line::steady_line(steady)),
        ));
    }
    if let Some(path) = &config.output.records {
        errors.push(match outputs::append_lines(path, result.records()) {
            Ok(()) => {
                partial::remove_partial(path);
                Ok(())
            }
            Err(error) => Err(error.with_text(&partial::where_records_are(path, result.requests().len()))),
        });
    }
    let errors = errors.into_iter().filter_map(Result::err);
    let all = errors.reduce(|all, error| all.with_text(&error.message));
    all.map_or(Ok(()), Err)
}

/// Appends the result line to its file.
fn append_line(result: &BenchResult<'_>, figures: &MetricSets, notes: &[String]) -> Result<(), CommandError> {
    let config = result.config;
    let path = outputs::line_path(config);
    let line = if outputs::is_csv(config, &path) {
        let is_new = std::fs::metadata(&path).map_or(true, |file| file.len() == 0);
        let header = if is_new {
            classic_csv::header()
        } else {
            String::new()
        };
        header + &classic_csv::row(&config.requested_load, &figures.block)
    } else {
        format!("{}\n", result.result_line(figures, notes))
    };
    outputs::append(&path, &line)
        .map_err(|refusal| refusal.with_text(&format!("the result line that was not written:\n{line}")))?;
    eprint(&format!(
        "note: the result was appended to `{}`\n",
        path.display()
    ));
    Ok(())
}
