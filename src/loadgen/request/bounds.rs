//! How far one request may go.

use std::time::Duration;

use crate::config::scenario::Limits;

/// Events that a sound answer may have besides those with output: role, finish, usage and the like.
const OTHER_EVENTS: u64 = 16;

/// How far one request may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The longest wait for the first byte of the body: some servers send the head before they have anything to say.
    pub(crate) first_byte: Duration,
    /// The longest it may take.
    pub(crate) request: Duration,
    pub(crate) line_bytes: usize,
    /// The most events before it is cut as endless.
    pub(crate) events: u64,
    /// The tokens that are asked for.
    pub(crate) tokens: u32,
}

impl Bounds {
    /// The bounds of a request that may bring so many tokens.
    pub(crate) fn of(asked_tokens: u32, limits: &Limits) -> Self {
        Self {
            first_byte: limits.first_byte.duration(),
            request: limits.request.duration(),
            line_bytes: usize::try_from(limits.line_bytes).unwrap_or(usize::MAX),
            tokens: asked_tokens,
            events: u64::from(asked_tokens) + u64::from(limits.excess_tokens) + OTHER_EVENTS,
        }
    }
}
