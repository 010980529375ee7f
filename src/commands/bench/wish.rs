//! What the flags of `matrix bench` ask for, checked: every mistake is found before anything is asked of a server.

mod course;
mod rows;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::base::units::{RequestRate, Span};
use crate::cli::bench::{Activity, Backend, BenchArgs, DatasetName, Rules, written};
use crate::load::{Address, Headers, Scheme};
use crate::matrix::plan::{Dialect, Protocol, Usage};
use crate::matrix::spec::arrival::{Arrival, Spacing};
use crate::matrix::spec::scenario::{Limits, Scenario, Slo};
use crate::matrix::spec::workload::Profile;
use crate::report::bench_line::Asked;
use crate::report::traffic::Traffic;
use crate::run::server::Server;

/// A bench that can be begun.
#[derive(Debug)]
pub(crate) struct Wish {
    pub(crate) backend: Backend,
    pub(crate) profile: Profile,
    pub(crate) address: Address,
    /// The header that carries a key; also sent with every call beside the load.
    pub(crate) auth: Option<(String, String)>,
    /// The headers of requests.
    pub(crate) headers: Headers,
    pub(crate) dialect: Dialect,
    /// The load at the first of `rates`.
    pub(crate) scenario: Scenario,
    /// The rates that are measured one after another; at least one.
    pub(crate) rates: Vec<RequestRate>,
    pub(crate) model: Option<String>,
    pub(crate) served: Option<String>,
    pub(crate) tokenizer: Option<String>,
    /// Seconds to wait for the server; 0 does not ask.
    pub(crate) ready_s: u64,
    pub(crate) warmup: Warmup,
    /// The path that empties the cache, where that is wanted.
    pub(crate) flush: Option<String>,
    pub(crate) profiler: Option<Profiler>,
    pub(crate) cache_report: bool,
    pub(crate) asked: Asked,
    /// How the file of the line is called, where nobody named one, between backend and date on one side.
    pub(crate) output: Output,
}

/// What is sent before the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Warmup {
    /// The first request, whole; once.
    Whole,
    /// The first request cut to 32 tokens; so many at once.
    Short(u32),
    /// Nothing.
    None,
}

/// How the server is told to profile itself.
#[derive(Clone, Debug)]
pub(crate) struct Profiler {
    /// The body of the start, but for the folder's time.
    pub(crate) start: Map<String, Value>,
    /// Below which folder it writes.
    pub(crate) folder: PathBuf,
    /// Fields of both bodies.
    pub(crate) both: Map<String, Value>,
    /// Whether it is stopped from here.
    pub(crate) is_stopped: bool,
    pub(crate) whom: Profiled,
}

/// Who profiles itself.
#[derive(Clone, Debug)]
pub(crate) enum Profiled {
    /// The server that gets the load.
    Server,
    /// Workers that run apart, whose role is `Prefill` or `Decode`.
    Workers {
        role: &'static str,
        servers: Vec<Server>,
    },
    /// Nobody was named.
    Nobody,
}

/// Where results go.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Output {
    /// The file that was named.
    pub(crate) file: Option<PathBuf>,
    /// What its name ends in otherwise, after backend and date.
    pub(crate) rest: String,
    pub(crate) details: bool,
    pub(crate) vllm_json: Option<PathBuf>,
    pub(crate) infinity: bool,
    pub(crate) compat_figures: bool,
    pub(crate) bar: bool,
}

/// What the environment says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// `OPENAI_API_KEY`.
    pub(crate) bearer: Option<String>,
    /// `API_KEY`.
    pub(crate) key: Option<String>,
    /// `SGLANG_IS_IN_CI`.
    pub(crate) in_ci: Option<String>,
    /// `SGLANG_TORCH_PROFILER_DIR`.
    pub(crate) profiler_dir: Option<String>,
}

