//! Sums, means, deviations and percentiles, in numpy's order of operations, so that even the last digits
//! agree.
//!
//! The functions do not know what a value means. An empty sample has no statistics.

mod rank_selection;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rank_selection::RankSelection;

/// Below this many values numpy adds from left to right.
const UNROLLED_LEN: usize = 8;
/// Up to this many values numpy keeps eight running sums.
const BLOCK_LEN: usize = 128;
/// Highest number of values in memory at a time.
const MAX_VALUES_IN_MEMORY: usize = 1 << 21;
/// Statistics of one sample, in the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Statistics {
    pub(crate) mean: f64,
    /// The middle value, or the mean of the two middle ones.
    pub(crate) median: f64,
    /// Standard deviation of the population: divided by n.
    pub(crate) std: f64,
    /// The percentiles 50, 90, 95, 99 and 99.9, interpolated linearly.
    pub(crate) percentiles: [f64; 5],
    pub(crate) max: f64,
}

const PERCENTS: [f64; 5] = [50.0, 90.0, 95.0, 99.0, 99.9];

impl Statistics {
    /// Computes the statistics of values that can be read repeatedly. `None` if there are none. The result
    /// equals [`Self::from_values`] to the last digit, but memory is limited to [`MAX_VALUES_IN_MEMORY`] values.
    pub(crate) fn from_repeatable<I: Iterator<Item = f64>>(values: impl Fn() -> I) -> Option<Self> {
        Self::from_repeatable_within(values, MAX_VALUES_IN_MEMORY)
    }

    fn from_repeatable_within<I: Iterator<Item = f64>>(
        values: impl Fn() -> I,
        max_in_memory: usize,
    ) -> Option<Self> {
        let (n, mut ranks) = match first_pass(values(), max_in_memory) {
            FirstPass::InMemory(mut held) => return Self::from_buffer(held.as_mut_slice()),
            FirstPass::Counted(n, ranks) => (n, ranks),
        };
        ranks.select_ranks(statistic_ranks(n));
        // One pass serves both the sum and the ranks.
        let mean = sum_stream(&mut values().inspect(|value| ranks.add(*value)), n) / n as f64;
        ranks.end_pass();
        let mut squares = values()
            .inspect(|value| ranks.add(*value))
            .map(|value| (value - mean) * (value - mean));
        let std = (sum_stream(&mut squares, n) / n as f64).sqrt();
        drop(squares);
        ranks.end_pass();
        Some(Self::from_ranks(&ranks.run_passes(&values), n, mean, std))
    }

    /// Returns the statistics of a sample. `None` if it is empty.
    pub(crate) fn from_values(values: &[f64]) -> Option<Self> {
        Self::from_buffer(&mut values.to_vec())
    }

    fn from_buffer(values: &mut [f64]) -> Option<Self> {
        let (mean, n) = (mean(values)?, values.len());
        let std = standard_deviation(values, mean);
        Some(Self::from_ranks(
            &select_ranks(values, statistic_ranks(n)),
            n,
            mean,
            std,
        ))
    }

    fn from_ranks(by_rank: &BTreeMap<usize, f64>, n: usize, mean: f64, std: f64) -> Self {
        let at = |place: usize| by_rank[&place];
        Self {
            mean,
            median: median_of_sorted(n, at),
            std,
            percentiles: PERCENTS.map(|q| interpolate(n, q, at)),
            max: at(n - 1),
        }
    }

    /// Returns the same statistics in a smaller unit, of which there are `factor` to one.
    pub(crate) fn scaled(self, factor: f64) -> Self {
        Self {
            mean: self.mean * factor,
            median: self.median * factor,
            std: self.std * factor,
            percentiles: self.percentiles.map(|value| value * factor),
            max: self.max * factor,
        }
    }
}

