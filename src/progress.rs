//! Draws events of a run on stderr: a live line with an estimate on a terminal, plain lines in a pipe. No
//! other module writes to stderr during a run.

pub(crate) mod bar;
mod cells;
pub(crate) mod metrics;

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::base::clock::{self, MonotonicTime};
use crate::base::ids::CellKey;
use crate::base::text::{is_control, one_line, pluralize};
use crate::base::units::HumanDuration;
use crate::results::record::event::Event;
use crate::results::record::search::PointDecision;
use cells::Cells;

pub(crate) struct Progress {
    /// Locked while an event is drawn, since events come from several tasks.
    state: Mutex<State>,
}

struct State {
    /// The live line; `None` if stderr is no terminal.
    bar: Option<ProgressBar>,
    /// Last duration of each cell that has not ended yet, in seconds, if known.
    last_durations: BTreeMap<CellKey, f64>,
    began: MonotonicTime,
    total: usize,
    cells: Cells,
    /// The cell that is measured, and when it began.
    running: Option<(CellKey, MonotonicTime)>,
    /// When a progress line was last written, if stderr is no terminal.
    last_line: Option<MonotonicTime>,
    last_phase: String,
}

/// Time between lines of progress if stderr is no terminal.
const PIPE_INTERVAL: Duration = Duration::from_secs(10);

impl Progress {
    /// A drawer for stderr; `expected` has the last duration of each cell in seconds.
    pub(crate) fn new(expected: BTreeMap<CellKey, f64>) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            let style =
                ProgressStyle::with_template("{spinner} {wide_msg}").expect("the template is well formed");
            bar.set_style(style);
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        });
        let state = State {
            bar,
            last_durations: expected,
            began: clock::now(),
            total: 0,
            cells: Cells::default(),
            running: None,
            last_line: None,
            last_phase: String::new(),
        };
        Self {
            state: Mutex::new(state),
        }
    }

    pub(crate) fn show(&self, event: &Event) {
        let mut state = self.state.lock().expect("drawing does not panic");
        state.show(event);
    }

    /// Removes the live line.
    pub(crate) fn finish(&self) {
        let state = self.state.lock().expect("drawing does not panic");
        if let Some(bar) = &state.bar {
            bar.finish_and_clear();
        }
    }
}

impl State {
    fn show(&mut self, event: &Event) {
        self.show_launch(event);
        self.show_cell(event);
        self.show_run(event);
    }

    fn show_run(&mut self, event: &Event) {
        match event {
            Event::RunBegan {
                run,
                matrix,
                measurements,
                finished,
            } => {
                self.total = *measurements;
                self.cells = Cells::new(*finished);
                let planned = cells_measured(*measurements);
                self.print_line(&match finished {
                    0 => format!("run {run}: {matrix}, {planned}"),
                    _ => format!("run {run}: {matrix}, {planned}, {finished} of them already finished"),
                });
            }
            Event::StartsAdded { starts, measurements } => {
                self.total = *measurements;
                let more = match starts {
                    1 => "1 more start".to_owned(),
                    several => format!("{several} more starts"),
                };
                self.print_line(&format!(
                    "some cells are not precise enough yet, so the run makes {more} ({} in total)",
                    cells_measured(*measurements)
                ));
            }
            Event::Swept { what } => {
                self.print_line(&format!("removed what an earlier run left behind: {what}"))
            }
            Event::Note { message } => self.print_line(message),
            Event::Warning { message } => self.print_line(&format!("warning: {message}")),
            Event::Stopping { now: false } => self.print_line(
                "stopping: the running cell is saved and its engine is stopped; a second signal kills \
                 everything at once",
            ),
            Event::Stopping { now: true } => self.print_line(
                "killing everything that this run started; the next run or `matrix clean` frees the \
                 shared memory that is left over",
            ),
            Event::RunEnded {
                done,
                failed,
                skipped,
                interrupted,
                invalid,
            } => {
                let mut words = vec![format!("{} done", done.saturating_sub(*invalid))];
                for (count, word) in [
                    (invalid, "invalid"),
                    (failed, "failed"),
                    (skipped, "skipped"),
                    (interrupted, "interrupted"),
                ] {
                    if *count > 0 {
                        words.push(format!("{count} {word}"));
                    }
                }
                self.print_line(&format!("run ended: {}", words.join(", ")));
            }
            _ => {}
        }
    }

