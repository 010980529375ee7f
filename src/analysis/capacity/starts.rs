//! The capacity over several starts of an engine.

use super::strategy::Interval;

/// Fewest starts that show how much they differ.
const MIN_STARTS: usize = 3;

/// Two-sided 95 % quantiles of Student's distribution, by degrees of freedom from 2 on; the last one holds for
/// all further ones.
const T_95: [f64; 9] = [4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

/// Combines the results of starts: the mean of the logarithms with its 95 % confidence interval. It contains the
/// differences between starts, and what the searches leave open, but nothing that every start has ruled out. `None` with fewer than three starts.
pub(super) fn over_starts(starts: &[Interval]) -> Option<Interval> {
    let quantile = T_95[starts.len().checked_sub(MIN_STARTS)?.min(T_95.len() - 1)];
    let count = starts.len() as f64;
    let mean = |logs: &dyn Fn(&Interval) -> f64| starts.iter().map(logs).sum::<f64>() / count;
    let center = mean(&|start| start.value.ln());
    let squares: f64 = starts
        .iter()
        .map(|start| (start.value.ln() - center).powi(2))
        .sum();
    let spread = quantile * (squares / (count - 1.0) / count).sqrt();
    // An estimate may be off anywhere within the interval of its search, and all in the same direction: more starts do not change that.
    let open = mean(&|start| (start.high / start.low).ln()) / 2.0;
    let half = spread.hypot(open);
    let lowest = starts.iter().map(|start| start.low).fold(f64::INFINITY, f64::min);
    let highest = starts.iter().map(|start| start.high).fold(0.0, f64::max);
    Some(Interval {
        value: center.exp(),
        low: (center - half).exp().max(lowest),
        high: (center + half).exp().min(highest),
    })
}
