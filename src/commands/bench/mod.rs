//! `matrix bench`: one load on a running server, in the order of events and in the words of `sglang.bench_serving`.
//!
//! stdout gets what the Python tool prints there, but for its arguments; stderr gets the progress bar and what must be said about
//! the figures.

mod arrivals;
mod config;
mod outputs;
mod partial;
mod profile;
mod requests;
mod result;
mod sweep;
mod warnings;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use reqwest::header::HeaderMap;
use serde_json::Value;

use self::config::{BenchConfig, Environment};
use self::result::BenchResult;
use crate::analysis::metrics;
use crate::base::control_client::{self, ControlClient};
use crate::base::{clock, threads};
use crate::cli::bench::{Backend, BenchArgs};
use crate::cli::{self, Places};
use crate::commands::environment::environment;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::measure::line;
use crate::commands::output::{complain, hide_secrets, print};
use crate::commands::session_error::gpu_error;
use crate::config::workload::Profile;
use crate::engine;
use crate::exit::Exit;
use crate::loadgen::dataset::Caches;
use crate::loadgen::{Progress, Sink, Spill, Target};
use crate::plan::Protocol;
use crate::progress::bar::Bar;
use crate::report::{bench_serving::bench_line, bench_serving::block, bench_serving::classic_csv};
use crate::results::record::client::Calibration;
use crate::results::record::event::Event;
use crate::results::record::request::{Class, Failure};
use crate::runner::bench::{Session, Tokenizers, spill};
use crate::runner::calibrate;
use crate::runner::context::Events;
use crate::runner::discovery;
use crate::runner::load::{self, LoadContext, LoadOutcome, count_chunks};
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::session::gpus;
use crate::runner::shutdown::{Signals, Stop};
use crate::runner::supervise::DriveControl;
use crate::runner::warm_up;
use crate::telemetry::gpu::Gpus;
use crate::telemetry::machine;

/// How long the server may take to empty its caches.
const FLUSH: Duration = Duration::from_secs(600);
/// How often the bar is drawn.
const BEAT: Duration = Duration::from_millis(100);

/// Sends the load and prints the figures.
///
/// # Errors
/// Flags that cannot be, a server that does not answer, data that is not there.
pub fn execute(args: &BenchArgs) -> Outcome {
    let environment = Environment {
        bearer: cli::variable("OPENAI_API_KEY"),
        key: cli::variable("API_KEY"),
        in_ci: cli::variable("SGLANG_IS_IN_CI"),
        profiler_dir: cli::variable("SGLANG_TORCH_PROFILER_DIR"),
    };
    hide_secrets(config::secrets(args, &environment));
    let config = BenchConfig::read(args, &environment).map_err(|mistakes| {
        let lines: String = mistakes
            .iter()
            .map(|mistake| format!("error: {mistake}\n"))
            .collect();
        CommandError::usage(format!("{lines}nothing was sent\n"))
    })?;
    outputs::check(&config)?;
    let workload = &config.scenario.workload;
    let named = workload.path.as_deref().filter(|_| workload.dataset.needs_file());
    if let Some(path) = named.filter(|path| !Path::new(path).exists()) {
        return Err(CommandError::usage(format!(
            "error: there is no file `{path}`\n  = help: name a data file of the data set with `--dataset-path`\nnothing was sent\n"
        )));
    }
    let places = Places {
        hf_home: args.ours.hf_home.clone(),
        cache: args.ours.keep_prompts_in.clone(),
    };
    let caches = Caches {
        hf_home: places.hf_home(),
        prompts: (!args.ours.fresh_prompts).then(|| places.prompts()),
    };
    machine::raise_open_files();
    let about = || machine::read(&format!("matrix {}", cli::VERSION));
    let calibration = calibrate::kept(&places.cache(), about);
    let runtime = threads::runtime()?;
    runtime.block_on(async {
        let mut signals = Signals::catch().context("cannot listen to signals")?;
        let stop = Stop::default();
        let mut events = Events::default();
        events.listen(|event| {
            if let Event::Stopping { now: false } = event {
                complain("stopping: what was measured is shown; once more ends at once\n");
            }
        });
        tokio::select! {
            biased;
            () = stop.now.cancelled() => Ok(Exit::Interrupted),
            outcome = bench(&config, caches, calibration, &stop) => outcome,
            never = stop.listen(&mut signals, &events) => match never {},
        }
    })
}

/// The access to the GPUs of this host.
fn gpus() -> Result<Option<Arc<Gpus>>, CommandError> {
    gpus::open(&environment(), &|notice| complain(&line(&notice))).map_err(|error| gpu_error(&error))
}

