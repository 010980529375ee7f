//! The declaration of the command line, with the formats that the reports of this version have.

use crate::cli::Cli;
use crate::report::format;

/// The declaration of the command line, with the formats that this version can write.
pub(super) fn declaration() -> clap::Command {
    Cli::declaration([
        (
            "report",
            format::accepted(|format| Some(format.report.as_ref()?.help)),
        ),
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
