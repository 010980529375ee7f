//! A file per subcommand: the only place that wires wings together and writes to stdout.

pub mod baseline;
pub mod bench;
pub mod bisect;
pub mod calibrate;
pub mod check;
mod check_flags;
pub mod clean;
pub mod compare;
pub mod explain;
pub mod fetch;
mod files;
pub mod history;
pub mod import;
mod rounds;

pub mod init;
mod load_matrix;
pub mod log;
pub mod nightly;
pub mod noise;
pub mod plan;
pub mod report;
pub mod run;

pub mod schema;
pub mod shipped;
pub mod sim;
mod terminal;

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::base::secrets::{Redactor, secret_of};
use crate::base::text::colored;
use crate::base::threads::NoThread;
use crate::cli::{Cli, Color, Command, PullWish, variable, variables};
use crate::config::yaml::{self, Mistake, Source};
use crate::engine;
use crate::exit::Exit;
pub(crate) use load_matrix::{Read, bytes_of, read};

/// What a subcommand ends with: an exit code, or a message and an exit code.
pub type Outcome = Result<Exit, Refusal>;

/// Why a subcommand did not do its work.
#[derive(Debug)]
pub struct Refusal {
    /// The exit code.
    pub exit: Exit,
    /// The whole message, several lines where there are several mistakes.
    pub message: String,
}

impl Refusal {
    /// Wrong flags or files.
    pub fn usage(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Usage,
            message: message.into(),
        }
    }

    /// A place for the answer that cannot be written.
    pub fn unwritable(error: anyhow::Error) -> Self {
        let full = [
            ErrorKind::StorageFull,
            ErrorKind::QuotaExceeded,
            ErrorKind::FileTooLarge,
        ];
        let mut broken = error
            .chain()
            .filter_map(|cause| cause.downcast_ref::<std::io::Error>());
        let is_full = broken.any(|error| full.contains(&error.kind()));
        let message = format!("error: {}\n", causes(&error));
        match is_full {
            true => Self::stuck(message),
            false => Self::usage(message),
        }
    }

    /// A run that was started and cannot go on.
    pub fn stuck(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Stuck,
            message: message.into(),
        }
    }

    /// The same with more text after it.
    #[must_use]
    pub fn beside(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }

    /// A failed preflight.
    pub fn unfit(message: impl Into<String>) -> Self {
        Self {
            exit: Exit::Unfit,
            message: message.into(),
        }
    }
}

impl From<NoThread> for Refusal {
    fn from(error: NoThread) -> Self {
        Self::unfit(format!("error: {error}\nnothing was started\n"))
    }
}

impl From<anyhow::Error> for Refusal {
    fn from(error: anyhow::Error) -> Self {
        Self::unfit(format!("error: {}\n", causes(&error)))
    }
}

