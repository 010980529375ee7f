//! Combines the variance of one cell with those of the other cells of a comparison.
//!
//! A few starts estimate their own variance badly: in one comparison of many, five against five are alike by
//! chance. Other cells on the same host show which variance is likely. Their weight is estimated from how far
//! their variances differ beyond chance. It counts launches, because cells of one launch are measured on the
//! same starts and are correlated.

use statrs::function::gamma::digamma;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Variance {
    pub(crate) value: f64,
    /// Above zero.
    pub(crate) df: f64,
}

impl Variance {
    /// Combines two estimates of the same variance.
    pub(crate) fn pool(self, other: Self) -> Self {
        let df = self.df + other.df;
        Self {
            value: (self.value * self.df + other.value * other.df) / df,
            df,
        }
    }
}

/// The variance of one cell by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CellVariance {
    pub(crate) variance: Variance,
    /// Index of the group of launches. Cells of one group share starts.
    pub(crate) group: usize,
}

/// Prior degrees of freedom of the variances of cells: they differ by a factor of about two in either
/// direction. The prior is used as long as few launches show otherwise.
const PRIOR_DF: f64 = 4.0;
/// Number of launches that the prior counts for.
const PRIOR_WEIGHT: f64 = 3.0;

/// What the other cells add to the variance of one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct PriorVariance {
    pub(crate) value: f64,
    /// Degrees of freedom with which the variance of the others is weighted.
    pub(crate) weight: f64,
    /// Degrees of freedom that the result gains.
    pub(crate) df: f64,
}

/// Computes what the other cells add to each cell. `None` for a single cell.
///
/// Source: G. K. Smyth, "Linear models and empirical Bayes methods for assessing differential expression in
/// microarray experiments", 2004, section 6.2: s̃² = (d₀s₀² + ds²) / (d₀ + d), with s₀² and d₀ from the
/// moments of ln s². There are three differences, all on the side of caution. The degrees of freedom come
/// from launches and s̃² from cells, so cells of the same launch change the variance but add no degrees of
/// freedom. With few launches d₀ tends to [`PRIOR_DF`]. The error of s₀² is part of the degrees of freedom,
/// so launches never add more than their own.
pub(crate) fn prior_variances(cells: &[CellVariance]) -> Vec<Option<PriorVariance>> {
    let scores: Vec<LogVariance> = cells.iter().map(LogVariance::from_cell).collect();
    let groups = cells.iter().map(|cell| cell.group + 1).max().unwrap_or(0);
    let mut sums = vec![WeightedSums::default(); groups];
    for (cell, score) in cells.iter().zip(&scores) {
        sums[cell.group].add(score);
    }
    let launches = sums.iter().filter(|group| group.cells > 0.0).count();
    if cells.len() < 2 {
        return cells.iter().map(|_| None).collect();
    }
    // Launches determine the degrees of freedom. All cells determine how far each variance is moved; moving
    // it too far is on the side of caution.
    let between_launches = heterogeneity(&sums, launches);
    let between_cells = heterogeneity(
        &[sums
            .iter()
            .fold(WeightedSums::default(), WeightedSums::merged_with)],
        1,
    );
    let prior_df = 2.0 * inverse_trigamma(between_cells);
    let below_mean = digamma(prior_df / 2.0) - (prior_df / 2.0).ln();
    let others = |(cell, score): (&CellVariance, &LogVariance)| {
        let (mut location, mut weight, mut df_sum, mut elsewhere) = (0.0, 0.0, 0.0, 0.0);
        for (at, group) in sums.iter().enumerate() {
            let is_own = at == cell.group;
            let mut group = *group;
            if is_own {
                group.remove(score);
            }
            if group.cells < 0.5 {
                continue;
            }
            // Each launch counts once, however many cells were measured on it.
            let share = group.weight / group.cells;
            location += share * group.score / group.weight;
            weight += share;
            df_sum += group.cells / (between_cells + group.chance / group.cells);
            if !is_own {
                elsewhere += 1.0 / (between_launches + group.chance / group.cells);
            }
        }
        let added = 2.0 * inverse_trigamma(between_launches + 1.0 / elsewhere);
        Some(PriorVariance {
            value: (location / weight + below_mean).exp(),
            weight: 2.0 * inverse_trigamma(between_cells + 1.0 / df_sum),
            df: if elsewhere > 0.0 { added } else { 0.0 },
        })
    };
    cells.iter().zip(&scores).map(others).collect()
}

