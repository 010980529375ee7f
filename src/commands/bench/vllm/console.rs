//! Prints what `vllm bench serve` prints, from the events of a bench.

use super::result;
use super::settings::Settings;
use crate::commands::bench::print_line::print_line;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::measure::notice_line;
use crate::commands::output::{eprint, print};
use crate::config::arrival::{ArrivalProcess, RateProfile};
use crate::exit::Exit;
use crate::progress::bar::Bar;
use crate::report::bench_serving::{notes, python};
use crate::report::tables::reason_in_words;
use crate::report::vllm_serve::{self, CounterGrowth};
use crate::results::record::cell::Phase;
use crate::results::record::search::SearchRecord;
use crate::runner::bench::{BenchEvent, BenchLoad, BenchObserver};
use crate::runner::cell::observer::{CellEvent, CellObserver, ProfilerEvent};

/// Prints a bench while it runs.
pub(super) struct Console<'a> {
    settings: &'a Settings,
    /// The model's path or name, by which its tokenizer is found.
    model: String,
    bar: Option<Bar>,
    /// Whether the lines ahead of the load are printed.
    has_begun: bool,
    /// Lines that follow the block.
    last_lines: Vec<String>,
    /// The pages with the server's counters before and after the load.
    pages: Vec<Option<String>>,
    exit: Exit,
    /// Why a result could not be written.
    error: Option<CommandError>,
}

impl<'a> Console<'a> {
    pub(super) const fn new(settings: &'a Settings) -> Self {
        Self {
            settings,
            model: String::new(),
            bar: None,
            has_begun: false,
            last_lines: Vec::new(),
            pages: Vec::new(),
            exit: Exit::Done,
            error: None,
        }
    }

    /// Finishes the progress bar, if there is one.
    pub(super) fn end_bar(mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish(0);
        }
    }

    pub(super) fn finish(self) -> Outcome {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.exit),
        }
    }

    /// Prints the lines ahead of the load, once.
    fn begin(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            print_line("Starting main benchmark run...");
        }
    }

    fn print_traffic(&self) {
        if result::is_replayed(self.settings) {
            print_line("Self timing is set, using the timestamps from the trace file.");
            return;
        }
        let arrival = &self.settings.scenario.arrival;
        match &arrival.pace {
            Some(RateProfile::Ramp(ramp)) => {
                print_line(&format!("Traffic ramp-up strategy: {}.", ramp.curve.name()));
                print_line(&format!(
                    "Will increase RPS from {} to {} RPS over the duration of the benchmark.",
                    ramp.from, ramp.to
                ));
            }
            _ => print_line(&format!(
                "Traffic request rate: {}",
                python::repr(arrival.rate.per_second())
            )),
        }
        let (shape, name) = match arrival.spacing {
            ArrivalProcess::Poisson => (1.0, "Poisson process"),
            ArrivalProcess::Gamma { burstiness } => (burstiness.shape(), "Gamma distribution"),
            ArrivalProcess::Constant => (f64::INFINITY, "Gamma distribution"),
        };
        print_line(&format!("Burstiness factor: {} ({name})", python::repr(shape)));
        let limit = arrival
            .concurrency
            .map_or("None".to_owned(), |limit| limit.to_string());
        print_line(&format!("Maximum request concurrency: {limit}"));
    }

    /// Prints that the profiler is started. vLLM stops it after it has printed the block.
    fn profiler_event(&mut self, event: &ProfilerEvent<'_>) {
        match event {
            ProfilerEvent::Starting { .. } => print_line("Starting profiler..."),
            ProfilerEvent::Stopping => self.last_lines.push("Stopping profiler...".to_owned()),
            ProfilerEvent::Asked {
                to_start: true,
                error: None,
                ..
            } => print_line("Profiler started"),
            ProfilerEvent::Asked { error: None, .. } => self.last_lines.push("Profiler stopped".to_owned()),
            ProfilerEvent::Asked {
                to_start,
                error: Some(error),
                ..
            } => {
                let done = if *to_start { "started" } else { "stopped" };
                eprint(&format!("note: the profiler was not {done}: {error}\n"));
            }
            ProfilerEvent::NoWorkers => {}
        }
    }

    fn growth(&self) -> CounterGrowth {
        match &self.pages[..] {
            [Some(before), Some(after)] => vllm_serve::growth(before, after),
            _ => CounterGrowth::default(),
        }
    }
}

