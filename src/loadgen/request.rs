//! The life of one request, from its slot to its end: what arrived when, and how it ended.
//!
//! With kernel timestamps, parsing delays no time of arrival, so lines are parsed as they arrive. With the
//! client's own timestamps, lines are kept as raw bytes with the time of the read that completed them. Only
//! what controls the request is inspected at once: the end of the answer, `[DONE]`, the length of lines and
//! the number of events; and lines that differ from a parsed one only in their text. The rest is parsed at
//! the end of the answer, or when [`buffered_lines::PARSE_BLOCK_BYTES`] bytes of lines have gathered, always after the
//! times of these lines were taken. This bounds the memory, since cumulative streams repeat their text in
//! each event. The price is about 50 µs of parsing between two reads of other streams on the same thread,
//! once per block.

mod buffered_lines;
mod nonblocking;
mod outgoing;
mod response;
mod response_limits;
mod response_trace;
mod retry_after;

use std::time::Duration;

pub(super) use self::nonblocking::{InFlight, ReadState, ReadStats, Tail, TailState};
pub(super) use self::outgoing::{Outgoing, SharedFile};
pub(super) use self::response::{RETRIED_STATUSES, Response, nanos_since};
pub(super) use self::response_limits::{CancelPoint, ResponseLimits};
pub(super) use self::response_trace::COMPRESSED_MESSAGE;

/// How long the client waits after `[DONE]` for the server to close the connection.
pub(super) const CLOSE_GRACE: Duration = Duration::from_secs(1);
/// Shortly after this time the kernel retransmits the first packet of an unanswered connection.
pub(super) const CONNECT_RETRANSMIT: Duration = Duration::from_millis(900);

#[cfg(test)]
mod tests;
