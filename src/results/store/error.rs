//! Errors of the store.

use std::io;
use std::path::{Path, PathBuf};

use crate::base::text::shown_path;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The run exists already.
    #[error("`{}` exists; a run is never overwritten: continue it with `--resume`, or choose another name", path.display())]
    Exists { path: PathBuf },
    /// The folder holds no run.
    #[error("`{}` is not a run: it has no `run.json`; name a folder of a run below the results folder", path.display())]
    NoRun { path: PathBuf },
    /// The newest run of a matrix cannot be read, so that "newest" would mean an older one.
    #[error(
        "the newest run of `{matrix}` cannot be read: {source}\n  = help: name the run to use, or move the folder of the damaged run elsewhere"
    )]
    DamagedNewest { matrix: String, source: Box<StoreError> },
    /// No run or matrix has this name.
    #[error("no run `{}` found: this is not the folder of a run, and `{}` has no run and no matrix with \
        this name; use `--results` for another results folder{}", shown_name(name), root.display(), suggestion(near.as_deref()))]
    UnknownName {
        /// The name that was asked for.
        name: String,
        root: PathBuf,
        /// The nearest name of a run or a matrix.
        near: Option<String>,
    },
    /// Another process writes the run.
    #[error("`{}` is being written by {}; wait until that process has ended, or stop it", path.display(), describe_owner(*pid, place.as_deref()))]
    Locked {
        path: PathBuf,
        /// The process id, if the writer recorded it.
        pid: Option<u32>,
        /// The job and the node of the writer, if it recorded them.
        place: Option<String>,
    },
    /// A newer `matrix` wrote the run.
    #[error("`{}` has format {theirs}, but this `matrix` reads formats up to {ours}; use a newer `matrix`", path.display())]
    Newer {
        /// The file with the newer format.
        path: PathBuf,
        /// Format of the file.
        theirs: u32,
        /// Newest format that this `matrix` reads.
        ours: u32,
    },
    /// A file of the run is missing.
    #[error("`{}` is missing; {help}", path.display())]
    Missing {
        path: PathBuf,
        /// How to fix it.
        help: &'static str,
    },
    /// The content of a file is invalid.
    #[error("`{}` is not valid: {why}; restore it from a backup, or remove the run", path.display())]
    Malformed { path: PathBuf, why: String },
    /// The content of a baseline file is invalid.
    #[error("`{}` is not a valid baseline: {why}; name a run or a file written by `matrix baseline set`, or \
        restore that file from a backup", path.display())]
    MalformedBaseline { path: PathBuf, why: String },
    /// A name that is not a plain file name or is reserved by the store.
    #[error(
        "`{}` cannot be the name of {what}; use at most 200 letters, digits, `.`, `-` and `_`, and no name \
         that is reserved in the results folder",
        shown_name(name)
    )]
    InvalidName {
        name: String,
        /// What was to be named.
        what: &'static str,
    },
    /// The run's folder was moved or removed while it was open.
    #[error("the folder of the run, `{}`, was {} during the run", path.display(), describe_move(now.as_deref()))]
    Moved {
        path: PathBuf,
        /// The current path; `None` if the folder was removed.
        now: Option<PathBuf>,
    },
    /// An operation of the file system failed.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    Io {
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        source: io::Error,
    },
}

pub(crate) type Result<T> = std::result::Result<T, StoreError>;

/// A name as messages have it: a name that was typed or read may hold control characters, which a terminal acts on.
fn shown_name(name: &str) -> String {
    shown_path(Path::new(name))
}

fn suggestion(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

fn describe_move(now: Option<&Path>) -> String {
    now.map_or_else(
        || "removed".to_owned(),
        |now| format!("moved to `{}`", now.display()),
    )
}

fn describe_owner(pid: Option<u32>, place: Option<&str>) -> String {
    let process = pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"));
    match place {
        Some(place) => format!("{process} of {place}"),
        None => process,
    }
}

/// Adds operation and path to an I/O error.
pub(crate) trait IoContext<T> {
    fn io_context(self, doing: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn io_context(self, doing: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| StoreError::Io {
            doing,
            path: path.to_owned(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_a_name_are_escaped() {
        let name = "a\u{1b}[31mred".to_owned();
        let invalid = StoreError::InvalidName {
            name: name.clone(),
            what: "a run",
        };
        let unknown = StoreError::UnknownName {
            name,
            root: PathBuf::from("results"),
            near: None,
        };
        for error in [invalid, unknown] {
            let text = error.to_string();
            assert!(text.contains("`a\\u{1b}[31mred`"), "{text:?}");
            assert!(!text.contains('\u{1b}'), "{text:?}");
        }
    }
}
