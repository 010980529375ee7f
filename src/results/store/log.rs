//! Logs that grow while something runs: what is written is taken line by line, and no secret passes.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::{Result, Tried};
use crate::base::secrets::Redactor;

/// A line that grows beyond this is written before it ends.
const LONGEST_LINE: usize = 256 << 10;

/// How much of such a line waits for more, lest a secret be cut in two.
const HELD_BACK: usize = 8 << 10;

/// A log file. What has no line end yet waits for it, or for the drop; bytes that are no UTF-8 become `U+FFFD`.
#[derive(Debug)]
pub struct Log {
    file: File,
    redactor: Redactor,
    waiting: Vec<u8>,
}

impl Log {
    pub(super) fn open(path: &Path, redactor: &Redactor) -> Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .tried("open", path)?;
        Ok(Self {
            file,
            redactor: redactor.clone(),
            waiting: Vec::new(),
        })
    }

    fn write_out(&mut self, end: usize) -> io::Result<()> {
        let text = String::from_utf8_lossy(&self.waiting[..end]).into_owned();
        self.waiting.drain(..end);
        self.file.write_all(self.redactor.redact(&text).as_bytes())
    }

    /// Writes the line so far but for its end, which may be the beginning of a secret.
    fn write_long(&mut self) -> io::Result<()> {
        // A letter whose other bytes are still to come stays as it is.
        let begun = self
            .waiting
            .iter()
            .rev()
            .take(4)
            .position(|byte| byte & 0xC0 != 0x80);
        let (whole, rest) = self
            .waiting
            .split_at(self.waiting.len() - begun.map_or(0, |back| back + 1));
        let text = String::from_utf8_lossy(whole);
        let clean = self.redactor.redact(&text);
        let mut cut = clean.len().saturating_sub(HELD_BACK);
        while !clean.is_char_boundary(cut) {
            cut -= 1;
        }
        let waiting = [&clean.as_bytes()[cut..], rest].concat();
        self.file.write_all(&clean.as_bytes()[..cut])?;
        self.waiting = waiting;
        Ok(())
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        // A progress bar ends its lines by a carriage return.
        let end = self
            .waiting
            .iter()
            .rposition(|byte| matches!(byte, b'\n' | b'\r'))
            .map_or(0, |last| last + 1);
        if end > 0 {
            self.write_out(end)?;
        }
        if self.waiting.len() > LONGEST_LINE {
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
        let _ = self.write_out(self.waiting.len());
        let _ = self.file.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(log.waiting.len() <= LONGEST_LINE);
        }
        drop(log);
        let written = std::fs::read_to_string(&path).unwrap();
        assert!(!written.contains("hunter2"));
        assert_eq!(written, "***é".repeat(60_000));
    }
}
