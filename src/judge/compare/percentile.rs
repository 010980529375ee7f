//! How well a percentile is known by the requests that it rests on.

use statrs::distribution::{Binomial, DiscreteCDF};

use crate::judge::metrics::{Metric, Statistic};

/// How many observations there must be beyond a percentile before it may vote.
pub const BEYOND: f64 = 10.0;

/// The percentile that a figure is, if it is one, as a share.
pub const fn share(metric: Metric) -> Option<f64> {
    match metric {
        Metric::Time(Statistic::Median | Statistic::P50, _) => Some(0.5),
        Metric::Time(Statistic::P90, _) => Some(0.9),
        Metric::Time(Statistic::P95, _) => Some(0.95),
        Metric::Time(Statistic::P99, _) => Some(0.99),
        _ => None,
    }
}

/// Why a percentile of that many requests may not vote; `None` if it may.
///
/// Source: the binomial spread of what lies beyond: below ten it is a third of itself or more.
pub fn too_few(metric: Metric, requests: u32) -> Option<String> {
    let share = share(metric)?;
    let beyond = f64::from(requests) * (1.0 - share);
    (beyond + 1e-9 < BEYOND).then(|| {
        format!(
            "{} of {requests} requests rests on {beyond:.0} of them; {:.0} requests are needed",
            metric.label(),
            (BEYOND / (1.0 - share) - 1e-9).ceil()
        )
    })
}

/// Between which two of `n` sorted values, counted from 0, a percentile lies with at least this confidence; `None` where so few
/// values cannot tell.
///
/// Source: H. A. David and H. N. Nagaraja, "Order Statistics", section 7.1: the number of values below the percentile is binomial.
pub fn order_interval(n: usize, share: f64, level: f64) -> Option<(usize, usize)> {
    let below = Binomial::new(share, n as u64).ok()?;
    let tail = (1.0 - level) / 2.0;
    // The first with more than the tail below it, so that everything before has at most the tail.
    let low = (0..n).find(|&k| below.cdf(k as u64) > tail)?;
    let high = (0..n).find(|&k| below.cdf(k as u64) >= 1.0 - tail)?;
    // The percentile lies between the `low`-th and the `high + 1`-th value, counted from 1.
    (low > 0).then(|| (low - 1, high))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::metrics::Sample;

    #[test]
    fn a_p99_needs_a_thousand_requests() {
        let p99 = Metric::Time(Statistic::P99, Sample::Ttft);
        assert_eq!(
            too_few(p99, 500).unwrap(),
            "p99 TTFT of 500 requests rests on 5 of them; 1000 requests are needed"
        );
        assert_eq!(too_few(p99, 1000), None);
        assert_eq!(too_few(Metric::Time(Statistic::Mean, Sample::Ttft), 3), None);
    }

    #[test]
    fn the_median_of_ten_lies_between_the_second_and_the_ninth() {
        // The classic table: 1 − 2·P(B ≤ 1) = 0.9785 for n = 10.
        assert_eq!(order_interval(10, 0.5, 0.95), Some((1, 8)));
        assert_eq!(order_interval(5, 0.5, 0.95), None);
        assert_eq!(order_interval(100, 0.99, 0.95), None);
        let (low, high) = order_interval(1000, 0.99, 0.95).unwrap();
        assert!(low < 989 && high > 990 && high < 1000, "{low} {high}");
    }
}