/// Sums like numpy 2.3 and later: pairwise over the whole array.
///
/// Source: docs/bench-serving.md 7.3, "bit-exact sums".
pub(crate) fn sum(values: &[f64]) -> f64 {
    let n = values.len();
    // The sum of an empty iterator is -0.
    if n == 0 {
        return 0.0;
    }
    if n < UNROLLED_LEN {
        return values.iter().sum();
    }
    if n > BLOCK_LEN {
        let half = n / 2 - (n / 2) % UNROLLED_LEN;
        return sum(&values[..half]) + sum(&values[half..]);
    }
    let (blocks, rest) = values.as_chunks::<UNROLLED_LEN>();
    let mut r = blocks[0];
    for block in &blocks[1..] {
        for (running, value) in r.iter_mut().zip(block) {
            *running += value;
        }
    }
    let first = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    rest.iter().fold(first, |sum, value| sum + value)
}

/// Returns the arithmetic mean. `None` if there are no values.
pub(crate) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| sum(values) / values.len() as f64)
}

/// Returns the percentile `q` of sorted values, interpolated linearly from both sides like numpy. `sorted`
/// must not be empty.
///
/// Source: docs/bench-serving.md 7.3.
pub(crate) fn percentile(sorted: &[f64], q: f64) -> f64 {
    interpolate(sorted.len(), q, |place| sorted[place])
}

/// Computes percentiles of values that can be read repeatedly, with at most [`MAX_VALUES_IN_MEMORY`] values in memory.
/// `None` if there are none.
pub(crate) fn percentiles_of_repeatable<I: Iterator<Item = f64>>(
    values: impl Fn() -> I,
    percents: &[f64],
) -> Option<Vec<f64>> {
    let ranks_for = |n: usize| percents.iter().flat_map(|q| neighbour_ranks(n, *q)).collect();
    let (n, by_rank) = match first_pass(values(), MAX_VALUES_IN_MEMORY) {
        FirstPass::InMemory(mut buffer) => {
            let values = buffer.as_mut_slice();
            let n = values.len();
            if n == 0 {
                return None;
            }
            (n, select_ranks(values, ranks_for(n)))
        }
        FirstPass::Counted(n, mut ranks) => {
            ranks.select_ranks(ranks_for(n));
            (n, ranks.run_passes(&values))
        }
    };
    let value = |q: &f64| interpolate(n, *q, |place| by_rank[&place]);
    Some(percents.iter().map(value).collect())
}

/// Returns the ranks between which a percentile lies.
fn neighbour_ranks(n: usize, q: f64) -> [usize; 2] {
    let last = n - 1;
    let low = ((last as f64 * (q / 100.0)).floor() as usize).min(last);
    [low, (low + 1).min(last)]
}

/// Returns the ranks that [`Statistics`] need.
fn statistic_ranks(n: usize) -> BTreeSet<usize> {
    let percents = PERCENTS.iter().flat_map(|q| neighbour_ranks(n, *q));
    percents.chain([(n - 1) / 2, n / 2, n - 1]).collect()
}

/// Returns the values at these ranks.
fn select_ranks(values: &mut [f64], places: BTreeSet<usize>) -> BTreeMap<usize, f64> {
    let (mut rest, mut before) = (values, 0);
    let mut by_rank = BTreeMap::new();
    for place in places {
        let (_, value, after) = rest.select_nth_unstable_by(place - before, f64::total_cmp);
        by_rank.insert(place, *value);
        (rest, before) = (after, place + 1);
    }
    by_rank
}

fn interpolate(n: usize, q: f64, at: impl Fn(usize) -> f64) -> f64 {
    let last = n - 1;
    let virtual_index = last as f64 * (q / 100.0);
    let low = virtual_index.floor() as usize;
    if low >= last {
        return at(last);
    }
    let share = virtual_index - low as f64;
    let (a, b) = (at(low), at(low + 1));
    if share < 0.5 {
        a + (b - a) * share
    } else {
        b - (b - a) * (1.0 - share)
    }
}

/// Buffer for the values of a large sample. Threads that compute metrics in parallel hold only one large
/// sample at a time.
static SHARED_BUFFER: Mutex<Vec<f64>> = Mutex::new(Vec::new());
/// A sample with at least this many values is large.
const MIN_SHARED_LEN: usize = 1 << 16;

