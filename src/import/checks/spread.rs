//! Checks whether mean, standard deviation and percentiles can belong to one sample.

use super::range::Range;
use super::{Checks, time};
use crate::analysis::metrics::{
    LatencyKind, Metric,
    Statistic::{self, Max, Mean, Median, P90, P95, P99, Std},
};
use crate::import::result_block::WarningSubject;

/// A percentile is too far from the mean if the allowed distance is below this share of the actual one: tools
/// interpolate percentiles differently.
const MAX_SPREAD_SHARE: f64 = 0.9;

/// The number of requests of a file that does not say it.
const FEWEST_REQUESTS: f64 = 10.0;

/// A percentile of a latency.
struct Percentile {
    metric: Metric,
    range: Range,
    line: u32,
    /// Minimum share of the values at or below the percentile; `values_at_or_above` is that at or above it.
    values_at_or_below: f64,
    values_at_or_above: f64,
}

impl Checks<'_> {
    /// Warns about percentiles too far from the mean, by the standard deviation or else by the largest
    /// possible value.
    pub(super) fn check_percentile_spread(&mut self) {
        // The figures of `matrix` are derived from records.
        if self.result.is_from_matrix {
            return;
        }
        for sample in [
            LatencyKind::Ttft,
            LatencyKind::Tpot,
            LatencyKind::Itl,
            LatencyKind::E2e,
        ] {
            let all = [(Median, 0.5), (P90, 0.9), (P95, 0.95), (P99, 0.99)];
            let contradiction = all.into_iter().find_map(|(statistic, share)| {
                self.spread_contradiction(sample, &self.percentile(statistic, sample, share)?)
            });
            if let Some((line, says)) = contradiction {
                self.warn(line, WarningSubject::Figures, says);
            }
        }
    }

    fn percentile(&self, statistic: Statistic, sample: LatencyKind, share: f64) -> Option<Percentile> {
        let metric = time(statistic, sample);
        let (range, line) = self.printed(metric)?;
        let completed = self.result.figure(Metric::Completed).unwrap_or(FEWEST_REQUESTS);
        if completed < 2.0 {
            return None;
        }
        // Of n values, at least p(n-1) lie at or below the percentile, and at least (1-p)(n-1) at or above
        // it.
        let of_few = 1.0 - 1.0 / completed;
        Some(Percentile {
            metric,
            range,
            line,
            values_at_or_below: share * of_few,
            values_at_or_above: (1.0 - share) * of_few,
        })
    }

    /// Checks one percentile. Source of the bound: Cantelli's inequality; for the median it says that the
    /// distance to the mean is at most one standard deviation.
    fn spread_contradiction(&self, sample: LatencyKind, percentile: &Percentile) -> Option<(u32, String)> {
        let mean = self.range(time(Mean, sample))?;
        let distance = (mean.low - percentile.range.high).max(percentile.range.low - mean.high);
        if distance <= 0.0 {
            return None;
        }
        let is_below = mean.low > percentile.range.high;
        let share = if is_below {
            percentile.values_at_or_below
        } else {
            percentile.values_at_or_above
        };
        let says = match self.range(time(Std, sample)) {
            Some(std) => {
                let allowed = std.high / (share / (1.0 - share)).sqrt();
                (allowed < MAX_SPREAD_SHARE * distance).then(|| {
                    format!(
                        "with a standard deviation of {:.2} ms, mean and percentile can differ by at most {allowed:.2} ms",
                        std.midpoint()
                    )
                })
            }
            None if is_below => self.max_value(sample).and_then(|longest| {
                let highest = share * percentile.range.high + (1.0 - share) * longest;
                (highest < MAX_SPREAD_SHARE * mean.low).then(|| {
                    format!(
                        "with this percentile and a maximum of {longest:.2} ms, the mean can be at most {highest:.2} ms"
                    )
                })
            }),
            None => None,
        };
        let says = format!(
            "{} is {:.2} ms, but {} is {:.2} ms: {}",
            time(Mean, sample).label(),
            mean.midpoint(),
            percentile.metric.label(),
            percentile.range.midpoint(),
            says?
        );
        Some((percentile.line, says))
    }

    /// The largest possible value of a latency, in milliseconds.
    fn max_value(&self, sample: LatencyKind) -> Option<f64> {
        let duration = || Some(self.range(Metric::Duration)?.high * 1000.0);
        self.range(time(Max, sample))
            .map(|max| max.high)
            .or_else(duration)
    }
}
