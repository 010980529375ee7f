//! The folder of a job, beside the runs: its script, its number, its output and its exit code.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::command::JobCommand;
use crate::base::clock;
use crate::base::ids::{ContentHash, RunId};
use crate::config::cluster::{ClusterProfile, JobPer};
use crate::plan::job::files;
use crate::slurm::JobId;

/// The folder of all jobs, beside the runs.
const JOBS: &str = "jobs";
/// The exit code of a run that a signal stopped: its job may be started again.
const INTERRUPTED: u8 = 130;
/// The message about a job that ended before it ran the program.
pub(crate) const ENDED_IN_PROLOG: &str = "the job did not start `matrix`: a line of `prolog` of the profile, such as `exit`, may have ended the job";
/// How an error begins.
const ERROR: &str = "error: ";
/// Largest number of lines that are quoted below the first one of an error.
const MAX_NOTES: usize = 10;
/// Number of names that are tried for a new folder.
const MAX_TRIES: u32 = 100;

pub(crate) struct JobFolder {
    pub(crate) path: PathBuf,
}

impl JobFolder {
    pub(crate) fn parent(results: &Path) -> PathBuf {
        results.join(JOBS)
    }

    /// Creates the folder of a new job that executes this command, or of the jobs that each measure a start for it.
    pub(super) fn create(
        results: &Path,
        matrix: &str,
        command: JobCommand,
        job_per: JobPer,
    ) -> io::Result<Self> {
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
                Ok(()) => {
                    let text = format!("{}\n", request_json(matrix, command, job_per));
                    write_whole(&path.join(files::REQUEST), &text)?;
                    return Ok(Self { path });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "too many jobs were submitted in the same second",
        ))
    }

    /// The newest folder of a job that executes this command with this run of the matrix; `latest` is any run.
    pub(super) fn find(results: &Path, matrix: &str, command: JobCommand, run: &str) -> Option<Self> {
        Self::all(results, matrix, command, JobPer::Run, run).pop()
    }

    /// The folders of the jobs that execute this command with this run of the matrix, the oldest first; `latest` is any run.
    pub(super) fn all(
        results: &Path,
        matrix: &str,
        command: JobCommand,
        job_per: JobPer,
        run: &str,
    ) -> Vec<Self> {
        let wanted = Path::new(run).file_name().and_then(|name| name.to_str());
        let request = request_json(matrix, command, job_per);
        let is_wanted = |path: &PathBuf| {
            read_json(&path.join(files::REQUEST)).as_ref() == Some(&request)
                && (wanted == Some("latest") || wanted.is_some() && recorded_run(path).as_deref() == wanted)
        };
        let parent = fs::canonicalize(Self::parent(results)).and_then(fs::read_dir);
        let entries = parent.into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_wanted).collect();
        paths.sort();
        paths.into_iter().map(|path| Self { path }).collect()
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
        let value = read_json(&self.path.join(files::SUBMISSION))?;
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

    /// The last lines that the run or its batch shell wrote to standard error, as notes of a message.
    pub(super) fn last_errors(&self, count: usize) -> String {
        let read = |name| fs::read_to_string(self.path.join(name)).unwrap_or_default();
        let text = [read(files::STDERR), read(files::BATCH)].concat();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = lines.iter().skip(lines.len().saturating_sub(count));
        last.map(|line| format!("\n  | {line}")).collect()
    }

    /// The first error that the run or its batch shell wrote to standard error.
    pub(super) fn first_error(&self) -> Option<QuotedError> {
        let read = |name| fs::read_to_string(self.path.join(name)).unwrap_or_default();
        QuotedError::find(&[read(files::STDERR), read(files::BATCH)].concat())
    }

    /// What a job wrote that ended before it ran the program: its error, or else its last line.
    pub(super) fn prolog_error(&self) -> QuotedError {
        let last = || {
            fs::read_to_string(self.path.join(files::BATCH))
                .ok()?
                .lines()
                .rev()
                .find_map(|line| {
                    let line = line.trim();
                    (!line.is_empty()).then(|| format!("{ENDED_IN_PROLOG}: {line}"))
                })
        };
        self.first_error().unwrap_or_else(|| QuotedError {
            text: last().unwrap_or_else(|| ENDED_IN_PROLOG.to_owned()),
            notes: String::new(),
        })
    }

    /// Whether the job ended before it ran the program, perhaps by a line of its prolog.
    pub(super) fn may_have_ended_in_prolog(&self, profile: &ClusterProfile) -> bool {
        may_have_ended_in_prolog(&self.path, profile)
    }

    /// Whether the run or its batch shell wrote a line with this text to standard error.
    pub(super) fn says(&self, text: &str) -> bool {
        fs::read_to_string(self.path.join(files::STDERR)).is_ok_and(|written| written.contains(text))
    }

    /// Removes the folder of a job that was not submitted.
    pub(super) fn discard(&self) {
        // If this fails, the folder has only the script.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// What the folder of a job records about its command. The name of the folder alone does not tell the matrices `a` and
/// `a-b` apart.
fn request_json(matrix: &str, command: JobCommand, job_per: JobPer) -> Value {
    match job_per {
        JobPer::Run => json!({ "command": command.name(), "matrix": matrix }),
        JobPer::Launch => json!({ "command": command.name(), "matrix": matrix, "job_per": "launch" }),
    }
}

/// Whether a command with this matrix submitted the job in this folder.
pub(super) fn is_of_matrix(folder: &Path, matrix: &str) -> bool {
    read_json(&folder.join(files::REQUEST)).is_some_and(|request| request["matrix"] == matrix)
}

pub(super) fn read_json(path: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
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

/// Records the digest of the matrix and its recipes.
pub(super) fn record_sources(folder: &Path, sources: &ContentHash) -> io::Result<()> {
    write_whole(&folder.join(files::SOURCES), &format!("{sources}\n"))
}

/// The digest of the matrix and its recipes when the job in this folder was submitted.
pub(crate) fn recorded_sources(folder: &Path) -> Option<String> {
    let text = fs::read_to_string(folder.join(files::SOURCES)).ok()?;
    Some(text.trim().to_owned())
}

/// Records the exit code of the run.
pub(crate) fn record_exit(folder: &Path, code: u8) -> io::Result<()> {
    write_whole(&folder.join(files::EXIT), &format!("{code}\n"))
}

/// Whether the job in this folder ended before it ran the program, perhaps by a line of its prolog.
pub(crate) fn may_have_ended_in_prolog(folder: &Path, profile: &ClusterProfile) -> bool {
    // The script creates the file for the program, after the prolog.
    !profile.prolog.is_empty() && !folder.join(files::STDOUT).exists()
}

/// An error that a job wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QuotedError {
    /// Its first line, without `error: `.
    pub(crate) text: String,
    /// The indented lines below it, each after a line break.
    pub(crate) notes: String,
}

impl QuotedError {
    fn find(written: &str) -> Option<Self> {
        let mut lines = written.lines().skip_while(|line| !line.starts_with(ERROR));
        let text = lines.next()?.strip_prefix(ERROR)?.to_owned();
        let notes = lines.take_while(|line| line.starts_with("  ")).take(MAX_NOTES);
        Some(Self {
            text,
            notes: notes.map(|line| format!("\n{line}")).collect(),
        })
    }

    /// Whether both have the same cause, perhaps on different nodes. Numbers do not matter, because they may be those of the jobs.
    pub(super) fn is_same_cause(&self, other: &Self) -> bool {
        let without_names = |text: &str| -> Vec<String> {
            let words: Vec<&str> = text.split(' ').collect();
            let is_node = |at: usize| at >= 2 && words[at - 2..at] == ["the", "node"];
            let kept = words.iter().enumerate().filter(|(at, _)| !is_node(*at));
            kept.map(|(_, word)| word.replace(|letter: char| letter.is_ascii_digit(), ""))
                .collect()
        };
        without_names(&self.text) == without_names(&other.text)
    }
}

/// Writes a file so that readers see all of it or nothing.
pub(super) fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let partial = path.with_extension("partial");
    fs::write(&partial, text)?;
    fs::rename(partial, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_job_of_a_run_is_found_and_none_of_another_matrix_or_command() {
        let results = tempfile::tempdir().unwrap();
        let create =
            |matrix, command| JobFolder::create(results.path(), matrix, command, JobPer::Run).unwrap();
        let first = create("m", JobCommand::Run);
        let second = create("m", JobCommand::Run);
        let other = create("m-large", JobCommand::Run);
        let night = create("m", JobCommand::Nightly);
        assert!(first.path != second.path && second.path != other.path);
        record_run(&first.path, &RunId::new("r-1")).unwrap();
        let found_for =
            |command, run| JobFolder::find(results.path(), "m", command, run).map(|folder| folder.path);
        let found = |run| found_for(JobCommand::Run, run);
        assert_eq!(found_for(JobCommand::Nightly, "latest"), Some(night.path));
        assert_eq!(found_for(JobCommand::Nightly, "r-1"), None);
        assert_eq!(found_for(JobCommand::Noise, "latest"), None);
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

    #[test]
    fn the_first_error_is_quoted_with_its_help_and_is_the_same_on_another_node() {
        let written = |node: &str| {
            format!(
                "note: a\nerror: the node {node} has no GPU 3\n  = help: request it\nerror: b\nnothing was started\n"
            )
        };
        let found = QuotedError::find(&written("n1")).unwrap();
        assert_eq!(found.text, "the node n1 has no GPU 3");
        assert_eq!(found.notes, "\n  = help: request it");
        assert!(found.is_same_cause(&QuotedError::find(&written("n2")).unwrap()));
        assert!(!found.is_same_cause(&QuotedError::find("error: b\n").unwrap()));
        let of_job = |job: &str| QuotedError::find(&format!("error: no scratch /scratch/{job}/x\n")).unwrap();
        assert!(of_job("99").is_same_cause(&of_job("100")));
        assert_eq!(QuotedError::find("warning: error: c\n"), None);
    }
}
