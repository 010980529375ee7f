//! Prints what the Python tool prints, from the events of a bench.

use serde_json::{Value, json};

use crate::base::clock::{self, MonotonicTime};
use crate::commands::bench::config::BenchConfig;
use crate::commands::bench::print_line::print_line;
use crate::commands::bench::result::BenchResult;
use crate::commands::bench::show::print_result;
use crate::commands::bench::sweep;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::measure::notice_line;
use crate::commands::output::{eprint, print};
use crate::config::dataset::PromptForm;
use crate::exit::Exit;
use crate::progress::bar::Bar;
use crate::report::bench_serving::bench_line::BenchRecords;
use crate::report::bench_serving::{console, request_lines};
use crate::results::record::cell::Phase;
use crate::results::record::client::Calibration;
use crate::results::record::request::Request;
use crate::results::record::search::{SearchRecord, SearchStopReason};
use crate::runner::bench::{BenchEvent, BenchLoad, BenchObserver, BenchOutcome, PlannedRequest, Session};
use crate::runner::cell::observer::{CellEvent, CellObserver, ProfilerEvent};
use crate::runner::search::SearchOutcome;

/// Prints a bench while it runs.
pub(super) struct Console<'a> {
    config: &'a BenchConfig,
    calibration: Option<Calibration>,
    /// The model's name: the given one, or the server's.
    model: String,
    /// The URL of requests, and the model name in them.
    target: (String, String),
    /// The requests in flight, if they are printed; a conversation appears once per round.
    sending: Vec<PlannedRequest>,
    bar: Option<Bar>,
    exit: Exit,
    /// Why a result could not be written.
    error: Option<CommandError>,
}

impl CellObserver for Console<'_> {
    fn event(&mut self, event: CellEvent<'_>) {
        match event {
            CellEvent::Sending { phase, items } => {
                if self.config.output.prints_requests {
                    let rounds = |item: &PlannedRequest| std::iter::repeat_n(item.clone(), item.rounds());
                    self.sending = items.iter().flat_map(rounds).collect();
                }
                match phase {
                    Phase::Warmup => {
                        let count = self.config.scenario.limits.warmup;
                        print_line(&console::warm_up_began(self.config.profile, count));
                    }
                    _ if self.config.output.shows_bar => {
                        self.bar = Some(Bar::new(items.iter().map(|item| item.rounds()).sum()));
                    }
                    _ => {}
                }
            }
            CellEvent::Progress { progress, .. } => {
                if let Some(bar) = &mut self.bar {
                    bar.show(progress.ended() as usize);
                }
            }
            CellEvent::Sent {
                requests,
                ended,
                zero,
            } => {
                self.end_bar(ended);
                self.request_lines(requests, zero);
            }
            CellEvent::WarmedUp { duration } => {
                let count = self.config.scenario.limits.warmup;
                print_line(&console::warm_up_completed(self.config.profile, count, duration));
            }
            CellEvent::Profiler(event) => print_profiler_event(event),
            CellEvent::Counters(_) | CellEvent::PointJudged { .. } => {}
            CellEvent::Warning(warning) => eprint(&format!("note: {warning}\n")),
        }
    }
}

