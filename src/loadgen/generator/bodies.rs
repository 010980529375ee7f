//! Makes request bodies while the load runs, because the bodies of many long prompts together exceed the
//! memory budget.
//!
//! A separate thread makes them in the order of sending, some megabytes ahead. The sending thread never waits
//! for it: it makes a missing body itself, and the time this takes counts as lag.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::load_spec::PlannedRequest;
use super::pending::{MAX_PREPARED_BYTES, PendingRequest};
use super::request_bytes::encode_request;
use super::shared::Shared;
use crate::loadgen::request::Outgoing;

/// Bytes of bodies that are made ahead while the load runs.
const MAX_AHEAD_BYTES: usize = MAX_PREPARED_BYTES / 2;

/// The bodies of a share that were not made before the load began.
pub(super) struct DeferredBodies {
    ready: Receiver<(usize, Outgoing)>,
    /// Places below this one were sent.
    next: Arc<AtomicUsize>,
}

impl DeferredBodies {
    /// Starts to make the bodies that are missing.
    pub(super) fn start(pending_requests: &VecDeque<PendingRequest>, shared: &Arc<Shared>) -> Self {
        let deferred = || {
            pending_requests
                .iter()
                .filter(|pending| pending.place.is_none())
                .filter_map(|pending| Some((pending.position, Arc::clone(pending.planned.as_ref()?))))
        };
        // The capacity is exact, because a growing vector briefly takes twice its memory.
        let mut planned_requests = Vec::with_capacity(deferred().count());
        planned_requests.extend(deferred());
        // A bounded channel allocates all of its slots at once.
        let mean = pending_requests
            .iter()
            .map(|pending| pending.length)
            .sum::<usize>()
            / pending_requests.len().max(1);
        let room = (MAX_AHEAD_BYTES / mean.max(1)).max(1).min(planned_requests.len());
        let (sender, ready) = sync_channel(room);
        let next = Arc::new(AtomicUsize::new(0));
        if !planned_requests.is_empty() {
            let (shared, next) = (Arc::clone(shared), Arc::clone(&next));
            let work = move || make_bodies(&planned_requests, &shared, &next, &sender);
            // Without a thread, the sending thread makes all bodies itself.
            let _ = thread::Builder::new().name("bodies".to_owned()).spawn(work);
        }
        Self { ready, next }
    }

    /// Returns the body of a job; jobs come in the order of their share.
    pub(super) fn take(&self, pending: &mut PendingRequest, shared: &Shared) -> Outgoing {
        // Those of sessions are sent in another order, and were made when they got their slot.
        let planned = match pending.place {
            Some(_) => None,
            None => pending.planned.take(),
        };
        let Some(planned) = planned else {
            return std::mem::take(&mut pending.bytes);
        };
        self.next.store(pending.position + 1, Ordering::Relaxed);
        // Skips bodies of jobs that were given up or that the sending thread made itself.
        while let Ok((index, body)) = self.ready.try_recv() {
            if index == pending.position {
                return body;
            }
        }
        make_body(&planned, shared)
    }
}

fn make_bodies(
    planned_requests: &[(usize, Arc<PlannedRequest>)],
    shared: &Shared,
    next: &AtomicUsize,
    ready: &SyncSender<(usize, Outgoing)>,
) {
    for (index, planned) in planned_requests {
        if *index < next.load(Ordering::Relaxed) {
            continue;
        }
        if ready.send((*index, make_body(planned, shared))).is_err() {
            return;
        }
    }
}

fn make_body(planned: &PlannedRequest, shared: &Shared) -> Outgoing {
    encode_request(planned, &planned.content, shared)
        .expect("every body was made once before the load began")
        .bytes
}
