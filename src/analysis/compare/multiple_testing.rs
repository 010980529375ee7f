//! Corrections for many tests at once.

/// Returns which p-values are rejected so that the probability of any false rejection is at most `alpha`,
/// among `family` tests. Tests that are not in `p` count as never rejected.
///
/// Source: S. Holm, "A simple sequentially rejective multiple test procedure", 1979.
#[cfg(test)]
pub(crate) fn holm(p: &[f64], family: usize, alpha: f64) -> Vec<bool> {
    let mut rejected = vec![false; p.len()];
    for (rank, at) in ascending_order(p).into_iter().enumerate() {
        let remaining = family.max(p.len()) - rank;
        if p[at] > alpha / remaining as f64 {
            break;
        }
        rejected[at] = true;
    }
    rejected
}

/// Adjusts p-values by Holm. Rejecting those at or below a level keeps the probability of any false rejection
/// at that level, among `family` tests. Tests that are not in `p` count as never rejected.
///
/// Source: S. Holm 1979; the adjusted form as in R's `p.adjust`.
pub fn holm_adjusted(p: &[f64], family: usize) -> Vec<f64> {
    let mut adjusted = vec![1.0; p.len()];
    let mut max = 0.0_f64;
    for (rank, at) in ascending_order(p).into_iter().enumerate() {
        let remaining = family.max(p.len()) - rank;
        max = max.max((p[at] * remaining as f64).min(1.0));
        adjusted[at] = max;
    }
    adjusted
}

fn ascending_order(p: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[a].total_cmp(&p[b]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holm_stops_at_the_first_that_is_too_large() {
        let p = [0.01, 0.04, 0.03, 0.005];
        assert_eq!(holm(&p, 4, 0.05), [true, false, false, true]);
        // The same four among three hundred tests that are not in `p`.
        assert_eq!(holm(&p, 300, 0.05), [false; 4]);
        assert_eq!(holm(&[0.0001], 300, 0.05), [true]);
        assert!(holm(&[], 300, 0.05).is_empty());
    }

    #[test]
    fn adjusted_by_holm_what_is_rejected_is_what_holm_rejects() {
        let p = [0.01, 0.04, 0.03, 0.005];
        // R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
        for (ours, theirs) in holm_adjusted(&p, 4).iter().zip([0.03, 0.06, 0.06, 0.02]) {
            assert!((ours - theirs).abs() < 1e-12);
        }
        for family in [4, 5, 300] {
            let by_value: Vec<bool> = holm_adjusted(&p, family).iter().map(|p| *p <= 0.05).collect();
            assert_eq!(by_value, holm(&p, family, 0.05));
        }
    }
}
