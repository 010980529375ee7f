//! Chooses the charts of a report's page.

use crate::analysis::metrics::{Metric, Quantity};
use crate::report::chart::{Axis, AxisKind, Bar, Bars, Chart, Line, Plot, PlotPoint, StrokeStyle};
use crate::report::document::{CellFacts, ComparisonTable, Document, Series, SeriesQuantity, unit};
use crate::results::record::validity::Verdict;

/// The name of a cell away from its neighbours.
pub(super) fn cell_name(document: &Document, cell: &CellFacts) -> String {
    let name = format!("{} · {} · {}", cell.engine, cell.model, cell.scenario_in_full);
    let is_alike = |other: &&CellFacts| {
        let (a, b) = (*other, cell);
        (&a.engine, &a.model, &a.scenario_in_full) == (&b.engine, &b.model, &b.scenario_in_full)
    };
    // The key distinguishes cells that are equal in these words.
    match (
        document.runs.len(),
        document.cells.iter().filter(is_alike).count(),
    ) {
        (1, 1) => name,
        (1, _) => cell.cell.clone(),
        _ => format!("{}: {}", cell.run, cell.cell),
    }
}

/// Charts of a comparison: throughput, latency distributions, and the spread of repeats.
pub(super) fn comparison_charts(document: &Document, comparison: &ComparisonTable) -> Vec<Chart> {
    let placed: Vec<(&str, &CellFacts)> = comparison
        .rows
        .iter()
        .filter_map(|row| Some((row.name.as_str(), document.cells.get(row.cell)?)))
        .collect();
    let names = disambiguated_names(&placed);
    let named: Vec<(&str, &CellFacts)> = names
        .iter()
        .zip(&placed)
        .map(|(name, (_, cell))| (name.as_str(), *cell))
        .collect();
    let mut pictures = Vec::new();
    let shown = [
        Metric::from_name(&comparison.figure),
        Some(Metric::Throughput(Quantity::Output)),
        Some(Metric::PerDevice(Quantity::Output)),
    ];
    let mut drawn = Vec::new();
    for metric in shown.into_iter().flatten() {
        // If every engine has one GPU, both charts would be equal.
        let is_new = |picture: &Chart| {
            let Chart::Bars(bars) = picture else { return true };
            let values: Vec<u64> = bars.rows.iter().map(|bar| bar.value.to_bits()).collect();
            !drawn.contains(&values)
        };
        if let Some(picture) = bar_chart(&named, metric, true).filter(is_new) {
            if let Chart::Bars(bars) = &picture {
                drawn.push(bars.rows.iter().map(|bar| bar.value.to_bits()).collect());
            }
            pictures.push(picture);
        }
    }
    for latency in ["TTFT", "TPOT", "ITL", "E2E"] {
        pictures.extend(distribution_chart(&named, latency));
    }
    let is_repeated = |(_, cell): &(&str, &CellFacts)| {
        let figure = cell.figure(Metric::Throughput(Quantity::Output));
        figure.is_some_and(|figure| figure.values.len() > 1)
    };
    if named.iter().any(is_repeated) {
        pictures.extend(bar_chart(&named, Metric::Throughput(Quantity::Output), false));
    }
    pictures
}

/// Adds precision and number of GPUs to names if they differ, since bars side by side are read as a
/// comparison.
fn disambiguated_names(named: &[(&str, &CellFacts)]) -> Vec<String> {
    let differs = |fact: &dyn Fn(&CellFacts) -> Option<String>| {
        named.iter().any(|(_, cell)| fact(cell) != fact(named[0].1))
    };
    let precision = |cell: &CellFacts| cell.precision.clone();
    let gpus = |cell: &CellFacts| match cell.gpus? {
        1 => Some("1 GPU".to_owned()),
        several => Some(format!("{several} GPUs")),
    };
    let (by_precision, by_gpus) = (differs(&precision), differs(&gpus));
    let name = |(name, cell): &(&str, &CellFacts)| {
        let mut words = vec![(*name).to_owned()];
        words.extend(by_precision.then(|| precision(cell).unwrap_or_else(|| "precision ?".to_owned())));
        words.extend(by_gpus.then(|| gpus(cell).unwrap_or_else(|| "GPUs ?".to_owned())));
        words.join(" · ")
    };
    named.iter().map(name).collect()
}

