//! Noise of a metric that is known before the comparison.

use statrs::distribution::{ChiSquared, ContinuousCDF};

use crate::analysis::compare::t_test;

/// Probability that the true standard deviation is below [`KnownNoise::sigma`].
pub(crate) const NOISE_CONFIDENCE: f64 = 0.8;
/// Fewest degrees of freedom with which noise counts as known.
pub(crate) const MIN_NOISE_DF: f64 = 4.0;

/// Standard deviation of one start, from earlier measurements on this host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct KnownNoise {
    /// Upper confidence bound at [`NOISE_CONFIDENCE`], of logarithms.
    pub(crate) sigma: f64,
    /// Degrees of freedom of the measurement.
    pub(crate) df: f64,
}

impl KnownNoise {
    /// Returns the noise from a measured standard deviation. `df` must be above zero.
    pub(crate) fn from_sigma(sigma: f64, df: f64) -> Self {
        Self {
            sigma: sigma * upper_factor(df),
            df,
        }
    }

    /// Returns the noise from the starts of one build. `None` for fewer than two.
    pub(crate) fn from_starts(logs: &[f64]) -> Option<Self> {
        (logs.len() > 1).then(|| Self::from_sigma(t_test::variance(logs).sqrt(), logs.len() as f64 - 1.0))
    }

    /// Returns whether three starts per side are enough for a verdict.
    pub(crate) fn is_sufficient(&self) -> bool {
        self.df >= MIN_NOISE_DF
    }
}

/// Returns the upper confidence bound of a standard deviation at [`NOISE_CONFIDENCE`], relative to the measured
/// one.
///
/// Source: (n − 1)s² / σ² has a χ² distribution with n − 1 degrees of freedom.
fn upper_factor(df: f64) -> f64 {
    let chi_squared = ChiSquared::new(df).expect("degrees of freedom are above zero");
    (df / chi_squared.inverse_cdf(1.0 - NOISE_CONFIDENCE)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_that_of_the_tables() {
        // χ² with nine degrees of freedom is below 5.380 with a probability of 20 %.
        let noise = KnownNoise::from_sigma(0.01, 9.0);
        assert!(
            (noise.sigma - 0.01 * (9.0f64 / 5.380).sqrt()).abs() < 1e-5,
            "{noise:?}"
        );
        assert!(KnownNoise::from_sigma(0.01, 100.0).sigma < 0.0107);
        assert_eq!(KnownNoise::from_starts(&[1.0]), None);
        assert!(
            !KnownNoise::from_starts(&[1.0, 1.1, 1.2, 1.0])
                .unwrap()
                .is_sufficient()
        );
        assert!(
            KnownNoise::from_starts(&[1.0, 1.1, 1.2, 1.0, 1.1])
                .unwrap()
                .is_sufficient()
        );
    }
}
