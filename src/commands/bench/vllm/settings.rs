//! The checked flags of `matrix bench --like vllm`. All errors are found before a server is contacted.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::arrival;
use super::backends;
use super::dataset;
use crate::analysis::metrics::GoodputTargets;
use crate::base::secrets::is_secret_name;
use crate::base::tls::{TlsConfig, TlsSettings, Trust};
use crate::base::units::HumanDuration;
use crate::cli::bench::{LoraAssignment, VllmArgs};
use crate::commands::bench::Environment;
use crate::config::api::EmbeddingsForm;
use crate::config::lora::{AdapterDistribution, Lora};
use crate::config::scenario::{LoadLimits, Scenario};
use crate::config::workload::{Profile, Workload};
use crate::plan::{ClientStyle, Protocol, ProtocolSpec, UsageRequest};
use crate::report::vllm_serve::TIMES;
use crate::runner::bench::{Address, Connections, Headers, Scheme};
use crate::runner::profiler::{ProfiledServers, Profiler};

/// The settings of a bench like vLLM's.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    /// The name of the backend, as it was given.
    pub(super) backend: String,
    pub(super) address: Address,
    pub(super) connections: Connections,
    pub(super) headers: Headers,
    pub(super) dialect: ProtocolSpec,
    pub(super) scenario: Scenario,
    pub(super) model: Option<String>,
    pub(super) served_model_name: Option<String>,
    pub(super) tokenizer: Option<String>,
    pub(super) first_request_limit: Option<Duration>,
    /// Whether prompts are compared with the server's tokenizer.
    pub(super) aligns_prompts: bool,
    pub(super) profiler: Option<Profiler>,
    /// Whether requests name a sampling temperature, or cannot have one.
    pub(super) has_temperature: bool,
    pub(super) output: VllmOutput,
}

#[derive(Clone, Debug)]
pub(super) struct VllmOutput {
    pub(super) selected: Vec<String>,
    pub(super) percents: Vec<f64>,
    pub(super) goodput: Option<GoodputTargets>,
    pub(super) saves: bool,
    pub(super) appends: bool,
    pub(super) is_detailed: bool,
    pub(super) metadata: Vec<(String, String)>,
    pub(super) folder: Option<PathBuf>,
    pub(super) file_name: Option<String>,
    pub(super) label: Option<String>,
    pub(super) shows_bar: bool,
    /// The number of prompts on the command line.
    pub(super) prompts: i64,
}

impl Settings {
    /// Checks the flags; returns all errors.
    pub(super) fn from_args(args: &VllmArgs, environment: &Environment) -> Result<Self, Vec<String>> {
        let mut errors: Vec<String> = args.refused.errors().collect();
        let mut or_say = |wrong: Vec<String>| errors.extend(wrong);
        let protocol = backends::protocol(args).map_err(&mut or_say).ok();
        let address = address(args).map_err(|error| or_say(vec![error])).ok();
        let connections = connections(args).map_err(|error| or_say(vec![error])).ok();
        let headers = headers(args, environment).map_err(&mut or_say).ok();
        let arrival = arrival::arrival(args).map_err(&mut or_say).ok();
        let metadata = pairs("metadata", args.output.metadata.as_deref())
            .map_err(|error| or_say(vec![error]))
            .ok();
        let goodput = goodput(args).map_err(&mut or_say).ok();
        let statistics = statistics(args).map_err(&mut or_say).ok();
        let workload = dataset::workload(args).map_err(&mut or_say).ok();
        or_say(other_errors(args));
        let (Some((protocol, form)), Some(address), Some(headers), Some(arrival), Some(metadata)) =
            (protocol, address, headers, arrival, metadata)
        else {
            return Err(errors);
        };
        let (Some(goodput), Some((selected, percents)), Some(workload), Some(connections)) =
            (goodput, statistics, workload, connections)
        else {
            return Err(errors);
        };
        errors.extend(dataset::protocol_error(args, (protocol, form), &workload));
        if !errors.is_empty() {
            return Err(errors);
        }
        let generates_text = protocol.facts().generates_text;
        Ok(Self {
            backend: args.server.backend.clone(),
            address,
            connections,
            headers,
            dialect: dialect(args, protocol, form),
            scenario: scenario(args, protocol, workload, arrival),
            model: args.server.model.clone(),
            served_model_name: args.server.served_model_name.clone(),
            tokenizer: args.server.tokenizer.clone(),
            first_request_limit: u64::try_from(args.server.ready_check_timeout_sec)
                .ok()
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
            aligns_prompts: match args.dataset.dataset_name.as_str() {
                // Several prompts of one request are not compared.
                "random" => args.sources.random_batch_size <= 1,
                name => name == "prefix_repetition",
            },
            profiler: profiler(args),
            has_temperature: !generates_text || args.requests.temperature.is_some(),
            output: VllmOutput {
                selected,
                percents,
                goodput,
                saves: args.output.save_result || args.output.append_result,
                appends: args.output.append_result,
                is_detailed: args.output.save_detailed,
                metadata,
                folder: args.output.result_dir.clone(),
                file_name: args
                    .output
                    .result_filename
                    .clone()
                    .filter(|name| !name.is_empty()),
                label: args.output.label.clone(),
                shows_bar: !args.output.disable_tqdm,
                prompts: args.dataset.num_prompts,
            },
        })
    }
}

