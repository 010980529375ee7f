//! The server's profiler, or those of its prefill or decode workers: started before the measurement, stopped after it.

use std::time::Duration;

use serde_json::{Value, json};

use super::config::{Profiled, Profiler};
use super::{complain, say};
use crate::base::clock;
use crate::base::control_client::ControlClient;
use crate::report::bench_serving::python::literal;

/// How long a profiler may take to start or stop.
const WORK: Duration = Duration::from_secs(600);

/// One profiler: where it is, and what a worker is called.
struct Worker {
    server: ControlClient,
    name: Option<String>,
}

/// Starts every profiler; those that run now.
///
/// Source: spec/bench-serving.md 6.1.
pub(super) async fn start(profiler: &Profiler, server: &ControlClient) -> Vec<Running> {
    let told = start_body(profiler, clock::unix_seconds());
    let mut body = told.clone();
    body.extend(profiler.both.clone());
    let mut running = Vec::new();
    for worker in workers(profiler, server) {
        say("Starting profiler...");
        say(&format!(
            "async_request_profile api_url={} body={}",
            literal(&json!(format!("{}/start_profile", worker.server.base_url()))),
            literal(&Value::Object(told.clone()))
        ));
        match worker
            .server
            .post_json("/start_profile", &Value::Object(body.clone()), WORK)
            .await
        {
            Ok(()) => {
                match &worker.name {
                    Some(name) => say(&format!(
                        "Profiler started for {name} worker at {}",
                        worker.server.base_url()
                    )),
                    None => say("Profiler started"),
                }
                running.push(Running(worker));
            }
            Err(error) => match &worker.name {
                Some(name) => say(&format!(
                    "Failed to start profiler for {name} worker at {}: {error}",
                    worker.server.base_url()
                )),
                None => complain(&format!("note: the profiler was not started: {error}\n")),
            },
        }
    }
    running
}

/// A profiler that was started.
pub(super) struct Running(Worker);

/// Stops every profiler that runs, unless it stops by itself.
pub(super) async fn stop(profiler: &Profiler, running: &[Running]) {
    if !profiler.is_stopped {
        return;
    }
    let body = Value::Object(profiler.both.clone());
    for Running(worker) in running {
        say("Stopping profiler...");
        let at = worker.server.base_url();
        match (
            worker.server.post_json("/stop_profile", &body, WORK).await,
            &worker.name,
        ) {
            (Ok(()), Some(name)) => say(&format!("Profiler stopped for {name} worker at {at}")),
            (Ok(()), None) => say("Profiler stopped"),
            (Err(error), Some(name)) => {
                say(&format!(
                    "Failed to stop profiler for {name} worker at {at}: {error}"
                ));
            }
            (Err(error), None) => complain(&format!("note: the profiler was not stopped: {error}\n")),
        }
    }
}

fn workers(profiler: &Profiler, server: &ControlClient) -> Vec<Worker> {
    match &profiler.whom {
        Profiled::Server => vec![Worker {
            // As in the Python tool no key goes along.
            server: server.without_headers(),
            name: None,
        }],
        Profiled::Nobody => {
            say("Warning: PD separated mode requires --profile-prefill-url or --profile-decode-url");
            say("Skipping profiler start. Please specify worker URLs for profiling.");
            Vec::new()
        }
        Profiled::Workers { role, servers } => servers
            .iter()
            .enumerate()
            .map(|(place, server)| Worker {
                server: server.clone(),
                name: Some(format!("{role}-{place}")),
            })
            .collect(),
    }
}

type Body = serde_json::Map<String, Value>;

/// The body of a start as the Python tool prints it; what stands in both bodies is not in it yet.
fn start_body(profiler: &Profiler, unix_s: f64) -> Body {
    let mut body = profiler.start.clone();
    let folder = profiler.folder.join(format!("{unix_s}"));
    body.insert("output_dir".to_owned(), json!(folder.display().to_string()));
    body
}
