//! Compares the answers of two sides to the same items.
//!
//! The unit is the item. Several measurements of a cell repeat the same items, so that they are no further items: the
//! difference of an item is the number of measurements in which the candidate was right, minus that of the reference,
//! over equally many measurements of both. If both answer alike, a difference is as likely as its opposite, whatever the
//! item is, and those of different items are independent. The test takes the sizes of the differences as they are and
//! asks how likely their signs make so large a loss (a permutation test of signs). With one measurement of each side it
//! is McNemar's exact test, one-sided.

use statrs::distribution::{Binomial, DiscreteCDF};

/// Probability with which a run without worse answers names any.
pub(crate) const ALPHA: f64 = 0.05;
/// Probability with which the smallest loss that is reported would have been found.
pub(crate) const POWER: f64 = 0.8;

/// Two-sided 95 % quantile of the standard normal distribution.
const Z: f64 = 1.959_963_984_540_054;
/// Terms of distributions below this probability are left out.
const NEGLIGIBLE: f64 = 1e-18;
/// Standard deviations of the number of differing items around its mean that the power takes into account.
const DEVIATIONS: f64 = 7.0;

/// How the candidate's answers to the same items differ from the reference's.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PairedItems {
    /// Items that were graded on both sides.
    pub(crate) items: u32,
    /// Measurements of each side.
    pub(crate) measurements: u32,
    /// Number of items by the size of a difference to the candidate's disadvantage, from 1.
    lost: Vec<u32>,
    /// Number of items by the size of a difference to its advantage, from 1.
    gained: Vec<u32>,
    /// Right answers of the reference, over all measurements.
    reference_right: u64,
}

impl PairedItems {
    /// Compares outcomes, a text of `1` and `0` for each measurement. Both sides have equally many texts; items that lack
    /// an outcome in one of them are left out.
    pub(crate) fn count(candidate: &[&str], reference: &[&str]) -> Self {
        let mut paired = Self {
            measurements: candidate.len() as u32,
            lost: vec![0; candidate.len()],
            gained: vec![0; candidate.len()],
            ..Self::default()
        };
        let sides = candidate.iter().zip(reference);
        // By item: the difference, and the right answers of the reference.
        let mut differences: Vec<Option<(i64, i64)>> = Vec::new();
        for (nth, (candidate, reference)) in sides.enumerate() {
            let items = candidate.len().max(reference.len());
            differences.resize(differences.len().max(items), (nth == 0).then_some((0, 0)));
            for (item, difference) in differences.iter_mut().enumerate() {
                let outcome = |side: &str| match side.as_bytes().get(item) {
                    Some(b'1') => Some(1),
                    Some(b'0') => Some(0),
                    _ => None,
                };
                *difference = difference.zip(outcome(candidate).zip(outcome(reference))).map(
                    |((sum, right), (candidate, reference))| (sum + candidate - reference, right + reference),
                );
            }
        }
        for (difference, right) in differences.into_iter().flatten() {
            paired.items += 1;
            paired.reference_right += right.unsigned_abs();
            let size = difference.unsigned_abs() as usize;
            let counts = match difference < 0 {
                true => &mut paired.lost,
                false => &mut paired.gained,
            };
            if size > 0 {
                counts[size - 1] += 1;
            }
        }
        paired
    }

    /// Number of items that the candidate answers worse.
    pub(crate) fn lost(&self) -> u32 {
        self.lost.iter().sum()
    }

    /// Number of items that the candidate answers better.
    pub(crate) fn gained(&self) -> u32 {
        self.gained.iter().sum()
    }

    /// Difference of the shares of correct answers; below zero if the candidate's is smaller.
    pub(crate) fn difference(&self) -> f64 {
        let sum = weighted_sum(&self.gained) - weighted_sum(&self.lost);
        sum as f64 / self.answers()
    }

    /// 95 % interval of the difference. With one measurement of each side it is that of Bonett and Price, which adds an
    /// item that is lost and one that is gained; otherwise the same with the mean differences of items.
    ///
    /// Source: D. Bonett, R. Price, "Adjusted Wald confidence interval for a difference of binomial proportions based on
    /// paired data", Journal of Educational and Behavioral Statistics 37 (2012).
    pub(crate) fn interval(&self) -> [f64; 2] {
        let n = f64::from(self.items) + 2.0;
        let weight = f64::from(self.measurements.max(1));
        let mean = self.difference() * f64::from(self.items) / n;
        let squares = self.sum_of_squares() / (weight * weight) + 2.0;
        let half = Z * ((squares / n - mean * mean) / n).max(0.0).sqrt();
        [(mean - half).max(-1.0), (mean + half).min(1.0)]
    }

    /// Probability of so large a loss or a larger one, if both sides answer alike.
    pub(crate) fn p_worse(&self) -> f64 {
        let lost = weighted_sum(&self.lost);
        let differing = self.differing();
        let sizes: Vec<usize> = (0..differing.len()).filter(|size| differing[*size] > 0).collect();
        match sizes[..] {
            [] => 1.0,
            [size] => upper_tail(differing[size], self.lost[size]),
            _ => {
                let sums = sums_of_fair_signs(&differing);
                let tail = sums.iter().skip(lost as usize);
                tail.sum::<f64>().min(1.0)
            }
        }
    }

