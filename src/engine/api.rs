//! Control requests to an engine outside the timed path: health, facts about it, and cache reset.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;

use crate::base::control_client::{
    ControlClient, ControlError, HeaderError, causes, root_cause, secret_header,
};
use crate::config::template::Template;
use crate::config::yaml::{backtick_list, nearest_name};
use crate::engine::context::StartContext;
use crate::engine::docker::unmet::Unmet;
use crate::engine::endpoint::Endpoint;
use crate::engine::error::StartError;
use crate::plan::{CacheResetSpec, Launch};
use crate::results::record::cell::{CacheResetRecord, EngineFacts};

/// Timeout of a request for facts about an engine.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of the same request during preflight.
const PREFLIGHT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum length of an answer in a record, in characters.
const MAX_QUOTED_CHARS: usize = 300;

/// Headers of every request of a launch, with secrets revealed. `Debug` does not show the values.
pub(super) fn request_headers(launch: &Launch, context: &StartContext) -> Result<HeaderMap, StartError> {
    headers_with(launch, &|text, place| context.fill(None, text, place))
}

/// As [`request_headers`], but `reveal` fills in the texts; its second argument is the key that holds the text.
pub(super) fn headers_with(
    launch: &Launch,
    reveal: &dyn Fn(&Template, &str) -> Result<String, StartError>,
) -> Result<HeaderMap, StartError> {
    let mut headers = HeaderMap::new();
    for (name, text) in &launch.api.headers {
        let value = reveal(text, &format!("`headers: {name}`"))?;
        let header = secret_header(name, &value).map_err(|fault| StartError::Header {
            name: name.clone(),
            reason: match fault {
                HeaderError::Name => "HTTP does not allow this header name",
                HeaderError::Value => "HTTP does not allow this header value",
            }
            .to_owned(),
        });
        let (key, value) = header?;
        headers.append(key, value);
    }
    Ok(headers)
}

/// Returns the HTTP status that `path` answers within `limit`, or the reason that there is none.
pub(super) async fn fetch_status(
    http: &Client,
    endpoint: &Endpoint,
    path: &str,
    limit: Duration,
) -> Result<u16, String> {
    match endpoint.control_client(http).get(path, limit).await {
        Ok(answer) => Ok(answer.status.as_u16()),
        Err(ControlError::Silent { error, .. }) if !error.is_timeout() => Err(root_cause(&error)),
        Err(_) => Err(format!("no response within {} s", limit.as_secs_f64())),
    }
}

/// Reads what an engine reports about itself: version, models, configuration. The rest stays empty.
pub(crate) async fn fetch_facts(launch: &Launch, control: &ControlClient) -> EngineFacts {
    let api = &launch.api;
    let version = match &api.version {
        Some(reading) => {
            let answer = control.json(&reading.path, REQUEST_TIMEOUT).await.ok();
            answer
                .as_ref()
                .and_then(|answer| answer.pointer(&reading.pointer))
                .and_then(scalar_text)
        }
        None => None,
    };
    let models = match &api.models {
        Some(path) => control.json(path, REQUEST_TIMEOUT).await.ok(),
        None => None,
    };
    let info = match &api.info {
        Some(path) => control.json(path, REQUEST_TIMEOUT).await.ok(),
        None => None,
    };
    let simulated = models
        .as_ref()
        .and_then(|models| models.pointer("/data/0/simulated"));
    EngineFacts {
        version,
        models: models.as_ref().map(model_ids).unwrap_or_default(),
        served: models
            .as_ref()
            .map(|models| model_facts(models, &launch.served_model_name))
            .unwrap_or_default(),
        simulated: simulated.and_then(Value::as_bool).unwrap_or(false),
        info,
        ..EngineFacts::default()
    }
}

/// Whether an engine has no such page; SGLang has no metrics page unless metrics are enabled.
pub(crate) async fn is_path_missing(path: &str, endpoint: &Endpoint, http: &Client) -> bool {
    let answer = endpoint.control_client(http).get(path, REQUEST_TIMEOUT).await;
    answer.is_ok_and(|answer| answer.status == StatusCode::NOT_FOUND)
}

/// Fails if the engine lists models and the requested model is not among them. The error names both.
pub(crate) fn check_model(launch: &Launch, facts: &EngineFacts) -> Result<(), String> {
    match model_mismatch(launch, &facts.models) {
        None => Ok(()),
        Some(unmet) => Err(format!("{}; {}", unmet.problem, unmet.help)),
    }
}

/// The lack of an attached server that lists models without the requested one.
pub(super) async fn unmet_model(launch: &Launch, endpoint: &Endpoint, http: &Client) -> Option<Unmet> {
    let path = launch.api.models.as_deref()?;
    let models = endpoint.control_client(http).json(path, PREFLIGHT_TIMEOUT).await;
    model_mismatch(launch, &model_ids(&models.ok()?))
}

