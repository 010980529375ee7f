//! Looks up programs.

use std::path::{Path, PathBuf};

use crate::base::secrets::Redactor;

#[derive(Debug, thiserror::Error)]
#[error(
    "the program `{program}` was not found in {searched}; install it, or set `venv:` to the Python environment that contains it"
)]
pub(crate) struct ProgramNotFound {
    pub(crate) program: String,
    /// Where it was looked up.
    pub(crate) searched: String,
}

/// The file of a program: looked up in `path`, or, if it contains a slash, relative to the working directory.
pub(super) fn find_program(
    program: &str,
    path: &str,
    dir: Option<&Path>,
    redactor: &Redactor,
) -> Result<PathBuf, ProgramNotFound> {
    let missing = |searched: String| ProgramNotFound {
        program: redactor.redact(program).into_owned(),
        searched: redactor.redact(&searched).into_owned(),
    };
    if program.contains('/') {
        let file = dir.unwrap_or(Path::new("")).join(program);
        let absolute = std::path::absolute(&file).unwrap_or(file);
        return match is_executable(&absolute) {
            true => Ok(absolute),
            false => Err(missing(format!("{}, or is not executable", absolute.display()))),
        };
    }
    path.split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| Path::new(folder).join(program))
        .find(|file| is_executable(file))
        .ok_or_else(|| {
            missing(if path.is_empty() {
                "an empty PATH".into()
            } else {
                format!("PATH ({path})")
            })
        })
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
