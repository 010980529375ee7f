//! Who ended a container: the daemon's own record of what was asked of it. An engine does not kill itself through the daemon, so
//! whoever did is a stranger, and the engine is not to blame.

use std::collections::HashMap;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::EventsOptions;
use futures_util::StreamExt;
use tokio::time::timeout;

use crate::base::clock;

/// How far back the daemon is asked: a signal and the end that it brings lie close together, but for the grace of a stop.
const BACK_S: f64 = 60.0;

/// How long the daemon may still be about to note it.
const LATE_S: f64 = 0.05;

/// How long the answer may take; nobody's death is told later because of it.
const ANSWER: Duration = Duration::from_millis(500);

/// The signals that were sent to a container through the daemon lately, in words; `None` if there were none or it does not tell.
pub(super) async fn signals(docker: &Docker, id: &str) -> Option<String> {
    let now = clock::unix_seconds();
    let filters = HashMap::from([
        ("type".to_owned(), vec!["container".to_owned()]),
        ("container".to_owned(), vec![id.to_owned()]),
        ("event".to_owned(), vec!["kill".to_owned()]),
    ]);
    let options = EventsOptions {
        since: Some(format!("{:.9}", now - BACK_S)),
        until: Some(format!("{:.9}", now + LATE_S)),
        filters: Some(filters),
    };
    let mut told = Vec::new();
    let listen = async {
        let mut events = Box::pin(docker.events(Some(options)));
        while let Some(Ok(event)) = events.next().await {
            let attributes = event.actor.and_then(|actor| actor.attributes);
            let number = attributes.and_then(|mut of| of.remove("signal"));
            told.push(number.unwrap_or_else(|| "unknown".to_owned()));
        }
    };
    // What was told until then counts.
    let _ = timeout(ANSWER, listen).await;
    (!told.is_empty()).then(|| {
        format!(
            "somebody ended it through the container daemon (signal {})",
            told.join(", ")
        )
    })
}
