//! Log files that grow while a process runs. Text is written line by line, with secrets redacted.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::{IoContext, Result};
use crate::base::private_files::open_file;
use crate::base::secrets::Redactor;

/// A longer line is written before it ends.
const MAX_LINE_BYTES: usize = 256 << 10;

/// Bytes of such a line that are held back, so that a secret is not split.
const HOLDBACK_BYTES: usize = 8 << 10;

/// Largest size of the log's first file. Later text goes to the tail, of which only the end is kept.
const MAX_HEAD_BYTES: u64 = 64 << 20;

/// Largest size of one tail file. There are two, so that at least this much of the end is always kept.
const MAX_TAIL_BYTES: u64 = 16 << 20;

/// A log file. An incomplete line is held back until its end arrives or the log is dropped; invalid UTF-8
/// becomes `U+FFFD`.
///
/// The size is at most 96 MiB: the first 64 stay in the file, the end continues in `<name>.tail`, and earlier
/// text of the tail is in `<name>.tail-before`.
#[derive(Debug)]
pub(crate) struct Log {
    file: File,
    path: PathBuf,
    redactor: Redactor,
    pending: Vec<u8>,
    /// Bytes in the current file.
    file_bytes: u64,
    limits: LogLimits,
    is_tail: bool,
}

#[derive(Clone, Copy, Debug)]
struct LogLimits {
    head: u64,
    tail: u64,
}

impl Log {
    pub(super) fn open(path: &Path, redactor: &Redactor) -> Result<Self> {
        let file = open_file(OpenOptions::new().create(true).append(true), path).io_context("open", path)?;
        let held = file.metadata().map_or(0, |about| about.len());
        Ok(Self {
            file,
            path: path.to_owned(),
            redactor: redactor.clone(),
            pending: Vec::new(),
            file_bytes: held,
            limits: LogLimits {
                head: MAX_HEAD_BYTES,
                tail: MAX_TAIL_BYTES,
            },
            is_tail: false,
        })
    }

    /// Writes redacted text to the current file.
    fn write_clean(&mut self, text: &[u8]) -> io::Result<()> {
        let limit = match self.is_tail {
            true => self.limits.tail,
            false => self.limits.head,
        };
        if self.file_bytes > 0 && self.file_bytes + text.len() as u64 > limit {
            self.rotate()?;
        }
        self.file_bytes += text.len() as u64;
        self.file.write_all(text)
    }

    /// Continues in an empty tail file.
    fn rotate(&mut self) -> io::Result<()> {
        let tail = sibling(&self.path, "tail");
        match self.is_tail {
            true => std::fs::rename(&tail, sibling(&self.path, "tail-before"))?,
            false => writeln!(
                self.file,
                "[matrix: the log is too long: its end is in `{}` and `{}`, the middle is lost]",
                file_name(&tail),
                file_name(&sibling(&self.path, "tail-before"))
            )?,
        }
        self.file.sync_all()?;
        self.file = open_file(OpenOptions::new().write(true).create(true).truncate(true), &tail)?;
        self.file_bytes = 0;
        self.is_tail = true;
        Ok(())
    }

    fn write_out(&mut self, end: usize) -> io::Result<()> {
        let text = String::from_utf8_lossy(&self.pending[..end]).into_owned();
        self.pending.drain(..end);
        let clean = self.redactor.redact(&text).into_owned();
        self.write_clean(clean.as_bytes())
    }

    /// Writes the line so far except its end, which may be the beginning of a secret.
    fn write_long(&mut self) -> io::Result<()> {
        // Do not split a character whose other bytes have not arrived yet.
        let begun = self
            .pending
            .iter()
            .rev()
            .take(4)
            .position(|byte| byte & 0xC0 != 0x80);
        let (whole, remainder) = self
            .pending
            .split_at(self.pending.len() - begun.map_or(0, |back| back + 1));
        let text = String::from_utf8_lossy(whole);
        let clean = self.redactor.redact(&text);
        let mut cut = clean.len().saturating_sub(HOLDBACK_BYTES);
        while !clean.is_char_boundary(cut) {
            cut -= 1;
        }
        let waiting = [&clean.as_bytes()[cut..], remainder].concat();
        let clean = clean.into_owned();
        self.write_clean(&clean.as_bytes()[..cut])?;
        self.pending = waiting;
        Ok(())
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        // A progress bar ends its lines with a carriage return.
        let end = self
            .pending
            .iter()
            .rposition(|byte| matches!(byte, b'\n' | b'\r'))
            .map_or(0, |last| last + 1);
        if end > 0 {
            self.write_out(end)?;
        }
        if self.pending.len() > MAX_LINE_BYTES {
            self.write_long()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = self.write_out(self.pending.len());
        let _ = self.file.sync_all();
    }
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// The tail files of a log.
pub(super) fn tail_paths(path: &Path) -> [PathBuf; 2] {
    ["tail", "tail-before"].map(|what| sibling(path, what))
}

fn sibling(path: &Path, suffix: &str) -> PathBuf {
    path.with_file_name(format!("{}.{suffix}", file_name(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_leaves_its_beginning_and_its_end_and_takes_no_more_than_it_may() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = Log::open(&path, &Redactor::default()).unwrap();
        log.limits = LogLimits {
            head: 1000,
            tail: 300,
        };
        for number in 0..10_000 {
            writeln!(log, "line {number}").unwrap();
        }
        drop(log);
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        let (head, tail) = (read(path.clone()), read(sibling(&path, "tail")));
        let before = read(sibling(&path, "tail-before"));
        assert!(
            head.starts_with("line 0\nline 1\n") && head.contains("`log.tail`"),
            "{head}"
        );
        assert!(tail.ends_with("line 9999\n"), "{tail}");
        assert!(before.len() as u64 <= 300 && tail.len() as u64 <= 300 && head.len() < 1200);
        let next: u32 = before.lines().last().unwrap()[5..].parse().unwrap();
        assert!(
            tail.starts_with(&format!("line {}\n", next + 1)),
            "nothing is lost between the two"
        );
    }

    #[test]
    fn a_secret_that_arrives_in_pieces_is_still_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let redactor = Redactor::new(["hunter2"]);
        let mut log = Log::open(&path, &redactor).unwrap();
        for piece in ["key hun", "ter2 \rnext", " line\nlast hunt", "er2"] {
            log.write_all(piece.as_bytes()).unwrap();
            log.flush().unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "key *** \rnext line\n");
        drop(log);
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "key *** \rnext line\nlast ***"
        );
    }

    #[test]
    fn a_line_without_end_is_written_and_hides_a_secret_anywhere_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = Log::open(&path, &Redactor::new(["hunter2"])).unwrap();
        let text = "hunter2é".repeat(60_000);
        for piece in text.as_bytes().chunks(4099) {
            log.write_all(piece).unwrap();
            assert!(log.pending.len() <= MAX_LINE_BYTES);
        }
        drop(log);
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(!written.contains("hunter2"));
        assert_eq!(written, "***é".repeat(60_000));
    }
}
