//! The verdict of a comparison, and the notation of shares and probabilities.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verdict {
    /// It got worse, by more than the floor and beyond chance.
    Worse,
    /// The data do not decide.
    Unclear,
    /// Any change is within the floor.
    Same,
    /// It got better, by more than the floor and beyond chance.
    Better,
}

impl Verdict {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Unclear => "unclear",
            Self::Same => "same",
            Self::Better => "better",
        }
    }
}

pub(crate) const CONFIDENCE: f64 = 0.95;

/// Returns the logarithms of a metric of several starts. `None` if there are no values or one is not above
/// zero.
pub(crate) fn logs(starts: &[f64]) -> Option<Vec<f64>> {
    let all_positive = starts.iter().all(|value| value.is_finite() && *value > 0.0);
    (all_positive && !starts.is_empty()).then(|| starts.iter().map(|value| value.ln()).collect())
}

/// Converts a difference of logarithms to a relative change.
pub(crate) fn relative_change(difference: f64) -> f64 {
    difference.exp_m1()
}

/// Formats a probability in a few characters.
pub(crate) fn p_in_words(p: f64) -> String {
    if p < 0.0001 {
        "< 0.0001".to_owned()
    } else {
        format!("{p:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_figures_above_zero_have_logarithms() {
        assert_eq!(logs(&[1.0, 0.0]), None);
        assert_eq!(logs(&[]), None);
        assert_eq!(logs(&[1.0]), Some(vec![0.0]));
    }
}
