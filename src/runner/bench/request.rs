//! What a bench is asked to do.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::base::control_client::ControlClient;
use crate::base::secrets::Redactor;
use crate::config::arrival::Arrival;
use crate::config::scenario::Scenario;
use crate::plan::{Dialect, Reset};

pub(crate) use crate::loadgen::{Address, Headers, Scheme};

/// Everything that a bench is asked to do.
pub(crate) struct BenchRequest {
    pub(crate) address: Address,
    /// The header that carries a key; also sent with every request beside the load.
    pub(crate) auth: Option<(String, String)>,
    /// The headers of the load.
    pub(crate) headers: Headers,
    pub(crate) dialect: Dialect,
    /// The name of the backend, by which some metrics differ.
    pub(crate) backend: String,
    /// Whether the server reports the accept length of speculative decoding.
    pub(crate) reports_accept_length: bool,
    /// The load, at its first arrival.
    pub(crate) scenario: Scenario,
    /// Every arrival that is measured, one after another.
    pub(crate) arrivals: Vec<Arrival>,
    pub(crate) draws: ArrivalDraws,
    pub(crate) model: Option<String>,
    pub(crate) served: Option<String>,
    pub(crate) tokenizer: Option<String>,
    /// How the server is polled until it is ready; `None` does not ask.
    pub(crate) ready: Option<ReadyCheck>,
    /// How caches are emptied before each load; `None` leaves them.
    pub(crate) reset: Option<Reset>,
    /// How long the server may settle after it was warmed up or its caches were emptied.
    pub(crate) settle: Duration,
    pub(crate) profiler: Option<Profiler>,
    /// Whether the server is asked for its configuration after each load.
    pub(crate) asks_info: bool,
    /// Where records go while a load runs.
    pub(crate) records: Option<RecordsFile>,
    pub(crate) hf_home: Option<PathBuf>,
    /// The folder of prepared prompts; without it they are prepared anew.
    pub(crate) prompts: Option<PathBuf>,
}

/// What the arrivals after the first are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrivalDraws {
    /// The same prompts, drawn as if each arrival were the only one.
    Same,
    /// The same prompts; gaps are drawn where those of the arrival before ended.
    Continued,
    /// Prompts of a seed of their own.
    Reseeded,
}

/// How a server is polled until it is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyCheck {
    pub(crate) path: &'static str,
    pub(crate) limit: Duration,
}

/// The file that gets records while a load runs.
#[derive(Clone)]
pub(crate) struct RecordsFile {
    pub(crate) path: PathBuf,
    pub(crate) redactor: Redactor,
}

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