    fn show_launch(&mut self, event: &Event) {
        match event {
            Event::LaunchBegan {
                launch,
                start,
                command,
            } => {
                self.last_phase.clear();
                self.print_line(&format!("launch {launch} (start {start})"));
                self.print_line(&format!("    {command}"));
            }
            // The identity of an attached server is its URL.
            Event::EngineStarted { identity, .. } if identity.contains("://") => {
                self.print_line(&format!("  attached: {identity}"));
            }
            Event::EngineStarted { identity, port, .. } => {
                self.print_line(&format!("  started: {identity}, port {port}"))
            }
            Event::LaunchProgress {
                phase,
                elapsed_s,
                last_line,
                ..
            } => {
                let line = match last_line.trim() {
                    "" => String::new(),
                    line => format!("; {}", truncate(line, 100)),
                };
                let text = format!("  starting: {phase}, {elapsed_s:.0}s{line}");
                let new_phase = self.last_phase != *phase;
                self.last_phase.clone_from(phase);
                self.print_progress(&text, new_phase);
            }
            Event::EngineReady { seconds, version, .. } => {
                let version = version
                    .as_ref()
                    .map_or_else(String::new, |version| format!(", version {version}"));
                self.print_line(&format!("  ready after {seconds:.1}s{version}"));
            }
            Event::LaunchFailed { reason, tail, .. } => {
                self.print_line(&format!("  launch failed: {reason}"));
                self.print_log_lines(tail);
            }
            Event::EngineStopped { how, .. } if how.starts_with("the server is left running") => {
                self.print_line(&format!("  {how}"));
            }
            Event::EngineStopped { how, seconds, .. } => {
                self.print_line(&format!("  stopped: {how}, {seconds:.1}s"))
            }
            _ => {}
        }
    }

    fn show_cell(&mut self, event: &Event) {
        match event {
            Event::CellBegan {
                measurement,
                requests,
            } => {
                self.last_line = Some(clock::now());
                self.running = Some((measurement.cell.clone(), clock::now()));
                let remaining = self
                    .remaining_time(clock::now())
                    .map_or_else(String::new, |remaining| format!("; about {remaining} left"));
                let (number, total) = (self.cells.begin(measurement), self.total);
                self.print_line(&format!(
                    "  cell {number}/{total}: {}, {requests} requests{remaining}",
                    load_part(&measurement.cell)
                ));
                self.print_progress("    prepare", false);
            }
            Event::CellProgress { .. } => self.show_load(event),
            Event::PointJudged {
                point,
                target,
                decision,
                doubt,
                ..
            } => {
                let doubt = doubt.map_or_else(String::new, |doubt| format!(": {}", doubt.describe()));
                let shown = match decision {
                    Some(PointDecision::Holds) => "holds",
                    Some(PointDecision::Fails) => "does not hold",
                    Some(PointDecision::Undecided) => "is undecided",
                    None => "met a warm cache",
                };
                self.print_line(&format!(
                    "    {} ({:.2} %, target {} %){}: {shown}{doubt}",
                    point.describe(),
                    100.0 * point.good as f64 / point.judged.max(1) as f64,
                    100.0 * target,
                    point.describe_after_start()
                ));
            }
            Event::CellEnded {
                measurement,
                status: ending,
                reason,
                seconds,
                output_tokens_per_s,
                tail,
                post_mortem,
                ..
            } => {
                self.cells.end(measurement);
                self.running = None;
                self.last_durations.remove(&measurement.cell);
                let rate = output_tokens_per_s
                    .map_or_else(String::new, |rate| format!(", {rate:.1} output tokens/s"));
                let reason = reason
                    .as_ref()
                    .map_or_else(String::new, |reason| format!(": {reason}"));
                self.print_line(&format!("    {ending} after {seconds:.1}s{rate}{reason}"));
                self.print_log_lines(tail);
                if let Some(path) = post_mortem {
                    self.print_line(&format!("      details: {path}"));
                }
            }
            _ => {}
        }
    }

    /// Shows how far a load is.
    fn show_load(&mut self, event: &Event) {
        let Event::CellProgress {
            phase,
            ended,
            requests,
            running,
            failed,
            elapsed_s,
            output_tokens_per_s,
            ttft_ms,
            point,
            ..
        } = event
        else {
            return;
        };
        let point_in_words = point.map_or_else(String::new, |point| format!("{}; ", point.describe()));
        let failed = if *failed > 0 {
            format!(", {failed} failed")
        } else {
            String::new()
        };
        let rates = rates_in_words(*output_tokens_per_s, *ttft_ms);
        let of_run = self
            .remaining_time(clock::now())
            .map(|remaining| format!("; run: about {remaining} left"));
        let is_load = phase == "measure" && point.is_none();
        let of_cell = || {
            let remaining = remaining_of_load(*ended, *requests, *elapsed_s).filter(|_| is_load)?;
            Some(format!("; cell: about {} left", in_words(remaining)))
        };
        let remaining = of_run.or_else(of_cell).unwrap_or_default();
        self.print_progress(&format!("    {phase}: {point_in_words}{ended}/{requests} ended, {running} running{failed}{rates}, {elapsed_s:.0}s{remaining}"), false);
    }

