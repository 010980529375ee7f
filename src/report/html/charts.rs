//! Chooses the charts of a report's page.

use crate::analysis::metrics::{Flow, Metric};
use crate::report::chart::{Axis, Bar, Bars, Dot, Kind, Line, Look, Picture, Plot};
use crate::report::document::{CellFacts, Comparison, Document, Operating, Quantity, Series, unit};
use crate::results::record::validity::Verdict;

/// The name of a cell away from its neighbours.
pub(super) fn name_of(document: &Document, cell: &CellFacts) -> String {
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
pub(super) fn of_comparison(document: &Document, comparison: &Comparison) -> Vec<Picture> {
    let placed: Vec<(&str, &CellFacts)> = comparison
        .rows
        .iter()
        .filter_map(|row| Some((row.name.as_str(), document.cells.get(row.cell)?)))
        .collect();
    let names = unequal(&placed);
    let named: Vec<(&str, &CellFacts)> = names
        .iter()
        .zip(&placed)
        .map(|(name, (_, cell))| (name.as_str(), *cell))
        .collect();
    let mut pictures = Vec::new();
    let shown = [
        Metric::of_name(&comparison.figure),
        Some(Metric::Throughput(Flow::Output)),
        Some(Metric::PerDevice(Flow::Output)),
    ];
    let mut drawn = Vec::new();
    for metric in shown.into_iter().flatten() {
        // If every engine has one GPU, both charts would be equal.
        let is_new = |picture: &Picture| {
            let Picture::Bars(bars) = picture else { return true };
            let values: Vec<u64> = bars.rows.iter().map(|bar| bar.value.to_bits()).collect();
            !drawn.contains(&values)
        };
        if let Some(picture) = bars(&named, metric, true).filter(is_new) {
            if let Picture::Bars(bars) = &picture {
                drawn.push(bars.rows.iter().map(|bar| bar.value.to_bits()).collect());
            }
            pictures.push(picture);
        }
    }
    for latency in ["TTFT", "TPOT", "ITL", "E2E"] {
        pictures.extend(distribution(&named, latency));
    }
    let is_repeated = |(_, cell): &(&str, &CellFacts)| {
        let figure = cell.figure(Metric::Throughput(Flow::Output));
        figure.is_some_and(|figure| figure.values.len() > 1)
    };
    if named.iter().any(is_repeated) {
        pictures.extend(bars(&named, Metric::Throughput(Flow::Output), false));
    }
    pictures
}

/// Adds precision and number of GPUs to names if they differ, since bars side by side are read as a
/// comparison.
fn unequal(named: &[(&str, &CellFacts)]) -> Vec<String> {
    let differs = |told: &dyn Fn(&CellFacts) -> Option<String>| {
        named.iter().any(|(_, cell)| told(cell) != told(named[0].1))
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

fn bars(named: &[(&str, &CellFacts)], metric: Metric, has_bars: bool) -> Option<Picture> {
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
    let label = capitalised(&metric.label());
    let title = match has_bars {
        true => label,
        false => format!("{label}, each measurement"),
    };
    (!rows.is_empty()).then_some(Picture::Bars(Bars {
        title,
        unit: unit(&metric.name()),
        has_bars,
        rows,
    }))
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

fn distribution(named: &[(&str, &CellFacts)], latency: &str) -> Option<Picture> {
    let line = |(color, (name, cell)): (usize, &(&str, &CellFacts))| {
        let found = cell
            .distributions
            .iter()
            .find(|distribution| distribution.latency == latency)?;
        let point = |[value, share]: &[f64; 2]| Dot {
            x: *value,
            y: *share,
            note: format!("{} % of values", share * 100.0),
            is_doubtful: false,
        };
        Some(Line {
            name: (*name).to_owned(),
            color,
            look: Look::Line,
            points: found.points.iter().map(point).collect(),
            breaks: Vec::new(),
        })
    };
    let lines: Vec<Line> = named.iter().enumerate().filter_map(line).collect();
    (!lines.is_empty()).then(|| {
        Picture::Plot(Plot {
            title: format!("{latency}, distribution"),
            x: Axis {
                label: latency.to_owned(),
                unit: "ms",
                kind: Kind::Ratio,
            },
            y: Axis {
                label: "share of values".to_owned(),
                unit: "",
                kind: Kind::Share,
            },
            lines,
            window: None,
            turns: Vec::new(),
        })
    })
}

/// Charts of output per user against output per GPU, with the frontier.
pub(super) fn tradeoffs(document: &Document) -> Vec<Picture> {
    let drawn = document
        .tradeoffs
        .iter()
        .filter(|tradeoff| tradeoff.points.len() > 1);
    drawn
        .map(|tradeoff| {
            let mut lines: Vec<Line> = Vec::new();
            for point in &tradeoff.points {
                let dot = dot(point);
                match lines.iter_mut().find(|line| line.name == point.engine) {
                    Some(line) => line.points.push(dot),
                    None => lines.push(Line {
                        name: point.engine.clone(),
                        color: lines.len(),
                        look: Look::Marked,
                        points: vec![dot],
                        breaks: Vec::new(),
                    }),
                }
            }
            lines.extend(frontier(&tradeoff.points));
            let axis = |label: &str| Axis {
                label: label.to_owned(),
                unit: "tok/s",
                kind: Kind::FromZero,
            };
            Picture::Plot(Plot {
                title: tradeoff.title.clone(),
                x: axis("output per user"),
                y: axis(match tradeoff.is_per_gpu {
                    true => "output per GPU",
                    false => "output of the engine, which has no GPU",
                }),
                lines,
                window: None,
                turns: Vec::new(),
            })
        })
        .collect()
}

fn dot(point: &Operating) -> Dot {
    Dot {
        x: point.per_user_tok_s,
        y: point.output_tok_s,
        note: point.load.clone(),
        is_doubtful: point.validity > Verdict::Valid,
    }
}

fn frontier(points: &[Operating]) -> Option<Line> {
    let mut best: Vec<&Operating> = points.iter().filter(|point| point.is_on_frontier).collect();
    best.sort_by(|a, b| a.per_user_tok_s.total_cmp(&b.per_user_tok_s));
    (best.len() > 1).then(|| Line {
        name: "frontier".to_owned(),
        color: 0,
        look: Look::Behind,
        points: best.into_iter().map(dot).collect(),
        breaks: Vec::new(),
    })
}

/// Charts of a cell over time, one for each quantity.
pub(super) fn over_time(cell: &CellFacts) -> Vec<Picture> {
    let picture = |quantity: Quantity| {
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
            look: Look::Line,
            points: series
                .points
                .iter()
                .map(|[at, value]| Dot {
                    x: *at,
                    y: *value,
                    note: String::new(),
                    is_doubtful: false,
                })
                .collect(),
            breaks: Vec::new(),
        };
        (!of_quantity.is_empty()).then(|| {
            Picture::Plot(Plot {
                title: quantity.label().to_owned(),
                x: Axis {
                    label: "time".to_owned(),
                    unit: "s",
                    kind: Kind::FromZero,
                },
                y: Axis {
                    label: match quantity.unit() {
                        "" => "share".to_owned(),
                        _ => String::new(),
                    },
                    unit: quantity.unit(),
                    kind: match quantity {
                        Quantity::Utilisation | Quantity::KvUse => Kind::Share,
                        _ => Kind::FromZero,
                    },
                },
                lines: of_quantity.iter().enumerate().map(line).collect(),
                window: cell.window_s.map(|end| [0.0, end]),
                turns: Vec::new(),
            })
        })
    };
    Quantity::ALL.into_iter().filter_map(picture).collect()
}
