//! `matrix bench --like vllm`: one load on a running server, with the flags and the output of `vllm bench serve`.
//!
//! Load generator and measurement are those of every bench. stdout gets what vLLM's tool prints, except its
//! arguments.

mod arrival;
mod backends;
mod console;
mod dataset;
mod failure;
mod result;
mod settings;

use std::path::Path;
use std::time::Duration;

use self::console::Console;
use self::settings::Settings;
use super::{Environment, drive};
use crate::cli;
use crate::cli::bench::VllmArgs;
use crate::cli::cache::CacheArgs;
use crate::commands::environment::environment;
use crate::commands::error::{CommandError, Outcome};
use crate::commands::output::{eprint, hide_secrets};
use crate::runner::bench::{self, BenchRequest};

/// Runs the load and prints the figures.
pub(crate) fn execute(args: &VllmArgs) -> Outcome {
    let variables = Environment {
        bearer: cli::env_variable("OPENAI_API_KEY"),
        ..Environment::default()
    };
    hide_secrets(settings::secrets(args, &variables));
    let settings = Settings::from_args(args, &variables).map_err(|errors| {
        let lines: String = errors.iter().map(|error| format!("error: {error}\n")).collect();
        CommandError::usage(format!("{lines}nothing was sent\n"))
    })?;
    result::check_file(&settings)?;
    if let Some(path) = settings.missing_file() {
        return Err(CommandError::usage(format!(
            "error: there is no file `{path}`\n  = help: name a data file of the data set with `--dataset-path`\nnothing was sent\n"
        )));
    }
    if settings.connections.tls.is_some() {
        eprint(
            "note: the certificate of the server is not checked (`--insecure`), so another server may answer\n",
        );
    }
    if !settings.has_temperature {
        eprint(
            "note: requests have no `temperature`, so the server's default applies; `--temperature 0` samples greedily\n",
        );
    }
    let places = CacheArgs {
        hf_home: args.hf_home.clone(),
        cache: None,
    };
    let request = bench_request(&settings, &places);
    bench::prepare_host(&places.cache(), &environment().tool);
    let console = Console::new(&settings);
    drive(
        &request,
        console,
        async |console: Console<'_>, measured| match measured {
            Ok(_) => console.finish(),
            Err(error) => {
                console.end_bar();
                Err(failure::error(&settings, &error))
            }
        },
    )
}

fn bench_request(settings: &Settings, places: &CacheArgs) -> BenchRequest {
    BenchRequest {
        address: settings.address.clone(),
        auth: None,
        headers: settings.headers.clone(),
        connections: settings.connections.clone(),
        dialect: settings.dialect.clone(),
        backend: settings.backend.clone(),
        scenarios: vec![settings.scenario.clone()],
        continues_draws: false,
        model: settings.model.clone(),
        served_model_name: settings.served_model_name.clone(),
        tokenizer: settings.tokenizer.clone(),
        ready_check: None,
        first_request_limit: settings.first_request_limit,
        aligns_prompts: settings.aligns_prompts,
        cache_reset: None,
        cache_reset_limit: Duration::ZERO,
        settle_time: Duration::ZERO,
        profiler: settings.profiler.clone(),
        asks_info: false,
        records: None,
        hf_home: places.hf_home(),
        // Ids of requests differ between loads, so prepared prompts are not kept.
        prompts: None,
    }
}

impl Settings {
    /// The named data file, if it does not exist.
    fn missing_file(&self) -> Option<&str> {
        let path = self.scenario.workload.path.as_deref();
        path.filter(|path| !Path::new(path).exists())
    }
}
