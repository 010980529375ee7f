//! Settings of a bench.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::scenario::Scenario;
pub(crate) use crate::loadgen::{Address, Connections, Headers, Scheme};
use crate::plan::{CacheResetSpec, ProtocolSpec};
use crate::runner::profiler::Profiler;
use crate::runner::record_sink::RecordsFile;

/// Settings of a bench.
pub(crate) struct BenchRequest {
    pub(crate) address: Address,
    /// How connections are made; control requests use the same TLS settings.
    pub(crate) connections: Connections,
    /// Name and value of the header with the API key; control requests send it too.
    pub(crate) auth: Option<(String, String)>,
    /// The headers of the load; control requests to the server send them too.
    pub(crate) headers: Headers,
    pub(crate) dialect: ProtocolSpec,
    /// The name of the backend; some metrics depend on it.
    pub(crate) backend: String,
    /// The loads in order of measurement; at least one.
    pub(crate) scenarios: Vec<Scenario>,
    /// Whether the random arrivals of a load continue the sequence of the previous load instead of starting
    /// a new one.
    pub(crate) continues_draws: bool,
    pub(crate) model: Option<String>,
    pub(crate) served_model_name: Option<String>,
    pub(crate) tokenizer: Option<String>,
    /// How the server is polled until it is ready; `None` skips the check.
    pub(crate) ready_check: Option<ReadyCheck>,
    /// How long the first request is repeated until it is answered; `None` does not send it.
    pub(crate) first_request_limit: Option<Duration>,
    /// Whether prompts are cut to their length by the server's tokenizer, if that counts other tokens.
    pub(crate) aligns_prompts: bool,
    /// How caches are emptied before each load; `None` keeps them.
    pub(crate) cache_reset: Option<CacheResetSpec>,
    /// Timeout of the cache reset.
    pub(crate) cache_reset_limit: Duration,
    /// Pause after the warm-up and the cache reset.
    pub(crate) settle_time: Duration,
    pub(crate) profiler: Option<Profiler>,
    /// Whether the server's configuration is read after each load.
    pub(crate) asks_info: bool,
    /// The file that stores records during a load.
    pub(crate) records: Option<RecordsFile>,
    pub(crate) hf_home: Option<PathBuf>,
    /// Cache folder of prepared prompts; without it, prompts are prepared again.
    pub(crate) prompts: Option<PathBuf>,
}

/// How a server is polled until it is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyCheck {
    pub(crate) path: &'static str,
    pub(crate) limit: Duration,
}
