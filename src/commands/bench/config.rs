//! The checked flags of `matrix bench`. All errors are found before a server is contacted.

mod cancel;
mod conflicts;
mod connections;
mod dataset;
mod environment;
mod profiling;
mod request;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;

pub(super) use environment::Environment;
pub(super) use request::secrets;

use super::arrivals::{self, SteadyStateOptions};
use crate::base::units::HumanDuration;
use crate::cli::bench::BenchArgs;
use crate::config::arrival::Arrival;
use crate::config::backend::Backend;
use crate::config::dataset::DatasetName;
use crate::config::scenario::{LoadLimits, Scenario, Slo};
use crate::config::workload::Profile;
use crate::plan::{CacheResetSpec, ProtocolSpec, UsageRequest};
use crate::report::bench_serving::bench_line::RequestedLoad;
use crate::report::bench_serving::traffic::Traffic;
use crate::runner::bench::{Address, Connections, Headers};
use crate::runner::profiler::Profiler;

/// The settings of a bench.
#[derive(Clone, Debug)]
pub(crate) struct BenchConfig {
    pub(crate) backend: Backend,
    pub(crate) profile: Profile,
    pub(crate) address: Address,
    pub(crate) connections: Connections,
    /// The header with the key; control requests also send it.
    pub(crate) auth: Option<(String, String)>,
    pub(crate) headers: Headers,
    pub(crate) dialect: ProtocolSpec,
    /// The load, with the first arrival.
    pub(crate) scenario: Scenario,
    /// All arrivals, measured one after another.
    pub(crate) arrivals: Vec<Arrival>,
    /// Whether each arrival continues the random draws of the one before, instead of starting with the seed.
    pub(crate) continues_draws: bool,
    pub(crate) steady_state: Option<SteadyStateOptions>,
    pub(crate) model: Option<String>,
    pub(crate) served_model_name: Option<String>,
    pub(crate) tokenizer: Option<String>,
    /// Seconds to wait for the server; 0 skips the readiness check.
    pub(crate) ready_timeout_s: u64,
    /// The request that resets the cache, if it is to be reset.
    pub(crate) cache_reset: Option<CacheResetSpec>,
    /// How long the server may take to empty its caches.
    pub(crate) cache_reset_limit: Duration,
    pub(crate) profiler: Option<Profiler>,
    pub(crate) cache_report: bool,
    pub(crate) requested_load: RequestedLoad,
    pub(crate) output: OutputOptions,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OutputOptions {
    /// The file of `--output-file`.
    pub(crate) file: Option<PathBuf>,
    /// End of the default file name, after backend and date.
    pub(crate) name_suffix: String,
    pub(crate) details: bool,
    pub(crate) vllm_json: Option<PathBuf>,
    pub(crate) bare_infinity: bool,
    pub(crate) compat_figures: bool,
    pub(crate) shows_bar: bool,
    /// Whether a line is printed for the start and the end of each request.
    pub(crate) prints_requests: bool,
    /// Whether the load over time is plotted.
    pub(crate) draws_plot: bool,
    /// The file for a record per request.
    pub(crate) records: Option<PathBuf>,
    /// Percentiles to print in addition to the usual ones.
    pub(crate) percentiles: Vec<f64>,
}

impl BenchConfig {
    /// Checks the flags; returns all errors.
    pub(crate) fn from_args(args: &BenchArgs, environment: &Environment) -> Result<Self, Vec<String>> {
        let mut errors = args.unsupported.refusals();
        errors.extend(conflicts::flag_conflicts(args));
        let mut or_say = ErrorCollector(&mut errors);
        let profile = args.extensions.rules;
        let backend = args.server.backend;
        let addresses = or_say.take(request::addresses(args));
        let connections = addresses
            .as_ref()
            .and_then(|addresses| or_say.take(connections::connections(args, addresses)));
        let headers = or_say.take(request::headers(args, environment));
        let body = or_say.take(request::extra_body(args));
        let workload = or_say.take(dataset::workload(args, profile));
        let slo = or_say.take(parse_slo(args.output.goodput.as_deref(), backend));
        let lora = or_say.take(dataset::lora(args));
        let cancel = or_say.take(cancel::cancel(args));
        let arrivals = or_say.take(arrivals::arrivals(args));
        let search = or_say.take(arrivals::search_options(args));
        let steady = or_say.take(arrivals::steady_state_options(args));
        let tls = connections
            .as_ref()
            .and_then(|connections| connections.tls.as_ref());
        let profiled = or_say.take(profiling::profiled_servers(args, tls));
        let (Some(arrivals), Some(search), Some(steady), Some(profiled)) =
            (arrivals, search, steady, profiled)
        else {
            return Err(errors);
        };
        let (Some(addresses), Some((auth, headers)), Some(body), Some(workload), Some(slo), Some(lora)) =
            (addresses, headers, body, workload, slo, lora)
        else {
            return Err(errors);
        };
        if let (true, Some(why)) = (search.is_some(), workload.search_error()) {
            errors.push(why);
        }
        errors.extend(connections::routing_key_errors(args, &workload));
        errors.extend(dataset::answer_check_error(args, &workload, &body));
        let Some(connections) = connections.filter(|_| errors.is_empty()) else {
            return Err(errors);
        };
        let seed = args.dataset.seed.unwrap_or(match profile {
            Profile::Classic => 1,
            Profile::Current => 42,
        });
        let has_checks = workload.facts().has_checks;
        let scenario = Scenario {
            name: "bench".to_owned(),
            profile,
            seed,
            workload,
            arrival: arrivals[0].clone(),
            check_answers: args.extensions.check_answers.unwrap_or(has_checks),
            quality: None,
            cancel: cancel.flatten(),
            limits: limits(args, profile),
            slo: slo.clone(),
            further_tiers: Vec::new(),
            search,
            body,
            stop_at_eos: args.sampling.disable_ignore_eos || has_checks,
            keep_text: true,
            lora,
            pacing: dataset::pacing(args),
            connections: connections::load_connections(args),
        };
        Ok(Self {
            backend,
            profile,
            address: addresses[0].clone(),
            connections,
            auth,
            headers,
            dialect: request::protocol_spec(args, profile),
            scenario,
            model: args.server.model.clone(),
            served_model_name: args.server.served_model_name.clone(),
            tokenizer: args.server.tokenizer.clone(),
            ready_timeout_s: args.server.ready_check_timeout_sec.unwrap_or(match profile {
                Profile::Classic => 0,
                Profile::Current => 60,
            }),
            cache_reset: cache_reset(args, environment),
            cache_reset_limit: cache_reset_limit(args),
            profiler: profiling::profiler(args, environment, profiled),
            cache_report: args.output.cache_report,
            requested_load: requested_load(args, profile, slo, &arrivals[0]),
            arrivals,
            continues_draws: args.execution.multi,
            steady_state: steady,
            output: output_options(args),
        })
    }
}

impl BenchConfig {
    /// Returns the same settings with another arrival.
    pub(crate) fn with_arrival(&self, arrival: &Arrival) -> Self {
        let mut config = self.clone();
        config.requested_load.rate = Traffic::from_scenario(&config.scenario, arrival);
        config.requested_load.concurrency = arrival.concurrency.map(NonZeroU32::get);
        config.scenario.arrival = arrival.clone();
        config
    }

