//! The result of one request.

use std::time::Duration;

use crate::base::clock::MonotonicTime;
use crate::loadgen::arrival::TimestampSource;
use crate::loadgen::protocol::Decoded;
use crate::results::record::request::{Failure, RequestFailureClass};

/// The statuses of servers that ask for another attempt: too many requests, and unavailable.
pub(crate) const RETRIED_STATUSES: [u16; 2] = [429, 503];

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) sent: MonotonicTime,
    pub(crate) connected: Option<MonotonicTime>,
    pub(crate) written: Option<MonotonicTime>,
    pub(crate) first_byte: Option<MonotonicTime>,
    pub(crate) last_line: Option<MonotonicTime>,
    pub(crate) end: MonotonicTime,
    /// The clock that took the times of arrival; `None` if nothing arrived.
    pub(crate) timestamp_source: Option<TimestampSource>,
    pub(crate) status: Option<u16>,
    /// How long the server asks to wait before the request is sent again.
    pub(crate) retry_after: Option<Duration>,
    /// Content and failure, be it of the content or of the transport.
    pub(crate) decoded: Decoded,
    /// Whether the client cancelled the request as planned.
    pub(crate) is_cancelled: bool,
}

pub(super) enum RequestEnd {
    Complete(MonotonicTime),
    Failed(Failure),
    TimedOut,
    /// The client stops the load.
    Cancelled,
    /// The client cancels this request, as its load plans.
    CancelledAsPlanned,
}

pub(super) fn failure(class: RequestFailureClass, message: impl ToString) -> RequestEnd {
    RequestEnd::Failed(Failure {
        class,
        message: message.to_string(),
    })
}

/// Nanoseconds from the zero of a measurement to a moment.
pub(crate) fn nanos_since(at: MonotonicTime, zero: MonotonicTime) -> u64 {
    at.as_nanos().saturating_sub(zero.as_nanos())
}