fn connections(args: &VllmArgs) -> Result<Connections, String> {
    let unchecked = TlsSettings {
        trust: Trust::Any,
        identity: None,
    };
    let tls = args.server.insecure.then(|| TlsConfig::load(&unchecked));
    Ok(Connections {
        tls: tls
            .transpose()
            .map_err(|error| format!("the TLS connection cannot be set up: {error}"))?,
        ..Connections::default()
    })
}

fn address(args: &VllmArgs) -> Result<Address, String> {
    if let Some(url) = &args.server.base_url {
        return url.parse::<Address>().map_err(|error| error.to_string());
    }
    let host = args.server.host.trim_start_matches('[').trim_end_matches(']');
    Ok(Address {
        scheme: Scheme::Http,
        host: host.to_owned(),
        port: args.server.port,
        prefix: String::new(),
        socket: None,
    })
}

/// Splits texts such as `KEY=VALUE`. The error does not quote a text, which may hold a secret.
fn pairs(flag: &str, texts: Option<&[String]>) -> Result<Vec<(String, String)>, String> {
    let pair = |text: &String| {
        let (key, value) = text.split_once('=')?;
        Some((key.trim().to_owned(), value.trim().to_owned()))
    };
    let pairs: Option<Vec<_>> = texts.unwrap_or_default().iter().map(pair).collect();
    pairs.ok_or_else(|| format!("`--{flag}` has a value without `=`; write `--{flag} KEY=VALUE`"))
}

fn headers(args: &VllmArgs, environment: &Environment) -> Result<Headers, Vec<String>> {
    let bearer = environment.bearer.iter().filter(|key| !key.is_empty());
    let mut headers: Vec<(String, String)> = bearer
        .map(|key| ("Authorization".to_owned(), format!("Bearer {key}")))
        .collect();
    let given = pairs("header", args.server.header.as_deref()).map_err(|error| vec![error])?;
    for (name, value) in given {
        headers.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        headers.push((name, value));
    }
    Headers::new(headers).map_err(|error| vec![error.to_string()])
}

/// The values that must not appear in any output.
pub(super) fn secrets(args: &VllmArgs, environment: &Environment) -> Vec<String> {
    let given = pairs("header", args.server.header.as_deref()).unwrap_or_default();
    let sent = given
        .into_iter()
        .filter(|(name, _)| is_secret_name(name) || name.eq_ignore_ascii_case("authorization"));
    let fields = args.requests.extra_body.iter().flatten();
    let named = fields.filter(|(name, _)| is_secret_name(name));
    let bodies = named.filter_map(|(_, value)| value.as_str().map(str::to_owned));
    let whole = environment.bearer.clone().into_iter();
    let whole = whole.chain(sent.map(|(_, value)| value)).chain(bodies);
    // A server may repeat a header without the scheme before the key.
    whole
        .flat_map(|value| {
            let key = value.split_once(' ').map(|(_, key)| key.to_owned());
            std::iter::once(value).chain(key)
        })
        .collect()
}