/// The logarithm of a variance without its bias, and the variance of that logarithm due to chance.
struct LogVariance {
    value: f64,
    chance: f64,
    weight: f64,
}

impl LogVariance {
    fn from_cell(cell: &CellVariance) -> Self {
        let half = cell.variance.df / 2.0;
        let chance = trigamma(half);
        Self {
            value: cell.variance.value.ln() - digamma(half) + half.ln(),
            chance,
            weight: 1.0 / (chance + trigamma(PRIOR_DF / 2.0)),
        }
    }
}

/// Weighted sums over the cells of a group.
#[derive(Clone, Copy, Default)]
struct WeightedSums {
    cells: f64,
    weight: f64,
    weights: f64,
    score: f64,
    squares: f64,
    chance: f64,
    weighted_chance: f64,
    doubly_weighted_chance: f64,
}

impl WeightedSums {
    fn add(&mut self, score: &LogVariance) {
        self.change(score, 1.0);
    }

    fn remove(&mut self, score: &LogVariance) {
        self.change(score, -1.0);
    }

    fn change(&mut self, score: &LogVariance, sign: f64) {
        let LogVariance {
            value,
            chance,
            weight,
        } = *score;
        self.cells += sign;
        self.weight += sign * weight;
        self.weights += sign * weight * weight;
        self.score += sign * weight * value;
        self.squares += sign * weight * value * value;
        self.chance += sign * chance;
        self.weighted_chance += sign * weight * chance;
        self.doubly_weighted_chance += sign * weight * weight * chance;
    }

    fn merged_with(mut self, other: &Self) -> Self {
        self.cells += other.cells;
        self.weight += other.weight;
        self.weights += other.weights;
        self.score += other.score;
        self.squares += other.squares;
        self.chance += other.chance;
        self.weighted_chance += other.weighted_chance;
        self.doubly_weighted_chance += other.doubly_weighted_chance;
        self
    }

    /// Returns sums over all pairs of these cells: the weights, the weighted squared distances, and the part
    /// of these that chance explains.
    fn pairs(&self) -> [f64; 3] {
        [
            (self.weight * self.weight - self.weights) / 2.0,
            self.weight * self.squares - self.score * self.score,
            self.weight * self.weighted_chance - self.doubly_weighted_chance,
        ]
    }
}

/// Returns the variance of the logarithms of the true variances between cells. It comes from pairs of cells
/// of different launches, or of the same launch if there is only one.
fn heterogeneity(sums: &[WeightedSums], launches: usize) -> f64 {
    let all_sums = sums
        .iter()
        .fold(WeightedSums::default(), WeightedSums::merged_with);
    let mut pairs = all_sums.pairs();
    if launches > 1 {
        for group in sums {
            for (total, own) in pairs.iter_mut().zip(group.pairs()) {
                *total -= own;
            }
        }
    }
    let [weight, squares, chance] = pairs;
    let estimate = ((squares - chance) / 2.0 / weight).max(0.0);
    let units = if launches > 1 {
        launches as f64
    } else {
        all_sums.cells
    } - 1.0;
    (units * estimate + PRIOR_WEIGHT * trigamma(PRIOR_DF / 2.0)) / (units + PRIOR_WEIGHT)
}

