//! Weighs known noise against the starts of a question.

use statrs::distribution::{ContinuousCDF, FisherSnedecor};

use super::limits::MIN_SIGMA;
use super::moderation::Variance;
use super::question::{Design, MetricQuestion};
use super::variance::max_variance;

/// Degrees of freedom of five starts on each side, which are judged without stored noise.
const SUFFICIENT_DF: f64 = 8.0;
/// Most degrees of freedom that stored noise counts for: those of sixteen starts. It was measured on another
/// day, whatever the number of starts.
const MAX_NOISE_DF: f64 = 15.0;

/// Returns the noise of each question as a variance. If the starts of most launches vary more than their
/// noise, the host has become noisier since the measurement. The noise of all questions is then raised by the
/// same factor, as far as the starts of a question allow.
pub(super) fn noise_variances(
    questions: &[MetricQuestion],
    own: &[Option<Variance>],
    groups: &[usize],
) -> Vec<Option<Variance>> {
    let stored: Vec<Option<Variance>> = questions
        .iter()
        .map(|question| {
            let noise = question.noise.filter(|noise| noise.df > 0.0)?;
            Some(Variance {
                value: noise.sigma.max(MIN_SIGMA).powi(2),
                df: noise.df.min(MAX_NOISE_DF),
            })
        })
        .collect();
    let launches = groups.iter().map(|group| group + 1).max().unwrap_or(0);
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); launches];
    for ((own, stored), group) in own.iter().zip(&stored).zip(groups) {
        if let (Some(own), Some(stored)) = (own, stored) {
            ratios[*group].push(own.value / stored.value);
        }
    }
    let of_launches: Vec<f64> = ratios
        .into_iter()
        .filter_map(|cells| quantile(cells, 0.5))
        .collect();
    // A few launches may all vary more by chance. So the quantile is lower when there are fewer launches.
    let certain = 0.5 - 0.25 / (of_launches.len().max(1) as f64).sqrt();
    let raised = quantile(of_launches, certain).unwrap_or(1.0).max(1.0);
    let raise = |((stored, question), own): ((Option<Variance>, &MetricQuestion), &Option<Variance>)| {
        let stored = stored?;
        let max = own.map_or(f64::INFINITY, max_variance);
        Some(Variance {
            value: (stored.value * raised).min(max.max(stored.value)),
            // Noise that was raised to fit today's starts adds little information if only a few starts carry
            // the error.
            df: stored.df * own.map_or(1.0, |own| noise_weight(own, stored, question.design()))
                / if question.is_uneven() {
                    raised * raised
                } else {
                    1.0
                },
        })
    };
    stored.into_iter().zip(questions).zip(own).map(raise).collect()
}

/// Returns the weight of stored noise against the starts of a question, from 0 to 1: twice the probability
/// that they vary as much if the noise is right. Noise that the starts contradict must not narrow their
/// interval. The weight is 1 for too few starts to be judged without noise. Rounds have half the degrees of
/// freedom of the same number of separate starts, so stored noise would dominate them without this weight.
///
/// Source: the F test of two variances, with its p-value as the weight of earlier data as in T. Haddad and
/// others, "Incorporation of stochastic engineering models as prior information in Bayesian medical device
/// trials", 2017.
fn noise_weight(own: Variance, stored: Variance, design: Design) -> f64 {
    if design == Design::Separate && own.df < SUFFICIENT_DF {
        return 1.0;
    }
    let ratios = FisherSnedecor::new(own.df, stored.df).expect("degrees of freedom are above zero");
    (2.0 * ratios.sf(own.value / stored.value)).min(1.0)
}

/// Returns the value below which this share of the values lies, interpolated. `None` if there are no values.
fn quantile(mut values: Vec<f64>, share: f64) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let place = share * (values.len().checked_sub(1)?) as f64;
    let (low, high) = (values[place.floor() as usize], values[place.ceil() as usize]);
    Some(low + (high - low) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_counts_for_less_the_more_the_starts_contradict_it() {
        let variance = |value, df| Variance { value, df };
        let weight_for = |value| noise_weight(variance(value, 8.0), variance(1.0, 9.0), Design::Separate);
        assert_eq!((weight_for(0.1), weight_for(0.9)), (1.0, 1.0));
        // F with 8 and 9 degrees of freedom exceeds 3.2296 with a probability of 5 %.
        assert!((weight_for(3.2296) - 0.1).abs() < 1e-4, "{}", weight_for(3.2296));
        assert!(weight_for(100.0) < 1e-6);
        // Five rounds have half the degrees of freedom of five starts on each side, and can still be judged
        // without noise.
        let few = |value, design| noise_weight(variance(value, 4.0), variance(1.0, 9.0), design);
        assert_eq!(few(100.0, Design::Separate), 1.0);
        assert!(few(100.0, Design::Rounds) < 1e-6);
    }
}
