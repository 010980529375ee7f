//! Request bodies that are made while the load runs: those of long prompts together are more than memory is to hold.
//!
//! They are made on a thread of their own, in the order in which requests go, some megabytes ahead. Whoever sends never waits for
//! them: what is not there yet is made on the spot, and the time that takes is send lag.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::composed::composed;
use super::load::Item;
use super::pending::{BEFORE, Job};
use super::shared::Shared;

/// So many more are made ahead while it runs.
const AHEAD: usize = BEFORE / 2;

/// The bodies of a share that were not made before the load began.
pub(super) struct Bodies {
    made: Receiver<(usize, Vec<u8>)>,
    /// Places below this one were sent.
    next: Arc<AtomicUsize>,
}

impl Bodies {
    /// Begins to make those of the jobs that have none.
    pub(super) fn of(jobs: &VecDeque<Job>, shared: &Arc<Shared>) -> Self {
        let later = || {
            jobs.iter()
                .filter_map(|job| Some((job.place, Arc::clone(job.item.as_ref()?))))
        };
        // What grows while it is filled takes twice its room for a moment.
        let mut items = Vec::with_capacity(later().count());
        items.extend(later());
        // Room is made at once for as many as the channel may hold.
        let mean = jobs.iter().map(|job| job.length).sum::<usize>() / jobs.len().max(1);
        let room = (AHEAD / mean.max(1)).max(1).min(items.len());
        let (sender, made) = sync_channel(room);
        let next = Arc::new(AtomicUsize::new(0));
        if !items.is_empty() {
            let (shared, next) = (Arc::clone(shared), Arc::clone(&next));
            let work = move || make(&items, &shared, &next, &sender);
            // Without a thread all are made on the spot.
            let _ = thread::Builder::new().name("bodies".to_owned()).spawn(work);
        }
        Self { made, next }
    }

    /// The body of a job whose turn has come; jobs come in the order of their share.
    pub(super) fn take(&self, job: &mut Job, shared: &Shared) -> Vec<u8> {
        let Some(item) = job.item.take() else {
            return std::mem::take(&mut job.bytes);
        };
        self.next.store(job.place + 1, Ordering::Relaxed);
        // What was given up, or made on the spot, is passed over.
        while let Ok((place, body)) = self.made.try_recv() {
            if place == job.place {
                return body;
            }
        }
        body(&item, shared)
    }
}

fn make(
    items: &[(usize, Arc<Item>)],
    shared: &Shared,
    next: &AtomicUsize,
    made: &SyncSender<(usize, Vec<u8>)>,
) {
    for (place, item) in items {
        if *place < next.load(Ordering::Relaxed) {
            continue;
        }
        if made.send((*place, body(item, shared))).is_err() {
            return;
        }
    }
}

fn body(item: &Item, shared: &Shared) -> Vec<u8> {
    composed(item, &item.content, shared)
        .expect("every body was made once before the load began")
        .bytes
}