fn say(line: &str) {
    print(&format!("{line}\n"));
}

fn unfit(message: impl std::fmt::Display) -> CommandError {
    CommandError::unfit(format!("error: {message}\n"))
}

async fn bench(
    config: &BenchConfig,
    caches: Caches,
    calibration: Option<Calibration>,
    stop: &Stop,
) -> Outcome {
    let prepared = tokio::select! {
        biased;
        // Nothing was measured, so nothing is lost.
        () = stop.asked.cancelled() => return Ok(Exit::Interrupted),
        prepared = prepare(config, caches) => prepared?,
    };
    let Prepared {
        client,
        target,
        session,
        model,
        is_simulated,
    } = prepared;
    // Nobody asks for the devices of a host on which the server is not.
    let gpus = match engine::is_here(&config.address.host) {
        true => tokio::task::block_in_place(gpus)?,
        false => None,
    };
    let mut server = AttachedServer {
        engine: ReadyEngine::attached(target, client, gpus).await,
        info: ServerInfo {
            model,
            calibration,
            is_simulated,
        },
    };
    sweep::measure(config, &mut server, &session, stop).await
}

/// The server that is measured.
struct AttachedServer {
    engine: ReadyEngine,
    info: ServerInfo,
}

/// What is known of both sides beside the load.
struct ServerInfo {
    /// The model in the words of the command line or of the server.
    model: String,
    /// How far this client's moments lie from the truth on this machine, if that was measured.
    calibration: Option<Calibration>,
    /// Whether the server says that it is the simulated engine.
    is_simulated: bool,
}

/// What is known of a load beside its outcome.
struct LoadFacts {
    /// What `/server_info` says afterwards.
    info: Option<Value>,
    accept_length: Option<f64>,
    /// When the measurement began.
    began: String,
    /// The share of prompt tokens that the prompts repeat of each other; `None` where it is unknown.
    repeated: Option<f64>,
    /// Where responses went that exceed the memory budget.
    spill: Option<Arc<Spill>>,
}

/// Warms up, empties the cache and sends one load; `None` if it was stopped before anything was measured.
async fn once(
    config: &BenchConfig,
    server: &mut AttachedServer,
    session: &Session,
    stop: &Stop,
) -> Result<Option<(LoadOutcome, LoadFacts)>, CommandError> {
    if !warm_up(config, server, session, stop).await? {
        return Ok(None);
    }
    let profiling = tokio::select! {
        biased;
        () = stop.asked.cancelled() => return Ok(None),
        profiling = begin(config, server) => profiling?,
    };
    let began = clock::timestamp();
    let (sink, spill) = (partial::begin(config), spill());
    let mut outcome = drive(config, server, session, stop, (sink.clone(), spill.clone())).await?;
    partial::end(sink);
    let zero = outcome.window.zero;
    requests::tell(config, session, session.items(), &outcome.requests, zero);
    if let Some(profiler) = &config.profiler {
        profile::stop(profiler, &profiling).await;
    }
    // Both questions of the Python tool in one, and outside of what is timed; the classic one asks nothing.
    let info = match config.profile {
        Profile::Current => discovery::info(&server.engine.control).await,
        Profile::Classic => None,
    };
    let accept_length = info
        .as_ref()
        .filter(|_| config.backend.is_sglang())
        .and_then(engine::accept_length);
    if config.profile == Profile::Current && metrics::divides_gaps(&config.asked.backend, accept_length) {
        outcome.requests = count_chunks(outcome.requests, session.workload()).await;
    }
    let facts = LoadFacts {
        info,
        accept_length,
        began,
        repeated: outcome.repeated_share(session.workload()).await,
        spill,
    };
    Ok(Some((outcome, facts)))
}