impl Backend {
    /// Source: spec/bench-serving.md 1.1.
    pub(crate) const fn protocol(self) -> Protocol {
        match self {
            Self::Sglang | Self::SglangNative => Protocol::SglangNative,
            Self::SglangOai | Self::Vllm | Self::Lmdeploy => Protocol::Completions,
            Self::SglangOaiChat | Self::VllmChat | Self::LmdeployChat => Protocol::Chat,
            Self::SglangEmbedding | Self::VllmEmbedding => Protocol::Embeddings,
            Self::Trt | Self::Gserver => Protocol::Trt,
            Self::Truss => Protocol::Truss,
        }
    }

    /// Source: spec/bench-serving.md 1.1, trap T26 mended.
    const fn port(self) -> u16 {
        match self {
            Self::Sglang
            | Self::SglangNative
            | Self::SglangOai
            | Self::SglangOaiChat
            | Self::SglangEmbedding => 30_000,
            Self::Vllm | Self::VllmChat | Self::VllmEmbedding | Self::Trt => 8000,
            Self::Lmdeploy | Self::LmdeployChat => 23_333,
            Self::Gserver => 9988,
            Self::Truss => 8080,
        }
    }

    pub(crate) fn name(self) -> String {
        written(&self)
    }

    pub(crate) fn is_sglang(self) -> bool {
        self.name().contains("sglang")
    }

    const fn is_classic(self) -> bool {
        matches!(
            self,
            Self::Sglang
                | Self::SglangNative
                | Self::SglangOai
                | Self::Vllm
                | Self::Lmdeploy
                | Self::Trt
                | Self::Gserver
        )
    }
}

impl Wish {
    /// Checks the flags.
    ///
    /// # Errors
    /// Every mistake, in words.
    pub(crate) fn read(args: &BenchArgs, environment: &Environment) -> Result<Self, Vec<String>> {
        let mut mistakes = args.missing.refusals();
        mistakes.extend(contradictions(args));
        let mut or_say = Collect(&mut mistakes);
        let profile = args.ours.rules.profile();
        let backend = args.server.backend;
        let address = or_say.take(address(args));
        let headers = or_say.take(headers(args, environment));
        let body = or_say.take(body(args));
        let workload = or_say.take(rows::workload(args, profile));
        let slo = or_say.take(slo(args.output.goodput.as_deref()));
        let lora = or_say.take(rows::lora(args));
        let rates = or_say.take(course::rates(args));
        let profiled = or_say.take(course::profiled(args));
        let (Some(address), Some((auth, headers)), Some(body), Some(workload), Some(slo), Some(lora)) =
            (address, headers, body, workload, slo, lora)
        else {
            return Err(mistakes);
        };
        let (Some(rates), Some(profiled)) = (rates, profiled) else {
            return Err(mistakes);
        };
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let seed = args.dataset.seed.unwrap_or(match profile {
            Profile::Classic => 1,
            Profile::Current => 42,
        });
        let scenario = Scenario {
            name: "bench".to_owned(),
            profile,
            seed,
            workload,
            arrival: Arrival {
                rate: rates[0],
                pace: None,
                spacing: Spacing::Poisson,
                concurrency: args.course.max_concurrency.and_then(NonZeroU32::new),
            },
            limits: Limits::default(),
            slo: slo.clone(),
            search: None,
            body,
            stop_at_eos: args.sampling.disable_ignore_eos,
            keep_text: true,
            lora,
        };
        Ok(Self {
            backend,
            profile,
            address,
            auth,
            headers,
            dialect: dialect(args, profile),
            scenario,
            model: args.server.model.clone(),
            served: args.server.served_model_name.clone(),
            tokenizer: args.server.tokenizer.clone(),
            ready_s: args.server.ready_check_timeout_sec.unwrap_or(match profile {
                Profile::Classic => 0,
                Profile::Current => 60,
            }),
            warmup: warmup(args, profile),
            flush: flush(args, environment),
            profiler: profiler(args, environment, profiled),
            cache_report: args.output.cache_report,
            asked: asked(args, profile, slo, rates[0]),
            output: output(args),
            rates,
        })
    }
}

/// Keeps what went well and notes the rest.
struct Collect<'a>(&'a mut Vec<String>);

