//! Permutation test of failed requests by start.

use crate::analysis::compare::t_test;

/// Up to this many choices are all tried. Above it Student's t is used instead.
const MAX_CHOICES: f64 = 60_000.0;

/// Increase of the failed requests of a cell, observed and for other assignments of its starts to sides.
pub(super) struct PermutationDistribution {
    /// The observed increase in units of its error.
    observed: f64,
    /// The same value for each choice of candidate starts. Empty if there are too many choices.
    permuted: Vec<f64>,
    df: f64,
}

impl PermutationDistribution {
    /// Computes Student's t of the angles of shares. Their variance is that between starts, but at least that
    /// of independent requests.
    ///
    /// Source: F. J. Anscombe, "The transformation of Poisson, binomial and negative-binomial data", 1948:
    /// arcsin √((k + 3/8) / (n + 3/4)) has the variance 1 / (4n + 2).
    pub(super) fn from_sides(sides: &[Vec<[u64; 2]>; 2]) -> Self {
        let angle = |[failed, requests]: &[u64; 2]| {
            ((*failed as f64 + 0.375) / (*requests as f64 + 0.75))
                .sqrt()
                .asin()
        };
        let angles: Vec<f64> = sides.iter().flatten().map(angle).collect();
        let [before, after] = [0, 1].map(|side: usize| sides[side].len() as f64);
        let total = before + after;
        let df = total - 2.0;
        let (sum, squares) = (
            angles.iter().sum::<f64>(),
            angles.iter().map(|angle| angle * angle).sum::<f64>(),
        );
        let of_requests = sides
            .iter()
            .flatten()
            .map(|[_, requests]| 1.0 / (4.0 * *requests as f64 + 2.0))
            .sum::<f64>()
            / total;
        // From the sum of the candidate's angles.
        let shift = |own: f64| {
            let means = [(sum - own) / before, own / after];
            let within = squares - before * means[0] * means[0] - after * means[1] * means[1];
            let error = ((within.max(0.0) / df).max(of_requests) * (1.0 / before + 1.0 / after)).sqrt();
            (means[1] - means[0]) / error
        };
        let own = angles[sides[0].len()..].iter().sum();
        let mut choices = Vec::new();
        let chosen = sides[1].len();
        if count_choices(angles.len(), chosen) <= MAX_CHOICES {
            for_each_choice_sum(&angles, chosen, 0.0, &mut |own| choices.push(shift(own)));
        }
        Self {
            observed: shift(own),
            permuted: choices,
            df,
        }
    }

    /// Returns the probability of an increase of this size.
    fn p_value(&self, size: f64) -> f64 {
        // Sums in another order differ in their last digits.
        let least = size - 1e-9 * size.abs();
        match self.permuted.len() {
            0 => t_test::two_sided_p(least.max(0.0), self.df) / 2.0,
            all => self.permuted.iter().filter(|shift| **shift >= least).count() as f64 / all as f64,
        }
    }
}

/// Returns the number of ways to choose `chosen` of `all`.
fn count_choices(total: usize, chosen: usize) -> f64 {
    (1..=chosen)
        .map(|nth| (total - chosen + nth) as f64 / nth as f64)
        .product()
}

/// Calls `each` with the sum of every choice of `chosen` values.
fn for_each_choice_sum(values: &[f64], chosen: usize, sum: f64, each: &mut impl FnMut(f64)) {
    match (chosen, values) {
        (0, _) => each(sum),
        (_, [first, rest @ ..]) if values.len() >= chosen => {
            for_each_choice_sum(rest, chosen - 1, sum + first, each);
            for_each_choice_sum(rest, chosen, sum, each);
        }
        _ => {}
    }
}

/// Returns for each cell the probability that it, or any cell with a smaller increase, shows an increase of
/// this size when starts are assigned to sides at random. 1 if too few starts are known.
///
/// Source: P. H. Westfall and S. S. Young, "Resampling-based multiple testing", 1993, section 2.6 (step-down,
/// of the largest of all), for independent cells. Cells that share starts have a smaller probability.
pub(super) fn adjusted_p_values(cells: &[Option<PermutationDistribution>]) -> Vec<f64> {
    let mut chances = vec![1.0; cells.len()];
    let mut distributions: Vec<(usize, &PermutationDistribution)> = cells
        .iter()
        .enumerate()
        .filter_map(|(at, cell)| Some((at, cell.as_ref()?)))
        .collect();
    distributions.sort_by(|one, other| other.1.observed.total_cmp(&one.1.observed));
    let mut last: f64 = 0.0;
    for (nth, (at, cell)) in distributions.iter().enumerate() {
        // Not as 1 − ∏(1 − p), so that a single probability of 1 in 20 stays exact.
        let any = distributions[nth..].iter().fold(0.0, |any, (_, other)| {
            let one = other.p_value(cell.observed);
            any + one - any * one
        });
        last = last.max(any);
        chances[*at] = last;
    }
    chances
}