/// Prints the block, writes the files, and says what must be said.
fn tell(ended: &BenchResult<'_>) -> Outcome {
    let figures = ended.figures();
    if ended.config.output.plot {
        print(&ended.plots());
    }
    print(&ended.block(&figures));
    let steady = ended.steady();
    if let Some(steady) = &steady {
        print(&block::steady_block(steady));
    }
    print(&ended.more(&figures));
    let reasons = ended.reasons();
    let notes = ended.notes(&figures, &reasons);
    let failures = warnings::failures(&ended.measured.requests);
    let mut said = failures.join("");
    for note in &notes {
        let _ = writeln!(said, "note: {note}");
    }
    for told in ended.client_error().into_iter().chain(ended.energy(&figures)) {
        let _ = writeln!(said, "note: {told}");
    }
    complain(&said);
    let config = ended.config;
    let path = outputs::line_path(config);
    let line = if outputs::is_csv(config, &path) {
        let is_new = std::fs::metadata(&path).map_or(true, |file| file.len() == 0);
        let header = if is_new {
            classic_csv::header()
        } else {
            String::new()
        };
        header + &classic_csv::row(&config.asked, &figures.block)
    } else {
        format!("{}\n", ended.line(&figures, &notes, &reasons))
    };
    outputs::append(&path, &line)
        .map_err(|refusal| refusal.beside(&format!("the line that is not in it:\n{line}")))?;
    if let Some(path) = &config.output.vllm_json {
        outputs::write(path, &ended.vllm(&figures, &notes, &reasons))?;
    }
    let steady_file = config.steady.as_ref().and_then(|steady| steady.file.as_ref());
    if let (Some(steady), Some(path)) = (&steady, steady_file) {
        outputs::append(path, &format!("{}\n", bench_line::steady_line(steady)))?;
    }
    if let Some(path) = &config.output.records {
        outputs::append_lines(path, ended.records())?;
        partial::forget(path);
    }
    let has_failed = ended.has_failed();
    if has_failed && !ended.is_interrupted {
        complain(&ended.too_many_failed());
    }
    Ok(match (ended.is_interrupted, has_failed) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::CellFailed,
        (false, false) => Exit::Done,
    })
}

/// A load that can begin.
struct Prepared {
    client: ControlClient,
    target: Target,
    session: Session,
    /// The model in the words of the command line or of the server.
    model: String,
    is_simulated: bool,
}

/// Source: spec/bench-serving.md 6, steps 5 to 8.
async fn prepare(config: &BenchConfig, caches: Caches) -> Result<Prepared, CommandError> {
    let client = control_client(config)?;
    let is_simulated = config.ready_s > 0 && wait(config, &client).await?;
    let model = match &config.model {
        Some(model) => model.clone(),
        None => ask_model(&client).await?,
    };
    let tokenizers = match &config.tokenizer {
        Some(name) => vec![name.clone()],
        None => {
            let told = discovery::tokenizer(&client).await;
            told.into_iter().chain([model.clone()]).collect()
        }
    };
    let target = Target {
        address: config.address.clone(),
        headers: config.headers.clone(),
        dialect: config.dialect.clone(),
        model: config.served.clone().unwrap_or_else(|| model.clone()),
    };
    let session = Session::prepare(
        target.clone(),
        config.scenario.clone(),
        Tokenizers(&tokenizers),
        PathBuf::new(),
        caches,
    )
    .await
    .map_err(unfit)?;
    if config.backend.protocol() != Protocol::Embeddings {
        warn_of_base_model(&session);
    }
    session.said().iter().for_each(|line| say(line));
    let asked = config.scenario.workload.asked();
    let (rows, prompts) = (session.rows() as u64, session.prompts() as u64);
    if let Some(asked) = asked.filter(|asked| rows < *asked) {
        complain(&match prompts < asked {
            true => format!("note: the data set gives {rows} requests, and {asked} were asked for\n"),
            false => format!("note: {rows} requests fall due until the schedule ends, of {asked} prompts\n"),
        });
    }
    if config.asks_for_usage() {
        complain(
            "note: requests ask for token counts (`stream_options: {\"include_usage\": true}`), which the Python tool does not; \
             `--compat-figures` sends its body\n",
        );
    }
    if config.cache_report && !config.backend.is_sglang() {
        say("WARNING: --cache-report is only supported with sglang backends.");
    }
    Ok(Prepared {
        client,
        target,
        session,
        model,
        is_simulated,
    })
}

/// The client for everything that is asked of the server beside the load.
fn control_client(config: &BenchConfig) -> Result<ControlClient, CommandError> {
    let mut headers = HeaderMap::new();
    if let Some((name, value)) = &config.auth {
        let header = control_client::secret_header(name, value).map_err(|_| {
            CommandError::usage(format!(
                "error: the header `{name}` cannot be sent: its value holds a control character\n"
            ))
        });
        headers.extend([header?]);
    }
    let base_url = config.address.to_string();
    Ok(ControlClient::new(control_client::client(), base_url, headers))
}