fn model_mismatch(launch: &Launch, served: &[String]) -> Option<Unmet> {
    if served.is_empty() || served.contains(&launch.served_model_name) {
        return None;
    }
    let meant = nearest_name(&launch.served_model_name, served.iter().map(String::as_str));
    Some(Unmet {
        problem: format!(
            "engine `{}` serves {}, but `{}` is requested",
            launch.engine.name,
            backtick_list(served.iter().map(String::as_str)),
            launch.served_model_name
        ),
        help: format!(
            "{}correct the server's address, or set the engine's `served_model_name:` to the name under which it serves the model",
            meant.map_or_else(String::new, |name| format!("did you mean `{name}`? "))
        ),
    })
}

/// Result of a cache reset.
pub(crate) struct CacheReset {
    /// The engine's answer. Only the cache hits of the window prove that the caches were empty.
    pub(crate) proof: CacheResetRecord,
    /// Set if the engine could not be reached or refused.
    pub(crate) error: Option<ControlError>,
}

/// Empties the engine's prefix cache. `limit` is the timeout; without `reset` no request is sent.
pub(crate) async fn reset_caches(
    reset: Option<&CacheResetSpec>,
    client: &ControlClient,
    limit: Duration,
) -> CacheReset {
    let mut proof = CacheResetRecord {
        possible: reset.is_some(),
        ..CacheResetRecord::default()
    };
    let Some(reset) = reset else {
        return CacheReset { proof, error: None };
    };
    let method = match reset.method.to_ascii_uppercase().as_str() {
        "GET" => Method::GET,
        _ => Method::POST,
    };
    let answer = match client.request(method, &reset.path, limit).await {
        Ok(answer) => answer,
        Err(error) => {
            proof.success = Some(false);
            proof.answer = Some(truncated(&error_text(&error)));
            let error = Some(error);
            return CacheReset { proof, error };
        }
    };
    let status = answer.status;
    proof.status = Some(status.as_u16());
    let (body, mut error) = match answer.text().await {
        Ok(body) => (body, None),
        Err(error) => (String::new(), Some(error)),
    };
    if !status.is_success() {
        error = error.or_else(|| Some(ControlError::from_refusal(client.url(&reset.path), status, &body)));
    }
    let said = |pointer: &str| {
        let answer: Value = serde_json::from_str(&body).ok()?;
        answer.pointer(pointer)?.as_bool()
    };
    proof.success = match &reset.success {
        _ if status != StatusCode::OK => Some(false),
        None => Some(said("/success") != Some(false)),
        Some(pointer) => said(pointer),
    };
    proof.answer = (!body.trim().is_empty()).then(|| truncated(body.trim()));
    CacheReset { proof, error }
}

fn model_ids(answer: &Value) -> Vec<String> {
    let models = answer.pointer("/data").and_then(Value::as_array);
    let ids = models
        .into_iter()
        .flatten()
        .filter_map(|model| model.get("id")?.as_str());
    ids.map(str::to_owned).collect()
}

/// Properties of model `name` in a list of models that do not change while the server runs.
fn model_facts(answer: &Value, name: &str) -> BTreeMap<String, String> {
    const FIELDS: [(&str, &str); 4] = [
        ("root", "/root"),
        ("max_model_len", "/max_model_len"),
        ("owned_by", "/owned_by"),
        ("n_params", "/meta/n_params"),
    ];
    let models = answer.pointer("/data").and_then(Value::as_array);
    let entry = models
        .into_iter()
        .flatten()
        .find(|model| model.get("id").and_then(Value::as_str) == Some(name));
    let facts = FIELDS
        .iter()
        .filter_map(|(what, pointer)| Some(((*what).to_owned(), scalar_text(entry?.pointer(pointer)?)?)));
    facts.collect()
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// An error with its causes, but without the URL, which may hold a secret.
fn error_text(error: &ControlError) -> String {
    match error {
        ControlError::Silent { error, .. } => {
            let what = match error.is_timeout() {
                true => "no response in time",
                false => "no response",
            };
            [vec![what.to_owned()], causes(error)].concat().join(": ")
        }
        error => error.to_string(),
    }
}

fn truncated(text: &str) -> String {
    text.chars().take(MAX_QUOTED_CHARS).collect()
}

/// Mean number of tokens accepted per step of speculative decoding, from `/server_info` of SGLang.
///
/// Source: docs/bench-serving.md 6, step 17.
pub(crate) fn accept_length(info: &Value) -> Option<f64> {
    let about = match info.get("decode") {
        Some(decode) => decode.get(0)?,
        None => info,
    };
    about
        .pointer("/internal_states/0/avg_spec_accept_length")?
        .as_f64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_accept_length_is_that_of_the_first_decoder() {
        let state = json!({"internal_states": [{"avg_spec_accept_length": 2.5}]});
        assert_eq!(accept_length(&state), Some(2.5));
        assert_eq!(accept_length(&json!({"decode": [state]})), Some(2.5));
        assert_eq!(accept_length(&json!({"decode": [], "internal_states": []})), None);
        assert_eq!(accept_length(&json!({"internal_states": [{}]})), None);
    }
}
