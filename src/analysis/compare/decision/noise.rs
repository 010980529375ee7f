//! What is known of the noise of a figure before it is compared.

use statrs::distribution::{ChiSquared, ContinuousCDF, FisherSnedecor};

use super::super::t_test;
use super::{Design, LEAST_SIGMA, Question, Variance, most_variance};

/// With this confidence the standard deviation lies below [`KnownNoise::sigma`].
pub(crate) const NOISE_LEVEL: f64 = 0.8;
/// Noise is known from this many degrees of freedom on.
pub(crate) const NOISE_DF: f64 = 4.0;
/// The degrees of freedom of five starts on each side, which are judged without stored noise.
const SUFFICIENT_DF: f64 = 8.0;
/// The most degrees of freedom that stored noise counts for: those of sixteen starts. It is of another day, however many starts told it.
const MOST_DF: f64 = 15.0;

/// What is known of the standard deviation of one start from earlier measurements on this host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct KnownNoise {
    /// Its upper confidence bound at [`NOISE_LEVEL`], of logarithms.
    pub sigma: f64,
    /// The degrees of freedom that it was measured with.
    pub df: f64,
}

impl KnownNoise {
    /// The noise of a standard deviation that was measured with so many degrees of freedom, above zero.
    pub(crate) fn measured(sigma: f64, df: f64) -> Self {
        Self {
            sigma: sigma * upper_factor(df),
            df,
        }
    }

    /// The noise that starts of one build show; `None` with fewer than two.
    pub(crate) fn of_starts(logs: &[f64]) -> Option<Self> {
        (logs.len() > 1).then(|| Self::measured(t_test::variance(logs).sqrt(), logs.len() as f64 - 1.0))
    }

    /// Whether a verdict may rest on it.
    pub(crate) fn is_enough(&self) -> bool {
        self.df >= NOISE_DF
    }
}

/// The upper confidence bound of a standard deviation at [`NOISE_LEVEL`], relative to the one that was measured.
///
/// Source: (n − 1)s² / σ² is distributed as χ² with n − 1 degrees of freedom.
fn upper_factor(df: f64) -> f64 {
    let chi_squared = ChiSquared::new(df).expect("degrees of freedom are above zero");
    (df / chi_squared.inverse_cdf(1.0 - NOISE_LEVEL)).sqrt()
}

/// The noise of every question as a variance. Where the starts of most launches vary more than their noise says, the host has become noisier
/// since it was measured, and all of it is raised by as much, as far as the starts of a question do not rule it out.
pub(super) fn of_today(
    questions: &[Question],
    own: &[Option<Variance>],
    groups: &[usize],
) -> Vec<Option<Variance>> {
    let stored: Vec<Option<Variance>> = questions
        .iter()
        .map(|question| {
            let noise = question.noise.filter(|noise| noise.df > 0.0)?;
            Some(Variance {
                value: noise.sigma.max(LEAST_SIGMA).powi(2),
                df: noise.df.min(MOST_DF),
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
    // Few launches may all vary by chance: what all but a few exceed is counted.
    let certain = 0.5 - 0.25 / (of_launches.len().max(1) as f64).sqrt();
    let raised = quantile(of_launches, certain).unwrap_or(1.0).max(1.0);
    let raise = |((stored, question), own): ((Option<Variance>, &Question), &Option<Variance>)| {
        let stored = stored?;
        let most = own.map_or(f64::INFINITY, most_variance);
        Some(Variance {
            value: (stored.value * raised).min(most.max(stored.value)),
            // What is raised by today's starts says little beside them where few of them carry the error.
            df: stored.df * own.map_or(1.0, |own| agreement(own, stored, question.design()))
                / if question.is_uneven() {
                    raised * raised
                } else {
                    1.0
                },
        })
    };
    stored.into_iter().zip(questions).zip(own).map(raise).collect()
}

/// The weight of stored noise beside the starts of a question, from 0 to 1: twice the probability that they vary as much if the noise is right. Noise
/// that they contradict must not narrow their interval. Too few starts for a verdict of their own need the noise in full; rounds,
/// which have half the degrees of freedom of as many starts on two sides, would be overruled by it.
///
/// Source: the F test of two variances, with its p-value as the weight of earlier data as in T. Haddad and others, "Incorporation of stochastic
/// engineering models as prior information in Bayesian medical device trials", 2017.
fn agreement(own: Variance, stored: Variance, design: Design) -> f64 {
    if design == Design::Separate && own.df < SUFFICIENT_DF {
        return 1.0;
    }
    let ratios = FisherSnedecor::new(own.df, stored.df).expect("degrees of freedom are above zero");
    (2.0 * ratios.sf(own.value / stored.value)).min(1.0)
}

/// The value below which this share of the values lies, interpolated; `None` of none.
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
        let of = |value| agreement(variance(value, 8.0), variance(1.0, 9.0), Design::Separate);
        assert_eq!((of(0.1), of(0.9)), (1.0, 1.0));
        // F of 8 and 9 degrees of freedom exceeds 3.2296 with a chance of 5 %.
        assert!((of(3.2296) - 0.1).abs() < 1e-4, "{}", of(3.2296));
        assert!(of(100.0) < 1e-6);
        // Five rounds have half the degrees of freedom of five starts on each side, and are judged alone just as well.
        let few = |value, design| agreement(variance(value, 4.0), variance(1.0, 9.0), design);
        assert_eq!(few(100.0, Design::Separate), 1.0);
        assert!(few(100.0, Design::Rounds) < 1e-6);
    }

    #[test]
    fn the_bound_is_that_of_the_tables() {
        // χ² of nine degrees of freedom stays below 5.380 with a chance of 20 %.
        let noise = KnownNoise::measured(0.01, 9.0);
        assert!(
            (noise.sigma - 0.01 * (9.0f64 / 5.380).sqrt()).abs() < 1e-5,
            "{noise:?}"
        );
        assert!(KnownNoise::measured(0.01, 100.0).sigma < 0.0107);
        assert_eq!(KnownNoise::of_starts(&[1.0]), None);
        assert!(!KnownNoise::of_starts(&[1.0, 1.1, 1.2, 1.0]).unwrap().is_enough());
        assert!(
            KnownNoise::of_starts(&[1.0, 1.1, 1.2, 1.0, 1.1])
                .unwrap()
                .is_enough()
        );
    }
}
