//! What a comparison says, and how shares and chances are written.

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verdict {
    /// It got worse, by more than the practical bound and beyond chance.
    Worse,
    /// It cannot be told.
    Unclear,
    /// Whatever changed lies within the practical bound.
    Same,
    /// It got better, by more than the practical bound and beyond chance.
    Better,
}

impl Verdict {
    /// The verdict as it is written.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Unclear => "unclear",
            Self::Same => "same",
            Self::Better => "better",
        }
    }
}

/// The confidence of intervals.
pub(crate) const LEVEL: f64 = 0.95;

/// The logarithms of a figure of starts; `None` if one of them has none.
pub(crate) fn logs(starts: &[f64]) -> Option<Vec<f64>> {
    let all_positive = starts.iter().all(|value| value.is_finite() && *value > 0.0);
    (all_positive && !starts.is_empty()).then(|| starts.iter().map(|value| value.ln()).collect())
}

/// A difference of logarithms as a relative change.
pub(crate) fn relative(difference: f64) -> f64 {
    difference.exp_m1()
}

/// A chance in few characters.
pub(crate) fn chance(p: f64) -> String {
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
