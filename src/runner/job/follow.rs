//! Shows the output and the state of a job as they change.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;
use std::time::Duration;

use super::folder::JobFolder;
use super::notice::JobNotice;
use crate::plan::job::files;
use crate::slurm::{JobId, JobState, SlurmError};

/// Interval between queries of the controller, which serves the whole cluster.
pub(super) const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Largest number of bytes that one look shows.
const MAX_CHUNK_BYTES: u64 = 1 << 20;

pub(super) struct Follower {
    stdout: Tail,
    stderr: Tail,
    batch: Tail,
    last_state: String,
    last_failure: String,
    warned: bool,
}

/// A file that grows, and how much of it was shown.
struct Tail {
    path: PathBuf,
    shown: u64,
}

impl Follower {
    /// Shows all output, or what is written from now on.
    pub(super) fn new(folder: &JobFolder, shows_earlier: bool) -> Self {
        let tail = |name: &str| {
            let path = folder.path.join(name);
            let length = || path.metadata().map_or(0, |about| about.len());
            let shown = if shows_earlier { 0 } else { length() };
            Tail { path, shown }
        };
        Self {
            stdout: tail(files::STDOUT),
            stderr: tail(files::STDERR),
            batch: tail(files::BATCH),
            last_state: String::new(),
            last_failure: String::new(),
            warned: false,
        }
    }

    pub(super) fn show_output(&mut self, notice: &dyn Fn(JobNotice<'_>)) {
        while let Some(text) = self.stderr.read() {
            notice(JobNotice::Stderr(&text));
        }
        while let Some(text) = self.batch.read() {
            notice(JobNotice::Stderr(&text));
        }
        while let Some(text) = self.stdout.read() {
            notice(JobNotice::Stdout(&text));
        }
    }

    pub(super) fn show_state(&mut self, job: &JobId, state: &JobState, notice: &dyn Fn(JobNotice<'_>)) {
        self.last_failure.clear();
        let text = state.describe();
        if text != self.last_state {
            notice(JobNotice::Note(format!("job {job} is {text}")));
            self.last_state = text;
        }
        match state.endless_reason() {
            Some(reason) if !self.warned => {
                self.warned = true;
                notice(JobNotice::Warning(format!(
                    "job {job} cannot start until someone changes this: {reason}; cancel the job with `scancel {job}`"
                )));
            }
            _ => {}
        }
    }

    /// Shows that the controller does not respond, once.
    pub(super) fn show_failure(&mut self, error: &SlurmError, notice: &dyn Fn(JobNotice<'_>)) {
        let text = error.to_string();
        if text != self.last_failure {
            notice(JobNotice::Warning(format!(
                "{text}\n  = note: `matrix` asks the Slurm controller again every {}s",
                POLL_INTERVAL.as_secs()
            )));
            self.last_failure = text;
        }
    }
}

impl Tail {
    /// The whole lines that were added; `None` if there are none. A file that became shorter is shown from its
    /// beginning.
    fn read(&mut self) -> Option<String> {
        let mut file = File::open(&self.path).ok()?;
        let length = file.metadata().ok()?.len();
        if length < self.shown {
            self.shown = 0;
        }
        file.seek(SeekFrom::Start(self.shown)).ok()?;
        let mut bytes = Vec::new();
        file.take(MAX_CHUNK_BYTES).read_to_end(&mut bytes).ok()?;
        let is_full = bytes.len() as u64 == MAX_CHUNK_BYTES;
        let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            None if is_full => bytes.len(),
            None => return None,
        };
        self.shown += whole as u64;
        Some(String::from_utf8_lossy(&bytes[..whole]).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_lines_are_shown_once_and_a_new_file_from_its_beginning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stdout");
        let mut tail = Tail {
            path: path.clone(),
            shown: 0,
        };
        assert_eq!(tail.read(), None);
        std::fs::write(&path, "a\nb").unwrap();
        assert_eq!(tail.read().as_deref(), Some("a\n"));
        assert_eq!(tail.read(), None);
        std::fs::write(&path, "a\nbc\nd\n").unwrap();
        assert_eq!(tail.read().as_deref(), Some("bc\nd\n"));
        std::fs::write(&path, "e\n").unwrap();
        assert_eq!(tail.read().as_deref(), Some("e\n"));
    }
}
