//! The only writer to stdout, and beside `progress` the only one to stderr.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::base::secrets::Redactor;
use crate::base::text::printable_with_colors;
use crate::cli::{Color, env_variable};
use crate::commands::environment::environment;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Colors {
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
}

impl Colors {
    pub(crate) fn from_flag(color: Color) -> Self {
        let auto = |terminal: bool| terminal && env_variable("NO_COLOR").is_none();
        match color {
            Color::Always => Self {
                stdout: true,
                stderr: true,
            },
            Color::Never => Self {
                stdout: false,
                stderr: false,
            },
            Color::Auto => Self {
                stdout: auto(std::io::stdout().is_terminal()),
                stderr: auto(std::io::stderr().is_terminal()),
            },
        }
    }
}

/// The first error of writing to stdout.
static STDOUT_ERROR: OnceLock<String> = OnceLock::new();

/// The message if a signal ends the command now; empty for none.
static SIGNAL_MESSAGE: Mutex<String> = Mutex::new(String::new());

/// The first error of writing to stdout, if there was one.
pub(crate) fn stdout_error() -> Option<&'static str> {
    STDOUT_ERROR.get().map(String::as_str)
}

/// The message if a signal ends the command now; empty for none.
pub(crate) fn signal_message() -> String {
    SIGNAL_MESSAGE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Runs `work`. A signal that ends the command during it prints `message`.
pub(crate) fn with_signal_message<T>(message: String, work: impl FnOnce() -> T) -> T {
    let set = |message| *SIGNAL_MESSAGE.lock().unwrap_or_else(PoisonError::into_inner) = message;
    set(message);
    let done = work();
    set(String::new());
    done
}

/// Secrets that the output of this command must not contain.
static REDACTOR: OnceLock<Redactor> = OnceLock::new();

/// Redacts these values, and variables of our environment whose names look like secrets, in all later output.
pub(crate) fn hide_secrets(mut values: Vec<String>) {
    values.extend(environment().secrets());
    REDACTOR.get_or_init(|| Redactor::new(values.iter().map(String::as_str)));
}

/// The redactor of this command's output.
pub(crate) fn redactor() -> &'static Redactor {
    REDACTOR.get_or_init(Redactor::default)
}

/// Writes to stdout. A closed pipe ends the output without an error; any other error makes the command fail
/// at its end.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let result = out
        .write_all(redactor().redact(text).as_bytes())
        .and_then(|()| out.flush());
    if let Err(error) = result
        && error.kind() != ErrorKind::BrokenPipe
    {
        STDOUT_ERROR.get_or_init(|| error.to_string());
    }
}

/// Writes to stderr, without control characters. Errors are ignored, because a closed terminal must not stop
/// a measurement.
pub(crate) fn eprint(text: &str) {
    let _ = std::io::stderr()
        .lock()
        .write_all(printable_with_colors(&redactor().redact(text)).as_bytes());
}
