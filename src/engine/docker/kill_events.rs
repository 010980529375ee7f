//! Finds signals that were sent to a container through the daemon. The engine does not use the daemon, so
//! such a signal came from someone else and is not the engine's fault.

use std::collections::HashMap;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::EventsOptions;
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::base::clock;

/// How far back events are queried, in seconds. A signal and the exit that it causes are close together,
/// except for the grace period of a stop.
const LOOKBACK_S: f64 = 60.0;

/// How long the daemon may take to record the event, in seconds.
const EVENT_DELAY_S: f64 = 0.05;

/// Timeout of the event query. A slow daemon must not delay the report of an exit.
const QUERY_TIMEOUT: Duration = Duration::from_millis(500);

/// Signals sent to the container recently, as a sentence. `None` if there were none or the daemon does not
/// answer.
pub(super) async fn recent_signals(docker: &Docker, id: &str) -> Option<String> {
    let now = clock::unix_seconds();
    let filters = HashMap::from([
        ("type".to_owned(), vec!["container".to_owned()]),
        ("container".to_owned(), vec![id.to_owned()]),
        ("event".to_owned(), vec!["kill".to_owned()]),
    ]);
    let options = EventsOptions {
        since: Some(format!("{:.9}", now - LOOKBACK_S)),
        until: Some(format!("{:.9}", now + EVENT_DELAY_S)),
        filters: Some(filters),
    };
    let mut signals = Vec::new();
    let listen = async {
        let mut events = Box::pin(docker.events(Some(options)));
        while let Some(Ok(event)) = events.next().await {
            let attributes = event.actor.and_then(|actor| actor.attributes);
            let number = attributes.and_then(|mut map| map.remove("signal"));
            signals.push(number.unwrap_or_else(|| "unknown".to_owned()));
        }
    };
    // Events received before the timeout count.
    let _ = timeout(QUERY_TIMEOUT, listen).await;
    (!signals.is_empty()).then(|| {
        format!(
            "another program ended the container through the container daemon (signal {})",
            signals.join(", ")
        )
    })
}