fn goodput(args: &VllmArgs) -> Result<Option<GoodputTargets>, Vec<String>> {
    let Some(texts) = &args.output.goodput else {
        return Ok(None);
    };
    let (mut targets, mut errors) = (GoodputTargets::default(), Vec::new());
    for text in texts {
        let target = text.split_once(':').and_then(|(name, ms)| {
            let ms: f64 = ms.parse().ok()?;
            (ms >= 0.0 && ms.is_finite()).then_some((name, ms / 1000.0))
        });
        match target {
            Some(("ttft", seconds)) => targets.ttft_s = Some(seconds),
            Some(("tpot", seconds)) => targets.tpot_s = Some(seconds),
            Some(("e2el", seconds)) => targets.e2el_s = Some(seconds),
            _ => errors.push(format!(
                "`--goodput {text}` is not a target; write `ttft:500`, `tpot:50` or `e2el:3000`, in milliseconds"
            )),
        }
    }
    match errors.is_empty() {
        true => Ok(Some(targets)),
        false => Err(errors),
    }
}

/// Returns the names of the printed times, and the percentiles.
fn statistics(args: &VllmArgs) -> Result<(Vec<String>, Vec<f64>), Vec<String>> {
    let mut errors = Vec::new();
    let generates_text = backends::generates_text(&args.server.backend);
    let default = if generates_text { "ttft,tpot,itl" } else { "e2el" };
    let names = args
        .output
        .percentile_metrics
        .as_deref()
        .filter(|names| !names.is_empty());
    let names: Vec<String> = names.unwrap_or(default).split(',').map(str::to_owned).collect();
    for name in &names {
        if !TIMES.iter().any(|(_, known, ..)| known == name) {
            let known: Vec<&str> = TIMES.iter().map(|(_, known, ..)| *known).collect();
            errors.push(format!(
                "`--percentile-metrics` does not accept `{name}`; write one or more of {}",
                known.join(", ")
            ));
        }
    }
    let percent = |text: &str| {
        let percent: f64 = text.trim().parse().ok()?;
        (0.0..=100.0).contains(&percent).then_some(percent)
    };
    let mut percents = Vec::new();
    for text in args.output.metric_percentiles.split(',') {
        match percent(text) {
            Some(percent) => percents.push(percent),
            None => errors.push(format!(
                "`--metric-percentiles` does not accept `{text}`; write numbers from 0 to 100, such as `50,99.9`"
            )),
        }
    }
    match errors.is_empty() {
        true => Ok((names, percents)),
        false => Err(errors),
    }
}

fn other_errors(args: &VllmArgs) -> Vec<String> {
    let mut errors = Vec::new();
    let requests = &args.requests;
    if !["auto", "hf"].contains(&args.server.tokenizer_mode.as_str()) {
        errors.push(format!(
            "`--tokenizer-mode {}` is not supported: only a `tokenizer.json` file can be read; use `--tokenizer-mode hf`, and give the file with `--tokenizer`",
            args.server.tokenizer_mode
        ));
    }
    if args.server.backend == "vllm-rerank" && requests.extra_body.is_some() {
        errors.push(
            "`--extra-body` has no effect with `vllm-rerank`, as in vLLM's tool; leave it out, or use `matrix bench --backend vllm-rerank` \
             without `--like`"
                .to_owned(),
        );
    }
    let numbers = [
        ("top-p", requests.top_p),
        ("min-p", requests.min_p),
        ("temperature", requests.temperature),
        ("frequency-penalty", requests.frequency_penalty),
        ("presence-penalty", requests.presence_penalty),
        ("repetition-penalty", requests.repetition_penalty),
    ];
    // vLLM's tool refuses them, too.
    let is_sampled = requests.top_k.is_some() || numbers.iter().any(|(_, number)| number.is_some());
    if args.server.backend == "openai-audio" && is_sampled {
        errors.push(
            "sampling parameters are not sent to `openai-audio`; leave them out, or send them as fields with `--extra-body`".to_owned(),
        );
    }
    for (flag, number) in numbers {
        if number.is_some_and(|number| !number.is_finite()) {
            errors.push(format!(
                "`--{flag}` must be a finite number, because JSON cannot express infinity"
            ));
        }
    }
    errors
}

