//! What searches found: the capacity for each tier of the SLO, with its interval, and their column in tables.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::columns;
use super::report_cell::{ReportCell, is_unknown};
use crate::analysis::capacity::capacity_over_starts;
use crate::analysis::metrics::Metric;
use crate::report::table::{Column, Value};
use crate::results::record::provenance::UnknownFact;
use crate::results::record::search::{Capacity, SearchRecord};

/// The capacity of a cell for a tier of the SLO, with the searches that it follows from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct TierCapacity {
    /// The limits of the tier, such as `ttft 200 ms`.
    pub(crate) slo: String,
    /// Required share of requests that meet them.
    pub(crate) target_share: f64,
    /// Name of the figure: `found_rate_req_s`, `found_concurrency_requests`, or the same of a further tier.
    pub(crate) figure: String,
    /// Unit of all values, in words.
    pub(crate) unit: String,
    /// The capacity of one start, or over three and more; absent with two starts, and where any start has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capacity: Option<CapacityInterval>,
    /// That capacity divided by the number of GPUs; absent without GPUs or if their number is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) per_gpu: Option<CapacityInterval>,
    /// The searches, in the order of starts.
    pub(crate) searches: Vec<SearchFacts>,
}

/// A capacity with its confidence interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CapacityInterval {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Confidence that the interval contains the capacity, as a share.
    pub(crate) confidence: f64,
    /// Number of starts that it contains the differences of; with one it holds for that start alone.
    pub(crate) starts: usize,
}

impl CapacityInterval {
    const fn new(capacity: Capacity, starts: usize) -> Self {
        Self {
            value: capacity.value,
            low: capacity.low,
            high: capacity.high,
            confidence: 1.0 - Capacity::ERROR,
            starts,
        }
    }

    fn divided_by(&self, divisor: f64) -> Self {
        Self {
            value: self.value / divisor,
            low: self.low / divisor,
            high: self.high / divisor,
            ..*self
        }
    }

    pub(crate) fn text(&self, unit: &str) -> String {
        let [value, low, high] = [self.value, self.low, self.high].map(significant);
        format!("{value} {unit} [{low} .. {high}]")
    }
}

/// The search on one start, for one tier.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SearchFacts {
    /// Index of the start, from 1.
    pub(crate) start: u32,
    /// Highest value that met the SLO, below all that failed.
    pub(crate) holds_at: Option<f64>,
    /// Lowest value that failed, above all that met the SLO.
    pub(crate) fails_at: Option<f64>,
    /// The capacity of this start; absent unless both ends are shown twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capacity: Option<CapacityInterval>,
    /// The result in a sentence.
    pub(crate) result: String,
    /// Failed requests at `fails_at`; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) failed_above: Option<String>,
    /// The load that is undecided, in words, if any is.
    #[serde(skip)]
    undecided: Option<String>,
}

impl SearchFacts {
    fn new(start: u32, record: &SearchRecord) -> Self {
        Self {
            start,
            holds_at: record.found,
            fails_at: record.fails_at,
            capacity: record.capacity.map(|capacity| CapacityInterval::new(capacity, 1)),
            result: record.describe(),
            failed_above: record.describe_failed_above(),
            undecided: record.describe_undecided_load(),
        }
    }

    fn text(&self, unit: &str, gpus: Option<f64>) -> String {
        let what = match (&self.capacity, self.holds_at) {
            (Some(capacity), _) => with_share(capacity, unit, gpus),
            (None, Some(found)) => {
                return format!("meets the SLO at {found} {unit}; the exact capacity was not found");
            }
            (None, None) => {
                return match &self.undecided {
                    Some(undecided) => format!("no load was shown to meet the SLO: {undecided}"),
                    None => "no load was shown to meet the SLO; the exact capacity was not found".to_owned(),
                };
            }
        };
        match &self.failed_above {
            Some(failed) => format!("{what}; above it {failed}"),
            None => what,
        }
    }
}

