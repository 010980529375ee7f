//! The columns that tables share, and the values of a cell in them.

use super::report_cell::{ReportCell, is_burst, is_unknown, metric_value, status_in_words};
use super::units::in_percent;
use crate::analysis::compare::percentile;
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, Statistic};
use crate::report::table::Value;
use crate::report::table::{Align, Column};
use crate::results::record::provenance::UnknownFact;

/// A metric column: metric, heading, digits after the point, and rank.
pub(super) type MetricColumn<'h> = (Metric, &'h str, usize, u8);

const fn time(statistic: Statistic, sample: LatencyKind) -> Metric {
    Metric::Time(statistic, sample)
}

/// The figures of comparison tables and of the tables per engine.
pub(super) const FIGURES: [MetricColumn<'static>; 14] = [
    (Metric::Duration, "duration", 1, 6),
    (Metric::Throughput(Quantity::Requests), "requests", 2, 3),
    (Metric::Throughput(Quantity::Output), "output", 1, 0),
    (Metric::Throughput(Quantity::Total), "total", 1, 6),
    (Metric::PerDevice(Quantity::Output), "output per GPU", 1, 2),
    (time(Statistic::Mean, LatencyKind::Ttft), "TTFT mean", 1, 1),
    (time(Statistic::Median, LatencyKind::Ttft), "TTFT p50", 1, 5),
    (time(Statistic::P99, LatencyKind::Ttft), "TTFT p99", 1, 2),
    (time(Statistic::Mean, LatencyKind::Tpot), "TPOT mean", 2, 1),
    (time(Statistic::P99, LatencyKind::Tpot), "TPOT p99", 2, 4),
    (time(Statistic::Mean, LatencyKind::Itl), "ITL mean", 2, 4),
    (time(Statistic::P99, LatencyKind::Itl), "ITL p99", 2, 5),
    (time(Statistic::Mean, LatencyKind::E2e), "E2E mean", 1, 3),
    (time(Statistic::P99, LatencyKind::E2e), "E2E p99", 1, 5),
];

/// The figures of the overview; energy is added if a cell has it.
const OVERVIEW_FIGURES: [MetricColumn<'static>; 4] = [
    (Metric::Throughput(Quantity::Requests), "requests", 2, 2),
    (Metric::Throughput(Quantity::Output), "output", 1, 0),
    (time(Statistic::Mean, LatencyKind::Ttft), "TTFT mean", 1, 1),
    (time(Statistic::Mean, LatencyKind::Tpot), "TPOT mean", 2, 1),
];

/// Output tokens per joule.
const fn energy_column(rank: u8) -> MetricColumn<'static> {
    (Metric::PerEnergy(Quantity::Output), "energy", 3, rank)
}

/// Figures of a comparison that only some scenarios have.
const OPTIONAL_FIGURES: [MetricColumn<'static>; 7] = [
    (Metric::AudioThroughput, "RTFx", 2, 1),
    (Metric::PerUser, "output per user", 1, 5),
    (Metric::Goodput, "goodput", 2, 2),
    (Metric::Attainment, "SLO attainment", 4, 1),
    (Metric::CorrectShare, "correct", 4, 2),
    energy_column(3),
    (Metric::MeanPower, "power", 0, 3),
];

