//! `matrix sim`: runs the simulated engine in the foreground. Also the entry points of the shim.

use std::io::Write;

use tokio_util::sync::CancellationToken;

use crate::cli::sim::SimArgs;
use crate::cli::{ExecArgs, env_variable};
use crate::commands::environment::environment;
use crate::commands::error::{CommandError, Outcome};
use crate::exit::Exit;
use crate::runner::{node_sampling, shim};
use crate::sim::{self, SimError};

/// Serves until it is stopped, or until a simulated fault ends it.
pub(crate) fn execute(args: SimArgs) -> Outcome {
    let options = args
        .into_options()
        .map_err(|error| CommandError::usage(format!("error: {error}\n")))?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CommandError::host_not_ready(format!("error: cannot start threads: {error}\n")))?;
    // Like other engines, it logs to stdout.
    let log = std::sync::Arc::new(|line: &str| {
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    });
    match runtime.block_on(sim::serve(options, log, |_| {}, CancellationToken::new())) {
        Ok(()) => Ok(Exit::Done),
        Err(SimError::InjectedDeath { status }) => Ok(Exit::InjectedFault(status)),
        Err(SimError::RankLost { .. } | SimError::OutOfMemory) => Ok(Exit::InjectedFault(1)),
        Err(error @ SimError::Options(_)) => Err(CommandError::usage(format!("error: {error}\n"))),
        Err(error) => Err(CommandError::host_not_ready(format!("error: {error}\n"))),
    }
}

/// Runs the program until every process that it started has ended.
pub(crate) fn supervise(args: &ExecArgs) -> Outcome {
    match shim::supervise(args.parent, args.cgroup.clone(), &args.command) {
        Ok(()) => Ok(Exit::Done),
        Err(error) => Err(CommandError {
            exit: Exit::InjectedFault(127),
            message: format!("matrix: cannot start an engine: {error}\n"),
        }),
    }
}

/// Runs a process of an engine on this node of a job, for the run on another node.
pub(crate) fn serve_remote() -> Outcome {
    match shim::serve_remote(env_variable) {
        Ok(0) => Ok(Exit::Done),
        Ok(code) => Ok(Exit::InjectedFault(code)),
        Err(error) => Err(CommandError {
            exit: Exit::InjectedFault(127),
            message: format!("matrix: cannot start a process on this node: {error}\n"),
        }),
    }
}

/// Samples this node of a job, for the run on another node.
pub(crate) fn serve_sampler() -> Outcome {
    match node_sampling::serve(&environment()) {
        Ok(()) => Ok(Exit::Done),
        Err(error) => Err(CommandError {
            exit: Exit::InjectedFault(127),
            message: format!("matrix: cannot collect telemetry on this node: {error}\n"),
        }),
    }
}

/// Replaces this process by the program; returns only on failure.
pub(crate) fn exec(args: ExecArgs) -> Outcome {
    let mut command = args.command.into_iter();
    let program = command.next().unwrap_or_default();
    let error = shim::exec(args.parent, args.cgroup, program.clone(), command.collect());
    Err(CommandError {
        exit: Exit::InjectedFault(127),
        message: format!("matrix: cannot start `{}`: {error}\n", program.to_string_lossy()),
    })
}