/// The capacities of a cell, one for each tier that was searched for; empty if it does not search.
pub(crate) fn tier_capacities(cell: &ReportCell<'_>) -> Vec<TierCapacity> {
    let slos = cell.cell.scenario.tiers().into_iter().enumerate();
    let of_tier = slos.filter_map(|(place, slo)| {
        let records = cell.summaries.iter().filter_map(|summary| {
            let (tier, record) = summary.search.as_ref()?.tiers().nth(place)?;
            Some((summary.start, tier, record))
        });
        let records: Vec<_> = records.collect();
        let (_, tier, first) = records.first()?;
        // The last search of a start counts.
        let by_start: BTreeMap<u32, &SearchRecord> = records
            .iter()
            .map(|(start, _, record)| (*start, *record))
            .collect();
        // The same starts as those of all other figures.
        let counted: BTreeSet<u32> = cell.counted_summaries().map(|summary| summary.start).collect();
        let capacity = shared_capacity(by_start.iter().filter_map(|(start, record)| {
            let is_counted = counted.is_empty() || counted.contains(start);
            is_counted.then_some(record.capacity)
        }));
        Some(TierCapacity {
            slo: slo.to_string(),
            target_share: first.target,
            figure: Metric::Found(first.by, *tier).name(),
            unit: first.by.unit().to_owned(),
            per_gpu: capacity
                .as_ref()
                .zip(gpus(cell))
                .map(|(capacity, gpus)| capacity.divided_by(gpus)),
            capacity,
            searches: by_start
                .into_iter()
                .map(|(start, record)| SearchFacts::new(start, record))
                .collect(),
        })
    });
    of_tier.collect()
}

/// The capacity of all starts together. Which starts have none depends on what they would have shown: the others alone are
/// no fair sample.
fn shared_capacity(searches: impl Iterator<Item = Option<Capacity>>) -> Option<CapacityInterval> {
    let capacities: Vec<Capacity> = searches.collect::<Option<_>>()?;
    let shared = match capacities[..] {
        [only] => only,
        _ => capacity_over_starts(&capacities)?,
    };
    Some(CapacityInterval::new(shared, capacities.len()))
}

fn gpus(cell: &ReportCell<'_>) -> Option<f64> {
    let gpus = cell
        .launch
        .gpus()
        .filter(|gpus| *gpus > 0 && !is_unknown(cell, UnknownFact::Gpus));
    gpus.map(f64::from)
}

/// Whether any of the cells searches.
pub(super) fn has_search(group: &[&ReportCell<'_>]) -> bool {
    group.iter().any(|cell| cell.cell.scenario.search.is_some())
}

pub(super) fn search_column() -> Column {
    columns::text_column("highest load that meets the SLO", 0)
}

/// The results of a cell's searches, by tier of the SLO: the capacity with its interval, of each start or, from three starts
/// on, over all of them; with the capacity of each GPU if there are several.
pub(super) fn search_value(cell: &ReportCell<'_>) -> Value {
    let tiers = tier_capacities(cell);
    // With one it would be the same number again.
    let gpus = gpus(cell).filter(|gpus| *gpus > 1.0);
    let has_several = cell.cell.scenario.tiers().len() > 1;
    let texts: Vec<String> = tiers
        .iter()
        .map(|tier| match has_several {
            true => format!("{}: {}", tier.slo, tier_text(tier, gpus)),
            false => tier_text(tier, gpus),
        })
        .collect();
    match texts.is_empty() {
        true => Value::Missing,
        false => Value::Text(texts.join("; ")),
    }
}

fn tier_text(tier: &TierCapacity, gpus: Option<f64>) -> String {
    match &tier.capacity {
        Some(capacity) if capacity.starts > 1 => {
            let text = with_share(capacity, &tier.unit, gpus);
            format!("{text} over {} starts", capacity.starts)
        }
        _ => {
            let texts: Vec<String> = tier
                .searches
                .iter()
                .map(|search| search.text(&tier.unit, gpus))
                .collect();
            match texts.as_slice() {
                [only] => only.clone(),
                several => {
                    let bracketed = tier
                        .searches
                        .iter()
                        .filter(|search| search.capacity.is_some())
                        .count();
                    let all = several.len();
                    format!(
                        "{bracketed} of {all} starts found the exact capacity: {}",
                        several.join(" | ")
                    )
                }
            }
        }
    }
}

/// The capacity with its interval, and that of each GPU if there are several.
fn with_share(capacity: &CapacityInterval, unit: &str, gpus: Option<f64>) -> String {
    let text = capacity.text(unit);
    match gpus {
        Some(gpus) => format!("{text}, {} per GPU", capacity.divided_by(gpus).text(unit)),
        None => text,
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

#[cfg(test)]
mod tests;