/// An error with its causes; one that the sentence before ends with is not said again.
fn causes(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// As [`execute`], and ends at signals even where nothing is measured.
///
/// # Errors
/// As [`execute`].
pub fn supervised(cli: Cli) -> Outcome {
    match crate::runner::shutdown::supervise(|| execute(cli)) {
        Ok(Some(done)) => done,
        Ok(None) => interrupted(),
        Err(error) => Err(error.into()),
    }
}

/// The outcome of a command that a signal ended.
fn interrupted() -> Outcome {
    let message = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    match message.is_empty() {
        true => Ok(Exit::Interrupted),
        false => Err(Refusal {
            exit: Exit::Interrupted,
            message: colored(&secrets().redact(&message)),
        }),
    }
}

/// Does what the command line asks for, and fails where its answer could not be written to stdout.
///
/// # Errors
/// Why it was not done, with the exit code.
pub fn execute(cli: Cli) -> Outcome {
    let outcome = dispatch(cli).map_err(|refusal| Refusal {
        message: colored(&secrets().redact(&refusal.message)),
        ..refusal
    });
    match UNWRITTEN.get() {
        Some(error) => undelivered(outcome, error),
        None => outcome,
    }
}

/// The outcome of a command whose answer was not delivered: only an interruption and a refusal keep their code.
fn undelivered(outcome: Outcome, error: &str) -> Outcome {
    let said = format!("error: stdout cannot be written: {error}\n");
    Err(match outcome {
        Ok(exit) => Refusal {
            exit: if exit == Exit::Interrupted {
                exit
            } else {
                Exit::Stuck
            },
            message: said,
        },
        Err(refusal) => refusal.beside(&said),
    })
}

fn dispatch(cli: Cli) -> Outcome {
    let colors = Colors::of(cli.color);
    match cli.command {
        Command::Check(args) => check::execute(&args, colors),
        Command::Plan(args) => plan::execute(&args, colors),
        Command::Run(args) => run::execute(&args, colors),
        Command::Bench(args) => bench::execute(&args),
        Command::Calibrate(args) => calibrate::execute(&args, colors),
        Command::Report(args) => report::execute(&args, colors),
        Command::Import(args) => import::execute(&args),
        Command::Explain(args) => explain::execute(&args),
        Command::Compare(args) => compare::execute(&args, colors),
        Command::Noise(args) => noise::execute(&args, colors),
        Command::Baseline(args) => baseline::execute(&args, colors),
        Command::Nightly(args) => nightly::execute(&args, colors),
        Command::History(args) => history::execute(&args, colors),
        Command::Bisect(args) => bisect::execute(&args, colors),
        Command::Fetch(args) => fetch::execute(&args, colors),
        Command::Clean => clean::execute(),
        Command::Schema(args) => schema::execute(&args),
        Command::Init(args) => init::execute(&args),
        Command::Sim(args) => sim::execute(*args),
        Command::Shim(args) => sim::supervise(&args),
        Command::Exec(args) => sim::exec(args),
    }
}

/// Whether stdout and stderr are coloured.
#[derive(Clone, Copy, Debug)]
pub struct Colors {
    /// What goes to stdout.
    pub stdout: bool,
    /// What goes to stderr.
    pub stderr: bool,
}

impl Colors {
    fn of(wish: Color) -> Self {
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

/// Where the container daemon is, as the environment tells Docker's own client.
pub(crate) fn whereabouts() -> engine::Whereabouts {
    let home = || Some(PathBuf::from(variable("HOME")?).join(".docker"));
    engine::Whereabouts {
        host: variable("DOCKER_HOST"),
        context: variable("DOCKER_CONTEXT"),
        config: variable("DOCKER_CONFIG").map(PathBuf::from).or_else(home),
        tls_verify: variable("DOCKER_TLS_VERIFY").is_some(),
        tls: variable("DOCKER_TLS").is_some(),
        cert_path: variable("DOCKER_CERT_PATH").map(PathBuf::from),
        path: variable("PATH"),
    }
}

impl From<PullWish> for engine::Pull {
    fn from(wish: PullWish) -> Self {
        match wish {
            PullWish::Never => Self::Never,
            PullWish::Missing => Self::Missing,
            PullWish::Always => Self::Always,
        }
    }
}

/// Why stdout could not be written, the first time that it could not.
static UNWRITTEN: OnceLock<String> = OnceLock::new();

/// The message if a signal ends the command now; empty: none.
static UNFINISHED: Mutex<String> = Mutex::new(String::new());

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
    values.extend(secrets_of_environment());
    SECRETS.get_or_init(|| Redactor::new(values.iter().map(String::as_str)));
}

/// What is secret in our environment.
fn secrets_of_environment() -> Vec<String> {
    let secret = |name: String| Some(secret_of(&name, &variable(&name)?)?.to_owned());
    variables().into_iter().filter_map(secret).collect()
}

/// What hides the secrets of this command.
pub(crate) fn secrets() -> &'static Redactor {
    SECRETS.get_or_init(Redactor::default)
}

/// Writes to stdout. A reader that went away ends the output and is no failure; for any other reason [`execute`] fails in the end.
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

/// All mistakes drawn in the order of their places, with a last line that counts them.
pub(crate) fn refused(mistakes: &[Mistake], sources: &[Source], color: bool) -> Refusal {
    let mut mistakes = mistakes.to_vec();
    mistakes.sort_by_key(|mistake| {
        let place = mistake.place.as_ref();
        let file = place.and_then(|place| sources.iter().position(|source| *source.name == *place.file));
        (
            file.unwrap_or(usize::MAX),
            place.map_or(0, |place| place.range.start),
        )
    });
    let mistakes = &mistakes;
    let count = match mistakes.len() {
        1 => "1 mistake; nothing was started".to_owned(),
        n => format!("{n} mistakes; nothing was started"),
    };
    Refusal::usage(format!(
        "{}\n{count}\n",
        yaml::draw(mistakes, sources, color).trim_end()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_before_some_work_is_done_says_what_is_missing_and_none_afterwards() {
        let ended = unless_finished("write it with: matrix report r\n".to_owned(), interrupted);
        let refusal = ended.expect_err("the work is not done");
        assert_eq!(refusal.exit, Exit::Interrupted);
        assert!(refusal.message.contains("matrix report r"), "{}", refusal.message);
        assert!(matches!(interrupted(), Ok(Exit::Interrupted)));
    }
}