impl BenchObserver for Console<'_> {
    fn bench_event(&mut self, event: BenchEvent<'_>) {
        match event {
            BenchEvent::Waiting { url, limit } => print_line(&console::waiting(limit, url)),
            BenchEvent::Ready { seconds } => print_line(&console::ready(seconds)),
            BenchEvent::Prepared { session, model } => {
                self.model = model.to_owned();
                self.target = (session.url(), session.model().to_owned());
                self.print_prepared(session);
            }
            // Only `--like vllm` asks for these.
            BenchEvent::Answered | BenchEvent::Aligning { .. } => {}
            BenchEvent::Notice(notice) => eprint(&notice_line(notice)),
            BenchEvent::Arrival {
                place,
                session,
                before,
            } => self.print_arrival(place, session, before),
            BenchEvent::Point { number, value } => {
                let by = self.config.scenario.search.as_ref().map(|search| search.by);
                let (name, unit) = by.map_or(("", ""), |by| (by.name(), by.unit()));
                eprint(&format!("point {number} of the search: {name} {value} {unit}\n"));
            }
        }
    }

    fn load_measured(&mut self, measured: &BenchLoad, search: Option<&SearchRecord>) -> bool {
        let searched = search.map(|record| {
            let point = record.points.last().expect("the record has the point");
            eprint(&sweep::describe_point(point, record));
            sweep::searched(point, record)
        });
        let config = self.config.with_arrival(measured.session.arrival());
        let result = BenchResult {
            config: &config,
            measured,
            model: &self.model,
            calibration: self.calibration.as_ref(),
            search: searched,
        };
        match print_result(&result) {
            // A failed point does not fail a search, but a server without any success before the first good
            // point was not measured.
            Ok(Exit::CellFailed) if search.is_none_or(|record| record.found.is_none()) => {
                self.exit = Exit::CellFailed;
            }
            Ok(_) => {}
            Err(error) => self.error = Some(error),
        }
        self.error.is_none()
    }
}

impl<'a> Console<'a> {
    pub(super) fn new(config: &'a BenchConfig, calibration: Option<Calibration>) -> Self {
        Self {
            config,
            calibration,
            model: String::new(),
            target: Default::default(),
            sending: Vec::new(),
            bar: None,
            exit: Exit::Done,
            error: None,
        }
    }

    /// Finishes the progress bar, if there is one, at this number of requests.
    pub(super) fn end_bar(&mut self, ended: usize) {
        if let Some(bar) = self.bar.take() {
            bar.finish(ended);
        }
    }

    /// Prints the result of a search, and chooses the exit code.
    pub(super) fn finish(self, outcome: BenchOutcome) -> Outcome {
        if let Some(error) = self.error {
            return Err(error);
        }
        let (
            SearchOutcome {
                record,
                used_prompts: used,
            },
            prompts,
        ) = match outcome {
            BenchOutcome::Done => return Ok(self.exit),
            BenchOutcome::Stopped => return Ok(Exit::Interrupted),
            BenchOutcome::Search { outcome, prompts } => (*outcome, prompts),
        };
        if used > prompts && self.config.cache_reset.is_none() {
            eprint(&format!(
                "note: the points of the search sent {used} prompts, but the data set has only {prompts}: some were \
                 sent twice and may be in the prefix cache; raise `--num-prompts`, or reset the cache with `--flush-cache`\n"
            ));
        }
        print(&sweep::search_lines(&record));
        Ok(match record.ending {
            SearchStopReason::Stopped => Exit::Interrupted,
            SearchStopReason::AllHeld | SearchStopReason::NoneHeld => self.exit,
            _ if record.capacity.is_none() && self.exit == Exit::Done => Exit::NotJudged,
            _ => self.exit,
        })
    }

    fn print_prepared(&self, session: &Session) {
        let config = self.config;
        if config.backend.protocol().facts().generates_text {
            warn_about_base_model(session);
        }
        session
            .preparation_lines()
            .iter()
            .for_each(|line| print_line(line));
        for note in session.prompt_notes() {
            eprint(&format!("note: {note}\n"));
        }
        let workload = &config.scenario.workload;
        // The number of a workload of sessions is that of its sessions.
        let is_session = workload.facts().prompts == PromptForm::Sessions;
        let requested = workload.requests().filter(|_| !is_session);
        let (rows, prompts) = (session.rows() as u64, session.prompts() as u64);
        if let Some(requested) = requested.filter(|requested| rows < *requested) {
            eprint(&match prompts < requested {
                true => format!("note: the data set has {rows} requests, but {requested} were requested\n"),
                false => {
                    format!(
                        "note: only {rows} of {requested} prompts are sent, because the schedule has no times for the other prompts\n"
                    )
                }
            });
        }
        if config.asks_for_usage() {
            eprint(
                "note: requests ask for token counts (`stream_options: {\"include_usage\": true}`), unlike those of the Python tool; \
                 `--compat-figures` sends the body of the Python tool\n",
            );
        }
        if config.cache_report && !config.backend.is_sglang() {
            print_line(console::NO_CACHE_REPORT);
        }
    }

