//! Checks whether a percentile has enough requests for a verdict.

use crate::analysis::metrics::Metric;

/// Requests that must be beyond a percentile before it gets a verdict.
pub(crate) const MIN_OBSERVATIONS_BEYOND: f64 = 10.0;

/// Returns the expected number of requests beyond a percentile. `None` if the metric is no percentile.
pub(crate) fn observations_beyond(metric: Metric, requests: f64) -> Option<f64> {
    let Metric::Time(statistic, _) = metric else {
        return None;
    };
    Some(requests * (1.0 - statistic.share()?) + 1e-9)
}

/// A percentile is at a jump of the distribution if a confidence bound differs from it by more than this
/// factor.
const JUMP_FACTOR: f64 = 1.5;

/// Returns whether a percentile is at a jump of the distribution: in more than half of the measurements its
/// confidence bounds are far from it. An example is a median when two of five requests take several times as
/// long. Such a percentile says little about these requests. `bounds` are those of each measurement.
pub(crate) fn is_at_jump(value: f64, bounds: &[[f64; 2]]) -> bool {
    let is_far = |[low, high]: &&[f64; 2]| *high > JUMP_FACTOR * value || *low * JUMP_FACTOR < value;
    2 * bounds.iter().filter(is_far).count() > bounds.len()
}

/// Says why a percentile of this many requests gets no verdict. `None` if it may get one.
///
/// Source: the binomial distribution of the requests beyond. Below ten their number varies by a third or
/// more.
pub(crate) fn too_few_requests(metric: Metric, requests: u32) -> Option<String> {
    let Metric::Time(statistic, _) = metric else {
        return None;
    };
    let share = statistic.share()?;
    let beyond = observations_beyond(metric, f64::from(requests))?;
    (beyond < MIN_OBSERVATIONS_BEYOND).then(|| {
        format!(
            "the {} of {requests} requests depends on only {beyond:.0} of these requests; {:.0} requests are needed",
            metric.label(),
            (MIN_OBSERVATIONS_BEYOND / (1.0 - share) - 1e-9).ceil()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::metrics::{LatencyKind, Statistic};

    #[test]
    fn a_percentile_whose_requests_let_it_lie_far_away_stands_at_a_jump() {
        assert!(is_at_jump(257.0, &[[256.0, 1256.0]; 5]));
        assert!(is_at_jump(257.0, &[[100.0, 260.0]; 5]));
        assert!(!is_at_jump(257.0, &[[230.0, 290.0]; 5]));
        assert!(!is_at_jump(257.0, &[[256.0, 1256.0], [256.0, 258.0]]));
        assert!(!is_at_jump(257.0, &[]));
    }

    #[test]
    fn a_p99_needs_a_thousand_requests() {
        let p99 = Metric::Time(Statistic::P99, LatencyKind::Ttft);
        assert_eq!(
            too_few_requests(p99, 500).unwrap(),
            "the p99 TTFT of 500 requests depends on only 5 of these requests; 1000 requests are needed"
        );
        assert_eq!(too_few_requests(p99, 1000), None);
        assert_eq!(
            too_few_requests(Metric::Time(Statistic::Mean, LatencyKind::Ttft), 3),
            None
        );
    }
}
