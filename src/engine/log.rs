//! What an engine says: kept in the run's log from the first byte, watched for signs, quoted in errors.
//!
//! A thread of its own reads it, so that writing to disk never delays the load. Secrets leave neither the file (which the store
//! cleans) nor the lines that are quoted from here.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::watch;

use crate::base::clock::{self, Moment};
use crate::base::secrets::Redactor;
use crate::base::text::is_control;
use crate::plan::{Blame, DeadSign, Signs};
use crate::results::record::cell::FailureClass;
use crate::results::store;

/// What is kept of one line.
const LONGEST_LINE: usize = 64 << 10;

/// How much of a longer line is looked at and not kept, lest half a secret stay at the cut.
const MARGIN: usize = 8 << 10;

/// How much of the text is kept in memory.
const MOST_TEXT: usize = 4 << 20;

/// How many lines an error quotes.
const TAIL: usize = 60;

/// How much of a line an error quotes, in characters.
const QUOTED: usize = 2000;

/// A line that tells why an engine is dead, or that it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Omen {
    /// What the recipe says about it.
    pub sign: DeadSign,
    pub line: String,
}

impl Omen {
    /// What it means and what to try, with the line itself.
    pub(crate) fn explains(&self) -> String {
        format!("{} (`{}`); {}", self.sign.means, self.line.trim(), self.sign.help)
    }

    /// Whose fault it is.
    pub(crate) const fn class(&self) -> FailureClass {
        match self.sign.blame {
            Blame::Engine => FailureClass::Engine,
            Blame::Capacity => FailureClass::Capacity,
            Blame::Spec => FailureClass::Spec,
        }
    }
}

/// What an engine has said so far.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The reader's thread writes it, whoever waits for the engine reads it; never held across anything slow.
    state: Mutex<State>,
    stage: watch::Sender<Stage>,
}

/// What is worth waking somebody for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Stage {
    is_fatal: bool,
    is_over: bool,
}

#[derive(Debug)]
struct State {
    signs: Signs,
    redactor: Redactor,
    lines: VecDeque<String>,
    /// The number of the first line in `lines`.
    first: u64,
    text: usize,
    pending: Vec<u8>,
    is_after_return: bool,
    bytes: u64,
    moved: Moment,
    phases: Vec<(String, Moment)>,
    omen: Option<Omen>,
}

impl Log {
    /// The log of something that says nothing to us.
    pub(crate) fn silent(redactor: &Redactor) -> Self {
        let log = Self::new(Signs::default(), redactor);
        log.shared.stage.send_modify(|stage| stage.is_over = true);
        log
    }

    /// Reads until whoever writes has ended, and keeps all of it in `sink`.
    ///
    /// # Errors
    /// No thread can be had.
    pub(crate) fn follow(
        reader: io::PipeReader,
        sink: store::Log,
        signs: Signs,
        redactor: &Redactor,
    ) -> io::Result<Self> {
        let log = Self::new(signs, redactor);
        let shared = Arc::clone(&log.shared);
        std::thread::Builder::new()
            .name("engine-log".to_owned())
            .spawn(move || shared.follow(reader, sink))?;
        Ok(log)
    }

