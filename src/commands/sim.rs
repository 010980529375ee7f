//! `matrix sim`: the simulated engine in the foreground; and the shim below which engines run.

use std::io::Write;

use tokio_util::sync::CancellationToken;

use crate::cli::ExecArgs;
use crate::cli::sim::SimArgs;
use crate::commands::error::{CommandError, Outcome};
use crate::exit::Exit;
use crate::runner::shim;
use crate::sim::{self, SimError};

/// Serves until it is stopped, or dies as a planted fault demands.
///
/// # Errors
/// Options that contradict each other; a port that cannot be had.
pub(crate) fn execute(args: SimArgs) -> Outcome {
    let options = args
        .into_options()
        .map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::unfit(format!("error: cannot start threads: {error}\n")))?;
    // An engine's log goes to stdout, as engines do it.
    let log = std::sync::Arc::new(|line: &str| {
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    });
    match runtime.block_on(sim::serve(options, log, |_| {}, CancellationToken::new())) {
        Ok(()) => Ok(Exit::Done),
        Err(SimError::Died { status }) => Ok(Exit::Planted(status)),
        Err(error @ SimError::Options(_)) => Err(CommandError::usage(format!("error: {error}\n"))),
        Err(error) => Err(CommandError::unfit(format!("error: {error}\n"))),
    }
}

/// Runs the program until nothing that it started lives.
///
/// # Errors
/// The system refuses.
pub(crate) fn supervise(args: &ExecArgs) -> Outcome {
    match shim::supervise(args.parent, args.cgroup.clone(), &args.command) {
        Ok(()) => Ok(Exit::Done),
        Err(error) => Err(CommandError {
            exit: Exit::Planted(127),
            message: format!("matrix: cannot start an engine: {error}\n"),
        }),
    }
}

/// Becomes the program; returns only when that fails.
///
/// # Errors
/// The program cannot be started.
pub(crate) fn exec(args: ExecArgs) -> Outcome {
    let mut command = args.command.into_iter();
    let program = command.next().unwrap_or_default();
    let error = shim::exec(args.parent, args.cgroup, program.clone(), command.collect());
    Err(CommandError {
        exit: Exit::Planted(127),
        message: format!("matrix: cannot start `{}`: {error}\n", program.to_string_lossy()),
    })
}
