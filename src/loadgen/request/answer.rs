//! The result of one request.

use crate::base::clock::Moment;
use crate::loadgen::arrival::Stamp;
use crate::loadgen::protocol::Decoded;
use crate::results::record::request::{Class, Failure};

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) sent: Moment,
    pub(crate) connected: Option<Moment>,
    pub(crate) written: Option<Moment>,
    pub(crate) first_byte: Option<Moment>,
    pub(crate) last_line: Option<Moment>,
    pub(crate) end: Moment,
    /// The clock that took the times of arrival; `None` if nothing arrived.
    pub(crate) stamp: Option<Stamp>,
    pub(crate) status: Option<u16>,
    /// Content and failure, be it of the content or of the transport.
    pub(crate) decoded: Decoded,
}

pub(super) enum Ending {
    Whole(Moment),
    Failed(Failure),
    TimedOut,
    Cancelled,
}

pub(super) fn failed(class: Class, message: impl ToString) -> Ending {
    Ending::Failed(Failure {
        class,
        message: message.to_string(),
    })
}

/// Nanoseconds from the zero of a measurement to a moment.
pub(crate) fn nanos(at: Moment, zero: Moment) -> u64 {
    at.as_nanos().saturating_sub(zero.as_nanos())
}