/// The sampling fields in vLLM's order, followed by the user's own fields.
fn body(args: &VllmArgs, protocol: Protocol) -> Map<String, Value> {
    let requests = &args.requests;
    let sampling = [
        ("top_p", requests.top_p.map(Value::from)),
        ("top_k", requests.top_k.map(Value::from)),
        ("min_p", requests.min_p.map(Value::from)),
        ("temperature", requests.temperature.map(Value::from)),
        ("frequency_penalty", requests.frequency_penalty.map(Value::from)),
        ("presence_penalty", requests.presence_penalty.map(Value::from)),
        ("repetition_penalty", requests.repetition_penalty.map(Value::from)),
    ];
    let sampling = sampling.into_iter().filter(|_| protocol.facts().generates_text);
    let mut body: Map<String, Value> = sampling
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect();
    body.extend(requests.extra_body.clone().unwrap_or_default());
    body
}

fn dialect(args: &VllmArgs, protocol: Protocol, embeddings: EmbeddingsForm) -> ProtocolSpec {
    let logprobs = args
        .requests
        .logprobs
        .filter(|_| protocol == Protocol::Completions);
    let body = logprobs.map(|count| ("logprobs".to_owned(), json!(count)));
    ProtocolSpec {
        protocol,
        path: Some(args.server.endpoint.clone()),
        usage: UsageRequest::StreamOptions,
        body: body.into_iter().collect(),
        routing_key_header: None,
        embeddings,
        style: ClientStyle::VllmServe,
    }
}

fn scenario(
    args: &VllmArgs,
    protocol: Protocol,
    workload: Workload,
    arrival: crate::config::arrival::Arrival,
) -> Scenario {
    let is_random = args.dataset.dataset_name == "random" && protocol.facts().generates_text;
    let ignores_eos = args.requests.ignore_eos || is_random || args.dataset.dataset_name == "timed_trace";
    let lora = args
        .requests
        .lora_modules
        .clone()
        .filter(|names| !names.is_empty());
    Scenario {
        name: "bench".to_owned(),
        profile: Profile::Current,
        seed: u64::from(args.dataset.seed),
        workload,
        arrival,
        limits: LoadLimits {
            warmup: args.load.num_warmups,
            // Only the limits of requests end a load on an attached server.
            stall: HumanDuration(Duration::MAX),
            ..LoadLimits::default()
        },
        slo: None,
        further_tiers: Vec::new(),
        search: None,
        body: body(args, protocol),
        stop_at_eos: !ignores_eos,
        keep_text: true,
        pacing: Default::default(),
        connections: Default::default(),
        cancel: None,
        check_answers: false,
        quality: None,
        lora: lora.map(|names| Lora {
            names,
            distribution: match args.requests.lora_assignment {
                LoraAssignment::Random => AdapterDistribution::Uniform,
                LoraAssignment::RoundRobin => AdapterDistribution::Distinct,
            },
        }),
    }
}

fn profiler(args: &VllmArgs) -> Option<Profiler> {
    args.load.profile.then(|| Profiler {
        start: Map::new(),
        folder: PathBuf::new(),
        both: Map::new(),
        is_bare: true,
        is_stopped: true,
        servers: ProfiledServers::Measured,
    })
}
