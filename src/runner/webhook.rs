//! Sends a message to a webhook.

use std::time::Duration;

use thiserror::Error;

use crate::engine;
use crate::runner::host_error::{self, HostError};

const TIMEOUT: Duration = Duration::from_secs(15);

/// Why a webhook did not accept a message. No error contains the address of the webhook, because the address
/// is a secret.
#[derive(Debug, Error)]
pub(crate) enum WebhookError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Http(reqwest::Error),
    #[error("the webhook answered with status {0}, but redirects are not followed")]
    Redirect(u16),
    #[error("status {0}")]
    Status(u16),
}

/// Posts a message to a webhook. Fails if it cannot be reached or answers with a status other than 2xx.
pub(crate) fn post(url: &str, message: &serde_json::Value) -> Result<(), WebhookError> {
    let without_url = |error: reqwest::Error| WebhookError::Http(error.without_url());
    host_error::small_runtime()?.block_on(async {
        let client = engine::proxied_client().map_err(without_url)?;
        let sent = client.post(url).timeout(TIMEOUT).json(message).send();
        let status = sent.await.map_err(without_url)?.status();
        // The reason phrase comes from the server and may contain the address.
        match status.as_u16() {
            200..300 => Ok(()),
            code @ 300..400 => Err(WebhookError::Redirect(code)),
            code => Err(WebhookError::Status(code)),
        }
    })
}
