//! Things that every host provides, and the error if one is missing.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tokio::runtime::{Builder, Runtime};

/// The host lacks something that every command needs.
#[derive(Debug, Error)]
#[error("{what}")]
pub(crate) struct HostError {
    what: &'static str,
    source: io::Error,
}

fn host_error(operation: &'static str) -> impl FnOnce(io::Error) -> HostError {
    move |source| HostError {
        what: operation,
        source,
    }
}

pub(crate) fn own_program() -> Result<PathBuf, HostError> {
    std::env::current_exe().map_err(host_error(
        "cannot find the executable file of the running `matrix`",
    ))
}

pub(crate) fn absolute_folder(folder: &Path) -> Result<PathBuf, HostError> {
    std::path::absolute(folder).map_err(host_error("cannot find the folder of the matrix file"))
}

/// A runtime that uses only the calling thread.
pub(crate) fn small_runtime() -> Result<Runtime, HostError> {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(host_error("cannot start a runtime"))
}
