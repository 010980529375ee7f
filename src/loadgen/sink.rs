//! Where records go as they end, while the load runs on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::results::record::request::Request;

/// The way to a thread that keeps records. Whoever drives the load never waits for it: what finds it full is counted, and stays in
/// memory alone.
#[derive(Clone, Debug)]
pub struct Sink {
    records: SyncSender<Request>,
    missed: Arc<AtomicU64>,
    keeps_text: bool,
}

impl Sink {
    /// So many records may wait to be written while a load runs.
    pub(crate) const ROOM: usize = 4096;

    /// With room for so many records, and the other end. Texts of answers go along only where they are kept.
    pub(crate) fn new(room: usize, keeps_text: bool) -> (Self, Receiver<Request>) {
        let (records, receiver) = sync_channel(room);
        let sink = Self {
            records,
            missed: Arc::default(),
            keeps_text,
        };
        (sink, receiver)
    }

    /// How many records found it full.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    pub(super) fn take(&self, request: &Request) {
        let mut record = request.clone();
        if !self.keeps_text {
            (record.text, record.tool_text) = (None, None);
        }
        if self.records.try_send(record).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
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
        (0..5).for_each(|_| sink.take(&record));
        assert_eq!(sink.missed(), 3);
        drop(sink);
        let kept: Vec<Request> = receiver.iter().collect();
        let expected = Request { text: None, ..record };
        assert_eq!(kept, [expected.clone(), expected]);
    }
}
