//! Passes records to a writer thread as requests end, while the load runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::results::record::request::Request;

/// The sending end of a queue of records. The load never waits for it: a record that finds the queue full is
/// counted and stays only in memory.
#[derive(Clone, Debug)]
pub struct Sink {
    records: SyncSender<Request>,
    dropped: Arc<AtomicU64>,
    keeps_text: bool,
}

impl Sink {
    /// Records that may wait to be written while a load runs.
    pub(crate) const CAPACITY: usize = 4096;

    /// Creates a queue for `room` records and returns both ends. Texts of answers are passed on only if
    /// `keeps_text`.
    pub(crate) fn new(room: usize, keeps_text: bool) -> (Self, Receiver<Request>) {
        let (records, receiver) = sync_channel(room);
        let sink = Self {
            records,
            dropped: Arc::default(),
            keeps_text,
        };
        (sink, receiver)
    }

    /// Number of records that found the queue full.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn push(&self, request: &Request) {
        let mut record = request.clone();
        if !self.keeps_text {
            (record.text, record.tool_text) = (None, None);
        }
        if self.records.try_send(record).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::store::testing::requests;

    #[test]
    fn a_record_goes_without_its_text_and_a_full_queue_makes_nobody_wait() {
        let record = Request {
            text: Some("secret".into()),
            ..requests().swap_remove(0)
        };
        let (sink, receiver) = Sink::new(2, false);
        (0..5).for_each(|_| sink.push(&record));
        assert_eq!(sink.dropped(), 3);
        drop(sink);
        let received: Vec<Request> = receiver.iter().collect();
        let expected = Request { text: None, ..record };
        assert_eq!(received, [expected.clone(), expected]);
    }
}