impl Collect<'_> {
    fn take<T>(&mut self, result: Result<T, Vec<String>>) -> Option<T> {
        result.map_err(|said| self.0.extend(said)).ok()
    }
}

/// Flags that cannot stand together, and flags that would have no effect.
fn contradictions(args: &BenchArgs) -> Vec<String> {
    let mut found = Vec::new();
    let backend = args.server.backend;
    let (name, protocol) = (backend.name(), backend.protocol());
    let (sampling, course) = (&args.sampling, &args.course);
    let mut no = |is_wrong: bool, why: String| {
        if is_wrong {
            found.push(why);
        }
    };
    let is_native = protocol == Protocol::SglangNative;
    let without_effect =
        |flag: &str| format!("`--{flag}` has no effect with the backend `{name}`; leave it out");
    if backend == Backend::Gserver {
        no(
            true,
            "the backend `gserver` is not implemented; it is not in the Python tool either".to_owned(),
        );
        return found;
    }
    let is_nameless = matches!(backend, Backend::Trt | Backend::Truss) && args.server.model.is_none();
    no(
        is_nameless,
        format!("the backend `{name}` cannot be asked for its model; give `--model`"),
    );
    no(
        sampling.disable_stream && protocol == Protocol::Trt,
        without_effect("disable-stream"),
    );
    let logprobs = sampling.return_logprob;
    no(
        logprobs && !is_native && protocol != Protocol::Completions,
        without_effect("return-logprob"),
    );
    no(
        logprobs && protocol == Protocol::Completions && sampling.top_logprobs_num == 0,
        "`--return-logprob` has no effect on completions without `--top-logprobs-num`; give a number above 0"
            .to_owned(),
    );
    let is_useless = match protocol {
        Protocol::SglangNative => false,
        Protocol::Completions => !logprobs,
        _ => true,
    };
    no(
        sampling.top_logprobs_num > 0 && is_useless,
        without_effect("top-logprobs-num"),
    );
    no(
        sampling.token_ids_logprob.is_some() && !is_native,
        without_effect("token-ids-logprob"),
    );
    no(
        sampling.logprob_start_len != -1 && !is_native,
        without_effect("logprob-start-len"),
    );
    no(
        sampling.return_routed_experts && !is_native,
        without_effect("return-routed-experts"),
    );
    let is_vector = protocol == Protocol::Embeddings;
    no(
        sampling.temperature.is_some() && is_vector,
        without_effect("temperature"),
    );
    no(sampling.top_p.is_some() && is_vector, without_effect("top-p"));
    let is_ids = args.dataset.tokenize_prompt;
    no(
        is_ids && backend != Backend::Sglang,
        "`--tokenize-prompt` needs the backend `sglang`".to_owned(),
    );
    let timeout = course.flush_cache_timeout;
    no(
        !(timeout.is_finite() && timeout > 0.0),
        format!("`--flush-cache-timeout` must be above 0 seconds, not {timeout}"),
    );
    no(
        course.disable_warmup && course.warmup_requests.is_some_and(|count| count > 0),
        "`--disable-warmup` and `--warmup-requests` contradict each other; leave one out".to_owned(),
    );
    let profiler = &args.profiler;
    let is_detailed = profiler.profile_start_step.is_some()
        || profiler.profile_steps.is_some()
        || profiler.profile_num_steps.is_some()
        || profiler.profile_by_stage
        || profiler.profile_stages.is_some()
        || profiler.profile_output_dir.is_some()
        || profiler.profile_prefix.is_some()
        || profiler.pd_separated;
    no(
        is_detailed && !profiler.profile,
        "flags of the profiler have no effect without `--profile`; add it, or leave them out".to_owned(),
    );
    found.extend(course::without_effect(args));
    let mut no = |is_wrong: bool, why: String| {
        if is_wrong {
            found.push(why);
        }
    };
    if args.ours.rules == Rules::Classic {
        no(
            !backend.is_classic(),
            format!("the rules `classic` know no backend `{name}`; use `--rules current`"),
        );
        no(
            course.warmup_requests.is_some(),
            "under the rules `classic` the warm-up is one whole request; use `--disable-warmup`, or leave \
             `--warmup-requests` out"
                .to_owned(),
        );
        let has_lengths = args.dataset.random_input_len.is_some() || args.dataset.random_output_len.is_some();
        no(
            args.dataset.dataset_name == DatasetName::Sharegpt && has_lengths,
            "under the rules `classic` `sharegpt` takes no `--random-input-len` and `--random-output-len`; leave them out"
                .to_owned(),
        );
    }
    found
}

