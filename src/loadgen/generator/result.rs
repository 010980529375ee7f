//! What a load comes to: records, send lag, and what the client spent.

use std::time::Duration;

use thiserror::Error;

use crate::base::clock::Moment;
use crate::loadgen::arrival::Stamp;
use crate::loadgen::lateness::Lateness;
use crate::loadgen::protocol::EncodeError;
use crate::loadgen::route::RouteError;
use crate::results::record::request::Request;

/// What a drive came to.
#[derive(Debug)]
pub struct Driven {
    /// One record per item that fell due, or for each round of a conversation, in the order of items. The text of each answer is
    /// in it, whether or not it is to be kept.
    pub requests: Vec<Request>,
    /// The start of the measurement: moments in records are told from here.
    pub zero: Moment,
    /// From the start to the end of the last request that was sent.
    pub wall: Duration,
    /// How late requests were sent by our own fault; `None` if none was sent.
    pub lag: Option<Lag>,
    /// Whose clock took the moments of arrival; ours, if it took any of them.
    pub stamp: Stamp,
    /// How often the wall clock was set meanwhile, as the threads saw it. Moments that the kernel took around that time may be
    /// off by up to the time between two reads.
    pub clock_jumps: u32,
    /// How far moments of arrival may be off, and pauses of the client.
    pub lateness: Lateness,
    /// Connections that the server left open for a second after `[DONE]`. An answer ends with that line all the same.
    pub left_open: u64,
    /// What each sending thread spent.
    pub threads: Vec<Effort>,
}

/// What one sending thread spent between the start of the measurement and its last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    pub cpu: Duration,
    /// The time that passed meanwhile.
    pub wall: Duration,
    /// The longest pass over sockets that had something to say: so long one of them may have waited for its turn.
    pub longest_pass: Duration,
}

/// How long after its due time, or after its slot became free if that was later, a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    pub mean: Duration,
    /// 99 of 100 were at most this late.
    pub p99: Duration,
    pub max: Duration,
    /// The second latest, where so many were sent.
    pub second: Option<Duration>,
    pub fifth: Option<Duration>,
}

impl Lag {
    pub(super) fn of(mut lags: Vec<Duration>) -> Option<Self> {
        lags.sort_unstable();
        let max = *lags.last()?;
        let count = u32::try_from(lags.len()).unwrap_or(u32::MAX);
        let rank = (lags.len() * 99).div_ceil(100);
        let latest = |nth: usize| lags.len().checked_sub(nth).map(|at| lags[at]);
        Some(Self {
            mean: lags.iter().sum::<Duration>() / count,
            p99: lags[rank - 1],
            max,
            second: latest(2),
            fifth: latest(5),
        })
    }
}

/// Why nothing could be sent.
#[derive(Debug, Error)]
pub enum DriveError {
    /// No encrypted connection can be made, whoever listens.
    #[error(transparent)]
    Route(RouteError),
    /// A prompt cannot be written in the dialect.
    #[error("request {index} cannot be written: {source}")]
    Encode { index: u32, source: EncodeError },
    /// A thread of the load generator could not start or did not survive.
    #[error("a thread of the load generator failed: {0}")]
    Thread(String),
}
