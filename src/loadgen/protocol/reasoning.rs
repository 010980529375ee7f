//! Finds reasoning that a server leaves in the text of the answer, between `<think>` and `</think>`.
//!
//! Many templates open the reasoning in the prompt, so that the text has only its end. An event with both the
//! end of the reasoning and the start of the answer counts as answer.

use memchr::memmem;

const THINK_START: &str = "<think>";
const THINK_END: &str = "</think>";

/// Searches for the end of the reasoning in a text that arrives in pieces; earlier pieces are not available.
#[derive(Clone, Debug, Default)]
pub(super) struct ReasoningScanner {
    /// Number of bytes searched so far.
    scanned: usize,
    state: ScanState,
    /// Whether the text begins with the begin mark; `None` before the first piece.
    is_begun: Option<bool>,
    /// Whether the begin mark occurs anywhere so far.
    has_begin: bool,
    /// The last bytes, which may contain the start of a mark.
    tail: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ScanState {
    #[default]
    InReasoning,
    /// The reasoning ends there, and only white space has followed so far.
    Space(usize),
    /// The answer begins there.
    Answer(usize),
    /// The text does not begin with reasoning.
    None,
}

impl ReasoningScanner {
    pub(super) fn scan(&mut self, piece: &str) {
        let is_begun = *self
            .is_begun
            .get_or_insert_with(|| piece.trim_start().starts_with(THINK_START));
        let from = self.scanned;
        self.scanned += piece.len();
        match self.state {
            ScanState::InReasoning => {}
            ScanState::Space(end) => return self.skip_space(end, piece),
            ScanState::Answer(_) | ScanState::None => return,
        }
        // A mark may span two pieces.
        let joined = format!("{}{piece}", self.tail);
        let before = from - self.tail.len();
        let end = memmem::find(joined.as_bytes(), THINK_END.as_bytes());
        let head = &joined.as_bytes()[..end.unwrap_or(joined.len())];
        self.has_begin |= memmem::find(head, THINK_START.as_bytes()).is_some();
        match end {
            Some(_) if !is_begun && self.has_begin => self.state = ScanState::None,
            Some(end) => self.skip_space(before + end + THINK_END.len(), &joined[end + THINK_END.len()..]),
            None => {
                let mut cut = joined.len().saturating_sub(THINK_END.len() - 1);
                while !joined.is_char_boundary(cut) {
                    cut += 1;
                }
                self.tail = joined[cut..].to_owned();
            }
        }
    }

    /// Skips white space after the end of the reasoning.
    fn skip_space(&mut self, end: usize, rest: &str) {
        let space = rest.len() - rest.trim_start().len();
        self.state = match space == rest.len() {
            true => ScanState::Space(end + space),
            false => ScanState::Answer(end + space),
        };
    }

    /// Returns the position of the answer's first character in a text that begins with reasoning.
    pub(super) fn end(&self) -> Option<usize> {
        match self.state {
            ScanState::InReasoning => (self.is_begun == Some(true)).then_some(self.scanned),
            ScanState::Space(end) | ScanState::Answer(end) => Some(end),
            ScanState::None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn end(pieces: &[&str]) -> Option<usize> {
        let mut thoughts = ReasoningScanner::default();
        pieces.iter().for_each(|piece| thoughts.scan(piece));
        thoughts.end()
    }

    #[test]
    fn reasoning_in_the_text_is_found_where_it_stands_first() {
        for (text, expected) in [
            ("<think>a</think>\n\nb", Some(18)),
            (" <think>a", Some(9)),
            ("a</think>b", Some(9)),
            ("a<think>b</think>c", None),
            ("plain", None),
        ] {
            assert_eq!(end(&[text]), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn pieces_tell_what_the_whole_text_tells(
            head in prop::sample::select(vec!["<think>", " <think>x", "plain", ""]),
            words in prop::collection::vec(
                prop::sample::select(vec!["<think>", "</think>", "é", " ", "\u{2003}", "<", "</th", "ink>", "a"]), 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            // The first piece is long in practice and has the begin mark.
            let rest: String = words.concat();
            let places: Vec<usize> = rest.char_indices().map(|(at, _)| at).collect();
            let mut cuts: Vec<usize> = match places.is_empty() {
                true => Vec::new(),
                false => cuts.iter().map(|cut| *cut.get(&places)).collect(),
            };
            cuts.sort_unstable();
            let whole = format!("{head}{rest}");
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([rest.len()]) {
                pieces.push(&rest[from..cut]);
                from = cut;
            }
            let first = format!("{head}{}", pieces[0]);
            prop_assume!(pieces.len() == 1 || !head.is_empty());
            let mut all = vec![first.as_str()];
            all.extend(&pieces[1..]);
            prop_assert_eq!(end(&all), end(&[&whole]), "{:?}", all);
        }
    }
}