/// Source: spec/bench-serving.md 1.1.
fn address(args: &BenchArgs) -> Result<Address, Vec<String>> {
    if let Some(url) = &args.server.base_url {
        return url
            .parse()
            .map_err(|error: crate::load::TargetError| vec![error.to_string()]);
    }
    let host = args
        .server
        .host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    Ok(Address {
        scheme: Scheme::Http,
        host,
        port: args.server.port.unwrap_or(args.server.backend.port()),
        prefix: String::new(),
    })
}

type Key = Option<(String, String)>;

/// Source: spec/bench-serving.md 1.3.
fn headers(args: &BenchArgs, environment: &Environment) -> Result<(Key, Headers), Vec<String>> {
    let bearer = environment.bearer.as_ref().map(|key| format!("Bearer {key}"));
    let key = bearer.or_else(|| environment.key.clone());
    let auth: Key = key.map(|key| ("Authorization".to_owned(), key));
    let (mut given, mut mistakes) = (Vec::new(), Vec::new());
    for header in &args.server.header {
        match header.split_once('=') {
            Some((name, value)) if !name.is_empty() && !value.is_empty() => {
                given.push((name.to_owned(), value.to_owned()));
            }
            // What it holds may be a secret and is not repeated.
            _ => {
                mistakes.push("a `--header` has no name or no value; write `--header Name=value`".to_owned())
            }
        }
    }
    if !given.is_empty() && args.server.backend == Backend::Trt {
        mistakes.push("`--header` has no effect with the backend `trt`; leave it out".to_owned());
    }
    let mut all: Vec<(String, String)> = Vec::new();
    // Triton's endpoint gets no key from the Python tool either.
    if let Some(auth) = auth.clone().filter(|_| args.server.backend != Backend::Trt) {
        all.push(auth);
    }
    for (name, value) in given {
        all.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        all.push((name, value));
    }
    let headers = Headers::new(all).map_err(|error| mistakes.push(error.to_string()));
    match (headers, mistakes.is_empty()) {
        (Ok(headers), true) => Ok((auth, headers)),
        _ => Err(mistakes),
    }
}

/// What stands in bodies under the user's own fields.
///
/// Source: spec/bench-serving.md 2.2, 2.3, 12.1.
fn dialect(args: &BenchArgs, profile: Profile) -> Dialect {
    let sampling = &args.sampling;
    let protocol = args.server.backend.protocol();
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
    if protocol == Protocol::SglangNative {
        let mut params = Map::new();
        if let Some(temperature) = sampling.temperature {
            params.insert("temperature".to_owned(), json!(temperature));
        }
        if let Some(top_p) = sampling.top_p.filter(|top_p| *top_p < 1.0) {
            params.insert("top_p".to_owned(), json!(top_p));
        }
        if !params.is_empty() {
            put("sampling_params", Value::Object(params));
        }
        let later = [
            "lora_path",
            "return_logprob",
            "return_routed_experts",
            "logprob_start_len",
        ];
        if profile == Profile::Classic {
            later.iter().for_each(|key| put(key, Value::Null));
        }
        if sampling.return_logprob {
            put("return_logprob", json!(true));
        }
        if sampling.return_routed_experts {
            put("return_routed_experts", json!(true));
        }
        if sampling.logprob_start_len != -1 {
            put("logprob_start_len", json!(sampling.logprob_start_len));
        }
    }
    if protocol == Protocol::Completions && sampling.return_logprob {
        put("logprobs", json!(sampling.top_logprobs_num));
    }
    let has_stream = !matches!(protocol, Protocol::Trt | Protocol::Embeddings);
    if sampling.disable_stream && has_stream {
        put("stream", json!(false));
    }
    if matches!(
        protocol,
        Protocol::Completions | Protocol::Chat | Protocol::Trt | Protocol::Truss
    ) {
        // Trap T25: bench_serving keeps these from OpenAI endpoints, so they go there only when they are asked for.
        if let Some(temperature) = sampling.temperature {
            put("temperature", json!(temperature));
        }
        if let Some(top_p) = sampling.top_p {
            put("top_p", json!(top_p));
        }
    }
    Dialect {
        protocol,
        path: None,
        usage: Usage::Unasked,
        body,
    }
}

