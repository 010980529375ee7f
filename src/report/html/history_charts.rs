//! Charts of metrics over nightly runs.

use super::components::Key;
use crate::analysis::compare::time_series::{ContextChangeKind, Series};
use crate::analysis::metrics::Direction;
use crate::base::date;
use crate::report::chart::{
    Axis, AxisKind, Chart, Line, Plot, PlotEvent, PlotEventStyle, PlotPoint, StrokeStyle, event_sample,
    line_sample,
};
use crate::report::comparison::percent;
use crate::report::history;

/// Maximum number of nightly runs with a marker for each.
const MAX_MARKED_NIGHTS: usize = 120;

/// The chart of a series; `None` if it has no nightly runs or one of them has no valid time.
pub(super) fn series_chart(series: &Series, title: &str) -> Option<Chart> {
    let days: Vec<f64> = series
        .nights
        .iter()
        .map(|night| date::days_since_epoch(&night.at))
        .collect::<Option<_>>()?;
    if days.is_empty() {
        return None;
    }
    let lines = [
        Some(level_line(series, &days)),
        baseline_line(series, &days),
        Some(figure_line(series, &days)),
    ];
    Some(Chart::Plot(Plot {
        title: title.to_owned(),
        x: Axis {
            label: "date".to_owned(),
            unit: "",
            kind: AxisKind::Dates,
        },
        y: Axis {
            label: String::new(),
            unit: series.metric.unit().symbol(),
            kind: AxisKind::Around,
        },
        lines: lines.into_iter().flatten().collect(),
        window: None,
        events: plot_events(series, &days),
        limits: Vec::new(),
    }))
}

/// The legend of lines and marks, the same for all charts.
pub(super) fn legend() -> Vec<Key> {
    let line = |line: Line| (line_sample(&line), line.name);
    let lines = [
        line(new_line(
            "the figure",
            FIGURE_COLOR,
            StrokeStyle::LineWithMarkers,
            Vec::new(),
            Vec::new(),
        )),
        line(new_line(
            "its level between changes",
            FIGURE_COLOR,
            StrokeStyle::Background,
            Vec::new(),
            Vec::new(),
        )),
        line(new_line(
            "the baseline of the nightly run",
            BASELINE_COLOR,
            StrokeStyle::Line,
            Vec::new(),
            Vec::new(),
        )),
    ];
    let turns = [
        (PlotEventStyle::Worse, "from here on, values are worse"),
        (PlotEventStyle::Better, "from here on, values are better"),
        (
            PlotEventStyle::Break,
            "machine or prompts changed: earlier values are not comparable",
        ),
        (
            PlotEventStyle::Note,
            "the host, the engine or the baseline changed",
        ),
        (PlotEventStyle::MissingValue, "failed, invalid or not measured"),
    ];
    let turns = turns.map(|(style, name)| (event_sample(style), name.to_owned()));
    let keys = lines.into_iter().chain(turns);
    keys.map(|(sample, name)| Key::new(sample, &name)).collect()
}

const FIGURE_COLOR: usize = 0;
const BASELINE_COLOR: usize = 6;

fn new_line(
    name: &str,
    color: usize,
    style: StrokeStyle,
    points: Vec<PlotPoint>,
    breaks: Vec<usize>,
) -> Line {
    Line {
        name: name.to_owned(),
        color,
        style,
        points,
        breaks,
    }
}

fn plot_point(x: f64, y: f64, note: String) -> PlotPoint {
    PlotPoint {
        x,
        y,
        tooltip: note,
        ..PlotPoint::default()
    }
}

fn figure_line(series: &Series, days: &[f64]) -> Line {
    let nights = series.nights.iter().zip(days);
    let points =
        nights.map(|(night, day)| plot_point(*day, night.value, history::starts_in_words(night.starts)));
    let style = if days.len() <= MAX_MARKED_NIGHTS {
        StrokeStyle::LineWithMarkers
    } else {
        StrokeStyle::Line
    };
    new_line(
        &series.metric.label(),
        FIGURE_COLOR,
        style,
        points.collect(),
        break_indices(series),
    )
}

/// Indices at which the line of a figure is interrupted: after runs without the figure, and at cuts,
/// whose two sides are not comparable.
fn break_indices(series: &Series) -> Vec<usize> {
    let gaps = series.gaps.iter().map(|gap| gap.index);
    let cuts = series
        .context_changes
        .iter()
        .filter(|change| change.kind == ContextChangeKind::SeriesBreak);
    let mut breaks: Vec<usize> = gaps.chain(cuts.map(|change| change.index)).collect();
    breaks.retain(|at| *at < series.nights.len());
    breaks.sort_unstable();
    breaks.dedup();
    breaks
}

fn level_line(series: &Series, days: &[f64]) -> Line {
    let (mut points, mut breaks) = (Vec::new(), Vec::new());
    for [from, to] in series.level_ranges() {
        let nights = &series.nights[from..to];
        if nights.len() < 2 {
            continue;
        }
        let logs: f64 = nights.iter().map(|night| night.value.ln()).sum();
        let level = (logs / nights.len() as f64).exp();
        breaks.extend((!points.is_empty()).then_some(points.len()));
        points.extend([days[from], days[to - 1]].map(|day| plot_point(day, level, String::new())));
    }
    new_line("level", FIGURE_COLOR, StrokeStyle::Background, points, breaks)
}

/// The baseline level of each nightly run, interrupted where it changed.
fn baseline_line(series: &Series, days: &[f64]) -> Option<Line> {
    let mut last = None;
    let (mut points, mut breaks) = (Vec::new(), Vec::new());
    for (night, day) in series.nights.iter().zip(days) {
        if night.baseline.is_some() && night.baseline != last && !points.is_empty() {
            breaks.push(points.len());
        }
        last = night.baseline;
        points.extend(last.map(|value| plot_point(*day, value, String::new())));
    }
    (points.len() > 1).then(|| new_line("baseline", BASELINE_COLOR, StrokeStyle::Line, points, breaks))
}

fn plot_events(series: &Series, days: &[f64]) -> Vec<PlotEvent> {
    let gaps = series.gaps.iter().filter_map(|gap| {
        Some(PlotEvent {
            x: date::days_since_epoch(&gap.at)?,
            style: PlotEventStyle::MissingValue,
            label: String::new(),
            title: gap.reason.clone(),
        })
    });
    let turns = series.context_changes.iter().map(|change| PlotEvent {
        x: days[change.index],
        style: match change.kind {
            ContextChangeKind::SeriesBreak => PlotEventStyle::Break,
            ContextChangeKind::Host | ContextChangeKind::Engine | ContextChangeKind::Baseline => {
                PlotEventStyle::Note
            }
        },
        label: String::new(),
        title: change.text.clone(),
    });
    let changes = series.changes.iter().map(|step| {
        let is_better = (step.change > 0.0) == (series.metric.direction() != Some(Direction::Lower));
        PlotEvent {
            x: days[step.index],
            style: if is_better {
                PlotEventStyle::Better
            } else {
                PlotEventStyle::Worse
            },
            label: percent(step.change),
            title: history::level_change_in_words(series, step),
        }
    });
    let mut turns: Vec<PlotEvent> = gaps.chain(turns).chain(changes).collect();
    turns.sort_by(|a, b| a.x.total_cmp(&b.x));
    turns
}