    fn print_arrival(&self, place: usize, session: &Session, before: &[Session]) {
        if self.config.arrivals.len() > 1 {
            eprint(&sweep::arrival_heading(self.config, session, place, before));
        }
        if place > 0 && !self.config.continues_draws && self.config.cache_reset.is_none() {
            session
                .preparation_lines()
                .iter()
                .for_each(|line| print_line(line));
        }
    }

    /// Prints a line for the start and one for the end of each request, if `--print-requests` is set.
    fn request_lines(&self, requests: &[Request], zero: MonotonicTime) {
        let config = self.config;
        if !config.output.prints_requests {
            return;
        }
        let details = BenchRecords {
            requests,
            protocol: config.backend.protocol(),
            profile: config.profile,
            as_published: config.output.compat_figures,
        };
        let zero_s = clock::unix_seconds() - clock::now().since(zero).as_secs_f64();
        print(&request_lines::lines(&details, zero_s, |request| {
            let item = self.sending.get(request.index as usize)?;
            Some(asked(config, &self.target, item, request))
        }));
    }
}

fn print_profiler_event(event: ProfilerEvent<'_>) {
    match event {
        ProfilerEvent::NoWorkers => print_line(console::NO_WORKERS),
        ProfilerEvent::Starting { url, body } => print_line(&console::profiler_starting(&url, body)),
        ProfilerEvent::Stopping => print_line(console::PROFILER_STOPPING),
        ProfilerEvent::Asked {
            to_start,
            worker,
            url,
            error,
        } => match (error, worker) {
            (None, _) => print_line(&console::profiler_done(to_start, worker, url)),
            (Some(error), Some(worker)) => {
                print_line(&console::profiler_failed(
                    to_start,
                    worker,
                    url,
                    &error.to_string(),
                ));
            }
            (Some(error), None) => {
                let done = if to_start { "started" } else { "stopped" };
                eprint(&format!("note: the profiler was not {done}: {error}\n"));
            }
        },
    }
}

/// Returns the fields of the Python tool's `RequestFuncInput`, without the prompt as in that tool.
fn asked(
    config: &BenchConfig,
    (url, model): &(String, String),
    item: &PlannedRequest,
    request: &Request,
) -> Value {
    let extras = item.extras.as_deref();
    let mut body = config.scenario.body.clone();
    body.extend(extras.map(|extras| extras.body.clone()).unwrap_or_default());
    let pictures = item
        .images()
        .map_or(Value::Null, |images| json!(vec!["..."; images]));
    json!({
        "prompt": "...",
        "api_url": url,
        "prompt_len": request.prompt_tokens,
        "output_len": request.requested_tokens,
        "model": model,
        "lora_name": item.lora_adapter.as_deref(),
        "image_data": pictures,
        "extra_request_body": body,
        "timestamp": extras.and_then(|extras| extras.at).map(|at| at.as_secs_f64() * 1000.0),
        "routing_key": extras.and_then(|extras| extras.routing_key.as_ref()),
    })
}

/// Prints the Python tool's warning if the tokenizer has no chat template. Without `tokenizer_config.json`
/// nothing is printed.
///
/// Source: docs/bench-serving.md 1.2.
fn warn_about_base_model(session: &Session) {
    let (_, Some(path)) = session.tokenizer() else {
        return;
    };
    let Ok(text) = std::fs::read_to_string(path.with_file_name("tokenizer_config.json")) else {
        return;
    };
    let settings: Value = serde_json::from_str(&text).unwrap_or_default();
    let template_files = ["chat_template.jinja", "chat_template.json"];
    let has_file = template_files
        .iter()
        .any(|name| path.with_file_name(name).exists());
    if settings.get("chat_template").is_none_or(Value::is_null) && !has_file {
        print_line(console::BASE_MODEL);
    }
}
