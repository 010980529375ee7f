//! The progress of a single bench, in the format of the Python tool's bar.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::base::clock::{self, MonotonicTime};

/// Time between lines of progress if stderr is no terminal.
const PIPE_INTERVAL: Duration = Duration::from_secs(10);

/// Shows the progress of a bench: a bar on a terminal; otherwise a line from time to time and one at the end.
#[derive(Debug)]
pub(crate) struct Bar {
    bar: Option<ProgressBar>,
    total: usize,
    began: MonotonicTime,
    last_line: MonotonicTime,
}

impl Bar {
    /// Begins now; `total` is the number of requests.
    pub(crate) fn new(total: usize) -> Self {
        let drawn = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.set_style(ProgressStyle::with_template("{wide_msg}").expect("the template is well formed"));
            bar
        });
        let now = clock::now();
        let mut bar = Self {
            bar: drawn,
            total,
            began: now,
            last_line: now,
        };
        bar.show(0);
        bar
    }

    /// Shows the number of requests that have ended.
    pub(crate) fn show(&mut self, ended: usize) {
        let now = clock::now();
        let text = bar_line(ended, self.total, now.since(self.began));
        match &self.bar {
            Some(bar) => {
                bar.set_message(text);
                bar.tick();
            }
            None if now.since(self.last_line) >= PIPE_INTERVAL => {
                self.last_line = now;
                write_stderr(&text);
            }
            None => {}
        }
    }

    /// Removes the bar and prints the last state.
    pub(crate) fn finish(self, ended: usize) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        write_stderr(&bar_line(ended, self.total, clock::now().since(self.began)));
    }
}

/// Errors are ignored: a lost terminal must not stop the measurement.
fn write_stderr(text: &str) {
    let mut out = std::io::stderr().lock();
    let _ = writeln!(out, "{text}");
}

/// The bar in tqdm's format.
///
/// Source: docs/bench-serving.md 8.3.
fn bar_line(ended: usize, total: usize, elapsed: Duration) -> String {
    const WIDTH: usize = 10;
    let share = if total == 0 {
        1.0
    } else {
        ended as f64 / total as f64
    };
    let full = ((share * WIDTH as f64) as usize).min(WIDTH);
    let bar = format!("{}{}", "█".repeat(full), " ".repeat(WIDTH - full));
    let seconds = elapsed.as_secs_f64();
    let rate = (ended > 0 && seconds > 0.0).then(|| ended as f64 / seconds);
    let remaining = rate.map_or_else(
        || "?".to_owned(),
        |rate| format_time(total.saturating_sub(ended) as f64 / rate),
    );
    let rate = match rate {
        None => "?it/s".to_owned(),
        Some(rate) if rate < 1.0 => format!("{:5.2}s/it", 1.0 / rate),
        Some(rate) => format!("{rate:5.2}it/s"),
    };
    let percent = share * 100.0;
    format!(
        "{percent:3.0}%|{bar}| {ended}/{total} [{}<{remaining}, {rate}]",
        format_time(seconds)
    )
}

fn format_time(seconds: f64) -> String {
    let seconds = seconds as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes:02}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_the_one_of_tqdm() {
        let at = |ended, total, seconds| bar_line(ended, total, Duration::from_secs_f64(seconds));
        assert_eq!(at(0, 10, 0.0), "  0%|          | 0/10 [00:00<?, ?it/s]");
        assert_eq!(at(5, 10, 0.25), " 50%|█████     | 5/10 [00:00<00:00, 20.00it/s]");
        assert_eq!(at(1, 3, 4.11), " 33%|███       | 1/3 [00:04<00:08,  4.11s/it]");
        assert_eq!(
            at(1000, 1000, 3700.0),
            "100%|██████████| 1000/1000 [1:01:40<00:00,  3.70s/it]"
        );
    }
}
