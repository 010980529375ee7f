//! Starts and stops the profiler of the server, or those of its prefill or decode workers, around a load.

use std::path::PathBuf;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Map, Value, json};

use crate::base::clock;
use crate::base::control_client::{ControlClient, ControlError};
use crate::runner::cell::observer::{CellEvent, CellObserver, ProfilerEvent};

/// Timeout of a request to start or stop a profiler.
const LIMIT: Duration = Duration::from_secs(600);

/// Settings of the server's profiler.
#[derive(Clone, Debug)]
pub(crate) struct Profiler {
    /// The body of the start request, without `output_dir` and the shared fields.
    pub(crate) start: Map<String, Value>,
    /// The folder below which the profiler writes.
    pub(crate) folder: PathBuf,
    /// Fields that the start and stop requests share.
    pub(crate) both: Map<String, Value>,
    /// Whether requests have no body and carry the headers of the load, as those of `vllm bench serve`.
    pub(crate) is_bare: bool,
    /// Whether a stop request is sent; otherwise the profiler stops by itself.
    pub(crate) is_stopped: bool,
    pub(crate) servers: ProfiledServers,
}

/// The servers whose profilers are used.
#[derive(Clone, Debug)]
pub(crate) enum ProfiledServers {
    /// The server that receives the load.
    Measured,
    /// Separate workers; their role is `Prefill` or `Decode`.
    Workers {
        role: &'static str,
        servers: Vec<ControlClient>,
    },
    /// Workers run separately, but none is named.
    Unnamed,
}

/// A server with a profiler. It has a name if it is one of several workers.
pub(super) struct Worker {
    server: ControlClient,
    name: Option<String>,
}

/// Starts every profiler and returns those that started.
///
/// Source: docs/bench-serving.md 6.1.
pub(super) async fn start(
    profiler: Option<&Profiler>,
    server: &ControlClient,
    observer: &mut dyn CellObserver,
) -> Vec<Worker> {
    let Some(profiler) = profiler else {
        return Vec::new();
    };
    let shown = start_body(profiler, clock::unix_seconds());
    let mut body = shown.clone();
    body.extend(profiler.both.clone());
    let body = Value::Object(body);
    let mut running = Vec::new();
    for worker in workers(profiler, server, observer) {
        observer.event(CellEvent::Profiler(ProfilerEvent::Starting {
            url: worker.server.url("/start_profile"),
            body: &shown,
        }));
        let error = worker.ask(profiler, "/start_profile", &body).await;
        let is_started = error.is_none();
        observer.event(worker.asked(true, error));
        if is_started {
            running.push(worker);
        }
    }
    running
}

/// Stops the started profilers, unless they stop by themselves.
pub(super) async fn stop(profiler: Option<&Profiler>, running: &[Worker], observer: &mut dyn CellObserver) {
    let Some(profiler) = profiler.filter(|profiler| profiler.is_stopped) else {
        return;
    };
    let body = Value::Object(profiler.both.clone());
    for worker in running {
        observer.event(CellEvent::Profiler(ProfilerEvent::Stopping));
        let error = worker.ask(profiler, "/stop_profile", &body).await;
        observer.event(worker.asked(false, error));
    }
}

impl Worker {
    /// Sends a request to start or stop the profiler; returns why it failed.
    async fn ask(&self, profiler: &Profiler, path: &str, body: &Value) -> Option<ControlError> {
        let asked = match profiler.is_bare {
            true => match self.server.request(Method::POST, path, LIMIT).await {
                Ok(answer) => answer.success_text().await.map(drop),
                Err(error) => Err(error),
            },
            false => self.server.post_json(path, body, LIMIT).await,
        };
        asked.err()
    }

    fn asked(&self, to_start: bool, error: Option<ControlError>) -> CellEvent<'_> {
        CellEvent::Profiler(ProfilerEvent::Asked {
            to_start,
            worker: self.name.as_deref(),
            url: self.server.base_url(),
            error,
        })
    }
}

fn workers(profiler: &Profiler, server: &ControlClient, observer: &mut dyn CellObserver) -> Vec<Worker> {
    match &profiler.servers {
        ProfiledServers::Measured => vec![Worker {
            server: match profiler.is_bare {
                true => server.clone(),
                // Like the Python tool, send no API key.
                false => server.without_headers(),
            },
            name: None,
        }],
        ProfiledServers::Unnamed => {
            observer.event(CellEvent::Profiler(ProfilerEvent::NoWorkers));
            Vec::new()
        }
        ProfiledServers::Workers { role, servers } => {
            let workers = servers.iter().enumerate().map(|(place, server)| Worker {
                server: server.clone(),
                name: Some(format!("{role}-{place}")),
            });
            workers.collect()
        }
    }
}

/// The body of a start request without the shared fields.
fn start_body(profiler: &Profiler, unix_s: f64) -> Map<String, Value> {
    let mut body = profiler.start.clone();
    let folder = profiler.folder.join(format!("{unix_s}"));
    body.insert("output_dir".to_owned(), json!(folder.display().to_string()));
    body
}
