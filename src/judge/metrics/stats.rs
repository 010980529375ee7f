//! Sums, means, deviations and percentiles, in the order of operations that numpy has, so that even last digits agree.
//!
//! Nothing here knows what a value means; an empty sample has no statistic.

/// Below this many values numpy adds from left to right.
const UNROLLED: usize = 8;
/// Up to this many values numpy keeps eight running sums.
const BLOCK: usize = 128;

/// The statistics of one sample, in the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Statistics {
    /// The arithmetic mean.
    pub mean: f64,
    /// The middle value, or the mean of the two middle ones.
    pub median: f64,
    /// The standard deviation of the population: divided by n.
    pub std: f64,
    /// The percentiles 50, 90, 95, 99 and 99.9, linear between neighbours.
    pub percentiles: [f64; 5],
    /// The largest value.
    pub max: f64,
}

impl Statistics {
    /// The statistics of a sample; `None` if it is empty.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let mean = mean(values)?;
        Some(Self {
            mean,
            median: median(&sorted),
            std: deviation(values, mean),
            percentiles: [50.0, 90.0, 95.0, 99.0, 99.9].map(|q| percentile(&sorted, q)),
            max: *sorted.last().expect("an empty sample was turned away above"),
        })
    }

    /// The same statistics in a unit of which there are `factor` to one.
    pub fn times(self, factor: f64) -> Self {
        Self {
            mean: self.mean * factor,
            median: self.median * factor,
            std: self.std * factor,
            percentiles: self.percentiles.map(|value| value * factor),
            max: self.max * factor,
        }
    }
}

/// The sum as numpy adds: pairwise over the whole array, as numpy 2.3 and later do.
///
/// Source: spec/bench-serving.md 7.3, "bit-exact sums".
pub fn sum(values: &[f64]) -> f64 {
    let n = values.len();
    // The sum of an empty iterator is -0.
    if n == 0 {
        return 0.0;
    }
    if n < UNROLLED {
        return values.iter().sum();
    }
    if n > BLOCK {
        let half = n / 2 - (n / 2) % UNROLLED;
        return sum(&values[..half]) + sum(&values[half..]);
    }
    let (blocks, rest) = values.as_chunks::<UNROLLED>();
    let mut r = blocks[0];
    for block in &blocks[1..] {
        for (running, value) in r.iter_mut().zip(block) {
            *running += value;
        }
    }
    let first = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    rest.iter().fold(first, |sum, value| sum + value)
}

/// The arithmetic mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| sum(values) / values.len() as f64)
}

/// The percentile `q` of sorted values, linear between neighbours, with the two-sided interpolation of numpy.
///
/// Source: spec/bench-serving.md 7.3. `sorted` must not be empty.
pub fn percentile(sorted: &[f64], q: f64) -> f64 {
    let last = sorted.len() - 1;
    let virtual_index = last as f64 * (q / 100.0);
    let low = virtual_index.floor() as usize;
    if low >= last {
        return sorted[last];
    }
    let share = virtual_index - low as f64;
    let (a, b) = (sorted[low], sorted[low + 1]);
    if share < 0.5 {
        a + (b - a) * share
    } else {
        b - (b - a) * (1.0 - share)
    }
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        (sorted[middle - 1] + sorted[middle]) / 2.0
    } else {
        sorted[middle]
    }
}

/// Source: spec/bench-serving.md 7.3: population, squares of deviations summed pairwise.
fn deviation(values: &[f64], mean: f64) -> f64 {
    let squares: Vec<f64> = values
        .iter()
        .map(|value| (value - mean) * (value - mean))
        .collect();
    (sum(&squares) / values.len() as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_sample_has_no_statistics() {
        assert_eq!(Statistics::of(&[]), None);
        assert_eq!(mean(&[]), None);
    }

    #[test]
    fn sums_keep_numpys_order_of_additions() {
        // Eight running sums take in 1 and -1 in places where adding from left to right would lose the 1.
        let mut values = vec![0.0; 16];
        values[0] = 1e16;
        values[1] = 1.0;
        values[8] = -1e16;
        assert_eq!(sum(&values), 1.0);
        assert_eq!(values.iter().sum::<f64>(), 0.0);
        // Above 128 the array is split at a multiple of eight: 130 = 64 + 66.
        let mut long = vec![0.0; 130];
        long[0] = 1e16;
        long[63] = -1e16;
        long[64] = 1.0;
        assert_eq!(sum(&long), 1.0);
    }

    /// Printed by numpy 2.3.5 and 2.4.6; blocks of 8192 values, which older ones add up, would give other last digits.
    #[test]
    fn statistics_of_many_values_are_numpys_to_the_last_digit() {
        let value = |at: u32| f64::from(at % 1000) / 7.0 + f64::from(at) / 3.0;
        let values: Vec<f64> = (0..20_000).map(value).collect();
        assert_eq!(sum(&values), 68_090_476.190_476_2);
        let statistics = Statistics::of(&values).unwrap();
        assert_eq!(
            (statistics.mean, statistics.std),
            (3404.5238095238096, 1927.0030806970376)
        );
        let in_blocks: f64 = values.chunks(8192).map(sum).sum();
        assert_eq!(in_blocks, 68_090_476.190_476_18);
    }

    #[test]
    fn the_last_percentile_is_the_largest_value() {
        assert_eq!(percentile(&[1.0, 2.0, 9.0], 100.0), 9.0);
        assert_eq!(percentile(&[4.0], 99.0), 4.0);
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
            let statistics = Statistics::of(&values).unwrap();
            prop_assert!((statistics.median - statistics.percentiles[0]).abs() <= 1e-9 * statistics.max.max(1.0));
            prop_assert!(statistics.percentiles.is_sorted() && statistics.percentiles[4] <= statistics.max);
        }
    }
}
