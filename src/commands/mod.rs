//! One file per subcommand: arguments, one call, output. `output` prints it; no module below prints.

pub(crate) mod baseline;
pub(crate) mod bench;
pub(crate) mod bisect;
pub(crate) mod calibrate;
pub(crate) mod check;
pub(crate) mod clean;
mod cluster;
mod cluster_profile;
mod cluster_request;
mod cluster_starts;
pub(crate) mod compare;
mod declaration;
mod diagnostics;
pub(crate) mod doctor;
mod environment;
mod error;
pub(crate) mod explain;
pub(crate) mod fetch;
mod files;
pub(crate) mod history;
pub(crate) mod import;

pub(crate) mod init;
pub(crate) mod list;
pub(crate) mod log;
mod matrix_file;
mod measure;
pub(crate) mod new_engine;
pub(crate) mod nightly;
pub(crate) mod noise;
mod output;
pub(crate) mod plan;
mod prices;
pub(crate) mod report;
pub(crate) mod run;

mod required_starts;
pub(crate) mod schema;
mod session_error;
pub(crate) mod shell_files;
pub(crate) mod sim;
pub(crate) mod site;
mod terminal;
mod traces;
pub(crate) mod tune;
mod unreadable;
pub(crate) mod upgrade;
mod upgrade_page;
mod upgrade_runs;

use std::io::Write;
use std::process::ExitCode;

use crate::base::text::printable_with_colors;
use crate::cli::{Cli, Command};
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{Colors, redactor, signal_message, stdout_error};
use crate::exit::Exit;

/// Parses the arguments, starts logging, executes the command and returns its exit code.
pub fn main() -> ExitCode {
    let cli = Cli::read(declaration::declaration());
    log::start(&cli.log, Colors::from_flag(cli.color));
    let outcome = match cli.command.catches_signals() {
        true => supervised(cli),
        false => execute(cli),
    };
    match outcome {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(error) => {
            let _ = std::io::stderr().write_all(error.message.as_bytes());
            ExitCode::from(error.exit.code())
        }
    }
}

/// As [`execute`], but a signal ends the command even while nothing is measured.
pub(crate) fn supervised(cli: Cli) -> Outcome {
    match crate::runner::shutdown::supervise(|| execute(cli)) {
        Ok(Some(done)) => done,
        Ok(None) => interrupted(),
        Err(error) => Err(error.into()),
    }
}

fn interrupted() -> Outcome {
    let message = signal_message();
    match message.is_empty() {
        true => Ok(Exit::Interrupted),
        false => Err(CommandError {
            exit: Exit::Interrupted,
            message: printable_with_colors(&redactor().redact(&message)),
        }),
    }
}

/// Executes the command line. Fails if its output could not be written to stdout.
pub(crate) fn execute(cli: Cli) -> Outcome {
    let outcome = dispatch(cli).map_err(|refusal| CommandError {
        message: printable_with_colors(&redactor().redact(&refusal.message)),
        ..refusal
    });
    match stdout_error() {
        Some(error) => undelivered_outcome(outcome, error),
        None => outcome,
    }
}

/// The outcome of a command whose output could not be written. Only an interruption or an error keeps its
/// exit code.
fn undelivered_outcome(outcome: Outcome, error: &str) -> Outcome {
    let message = format!("error: cannot write to stdout: {error}\n");
    Err(match outcome {
        Ok(exit) => CommandError {
            exit: if exit == Exit::Interrupted {
                exit
            } else {
                Exit::CannotContinue
            },
            message,
        },
        Err(refusal) => refusal.with_text(&message),
    })
}

fn dispatch(cli: Cli) -> Outcome {
    let colors = Colors::from_flag(cli.color);
    match cli.command {
        Command::Check(args) => check::execute(&args, colors),
        Command::Plan(args) => plan::execute(&args, colors),
        Command::Run(args) => run::execute(&args, colors),
        Command::Bench(args) => bench::execute(&args),
        Command::BenchLikeVllm(args) => bench::vllm::execute(&args),
        Command::Calibrate(args) => calibrate::execute(&args, colors),
        Command::Report(args) => report::execute(&args, colors),
        Command::Site(args) => site::execute(&args, colors),
        Command::Import(args) => import::execute(&args),
        Command::Explain(args) => explain::execute(&args),
        Command::Compare(args) => compare::execute(&args, colors),
        Command::Noise(args) => noise::execute(&args, colors),
        Command::Baseline(args) => baseline::execute(&args, colors),
        Command::Nightly(args) => nightly::execute(&args, colors),
        Command::History(args) => history::execute(&args, colors),
        Command::Bisect(args) => bisect::execute(&args, colors),
        Command::Upgrade(args) => upgrade::execute(&args, colors),
        Command::Tune(args) => tune::execute(&args, colors),
        Command::Fetch(args) => fetch::execute(&args, colors),
        Command::Clean(args) => clean::execute(&args),
        Command::Schema(args) => schema::execute(&args),
        Command::Init(args) => init::execute(&args),
        Command::List(args) => list::execute(&args),
        Command::Doctor(args) => doctor::execute(&args, colors),
        Command::New(args) => new_engine::execute(&args),
        Command::Completions(args) => shell_files::completions(&args),
        Command::Man(args) => shell_files::man(&args),
        Command::Sim(args) => sim::execute(*args),
        Command::Shim(args) => sim::supervise(&args),
        Command::Exec(args) => sim::exec(args),
        Command::Remote => sim::serve_remote(),
        Command::Sample => sim::serve_sampler(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::output::with_signal_message;

    #[test]
    fn a_signal_before_some_work_is_done_says_what_is_missing_and_none_afterwards() {
        let outcome = with_signal_message("write it with: matrix report r\n".to_owned(), interrupted);
        let refusal = outcome.expect_err("the work is not done");
        assert_eq!(refusal.exit, Exit::Interrupted);
        assert!(refusal.message.contains("matrix report r"), "{}", refusal.message);
        assert!(matches!(interrupted(), Ok(Exit::Interrupted)));
    }
}
