//! An engine's output: written to the run's log from the first byte, searched for the recipe's log patterns,
//! quoted in errors.
//!
//! A separate thread reads it, so that disk writes never delay the load. The store redacts secrets in the
//! file; this module redacts the lines that it keeps.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;

use crate::base::clock::{self, MonotonicTime};
use crate::base::secrets::Redactor;
use crate::base::text::is_control;
use crate::plan::{FatalPattern, FaultOwner, LogPatterns};
use crate::results::record::cell::FailureClass;
use crate::results::store;

/// Maximum length of a kept line, in bytes.
const MAX_LINE: usize = 64 << 10;

/// Bytes of a longer line that are read for redaction but not kept, so that no partial secret remains at the
/// cut.
const REDACTION_MARGIN: usize = 8 << 10;

/// Maximum size of the text in memory, in bytes.
const MAX_TEXT: usize = 4 << 20;

/// Number of lines that an error quotes.
const TAIL_LINES: usize = 60;

/// Maximum length of a quoted line, in characters.
const MAX_QUOTED_CHARS: usize = 2000;

/// A line that explains why an engine is dead: one that matches an error pattern of the recipe, or a report
/// of the container daemon.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FatalLine {
    /// The pattern of the recipe.
    pub(crate) pattern: FatalPattern,
    pub(crate) line: String,
}

impl FatalLine {
    /// Cause, line and fix, for an error message.
    pub(crate) fn explanation(&self) -> String {
        format!(
            "{} (`{}`); {}",
            self.pattern.means,
            self.line.trim(),
            self.pattern.help
        )
    }

    pub(crate) const fn class(&self) -> FailureClass {
        match self.pattern.fault {
            FaultOwner::Engine => FailureClass::Engine,
            FaultOwner::Capacity => FailureClass::Capacity,
            FaultOwner::Spec => FailureClass::Spec,
        }
    }
}

/// An engine's output so far.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Written by the reader's thread and read by tasks that wait for the engine. Never locked across slow
    /// operations.
    state: Mutex<LogState>,
    status: watch::Sender<LogStatus>,
}

/// State changes that wake waiting tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LogStatus {
    is_fatal: bool,
    is_closed: bool,
}

#[derive(Debug)]
struct LogState {
    patterns: LogPatterns,
    redactor: Redactor,
    lines: VecDeque<String>,
    /// Number of the first line in `lines`.
    first_line: u64,
    text_bytes: usize,
    partial_line: Vec<u8>,
    is_after_return: bool,
    bytes: u64,
    last_output: MonotonicTime,
    phases: Vec<(String, MonotonicTime)>,
    fatal_line: Option<FatalLine>,
}

impl Log {
    /// The empty log of an engine whose output is not available.
    pub(crate) fn silent(redactor: &Redactor) -> Self {
        let log = Self::new(LogPatterns::default(), redactor);
        log.shared.status.send_modify(|stage| stage.is_closed = true);
        log
    }

    /// Reads until all writers have closed the pipe, and copies everything to `sink`.
    ///
    /// Fails if the thread cannot be created.
    pub(crate) fn follow(
        reader: io::PipeReader,
        sink: store::Log,
        patterns: LogPatterns,
        redactor: &Redactor,
    ) -> io::Result<Self> {
        let log = Self::new(patterns, redactor);
        let shared = Arc::clone(&log.shared);
        std::thread::Builder::new()
            .name("engine-log".to_owned())
            .spawn(move || shared.follow(reader, sink))?;
        Ok(log)
    }

