//! What tokens cost: the price of the GPUs of an engine, and of the energy they take, for a million tokens.

use std::collections::BTreeSet;

use serde::Serialize;

use super::columns;
use super::report_cell::{ReportCell, is_unknown};
use crate::analysis::metrics::{Direction, Metric, Quantity};
use crate::config::prices::{Prices, StatedPrice};
use crate::plan::Launch;
use crate::report::table::{Column, Value};
use crate::results::record::cell::{MeasurementSummary, Origin};
use crate::results::record::machine::Machine;
use crate::results::record::provenance::UnknownFact;

const TOKENS: f64 = 1e6;
const SECONDS_PER_HOUR: f64 = 3600.0;
const JOULES_PER_KWH: f64 = 3.6e6;

/// The note on imported rows without costs.
pub(crate) const NO_IMPORTED_COSTS: &str = "no costs for imported rows without the number, the model and the price of their GPUs; \
    declare `gpus` and `gpu` in `FILE.import.yaml`";

/// The prices that apply to a cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CellPrices {
    gpu_hour: Option<StatedPrice>,
    kwh: Option<StatedPrice>,
    /// The name of the GPUs, if they have no price.
    unpriced: Option<String>,
}

/// What tokens of a cell cost at its load, in US dollars. The load of a search is the one that it found.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CellCost {
    /// Price of the GPUs for a million output tokens.
    pub(crate) output_usd_per_million: f64,
    /// Price of the GPUs for a million input and output tokens; absent if the throughput of both is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total_usd_per_million: Option<f64>,
    /// Price of the energy for a million output tokens; absent if energy was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) energy_usd_per_million: Option<f64>,
    /// The load that these hold for, if a search found it; absent for others, which hold for the load of their cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) load: Option<String>,
    /// The prices that these follow from, with source and date.
    pub(crate) prices: Vec<String>,
}

impl CellPrices {
    /// The prices of a cell that was measured on GPUs of this machine, or on those that its launch declares.
    pub(crate) fn new(
        prices: &Prices,
        launch: &Launch,
        machine: &Machine,
        summaries: &[&MeasurementSummary],
    ) -> Self {
        let is_imported = summaries.iter().any(|summary| summary.imported.is_some());
        let gpu = match launch.place.settings().declared_gpu() {
            Some(declared) => Some(declared.to_owned()),
            // It was measured elsewhere.
            None if is_imported => None,
            None => gpu_name(machine, summaries),
        };
        let gpu_hour = prices.gpu_hour(gpu.as_deref());
        Self {
            unpriced: gpu.filter(|_| gpu_hour.is_none()),
            gpu_hour,
            kwh: prices.kwh(),
        }
    }
}

/// The name of the GPUs that were measured; `None` if they differ or are unknown.
fn gpu_name(machine: &Machine, summaries: &[&MeasurementSummary]) -> Option<String> {
    let mut names: Vec<&str> = Vec::new();
    for summary in summaries {
        let host = summary.machine.as_deref().unwrap_or(machine);
        let telemetry = summary.telemetry.iter();
        let used: Vec<u32> = telemetry
            .flat_map(|telemetry| telemetry.gpus.iter().map(|gpu| gpu.device))
            .collect();
        let known = host.devices.iter();
        names.extend(
            known
                .filter(|gpu| used.is_empty() || used.contains(&gpu.device))
                .map(|gpu| gpu.name.as_str()),
        );
    }
    let first = *names.first()?;
    names.iter().all(|name| *name == first).then(|| first.to_owned())
}

/// The number of GPUs of a cell; `None` without GPUs or if their number is unknown.
fn known_gpus(cell: &ReportCell<'_>) -> Option<u32> {
    let gpus = cell.launch.gpus().filter(|gpus| *gpus > 0)?;
    (!is_unknown(cell, UnknownFact::Gpus)).then_some(gpus)
}

/// What tokens of a cell cost; `None` without GPUs, without their price, or without a throughput.
pub(crate) fn cell_cost(cell: &ReportCell<'_>) -> Option<CellCost> {
    let gpus = known_gpus(cell)?;
    let price = cell.prices.gpu_hour.as_ref()?;
    let per_second = f64::from(gpus) * price.dollars / SECONDS_PER_HOUR;
    let per_million = |throughput: Quantity| {
        let tok_s = cell
            .value(Metric::Throughput(throughput))
            .filter(|tok_s| *tok_s > 0.0)?;
        Some(per_second / tok_s * TOKENS)
    };
    let energy = cell.prices.kwh.as_ref().and_then(|kwh| {
        let joules = cell.value(Metric::EnergyPer(Quantity::Output))?;
        Some((joules * TOKENS / JOULES_PER_KWH * kwh.dollars, kwh))
    });
    let mut prices = vec![price.origin.clone()];
    prices.extend(energy.map(|(_, kwh)| kwh.origin.clone()));
    Some(CellCost {
        output_usd_per_million: per_million(Quantity::Output)?,
        total_usd_per_million: per_million(Quantity::Total),
        energy_usd_per_million: energy.map(|(cost, _)| cost),
        load: found_load(cell),
        prices,
    })
}

