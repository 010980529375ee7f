//! What a bench is asked to do.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::scenario::Scenario;
pub(crate) use crate::loadgen::{Address, Headers, Scheme};
use crate::plan::{CacheResetSpec, ProtocolSpec};
use crate::runner::profiler::Profiler;
use crate::runner::record_sink::RecordsFile;

/// Everything that a bench is asked to do.
pub(crate) struct BenchRequest {
    pub(crate) address: Address,
    /// The header that carries a key; also sent with every request beside the load.
    pub(crate) auth: Option<(String, String)>,
    /// The headers of the load.
    pub(crate) headers: Headers,
    pub(crate) dialect: ProtocolSpec,
    /// The name of the backend, by which some metrics differ.
    pub(crate) backend: String,
    /// Every load that is measured, one after another; at least one.
    pub(crate) scenarios: Vec<Scenario>,
    /// Whether the gaps of a load are drawn where those of the one before ended, instead of as if each were the only one.
    pub(crate) continues_draws: bool,
    pub(crate) model: Option<String>,
    pub(crate) served_model_name: Option<String>,
    pub(crate) tokenizer: Option<String>,
    /// How the server is polled until it is ready; `None` does not ask.
    pub(crate) ready_check: Option<ReadyCheck>,
    /// How caches are emptied before each load; `None` leaves them.
    pub(crate) cache_reset: Option<CacheResetSpec>,
    /// How long the server may settle after it was warmed up or its caches were emptied.
    pub(crate) settle_time: Duration,
    pub(crate) profiler: Option<Profiler>,
    /// Whether the server is asked for its configuration after each load.
    pub(crate) asks_info: bool,
    /// Where records go while a load runs.
    pub(crate) records: Option<RecordsFile>,
    pub(crate) hf_home: Option<PathBuf>,
    /// The folder of prepared prompts; without it they are prepared anew.
    pub(crate) prompts: Option<PathBuf>,
}

/// How a server is polled until it is ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyCheck {
    pub(crate) path: &'static str,
    pub(crate) limit: Duration,
}