    fn new(signs: Signs, redactor: &Redactor) -> Self {
        let state = State {
            signs,
            redactor: redactor.clone(),
            lines: VecDeque::new(),
            first: 0,
            text: 0,
            pending: Vec::new(),
            is_after_return: false,
            bytes: 0,
            moved: clock::now(),
            phases: Vec::new(),
            omen: None,
        };
        let shared = Shared {
            state: Mutex::new(state),
            stage: watch::Sender::new(Stage::default()),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The last lines, shortened: what an error quotes.
    pub(crate) fn tail(&self) -> Vec<String> {
        self.last(TAIL)
    }

    /// The last `count` lines, shortened, as far as they are at hand.
    pub(crate) fn last(&self, count: usize) -> Vec<String> {
        let state = self.shared.state();
        let from = state.lines.len().saturating_sub(count);
        state
            .lines
            .range(from..)
            .map(|line| line.chars().take(QUOTED).collect())
            .collect()
    }

    /// The last line that is not empty.
    pub(crate) fn last_line(&self) -> String {
        let state = self.shared.state();
        let last = state.lines.iter().rev().find(|line| !line.trim().is_empty());
        last.map(|line| line.chars().take(QUOTED).collect())
            .unwrap_or_default()
    }

    /// The lines from the `from`th on, and moves `from` behind them. Of very much text only the end is at hand; the run's own
    /// log has all of it.
    pub(crate) fn slice_from(&self, from: &mut u64) -> String {
        let state = self.shared.state();
        let mut text = String::new();
        if *from < state.first {
            text.push_str(&format!(
                "[{} earlier lines are only in the log of the start]\n",
                state.first - *from
            ));
        }
        let skipped = usize::try_from(from.saturating_sub(state.first)).unwrap_or(usize::MAX);
        for line in state.lines.iter().skip(skipped) {
            text.push_str(line);
            text.push('\n');
        }
        *from = state.first + state.lines.len() as u64;
        text
    }

    /// How many bytes came so far.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.state().bytes
    }

    /// How long nothing has come.
    pub(crate) fn silence(&self) -> Duration {
        let moved = self.shared.state().moved;
        clock::now().since(moved)
    }

    /// The phases that its lines told, each with the moment it was first told.
    pub(crate) fn phases(&self) -> Vec<(String, Moment)> {
        self.shared.state().phases.clone()
    }

    /// The line that explains best why the engine is dead: a fatal one, else the first that the recipe knows.
    pub(crate) fn omen(&self) -> Option<Omen> {
        self.shared.state().omen.clone()
    }

    /// Waits for a line that means that the engine is dead, whatever its process does.
    pub(crate) async fn fatal(&self) -> Omen {
        let mut stage = self.shared.stage.subscribe();
        // The sender lives in `self`: waiting cannot fail.
        let _ = stage.wait_for(|stage| stage.is_fatal).await;
        self.omen().expect("a fatal stage is told after its omen is kept")
    }

    /// Waits until nobody can write any more and all is kept, but no longer than `limit`.
    pub(crate) async fn over(&self, limit: Duration) {
        let mut stage = self.shared.stage.subscribe();
        let _ = tokio::time::timeout(limit, stage.wait_for(|stage| stage.is_over)).await;
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
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
            self.take(&buffer[..count]);
            let written = sink
                .as_mut()
                .map_or(Ok(()), |sink| sink.write_all(&buffer[..count]));
            if let Err(error) = written {
                // The engine must not block on a full pipe because our disk is full: go on reading.
                sink = None;
                self.take(
                    format!("\n[matrix: this log could not be kept from here on: {error}]\n").as_bytes(),
                );
            }
        }
        self.finish();
        // Its drop writes what waits for a line end, and syncs.
        drop(sink);
        self.stage.send_modify(|stage| stage.is_over = true);
    }

    fn take(&self, bytes: &[u8]) {
        self.change(|state| state.take(bytes));
    }