    /// Whether requests ask for token counts, which the Python tool does not do.
    pub(crate) fn asks_for_usage(&self) -> bool {
        self.dialect.protocol.facts().stream_options
            && self.dialect.usage == UsageRequest::StreamOptions
            && self.dialect.body.get("stream") != Some(&json!(false))
    }
}

/// Returns successful results and collects the errors of the others.
struct ErrorCollector<'a>(&'a mut Vec<String>);

impl ErrorCollector<'_> {
    fn take<T>(&mut self, result: Result<T, Vec<String>>) -> Option<T> {
        result.map_err(|errors| self.0.extend(errors)).ok()
    }
}

fn parse_slo(pairs: Option<&[String]>, backend: Backend) -> Result<Option<Slo>, Vec<String>> {
    let Some(pairs) = pairs else {
        return Ok(None);
    };
    let mut limits: BTreeMap<&str, HumanDuration> = BTreeMap::new();
    let mut errors = Vec::new();
    for pair in pairs {
        let parts = pair
            .split_once(':')
            .filter(|(key, _)| ["ttft", "tpot", "e2el"].contains(key));
        let limit = parts
            .and_then(|(_, ms)| ms.parse::<f64>().ok())
            .filter(|ms| *ms > 0.0);
        let span = limit.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
        match (parts, span) {
            (Some(("ttft" | "tpot", _)), _) if !backend.protocol().facts().generates_text => {
                errors.push(format!(
                    "`--goodput {pair}` has no meaning with the backend `{}`, whose answers have no tokens; write `e2el:3000`, in \
                     milliseconds",
                    backend.name()
                ));
            }
            (Some((key, _)), Some(span)) => drop(limits.insert(key, HumanDuration(span))),
            _ => errors.push(format!(
                "`--goodput {pair}` is not an SLO target; write `ttft:500`, `tpot:50` or `e2el:3000`, in milliseconds above 0"
            )),
        }
    }
    let limit = |key: &str| limits.get(key).copied();
    match errors.is_empty() {
        true => Ok(Some(Slo {
            speed: None,
            ttft: limit("ttft"),
            tpot: limit("tpot"),
            e2e: limit("e2el"),
        })),
        false => Err(errors),
    }
}

