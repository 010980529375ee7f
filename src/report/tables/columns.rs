//! The columns that tables share, and the values of a cell in them.

use super::{Shown, Value, lacks, status, value_of};
use crate::analysis::compare::gates::Load;
use crate::analysis::compare::percentile;
use crate::analysis::metrics::{Flow, Metric, Sample, Statistic};
use crate::report::{Align, Column};
use crate::results::record::provenance::Unknown;
use crate::results::record::search::SearchEnding;

/// A metric column: metric, heading, digits after the point, and rank.
pub(super) type Measured<'h> = (Metric, &'h str, usize, u8);

const fn time(statistic: Statistic, sample: Sample) -> Metric {
    Metric::Time(statistic, sample)
}

/// The figures of comparison tables and of the tables per engine.
pub(super) const FIGURES: [Measured<'static>; 14] = [
    (Metric::Duration, "duration", 1, 6),
    (Metric::Throughput(Flow::Requests), "requests", 2, 3),
    (Metric::Throughput(Flow::Output), "output", 1, 0),
    (Metric::Throughput(Flow::Total), "total", 1, 6),
    (Metric::PerDevice(Flow::Output), "output per GPU", 1, 2),
    (time(Statistic::Mean, Sample::Ttft), "TTFT mean", 1, 1),
    (time(Statistic::Median, Sample::Ttft), "TTFT p50", 1, 5),
    (time(Statistic::P99, Sample::Ttft), "TTFT p99", 1, 2),
    (time(Statistic::Mean, Sample::Tpot), "TPOT mean", 2, 1),
    (time(Statistic::P99, Sample::Tpot), "TPOT p99", 2, 4),
    (time(Statistic::Mean, Sample::Itl), "ITL mean", 2, 4),
    (time(Statistic::P99, Sample::Itl), "ITL p99", 2, 5),
    (time(Statistic::Mean, Sample::E2e), "E2E mean", 1, 3),
    (time(Statistic::P99, Sample::E2e), "E2E p99", 1, 5),
];

/// The figures of the overview; energy is added if a cell has it.
const FEW_FIGURES: [Measured<'static>; 4] = [
    (Metric::Throughput(Flow::Requests), "requests", 2, 2),
    (Metric::Throughput(Flow::Output), "output", 1, 0),
    (time(Statistic::Mean, Sample::Ttft), "TTFT mean", 1, 1),
    (time(Statistic::Mean, Sample::Tpot), "TPOT mean", 2, 1),
];

/// Output tokens per joule.
const fn energy(rank: u8) -> Measured<'static> {
    (Metric::PerEnergy(Flow::Output), "energy", 3, rank)
}

/// Figures of a comparison that only some scenarios have.
const ALSO: [Measured<'static>; 5] = [
    (Metric::PerUser, "output per user", 1, 5),
    (Metric::Goodput, "goodput", 2, 2),
    (Metric::Attainment, "SLO attainment", 4, 3),
    energy(3),
    (Metric::MeanPower, "power", 0, 3),
];

