//! Charts of the index of a site: output per GPU against interactivity, and figures over dates.

use super::load_charts::output_axes;
use crate::analysis::metrics::Metric;
use crate::report::chart::{
    Axis, AxisKind, Chart, Line, Plot, PlotEvent, PlotEventStyle, PlotPoint, StrokeStyle,
};
use crate::report::site::frontier::{Frontier, LoadPoint, VersionCurve};
use crate::report::site::history::{Moment, MomentFigure, SiteSeries};
use crate::results::record::validity::Verdict;

/// Number of points with a marker in a chart over dates; earlier ones are only part of the line.
const MAX_MARKED: usize = 50;

/// The chart of a frontier, with a line for each version.
pub(super) fn frontier_chart(frontier: &Frontier) -> Chart {
    let line = |(color, version): (usize, &VersionCurve)| Line {
        name: version.version.clone(),
        color,
        style: StrokeStyle::LineWithMarkers,
        points: version.points.iter().map(load_point).collect(),
        breaks: Vec::new(),
    };
    let [x, y] = output_axes(frontier.is_per_gpu);
    Chart::Plot(Plot {
        title: frontier.title.clone(),
        x,
        y,
        lines: frontier.versions.iter().enumerate().map(line).collect(),
        window: None,
        events: Vec::new(),
        limits: Vec::new(),
    })
}

fn load_point(point: &LoadPoint) -> PlotPoint {
    PlotPoint {
        x: point.interactivity_tok_s,
        y: point.output_tok_s,
        tooltip: point.provenance.clone(),
        is_doubtful: point.is_doubtful,
        link: point.page.clone(),
        ..PlotPoint::default()
    }
}

/// The chart of a figure over dates; `None` if fewer than two dates have it.
pub(super) fn history_chart(series: &SiteSeries<'_>, metric: Metric) -> Option<Chart> {
    let drawn: Vec<(&Moment<'_>, MomentFigure)> = series
        .moments
        .iter()
        .filter_map(|moment| Some((moment, moment.figure(metric)?)))
        .collect();
    if drawn.len() < 2 {
        return None;
    }
    let mut events: Vec<PlotEvent> = series
        .moments
        .iter()
        .filter(|moment| moment.is_invalid(metric))
        .map(|moment| event(moment.day, PlotEventStyle::MissingValue, &moment.provenance))
        .collect();
    let mut breaks = Vec::new();
    for (at, pair) in drawn.windows(2).enumerate() {
        let (before, after) = (pair[0].0, pair[1].0);
        let earlier = drawn[..=at].iter().map(|(moment, _)| *moment);
        if let Some(reason) = after.break_after(earlier) {
            breaks.push(at + 1);
            events.push(event(after.day, PlotEventStyle::Break, &reason));
        }
        if let (Some(earlier), Some(later)) = (&before.version, &after.version)
            && earlier != later
        {
            let change = format!("version {earlier} → {later}");
            events.push(event(after.day, PlotEventStyle::Note, &change));
        }
    }
    events.sort_by(|a, b| a.x.total_cmp(&b.x));
    Some(Chart::Plot(Plot {
        title: series.title.clone(),
        x: Axis {
            label: "date".to_owned(),
            unit: "",
            kind: AxisKind::Dates,
        },
        y: Axis {
            label: metric.label(),
            unit: metric.unit().symbol(),
            kind: AxisKind::Around,
        },
        lines: history_lines(&drawn, &breaks, metric),
        window: None,
        events,
        limits: Vec::new(),
    }))
}

/// The line of a figure. Of many dates only the newest have markers.
fn history_lines(drawn: &[(&Moment<'_>, MomentFigure)], breaks: &[usize], metric: Metric) -> Vec<Line> {
    let marked_from = drawn.len().saturating_sub(MAX_MARKED);
    let line = |style, part: &[(&Moment<'_>, MomentFigure)], from: usize| Line {
        name: metric.label(),
        color: 0,
        style,
        points: part
            .iter()
            .map(|(moment, figure)| moment_point(moment, *figure, metric))
            .collect(),
        breaks: breaks
            .iter()
            .filter_map(|at| at.checked_sub(from))
            .filter(|at| *at > 0 && *at < part.len())
            .collect(),
    };
    let marked = line(StrokeStyle::LineWithMarkers, &drawn[marked_from..], marked_from);
    match marked_from {
        0 => vec![marked],
        // Both parts share a point, so that nothing is missing between them.
        _ => vec![line(StrokeStyle::Line, &drawn[..=marked_from], 0), marked],
    }
}

fn moment_point(moment: &Moment<'_>, figure: MomentFigure, metric: Metric) -> PlotPoint {
    let mut words: Vec<String> = moment
        .version
        .iter()
        .map(|version| format!("version {version}"))
        .collect();
    words.push(moment.provenance.clone());
    words.extend(moment.starts_in_words(metric));
    PlotPoint {
        x: moment.day,
        y: figure.value,
        tooltip: words.join(", "),
        is_doubtful: figure.verdict > Verdict::Valid,
        link: moment.page.to_owned(),
        ..PlotPoint::default()
    }
}

fn event(day: f64, style: PlotEventStyle, title: &str) -> PlotEvent {
    PlotEvent {
        x: day,
        style,
        label: String::new(),
        title: title.to_owned(),
    }
}
