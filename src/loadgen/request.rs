//! One request from its slot to its end: what arrived when, and how it ended.
//!
//! Where the kernel takes the moments of arrival, parsing delays none, and lines are parsed as they come. Where the moments
//! are ours, lines are kept as raw bytes with the moment of the read that completed them; only what
//! control needs is looked at (the end of the answer, `[DONE]`, the length of lines, the number of events), and lines
//! that differ from one parsed before in nothing but their text. All other JSON is parsed when the answer has ended, or when
//! [`response_trace::BLOCK`] bytes of lines have gathered: always after the moments of these lines were taken.
//! That keeps memory flat, since cumulative streams repeat their text with each event; the price is that about 50 µs of
//! parsing may stand between two reads of other streams on the same thread, once per block.

mod answer;
mod bounds;
mod nonblocking;
mod response_trace;

use std::time::Duration;

pub(super) use self::answer::{Answer, nanos};
pub(super) use self::bounds::Bounds;
pub(super) use self::nonblocking::{Course, Haul, Live};
pub(super) use self::response_trace::COMPRESSED;

/// How long the end of a connection is waited for after `[DONE]`.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// After so long the kernel asks again for a connection that nobody answered.
pub(super) const RETRY: Duration = Duration::from_millis(900);

#[cfg(test)]
mod tests;
