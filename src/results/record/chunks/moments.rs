//! The moments at which events of an answer arrived.

use crate::results::record::chunk::Chunk;

/// Events with at most this gap count as arriving at the same moment.
pub(crate) const SIMULTANEOUS_NS: u64 = 50_000;

/// Groups of events that arrived at the same moment: each at most [`SIMULTANEOUS_NS`] after the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moments {
    pub(crate) count: usize,
    /// Number of events of the first moment.
    pub(crate) first: usize,
    /// Arrival of the last event of the first moment.
    pub(crate) first_end_ns: u64,
    /// Sum of the times between consecutive moments.
    pub(crate) waited_ns: u64,
    /// Bytes of all events of the answer.
    pub(crate) bytes: u64,
    /// Bytes of the events that arrived at the first moment.
    pub(crate) first_bytes: u64,
    /// Bytes of the events that arrived at the largest moment; the earliest one if several are equal.
    pub(crate) largest: u64,
    /// Time before the largest moment; 0 if it is the first.
    pub(crate) before_largest_ns: u64,
    /// Bytes of the events that arrived at the second largest moment.
    pub(crate) second_largest: u64,
    /// Bytes of the events that arrived at the latest moment, and the time before it.
    latest: u64,
    before_latest_ns: u64,
    latest_is_largest: bool,
}

impl Moments {
    pub(super) fn add(&mut self, chunk: Chunk, before: Option<Chunk>) {
        let gap = before.map(|before| chunk.at_ns.saturating_sub(before.at_ns));
        let is_new = gap.is_none_or(|gap| gap > SIMULTANEOUS_NS);
        self.count += usize::from(is_new);
        if is_new {
            (self.latest, self.latest_is_largest) = (0, false);
            self.before_latest_ns = gap.unwrap_or(0);
            self.waited_ns = self.waited_ns.saturating_add(self.before_latest_ns);
        }
        let bytes = u64::from(chunk.bytes);
        if self.count == 1 {
            self.first += 1;
            self.first_end_ns = chunk.at_ns;
            self.first_bytes += bytes;
        }
        self.bytes += bytes;
        self.latest += bytes;
        if self.latest_is_largest {
            self.largest = self.latest;
        } else if self.latest > self.largest {
            self.second_largest = self.largest;
            self.largest = self.latest;
            self.before_largest_ns = self.before_latest_ns;
            self.latest_is_largest = true;
        } else {
            self.second_largest = self.second_largest.max(self.latest);
        }
    }

    /// Time that the bytes of the largest moment would have taken at the pace of the other moments except the
    /// first, in ns. `None` if no other moment came after a wait.
    pub(crate) fn largest_at_pace_ns(&self) -> Option<f64> {
        let is_first = self.before_largest_ns == 0;
        let others = self.bytes - self.largest - if is_first { 0 } else { self.first_bytes };
        let waited = self.waited_ns.saturating_sub(self.before_largest_ns);
        (others > 0 && waited > 0).then(|| self.largest as f64 * waited as f64 / others as f64)
    }
}
