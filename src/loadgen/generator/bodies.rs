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

use super::composed::composed;
use super::load::Item;
use super::pending::{BEFORE, Job};
use super::shared::Shared;

/// Bytes of bodies that are made ahead while the load runs.
const AHEAD: usize = BEFORE / 2;

/// The bodies of a share that were not made before the load began.
pub(super) struct Bodies {
    made: Receiver<(usize, Vec<u8>)>,
    /// Places below this one were sent.
    next: Arc<AtomicUsize>,
}

impl Bodies {
    /// Starts to make the bodies that are missing.
    pub(super) fn of(jobs: &VecDeque<Job>, shared: &Arc<Shared>) -> Self {
        let later = || {
            jobs.iter()
                .filter_map(|job| Some((job.place, Arc::clone(job.item.as_ref()?))))
        };
        // The capacity is exact, because a growing vector briefly takes twice its memory.
        let mut items = Vec::with_capacity(later().count());
        items.extend(later());
        // A bounded channel allocates all of its slots at once.
        let mean = jobs.iter().map(|job| job.length).sum::<usize>() / jobs.len().max(1);
        let room = (AHEAD / mean.max(1)).max(1).min(items.len());
        let (sender, made) = sync_channel(room);
        let next = Arc::new(AtomicUsize::new(0));
        if !items.is_empty() {
            let (shared, next) = (Arc::clone(shared), Arc::clone(&next));
            let work = move || make(&items, &shared, &next, &sender);
            // Without a thread, the sending thread makes all bodies itself.
            let _ = thread::Builder::new().name("bodies".to_owned()).spawn(work);
        }
        Self { made, next }
    }

    /// Returns the body of a job; jobs come in the order of their share.
    pub(super) fn take(&self, job: &mut Job, shared: &Shared) -> Vec<u8> {
        let Some(item) = job.item.take() else {
            return std::mem::take(&mut job.bytes);
        };
        self.next.store(job.place + 1, Ordering::Relaxed);
        // Skips bodies of jobs that were given up or that the sending thread made itself.
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
