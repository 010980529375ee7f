//! The columns that tables share, and the values of a cell in them.

use std::collections::BTreeMap;

use super::report_cell::{ReportCell, is_unknown, metric_value, status_in_words};
use crate::analysis::capacity::capacity_over_starts;
use crate::analysis::compare::gates::Load;
use crate::analysis::compare::percentile;
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, Statistic};
use crate::config::scenario::Slo;
use crate::report::table::Value;
use crate::report::table::{Align, Column};
use crate::results::record::provenance::UnknownFact;
use crate::results::record::search::{Capacity, SearchRecord};

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
    (Metric::Attainment, "SLO attainment", 4, 3),
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
    let is_burst = |cell: &&ReportCell<'_>| Load::from_scenario(&cell.cell.scenario) == Load::Burst;
    let has_ttft = !group.iter().all(is_burst);
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
        ..column(head, metric.unit().symbol(), Align::Right, *rank)
    })
}

pub(super) fn metric_values(
    cell: &ReportCell<'_>,
    measured: &[MetricColumn<'_>],
) -> impl Iterator<Item = Value> {
    measured
        .iter()
        .map(|(metric, _, decimals, _)| metric_cell(cell, *metric, *decimals))
}

/// The value of a figure. A percentile with few requests beyond it is rough, one with fewer than one is
/// missing. A burst has no TTFT.
fn metric_cell(report_cell: &ReportCell<'_>, metric: Metric, decimals: usize) -> Value {
    if matches!(metric, Metric::Time(_, LatencyKind::Ttft))
        && Load::from_scenario(&report_cell.cell.scenario) == Load::Burst
    {
        return Value::Missing;
    }
    let value = report_cell.value_with_range(metric, decimals);
    match sample_size(report_cell, metric) {
        SampleSize::TooFew => Value::Missing,
        SampleSize::Few if value != Value::Missing => Value::Approximate(Box::new(value)),
        SampleSize::Few | SampleSize::Enough => value,
    }
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

/// Whether any of the cells searches.
pub(super) fn has_search(group: &[&ReportCell<'_>]) -> bool {
    group.iter().any(|cell| cell.cell.scenario.search.is_some())
}

pub(super) fn search_column() -> Column {
    text_column("highest that meets the SLO", 0)
}

/// The results of a cell's searches, by tier of the SLO: the capacity with its interval, of each start or, from three starts
/// on, over all of them; with the capacity of each GPU if there are several.
pub(super) fn search_value(cell: &ReportCell<'_>) -> Value {
    let slos = cell.cell.scenario.tiers();
    let of_tier = |(place, slo): (usize, &Slo)| {
        let records = cell.summaries.iter().filter_map(|summary| {
            let (_, record) = summary.search.as_ref()?.tiers().nth(place)?;
            Some((summary.start, record))
        });
        let text = tier_text(&records.collect::<Vec<_>>(), cell.launch.gpus())?;
        Some(match slos.len() {
            1 => text,
            _ => format!("{slo}: {text}"),
        })
    };
    let values: Vec<String> = slos.iter().enumerate().filter_map(of_tier).collect();
    match values.is_empty() {
        true => Value::Missing,
        false => Value::Text(values.join("; ")),
    }
}

/// The results of searches for one tier, with the starts that they were measured on. `None` without any.
fn tier_text(records: &[(u32, &SearchRecord)], gpus: Option<u32>) -> Option<String> {
    let gpus = gpus.filter(|gpus| *gpus > 1);
    let (_, first) = records.first()?;
    let capacities = records
        .iter()
        .filter_map(|(start, record)| Some((*start, record.capacity?)));
    let starts: BTreeMap<u32, Capacity> = capacities.collect();
    // Which starts have none depends on what they would have shown: the others alone are no fair sample.
    let is_complete = records.iter().all(|(_, record)| record.capacity.is_some());
    let starts: Vec<Capacity> = starts.into_values().collect();
    Some(match capacity_over_starts(&starts).filter(|_| is_complete) {
        Some(capacity) => {
            let text = capacity_text(&capacity, first.by.unit(), gpus);
            format!("{text} over {} starts", starts.len())
        }
        None => {
            let texts = records.iter().map(|(_, record)| search_text(record, gpus));
            texts.collect::<Vec<_>>().join("; ")
        }
    })
}

fn search_text(record: &SearchRecord, gpus: Option<u32>) -> String {
    let unit = record.by.unit();
    let what = match (&record.capacity, record.found) {
        (Some(capacity), _) => capacity_text(capacity, unit, gpus),
        (None, Some(found)) => return format!("holds at {found} {unit}, not bracketed"),
        (None, None) => return "none, not bracketed".to_owned(),
    };
    match record.describe_failed_above() {
        Some(failed) => format!("{what}; above it {failed}"),
        None => what,
    }
}

/// The capacity with its interval, and that of each GPU if there are several.
fn capacity_text(capacity: &Capacity, unit: &str, gpus: Option<u32>) -> String {
    let text = |scale: f64| {
        let [value, low, high] =
            [capacity.value, capacity.low, capacity.high].map(|value| significant(value / scale));
        format!("{value} {unit} [{low} .. {high}]")
    };
    match gpus {
        Some(gpus) => format!("{}, {} per GPU", text(1.0), text(f64::from(gpus))),
        None => text(1.0),
    }
}

/// Returns a number with four significant digits, without zeros at its end.
fn significant(value: f64) -> String {
    let decimals = (3 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
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
