//! Control requests to an engine outside the timed path: health, facts about it, and cache reset.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, StatusCode};
use serde_json::Value;

use crate::base::control_client::{
    ControlClient, ControlError, HeaderFault, causes, innermost, secret_header,
};
use crate::config::template::Text;
use crate::config::yaml::{listed, nearest};
use crate::engine::context::Context;
use crate::engine::docker::lack::Lack;
use crate::engine::endpoint::Endpoint;
use crate::engine::error::StartError;
use crate::plan::{Launch, Reset};
use crate::results::record::cell::{EngineFacts, ResetProof};

/// Timeout of a request for facts about an engine.
const ANSWER: Duration = Duration::from_secs(10);

/// Timeout of the same request during preflight.
const PREFLIGHT_ANSWER: Duration = Duration::from_secs(5);

/// Maximum length of an answer in a record, in characters.
const QUOTED: usize = 300;

/// Headers of every request of a launch, with secrets revealed. `Debug` does not show the values.
pub(super) fn headers(launch: &Launch, context: &Context) -> Result<HeaderMap, StartError> {
    revealed(launch, &|text, place| context.reveal(None, text, place))
}

/// As [`headers`], but `reveal` fills in the texts; its second argument is the key that holds the text.
pub(super) fn revealed(
    launch: &Launch,
    reveal: &dyn Fn(&Text, &str) -> Result<String, StartError>,
) -> Result<HeaderMap, StartError> {
    let mut headers = HeaderMap::new();
    for (name, text) in &launch.contact.headers {
        let value = reveal(text, &format!("`headers: {name}`"))?;
        let header = secret_header(name, &value).map_err(|fault| StartError::Header {
            name: name.clone(),
            reason: match fault {
                HeaderFault::Name => "its name is not allowed in HTTP",
                HeaderFault::Value => "its value is not allowed in HTTP",
            }
            .to_owned(),
        });
        let (key, value) = header?;
        headers.append(key, value);
    }
    Ok(headers)
}

/// Returns the HTTP status that `path` answers within `limit`, or the reason that there is none.
pub(super) async fn status(
    http: &Client,
    endpoint: &Endpoint,
    path: &str,
    limit: Duration,
) -> Result<u16, String> {
    match endpoint.control_client(http).get(path, limit).await {
        Ok(answer) => Ok(answer.status.as_u16()),
        Err(ControlError::Silent { error, .. }) if !error.is_timeout() => Err(innermost(&error)),
        Err(_) => Err(format!("no answer within {} s", limit.as_secs_f64())),
    }
}

/// What an engine says about itself: version, models, configuration. What it does not say stays empty.
pub(crate) async fn facts(launch: &Launch, control: &ControlClient) -> EngineFacts {
    let contact = &launch.contact;
    let version = match &contact.version {
        Some(reading) => {
            let answer = control.json(&reading.path, ANSWER).await.ok();
            answer
                .as_ref()
                .and_then(|answer| answer.pointer(&reading.pointer))
                .and_then(plain)
        }
        None => None,
    };
    let listed = match &contact.models {
        Some(path) => control.json(path, ANSWER).await.ok(),
        None => None,
    };
    let info = match &contact.info {
        Some(path) => control.json(path, ANSWER).await.ok(),
        None => None,
    };
    let simulated = listed
        .as_ref()
        .and_then(|listed| listed.pointer("/data/0/simulated"));
    EngineFacts {
        version,
        models: listed.as_ref().map(ids).unwrap_or_default(),
        served: listed
            .as_ref()
            .map(|listed| described(listed, &launch.served))
            .unwrap_or_default(),
        simulated: simulated.and_then(Value::as_bool).unwrap_or(false),
        info,
        ..EngineFacts::default()
    }
}

