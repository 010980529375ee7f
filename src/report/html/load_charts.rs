//! Charts of the loads of a scenario: output per GPU against interactivity, and latency against the load.

use crate::report::chart::{Axis, AxisKind, Chart, Line, Plot, PlotLimit, PlotPoint, StrokeStyle};
use crate::report::document::{Document, LoadCurve, OperatingPoint, Tradeoff};
use crate::results::record::validity::Verdict;

/// Charts of output per GPU against interactivity, with the frontier. Invalid points are left out of charts.
pub(crate) fn tradeoff_charts(document: &Document) -> Vec<Chart> {
    let drawn = document
        .tradeoffs
        .iter()
        .filter(|tradeoff| tradeoff.points.len() > 1);
    drawn.map(tradeoff_chart).collect()
}

fn tradeoff_chart(tradeoff: &Tradeoff) -> Chart {
    let valid = tradeoff
        .points
        .iter()
        .filter(|point| point.validity < Verdict::Invalid);
    let points = valid.map(|point| (point.engine.as_str(), plot_point(point)));
    let mut lines = lines_by_engine(points);
    // Where a load has no winner, the line would show one.
    if tradeoff.has_winners {
        lines.extend(frontier_line(&tradeoff.points));
    }
    let [x, y] = output_axes(tradeoff.is_per_gpu);
    let limit = tradeoff.slo_tok_s.map(|value| PlotLimit {
        is_of_x: true,
        value,
        label: format!("SLO: {value:.0} tok/s per user"),
    });
    Chart::Plot(Plot {
        title: tradeoff.title.clone(),
        x,
        y,
        lines,
        window: None,
        events: Vec::new(),
        limits: limit.into_iter().collect(),
    })
}

/// The axes of interactivity and of output per GPU.
pub(super) fn output_axes(is_per_gpu: bool) -> [Axis; 2] {
    let output = match is_per_gpu {
        true => "output per GPU",
        false => "output of the engine",
    };
    [
        ("interactivity, 1 / mean TPOT", "tok/s per user"),
        (output, "tok/s"),
    ]
    .map(|(label, unit)| Axis {
        label: label.to_owned(),
        unit,
        kind: AxisKind::FromZero,
    })
}

/// Charts of latencies against the load, with the limits of the SLO.
pub(crate) fn load_charts(document: &Document) -> Vec<Chart> {
    document.load_curves.iter().map(load_chart).collect()
}

fn load_chart(curve: &LoadCurve) -> Chart {
    let statistic = if curve.is_p99 { "p99" } else { "median" };
    let valid = curve
        .points
        .iter()
        .filter(|point| point.validity < Verdict::Invalid);
    let points = valid.map(|point| {
        let dot = PlotPoint {
            x: point.load,
            y: point.latency_ms,
            is_doubtful: point.validity > Verdict::Valid,
            ..PlotPoint::default()
        };
        (point.engine.as_str(), dot)
    });
    let (label, unit) = match curve.is_rate {
        true => ("rate", "req/s"),
        false => ("requests at once", ""),
    };
    let limit = curve.slo_ms.map(|value| PlotLimit {
        is_of_x: false,
        value,
        label: format!("SLO: {} ms", (value * 10.0).round() / 10.0),
    });
    Chart::Plot(Plot {
        title: format!("{} · {statistic} {}", curve.title, curve.latency),
        x: Axis {
            label: label.to_owned(),
            unit,
            kind: AxisKind::FromZero,
        },
        y: Axis {
            label: format!("{statistic} {}", curve.latency),
            unit: "ms",
            kind: AxisKind::FromZero,
        },
        lines: lines_by_engine(points),
        window: None,
        events: Vec::new(),
        limits: limit.into_iter().collect(),
    })
}

/// A line for each engine, in the order of first appearance.
fn lines_by_engine<'p>(points: impl Iterator<Item = (&'p str, PlotPoint)>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for (engine, point) in points {
        match lines.iter_mut().find(|line| line.name == engine) {
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                name: engine.to_owned(),
                color: lines.len(),
                style: StrokeStyle::LineWithMarkers,
                points: vec![point],
                breaks: Vec::new(),
            }),
        }
    }
    lines
}

fn plot_point(point: &OperatingPoint) -> PlotPoint {
    let range = |axis: usize| {
        let values = point.starts.iter().map(|start| start[axis]);
        let least = values.clone().fold(f64::INFINITY, f64::min);
        [least, values.fold(f64::NEG_INFINITY, f64::max)]
    };
    PlotPoint {
        x: point.interactivity_tok_s,
        y: point.output_tok_s,
        tooltip: point.load.clone(),
        label: load_number(&point.load),
        ranges: (point.starts.len() > 1).then(|| [range(0), range(1)]),
        is_doubtful: point.validity > Verdict::Valid,
        ..PlotPoint::default()
    }
}

/// The number in the words of a load, or its first word.
fn load_number(load: &str) -> String {
    let mut words = load.split_whitespace();
    let number = words
        .clone()
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    number.or_else(|| words.next()).unwrap_or_default().to_owned()
}

fn frontier_line(points: &[OperatingPoint]) -> Option<Line> {
    let mut best: Vec<&OperatingPoint> = points.iter().filter(|point| point.is_on_frontier).collect();
    best.sort_by(|a, b| a.interactivity_tok_s.total_cmp(&b.interactivity_tok_s));
    (best.len() > 1).then(|| Line {
        name: "frontier of the means".to_owned(),
        color: 0,
        style: StrokeStyle::Background,
        points: best.into_iter().map(plot_point).collect(),
        breaks: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_labelled_by_its_number() {
        assert_eq!(load_number("at most 16 at once"), "16");
        assert_eq!(load_number("4 req/s"), "4");
        assert_eq!(load_number("all at once"), "all");
        assert_eq!(load_number(""), "");
    }

    #[test]
    fn the_range_of_the_starts_is_drawn_and_one_start_has_none() {
        let mut point = OperatingPoint {
            engine: "a".to_owned(),
            load: "4 req/s".to_owned(),
            interactivity_tok_s: 10.0,
            output_tok_s: 100.0,
            starts: vec![[9.0, 105.0], [11.0, 95.0]],
            is_partial: false,
            validity: Verdict::Valid,
            is_on_frontier: true,
        };
        assert_eq!(plot_point(&point).ranges, Some([[9.0, 11.0], [95.0, 105.0]]));
        point.starts.pop();
        assert_eq!(plot_point(&point).ranges, None);
    }
}