/// Waits until the server is ready; whether it says that it is the simulated engine.
async fn wait(config: &BenchConfig, server: &ControlClient) -> Result<bool, CommandError> {
    let path = match config.backend {
        Backend::Trt | Backend::Gserver => "",
        _ => "/v1/models",
    };
    let (url, limit) = (server.url(path), config.ready_s);
    say(&format!("Waiting up to {limit}s for {url} to become ready..."));
    match discovery::wait_until_ready(server, path, Duration::from_secs(limit)).await {
        Ok(ready) => {
            say(&format!("Server ready in {:.1}s.", ready.seconds));
            Ok(ready.is_simulated)
        }
        Err(error) if error.is_refusal() => {
            say(&format!("Server at {url} is not ready. Exiting."));
            let help = match server.base_url().strip_suffix("/v1") {
                _ if error.wants_key() => {
                    "the server wants a key: set `OPENAI_API_KEY`, or give `--header Authorization=\"Bearer KEY\"`"
                        .to_owned()
                }
                Some(base) => {
                    format!("did you mean `--base-url {base}`? paths such as `/v1/models` are put behind it")
                }
                None => "the server is up and does not know that path: see `--base-url` and `--backend`, or leave the \
                         question out with `--ready-check-timeout-sec 0`"
                    .to_owned(),
            };
            Err(unfit(format!("{error}\n  = help: {help}")))
        }
        Err(error) => {
            say(&format!("Server did not become ready within {limit}s timeout."));
            say(&format!("Server at {url} is not ready. Exiting."));
            Err(unfit(format!(
                "{error}\n  = help: start the server, or say where it is with `--host` and `--port` or `--base-url`"
            )))
        }
    }
}

async fn ask_model(server: &ControlClient) -> Result<String, CommandError> {
    match discovery::models(server)
        .await
        .map(|models| models.into_iter().next())
    {
        Ok(Some(model)) => Ok(model),
        Ok(None) => {
            say("No model specified or found. Please provide a model using `--model`.");
            Err(unfit("the server names no model; give `--model`"))
        }
        Err(error) => {
            say(&format!(
                "Failed to fetch model from {}/v1/models. Error: {error}",
                server.base_url()
            ));
            say("Please specify the correct host and port using `--host` and `--port`.");
            Err(unfit(format!(
                "{error}\n  = help: give `--model`, or say where the server is with `--host` and `--port`"
            )))
        }
    }
}

/// Source: docs/bench-serving.md 1.2. Where there is no configuration, nothing is known and nothing said.
fn warn_of_base_model(session: &Session) {
    let (_, Some(path)) = session.tokenizer() else {
        return;
    };
    let Ok(text) = std::fs::read_to_string(path.with_file_name("tokenizer_config.json")) else {
        return;
    };
    let settings: Value = serde_json::from_str(&text).unwrap_or_default();
    let beside = ["chat_template.jinja", "chat_template.json"];
    let has_file = beside.iter().any(|name| path.with_file_name(name).exists());
    if settings.get("chat_template").is_none_or(Value::is_null) && !has_file {
        say(
            "\nWARNING It is recommended to use the `Chat` or `Instruct` model for benchmarking.\n\
             Because when the tokenizer counts the output tokens, if there is gibberish, it might count incorrectly.\n",
        );
    }
}

/// What may help where every request of the warmup failed like this.
async fn help(
    config: &BenchConfig,
    server: &ControlClient,
    session: &Session,
    failure: &Failure,
) -> Option<String> {
    if config.asks_for_usage() && failure.message.contains("stream_options") {
        return Some(
            "have the token counts left out with `--extra-request-body '{\"stream_options\": null}'`"
                .to_owned(),
        );
    }
    if failure.class != Class::Status {
        return None;
    }
    let named = config.served.as_ref().map(|name| ("--served-model-name", name));
    let named = named.or_else(|| config.model.as_ref().map(|name| ("--model", name)));
    if let (Some((flag, name)), Ok(models)) = (named, discovery::models(server).await)
        && !models.is_empty()
        && !models.contains(name)
    {
        let models: Vec<String> = models.iter().map(|model| format!("`{model}`")).collect();
        return Some(format!(
            "the server serves {}; `{flag} {name}` is not among its models",
            models.join(", ")
        ));
    }
    let lacks_path = ["Not Found", "Method Not Allowed"]
        .iter()
        .any(|said| failure.message.starts_with(said));
    // A path that is served, and not for this model, is that of this backend.
    let is_about_model = failure.message.to_lowercase().contains("model");
    (lacks_path && !is_about_model).then(|| {
        let others = [Backend::Vllm, Backend::SglangOai, Backend::Sglang].into_iter();
        let others: Vec<String> = others
            .filter(|backend| *backend != config.backend)
            .map(|backend| format!("`{}`", backend.name()))
            .collect();
        format!(
            "{} is what `--backend {}` asks; is the server of another one, such as {}?",
            session.url(),
            config.backend.name(),
            others[..2].join(" or ")
        )
    })
}