    fn new(patterns: LogPatterns, redactor: &Redactor) -> Self {
        let state = LogState {
            patterns,
            redactor: redactor.clone(),
            lines: VecDeque::new(),
            first_line: 0,
            text_bytes: 0,
            partial_line: Vec::new(),
            is_after_return: false,
            bytes: 0,
            last_output: clock::now(),
            phases: Vec::new(),
            fatal_line: None,
        };
        let shared = Shared {
            state: Mutex::new(state),
            status: watch::Sender::new(LogStatus::default()),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The last [`TAIL_LINES`] lines, shortened, for an error message.
    pub(crate) fn tail(&self) -> Vec<String> {
        self.last_lines(TAIL_LINES)
    }

    /// The last `count` lines, shortened, as far as they are in memory.
    pub(crate) fn last_lines(&self, count: usize) -> Vec<String> {
        let state = self.shared.state();
        let from = state.lines.len().saturating_sub(count);
        state
            .lines
            .range(from..)
            .map(|line| line.chars().take(MAX_QUOTED_CHARS).collect())
            .collect()
    }

    /// The last [`TAIL_LINES`] lines that begin with `label`, shortened, as far as they are in memory.
    pub(crate) fn tail_of(&self, label: &str) -> Vec<String> {
        let state = self.shared.state();
        let lines = state.lines.iter().rev().filter(|line| line.starts_with(label));
        let mut lines: Vec<String> = lines
            .take(TAIL_LINES)
            .map(|line| line.chars().take(MAX_QUOTED_CHARS).collect())
            .collect();
        lines.reverse();
        lines
    }

    pub(crate) fn last_line(&self) -> String {
        let state = self.shared.state();
        let last = state.lines.iter().rev().find(|line| !line.trim().is_empty());
        last.map(|line| line.chars().take(MAX_QUOTED_CHARS).collect())
            .unwrap_or_default()
    }

    /// The lines from number `from` on; sets `from` to the next line. Long output is only partly in memory;
    /// the run's log has all of it.
    pub(crate) fn slice_from(&self, from: &mut u64) -> String {
        let state = self.shared.state();
        let mut text = String::new();
        if *from < state.first_line {
            text.push_str(&format!(
                "[{} earlier lines are only in the log file of this start]\n",
                state.first_line - *from
            ));
        }
        let skipped = usize::try_from(from.saturating_sub(state.first_line)).unwrap_or(usize::MAX);
        for line in state.lines.iter().skip(skipped) {
            text.push_str(line);
            text.push('\n');
        }
        *from = state.first_line + state.lines.len() as u64;
        text
    }

    /// How many bytes came so far.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.state().bytes
    }

    /// Time since the last output.
    pub(crate) fn silence(&self) -> Duration {
        let moved = self.shared.state().last_output;
        clock::now().since(moved)
    }

    /// Phases whose pattern a line matched, each with the time of its first match.
    pub(crate) fn phases(&self) -> Vec<(String, MonotonicTime)> {
        self.shared.state().phases.clone()
    }

    /// The line that best explains why the engine is dead: a fatal one, else the first that matches an error
    /// pattern.
    pub(crate) fn fatal_line(&self) -> Option<FatalLine> {
        self.shared.state().fatal_line.clone()
    }

    /// Waits for a line with a fatal pattern, which means that the engine is dead even if its process runs.
    pub(crate) async fn wait_fatal_line(&self) -> FatalLine {
        let mut stage = self.shared.status.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = stage.wait_for(|stage| stage.is_fatal).await;
        self.fatal_line()
            .expect("the fatal line is stored before the stage is reported")
    }

    /// Waits until all writers have closed the pipe and everything is stored, at most for `limit`.
    pub(crate) async fn wait_closed(&self, limit: Duration) {
        let mut stage = self.shared.status.subscribe();
        let _ = tokio::time::timeout(limit, stage.wait_for(|stage| stage.is_closed)).await;
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, LogState> {
        self.state.lock().expect("keeping lines does not panic")
    }

    fn follow(&self, mut reader: io::PipeReader, sink: store::Log) {
        let mut sink = Some(sink);
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            self.push(&buffer[..count]);
            let written = sink
                .as_mut()
                .map_or(Ok(()), |sink| sink.write_all(&buffer[..count]));
            if let Err(error) = written {
                // Keep reading: the engine must not block on a full pipe because our disk is full.
                sink = None;
                self.push(
                    format!("\n[matrix: this log could not be written from here on: {error}]\n").as_bytes(),
                );
            }
        }
        self.finish();
        // Drop writes an incomplete last line, and syncs.
        drop(sink);
        self.status.send_modify(|stage| stage.is_closed = true);
    }

    fn push(&self, bytes: &[u8]) {
        self.update(|state| state.push(bytes));
    }

    /// Ends the last line if it has no line break.
    fn finish(&self) {
        self.update(|state| {
            if !state.partial_line.is_empty() {
                state.end_line();
            }
        });
    }

    fn update(&self, change: impl FnOnce(&mut LogState)) {
        let mut state = self.state();
        change(&mut state);
        let is_fatal = state
            .fatal_line
            .as_ref()
            .is_some_and(|fatal_line| fatal_line.pattern.fatal);
        drop(state);
        self.status
            .send_if_modified(|stage| is_fatal && !std::mem::replace(&mut stage.is_fatal, true));
    }
}

impl LogState {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.last_output = clock::now();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let is_return = rest[end] == b'\r';
            // `\r\n` ends one line, not two. Progress bars end lines with `\r` alone.
            let is_second = end == 0 && self.is_after_return && !is_return;
            self.buffer(&rest[..end]);
            if !is_second {
                self.end_line();
            }
            self.is_after_return = is_return;
            rest = &rest[end + 1..];
        }
        if !rest.is_empty() {
            self.buffer(rest);
            self.is_after_return = false;
        }
    }

    fn buffer(&mut self, bytes: &[u8]) {
        let room = (MAX_LINE + REDACTION_MARGIN).saturating_sub(self.partial_line.len());
        self.partial_line
            .extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self) {
        let is_cut = self.partial_line.len() >= MAX_LINE + REDACTION_MARGIN;
        let text = strip_escapes(&String::from_utf8_lossy(&self.partial_line));
        self.partial_line.clear();
        let mut line = self.redactor.redact(&text).into_owned();
        if is_cut {
            let mut end = line.len().saturating_sub(REDACTION_MARGIN).min(MAX_LINE);
            while !line.is_char_boundary(end) {
                end -= 1;
            }
            line.truncate(end);
            line.push('…');
        }
        self.match_patterns(&line);
        self.text_bytes += line.len() + 1;
        self.lines.push_back(line);
        while self.text_bytes > MAX_TEXT && self.lines.len() > TAIL_LINES {
            self.text_bytes -= self.lines.pop_front().map_or(0, |line| line.len() + 1);
            self.first_line += 1;
        }
    }

    fn match_patterns(&mut self, line: &str) {
        let matched = self
            .patterns
            .phases
            .iter()
            .find(|pattern| line.contains(&pattern.pattern));
        if let Some(pattern) = matched
            && !self.phases.iter().any(|(phase, _)| *phase == pattern.phase)
        {
            self.phases.push((pattern.phase.clone(), self.last_output));
        }
        let outweighs = |pattern: &&FatalPattern| match &self.fatal_line {
            None => true,
            Some(fatal_line) => pattern.fatal && !fatal_line.pattern.fatal,
        };
        let pattern = self
            .patterns
            .dead
            .iter()
            .filter(|pattern| line.contains(&pattern.pattern))
            .find(outweighs);
        if let Some(pattern) = pattern {
            let line = line.chars().take(MAX_QUOTED_CHARS).collect();
            self.fatal_line = Some(FatalLine {
                pattern: pattern.clone(),
                line,
            });
        }
    }
}