fn bar_chart(named: &[(&str, &CellFacts)], metric: Metric, has_bars: bool) -> Option<Chart> {
    let bar = |(color, (name, cell)): (usize, &(&str, &CellFacts))| {
        let figure = cell.figure(metric)?;
        Some(Bar {
            name: (*name).to_owned(),
            color,
            value: figure.value,
            values: figure.values.clone(),
            is_doubtful: cell.validity > Verdict::Valid,
        })
    };
    let rows: Vec<Bar> = named.iter().enumerate().filter_map(bar).collect();
    let label = capitalize(&metric.label());
    let title = match has_bars {
        true => label,
        false => format!("{label}, each measurement"),
    };
    (!rows.is_empty()).then_some(Chart::Bars(Bars {
        title,
        unit: unit(&metric.name()),
        has_bars,
        rows,
    }))
}

fn capitalize(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

fn distribution_chart(named: &[(&str, &CellFacts)], latency: &str) -> Option<Chart> {
    let line = |(color, (name, cell)): (usize, &(&str, &CellFacts))| {
        let points = cell
            .distributions
            .iter()
            .find(|distribution| distribution.latency == latency)?;
        let point = |[value, share]: &[f64; 2]| PlotPoint {
            x: *value,
            y: *share,
            tooltip: format!("{} % of values", share * 100.0),
            ..PlotPoint::default()
        };
        Some(Line {
            name: (*name).to_owned(),
            color,
            style: StrokeStyle::Line,
            points: points.points.iter().map(point).collect(),
            breaks: Vec::new(),
        })
    };
    let lines: Vec<Line> = named.iter().enumerate().filter_map(line).collect();
    (!lines.is_empty()).then(|| {
        Chart::Plot(Plot {
            title: format!("{latency}, distribution"),
            x: Axis {
                label: latency.to_owned(),
                unit: "ms",
                kind: AxisKind::Ratio,
            },
            y: Axis {
                label: "share of values".to_owned(),
                unit: "",
                kind: AxisKind::Share,
            },
            lines,
            window: None,
            events: Vec::new(),
            limits: Vec::new(),
        })
    })
}

/// Charts of a cell over time, one for each quantity.
pub(super) fn time_series_charts(cell: &CellFacts) -> Vec<Chart> {
    let chart = |quantity: SeriesQuantity| {
        let of_quantity: Vec<&Series> = cell
            .series
            .iter()
            .filter(|series| series.quantity == quantity && !series.points.is_empty())
            .collect();
        let line = |(color, series): (usize, &&Series)| Line {
            name: match series.device {
                Some(device) => format!("GPU {device}"),
                None => format!("by the {}", series.source),
            },
            color,
            style: StrokeStyle::Line,
            points: series
                .points
                .iter()
                .map(|[at, value]| PlotPoint {
                    x: *at,
                    y: *value,
                    ..PlotPoint::default()
                })
                .collect(),
            breaks: Vec::new(),
        };
        (!of_quantity.is_empty()).then(|| {
            Chart::Plot(Plot {
                title: quantity.label().to_owned(),
                x: Axis {
                    label: "time".to_owned(),
                    unit: "s",
                    kind: AxisKind::FromZero,
                },
                y: Axis {
                    label: match quantity.unit() {
                        "" => "share".to_owned(),
                        _ => String::new(),
                    },
                    unit: quantity.unit(),
                    kind: match quantity {
                        SeriesQuantity::Utilisation | SeriesQuantity::KvUse => AxisKind::Share,
                        _ => AxisKind::FromZero,
                    },
                },
                lines: of_quantity.iter().enumerate().map(line).collect(),
                window: cell.window_s.map(|end| [0.0, end]),
                events: Vec::new(),
                limits: Vec::new(),
            })
        })
    };
    SeriesQuantity::ALL.into_iter().filter_map(chart).collect()
}