/// The user's own fields, and those that win over them.
///
/// Source: spec/bench-serving.md 2.2, 2.3 and step 4 of 6.
fn body(args: &BenchArgs) -> Result<Map<String, Value>, Vec<String>> {
    let wrong = |why: String| vec![format!("`--extra-request-body` is no JSON object: {why}")];
    let backend = args.server.backend;
    let mut body = match &args.sampling.extra_request_body {
        None => Map::new(),
        Some(text) => match serde_json::from_str(text) {
            Ok(Value::Object(body)) => body,
            Ok(other) => return Err(wrong(format!("it is `{other}`"))),
            Err(error) => return Err(wrong(error.to_string())),
        },
    };
    let mut put = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
    if args.output.cache_report && matches!(backend, Backend::SglangOai | Backend::SglangOaiChat) {
        put("return_cached_tokens_details", json!(true));
    }
    if args.sampling.fake_prefill {
        put("bootstrap_host", json!("2.2.2.2"));
        put("bootstrap_room", json!(0));
    }
    if backend.protocol() == Protocol::SglangNative {
        if args.sampling.top_logprobs_num > 0 {
            put("top_logprobs_num", json!(args.sampling.top_logprobs_num));
        }
        if let Some(ids) = &args.sampling.token_ids_logprob {
            put("token_ids_logprob", json!(ids));
        }
    }
    Ok(body)
}

/// Source: spec/bench-serving.md 7.5.
fn slo(pairs: Option<&[String]>) -> Result<Option<Slo>, Vec<String>> {
    let Some(pairs) = pairs else {
        return Ok(None);
    };
    let mut limits: BTreeMap<&str, Span> = BTreeMap::new();
    let mut mistakes = Vec::new();
    for pair in pairs {
        let parts = pair
            .split_once(':')
            .filter(|(key, _)| ["ttft", "tpot", "e2el"].contains(key));
        let limit = parts
            .and_then(|(_, ms)| ms.parse::<f64>().ok())
            .filter(|ms| *ms > 0.0);
        let span = limit.and_then(|ms| Duration::try_from_secs_f64(ms / 1000.0).ok());
        match (parts, span) {
            (Some((key, _)), Some(span)) => drop(limits.insert(key, Span(span))),
            _ => mistakes.push(format!(
                "`--goodput {pair}` is no target; write `ttft:500`, `tpot:50` or `e2el:3000`, in milliseconds above 0"
            )),
        }
    }
    let limit = |key: &str| limits.get(key).copied();
    match mistakes.is_empty() {
        true => Ok(Some(Slo {
            ttft: limit("ttft"),
            tpot: limit("tpot"),
            e2e: limit("e2el"),
        })),
        false => Err(mistakes),
    }
}

fn warmup(args: &BenchArgs, profile: Profile) -> Warmup {
    match (profile, args.course.warmup_requests) {
        _ if args.course.disable_warmup => Warmup::None,
        (Profile::Classic, _) => Warmup::Whole,
        (Profile::Current, count) => Warmup::Short(count.unwrap_or(1)),
    }
}

