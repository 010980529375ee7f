//! The queue of the sequences that are not admitted yet.

use std::collections::{BTreeMap, HashMap};

use super::sequence::Sequence;

/// First come first served. A sequence is also found by its id, because a request with many prompts that is
/// aborted removes each of them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// By place in the queue; negative places are those of preempted sequences.
    sequences: BTreeMap<i64, Sequence>,
    places: HashMap<u64, i64>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.sequences.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    pub(super) fn front(&self) -> Option<&Sequence> {
        self.sequences.first_key_value().map(|(_, sequence)| sequence)
    }

    pub(super) fn push_back(&mut self, sequence: Sequence) {
        let place = self.sequences.last_key_value().map_or(0, |(last, _)| last + 1);
        self.insert(place, sequence);
    }

    pub(super) fn push_front(&mut self, sequence: Sequence) {
        let place = self.sequences.first_key_value().map_or(0, |(first, _)| first - 1);
        self.insert(place, sequence);
    }

    pub(super) fn pop_front(&mut self) -> Option<Sequence> {
        let (_, sequence) = self.sequences.pop_first()?;
        self.places.remove(&sequence.id);
        Some(sequence)
    }

    /// Removes a sequence. Unknown ids are ignored.
    pub(super) fn remove(&mut self, id: u64) {
        if let Some(place) = self.places.remove(&id) {
            self.sequences.remove(&place);
        }
    }

    fn insert(&mut self, place: i64, sequence: Sequence) {
        self.places.insert(sequence.id, place);
        self.sequences.insert(place, sequence);
    }
}
