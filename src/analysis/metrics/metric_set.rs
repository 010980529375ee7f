//! The metrics of one set of definitions, by name.

use super::metric::Metric;
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
pub fn metric_value(figures: &MetricValues, metric: Metric) -> Option<f64> {
    figures.get(&metric.name()).copied().flatten()
}
