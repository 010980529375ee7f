//! What a read from an engine's connection brought, and when it came.

use crate::base::clock::Moment;

/// Whose clock took a moment of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// The kernel's, when the bytes came in: our own queueing is not in it.
    Kernel,
    /// Ours, right after the read returned: our own queueing is in it.
    User,
}

impl Stamp {
    /// The word in records.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::User => "user",
        }
    }
}

/// What a read brought, besides its bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Moment,
    /// Whose clock says so.
    pub(super) stamp: Stamp,
    /// How many bytes of HTTP; 0 when the other side ended the connection.
    pub(super) length: usize,
    /// Whether another read may bring something at once.
    pub(super) has_more: bool,
    /// Whether a TLS connection ended without close_notify, so that its last bytes may be missing.
    pub(super) is_truncated: bool,
}