/// Source: docs/bench-serving.md 6, step 9, and 12.2. Whether to go on.
async fn warm_up(
    config: &BenchConfig,
    server: &mut AttachedServer,
    session: &Session,
    stop: &Stop,
) -> Result<bool, CommandError> {
    let scenario = &session.load().scenario;
    let count = scenario.limits.warmup;
    if count == 0 && config.profile == Profile::Classic {
        return Ok(true);
    }
    say(&match config.profile {
        Profile::Classic => "Starting initial single prompt test run...".to_owned(),
        Profile::Current => format!("Starting warmup with {count} sequences..."),
    });
    let began = clock::now();
    let items = warm_up::items(scenario, &session.workload().prepared);
    let control = DriveControl {
        stop,
        progress: Arc::default(),
        report: &|_| {},
    };
    let warmed = warm_up::warm_up(&mut server.engine, scenario, items.clone(), &control).await;
    let warmed = warmed.map_err(|error| unfit(error.to_string()))?;
    requests::tell(config, session, &items, &warmed.requests, warmed.zero);
    if stop.is_asked() {
        return Ok(false);
    }
    if let Some(failure) = warmed.failure() {
        let what = match config.profile {
            Profile::Classic => "Initial test run failed",
            Profile::Current => "Warmup failed",
        };
        let help = help(config, &server.engine.control, session, failure).await;
        let help = help.map_or_else(String::new, |help| format!("  = help: {help}\n"));
        return Err(CommandError {
            exit: Exit::CellFailed,
            message: format!(
                "error: {what} - Please make sure benchmark arguments are correctly specified. Error: {}: {}\n{help}",
                failure.class.name(),
                failure.message
            ),
        });
    }
    match config.profile {
        Profile::Classic => {
            say("Initial test run completed. Starting main benchmark run...");
            let seconds = clock::now().since(began).as_secs_f64();
            say(&format!("warmup time: {seconds:.2}s"));
        }
        Profile::Current => say(&format!(
            "Warmup completed with {count} sequences. Starting main benchmark run..."
        )),
    }
    Ok(true)
}

/// Source: spec/bench-serving.md 6, steps 10 to 12, and 12.2. The profilers that run now.
async fn begin(config: &BenchConfig, server: &AttachedServer) -> Result<Vec<profile::Running>, CommandError> {
    if let Some(reset) = &config.flush {
        let reset = server.engine.reset_caches(Some(reset), FLUSH).await;
        if let Some(error) = reset.error {
            return Err(unfit(format!(
                "the caches were not emptied: {error}\n  = help: leave `--flush-cache` out, or have the server allow it"
            )));
        }
    }
    // The server is to settle. Where nothing was asked of it before, there is nothing to settle from.
    let is_stirred = config.scenario.limits.warmup > 0 || config.flush.is_some();
    match config.profile {
        _ if !is_stirred => {}
        Profile::Classic => tokio::time::sleep(Duration::from_millis(1500)).await,
        Profile::Current => tokio::time::sleep(Duration::from_secs(1)).await,
    }
    Ok(match &config.profiler {
        Some(profiler) => profile::start(profiler, &server.engine.control).await,
        None => Vec::new(),
    })
}

/// Sends the load and draws its bar.
async fn drive(
    config: &BenchConfig,
    server: &mut AttachedServer,
    session: &Session,
    stop: &Stop,
    (sink, spill): (Option<Sink>, Option<Arc<Spill>>),
) -> Result<LoadOutcome, CommandError> {
    let progress = Arc::new(Progress::default());
    let mut bar = config.output.bar.then(|| Bar::new(session.len()));
    let context = LoadContext {
        sink,
        spill,
        calibration: None,
        continues_samples: false,
        samples_after_stop: true,
        control: DriveControl {
            stop,
            progress: Arc::clone(&progress),
            report: &|_| {},
        },
    };
    let load = session.load().clone();
    let measuring = load::measure(&mut server.engine, load, session.workload(), context);
    tokio::pin!(measuring);
    let mut beat = tokio::time::interval(BEAT);
    let outcome = loop {
        tokio::select! {
            biased;
            outcome = &mut measuring => break outcome,
            _ = beat.tick() => {
                if let Some(bar) = &mut bar {
                    bar.show(progress.ended() as usize);
                }
            }
        }
    };
    if let Some(bar) = bar {
        bar.finish(progress.ended() as usize);
    }
    outcome.map_err(|error| unfit(error.to_string()))
}
