//! The server's profiler, or those of its prefill or decode workers: started before the measurement, stopped after it.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::base::clock;
use crate::base::control_client::{ControlClient, ControlError};
use crate::runner::cell::observer::{CellEvent, CellObserver, ProfilerEvent};

/// How long a profiler may take to start or stop.
const LIMIT: Duration = Duration::from_secs(600);

/// How the server is told to profile itself.
#[derive(Clone, Debug)]
pub(crate) struct Profiler {
    /// The body of the start, but for the folder's time.
    pub(crate) start: Map<String, Value>,
    /// The folder below which it writes.
    pub(crate) folder: PathBuf,
    /// Fields of both bodies.
    pub(crate) both: Map<String, Value>,
    /// Whether it is stopped from here.
    pub(crate) is_stopped: bool,
    pub(crate) servers: ProfiledServers,
}

/// The servers that profile themselves.
#[derive(Clone, Debug)]
pub(crate) enum ProfiledServers {
    /// The server that gets the load.
    Measured,
    /// Workers that run apart, whose role is `Prefill` or `Decode`.
    Workers {
        role: &'static str,
        servers: Vec<ControlClient>,
    },
    /// Workers run apart, and none was named.
    Unnamed,
}

/// A server that profiles itself; one of several workers has a name.
pub(super) struct Worker {
    server: ControlClient,
    name: Option<String>,
}

/// Starts every profiler; those that run now.
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
        let error = worker
            .server
            .post_json("/start_profile", &body, LIMIT)
            .await
            .err();
        let is_started = error.is_none();
        observer.event(worker.asked(true, error));
        if is_started {
            running.push(worker);
        }
    }
    running
}

/// Stops every profiler that runs, unless it stops by itself.
pub(super) async fn stop(profiler: Option<&Profiler>, running: &[Worker], observer: &mut dyn CellObserver) {
    let Some(profiler) = profiler.filter(|profiler| profiler.is_stopped) else {
        return;
    };
    let body = Value::Object(profiler.both.clone());
    for worker in running {
        observer.event(CellEvent::Profiler(ProfilerEvent::Stopping));
        let error = worker.server.post_json("/stop_profile", &body, LIMIT).await.err();
        observer.event(worker.asked(false, error));
    }
}

impl Worker {
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
            // As in the Python tool no key goes along.
            server: server.without_headers(),
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

/// The body of a start without the fields that stand in both bodies.
fn start_body(profiler: &Profiler, unix_s: f64) -> Map<String, Value> {
    let mut body = profiler.start.clone();
    let folder = profiler.folder.join(format!("{unix_s}"));
    body.insert("output_dir".to_owned(), json!(folder.display().to_string()));
    body
}