/// The load that a search found by measuring it, such as `6 requests at once`: its figures, and so its cost, are of this load. Its capacity lies
/// at it or above. `None` without a search.
fn found_load(cell: &ReportCell<'_>) -> Option<String> {
    let searches = cell
        .counted_summaries()
        .filter_map(|summary| summary.search.as_ref());
    let found: Vec<(f64, &str)> = searches
        .filter_map(|record| Some((record.found?, record.by.unit())))
        .collect();
    let unit = found.first()?.1;
    let values = || found.iter().map(|(value, _)| *value);
    let (least, most) = (
        values().fold(f64::INFINITY, f64::min),
        values().fold(0.0, f64::max),
    );
    Some(match least < most {
        true => format!("{least} to {most} {unit}"),
        false => format!("{least} {unit}"),
    })
}

/// The columns of costs, if a cell of the group has one.
pub(super) fn cost_columns(group: &[&ReportCell<'_>]) -> Vec<Column> {
    let costs: Vec<CellCost> = group.iter().filter_map(|cell| cell_cost(cell)).collect();
    let column = |head: &str, rank| Column {
        unit: "$/M tok",
        better: Some(Direction::Lower),
        ..columns::number_column(head, rank)
    };
    let mut columns = Vec::new();
    if !costs.is_empty() {
        columns.extend([column("cost of output", 1), column("cost of all tokens", 4)]);
    }
    if costs.iter().any(|cost| cost.energy_usd_per_million.is_some()) {
        columns.push(column("energy of output", 4));
    }
    columns
}

/// The values of a cell in as many columns of costs.
pub(super) fn cost_values(cell: &ReportCell<'_>, columns: usize) -> impl Iterator<Item = Value> {
    let cost = cell_cost(cell);
    let values = [
        cost.as_ref().map(|cost| cost.output_usd_per_million),
        cost.as_ref().and_then(|cost| cost.total_usd_per_million),
        cost.as_ref().and_then(|cost| cost.energy_usd_per_million),
    ];
    let drawn = values.map(|value| match value {
        None => Value::Missing,
        Some(value) => Value::Number {
            value,
            decimals: decimals(value),
        },
    });
    drawn.into_iter().take(columns)
}

/// The notes that name the prices behind costs, and the GPUs that lack a price.
pub(super) fn price_notes(group: &[&ReportCell<'_>]) -> Vec<String> {
    let mut prices: Vec<String> = Vec::new();
    for price in group
        .iter()
        .filter_map(|cell| cell_cost(cell))
        .flat_map(|cost| cost.prices)
    {
        if !prices.contains(&price) {
            prices.push(price);
        }
    }
    let mut notes = Vec::new();
    if !prices.is_empty() {
        notes.push(format!(
            "costs apply at the load of their row and use these prices: {}",
            prices.join("; ")
        ));
    }
    let loads = group
        .iter()
        .filter_map(|cell| Some((cell.engine(), found_load(cell)?)));
    let loads: Vec<String> = loads
        .map(|(engine, load)| format!("{load} for {engine}"))
        .collect();
    if !loads.is_empty() {
        notes.push(format!(
            "figures and costs of a search are those at the highest load that met the SLO when it was measured: {}; the capacity is this load or more",
            loads.join(", ")
        ));
    }
    let is_imported = |cell: &&&ReportCell<'_>| cell.origin() == Origin::Imported;
    if group
        .iter()
        .any(|cell| is_imported(&cell) && cell_cost(cell).is_none())
    {
        notes.push(NO_IMPORTED_COSTS.to_owned());
    }
    let has_price = |cell: &&&ReportCell<'_>| cell.prices.gpu_hour.is_some();
    if group
        .iter()
        .any(|cell| has_price(&cell) && !is_imported(&cell) && known_gpus(cell).is_none())
    {
        notes.push("no costs for engines without GPUs, or with an unknown number of them, although the matrix has a price".to_owned());
    }
    let unpriced: BTreeSet<&str> = group
        .iter()
        .filter(|cell| known_gpus(cell).is_some())
        .filter_map(|cell| cell.prices.unpriced.as_deref())
        .collect();
    notes.extend(unpriced.into_iter().map(|gpu| {
        format!(
            "no costs on {gpu}: the list of prices does not contain this GPU; add it to `matrices/prices.yaml`, or set `price: {{ gpu_hour: DOLLARS }}` in the matrix"
        )
    }));
    notes
}

/// Dollars with three significant digits, at least cents.
pub(crate) fn dollars(value: f64) -> String {
    format!("${value:.*}", decimals(value))
}

fn decimals(value: f64) -> usize {
    match value > 0.0 {
        true => (2 - value.log10().floor() as i32).clamp(2, 6) as usize,
        false => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ExecutorSpec;
    use crate::report::testing::Case;
    use crate::results::record::cell::Definitions;
    use crate::results::record::telemetry::Gpu;

    fn priced(case: &Case, matrix: &str) -> Option<CellCost> {
        let prices = Prices {
            matrix: serde_json::from_str(matrix).unwrap(),
            ..Prices::default()
        };
        let mut cell = case.report_cell();
        cell.prices = CellPrices::new(&prices, cell.launch, &Machine::default(), &cell.summaries);
        cell_cost(&cell)
    }

    #[test]
    fn a_million_tokens_cost_the_hours_of_all_gpus_that_they_take() {
        // Four GPUs at 2.70 $ are 0.003 $ a second. At 1500 tok/s a million tokens take 666.67 s.
        let mut case = Case::new("a", "bf16", 4, 1500.0);
        let cost = priced(&case, r#"{"gpu_hour": 2.7, "kwh": 0.09}"#).unwrap();
        assert!((cost.output_usd_per_million - 2.0).abs() < 1e-12, "{cost:?}");
        // Input and output together are 2.1 times the output.
        assert!(
            (cost.total_usd_per_million.unwrap() - 2.0 / 2.1).abs() < 1e-12,
            "{cost:?}"
        );
        assert_eq!(cost.energy_usd_per_million, None, "energy was not measured");
        assert_eq!(cost.prices, ["$2.7 per GPU-hour, the price in the matrix file"]);
        // Half a joule for a token is 0.1389 kWh for a million.
        let figures = case.summaries[0].figures.get_mut(&Definitions::Matrix).unwrap();
        figures.insert(Metric::EnergyPer(Quantity::Output).name(), Some(0.5));
        let cost = priced(&case, r#"{"gpu_hour": 2.7, "kwh": 0.09}"#).unwrap();
        assert!(
            (cost.energy_usd_per_million.unwrap() - 0.0125).abs() < 1e-12,
            "{cost:?}"
        );
        assert_eq!(cost.prices.len(), 2);
        assert_eq!(priced(&case, "{}"), None, "no price, no cost");
        assert_eq!(
            priced(&Case::new("a", "bf16", 0, 1500.0), r#"{"gpu_hour": 2.7}"#),
            None
        );
    }

    /// A file of another tool may name the GPUs, or its user declares them: those of this machine are others.
    #[test]
    fn declared_gpus_have_the_price_of_the_list() {
        let list = serde_json::from_str(
            r#"{"gpus": [{"gpu": "H100", "hour": 3.6, "date": "2026-11-28", "source": "s"}], "energy": null}"#,
        );
        let prices = Prices {
            list: list.unwrap(),
            ..Prices::default()
        };
        let cost_on = |declared: Option<&str>| {
            let mut case = Case::new("a", "bf16", 4, 1000.0);
            case.launch.place = ExecutorSpec::Imported(
                serde_json::from_value(serde_json::json!({ "image": "", "package": null, "gpu": declared }))
                    .unwrap(),
            );
            case.summaries[0].origin = Origin::Imported;
            case.summaries[0].imported = Some(
                serde_json::from_value(serde_json::json!({ "tool": "aiperf", "file": "f", "line": 1 }))
                    .unwrap(),
            );
            let machine = Machine {
                devices: vec![Gpu {
                    name: "NVIDIA H100".to_owned(),
                    ..Gpu::default()
                }],
                ..Machine::default()
            };
            let mut cell = case.report_cell();
            cell.prices = CellPrices::new(&prices, cell.launch, &machine, &cell.summaries);
            (
                cell_cost(&cell).map(|cost| cost.output_usd_per_million),
                price_notes(&[&cell]),
            )
        };
        // Four GPUs at 3.60 $ are 0.004 $ a second: 4 $ for a million tokens at 1000 tok/s.
        let (cost, _) = cost_on(Some("NVIDIA H100 80GB HBM3"));
        assert!((cost.unwrap() - 4.0).abs() < 1e-9, "{cost:?}");
        let (cost, notes) = cost_on(None);
        assert_eq!((cost, notes), (None, vec![NO_IMPORTED_COSTS.to_owned()]));
    }

    #[test]
    fn the_name_of_the_gpus_is_that_of_all() {
        let gpu = |device, name: &str| Gpu {
            device,
            name: name.to_owned(),
            ..Gpu::default()
        };
        let machine = |names: &[&str]| Machine {
            devices: names
                .iter()
                .zip(0..)
                .map(|(name, device)| gpu(device, name))
                .collect(),
            ..Machine::default()
        };
        let case = Case::new("a", "bf16", 1, 1.0);
        let summaries: Vec<&MeasurementSummary> = case.summaries.iter().collect();
        let name = |names: &[&str]| gpu_name(&machine(names), &summaries);
        assert_eq!(
            name(&["NVIDIA H100", "NVIDIA H100"]).as_deref(),
            Some("NVIDIA H100")
        );
        assert_eq!(
            name(&["NVIDIA H100", "NVIDIA A100"]),
            None,
            "either may have been used"
        );
        assert_eq!(name(&[]), None);
    }

    #[test]
    fn dollars_have_three_digits_and_at_least_cents() {
        let texts = [0.001_234, 0.0456, 0.312, 2.0, 31.4, 1234.5].map(dollars);
        assert_eq!(
            texts,
            ["$0.00123", "$0.0456", "$0.312", "$2.00", "$31.40", "$1234.50"]
        );
    }
}
