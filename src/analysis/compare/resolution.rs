//! Resolution of metrics: values closer than this may be the same value, however often they are measured.

use crate::analysis::metrics::{self, Metric, Unit};
use crate::config::search::Tier;
use crate::results::record::cell::{Definitions, MeasurementSummary, MetricValues, Origin};

/// A value with at least this many decimals was computed, not printed.
const COMPUTED_DECIMALS: u32 = 6;
/// With fewer values of a unit, trailing zeros in all of them may be chance.
const MIN_PRINTED_FIGURES: usize = 3;

/// Returns the relative error that the mean of a metric over these measurements has at most, in either direction.
///
/// The result of a search is anywhere in its interval: the error is the distance to its further end, and that of the mean of several is the
/// mean of theirs. The value that another tool printed can be off by half of its last digit.
pub(crate) fn resolution<'a>(
    summaries: impl Iterator<Item = &'a MeasurementSummary>,
    definitions: Definitions,
    metric: Metric,
) -> f64 {
    if let Metric::Found(_, tier) = metric {
        let errors: Vec<f64> = summaries
            .filter_map(|summary| Some(search_resolution(summary, tier)?.ln_1p()))
            .collect();
        return (errors.iter().sum::<f64>() / errors.len().max(1) as f64).exp_m1();
    }
    let imported = summaries.filter(|summary| summary.origin == Origin::Imported);
    let shares = imported.filter_map(|summary| print_resolution(summary.figures.get(&definitions)?, metric));
    shares.fold(0.0, f64::max)
}

/// Returns the value that half a request gives. It replaces a goodput or an attainment of zero, which has no
/// logarithm. `throughput` holds the request rates of the starts, in requests per second. `None` for other
/// metrics, and if no request completed.
pub(crate) fn half_request_value(metric: Metric, throughput: &[f64], completed: Option<f64>) -> Option<f64> {
    let completed = completed.filter(|completed| *completed > 0.0)?;
    let rates: Vec<f64> = throughput.iter().copied().filter(|rate| *rate > 0.0).collect();
    match metric {
        Metric::Goodput if !rates.is_empty() => {
            Some(0.5 * rates.iter().sum::<f64>() / rates.len() as f64 / completed)
        }
        Metric::Attainment => Some(0.5 / completed),
        _ => None,
    }
}

/// Returns the variance of logarithms that half a request per start causes. `min_value` is the value of half a
/// request. `None` for metrics that are no counts of requests.
pub(crate) fn counting_variance(metric: Metric, logs: &[f64], min_value: Option<f64>) -> Option<f64> {
    let squares = logs
        .iter()
        .map(|log| (min_value.unwrap_or(0.0) / log.exp()).powi(2));
    let is_count = matches!(metric, Metric::Goodput | Metric::Attainment);
    is_count.then(|| squares.sum::<f64>() / logs.len().max(1) as f64)
}

/// Returns the value that replaces zeros on both sides: the smaller one. Then two zeros are equal, and no
/// zero exceeds a value above zero.
pub(crate) fn common_min(min_values: [Option<f64>; 2]) -> Option<f64> {
    min_values.into_iter().flatten().reduce(f64::min)
}

/// Replaces zeros in the repeats of starts by `min_value`.
pub(crate) fn raise_zeros(starts: &[Vec<f64>], min_value: Option<f64>) -> Vec<Vec<f64>> {
    let raise = |value: &f64| match min_value {
        Some(min_value) if *value == 0.0 => min_value,
        _ => *value,
    };
    let repeats = |repeats: &Vec<f64>| repeats.iter().map(raise).collect();
    starts.iter().map(repeats).collect()
}

fn search_resolution(summary: &MeasurementSummary, tier: Tier) -> Option<f64> {
    let (_, record) = summary.search.as_ref()?.tiers().nth(tier.index())?;
    let capacity = record.capacity?;
    Some((capacity.high / capacity.value).max(capacity.value / capacity.low) - 1.0)
}

/// Returns half of the last printed digit, relative to the value. All values of a unit are assumed to have as
/// many decimals as the one with the most. If the unit has too few values, all values are used.
fn print_resolution(figures: &MetricValues, metric: Metric) -> Option<f64> {
    let value = metrics::metric_value(figures, metric)?;
    let decimals_of = |is_alike: &dyn Fn(Metric) -> bool| -> Vec<u32> {
        let alike = Metric::all().filter(|other| is_printed_by_tools(*other) && is_alike(*other));
        alike
            .filter_map(|other| metrics::metric_value(figures, other))
            .map(decimals)
            .collect()
    };
    let mut decimal_counts = decimals_of(&|other| other.unit() == metric.unit());
    if decimal_counts.len() < MIN_PRINTED_FIGURES {
        decimal_counts = decimals_of(&|_| true);
    }
    let decimals = decimal_counts.into_iter().max()?;
    (decimals < COMPUTED_DECIMALS && value > 0.0).then(|| 0.5 * 0.1f64.powi(decimals as i32) / value)
}

/// Whether benchmark tools print the values of a metric, so that their decimals show how they were rounded. We
/// compute shares ourselves.
fn is_printed_by_tools(metric: Metric) -> bool {
    metric.unit() != Unit::Share
}

/// Returns the decimals of the shortest notation of a number.
fn decimals(value: f64) -> u32 {
    let written = value.to_string();
    written
        .split_once('.')
        .map_or(0, |(_, decimals)| decimals.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::metrics::{LatencyKind, Quantity, Statistic};

    const OUTPUT: Metric = Metric::Throughput(Quantity::Output);

    fn printed(figures: &[(Metric, f64)]) -> Option<f64> {
        let figures: MetricValues = figures
            .iter()
            .map(|(metric, value)| (metric.name(), Some(*value)))
            .collect();
        print_resolution(&figures, OUTPUT)
    }

    #[test]
    fn figures_of_one_unit_share_their_decimals_and_what_was_computed_is_exact() {
        let total = Metric::Throughput(Quantity::Total);
        let share = |figures: &[(Metric, f64)]| printed(figures).unwrap_or(0.0);
        assert!((share(&[(OUTPUT, 50.0), (total, 103.25)]) - 0.0001).abs() < 1e-12);
        assert!((share(&[(OUTPUT, 50.0), (total, 103.0)]) - 0.01).abs() < 1e-12);
        // Times have another unit. They are used if the unit itself has too few values.
        let (ttft, peak) = (
            Metric::Time(Statistic::Median, LatencyKind::Ttft),
            Metric::PeakOutput,
        );
        let three = [(OUTPUT, 50.0), (total, 103.0), (peak, 60.0), (ttft, 12.345)];
        assert!((share(&three) - 0.01).abs() < 1e-12);
        assert!((share(&[(OUTPUT, 50.0), (ttft, 12.345)]) - 0.00001).abs() < 1e-12);
        assert_eq!(printed(&[(OUTPUT, 50.123_456_789)]), None);
        assert_eq!(printed(&[]), None);
    }
}