/// The figures of a comparison: [`FIGURES`], and those of [`OPTIONAL_FIGURES`] that any cell has.
pub(super) fn comparison_columns(group: &[&ReportCell<'_>]) -> Vec<MetricColumn<'static>> {
    let also = OPTIONAL_FIGURES
        .into_iter()
        .filter(|measured| has_value(group, measured));
    meaningful_columns(group, FIGURES).chain(also).collect()
}

/// Filters out TTFT if all cells send bursts: their time to the first token is the wait in the engine's
/// queue.
pub(super) fn meaningful_columns<'h>(
    group: &[&ReportCell<'_>],
    measured: impl IntoIterator<Item = MetricColumn<'h>>,
) -> impl Iterator<Item = MetricColumn<'h>> {
    let has_ttft = !group.iter().all(|cell| is_burst(cell));
    let is_ttft = |metric: &Metric| matches!(metric, Metric::Time(_, LatencyKind::Ttft));
    measured
        .into_iter()
        .filter(move |(metric, ..)| has_ttft || !is_ttft(metric))
}

/// The figures of the overview of these cells.
pub(super) fn overview_columns(group: &[&ReportCell<'_>]) -> Vec<MetricColumn<'static>> {
    let also = [energy_column(1)]
        .into_iter()
        .filter(|measured| has_value(group, measured));
    meaningful_columns(group, OVERVIEW_FIGURES).chain(also).collect()
}

fn has_value(group: &[&ReportCell<'_>], measured: &MetricColumn<'_>) -> bool {
    group.iter().any(|cell| !cell.values(measured.0).is_empty())
}

/// The columns of the client's own error.
pub(super) fn client_error_columns() -> [Column; 2] {
    ["TTFT ±", "ITL ±"].map(|head| column(head, "ms", Align::Right, 5))
}

/// The client's error in TTFT and ITL: 99 of 100 of its timestamps lie within it; the worst of several
/// measurements.
pub(super) fn client_error(cell: &ReportCell<'_>) -> [Value; 2] {
    [0, 1].map(|place| {
        let errors = cell.completed().filter_map(|summary| summary.client?.error_ms());
        let worst = errors.map(|errors| errors[place]).max_by(f64::total_cmp);
        worst.map_or(Value::Missing, |value| Value::Number { value, decimals: 2 })
    })
}

/// A left-aligned column without a unit.
pub(super) fn text_column(head: &str, rank: u8) -> Column {
    column(head, "", Align::Left, rank)
}

/// A right-aligned column without a unit.
pub(super) fn number_column(head: &str, rank: u8) -> Column {
    column(head, "", Align::Right, rank)
}

pub(super) fn metric_columns(measured: &[MetricColumn<'_>]) -> impl Iterator<Item = Column> {
    measured.iter().map(|(metric, head, _, rank)| Column {
        better: metric.direction(),
        ..column(head, shown_unit(*metric), Align::Right, *rank)
    })
}

/// The unit in tables: shares of requests are read in percent.
fn shown_unit(metric: Metric) -> &'static str {
    match metric {
        Metric::Attainment | Metric::CorrectShare => "%",
        other => other.unit().symbol(),
    }
}

pub(super) fn metric_values(
    cell: &ReportCell<'_>,
    measured: &[MetricColumn<'_>],
) -> impl Iterator<Item = Value> {
    measured
        .iter()
        .map(|(metric, _, decimals, _)| match shown_unit(*metric) {
            "%" => in_percent(metric_cell(cell, *metric, *decimals)),
            _ => metric_cell(cell, *metric, *decimals),
        })
}

/// The value of a figure. A percentile with few requests beyond it is rough, one with fewer than one is
/// missing. A burst has no TTFT.
fn metric_cell(report_cell: &ReportCell<'_>, metric: Metric, decimals: usize) -> Value {
    if matches!(metric, Metric::Time(_, LatencyKind::Ttft)) && is_burst(report_cell) {
        return Value::Missing;
    }
    let value = report_cell.value_with_range(metric, decimals);
    match sample_size(report_cell, metric) {
        SampleSize::TooFew => Value::Missing,
        SampleSize::Few if value != Value::Missing => Value::Approximate(Box::new(value)),
        SampleSize::Few | SampleSize::Enough => value,
    }
}

/// Whether a cell has requests beyond a percentile, so that it is shown.
pub(crate) fn has_percentile(cell: &ReportCell<'_>, metric: Metric) -> bool {
    sample_size(cell, metric) != SampleSize::TooFew
}

/// How many requests lie beyond a percentile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SampleSize {
    /// Enough, or the metric is no percentile.
    Enough,
    Few,
    /// Fewer than one, so the percentile would be the largest value.
    TooFew,
}

/// Whether the measurements of a cell have enough requests for a metric; the smallest measurement decides.
pub(super) fn sample_size(cell: &ReportCell<'_>, metric: Metric) -> SampleSize {
    let counts = cell
        .counted_summaries()
        .filter_map(|summary| metric_value(summary, Metric::Completed));
    let fewest = counts.fold(f64::INFINITY, f64::min);
    match percentile::observations_beyond(metric, fewest) {
        Some(beyond) if beyond < 1.0 => SampleSize::TooFew,
        // Rounding tolerates a few failures among a thousand requests.
        Some(beyond) if beyond.round() < percentile::MIN_OBSERVATIONS_BEYOND => SampleSize::Few,
        _ => SampleSize::Enough,
    }
}

/// The columns that describe a row, after its name.
pub(super) fn identity_columns() -> [Column; 5] {
    [
        text_column("precision", 4),
        text_column("tp", 3),
        number_column("GPUs", 1),
        text_column("status", 0),
        number_column("ok/failed", 1),
    ]
}

/// The values of the columns of [`identity_columns`].
pub(super) fn identity_values(cell: &ReportCell<'_>) -> [Value; 5] {
    let precision = cell.launch.precision.as_deref();
    [
        precision.map_or(Value::Missing, Value::text),
        match is_unknown(cell, UnknownFact::Tp) {
            true => Value::Missing,
            false => Value::Text(parallelism(cell)),
        },
        match is_unknown(cell, UnknownFact::Gpus) {
            true => Value::Missing,
            false => Value::Count(u64::from(cell.launch.gpus().unwrap_or(0))),
        },
        Value::Text(status_in_words(cell)),
        requests_value(cell),
    ]
}

fn parallelism(cell: &ReportCell<'_>) -> String {
    let parallel = cell.launch.parallel;
    let mut words = parallel.tp.to_string();
    for (name, size) in [("pp", parallel.pp), ("dp", parallel.dp), ("ep", parallel.ep)] {
        if size > 1 {
            words.push_str(&format!(" {name}{size}"));
        }
    }
    words
}

/// Completed and failed requests of all measurements together, unfinished measurements included.
fn requests_value(cell: &ReportCell<'_>) -> Value {
    let total = |metric| {
        let values: Vec<f64> = cell
            .summaries
            .iter()
            .filter_map(|summary| metric_value(summary, metric))
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>())
    };
    match (total(Metric::Completed), total(Metric::Failed)) {
        (Some(completed), Some(failed)) => {
            let cancelled = total(Metric::Cancelled)
                .map_or_else(String::new, |cancelled| format!(" ({cancelled:.0} cancelled)"));
            Value::Text(format!("{completed:.0}/{failed:.0}{cancelled}"))
        }
        _ => Value::Missing,
    }
}

fn column(head: &str, unit: &'static str, align: Align, rank: u8) -> Column {
    Column {
        head: head.to_owned(),
        unit,
        align,
        better: None,
        rank,
    }
}