/// Whether an engine says that it has no such page, as SGLang does of metrics that were not turned on.
pub(crate) async fn lacks(path: &str, endpoint: &Endpoint, http: &Client) -> bool {
    let answer = endpoint.control_client(http).get(path, ANSWER).await;
    answer.is_ok_and(|answer| answer.status == StatusCode::NOT_FOUND)
}

/// Fails if the engine lists models and the requested model is not among them. The error names both.
pub(crate) fn check_model(launch: &Launch, facts: &EngineFacts) -> Result<(), String> {
    match mismatch(launch, &facts.models) {
        None => Ok(()),
        Some(lack) => Err(format!("{}; {}", lack.what, lack.help)),
    }
}

/// The lack of an attached server that lists models without the requested one.
pub(super) async fn unserved(launch: &Launch, endpoint: &Endpoint, http: &Client) -> Option<Lack> {
    let path = launch.contact.models.as_deref()?;
    let listed = endpoint.control_client(http).json(path, PREFLIGHT_ANSWER).await;
    mismatch(launch, &ids(&listed.ok()?))
}

fn mismatch(launch: &Launch, served: &[String]) -> Option<Lack> {
    if served.is_empty() || served.contains(&launch.served) {
        return None;
    }
    let meant = nearest(&launch.served, served.iter().map(String::as_str));
    Some(Lack {
        what: format!(
            "engine `{}` serves {}, and `{}` was asked for",
            launch.engine.name,
            listed(served.iter().map(String::as_str)),
            launch.served
        ),
        help: format!(
            "{}attach to the right server, or set `served_model_name:` of the engine, the name by which it knows the model",
            meant.map_or_else(String::new, |name| format!("did you mean `{name}`? "))
        ),
    })
}

/// Result of a cache reset.
pub(crate) struct CacheReset {
    /// The engine's answer. Only the cache hits of the window prove that the caches were empty.
    pub(crate) proof: ResetProof,
    /// Set if the engine could not be reached or refused.
    pub(crate) error: Option<ControlError>,
}

/// Empties the engine's prefix cache. `limit` is the timeout; without `reset` no request is sent.
pub(crate) async fn reset_caches(
    reset: Option<&Reset>,
    client: &ControlClient,
    limit: Duration,
) -> CacheReset {
    let mut proof = ResetProof {
        possible: reset.is_some(),
        ..ResetProof::default()
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
            proof.answer = Some(shortened(&words(&error)));
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
        error = error.or_else(|| Some(ControlError::refusal(client.url(&reset.path), status, &body)));
    }
    proof.success = match &reset.success {
        _ if status != StatusCode::OK => Some(false),
        None => Some(true),
        Some(pointer) => serde_json::from_str::<Value>(&body)
            .ok()
            .and_then(|answer| answer.pointer(pointer).and_then(Value::as_bool)),
    };
    proof.answer = (!body.trim().is_empty()).then(|| shortened(body.trim()));
    CacheReset { proof, error }
}

fn ids(answer: &Value) -> Vec<String> {
    let models = answer.pointer("/data").and_then(Value::as_array);
    let ids = models
        .into_iter()
        .flatten()
        .filter_map(|model| model.get("id")?.as_str());
    ids.map(str::to_owned).collect()
}

/// Properties of model `name` in a list of models that do not change while the server runs.
fn described(answer: &Value, name: &str) -> BTreeMap<String, String> {
    const TOLD: [(&str, &str); 4] = [
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
    let told = TOLD
        .iter()
        .filter_map(|(what, pointer)| Some(((*what).to_owned(), plain(entry?.pointer(pointer)?)?)));
    told.collect()
}

fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// An error with its causes, but without the URL, which may hold a secret.
fn words(error: &ControlError) -> String {
    match error {
        ControlError::Silent { error, .. } => {
            let what = match error.is_timeout() {
                true => "no answer in time",
                false => "no answer",
            };
            [vec![what.to_owned()], causes(error)].concat().join(": ")
        }
        error => error.to_string(),
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(QUOTED).collect()
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
