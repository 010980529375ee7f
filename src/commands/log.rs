//! Writes our own log to stderr, as far as the filter allows, and completely into the folder of a run.

use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

use tracing_subscriber::filter::{EnvFilter, LevelFilter};
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

use crate::commands::output::Colors;
use crate::results::store::Log;

/// Log file of the current run; locked for each line.
static RUN_LOG: Mutex<Option<Log>> = Mutex::new(None);

/// Starts logging. An invalid filter causes a warning and is replaced by the default.
pub(crate) fn start(filter: &str, colors: Colors) {
    let parsed = EnvFilter::try_new(filter);
    let wrong = parsed.as_ref().err().map(ToString::to_string);
    let terminal = fmt::layer()
        .with_ansi(colors.stderr)
        .with_writer(io::stderr)
        .with_filter(parsed.unwrap_or_else(|_| EnvFilter::new("warn")));
    let file_filter = EnvFilter::builder()
        .with_default_directive(LevelFilter::WARN.into())
        .parse_lossy("matrix=info");
    let file = fmt::layer()
        .with_ansi(false)
        .with_writer(|| RunLogWriter)
        .with_filter(file_filter);
    tracing_subscriber::registry().with(terminal).with(file).init();
    if let Some(wrong) = wrong {
        tracing::warn!("the log filter `{filter}` is invalid ({wrong}); write it like `matrix=debug`");
    }
}

/// From now on also writes the log to `log`, whatever the filter of stderr is: `matrix` from level `info`,
/// other crates from `warn`.
pub(crate) fn add_run_log(log: Log) {
    *RUN_LOG.lock().unwrap_or_else(PoisonError::into_inner) = Some(log);
}

/// Writes to the run's log file, if there is one.
struct RunLogWriter;

impl Write for RunLogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match RUN_LOG.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(log) => log.write(bytes),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match RUN_LOG.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(log) => log.flush(),
            None => Ok(()),
        }
    }
}
