//! The trials that are best for throughput against latency: those that no other beats in both.

/// Whether each of these is on the frontier of two figures, of which more is better. Of equal ones the first is.
pub(crate) fn is_on_frontier(figures: &[Option<[f64; 2]>]) -> Vec<bool> {
    let beats = |(at, one): (usize, &[f64; 2]), (other_at, other): (usize, &[f64; 2])| {
        let is_as_good = one[0] >= other[0] && one[1] >= other[1];
        is_as_good && (one != other || at < other_at)
    };
    let known = || {
        let known = figures.iter().enumerate();
        known.filter_map(|(at, figures)| figures.as_ref().map(|figures| (at, figures)))
    };
    let is_beaten = |at: usize, own: &[f64; 2]| known().any(|other| other.0 != at && beats(other, (at, own)));
    figures
        .iter()
        .enumerate()
        .map(|(at, own)| own.as_ref().is_some_and(|own| !is_beaten(at, own)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_beats_in_both_figures_is_not_on_the_frontier() {
        let figures = [
            Some([10.0, 1.0]),
            Some([5.0, 5.0]),
            Some([4.0, 5.0]),
            None,
            Some([1.0, 9.0]),
            Some([5.0, 5.0]),
        ];
        assert_eq!(is_on_frontier(&figures), [true, true, false, false, true, false]);
        assert!(is_on_frontier(&[]).is_empty());
    }
}