/// Removes terminal escape sequences, which would split the words that patterns match.
fn strip_escapes(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' if chars.peek() == Some(&'[') => {
                chars.next();
                while chars.next().is_some_and(|c| !('@'..='~').contains(&c)) {}
            }
            '\t' => clean.push('\t'),
            c if is_control(c) => {}
            c => clean.push(c),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PhasePattern;

    fn log(patterns: LogPatterns) -> Log {
        Log::new(patterns, &Redactor::new(["hunter2"]))
    }

    fn fatal_pattern(pattern: &str, fatal: bool) -> FatalPattern {
        FatalPattern {
            pattern: pattern.into(),
            means: "it broke".into(),
            help: "mend it".into(),
            fatal,
            fault: FaultOwner::Engine,
        }
    }

    #[test]
    fn lines_are_whole_clean_and_without_secrets_however_they_arrive() {
        let log = log(LogPatterns::default());
        for piece in [
            "key hun",
            "ter2\r",
            "\n10%\r20",
            "%\r\x1b[1;36mINFO\x1b[0m \u{7}up",
            "\n\nend",
        ] {
            log.shared.push(piece.as_bytes());
        }
        assert_eq!(log.tail(), ["key ***", "10%", "20%", "INFO up", ""]);
        assert_eq!(log.last_line(), "INFO up");
        let mut from = 3;
        assert_eq!(log.slice_from(&mut from), "INFO up\n\n");
        assert_eq!((from, log.slice_from(&mut from)), (5, String::new()));
    }

    #[test]
    fn a_huge_line_is_cut_and_no_half_secret_stays_at_the_cut() {
        let log = log(LogPatterns::default());
        let huge = "hunter2".repeat(200_000);
        for piece in huge.as_bytes().chunks(4099) {
            log.shared.push(piece);
        }
        log.shared.push(b"\n");
        let mut from = 0;
        let text = log.slice_from(&mut from);
        assert!(text.len() <= MAX_LINE + 8, "{}", text.len());
        assert_eq!(
            text.trim_end_matches("…\n").replace("***", "").trim_matches('*'),
            ""
        );
    }

    #[test]
    fn memory_is_bounded_and_a_slice_says_what_is_missing() {
        let log = log(LogPatterns::default());
        let line = "x".repeat(60_000);
        for _ in 0..100 {
            log.shared.push(format!("{line}\n").as_bytes());
        }
        let mut from = 0;
        let text = log.slice_from(&mut from);
        assert!(text.len() < MAX_TEXT + 100 && text.starts_with('['));
        assert_eq!(from, 100);
    }

    #[tokio::test]
    async fn signs_tell_phases_and_the_cause_of_death() {
        let patterns = LogPatterns {
            configuration: Vec::new(),
            phases: vec![
                PhasePattern {
                    phase: "weights".into(),
                    pattern: "Loading".into(),
                },
                PhasePattern {
                    phase: "graphs".into(),
                    pattern: "Capturing".into(),
                },
            ],
            dead: vec![
                fatal_pattern("out of memory", false),
                fatal_pattern("core died", true),
            ],
        };
        let log = log(patterns);
        log.shared
            .push(b"Loading a\nLoading b\nCapturing\nCUDA out of memory\n");
        let phases: Vec<String> = log.phases().into_iter().map(|(phase, _)| phase).collect();
        assert_eq!(phases, ["weights", "graphs"]);
        assert_eq!(log.fatal_line().unwrap().line, "CUDA out of memory");
        log.shared.push(b"core died\nout of memory again\n");
        assert_eq!(log.wait_fatal_line().await.line, "core died");
    }
}
