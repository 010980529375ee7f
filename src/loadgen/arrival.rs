//! The time, timestamp source and length of one read from an engine's connection.

use crate::base::clock::MonotonicTime;

/// The clock that took a time of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimestampSource {
    /// The kernel's, when the bytes came in: our own queueing is not in it.
    Kernel,
    /// This process, right after the read returned. The client's own queueing is included.
    User,
}

impl TimestampSource {
    /// The word in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }
}

/// One read from a connection, without its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) received_at: MonotonicTime,
    pub(super) timestamp_source: TimestampSource,
    /// Bytes of HTTP; 0 if the other side ended the connection.
    pub(super) length: usize,
    /// Whether another read may return data at once.
    pub(super) has_more: bool,
    /// Whether a TLS connection ended without close_notify, so that its last bytes may be missing.
    pub(super) is_truncated: bool,
}