    /// Estimated time for the remaining cells: last durations where known, else the mean of the cells so far; the running
    /// cell's time so far counts as done.
    fn remaining_time(&self, now: MonotonicTime) -> Option<String> {
        let (ended, measured) = (self.cells.ended(), self.cells.measured());
        let open = self.total.saturating_sub(ended);
        let known: f64 = self.last_durations.values().sum();
        let unknown = open.saturating_sub(self.last_durations.len());
        // The running cell is none of those that the time before it was spent on.
        let until = self.running.as_ref().map_or(now, |(_, began)| *began);
        let mean = (measured > 0).then(|| until.since(self.began).as_secs_f64() / measured as f64);
        let seconds = match (unknown, mean) {
            (0, _) => known,
            (_, Some(mean)) => known + unknown as f64 * mean,
            (_, None) => return None,
        };
        let done = self.running.as_ref().map_or(0.0, |(cell, began)| {
            let expected = self.last_durations.get(cell).copied().or(mean).unwrap_or(0.0);
            now.since(*began).as_secs_f64().min(expected)
        });
        Some(in_words(seconds - done))
    }

    fn print_log_lines(&self, tail: &[String]) {
        for line in tail {
            self.print_line(&format!("      | {}", truncate(line, 200)));
        }
    }

    /// Writes a line, without control characters, as parts of the text may come from elsewhere.
    fn print_line(&self, text: &str) {
        let text = &one_line(text);
        match &self.bar {
            Some(bar) => bar.suspend(|| write_stderr(text)),
            None => write_stderr(text),
        }
    }

    fn print_progress(&mut self, text: &str, always: bool) {
        let text = &one_line(text);
        let now = clock::now();
        match &self.bar {
            Some(bar) => bar.set_message(text.to_owned()),
            None if always || self.last_line.is_none_or(|last| now.since(last) >= PIPE_INTERVAL) => {
                write_stderr(text);
                self.last_line = Some(now);
            }
            None => {}
        }
    }
}

/// The rates of the running load, as far as they are known.
fn rates_in_words(output_tokens_per_s: Option<f64>, ttft_ms: Option<f64>) -> String {
    let tokens = output_tokens_per_s.map(|rate| format!(", {rate:.0} tok/s"));
    let ttft = ttft_ms.map(|ms| match ms < 10.0 {
        true => format!(", mean TTFT {ms:.1} ms"),
        false => format!(", mean TTFT {ms:.0} ms"),
    });
    tokens.unwrap_or_default() + &ttft.unwrap_or_default()
}

fn in_words(seconds: f64) -> String {
    HumanDuration(Duration::from_secs(seconds.max(0.0).ceil() as u64)).to_string()
}

/// Estimated time until all requests of a load have ended, from those that have; `None` before a twentieth has.
fn remaining_of_load(ended: usize, requests: usize, elapsed_s: f64) -> Option<f64> {
    let is_known = ended > 0 && 20 * ended >= requests;
    is_known.then(|| elapsed_s * requests.saturating_sub(ended) as f64 / ended as f64)
}

/// Errors are ignored: a lost terminal must not stop the measurement.
fn write_stderr(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = writeln!(out, "{text}");
}

/// The part of a cell key that describes the load.
fn load_part(key: &CellKey) -> String {
    let of_load = |part: &&str| {
        ["scenario=", "rate=", "concurrency="]
            .iter()
            .any(|axis| part.starts_with(axis))
    };
    key.as_str()
        .split(',')
        .filter(of_load)
        .collect::<Vec<_>>()
        .join(", ")
}

fn cells_measured(count: usize) -> String {
    pluralize(count, "measurement", "measurements")
}

fn truncate(text: &str, length: usize) -> String {
    let clean: String = text.chars().filter(|letter| !is_control(*letter)).collect();
    if clean.chars().count() <= length {
        clean
    } else {
        clean.chars().take(length - 1).chain(['…']).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_load_is_estimated_from_what_has_ended() {
        assert_eq!(remaining_of_load(0, 100, 5.0), None);
        assert_eq!(remaining_of_load(4, 100, 5.0), None);
        assert_eq!(remaining_of_load(25, 100, 5.0), Some(15.0));
        assert_eq!(remaining_of_load(100, 100, 20.0), Some(0.0));
    }

    #[test]
    fn rates_are_shown_as_far_as_they_are_known() {
        assert_eq!(rates_in_words(None, None), "");
        assert_eq!(
            rates_in_words(Some(1234.4), Some(8.04)),
            ", 1234 tok/s, mean TTFT 8.0 ms"
        );
        assert_eq!(rates_in_words(None, Some(80.4)), ", mean TTFT 80 ms");
    }

    #[test]
    fn the_time_left_counts_down_while_a_cell_is_measured() {
        let cells = ["a", "b"].map(CellKey::new);
        let mut state = State {
            bar: None,
            last_durations: cells.iter().map(|cell| (cell.clone(), 60.0)).collect(),
            began: MonotonicTime::from_nanos(0),
            total: 2,
            cells: Cells::default(),
            running: None,
            last_line: None,
            last_phase: String::new(),
        };
        let at = |seconds| MonotonicTime::from_nanos(0).plus(Duration::from_secs(seconds));
        assert_eq!(state.remaining_time(at(0)).as_deref(), Some("2m"));
        state.running = Some((cells[0].clone(), at(0)));
        assert_eq!(state.remaining_time(at(45)).as_deref(), Some("1m 15s"));
        // A cell that takes longer than expected does not make the others shorter.
        assert_eq!(state.remaining_time(at(300)).as_deref(), Some("1m"));
    }
}