    /// The smallest loss of the share of correct answers that the test finds at this level with probability [`POWER`].
    /// As many items are assumed to differ without a loss as differ here; lost ones come in addition, and are lost in every
    /// measurement. Items that differ in some measurements count by their share of the variance. `None` if no loss can be found:
    /// there are too few items, or the reference answers too few of them right.
    pub(crate) fn smallest_loss(&self, level: f64) -> Option<f64> {
        let weight = f64::from(self.measurements.max(1));
        let differing = self.sum_of_squares() / (weight * weight);
        let smallest = smallest_loss(self.items, differing / f64::from(self.items.max(1)), level);
        smallest.filter(|loss| *loss <= self.reference_share())
    }

    /// Whether the test finds a loss at this level if every item is lost that the reference answers right.
    pub(crate) fn can_find_a_loss(&self, level: f64) -> bool {
        let right = self.reference_right / u64::from(self.measurements.max(1));
        let right = u32::try_from(right).unwrap_or(u32::MAX);
        upper_tail(right, right) <= level
    }

    /// Share of right answers of the reference, which is the largest loss that is possible.
    pub(crate) fn reference_share(&self) -> f64 {
        self.reference_right as f64 / self.answers()
    }

    fn answers(&self) -> f64 {
        f64::from(self.items.max(1)) * f64::from(self.measurements.max(1))
    }

    /// Number of differing items by the size of the difference, from 1.
    fn differing(&self) -> Vec<u32> {
        let sides = self.lost.iter().zip(&self.gained);
        sides.map(|(lost, gained)| lost + gained).collect()
    }

    fn sum_of_squares(&self) -> f64 {
        let sizes = (1..).zip(self.differing());
        sizes
            .map(|(size, count)| f64::from(size) * f64::from(size) * f64::from(count))
            .sum()
    }
}

fn weighted_sum(counts: &[u32]) -> i64 {
    let sizes = (1..).zip(counts);
    sizes
        .map(|(size, count): (i64, _)| size * i64::from(*count))
        .sum()
}

/// Probability that of so many fair coins at least `heads` are heads.
fn upper_tail(coins: u32, heads: u32) -> f64 {
    if heads == 0 {
        return 1.0;
    }
    fair(coins).sf(u64::from(heads) - 1)
}

fn fair(coins: u32) -> Binomial {
    Binomial::new(0.5, u64::from(coins)).expect("one half is a probability")
}

/// Probability of each sum of the sizes whose sign is negative, if signs are fair.
fn sums_of_fair_signs(differing: &[u32]) -> Vec<f64> {
    let mut sums = vec![1.0];
    for (size, count) in (1..).zip(differing) {
        let terms = binomial_terms(*count, 0.5);
        let mut next = vec![0.0; sums.len() + size * *count as usize];
        for (first, chance) in sums
            .iter()
            .enumerate()
            .filter(|(_, chance)| **chance > NEGLIGIBLE)
        {
            for (number, term) in &terms {
                next[first + size * *number as usize] += chance * term;
            }
        }
        sums = next;
    }
    sums
}

/// Values of a binomial distribution with their probabilities, except negligible ones.
fn binomial_terms(trials: u32, chance: f64) -> Vec<(u32, f64)> {
    use statrs::distribution::Discrete;

    let Ok(distribution) = Binomial::new(chance, u64::from(trials)) else {
        return Vec::new();
    };
    let (n, spread) = (f64::from(trials), DEVIATIONS + 2.0);
    let (mean, deviation) = (n * chance, (n * chance * (1.0 - chance)).sqrt());
    let first = (mean - spread * deviation - spread).max(0.0) as u32;
    let last = (mean + spread * deviation + spread).min(n) as u32;
    (first..=last)
        .map(|value| (value, distribution.pmf(u64::from(value))))
        .collect()
}

/// The smallest difference of proportions that McNemar's one-sided test of so many items finds with probability
/// [`POWER`], if this share of them differs without a loss.
fn smallest_loss(items: u32, differing: f64, level: f64) -> Option<f64> {
    let mut critical: Vec<Option<u32>> = Vec::new();
    let mut finds = |loss: f64| power(items, differing + loss, loss, level, &mut critical) >= POWER;
    if !finds(1.0) {
        return None;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while high - low > 1e-5 {
        let middle = f64::midpoint(low, high);
        match finds(middle) {
            true => high = middle,
            false => low = middle,
        }
    }
    Some(high)
}

/// Probability that the test finds this loss, if this share of the items differs, lost ones included. `critical` holds
/// known smallest numbers of lost items that are significant, by the number of differing ones.
fn power(items: u32, differing: f64, loss: f64, level: f64, critical: &mut Vec<Option<u32>>) -> f64 {
    let lost_share = f64::midpoint(1.0, loss / differing.max(f64::MIN_POSITIVE)).min(1.0);
    let mut found = 0.0;
    for (count, chance) in binomial_terms(items, differing.min(1.0)) {
        let place = count as usize;
        critical.resize(critical.len().max(place + 1), None);
        let least = *critical[place].get_or_insert_with(|| smallest_significant(count, level));
        if least > count {
            continue;
        }
        let lost = Binomial::new(lost_share, u64::from(count));
        found += chance * lost.map_or(0.0, |lost| lost.sf(u64::from(least) - 1));
    }
    found
}

/// The smallest number of heads of so many fair coins that is significant; one more than there are coins if none is.
fn smallest_significant(coins: u32, level: f64) -> u32 {
    let (mut low, mut high) = (coins / 2, coins + 1);
    while high - low > 1 {
        let middle = u32::midpoint(low, high);
        match upper_tail(coins, middle) <= level {
            true => high = middle,
            false => low = middle,
        }
    }
    high
}

#[cfg(test)]
mod tests;
