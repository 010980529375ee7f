//! A request that may be sent.

use crate::base::clock::MonotonicTime;
use crate::loadgen::generator::concurrency_limit::Slot;
use crate::loadgen::generator::pending::PendingRequest;

/// A request that has a slot, with what is needed to send it.
pub(super) struct SlottedRequest {
    pub(super) request: PendingRequest,
    pub(super) concurrency_slot: Option<Slot>,
    pub(super) ready_at: MonotonicTime,
}
