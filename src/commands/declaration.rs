//! The declaration of the command line, with the formats that the reports of this version have.

use crate::cli::Cli;
use crate::commands::traces;
use crate::report::format;

/// The declaration of the command line, with the formats that this version can write.
pub(super) fn declaration() -> clap::Command {
    Cli::declaration([
        ("report", report_formats()),
        (
            "history",
            format::accepted(|format| Some(format.history.as_ref()?.help)),
        ),
        (
            "compare",
            format::accepted(|format| Some(format.comparison.as_ref()?.help)),
        ),
    ])
}

/// The formats of a report, and that of traces, which is no table.
fn report_formats() -> Vec<(&'static str, &'static str)> {
    let mut formats = format::accepted(|format| Some(format.report.as_ref()?.help));
    formats.push((
        traces::FORMAT,
        "A trace of each measurement for ui.perfetto.dev, with requests, phases and telemetry; needs `--out`",
    ));
    formats
}
