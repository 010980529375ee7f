//! The only writer to stdout, and beside `progress` the only one to stderr.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::base::secrets::Redactor;
use crate::base::text::colored;
use crate::cli::{Color, variable};
use crate::commands::environment::environment;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Colors {
    pub stdout: bool,
    pub stderr: bool,
}

impl Colors {
    pub(crate) fn of(wish: Color) -> Self {
        let auto = |terminal: bool| terminal && variable("NO_COLOR").is_none();
        match wish {
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
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// The message if a signal ends the command now; empty for none.
static UNFINISHED: Mutex<String> = Mutex::new(String::new());

/// The first error of writing to stdout, if there was one.
pub(crate) fn unwritten() -> Option<&'static str> {
    UNWRITTEN.get().map(String::as_str)
}

/// The message if a signal ends the command now; empty for none.
pub(crate) fn unfinished() -> String {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Runs `work`. A signal that ends the command during it prints `message`.
pub(crate) fn unless_finished<T>(message: String, work: impl FnOnce() -> T) -> T {
    let set = |message| *UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner) = message;
    set(message);
    let done = work();
    set(String::new());
    done
}

/// Secrets that the output of this command must not contain.
static SECRETS: OnceLock<Redactor> = OnceLock::new();

/// Redacts these values, and variables of our environment whose names look like secrets, in all later output.
pub(crate) fn hide_secrets(mut values: Vec<String>) {
    values.extend(environment().secrets());
    SECRETS.get_or_init(|| Redactor::new(values.iter().map(String::as_str)));
}

/// The redactor of this command's output.
pub(crate) fn secrets() -> &'static Redactor {
    SECRETS.get_or_init(Redactor::default)
}

/// Writes to stdout. A closed pipe ends the output without an error; any other error makes the command fail
/// at its end.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out
        .write_all(secrets().redact(text).as_bytes())
        .and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        UNWRITTEN.get_or_init(|| error.to_string());
    }
}

/// Writes to stderr, without control characters. Errors are ignored, because a closed terminal must not stop
/// a measurement.
pub(crate) fn complain(text: &str) {
    let _ = std::io::stderr()
        .lock()
        .write_all(colored(&secrets().redact(text)).as_bytes());
}
