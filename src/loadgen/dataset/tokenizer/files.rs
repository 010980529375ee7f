//! Finds the files of a tokenizer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use crate::base::threads::ThreadLimitError;
use crate::loadgen::dataset::hf_cache::{Caches, Repository, path_lines};

/// Why a tokenizer could not be opened, or failed.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// There is no `tokenizer.json` under this name.
    #[error(
        "no tokenizer found for `{name}`; searched{}\n{}",
        path_lines(searched),
        fix(name)
    )]
    Missing {
        /// The requested name or path.
        name: String,
        /// Every place that was searched.
        searched: Vec<String>,
    },
    /// A file exists and cannot be read.
    #[error("cannot read the tokenizer's file `{}`: {error}", path.display())]
    Unreadable {
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A file exists and is not a valid tokenizer.
    #[error("`{}` is not a valid tokenizer: {reason}; fetch it again", path.display())]
    Invalid {
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The threads that encode texts cannot be started.
    #[error("the threads of the tokenizer cannot be started: {0}")]
    Threads(Arc<ThreadLimitError>),
    /// The tokenizer rejected a text or ids.
    #[error("the tokenizer `{name}` failed: {reason}")]
    Failed {
        name: String,
        /// The message of the library.
        reason: String,
    },
}

/// How to get a missing tokenizer.
fn fix(name: &str) -> String {
    let path = "use the path of a `tokenizer.json` or of its folder (in `matrix bench`, `--tokenizer`)";
    match is_model_id(name) {
        true => format!(
            "fetch it with `matrix fetch --tokenizer {name}`, or use the path of a `tokenizer.json` or of its \
             folder (in `matrix bench`, `--tokenizer`)"
        ),
        false => path.to_owned(),
    }
}

pub(super) fn read_file(path: &Path) -> Result<Vec<u8>, TokenizerError> {
    fs::read(path).map_err(|error| TokenizerError::Unreadable {
        path: path.to_owned(),
        error,
    })
}

/// Returns the path of the `tokenizer.json` for a name or path.
pub(super) fn find_file(name: &str, base: &Path, caches: &Caches) -> Result<PathBuf, TokenizerError> {
    let local_path = base.join(name);
    if local_path.is_file() {
        return Ok(local_path);
    }
    let inside = local_path.join("tokenizer.json");
    if inside.is_file() {
        return Ok(inside);
    }
    let mut searched = vec![local_path.display().to_string(), inside.display().to_string()];
    if is_model_id(name)
        && let Some(cached) = caches.find(Repository::Model, name, "tokenizer.json", &mut searched)
    {
        return Ok(cached);
    }
    Err(TokenizerError::Missing {
        name: name.to_owned(),
        searched,
    })
}

/// Returns true if the name is a path without a tokenizer. It is a path by its form, or because its parent
/// folder holds files. A folder that holds models by their names contains only folders.
pub(crate) fn is_missing_path(name: &str, base: &Path) -> bool {
    let local_path = base.join(name);
    let holds_files = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).any(|path| path.is_file())
    };
    let is_path = !is_model_id(name) || name.contains('/') && local_path.parent().is_some_and(holds_files);
    is_path && !local_path.is_file() && !local_path.join("tokenizer.json").is_file()
}

/// Returns true if the name could be a model on the Hugging Face hub: `gpt2`, `Qwen/Qwen3-8B`.
fn is_model_id(name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    parts.len() <= 2
        && parts
            .iter()
            .all(|part| !part.is_empty() && !part.starts_with('.'))
        && !name.ends_with(".json")
}
