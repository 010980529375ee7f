//! Where and how requests are sent: address, headers and request body.

use serde_json::{Map, Value, json};

use crate::base::secrets::is_secret_name;
use crate::cli::bench::BenchArgs;
use crate::commands::bench::config::environment::Environment;
use crate::config::api::SamplingFields;
use crate::config::backend::{Backend, KeyVariable};
use crate::config::dataset::PromptForm;
use crate::config::workload::Profile;
use crate::plan::{ClientStyle, Protocol, ProtocolSpec, UsageRequest};
use crate::runner::bench::{Address, Headers, Scheme};

/// Returns the addresses of the server, at least one.
pub(super) fn addresses(args: &BenchArgs) -> Result<Vec<Address>, Vec<String>> {
    let (mut addresses, mut errors) = (Vec::new(), Vec::new());
    for url in &args.server.base_url {
        match url.parse::<Address>() {
            Ok(address) if addresses.iter().any(|known| is_same_server(known, &address)) => {
                errors.push(format!(
                    "`--base-url` names `{address}` twice; name each server once"
                ));
            }
            Ok(address) => addresses.push(address),
            Err(error) => errors.push(error.to_string()),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    if addresses.is_empty() {
        addresses.push(host_address(args));
    }
    Ok(addresses)
}

/// Whether two addresses are the same one, spelled alike or not; names of hosts have no case.
fn is_same_server(one: &Address, other: &Address) -> bool {
    let is_same_host = one.host.eq_ignore_ascii_case(&other.host);
    let with_host = Address {
        host: one.host.clone(),
        ..other.clone()
    };
    is_same_host && *one == with_host
}

fn host_address(args: &BenchArgs) -> Address {
    let host = args
        .server
        .host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    Address {
        scheme: Scheme::Http,
        host,
        port: args.server.port.unwrap_or(args.server.backend.facts().port),
        prefix: String::new(),
        socket: None,
    }
}

pub(super) type Key = Option<(String, String)>;

pub(super) fn headers(args: &BenchArgs, environment: &Environment) -> Result<(Key, Headers), Vec<String>> {
    let auth = auth_header(args.server.backend.facts().key, environment);
    let (mut given, mut errors) = (Vec::new(), Vec::new());
    for header in &args.server.header {
        match header.split_once('=') {
            Some((name, value)) if !name.is_empty() && !value.is_empty() => {
                given.push((name.to_owned(), value.to_owned()));
            }
            // The header may hold a secret, so the message does not quote it.
            _ => errors.push("a `--header` has no name or no value; write `--header Name=value`".to_owned()),
        }
    }
    if !given.is_empty() && args.server.backend == Backend::Trt {
        errors.push("`--header` has no effect with the backend `trt`; leave it out".to_owned());
    }
    let mut pairs: Vec<(String, String)> = Vec::new();
    // The Python tool sends no key to Triton either.
    if let Some(auth) = auth.clone().filter(|_| args.server.backend != Backend::Trt) {
        pairs.push(auth);
    }
    for (name, value) in given {
        pairs.retain(|(known, _)| !known.eq_ignore_ascii_case(&name));
        pairs.push((name, value));
    }
    let headers = Headers::new(pairs).map_err(|error| errors.push(error.to_string()));
    match (headers, errors.is_empty()) {
        (Ok(headers), true) => Ok((auth, headers)),
        _ => Err(errors),
    }
}

/// Returns the header with the server's key, if a variable holds one.
fn auth_header(variable: KeyVariable, environment: &Environment) -> Key {
    let (name, key) = match variable {
        KeyVariable::OpenAi => {
            let bearer = environment.bearer.as_ref().map(|key| format!("Bearer {key}"));
            ("Authorization", bearer.or_else(|| environment.key.clone()))
        }
        KeyVariable::Anthropic => ("x-api-key", environment.anthropic.clone()),
    };
    Some((name.to_owned(), key?))
}

/// Returns the values that must not appear in any output: keys from the environment, headers with such a
/// name, and body fields with the name of a secret.
pub(crate) fn secrets(args: &BenchArgs, environment: &Environment) -> Vec<String> {
    const CARRIERS: [&str; 5] = ["auth", "key", "token", "secret", "cookie"];
    let carries = |name: &str| {
        let name = name.to_ascii_lowercase();
        CARRIERS.iter().any(|part| name.contains(part))
    };
    let headers = args
        .server
        .header
        .iter()
        .filter_map(|header| header.split_once('='));
    let sent = headers
        .filter(|(name, _)| carries(name))
        .map(|(_, value)| value.to_owned());
    let body = args.sampling.extra_request_body.as_deref().unwrap_or_default();
    let fields: Map<String, Value> = serde_json::from_str(body).unwrap_or_default();
    let named = fields.into_iter().filter(|(name, _)| is_secret_name(name));
    let bodies = named.filter_map(|(_, value)| value.as_str().map(str::to_owned));
    let keys = [&environment.bearer, &environment.key, &environment.anthropic].map(Clone::clone);
    let whole = keys.into_iter().flatten().chain(sent).chain(bodies);
    // A server may repeat a header without the scheme before the key.
    whole
        .flat_map(|value| {
            let key = value.split_once(' ').map(|(_, key)| key.to_owned());
            std::iter::once(value).chain(key)
        })
        .collect()
}

/// Returns the protocol and the body fields that the user's own fields may override.
///
/// Source: docs/bench-serving.md 2.2, 2.3, 12.1.
pub(super) fn protocol_spec(args: &BenchArgs, profile: Profile) -> ProtocolSpec {
    let sampling = &args.sampling;
    let protocol = args.server.backend.protocol();
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
    let is_native = protocol == Protocol::SglangNative;
    let facts = protocol.facts();
    // docs/bench-serving.md T25: bench_serving does not send these to OpenAI endpoints; here they are sent if set.
    let top_p = sampling.top_p.filter(|top_p| !is_native || *top_p < 1.0);
    let chosen = [("temperature", sampling.temperature), ("top_p", top_p)];
    let mut chosen = chosen
        .into_iter()
        .filter_map(|(key, value)| Some((key, json!(value?))))
        .peekable();
    if let SamplingFields::Nested(parent) = facts.sampling
        && chosen.peek().is_some()
    {
        put(
            parent,
            chosen
                .by_ref()
                .map(|(key, value)| (key.to_owned(), value))
                .collect(),
        );
    }
    if is_native {
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
    if sampling.disable_stream && facts.stream_field {
        put("stream", json!(false));
    }
    if facts.sampling == SamplingFields::TopLevel {
        chosen.for_each(|(key, value)| put(key, value));
    }
    // docs/bench-serving.md T12: bench_serving does not request token counts and uses the requested length
    // instead. Its body is sent if its own metrics are wanted, except with images and recordings, whose
    // tokens only the server knows.
    let is_theirs = args.extensions.compat_figures || profile == Profile::Classic;
    let dataset = args.dataset.dataset_name.default_dataset();
    let usage = match dataset.facts().prompts {
        PromptForm::Pictures | PromptForm::Audio => UsageRequest::StreamOptions,
        _ if is_theirs || sets_stream_options(args) => UsageRequest::Unasked,
        _ => UsageRequest::StreamOptions,
    };
    ProtocolSpec {
        protocol,
        path: None,
        usage,
        body,
        routing_key_header: args.connections.routing_key_header.clone(),
        embeddings: Default::default(),
        style: ClientStyle::BenchServing,
    }
}

/// Whether `--extra-request-body` sets `stream_options`.
fn sets_stream_options(args: &BenchArgs) -> bool {
    let body = args.sampling.extra_request_body.as_deref().unwrap_or_default();
    let fields: Value = serde_json::from_str(body).unwrap_or_default();
    fields.get("stream_options").is_some()
}

/// Returns the user's own body fields, and fields that override them.
///
/// Source: docs/bench-serving.md 2.2, 2.3 and 6, step 4.
pub(super) fn extra_body(args: &BenchArgs) -> Result<Map<String, Value>, Vec<String>> {
    let wrong = |why: String| vec![format!("`--extra-request-body` is not a JSON object: {why}")];
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
