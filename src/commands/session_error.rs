//! Messages and exit codes of failed sessions.

use crate::base::text::pluralize;
use crate::cli::command_line;
use crate::commands::diagnostics::diagnostics_error;
use crate::commands::error::CommandError;
use crate::commands::output::Colors;
use crate::runner::preflight::UnmetRequirement;
use crate::runner::session::error::{Aborted, SavedResults, SessionError};
use crate::runner::session::gpus::GpuError;
use crate::runner::session::observer::OutdatedMeasurements;

/// Largest number of outdated cells that are listed.
const MAX_SHOWN_CELLS: usize = 20;

/// The error of a command whose session failed.
pub(crate) fn session_error(error: SessionError, colors: Colors) -> CommandError {
    match error {
        SessionError::UnknownFlags { diagnostics, sources } => {
            diagnostics_error(&diagnostics, &sources, colors.stderr)
        }
        SessionError::Selection(error) => usage_error(&error),
        SessionError::Resume(error) => usage_error(&error),
        SessionError::Reference(error) => usage_error(&error),
        SessionError::Outdated(outdated) => CommandError::usage(format!(
            "error: {}  = help: add `--yes` to continue, or undo the edit of the matrix; to start a new run, leave out `--resume`\n",
            describe_outdated(&outdated)
        )),
        SessionError::Threads(error) => error.into(),
        SessionError::Host(error) => error.into(),
        SessionError::Gpus(error) => gpu_error(&error),
        SessionError::Preflight { findings, removed } => preflight_error(&findings, &removed),
        SessionError::Results(error) => CommandError::host_not_ready(format!("error: {error}\n")),
        SessionError::Aborted(aborted) => CommandError::cannot_continue(describe_aborted(&aborted)),
    }
}

/// The error of a command that cannot use the GPUs.
pub(crate) fn gpu_error(error: &GpuError) -> CommandError {
    match error {
        GpuError::Pretended(_) | GpuError::Library(_) => usage_error(error),
        GpuError::Unknown(_) | GpuError::Locked(_) => {
            CommandError::host_not_ready(format!("error: {error}\npreflight failed; nothing was started\n"))
        }
    }
}

fn usage_error(error: &dyn std::error::Error) -> CommandError {
    CommandError::usage(format!("error: {error}\n"))
}

fn preflight_error(findings: &[UnmetRequirement], removed: &[String]) -> CommandError {
    let mut message: String = removed
        .iter()
        .map(|what| format!("note: removed {what}\n"))
        .collect();
    for finding in findings {
        message.push_str(&format!("error: {}\n  = help: {}\n", finding.what, finding.help));
    }
    message.push_str(&format!(
        "preflight failed ({}); nothing was started\n",
        pluralize(findings.len(), "error", "errors")
    ));
    CommandError::host_not_ready(message)
}

/// Lists the cells whose finished measurements no longer match the matrix.
pub(crate) fn describe_outdated(outdated: &OutdatedMeasurements) -> String {
    let cells = &outdated.cells;
    let mut lines: String = cells
        .iter()
        .take(MAX_SHOWN_CELLS)
        .map(|cell| format!("  {cell}\n"))
        .collect();
    if cells.len() > MAX_SHOWN_CELLS {
        lines.push_str(&format!("  and {} more\n", cells.len() - MAX_SHOWN_CELLS));
    }
    let (does, they_are) = match outdated.measurements {
        1 => ("does", "it is"),
        _ => ("do", "they are"),
    };
    format!(
        "{} of run `{}` {does} not match the matrix any more; {they_are} kept as a backup and measured again:\n{lines}",
        pluralize(
            outdated.measurements,
            "finished measurement",
            "finished measurements"
        ),
        outdated.run,
    )
}

fn describe_aborted(aborted: &Aborted) -> String {
    let Aborted { run, reason, results } = aborted;
    let resume = command_line::resume_command(run.as_str());
    match results {
        SavedResults::Moved { from, to } => format!(
            "error: {reason}\nthe run was started but cannot continue; its earlier measurements are saved in {}\n  = help: move this folder back to {}, then continue with: {resume}\n",
            to.display(),
            from.display(),
        ),
        SavedResults::Lost => format!(
            "error: {reason}\nthe run was started but cannot continue; its folder and all its measurements are lost\n  = help: start a new run\n"
        ),
        SavedResults::Removed { results } => format!(
            "error: {reason}\nnothing was measured, and the folder of the run was removed\n  = help: start again when {} has enough free space\n",
            results.display()
        ),
        SavedResults::Saved(folder) => format!(
            "error: {reason}\nthe run was started but cannot continue; its measurements are saved in {}\n  = help: continue with: {resume}\n",
            folder.display(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::base::ids::RunId;
    use crate::exit::Exit;
    use crate::runner::session::error::ResumeError;

    const COLORS: Colors = Colors {
        stdout: false,
        stderr: false,
    };

    #[test]
    fn a_failed_preflight_names_every_finding_and_what_was_removed() {
        let finding = |what: &str| UnmetRequirement {
            what: what.to_owned(),
            help: "buy one".to_owned(),
        };
        let error = SessionError::Preflight {
            findings: vec![finding("no GPU"), finding("no disk")],
            removed: vec!["a container".to_owned()],
        };
        let error = session_error(error, COLORS);
        assert_eq!(error.exit, Exit::HostNotReady);
        assert_eq!(
            error.message,
            "note: removed a container\nerror: no GPU\n  = help: buy one\nerror: no disk\n  = help: buy one\n\
             preflight failed (2 errors); nothing was started\n"
        );
    }

    #[test]
    fn what_cannot_be_resumed_is_an_error_of_usage_and_an_aborted_run_is_none() {
        let run = RunId::new("small-1");
        let other = ResumeError::OtherMatrix {
            run: run.clone(),
            theirs: "large".to_owned(),
            matrix: "small".to_owned(),
        };
        let error = session_error(SessionError::Resume(other), COLORS);
        assert_eq!(error.exit, Exit::Usage);
        assert!(
            error.message.contains("  = help: name a run of `small`"),
            "{}",
            error.message
        );
        let aborted = Aborted {
            run,
            reason: "the disk is full".to_owned(),
            results: SavedResults::Saved(PathBuf::from("results/small-1")),
        };
        let error = session_error(SessionError::Aborted(aborted), COLORS);
        assert_eq!(error.exit, Exit::CannotContinue);
        assert!(
            error.message.starts_with("error: the disk is full\n"),
            "{}",
            error.message
        );
        assert!(
            error.message.contains("saved in results/small-1"),
            "{}",
            error.message
        );
    }
}
