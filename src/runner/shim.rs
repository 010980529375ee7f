//! The shim above a process engine, called as `matrix __shim` and `matrix __exec`, and the start of a process on another
//! node of a job, called as `matrix __remote`.

use std::io;

use crate::engine;
pub(crate) use crate::engine::{exec, supervise};
use crate::runner::host_error;

/// Starts the program that the standard input describes, until it ends or the standard input does. `variable` reads an
/// environment variable. Returns the exit code.
pub(crate) fn serve_remote(variable: fn(&str) -> Option<String>) -> io::Result<u8> {
    let matrix = host_error::own_program().map_err(io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(engine::serve_remote(matrix, variable))
}
