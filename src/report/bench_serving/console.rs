//! The lines that bench_serving prints on stdout while it runs.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::config::workload::Profile;
use crate::report::bench_serving::python::literal;

pub(crate) const NO_CACHE_REPORT: &str = "WARNING: --cache-report is only supported with sglang backends.";

pub(crate) const BASE_MODEL: &str = "
WARNING It is recommended to use the `Chat` or `Instruct` model for benchmarking.
Because when the tokenizer counts the output tokens, if there is gibberish, it might count incorrectly.
";

pub(crate) const NO_WORKERS: &str =
    "Warning: PD separated mode requires --profile-prefill-url or --profile-decode-url
Skipping profiler start. Please specify worker URLs for profiling.";

pub(crate) const PROFILER_STOPPING: &str = "Stopping profiler...";

pub(crate) fn waiting(limit: Duration, url: &str) -> String {
    format!("Waiting up to {}s for {url} to become ready...", limit.as_secs())
}

pub(crate) fn ready(seconds: f64) -> String {
    format!("Server ready in {seconds:.1}s.")
}

pub(crate) fn warm_up_began(profile: Profile, count: u32) -> String {
    match profile {
        Profile::Classic => "Starting initial single prompt test run...".to_owned(),
        Profile::Current => format!("Starting warmup with {count} sequences..."),
    }
}

pub(crate) fn warm_up_completed(profile: Profile, count: u32, duration: Duration) -> String {
    match profile {
        Profile::Classic => format!(
            "Initial test run completed. Starting main benchmark run...\nwarmup time: {:.2}s",
            duration.as_secs_f64()
        ),
        Profile::Current => {
            format!("Warmup completed with {count} sequences. Starting main benchmark run...")
        }
    }
}

pub(crate) fn profiler_starting(url: &str, body: &Map<String, Value>) -> String {
    format!(
        "Starting profiler...\nasync_request_profile api_url={} body={}",
        literal(&json!(url)),
        literal(&Value::Object(body.clone()))
    )
}

/// That a profiler was started or stopped; a worker that runs apart has a name.
pub(crate) fn profiler_done(was_started: bool, worker: Option<&str>, url: &str) -> String {
    let done = if was_started { "started" } else { "stopped" };
    match worker {
        None => format!("Profiler {done}"),
        Some(name) => format!("Profiler {done} for {name} worker at {url}"),
    }
}

/// That the profiler of a worker could not be started or stopped.
pub(crate) fn profiler_failed(starts: bool, worker: &str, url: &str, error: &str) -> String {
    let what = if starts { "start" } else { "stop" };
    format!("Failed to {what} profiler for {worker} worker at {url}: {error}")
}
