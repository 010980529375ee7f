//! Estimates how much the starts of a launch differ, as a variance, for one question: one metric of one pair of
//! cells.

use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::limits::{MIN_LUCK_CHANCE, MIN_SIGMA};
use super::moderation::{PriorVariance, Variance};
use super::question::{Design, MetricQuestion, Sample};
use crate::analysis::compare::t_test;

pub(crate) fn pool(first: Option<Variance>, second: Option<Variance>) -> Option<Variance> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.pool(second)),
        (first, second) => first.or(second),
    }
}

/// Combines the variance of a question's own starts, its noise and the other questions into the variance of
/// one start. The result is never below that of its own starts. The more these exceed the borrowed variance,
/// the fewer degrees of freedom are borrowed. `None` if nothing is borrowed.
///
/// If one side has more starts than the other (`is_uneven`), the error comes mostly from the side with fewer.
/// Its starts then count more against the borrowed variance.
pub(crate) fn moderated_variance(
    own: Option<Variance>,
    noise: Option<Variance>,
    others: Option<PriorVariance>,
    is_uneven: bool,
) -> Option<Variance> {
    let max = own.map_or(f64::INFINITY, max_variance);
    let weighed = others.map(|others| Variance {
        value: others.value.min(max),
        df: others.weight,
    });
    let borrowed = pool(noise, weighed)?;
    let df = noise.map_or(0.0, |noise| noise.df) + others.map_or(0.0, |others| others.df);
    let Some(own) = own else {
        return (df > 0.0).then_some(Variance {
            value: borrowed.value,
            df,
        });
    };
    Some(if own.value > borrowed.value {
        Variance {
            value: own.value,
            df: own.df + df * (borrowed.value / own.value).powi(if is_uneven { 2 } else { 1 }),
        }
    } else {
        Variance {
            value: own.pool(borrowed).value,
            df: own.df + df,
        }
    })
}

/// Returns the largest variance that other questions may contribute. The starts themselves rule out a larger
/// one, except with a probability of [`MIN_LUCK_CHANCE`]. So one question with a very high variance cannot hide a
/// clear result of another.
///
/// Source: (n − 1)s² / σ² has a χ² distribution with n − 1 degrees of freedom. It follows the robust prior of
/// B. Phipson and others, "Robust hyperparameter estimation protects against hypervariable genes and improves
/// power to detect differential expression", 2016.
pub(crate) fn max_variance(own: Variance) -> f64 {
    let chi_squared = ChiSquared::new(own.df).expect("degrees of freedom are above zero");
    own.value * own.df / chi_squared.inverse_cdf(MIN_LUCK_CHANCE)
}

/// Returns the variance of one start, from the starts of the first stage, because the stopping rule is exact
/// with these alone. If all starts vary more, for example by a slow start that the first stage did not have,
/// their variance is used.
fn own_variance(question: &MetricQuestion) -> Option<Variance> {
    let staged = first_stage_variance(question)?;
    let has_stage = |sample: &Sample| sample.first_stage.is_some();
    if !has_stage(&question.baseline) && !has_stage(&question.candidate) {
        return Some(staged);
    }
    let whole = |sample: &Sample| Sample {
        first_stage: None,
        ..sample.clone()
    };
    let all_starts = first_stage_variance(&MetricQuestion {
        baseline: whole(&question.baseline),
        candidate: whole(&question.candidate),
        ..question.clone()
    });
    Some(Variance {
        value: all_starts.map_or(staged.value, |all_starts| all_starts.value.max(staged.value)),
        ..staged
    })
}

/// Returns the variance of one start, from the starts of the first stage alone.
fn first_stage_variance(question: &MetricQuestion) -> Option<Variance> {
    let (first, second) = (&question.baseline, &question.candidate);
    let (squares, df) = match question.design() {
        Design::Rounds => {
            let rounds = first.first_stage_logs().iter().zip(second.first_stage_logs());
            let differences: Vec<f64> = rounds.map(|(a, b)| b - a).collect();
            if differences.is_empty() {
                return None;
            }
            let squares = t_test::squares(&differences, t_test::mean(&differences)) / 2.0;
            (squares, differences.len() - 1)
        }
        Design::Separate => {
            let sides = [first, second].map(|side| {
                let staged = side.first_stage_logs();
                let df = staged.len().saturating_sub(1);
                let squares = if df > 0 {
                    t_test::squares(staged, t_test::mean(staged))
                } else {
                    0.0
                };
                (squares, df)
            });
            let starts = [first, second].map(|side| side.logs.len());
            let (pooled, df) = (sides[0].0 + sides[1].0, sides[0].1 + sides[1].1);
            let are_staged = first.first_stage.is_some() && second.first_stage.is_some();
            if are_staged && starts[0] != starts[1] && question.noise.is_none() {
                // First starts that are alike by chance stop early, and often far from their mean. If one side
                // stopped before the other and the noise is unknown, the larger variance is used for both.
                let varied = sides.iter().filter(|(_, df)| *df > 0);
                let larger = varied.map(|(squares, own)| squares / *own as f64 * df as f64);
                (larger.fold(pooled, f64::max), df)
            } else if let Some(variance) = unequal_sides_variance(sides, starts) {
                return Some(variance);
            } else {
                (pooled, df)
            }
        }
    };
    (df > 0).then(|| Variance {
        value: (squares / df as f64).max(MIN_SIGMA * MIN_SIGMA),
        df: df as f64,
    })
}

/// Returns the variance of one start. A count of requests has at least the variance that whole requests
/// cause: five starts with one request each look equal only by counting.
pub(crate) fn first_stage_variance_with_counting(question: &MetricQuestion) -> Option<Variance> {
    let own = own_variance(question)?;
    let counting =
        [&question.baseline, &question.candidate].map(|side| side.counting_variance.unwrap_or(0.0));
    Some(Variance {
        value: own.value.max(f64::midpoint(counting[0], counting[1])),
        ..own
    })
}

/// Returns the variance of one start if the sides have different numbers of starts, from the sum of squares
/// and the degrees of freedom of each side. The value makes the error of the difference equal to that of both
/// means, whichever side varies more. `None` if the numbers are equal, because pooling then gives the same
/// error.
///
/// Source: B. L. Welch, "The generalization of Student's problem when several different population variances
/// are involved", 1947.
fn unequal_sides_variance(sides: [(f64, usize); 2], starts: [usize; 2]) -> Option<Variance> {
    let [first, second] = sides;
    if starts[0] == starts[1] || first.1 == 0 || second.1 == 0 {
        return None;
    }
    let of_mean = |(squares, df): (f64, usize), starts: usize| {
        (squares / df as f64).max(MIN_SIGMA * MIN_SIGMA) / starts as f64
    };
    let sum = of_mean(first, starts[0]) + of_mean(second, starts[1]);
    Some(Variance {
        value: sum / (1.0 / starts[0] as f64 + 1.0 / starts[1] as f64),
        // A lower bound, whichever side the error comes from. Welch's own value is largest if the few starts
        // are alike by chance.
        df: first.1.min(second.1) as f64,
    })
}

/// Adds a further variance to a squared error, and combines their degrees of freedom.
///
/// Source: F. E. Satterthwaite, "An approximate distribution of estimates of variance components", 1946.
pub(crate) fn add_night_variance(squared: f64, df: f64, between: Option<Variance>) -> (f64, f64) {
    match between.filter(|between| between.value > 0.0) {
        None => (squared, df),
        Some(between) => {
            let sum = squared + between.value;
            let df = sum * sum / (squared * squared / df + between.value * between.value / between.df);
            (sum, df)
        }
    }
}
