//! Repetition within one answer: the share of its most frequent member, and loops.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Minimum number of tokens, events or characters for statistics about repetition.
pub(super) const MIN_MEMBERS: usize = 8;

/// A fast hasher: answers have millions of members, and protection against chosen hashes is not needed.
#[derive(Clone, Copy, Default)]
struct FastHasher(u64);

impl FastHasher {
    fn mix(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x51_7c_c1_b7_27_22_0a_95);
    }
}

impl Hasher for FastHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.mix(u64::from_le_bytes(last) ^ (rest.len() as u64) << 56);
    }

    fn write_u32(&mut self, word: u32) {
        self.mix(word.into());
    }

    fn write_u8(&mut self, word: u8) {
        self.mix(word.into());
    }

    fn finish(&self) -> u64 {
        // The upper bits are mixed best, and hash tables use the lower ones.
        self.0.rotate_left(26)
    }
}

/// How often the most frequent member of a sequence occurs, and the number of members.
#[derive(Default)]
struct MemberCounts {
    max_count: usize,
    total: usize,
}

impl MemberCounts {
    fn from_members<T: Eq + Hash>(members: impl Iterator<Item = T>) -> Self {
        let mut counts: HashMap<T, usize, BuildHasherDefault<FastHasher>> = HashMap::default();
        let mut total = 0;
        for member in members {
            *counts.entry(member).or_default() += 1;
            total += 1;
        }
        let max = counts.into_values().max().unwrap_or(0);
        Self {
            max_count: max,
            total,
        }
    }

    /// Counts the characters of a text, almost all of which are ASCII.
    fn from_characters(text: &str) -> Self {
        let mut ascii = [0; 128];
        text.bytes()
            .filter(u8::is_ascii)
            .for_each(|byte| ascii[usize::from(byte)] += 1);
        let max = ascii.into_iter().max().unwrap_or(0);
        let total = ascii.into_iter().sum();
        match total == text.len() {
            true => Self {
                max_count: max,
                total,
            },
            false => {
                let others = Self::from_members(text.chars().filter(|character| !character.is_ascii()));
                Self {
                    max_count: max.max(others.max_count),
                    total: total + others.total,
                }
            }
        }
    }

    /// Share of the most frequent member; `None` for short sequences.
    fn max_share(&self) -> Option<f64> {
        (self.total >= MIN_MEMBERS).then(|| self.max_count as f64 / self.total as f64)
    }
}

/// Lengths of loops that are searched for, in tokens or events.
const PERIODS: std::ops::RangeInclusive<usize> = 2..=8;

/// One in this many members of a loop may differ from the member one period earlier.
const LOOP_TOLERANCE: usize = 10;

/// Whether almost all members of a sequence equal the member one period earlier, for one of the [`PERIODS`].
fn is_periodic<T: Eq>(members: &[T]) -> bool {
    let is_repeated = |period: usize| {
        let max_strays = (members.len() - period) / LOOP_TOLERANCE;
        let pairs = members.iter().zip(&members[period..]);
        // For most texts this stops after a few members.
        pairs
            .filter(|(before, after)| before != after)
            .nth(max_strays)
            .is_none()
    };
    // A loop must have two full repetitions.
    let mut periods = PERIODS.filter(|period| 3 * period <= members.len());
    members.len() >= MIN_MEMBERS && periods.any(is_repeated)
}

/// Whether an answer is almost entirely a loop of a few tokens or events.
pub(super) fn is_loop(ids: &[u32], pieces: Option<&[&str]>) -> bool {
    let pieces = pieces.into_iter().flatten();
    let pieces: Vec<&str> = pieces.copied().filter(|piece| !piece.is_empty()).collect();
    is_periodic(ids) || is_periodic(&pieces)
}

/// Largest share of one token, event or character in an answer. Events and characters are counted too,
/// because the tokenizer may split a run of one token into other tokens (`!!!!` is a token of its own).
pub(super) fn uniformity(ids: &[u32], pieces: Option<&[&str]>, text: &str) -> Option<f64> {
    let pieces = pieces.map(|pieces| pieces.iter().filter(|piece| !piece.is_empty()));
    let share = [
        MemberCounts::from_members(ids.iter()).max_share(),
        pieces.and_then(|pieces| MemberCounts::from_members(pieces).max_share()),
        MemberCounts::from_characters(text).max_share(),
    ]
    .into_iter()
    .flatten()
    .fold(None, |most: Option<f64>, share| {
        Some(most.unwrap_or(0.0).max(share))
    });
    share.map(|share| (share * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_is_seen_however_its_text_splits() {
        assert_eq!(
            uniformity(&[7, 8], None, "!!!!!!!!!!!!"),
            Some(1.0),
            "as characters"
        );
        let pieces = ["the end"; 9];
        let text = pieces.concat();
        assert_eq!(
            uniformity(&[1, 2, 3], Some(&pieces), &text),
            Some(1.0),
            "as events"
        );
        assert_eq!(uniformity(&[4; 10], None, "abcdefghijkl"), Some(1.0), "as tokens");
        let ids: Vec<u32> = (0..20).collect();
        let text = "the quick brown fox jumps over the lazy dog";
        assert!(uniformity(&ids, None, text) < Some(0.25));
        assert_eq!(uniformity(&[1, 1], None, "aa"), None, "too short to say");
        assert_eq!(uniformity(&[1], None, "ééééaaab"), Some(0.5), "beyond ASCII");
    }

    #[test]
    fn a_loop_of_a_few_tokens_is_seen_and_one_that_begins_late_is_not() {
        let looping: Vec<u32> = (0..48).map(|index| index % 3).collect();
        assert!(is_loop(&looping, None));
        let late: Vec<u32> = (0..24)
            .map(|index| 100 + index)
            .chain((0..24).map(|index| index % 3))
            .collect();
        assert!(!is_loop(&late, None));
        let text: Vec<u32> = (0..48).collect();
        assert!(!is_loop(&text, None));
        let pieces = [" a river", " and", " a stone"].repeat(12);
        assert!(is_loop(&[1, 2, 3], Some(&pieces)), "as events");
    }
}