/// Returns the second derivative of ln Γ, for `x` above zero.
///
/// Source: M. Abramowitz and I. A. Stegun, "Handbook of Mathematical Functions", 1964, 6.4.6 and 6.4.12.
fn trigamma(x: f64) -> f64 {
    let (mut x, mut sum) = (x, 0.0);
    while x < 8.0 {
        sum += 1.0 / (x * x);
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    sum + 1.0 / x + r / 2.0 + r / x * (1.0 / 6.0 - r * (1.0 / 30.0 - r * (1.0 / 42.0 - r / 30.0)))
}

/// Returns the inverse of trigamma above zero.
///
/// Source: Smyth 2004, appendix: Newton's method on 1 / trigamma, which is convex and nearly linear.
fn inverse_trigamma(value: f64) -> f64 {
    let mut x = 0.5 + 1.0 / value;
    for _ in 0..50 {
        let at = trigamma(x);
        let step = at * (1.0 - at / value) / tetragamma(x);
        x += step;
        if -step / x < 1e-9 {
            break;
        }
    }
    x
}

fn tetragamma(x: f64) -> f64 {
    let (mut x, mut sum) = (x, 0.0);
    while x < 8.0 {
        sum -= 2.0 / (x * x * x);
        x += 1.0;
    }
    let r = 1.0 / (x * x);
    sum - r - r / x - r * r * (0.5 - r * (1.0 / 6.0 - r * (1.0 / 6.0 - r * 0.3)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(value: f64, df: f64, group: usize) -> CellVariance {
        CellVariance {
            variance: Variance { value, df },
            group,
        }
    }

    #[test]
    fn polygammas_are_those_of_the_tables_and_invert() {
        let pi2 = std::f64::consts::PI.powi(2);
        assert!((trigamma(1.0) - pi2 / 6.0).abs() < 1e-9);
        assert!((trigamma(0.5) - pi2 / 2.0).abs() < 1e-9);
        assert!((trigamma(4.0) - 0.283_822_955_737_115_3).abs() < 1e-9);
        // −2ζ(3)
        assert!((tetragamma(1.0) + 2.404_113_806_319_188_6).abs() < 1e-8);
        for x in [0.3, 1.0, 2.0, 10.0, 400.0] {
            assert!((inverse_trigamma(trigamma(x)) / x - 1.0).abs() < 1e-6, "{x}");
        }
    }

    #[test]
    fn a_cell_alone_has_no_others_and_one_among_many_hears_them() {
        assert_eq!(prior_variances(&[spread(4.0, 8.0, 0)]), [None]);
        assert_eq!(prior_variances(&[]), []);
        let mut cells: Vec<CellVariance> = (1..20).map(|group| spread(1.0, 8.0, group)).collect();
        cells.push(spread(0.01, 8.0, 0));
        let others = prior_variances(&cells)[19].unwrap();
        assert!(others.value > 0.5 && others.value < 1.5, "{others:?}");
        assert!(others.df > 0.0 && others.weight > 1.0, "{others:?}");
    }

    #[test]
    fn the_others_add_no_more_degrees_of_freedom_than_their_launches_have() {
        for launches in [2, 3, 6] {
            let cells: Vec<CellVariance> = (0..24).map(|cell| spread(1.0, 8.0, cell % launches)).collect();
            for others in prior_variances(&cells).into_iter().flatten() {
                assert!(
                    others.df > 0.0 && others.df <= 8.0 * (launches - 1) as f64,
                    "{launches}: {others:?}"
                );
            }
        }
        let one_launch: Vec<CellVariance> = (0..24).map(|_| spread(1.0, 8.0, 0)).collect();
        for others in prior_variances(&one_launch).into_iter().flatten() {
            assert!(others.df == 0.0 && others.weight > 0.0, "{others:?}");
        }
    }

    #[test]
    fn variances_that_differ_much_say_little_of_each_other() {
        let like: Vec<CellVariance> = (0..12).map(|group| spread(1.0, 8.0, group)).collect();
        let unlike: Vec<CellVariance> = (0..12)
            .map(|group| spread(100f64.powi(group as i32 % 3), 8.0, group))
            .collect();
        let (like, unlike) = (
            prior_variances(&like)[0].unwrap(),
            prior_variances(&unlike)[0].unwrap(),
        );
        assert!(
            unlike.df < like.df && unlike.weight < like.weight,
            "{unlike:?} {like:?}"
        );
        assert!(unlike.df < 3.0, "{unlike:?}");
    }
}
