//! Probabilities and limits of the decision.

/// Probability of any false *better* or *worse* in a family.
pub(crate) const ALPHA: f64 = 0.05;
/// Probability that a loss of `Answer::smallest_detectable_loss` is found.
pub(crate) const POWER: f64 = 0.9;
/// Default floor: the smallest change that matters, as a share.
pub(crate) const DEFAULT_BOUND: f64 = 0.02;
/// Confidence of the interval that tables show.
pub(crate) const CONFIDENCE: f64 = 0.95;
/// Confidence of the interval that must be within the floor for *same*.
pub(crate) const EQUIVALENCE_CONFIDENCE: f64 = 0.9;
/// Fewest starts per side if the noise of the metric is known.
pub(crate) const MIN_STARTS_NOISE_KNOWN: usize = 3;
/// Fewest starts per side if the noise is not known.
pub(crate) const MIN_STARTS_NOISE_UNKNOWN: usize = 5;
/// Highest recommended number of starts per side.
pub(crate) const MAX_RECOMMENDED_STARTS: usize = 100;
/// Smallest standard deviation that is assumed for an engine. Starts with a smaller one are equal by chance
/// or by rounding.
pub(crate) const MIN_SIGMA: f64 = 0.001;
/// Probability at which a variance as low as that of the starts is ruled out (see `most_variance`).
pub(crate) const MIN_LUCK_CHANCE: f64 = 1e-5;
/// Smallest reported p-value. A few starts cannot support a smaller one.
pub(crate) const MIN_P: f64 = 1e-12;