    /// The last line may have no end.
    fn finish(&self) {
        self.change(|state| {
            if !state.pending.is_empty() {
                state.end_line();
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.state();
        change(&mut state);
        let is_fatal = state.omen.as_ref().is_some_and(|omen| omen.sign.fatal);
        drop(state);
        self.stage
            .send_if_modified(|stage| is_fatal && !std::mem::replace(&mut stage.is_fatal, true));
    }
}

impl State {
    fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.moved = clock::now();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let is_return = rest[end] == b'\r';
            // `\r\n` ends one line, not two; a progress bar ends its lines by `\r` alone.
            let is_second = end == 0 && self.is_after_return && !is_return;
            self.hold(&rest[..end]);
            if !is_second {
                self.end_line();
            }
            self.is_after_return = is_return;
            rest = &rest[end + 1..];
        }
        if !rest.is_empty() {
            self.hold(rest);
            self.is_after_return = false;
        }
    }

    fn hold(&mut self, bytes: &[u8]) {
        let room = (LONGEST_LINE + MARGIN).saturating_sub(self.pending.len());
        self.pending.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn end_line(&mut self) {
        let is_cut = self.pending.len() >= LONGEST_LINE + MARGIN;
        let text = without_colors(&String::from_utf8_lossy(&self.pending));
        self.pending.clear();
        let mut line = self.redactor.redact(&text).into_owned();
        if is_cut {
            let mut end = line.len().saturating_sub(MARGIN).min(LONGEST_LINE);
            while !line.is_char_boundary(end) {
                end -= 1;
            }
            line.truncate(end);
            line.push('…');
        }
        self.heed(&line);
        self.text += line.len() + 1;
        self.lines.push_back(line);
        while self.text > MOST_TEXT && self.lines.len() > TAIL {
            self.text -= self.lines.pop_front().map_or(0, |line| line.len() + 1);
            self.first += 1;
        }
    }

    fn heed(&mut self, line: &str) {
        let told = self.signs.phases.iter().find(|sign| line.contains(&sign.pattern));
        if let Some(sign) = told
            && !self.phases.iter().any(|(phase, _)| *phase == sign.phase)
        {
            self.phases.push((sign.phase.clone(), self.moved));
        }
        let outweighs = |sign: &&DeadSign| match &self.omen {
            None => true,
            Some(omen) => sign.fatal && !omen.sign.fatal,
        };
        let sign = self
            .signs
            .dead
            .iter()
            .filter(|sign| line.contains(&sign.pattern))
            .find(outweighs);
        if let Some(sign) = sign {
            let line = line.chars().take(QUOTED).collect();
            self.omen = Some(Omen {
                sign: sign.clone(),
                line,
            });
        }
    }
}

/// The text without the escape sequences that colour it on a terminal: they would part the words that signs look for.
fn without_colors(text: &str) -> String {
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
    use crate::plan::PhaseSign;

    fn log(signs: Signs) -> Log {
        Log::new(signs, &Redactor::new(["hunter2"]))
    }

    fn dead(pattern: &str, fatal: bool) -> DeadSign {
        DeadSign {
            pattern: pattern.into(),
            means: "it broke".into(),
            help: "mend it".into(),
            fatal,
            blame: Blame::Engine,
        }
    }

    #[test]
    fn lines_are_whole_clean_and_without_secrets_however_they_arrive() {
        let log = log(Signs::default());
        for piece in [
            "key hun",
            "ter2\r",
            "\n10%\r20",
            "%\r\x1b[1;36mINFO\x1b[0m \u{7}up",
            "\n\nend",
        ] {
            log.shared.take(piece.as_bytes());
        }
        assert_eq!(log.tail(), ["key ***", "10%", "20%", "INFO up", ""]);
        assert_eq!(log.last_line(), "INFO up");
        let mut from = 3;
        assert_eq!(log.slice_from(&mut from), "INFO up\n\n");
        assert_eq!((from, log.slice_from(&mut from)), (5, String::new()));
    }

    #[test]
    fn a_huge_line_is_cut_and_no_half_secret_stays_at_the_cut() {
        let log = log(Signs::default());
        let huge = "hunter2".repeat(200_000);
        for piece in huge.as_bytes().chunks(4099) {
            log.shared.take(piece);
        }
        log.shared.take(b"\n");
        let mut from = 0;
        let text = log.slice_from(&mut from);
        assert!(text.len() <= LONGEST_LINE + 8, "{}", text.len());
        assert_eq!(
            text.trim_end_matches("…\n").replace("***", "").trim_matches('*'),
            ""
        );
    }

    #[test]
    fn memory_is_bounded_and_a_slice_says_what_is_missing() {
        let log = log(Signs::default());
        let line = "x".repeat(60_000);
        for _ in 0..100 {
            log.shared.take(format!("{line}\n").as_bytes());
        }
        let mut from = 0;
        let text = log.slice_from(&mut from);
        assert!(text.len() < MOST_TEXT + 100 && text.starts_with('['));
        assert_eq!(from, 100);
    }

    #[tokio::test]
    async fn signs_tell_phases_and_the_cause_of_death() {
        let signs = Signs {
            phases: vec![
                PhaseSign {
                    phase: "weights".into(),
                    pattern: "Loading".into(),
                },
                PhaseSign {
                    phase: "graphs".into(),
                    pattern: "Capturing".into(),
                },
            ],
            dead: vec![dead("out of memory", false), dead("core died", true)],
        };
        let log = log(signs);
        log.shared
            .take(b"Loading a\nLoading b\nCapturing\nCUDA out of memory\n");
        let phases: Vec<String> = log.phases().into_iter().map(|(phase, _)| phase).collect();
        assert_eq!(phases, ["weights", "graphs"]);
        assert_eq!(log.omen().unwrap().line, "CUDA out of memory");
        log.shared.take(b"core died\nout of memory again\n");
        assert_eq!(log.fatal().await.line, "core died");
    }
}