impl CellObserver for Console<'_> {
    fn event(&mut self, event: CellEvent<'_>) {
        match event {
            CellEvent::Sending {
                phase: Phase::Warmup,
                items,
            } => {
                if !items.is_empty() {
                    print_line(&format!("Warming up with {} requests...", items.len()));
                }
            }
            CellEvent::WarmedUp { .. } => {
                if self.settings.scenario.limits.warmup > 0 {
                    print_line("Warmup run completed.");
                }
                self.begin();
                if self.settings.profiler.is_none() {
                    self.print_traffic();
                }
            }
            CellEvent::Sending { items, .. } => {
                if self.settings.output.shows_bar {
                    self.bar = Some(Bar::new(items.len()));
                }
            }
            CellEvent::Progress { progress, .. } => {
                if let Some(bar) = &mut self.bar {
                    bar.show(progress.ended() as usize);
                }
            }
            CellEvent::Sent { ended, .. } => {
                if let Some(bar) = self.bar.take() {
                    bar.finish(ended);
                }
            }
            CellEvent::Counters(page) => self.pages.push(page),
            CellEvent::PointJudged { .. } => {}
            CellEvent::Profiler(event) => {
                self.profiler_event(&event);
                if let ProfilerEvent::Asked { to_start: true, .. } = event {
                    self.print_traffic();
                }
            }
            CellEvent::Warning(warning) => eprint(&format!("note: {warning}\n")),
        }
    }
}

impl BenchObserver for Console<'_> {
    fn bench_event(&mut self, event: BenchEvent<'_>) {
        match event {
            BenchEvent::Prepared { model, .. } => {
                if self.settings.model.is_none() {
                    print_line(&format!("The model of the server is {model}."));
                }
                self.model = model.to_owned();
                print_line("Starting initial single prompt test run...");
                match self.settings.first_request_limit {
                    None => print_line("Skipping endpoint ready check."),
                    Some(limit) => print_line(&format!(
                        "Waiting for endpoint to become up in {} seconds",
                        limit.as_secs()
                    )),
                }
            }
            BenchEvent::Answered => print_line("Initial test run completed."),
            BenchEvent::Aligning {
                counted: Some(counted),
                expected,
            } => eprint(&format!(
                "note: the server counts {counted} tokens in the first prompt instead of {expected}; prompts that are too long by its count are cut\n"
            )),
            BenchEvent::Aligning { counted: None, .. } => eprint(
                "note: the server has no `/tokenize`, so the lengths of prompts are not checked with the tokenizer of the server\n",
            ),
            BenchEvent::Notice(notice) => eprint(&notice_line(notice)),
            BenchEvent::Waiting { .. }
            | BenchEvent::Ready { .. }
            | BenchEvent::Arrival { .. }
            | BenchEvent::Point { .. } => {}
        }
    }

    fn load_measured(&mut self, measured: &BenchLoad, _: Option<&SearchRecord>) -> bool {
        let (figures, growth) = (result::figures(self.settings, measured), self.growth());
        let load = result::load(self.settings, &figures, &growth);
        print(&vllm_serve::block(&load));
        self.last_lines.drain(..).for_each(|line| print_line(&line));
        let requests = &measured.load.requests;
        let mut text = notes::failure_lines(requests).join("");
        for reason in &measured.reasons {
            text.push_str(&format!("note: {}\n", reason_in_words(reason)));
        }
        if measured.is_interrupted() {
            text.push_str(
                "note: the measurement was stopped early; the figures cover only requests that had ended\n",
            );
        }
        eprint(&text);
        match result::write_file(self.settings, measured, &self.model, &load) {
            Ok(Some(path)) => eprint(&format!("note: the result was written to `{}`\n", path.display())),
            Ok(None) => {}
            Err(error) => self.error = Some(error),
        }
        let failed = figures.failed() as f64 / figures.requests.len().max(1) as f64;
        let most = self.settings.scenario.limits.error_share;
        if measured.is_interrupted() {
            self.exit = Exit::Interrupted;
        } else if failed > most {
            eprint(&format!(
                "error: {:.2} % of the requests failed, but at most {} % may fail\n",
                failed * 100.0,
                most * 100.0
            ));
            self.exit = Exit::CellFailed;
        }
        self.error.is_none()
    }
}
