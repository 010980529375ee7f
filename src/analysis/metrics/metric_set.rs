//! The metrics of one set of definitions, by name.

use super::metric::Metric;
use super::{LatencyKind, Statistic};
use crate::results::record::cell::MetricValues;

#[derive(Default)]
pub(super) struct MetricSet(pub(super) MetricValues);

impl MetricSet {
    pub(super) fn insert(&mut self, metric: Metric, value: Option<f64>) {
        self.0
            .insert(metric.name(), value.filter(|value| value.is_finite()));
    }

    pub(super) fn get(&self, metric: Metric) -> Option<f64> {
        metric_value(&self.0, metric)
    }
}

/// Returns the value of a metric. `None` if it is missing or has no meaning.
///
/// Interactivity is 1 / mean TPOT. Files of other tools and of earlier versions have TPOT alone.
pub fn metric_value(figures: &MetricValues, metric: Metric) -> Option<f64> {
    let recorded = |metric: Metric| figures.get(&metric.name()).copied().flatten();
    recorded(metric).or_else(|| match metric {
        Metric::Interactivity => recorded(Metric::Time(Statistic::Mean, LatencyKind::Tpot))
            .filter(|tpot| *tpot > 0.0)
            .map(|tpot| 1000.0 / tpot),
        _ => None,
    })
}
