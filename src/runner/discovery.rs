//! Queries a running server before a plan can be made for it: readiness, model and tokenizer.

use std::time::Duration;

use serde_json::Value;

use crate::base::clock;
use crate::base::control_client::{ControlClient, ControlError};

/// Timeout of one answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const MODELS_PATH: &str = "/v1/models";

/// A server that is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyServer {
    /// Seconds until it was ready.
    pub(crate) seconds: f64,
    /// Whether it reports that it is the simulated engine.
    pub(crate) is_simulated: bool,
}

/// Polls a path until the server accepts the request or the timeout passes. Fails at once if the server is up
/// and refuses, or if its certificate is not trusted, because waiting does not help.
pub(crate) async fn wait_until_ready(
    server: &ControlClient,
    path: &str,
    limit: Duration,
) -> Result<ReadyServer, ControlError> {
    let began = clock::now();
    loop {
        let error = match get_text(server, path).await {
            Ok(text) => {
                let listed: Value = serde_json::from_str(&text).unwrap_or_default();
                return Ok(ReadyServer {
                    seconds: clock::now().since(began).as_secs_f64(),
                    is_simulated: listed.pointer("/data/0/simulated") == Some(&Value::Bool(true)),
                });
            }
            Err(error) => error,
        };
        let is_final = error.is_refusal() || error.is_certificate_error();
        if is_final || clock::now().since(began) + POLL_INTERVAL >= limit {
            return Err(error);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

async fn get_text(server: &ControlClient, path: &str) -> Result<String, ControlError> {
    server.get(path, ANSWER_TIMEOUT).await?.success_text().await
}

/// A model that a server lists.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ListedModel {
    pub(crate) id: String,
    /// The path from which the server loaded it, if it reports that.
    pub(crate) root: Option<String>,
}

/// Lists the server's models.
pub(crate) async fn list_models(server: &ControlClient) -> Result<Vec<ListedModel>, ControlError> {
    let answer = server.json(MODELS_PATH, ANSWER_TIMEOUT).await?;
    let garbled = |reason: &str| ControlError::Garbled {
        url: server.url(MODELS_PATH),
        reason: reason.to_owned(),
    };
    let models = answer.pointer("/data").and_then(Value::as_array);
    let models = models.ok_or_else(|| garbled("the server's response has no list `data`"))?;
    let text = |model: &Value, key: &str| model.get(key).and_then(Value::as_str).map(str::to_owned);
    let listed = |model: &Value| {
        Some(ListedModel {
            id: text(model, "id")?,
            root: text(model, "root"),
        })
    };
    match models.first() {
        Some(first) if listed(first).is_none() => Err(garbled("the first model of the server has no `id`")),
        _ => Ok(models.iter().filter_map(listed).collect()),
    }
}

/// The server's tokenizer, otherwise the path of its model, if it reports them.
pub(crate) async fn tokenizer(server: &ControlClient) -> Option<String> {
    let info = server.json("/model_info", ANSWER_TIMEOUT).await.ok()?;
    ["tokenizer_path", "model_path"]
        .iter()
        .find_map(|key| info.get(key)?.as_str().filter(|path| !path.is_empty()))
        .map(str::to_owned)
}
