//! Histograms of one second of a measurement, so that a window can be recomputed without the requests.

use serde::{Deserialize, Serialize};

/// Counts and latencies of one second after the start of the measurement.
///
/// Histograms hold latencies of completed requests in microseconds with three significant digits, in
/// HdrHistogram's compressed V2 format as base64. They are absent if nothing was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondHistogram {
    /// Index of the second, from 0.
    pub(crate) second: u32,
    /// Requests that fell due.
    pub(crate) due: u32,
    /// Requests that were sent.
    pub(crate) sent: u32,
    pub(crate) completed: u32,
    pub(crate) failed: u32,
    /// Output tokens of completed requests that arrived in this second; absent if tokens were not counted.
    pub(crate) output_tokens: Option<u64>,
    /// TTFT of requests whose first token arrived in this second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ttft_us: Option<String>,
    /// TPOT of requests whose last token arrived in this second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tpot_us: Option<String>,
    /// ITL of tokens that arrived in this second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) itl_us: Option<String>,
    /// E2E of requests whose last token arrived in this second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) e2e_us: Option<String>,
}
