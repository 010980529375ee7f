//! Confidence intervals of percentiles, from the requests of one measurement.

use std::collections::BTreeMap;

use statrs::distribution::{Binomial, DiscreteCDF};

use super::dimensions::{LatencyKind, Statistic};
use super::latency::Times;
use super::metric::Metric;
use crate::results::record::request::Request;

pub(crate) const CONFIDENCE: f64 = 0.95;

/// Computes the 95 % interval of each percentile of the completed requests, in milliseconds, by the name of
/// the metric and under the definitions of `matrix`. Percentiles with too few requests have no interval.
/// Percentiles of gaps have none either, because the gaps of an answer are not independent.
///
/// The requests are treated as independent. They share batches and queues, so the real uncertainty is larger;
/// the variance between starts adds to it.
pub(crate) fn percentile_intervals(requests: &[Request]) -> BTreeMap<String, [f64; 2]> {
    let times: Vec<Times> = requests
        .iter()
        .filter(|request| request.is_completed())
        .map(Times::from_sending)
        .collect();
    type ReadTime = fn(&Times) -> Option<f64>;
    let each: [(LatencyKind, ReadTime); 3] = [
        (LatencyKind::Ttft, |times| times.ttft),
        (LatencyKind::Tpot, |times| times.tpot),
        (LatencyKind::E2e, |times| times.e2e),
    ];
    let mut intervals = BTreeMap::new();
    for (sample, read) in each {
        let mut values: Vec<f64> = times.iter().filter_map(read).collect();
        values.sort_unstable_by(f64::total_cmp);
        for statistic in Statistic::ALL {
            let between = statistic
                .share()
                .and_then(|share| order_interval(values.len(), share, CONFIDENCE));
            if let Some((low, high)) = between {
                intervals.insert(
                    Metric::Time(statistic, sample).name(),
                    [values[low], values[high]],
                );
            }
        }
    }
    intervals
}

/// Returns the indices of the two of `n` sorted values between which a percentile lies with at least this
/// confidence. `None` if there are too few values.
///
/// Source: H. A. David and H. N. Nagaraja, "Order Statistics", section 7.1: the number of values below the percentile is binomial.
pub fn order_interval(n: usize, share: f64, level: f64) -> Option<(usize, usize)> {
    let below = Binomial::new(share, n as u64).ok()?;
    let tail = (1.0 - level) / 2.0;
    // The first index with more than `tail` below it, so that all indices before it have at most `tail`.
    let low = first_true(n, |k| below.cdf(k) > tail)?;
    let high = first_true(n, |k| below.cdf(k) >= 1.0 - tail)?;
    // The percentile is between the `low`-th and the `high + 1`-th value, counted from 1.
    (low > 0).then(|| (low - 1, high))
}

/// Returns the smallest number below `n` for which `is_so` holds. If it holds for a number, it must hold for
/// all larger ones.
fn first_true(n: usize, is_so: impl Fn(u64) -> bool) -> Option<usize> {
    let (mut first_candidate, mut high) = (0, n);
    while first_candidate < high {
        let middle = usize::midpoint(first_candidate, high);
        match is_so(middle as u64) {
            true => high = middle,
            false => first_candidate = middle + 1,
        }
    }
    (first_candidate < n).then_some(first_candidate)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadgen::dataset::rng::Python;

    #[test]
    fn a_percentile_lies_in_its_interval_as_often_as_is_said() {
        let mut draws = Python::new(7);
        for (n, share) in [(30, 0.5), (200, 0.9), (1000, 0.99)] {
            let (low, high) = order_interval(n, share, CONFIDENCE).unwrap();
            let covered = (0..1000).filter(|_| {
                let mut values: Vec<f64> = (0..n).map(|_| draws.random()).collect();
                values.sort_unstable_by(f64::total_cmp);
                values[low] <= share && share <= values[high]
            });
            let covered = covered.count();
            assert!((940..=985).contains(&covered), "{covered} of 1000 at n = {n}");
        }
    }

    #[test]
    fn the_median_of_ten_lies_between_the_second_and_the_ninth() {
        // The classic table: 1 − 2·P(B ≤ 1) = 0.9785 for n = 10.
        assert_eq!(order_interval(10, 0.5, 0.95), Some((1, 8)));
        assert_eq!(order_interval(5, 0.5, 0.95), None);
        assert_eq!(order_interval(100, 0.99, 0.95), None);
        assert_eq!(order_interval(0, 0.5, 0.95), None);
        let (low, high) = order_interval(1000, 0.99, 0.95).unwrap();
        assert!(low < 989 && high > 990 && high < 1000, "{low} {high}");
    }
}
