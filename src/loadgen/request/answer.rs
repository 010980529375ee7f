//! What comes of one request.

use crate::base::clock::Moment;
use crate::loadgen::arrival::Stamp;
use crate::loadgen::protocol::Decoded;
use crate::results::record::request::{Class, Failure};

/// What came of one request.
#[derive(Debug)]
pub(in crate::loadgen) struct Answer {
    pub(in crate::loadgen) sent: Moment,
    pub(in crate::loadgen) connected: Option<Moment>,
    pub(in crate::loadgen) written: Option<Moment>,
    pub(in crate::loadgen) first_byte: Option<Moment>,
    pub(in crate::loadgen) last_line: Option<Moment>,
    pub(in crate::loadgen) end: Moment,
    /// Whose clock took its moments of arrival; `None` if nothing arrived.
    pub(in crate::loadgen) stamp: Option<Stamp>,
    pub(in crate::loadgen) status: Option<u16>,
    /// Content and failure, whether of content or of transport.
    pub(in crate::loadgen) decoded: Decoded,
}

/// How the waiting ended.
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
pub(in crate::loadgen) fn nanos(at: Moment, zero: Moment) -> u64 {
    at.as_nanos().saturating_sub(zero.as_nanos())
}