fn limits(args: &BenchArgs, profile: Profile) -> LoadLimits {
    let (args_limits, defaults) = (&args.limits, LoadLimits::default());
    let request = args_limits.request_timeout.unwrap_or(defaults.request);
    LoadLimits {
        request,
        first_byte: args_limits.first_byte_timeout.unwrap_or(request),
        duration: args_limits.duration,
        drain: args_limits.drain.unwrap_or(defaults.drain),
        excess_tokens: args_limits.excess_tokens.unwrap_or(defaults.excess_tokens),
        error_share: args_limits.max_failed,
        warmup: match (profile, args.execution.warmup_requests) {
            _ if args.execution.disable_warmup => 0,
            (Profile::Classic, _) => 1,
            (Profile::Current, count) => count.unwrap_or(1),
        },
        // Only the limits of requests end a load on an attached server.
        stall: HumanDuration(Duration::MAX),
        abort_error_share: args_limits.abort_error_share,
        ..defaults
    }
}

/// Returns the cache reset, if `--flush-cache` or a CI environment of SGLang asks for it.
///
/// Source: docs/bench-serving.md 6, step 10.
fn cache_reset(args: &BenchArgs, environment: &Environment) -> Option<CacheResetSpec> {
    let backend = args.server.backend;
    let in_ci = environment
        .in_ci
        .as_ref()
        .is_some_and(|value| ["true", "1"].contains(&value.to_lowercase().as_str()));
    let is_wanted = args.execution.flush_cache || (in_ci && backend.is_sglang());
    // Only a single server can be asked; `--flush-cache` is refused with several.
    if !is_wanted || args.server.base_url.len() > 1 {
        return None;
    }
    let name = backend.name();
    let path = if name.starts_with("vllm") {
        "/reset_prefix_cache".to_owned()
    } else if name.starts_with("sglang") {
        format!("/flush_cache?timeout={:?}", args.execution.flush_cache_timeout)
    } else {
        "/flush_cache".to_owned()
    };
    Some(CacheResetSpec {
        method: "POST".to_owned(),
        path,
        success: None,
    })
}

/// The longest wait for the answer to a cache reset. A server of SGLang waits for the given time itself.
fn cache_reset_limit(args: &BenchArgs) -> Duration {
    const SERVER_MARGIN: Duration = Duration::from_secs(5);
    let timeout = Duration::try_from_secs_f64(args.execution.flush_cache_timeout).unwrap_or(Duration::MAX);
    match args.server.backend.name().starts_with("sglang") {
        true => timeout.saturating_add(SERVER_MARGIN),
        false => timeout,
    }
}

fn requested_load(args: &BenchArgs, profile: Profile, slo: Option<Slo>, arrival: &Arrival) -> RequestedLoad {
    let length = |given: Option<u32>| given.or_else(|| dataset::default_length(profile));
    RequestedLoad {
        tag: args.output.tag.clone(),
        backend: args.server.backend.name().to_owned(),
        dataset: args.dataset.dataset_name.bench_serving_name().to_owned(),
        rate: match args.is_replayed() {
            true => Traffic::Trace,
            false => Traffic::from_arrival(arrival),
        },
        concurrency: arrival.concurrency.map(NonZeroU32::get),
        sharegpt_output_len: args.dataset.sharegpt_output_len,
        random_input_len: length(args.dataset.random_input_len),
        random_output_len: length(args.dataset.random_output_len),
        random_range_ratio: args.dataset.random_range_ratio,
        slo,
    }
}

/// Returns the output settings.
///
/// Source: docs/bench-serving.md 9 and 12.4, where the default name for `random` ends in `jsonl` although it
/// is CSV.
fn output_options(args: &BenchArgs) -> OutputOptions {
    let (options, prompts) = (&args.dataset, args.dataset.num_prompts);
    let name = options.dataset_name.bench_serving_name();
    let lengths = format!(
        "{prompts}_{}_{}",
        options.random_input_len.unwrap_or(1024),
        options.random_output_len.unwrap_or(1024)
    );
    let suffix = match options.dataset_name {
        DatasetName::Random | DatasetName::RandomIds => format!("{lengths}.jsonl"),
        DatasetName::Image => {
            let pictures = dataset::image_options(&args.pictures);
            let size = String::from(pictures.resolution);
            format!("{lengths}_{}imgs_{size}.jsonl", pictures.count)
        }
        _ if args.extensions.rules == Profile::Classic => format!("{prompts}_{name}.csv"),
        _ => format!("{prompts}_{name}.jsonl"),
    };
    OutputOptions {
        file: args.output.output_file.clone(),
        name_suffix: suffix,
        details: args.output.output_details,
        vllm_json: args.extensions.vllm_json.clone(),
        bare_infinity: args.extensions.compat_json,
        compat_figures: args.extensions.compat_figures,
        shows_bar: !args.output.disable_tqdm,
        prints_requests: args.output.print_requests,
        draws_plot: args.output.plot_throughput,
        records: args.limits.records.clone(),
        percentiles: args.limits.percentiles.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests;
