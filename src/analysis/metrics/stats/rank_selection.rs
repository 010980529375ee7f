//! Finds values by rank without holding all of them in memory.

use std::collections::{BTreeMap, BTreeSet};

/// Bits of a value that one pass sorts by.
const DIGIT_BITS: u32 = 16;

/// Finds the values at given ranks in several passes. Each pass counts the values by their next sixteen bits,
/// until the values with the matching bits fit into memory.
pub(super) struct RankSelection {
    /// Highest number of values to hold in memory.
    max_in_memory: usize,
    /// Number of leading bits that are known.
    known_bits: u32,
    /// Known leading bits of the wanted values, each with pairs of the rank among the values with these bits
    /// and the rank among all values.
    prefixes: BTreeMap<u64, Vec<(usize, usize)>>,
    pass: Pass,
    values_by_rank: BTreeMap<usize, f64>,
}

/// What the current pass collects for each of the known leading bits.
enum Pass {
    /// Counts of the next digits.
    Count(BTreeMap<u64, Vec<usize>>),
    Collect(BTreeMap<u64, Vec<u64>>),
    /// Nothing, because all values are found.
    Done,
}

impl RankSelection {
    pub(super) fn new(max_in_memory: usize) -> Self {
        Self {
            max_in_memory,
            known_bits: 0,
            prefixes: BTreeMap::new(),
            pass: Pass::Count(BTreeMap::from([(0, vec![0; 1 << DIGIT_BITS])])),
            values_by_rank: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, value: f64) {
        let key = sort_key(value);
        let remaining_bits = u64::BITS - self.known_bits;
        let head = key.checked_shr(remaining_bits).unwrap_or(0);
        match &mut self.pass {
            Pass::Count(counts) => {
                if let Some(counts) = counts.get_mut(&head) {
                    counts[(key >> (remaining_bits - DIGIT_BITS)) as usize & ((1 << DIGIT_BITS) - 1)] += 1;
                }
            }
            Pass::Collect(collected) => {
                if let Some(collected) = collected.get_mut(&head) {
                    collected.push(key);
                }
            }
            Pass::Done => {}
        }
    }

    /// Sets the ranks to find, after the first pass.
    pub(super) fn select_ranks(&mut self, places: BTreeSet<usize>) {
        self.prefixes = BTreeMap::from([(0, places.into_iter().map(|place| (place, place)).collect())]);
        self.end_pass();
    }

    pub(super) fn end_pass(&mut self) {
        match std::mem::replace(&mut self.pass, Pass::Done) {
            Pass::Count(counts) => self.refine(&counts),
            Pass::Collect(mut collected) => {
                for (head, ranks) in std::mem::take(&mut self.prefixes) {
                    let mut sorted = collected.remove(&head).unwrap_or_default();
                    sorted.sort_unstable();
                    let values = ranks
                        .into_iter()
                        .map(|(place, name)| (name, value_of_key(sorted[place])));
                    self.values_by_rank.extend(values);
                }
            }
            Pass::Done => {}
        }
    }

    /// Uses the counts of one more digit.
    fn refine(&mut self, counts: &BTreeMap<u64, Vec<usize>>) {
        let mut next: BTreeMap<u64, Vec<(usize, usize)>> = BTreeMap::new();
        let mut alike = 0;
        for (head, ranks) in std::mem::take(&mut self.prefixes) {
            for (place, name) in ranks {
                let (mut digit, mut before) = (0, 0);
                while digit + 1 < counts[&head].len() && before + counts[&head][digit] <= place {
                    before += counts[&head][digit];
                    digit += 1;
                }
                let longer = head << DIGIT_BITS | digit as u64;
                if !next.contains_key(&longer) {
                    alike += counts[&head][digit];
                }
                next.entry(longer).or_default().push((place - before, name));
            }
        }
        self.known_bits += DIGIT_BITS;
        if self.known_bits == u64::BITS {
            let whole = next.into_iter();
            let whole = whole
                .flat_map(|(key, ranks)| ranks.into_iter().map(move |(_, name)| (name, value_of_key(key))));
            self.values_by_rank.extend(whole);
            return;
        }
        let heads = next.keys().copied();
        self.pass = match alike <= self.max_in_memory {
            true => Pass::Collect(heads.map(|head| (head, Vec::new())).collect()),
            false => Pass::Count(heads.map(|head| (head, vec![0; 1 << DIGIT_BITS])).collect()),
        };
        self.prefixes = next;
    }

    /// Returns the values by rank, after as many further passes as needed.
    pub(super) fn run_passes<I: Iterator<Item = f64>>(
        mut self,
        values: &impl Fn() -> I,
    ) -> BTreeMap<usize, f64> {
        while !matches!(self.pass, Pass::Done) {
            values().for_each(|value| self.add(value));
            self.end_pass();
        }
        self.values_by_rank
    }
}

/// Returns a number that sorts like the value in a total order.
fn sort_key(value: f64) -> u64 {
    let bits = value.to_bits();
    match bits >> 63 {
        0 => bits | 1 << 63,
        _ => !bits,
    }
}

fn value_of_key(key: u64) -> f64 {
    f64::from_bits(match key >> 63 {
        0 => !key,
        _ => key & !(1 << 63),
    })
}