/// The figures of a comparison: [`FIGURES`], and those of [`ALSO`] that any cell has.
pub(super) fn known(group: &[&Shown<'_>]) -> Vec<Measured<'static>> {
    let also = ALSO.into_iter().filter(|measured| is_known(group, measured));
    shown_of(group, FIGURES).chain(also).collect()
}

/// Filters out TTFT if all cells send bursts: their time to the first token is the wait in the engine's
/// queue.
pub(super) fn shown_of<'h>(
    group: &[&Shown<'_>],
    measured: impl IntoIterator<Item = Measured<'h>>,
) -> impl Iterator<Item = Measured<'h>> {
    let is_burst = |one: &&Shown<'_>| Load::of(&one.cell.scenario) == Load::Burst;
    let has_ttft = !group.iter().all(is_burst);
    let is_ttft = |metric: &Metric| matches!(metric, Metric::Time(_, Sample::Ttft));
    measured
        .into_iter()
        .filter(move |(metric, ..)| has_ttft || !is_ttft(metric))
}

/// The figures of the overview of these cells.
pub(super) fn few(group: &[&Shown<'_>]) -> Vec<Measured<'static>> {
    let also = [energy(1)]
        .into_iter()
        .filter(|measured| is_known(group, measured));
    shown_of(group, FEW_FIGURES).chain(also).collect()
}

fn is_known(group: &[&Shown<'_>], measured: &Measured<'_>) -> bool {
    group.iter().any(|one| !one.values(measured.0).is_empty())
}

/// The columns of the client's own error.
pub(super) fn client() -> [Column; 2] {
    ["TTFT ±", "ITL ±"].map(|head| column(head, "ms", Align::Right, 5))
}

/// The client's error in TTFT and ITL: 99 of 100 of its timestamps lie within it; the worst of several
/// measurements.
pub(super) fn client_error(shown: &Shown<'_>) -> [Value; 2] {
    [0, 1].map(|place| {
        let errors = shown.done().filter_map(|summary| summary.client?.error_ms());
        let worst = errors.map(|errors| errors[place]).max_by(f64::total_cmp);
        worst.map_or(Value::Missing, |value| Value::Number { value, decimals: 2 })
    })
}

/// A left-aligned column without a unit.
pub(super) fn words(head: &str, rank: u8) -> Column {
    column(head, "", Align::Left, rank)
}

/// A right-aligned column without a unit.
pub(super) fn numbers(head: &str, rank: u8) -> Column {
    column(head, "", Align::Right, rank)
}

pub(super) fn figures(measured: &[Measured<'_>]) -> impl Iterator<Item = Column> {
    measured.iter().map(|(metric, head, _, rank)| Column {
        better: metric.better(),
        ..column(head, metric.unit().symbol(), Align::Right, *rank)
    })
}

pub(super) fn values(shown: &Shown<'_>, measured: &[Measured<'_>]) -> impl Iterator<Item = Value> {
    measured
        .iter()
        .map(|(metric, _, decimals, _)| value(shown, *metric, *decimals))
}

/// The value of a figure. A percentile with few requests beyond it is rough, one with fewer than one is
/// missing. A burst has no TTFT.
fn value(shown: &Shown<'_>, metric: Metric, decimals: usize) -> Value {
    if matches!(metric, Metric::Time(_, Sample::Ttft)) && Load::of(&shown.cell.scenario) == Load::Burst {
        return Value::Missing;
    }
    let value = shown.spread(metric, decimals);
    match sampled(shown, metric) {
        Sampled::TooFew => Value::Missing,
        Sampled::Few if value != Value::Missing => Value::Rough(Box::new(value)),
        Sampled::Few | Sampled::Enough => value,
    }
}

/// How many requests lie beyond a percentile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sampled {
    /// Enough, or the metric is no percentile.
    Enough,
    Few,
    /// Fewer than one, so the percentile would be the largest value.
    TooFew,
}

/// Whether the measurements of a cell have enough requests for a metric; the smallest measurement decides.
pub(super) fn sampled(shown: &Shown<'_>, metric: Metric) -> Sampled {
    let counts = shown
        .counted()
        .filter_map(|summary| value_of(summary, Metric::Completed));
    let fewest = counts.fold(f64::INFINITY, f64::min);
    match percentile::beyond(metric, fewest) {
        Some(beyond) if beyond < 1.0 => Sampled::TooFew,
        // Rounding tolerates a few failures among a thousand requests.
        Some(beyond) if beyond.round() < percentile::BEYOND => Sampled::Few,
        _ => Sampled::Enough,
    }
}

/// The columns that describe a row, after its name.
pub(super) fn identity() -> [Column; 5] {
    [
        words("precision", 4),
        words("tp", 3),
        numbers("GPUs", 1),
        words("status", 0),
        numbers("ok/failed", 1),
    ]
}

/// The values of the columns of [`identity`].
pub(super) fn identified(shown: &Shown<'_>) -> [Value; 5] {
    let precision = shown.launch.precision.as_deref();
    [
        precision.map_or(Value::Missing, Value::text),
        match lacks(shown, Unknown::Tp) {
            true => Value::Missing,
            false => Value::Text(parallel(shown)),
        },
        match lacks(shown, Unknown::Gpus) {
            true => Value::Missing,
            false => Value::Count(u64::from(shown.launch.gpus().unwrap_or(0))),
        },
        Value::Text(status(shown)),
        requests(shown),
    ]
}

/// Whether any of the cells searches.
pub(super) fn searches(group: &[&Shown<'_>]) -> bool {
    group.iter().any(|one| one.cell.scenario.search.is_some())
}

pub(super) fn found() -> Column {
    words("highest that holds the SLO", 0)
}

/// The results of a cell's searches: the value with its attainment, and whether the limit was bracketed.
pub(super) fn found_by(shown: &Shown<'_>) -> Value {
    let found: Vec<String> = shown
        .summaries
        .iter()
        .filter_map(|summary| summary.search.as_ref())
        .map(|record| {
            let what = match record.found.zip(record.attainment) {
                Some((found, attainment)) => {
                    let due = record
                        .found_due()
                        .map_or_else(String::new, |due| format!(", {due:.2} fell due"));
                    format!("{found} {}{due} ({:.2} %)", record.by.unit(), attainment * 100.0)
                }
                None => "none".to_owned(),
            };
            match record.ending {
                SearchEnding::Bracketed => match record.failed_above() {
                    Some(failed) => format!("{what}; above it {failed}"),
                    None => what,
                },
                _ => format!("{what}, not bracketed"),
            }
        })
        .collect();
    match found.is_empty() {
        true => Value::Missing,
        false => Value::Text(found.join("; ")),
    }
}

fn parallel(shown: &Shown<'_>) -> String {
    let parallel = shown.launch.parallel;
    let mut words = parallel.tp.to_string();
    for (name, size) in [("pp", parallel.pp), ("dp", parallel.dp), ("ep", parallel.ep)] {
        if size > 1 {
            words.push_str(&format!(" {name}{size}"));
        }
    }
    words
}

/// Completed and failed requests of all measurements together, unfinished measurements included.
fn requests(shown: &Shown<'_>) -> Value {
    let total = |metric| {
        let values: Vec<f64> = shown
            .summaries
            .iter()
            .filter_map(|summary| value_of(summary, metric))
            .collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>())
    };
    match (total(Metric::Completed), total(Metric::Failed)) {
        (Some(completed), Some(failed)) => Value::Text(format!("{completed:.0}/{failed:.0}")),
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
