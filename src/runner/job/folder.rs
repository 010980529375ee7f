//! The folder of a job, beside the runs: its script, its number, its output and its exit code.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::base::clock;
use crate::base::ids::RunId;
use crate::plan::job::files;
use crate::slurm::JobId;

/// The folder of all jobs, beside the runs.
const JOBS: &str = "jobs";
/// The exit code of a run that a signal stopped: its job may be started again.
const INTERRUPTED: u8 = 130;
/// Number of names that are tried for a new folder.
const MAX_TRIES: u32 = 100;

pub(crate) struct JobFolder {
    pub(crate) path: PathBuf,
}

impl JobFolder {
    pub(crate) fn parent(results: &Path) -> PathBuf {
        results.join(JOBS)
    }

    /// Creates the folder of a new job.
    pub(super) fn create(results: &Path, matrix: &str) -> io::Result<Self> {
        let parent = Self::parent(results);
        fs::create_dir_all(&parent)?;
        let parent = fs::canonicalize(parent)?;
        let stamp = clock::stamp();
        for number in 1..=MAX_TRIES {
            let name = match number {
                1 => format!("{matrix}-{stamp}"),
                more => format!("{matrix}-{stamp}-{more}"),
            };
            let path = parent.join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "too many jobs began in this second",
        ))
    }

    /// The newest folder of a job of that matrix which executes this run; `latest` is any run.
    pub(super) fn find(results: &Path, matrix: &str, run: &str) -> Option<Self> {
        let parent = fs::canonicalize(Self::parent(results)).ok()?;
        let wanted = Path::new(run).file_name()?.to_str()?;
        let mut paths: Vec<PathBuf> = fs::read_dir(parent)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .unwrap_or_default();
                name.strip_prefix(matrix)
                    .is_some_and(|rest| rest.starts_with('-'))
            })
            .filter(|path| wanted == "latest" || recorded_run(path).as_deref() == Some(wanted))
            .collect();
        paths.sort();
        paths.pop().map(|path| Self { path })
    }

    pub(super) fn write_script(&self, text: &str) -> io::Result<()> {
        fs::write(self.path.join(files::SCRIPT), text)
    }

    /// Records the number of the job.
    pub(super) fn note_submission(&self, job: &JobId) -> io::Result<()> {
        let text = format!(
            "{}\n",
            json!({ "job": job.as_str(), "submitted": clock::timestamp() })
        );
        write_whole(&self.path.join(files::SUBMISSION), &text)
    }

    /// The number of the job, if it was recorded.
    pub(super) fn submitted(&self) -> Option<JobId> {
        let text = fs::read_to_string(self.path.join(files::SUBMISSION)).ok()?;
        let value: Value = serde_json::from_str(&text).ok()?;
        JobId::parse(value["job"].as_str()?)
    }

    /// The exit code of the run, once it ended.
    pub(super) fn exit(&self) -> Option<u8> {
        let text = fs::read_to_string(self.path.join(files::EXIT)).ok()?;
        text.trim().parse().ok()
    }

    /// The exit code of a run that will not be started again by the scheduler.
    pub(super) fn final_exit(&self) -> Option<u8> {
        self.exit().filter(|code| *code != INTERRUPTED)
    }

    /// Removes the folder of a job that was not submitted.
    pub(super) fn discard(&self) {
        // If this fails, the folder has only the script.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The run that the job in this folder executes.
pub(crate) fn recorded_run(folder: &Path) -> Option<String> {
    let text = fs::read_to_string(folder.join(files::RUN)).ok()?;
    let run = text.trim();
    (!run.is_empty()).then(|| run.to_owned())
}

/// Records the run that the job in this folder executes.
pub(crate) fn record_run(folder: &Path, run: &RunId) -> io::Result<()> {
    write_whole(&folder.join(files::RUN), &format!("{run}\n"))
}

/// Records the exit code of the run.
pub(crate) fn record_exit(folder: &Path, code: u8) -> io::Result<()> {
    write_whole(&folder.join(files::EXIT), &format!("{code}\n"))
}

/// Writes a file so that readers see all of it or nothing.
fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let partial = path.with_extension("partial");
    fs::write(&partial, text)?;
    fs::rename(partial, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_job_of_a_run_is_found() {
        let results = tempfile::tempdir().unwrap();
        let first = JobFolder::create(results.path(), "m").unwrap();
        let second = JobFolder::create(results.path(), "m").unwrap();
        let other = JobFolder::create(results.path(), "m2").unwrap();
        assert!(first.path != second.path && second.path != other.path);
        record_run(&first.path, &RunId::new("r-1")).unwrap();
        let found = |run| JobFolder::find(results.path(), "m", run).map(|folder| folder.path);
        assert_eq!(found("latest"), Some(second.path));
        assert_eq!(found("r-1"), Some(first.path.clone()));
        assert_eq!(found("results/r-1"), Some(first.path.clone()));
        assert_eq!(found("r-2"), None);
        assert_eq!(first.submitted(), None);
        first.note_submission(&JobId::parse("12").unwrap()).unwrap();
        assert_eq!(first.submitted(), JobId::parse("12"));
        assert_eq!(first.exit(), None);
        record_exit(&first.path, 130).unwrap();
        assert_eq!((first.exit(), first.final_exit()), (Some(130), None));
    }
}
