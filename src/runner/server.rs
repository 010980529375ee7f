//! A server that someone else runs: everything asked of it beside the load. None of it is timed.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Method};
use serde_json::Value;
use thiserror::Error;

use crate::base::body::{self, BodyError};
use crate::base::clock;
use crate::base::control_client;
use crate::engine;

/// How long a small question may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long the server may take over its caches or its profiler.
const WORK: Duration = Duration::from_secs(600);
/// How long to pause between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// How much of an answer is quoted.
const QUOTE: usize = 500;

/// A server beside its load.
#[derive(Clone, Debug)]
pub struct Server {
    http: Client,
    base: String,
    auth: HeaderMap,
}

/// A server did not do what it was asked for.
#[derive(Debug, Error)]
pub enum ServerError {
    /// It cannot be reached, or broke off.
    #[error("{url} does not answer: {reason}")]
    Silent {
        /// What was asked.
        url: String,
        /// What the system said.
        reason: String,
    },
    /// It refuses.
    #[error("{url} answered with status {status}: {message}")]
    Status {
        /// What was asked.
        url: String,
        /// The status.
        status: u16,
        /// What it said, shortened.
        message: String,
    },
    /// Its answer is not the one that is understood.
    #[error("the answer of {url} is not understood: {reason}")]
    Garbled {
        /// What was asked.
        url: String,
        /// Why.
        reason: String,
    },
}

impl ServerError {
    /// Whether the server is up, and wants a key or does not know the path.
    pub const fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Status {
                status: 401 | 403 | 404 | 405,
                ..
            }
        )
    }

    /// Whether it wants a key, or another one.
    pub const fn wants_key(&self) -> bool {
        matches!(
            self,
            Self::Status {
                status: 401 | 403,
                ..
            }
        )
    }
}

/// A server that is ready.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// How long it was waited for.
    pub seconds: f64,
    /// Whether it says that it is the simulated engine.
    pub is_simulated: bool,
}

impl Server {
    /// A server at this base URL, with the header that carries a key.
    ///
    /// # Errors
    /// In words, why the header cannot be sent; its value is not told.
    pub fn new(base: String, auth: Option<&(String, String)>) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = auth {
            let wrong = || format!("the header `{name}` cannot be sent: its value holds a control character");
            let mut value = HeaderValue::from_str(value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            headers.insert(name, value);
        }
        Ok(Self {
            http: engine::http_client(),
            base,
            auth: headers,
        })
    }

    /// The base URL.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Asks until the answer is 200 or the time is over.
    ///
    /// # Errors
    /// What was wrong the last time; at once where the server is up and refuses, which no waiting changes.
    pub async fn wait(&self, path: &str, limit: Duration) -> Result<Ready, ServerError> {
        let began = clock::now();
        loop {
            let error = match self.get(path).await {
                Ok(answer) => {
                    let listed: Value = serde_json::from_str(&answer).unwrap_or_default();
                    return Ok(Ready {
                        seconds: clock::now().since(began).as_secs_f64(),
                        is_simulated: listed.pointer("/data/0/simulated") == Some(&Value::Bool(true)),
                    });
                }
                Err(error) => error,
            };
            if error.is_refusal() {
                return Err(error);
            }
            if clock::now().since(began) + PAUSE >= limit {
                return Err(error);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The models that it names.
    ///
    /// # Errors
    /// It does not answer, or not with a list of models.
    pub async fn models(&self) -> Result<Vec<String>, ServerError> {
        let answer = self.json("/v1/models").await?;
        let garbled = |reason: &str| ServerError::Garbled {
            url: format!("{}/v1/models", self.base),
            reason: reason.to_owned(),
        };
        let models = answer.pointer("/data").and_then(Value::as_array);
        let models = models.ok_or_else(|| garbled("it has no list `data`"))?;
        let id = |model: &Value| model.get("id").and_then(Value::as_str).map(str::to_owned);
        match models.first() {
            Some(first) if id(first).is_none() => Err(garbled("the first model has no `id`")),
            _ => Ok(models.iter().filter_map(id).collect()),
        }
    }

    /// The tokenizer that it uses, or else its model's place, where it tells.
    pub async fn tokenizer(&self) -> Option<String> {
        let info = self.json("/model_info").await.ok()?;
        ["tokenizer_path", "model_path"]
            .iter()
            .find_map(|key| info.get(key)?.as_str().filter(|path| !path.is_empty()))
            .map(str::to_owned)
    }

    /// What it says of itself, where it does.
    pub async fn info(&self) -> Option<Value> {
        self.json("/server_info").await.ok()
    }

    /// Empties its caches.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub async fn flush(&self, path: &str) -> Result<(), ServerError> {
        let asked = self
            .http
            .request(Method::POST, self.url(path))
            .headers(self.auth.clone());
        self.answer(path, asked.timeout(WORK)).await.map(drop)
    }

    /// Tells its profiler something. No key goes along, as in the Python tool.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub async fn profile(&self, path: &str, body: &Value) -> Result<(), ServerError> {
        let asked = self.http.request(Method::POST, self.url(path)).json(body);
        self.answer(path, asked.timeout(WORK)).await.map(drop)
    }

    async fn json(&self, path: &str) -> Result<Value, ServerError> {
        let text = self.get(path).await?;
        serde_json::from_str(&text).map_err(|error| ServerError::Garbled {
            url: self.url(path),
            reason: error.to_string(),
        })
    }

    async fn get(&self, path: &str) -> Result<String, ServerError> {
        let asked = self.http.get(self.url(path)).headers(self.auth.clone());
        self.answer(path, asked.timeout(ANSWER)).await
    }

    async fn answer(&self, path: &str, asked: reqwest::RequestBuilder) -> Result<String, ServerError> {
        let silent = |error: reqwest::Error| ServerError::Silent {
            url: self.url(path),
            reason: control_client::innermost(&error),
        };
        let answer = asked.send().await.map_err(silent)?;
        let status = answer.status();
        let text = body::text(answer).await.map_err(|error| match error {
            BodyError::Http(error) => silent(error),
            BodyError::Long => ServerError::Silent {
                url: self.url(path),
                reason: error.to_string(),
            },
        })?;
        match status.is_success() {
            true => Ok(text),
            false => Err(ServerError::Status {
                url: self.url(path),
                status: status.as_u16(),
                message: text.trim().chars().take(QUOTE).collect(),
            }),
        }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }
}

/// Tokens accepted per step of speculative decoding, as `/server_info` tells them.
///
/// Source: docs/bench-serving.md 6, step 17.
pub fn accept_length(info: &Value) -> Option<f64> {
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

    #[test]
    fn a_key_that_cannot_be_sent_is_refused_without_its_value() {
        let auth = ("Authorization".to_owned(), "hush\r\nx: y".to_owned());
        let said = Server::new(String::new(), Some(&auth)).unwrap_err();
        assert!(!said.contains("hush"), "{said}");
    }
}
