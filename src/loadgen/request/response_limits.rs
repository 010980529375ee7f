//! The limits of one request.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::config::scenario::LoadLimits;

/// Events that a valid answer may have besides those with output: role, finish, usage and the like.
const EXTRA_EVENTS: u64 = 16;

/// When the client cancels a request: at the first of these moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CancelPoint {
    /// Number of output tokens that have arrived.
    pub(crate) tokens: Option<NonZeroU32>,
    /// Time since the whole request was written.
    pub(crate) time: Option<Duration>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseLimits {
    /// Timeout for the first byte of the body. The head does not count: some servers send it before they have
    /// output.
    pub(crate) first_byte: Duration,
    /// Timeout for the whole request.
    pub(crate) request: Duration,
    pub(crate) line_bytes: usize,
    /// Maximum number of events; an answer with more is cut as endless.
    pub(crate) events: u64,
    pub(crate) tokens: u32,
    /// When the client cancels the request, if it does.
    pub(crate) cancel: Option<CancelPoint>,
}

impl ResponseLimits {
    /// Computes the limits of a request for this many output tokens.
    pub(crate) fn new(requested_tokens: u32, limits: &LoadLimits, cancel: Option<CancelPoint>) -> Self {
        Self {
            first_byte: limits.first_byte.duration(),
            request: limits.request.duration(),
            line_bytes: usize::try_from(limits.line_bytes).unwrap_or(usize::MAX),
            tokens: requested_tokens,
            cancel,
            events: u64::from(requested_tokens) + u64::from(limits.excess_tokens) + EXTRA_EVENTS,
        }
    }
}