/// Source: spec/bench-serving.md 6, step 10.
fn flush(args: &BenchArgs, environment: &Environment) -> Option<String> {
    let backend = args.server.backend;
    let in_ci = environment
        .in_ci
        .as_ref()
        .is_some_and(|value| ["true", "1"].contains(&value.to_lowercase().as_str()));
    let is_wanted = args.course.flush_cache || (in_ci && backend.is_sglang());
    if !is_wanted {
        return None;
    }
    let name = backend.name();
    Some(if name.starts_with("vllm") {
        "/reset_prefix_cache".to_owned()
    } else if name.starts_with("sglang") {
        format!("/flush_cache?timeout={:?}", args.course.flush_cache_timeout)
    } else {
        "/flush_cache".to_owned()
    })
}

/// Source: spec/bench-serving.md 6.1.
fn profiler(args: &BenchArgs, environment: &Environment, whom: Profiled) -> Option<Profiler> {
    let wish = &args.profiler;
    if !wish.profile {
        return None;
    }
    let activities: Vec<String> = wish
        .profile_activities
        .iter()
        .map(|activity: &Activity| written(activity))
        .collect();
    let steps = wish.profile_num_steps.or(wish.profile_by_stage.then_some(5));
    let folder = wish
        .profile_output_dir
        .clone()
        .or_else(|| environment.profiler_dir.clone().map(PathBuf::from));
    let folder = folder.unwrap_or_else(|| PathBuf::from("/tmp"));
    let folder = std::path::absolute(&folder).unwrap_or(folder);
    let start = [
        ("activities", json!(activities)),
        ("num_steps", json!(steps)),
        ("profile_by_stage", json!(wish.profile_by_stage)),
        ("profile_stages", json!(wish.profile_stages)),
        ("output_dir", Value::Null),
        ("profile_prefix", json!(wish.profile_prefix)),
    ];
    let mut both = Map::new();
    if let Some(step) = wish.profile_start_step {
        both.insert("start_step".to_owned(), json!(step.to_string()));
    }
    if let Some(steps) = wish.profile_steps {
        both.insert("num_steps".to_owned(), json!(steps.to_string()));
    }
    Some(Profiler {
        start: start
            .map(|(key, value)| (key.to_owned(), value))
            .into_iter()
            .collect(),
        folder,
        both,
        is_stopped: wish.profile_steps.is_none() && (wish.pd_separated || wish.profile_num_steps.is_none()),
        whom,
    })
}

fn asked(args: &BenchArgs, profile: Profile, slo: Option<Slo>, rate: RequestRate) -> Asked {
    let length = |given: Option<u32>| given.or_else(|| rows::usual_length(profile));
    Asked {
        tag: args.output.tag.clone(),
        backend: args.server.backend.name(),
        dataset: written(&args.dataset.dataset_name),
        rate: match args.dataset.dataset_name {
            DatasetName::Mooncake => Traffic::Trace,
            _ => rate.into(),
        },
        concurrency: args.course.max_concurrency.filter(|limit| *limit > 0),
        sharegpt_output_len: args.dataset.sharegpt_output_len,
        random_input_len: length(args.dataset.random_input_len),
        random_output_len: length(args.dataset.random_output_len),
        random_range_ratio: args.dataset.random_range_ratio,
        slo,
    }
}

/// Source: spec/bench-serving.md 9 and 12.4, whose name for `random` ends in `jsonl` though it is CSV.
fn output(args: &BenchArgs) -> Output {
    let (wish, prompts) = (&args.dataset, args.dataset.num_prompts);
    let name = written(&wish.dataset_name);
    let rest = match name.starts_with("random") {
        true => format!(
            "{prompts}_{}_{}.jsonl",
            wish.random_input_len.unwrap_or(1024),
            wish.random_output_len.unwrap_or(1024)
        ),
        false if args.ours.rules == Rules::Classic => format!("{prompts}_{name}.csv"),
        false => format!("{prompts}_{name}.jsonl"),
    };
    Output {
        file: args.output.output_file.clone(),
        rest,
        details: args.output.output_details,
        vllm_json: args.ours.vllm_json.clone(),
        infinity: args.ours.compat_json,
        compat_figures: args.ours.compat_figures,
        bar: !args.output.disable_tqdm,
    }
}

#[cfg(test)]
mod tests;
