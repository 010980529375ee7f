//! One second of a measurement in histograms, so that any window can be cut again later without the requests.

use serde::{Deserialize, Serialize};

/// What happened within one second after the start of the measurement.
///
/// Histograms hold microseconds with three significant digits, in HdrHistogram's compressed V2 format as base64, as its tools
/// read and write it; absent where nothing was recorded. They hold the latencies of completed requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// Which second, from 0.
    pub second: u32,
    /// Requests that fell due in it.
    pub due: u32,
    /// Requests that were sent in it.
    pub sent: u32,
    /// Requests that came to a complete answer in it.
    pub completed: u32,
    /// Requests that failed in it.
    pub failed: u32,
    /// Output tokens of completed requests that arrived in it; absent where nobody counted.
    pub output_tokens: Option<u64>,
    /// Times to the first token, of the requests whose first token arrived in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttft_us: Option<String>,
    /// Times per output token after the first, of the requests whose last token arrived in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpot_us: Option<String>,
    /// Times between tokens, of the tokens that arrived in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub itl_us: Option<String>,
    /// Times to the last token, of the requests whose last token arrived in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e2e_us: Option<String>,
}
