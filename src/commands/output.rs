//! The only writer to stdout and, beside `progress`, to stderr.

use std::io::{ErrorKind, IsTerminal, Write};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::base::secrets::Redactor;
use crate::base::text::colored;
use crate::cli::{Color, variable};
use crate::commands::environment::environment;

/// Whether stdout and stderr are coloured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Colors {
    /// What goes to stdout.
    pub stdout: bool,
    /// What goes to stderr.
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

/// Why stdout could not be written, the first time that it could not.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// The message if a signal ends the command now; empty: none.
static UNFINISHED: Mutex<String> = Mutex::new(String::new());

/// Why stdout could not be written, if so.
pub(crate) fn unwritten() -> Option<&'static str> {
    UNWRITTEN.get().map(String::as_str)
}

/// The message if a signal ends the command now; empty: none.
pub(crate) fn unfinished() -> String {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Does some work; a signal that ends the command before the work is done prints `message`.
pub(crate) fn unless_finished<T>(message: String, work: impl FnOnce() -> T) -> T {
    let set = |message| *UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner) = message;
    set(message);
    let done = work();
    set(String::new());
    done
}

/// The secrets of this command, which nothing that it writes may hold.
static SECRETS: OnceLock<Redactor> = OnceLock::new();

/// Hides these values, and those of our environment whose names are names of secrets, in all that this command writes from now on.
pub(crate) fn hide_secrets(mut values: Vec<String>) {
    values.extend(environment().secrets());
    SECRETS.get_or_init(|| Redactor::new(values.iter().map(String::as_str)));
}

/// What hides the secrets of this command.
pub(crate) fn secrets() -> &'static Redactor {
    SECRETS.get_or_init(Redactor::default)
}

/// Writes to stdout. A reader that went away ends the output and is no failure; for any other reason the command fails in the end.
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

/// Writes to stderr, without control characters of names and other texts from outside; a terminal that went away is no reason to stop measuring.
pub(crate) fn complain(text: &str) {
    let _ = std::io::stderr()
        .lock()
        .write_all(colored(&secrets().redact(text)).as_bytes());
}