enum ValueBuffer {
    Owned(Vec<f64>),
    Shared(MutexGuard<'static, Vec<f64>>),
}

impl ValueBuffer {
    fn fill(mut values: impl Iterator<Item = f64>, max_len: usize) -> Self {
        let few: Vec<f64> = values.by_ref().take(max_len.min(MIN_SHARED_LEN)).collect();
        if few.len() < MIN_SHARED_LEN {
            return Self::Owned(few);
        }
        let mut many = SHARED_BUFFER.lock().unwrap_or_else(PoisonError::into_inner);
        many.clear();
        // Growing would briefly need twice the memory. Reserved memory that is not written takes none.
        many.reserve_exact(max_len);
        many.extend(few);
        let remaining = max_len - many.len();
        many.extend(values.take(remaining));
        Self::Shared(many)
    }

    fn as_mut_slice(&mut self) -> &mut [f64] {
        match self {
            Self::Owned(values) => values,
            Self::Shared(values) => values,
        }
    }
}

/// Result of the first pass over the values.
enum FirstPass {
    InMemory(ValueBuffer),
    /// Number of values, which are too many to hold in memory, and the counts of their first digits.
    Counted(usize, RankSelection),
}

fn first_pass(mut values: impl Iterator<Item = f64>, max_in_memory: usize) -> FirstPass {
    let mut buffer = ValueBuffer::fill(values.by_ref(), max_in_memory + 1);
    let mut n = buffer.as_mut_slice().len();
    if n <= max_in_memory {
        return FirstPass::InMemory(buffer);
    }
    let mut ranks = RankSelection::new(max_in_memory);
    buffer.as_mut_slice().iter().for_each(|value| ranks.add(*value));
    drop(buffer);
    for value in values {
        ranks.add(value);
        n += 1;
    }
    FirstPass::Counted(n, ranks)
}

/// Sums `n` values in the same order as [`sum`].
fn sum_stream(values: &mut impl Iterator<Item = f64>, n: usize) -> f64 {
    if n > BLOCK_LEN {
        let half = n / 2 - (n / 2) % UNROLLED_LEN;
        let first = sum_stream(values, half);
        return first + sum_stream(values, n - half);
    }
    let mut block = [0.0; BLOCK_LEN];
    for (place, value) in block.iter_mut().zip(values.take(n)) {
        *place = value;
    }
    sum(&block[..n])
}

fn median_of_sorted(n: usize, at: impl Fn(usize) -> f64) -> f64 {
    let middle = n / 2;
    if n.is_multiple_of(2) {
        (at(middle - 1) + at(middle)) / 2.0
    } else {
        at(middle)
    }
}

/// Source: docs/bench-serving.md 7.3: population, squared deviations summed pairwise.
fn standard_deviation(values: &[f64], mean: f64) -> f64 {
    let mut squares = values.iter().map(|value| (value - mean) * (value - mean));
    (sum_stream(&mut squares, values.len()) / values.len() as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_sample_has_no_statistics() {
        assert_eq!(Statistics::from_values(&[]), None);
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn sums_keep_numpys_order_of_additions() {
        // Eight running sums keep the 1 that adding from left to right would lose.
        let mut values = vec![0.0; 16];
        values[0] = 1e16;
        values[1] = 1.0;
        values[8] = -1e16;
        assert_eq!(sum(&values), 1.0);
        assert_eq!(values.iter().sum::<f64>(), 0.0);
        // Above 128 values the array is split at a multiple of eight: 130 = 64 + 66.
        let mut long = vec![0.0; 130];
        long[0] = 1e16;
        long[63] = -1e16;
        long[64] = 1.0;
        assert_eq!(sum(&long), 1.0);
    }

    /// Printed by numpy 2.3.5 and 2.4.6. Older versions add blocks of 8192 values and would give other last
    /// digits.
    #[test]
    fn statistics_of_many_values_are_numpys_to_the_last_digit() {
        let value = |at: u32| f64::from(at % 1000) / 7.0 + f64::from(at) / 3.0;
        let values: Vec<f64> = (0..20_000).map(value).collect();
        assert_eq!(sum(&values), 68_090_476.190_476_2);
        let statistics = Statistics::from_values(&values).unwrap();
        assert_eq!(
            (statistics.mean, statistics.std),
            (3404.5238095238096, 1927.0030806970376)
        );
        let in_blocks: f64 = values.chunks(8192).map(sum).sum();
        assert_eq!(in_blocks, 68_090_476.190_476_18);
    }

    /// Values that are read repeatedly have the same statistics to the last bit as values in memory.
    #[test]
    fn many_values_that_are_read_again_and_again_have_the_statistics_of_those_in_memory() {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 40) as f64
        };
        for spread in [1.0, 1e-3, 0.0] {
            for n in [1001, 5000, 40_000] {
                let values: Vec<f64> = (0..n).map(|_| 20.0 + (next() - 1e6) * spread / 7.0).collect();
                let each = || values.iter().copied();
                for max_in_memory in [16, 1000] {
                    assert_eq!(
                        Statistics::from_repeatable_within(each, max_in_memory),
                        Statistics::from_values(&values),
                        "{n} {spread}"
                    );
                }
                let mut sorted = values.clone();
                sorted.sort_unstable_by(f64::total_cmp);
                let percents = [0.0, 12.5, 99.9, 100.0];
                let places: Vec<usize> = percents.iter().flat_map(|q| neighbour_ranks(n, *q)).collect();
                let FirstPass::Counted(_, mut ranks) = first_pass(each(), 16) else {
                    panic!("more than 16 values")
                };
                ranks.select_ranks(places.iter().copied().collect());
                let by_rank = ranks.run_passes(&each);
                assert!(places.iter().all(|place| by_rank[place] == sorted[*place]));
                let percentiles = percentiles_of_repeatable(each, &percents).unwrap();
                assert_eq!(percentiles, percents.map(|q| percentile(&sorted, q)));
            }
        }
        assert_eq!(Statistics::from_repeatable(|| [0.0; 0].into_iter()), None);
        assert_eq!(percentiles_of_repeatable(|| [0.0; 0].into_iter(), &[50.0]), None);
    }

    #[test]
    fn the_last_percentile_is_the_largest_value() {
        assert_eq!(percentile(&[1.0, 2.0, 9.0], 100.0), 9.0);
        assert_eq!(percentile(&[4.0], 99.0), 4.0);
    }

    proptest! {
        // Each case counts in tables of 65 536 places.
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn statistics_do_not_depend_on_how_many_values_are_in_memory(
            values in prop::collection::vec(prop_oneof![any::<f64>().prop_filter("a number", |value| value.is_finite()), 0.0f64..2.0, Just(0.02), Just(-0.0)], 1..600),
            most in 1usize..100,
        ) {
            let bits = |statistics: Statistics| {
                let rest = [statistics.mean, statistics.median, statistics.std, statistics.max];
                rest.into_iter().chain(statistics.percentiles).map(f64::to_bits).collect::<Vec<_>>()
            };
            let each = || values.iter().copied();
            prop_assert_eq!(Statistics::from_repeatable_within(each, most).map(bits), Statistics::from_values(&values).map(bits));
        }
    }

    proptest! {
        #[test]
        fn a_percentile_lies_where_the_naive_definition_puts_it(
            mut values in prop::collection::vec(-1e6f64..1e6, 1..400),
            q in 0.0f64..=100.0,
        ) {
            values.sort_unstable_by(f64::total_cmp);
            let rank = (values.len() - 1) as f64 * q / 100.0;
            let (low, high) = (values[rank.floor() as usize], values[rank.ceil() as usize]);
            let naive = low + (high - low) * rank.fract();
            prop_assert!((percentile(&values, q) - naive).abs() <= 1e-6);
            prop_assert!(percentile(&values, q) >= low - 1e-9 && percentile(&values, q) <= high + 1e-9);
        }

        #[test]
        fn a_sum_and_its_statistics_agree_with_the_naive_ones(values in prop::collection::vec(0.0f64..1e3, 1..1000)) {
            let naive: f64 = values.iter().sum();
            prop_assert!((sum(&values) - naive).abs() <= 1e-9 * naive.max(1.0));
            let statistics = Statistics::from_values(&values).unwrap();
            prop_assert!((statistics.median - statistics.percentiles[0]).abs() <= 1e-9 * statistics.max.max(1.0));
            prop_assert!(statistics.percentiles.is_sorted() && statistics.percentiles[4] <= statistics.max);
        }
    }
}
