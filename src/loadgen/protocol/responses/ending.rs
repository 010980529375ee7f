//! The text of an answer as the events that end its parts have it. Clients use that text instead of the pieces, so it is what
//! a check of the answer reads; times and counts are those of the pieces.

use std::collections::BTreeMap;

use super::{BorrowedStr, Item, ItemEvent};
use crate::loadgen::protocol::reasoning::ReasoningScanner;
use crate::results::record::final_answer::FinalAnswer;
use crate::results::record::spilled::SpilledText;

/// The texts of the parts that ended. The whole output wins over an item, and an item over a part.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::loadgen::protocol) struct Ending {
    /// By the places of item and part.
    texts: BTreeMap<(u32, u32), String>,
    has_whole_output: bool,
    is_refusal: bool,
}

impl Ending {
    /// Keeps the text of a part.
    pub(super) fn note_part(&mut self, event: &ItemEvent<'_>) {
        let text = BorrowedStr::as_text(&event.text);
        if text.is_empty() || self.has_whole_output {
            return;
        }
        // Parts without a place are in order.
        let unplaced = || (u32::MAX, u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        let place = event
            .output_index
            .map_or_else(unplaced, |item| (item, event.content_index.unwrap_or(0)));
        self.texts.insert(place, text.to_owned());
    }

    /// Keeps the text of an item instead of that of its parts.
    pub(super) fn note_item(&mut self, item: &Item<'_>, index: Option<u32>) {
        self.is_refusal |= item.is_refusal();
        let (text, Some(index)) = (item.message_text(), index) else {
            return;
        };
        if !(text.is_empty() || self.has_whole_output) {
            self.texts.retain(|(item, _), _| *item != index);
            self.texts.insert((index, 0), text);
        }
    }

    /// Keeps the text of the whole output instead of any other. An output without a message or a call tells nothing.
    pub(super) fn note_output(&mut self, items: &[Item<'_>]) {
        self.is_refusal |= items.iter().any(Item::is_refusal);
        let texts = items.iter().map(Item::message_text);
        let texts: BTreeMap<_, _> = (0..)
            .map(|item| (item, 0))
            .zip(texts)
            .filter(|(_, text)| !text.is_empty())
            .collect();
        if !texts.is_empty() {
            self.texts = texts;
            self.has_whole_output = true;
        }
    }

    /// Notes that the model refuses to answer.
    pub(in crate::loadgen::protocol) fn note_refusal(&mut self) {
        self.is_refusal = true;
    }

    /// Returns what differs from the text of the pieces.
    pub(in crate::loadgen::protocol) fn final_answer(self, pieces: &SpilledText) -> Option<Box<FinalAnswer>> {
        let mut text: String = self.texts.into_values().collect();
        let is_known = pieces.len() == text.len() && pieces.in_memory() == text;
        let mut reasoning = ReasoningScanner::default();
        reasoning.scan(&text);
        if let Some(end) = reasoning.end() {
            text.drain(..end);
        }
        let answer = FinalAnswer {
            text: (!is_known && !text.is_empty()).then(|| text.into()),
            is_refusal: self.is_refusal,
        };
        (answer != FinalAnswer::default()).then(|| Box::new(answer))
    }
}
