//! `matrix bench`: one load on a running server, with the order of events and the output of
//! `sglang.bench_serving`.
//!
//! stdout gets what the Python tool prints, except its arguments. stderr gets the progress bar and notes
//! about the figures.

mod arrivals;
mod config;
mod console;
mod failure;
mod outputs;
mod partial;
mod print_line;
mod result;
mod show;
mod sweep;
pub(crate) mod vllm;

use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use self::config::{BenchConfig, Environment};
use self::console::Console;
use crate::base::threads;
use crate::cli;
use crate::cli::bench::{BenchArgs, DEFAULT_HOST, LikeTool};
use crate::cli::cache::CacheArgs;
use crate::commands::environment::environment;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{eprint, hide_secrets};
use crate::config::arrival::Arrival;
use crate::config::scenario::Scenario;
use crate::config::workload::Profile;
use crate::exit::Exit;
use crate::results::record::event::Event;
use crate::runner::bench::{self, BenchError, BenchObserver, BenchOutcome, BenchRequest, ReadyCheck};
use crate::runner::context::EventBus;
use crate::runner::shutdown::{Shutdown, Signals};

/// Runs the load and prints the figures.
pub(crate) fn execute(args: &BenchArgs) -> Outcome {
    let variables = Environment {
        bearer: cli::env_variable("OPENAI_API_KEY"),
        key: cli::env_variable("API_KEY"),
        anthropic: cli::env_variable("ANTHROPIC_API_KEY"),
        in_ci: cli::env_variable("SGLANG_IS_IN_CI"),
        profiler_dir: cli::env_variable("SGLANG_TORCH_PROFILER_DIR"),
    };
    if args.extensions.like == LikeTool::Vllm {
        return Err(CommandError::usage(
            "error: `--like vllm` changes the flags of the command, so it must not be abbreviated; write `matrix bench --like vllm`\n".to_owned(),
        ));
    }
    hide_secrets(config::secrets(args, &variables));
    let config = BenchConfig::from_args(args, &variables).map_err(|errors| {
        let lines: String = errors.iter().map(|error| format!("error: {error}\n")).collect();
        CommandError::usage(format!("{lines}nothing was sent\n"))
    })?;
    outputs::check_outputs(&config)?;
    if !args.server.base_url.is_empty() && (args.server.host != DEFAULT_HOST || args.server.port.is_some()) {
        eprint("note: `--host` and `--port` have no effect together with `--base-url`\n");
    }
    let workload = &config.scenario.workload;
    let named = workload
        .path
        .as_deref()
        .filter(|_| workload.facts().file.is_some());
    if let Some(path) = named.filter(|path| !Path::new(path).exists()) {
        return Err(CommandError::usage(format!(
            "error: there is no file `{path}`\n  = help: name a data file of the data set with `--dataset-path`\nnothing was sent\n"
        )));
    }
    if let Err(error) = bench::check_lengths_file(workload) {
        return Err(CommandError::usage(format!("error: {error}\nnothing was sent\n")));
    }
    let places = CacheArgs {
        hf_home: args.extensions.hf_home.clone(),
        cache: args.extensions.keep_prompts_in.clone(),
    };
    let request = bench_request(&config, &places, !args.extensions.fresh_prompts);
    let calibration = bench::prepare_host(&places.cache(), &environment().tool);
    let console = Console::new(&config, calibration);
    drive(
        &request,
        console,
        async |mut console: Console<'_>, measured| match measured {
            Ok(outcome) => console.finish(outcome),
            Err(error) => {
                console.end_bar(0);
                Err(failure::report_error(&config, error).await)
            }
        },
    )
}

/// Runs a bench until it ends or is stopped. `finish` makes the outcome of the command.
fn drive<O: BenchObserver>(
    request: &BenchRequest,
    mut observer: O,
    finish: impl AsyncFnOnce(O, Result<BenchOutcome, BenchError>) -> Outcome,
) -> Outcome {
    let environment = environment();
    let runtime = threads::runtime()?;
    runtime.block_on(async {
        let mut signals = Signals::catch().context("cannot listen to signals")?;
        let shutdown = Shutdown::default();
        let mut events = EventBus::default();
        events.subscribe(|event| {
            if let Event::Stopping { now: false } = event {
                eprint(
                    "stopping: requests in flight are cancelled, and the results so far are printed; a second signal ends at once\n",
                );
            }
        });
        let measuring = async {
            let measured = bench::run(request, &environment, &mut observer, &shutdown).await;
            finish(observer, measured).await
        };
        tokio::select! {
            biased;
            () = shutdown.immediate.cancelled() => Ok(Exit::Interrupted),
            outcome = measuring => outcome,
            never = shutdown.listen(&mut signals, &events) => match never {},
        }
    })
}

/// Returns the request to the runner; without `uses_prompts` the prompt cache is not used.
fn bench_request(config: &BenchConfig, places: &CacheArgs, uses_prompts: bool) -> BenchRequest {
    let is_current = config.profile == Profile::Current;
    // If the cache is not reset, each arrival needs prompts that are not in it.
    let is_reseeded = !config.continues_draws && config.cache_reset.is_none();
    let scenario = |(place, arrival): (usize, &Arrival)| Scenario {
        arrival: arrival.clone(),
        seed: config.scenario.seed + if is_reseeded { place as u64 } else { 0 },
        ..config.scenario.clone()
    };
    // The settle time is needed only after a warm-up or a cache reset.
    let is_stirred = config.scenario.limits.warmup > 0 || config.cache_reset.is_some();
    BenchRequest {
        address: config.address.clone(),
        connections: config.connections.clone(),
        auth: config.auth.clone(),
        headers: config.headers.clone(),
        dialect: config.dialect.clone(),
        backend: config.requested_load.backend.clone(),
        scenarios: config.arrivals.iter().enumerate().map(scenario).collect(),
        continues_draws: config.continues_draws,
        model: config.model.clone(),
        served_model_name: config.served_model_name.clone(),
        tokenizer: config.tokenizer.clone(),
        ready_check: (config.ready_timeout_s > 0).then(|| ReadyCheck {
            path: config.backend.facts().ready_path,
            limit: Duration::from_secs(config.ready_timeout_s),
        }),
        first_request_limit: None,
        aligns_prompts: false,
        cache_reset: config.cache_reset.clone(),
        cache_reset_limit: config.cache_reset_limit,
        settle_time: match config.profile {
            _ if !is_stirred => Duration::ZERO,
            Profile::Classic => Duration::from_millis(1500),
            Profile::Current => Duration::from_secs(1),
        },
        profiler: config.profiler.clone(),
        asks_info: is_current,
        records: partial::records_file(config),
        hf_home: places.hf_home(),
        prompts: uses_prompts.then(|| places.prompts_folder()),
    }
}
