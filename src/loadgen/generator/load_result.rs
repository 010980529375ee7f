//! The result of a load: records, lag, and what the client spent.

use std::time::Duration;

use thiserror::Error;

use crate::base::clock::MonotonicTime;
use crate::loadgen::arrival::TimestampSource;
use crate::loadgen::lateness::Lateness;
use crate::loadgen::protocol::EncodeError;
use crate::loadgen::route::RouteError;
use crate::results::record::request::Request;

#[derive(Debug)]
pub struct LoadResult {
    /// One record per item that fell due, or per round of a conversation, in the order of items. Records have
    /// the text of their answer, even if it will not be stored.
    pub records: Vec<Request>,
    /// The start of the measurement; the times in records count from here.
    pub(crate) zero: MonotonicTime,
    /// From the start to the end of the last request that was sent.
    pub(crate) wall: Duration,
    /// How late the client sent requests; `None` if none was sent.
    pub lag: Option<Lag>,
    /// The clock that took the times of arrival; [`TimestampSource::User`] if it took at least one of them.
    pub timestamp_source: TimestampSource,
    /// How often the wall clock was set meanwhile, as the threads saw it. Kernel timestamps around that time
    /// may be off by up to the time between two reads.
    pub clock_jumps: u32,
    /// Errors of the arrival times, and pauses of the client.
    pub lateness: Lateness,
    /// Connections that the server left open for a second after `[DONE]`. The answer ends with that line
    /// nevertheless.
    pub(crate) left_open: u64,
    /// Reusable connections that were closed because the server sent bytes that belong to no request.
    pub(crate) surplus: u64,
    pub(crate) threads: Vec<ThreadUsage>,
}

/// What one sending thread spent between the start of the measurement and its last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadUsage {
    pub(crate) cpu: Duration,
    /// The time that passed meanwhile.
    pub(crate) wall: Duration,
    /// The longest pass over sockets that returned data. A socket may have waited this long for its turn.
    pub(crate) longest_pass: Duration,
}

/// The delay between a request's due time, or the time at which its slot became free if that was later, and
/// its sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    pub mean: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    pub max: Duration,
    /// The second largest lag, if at least two requests were sent; `fifth` is the fifth largest.
    pub(crate) second_latest: Option<Duration>,
    pub(crate) fifth_latest: Option<Duration>,
}

impl Lag {
    pub(super) fn from_lags(mut lags: Vec<Duration>) -> Option<Self> {
        lags.sort_unstable();
        let max = *lags.last()?;
        let count = u32::try_from(lags.len()).unwrap_or(u32::MAX);
        let rank = (lags.len() * 99).div_ceil(100);
        let latest = |nth: usize| lags.len().checked_sub(nth).map(|at| lags[at]);
        Some(Self {
            mean: lags.iter().sum::<Duration>() / count,
            p99: lags[rank - 1],
            max,
            second_latest: latest(2),
            fifth_latest: latest(5),
        })
    }
}

#[derive(Debug, Error)]
pub enum LoadError {
    /// A TLS connection cannot be made, whatever the server.
    #[error(transparent)]
    Route(RouteError),
    #[error("request {index} cannot be encoded: {source}")]
    Encode { index: u32, source: EncodeError },
    /// A thread of the load generator could not start, or panicked.
    #[error("a thread of the load generator failed: {0}")]
    Thread(String),
}
