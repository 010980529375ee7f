//! Charts of metrics over nightly runs.

use super::components::Key;
use crate::analysis::compare::time_series::{Series, TurnKind};
use crate::analysis::metrics::Better;
use crate::base::date;
use crate::report::chart::{Axis, Dot, Kind, Line, Look, Picture, Plot, Turn, TurnLook, sample, turn_sample};
use crate::report::comparison::percent;
use crate::report::history;

/// Maximum number of nightly runs with a marker for each.
const MARKED: usize = 120;

/// The chart of a series; `None` if it has no nightly runs or one of them has no valid time.
pub(super) fn picture(series: &Series, title: &str) -> Option<Picture> {
    let days: Vec<f64> = series
        .nights
        .iter()
        .map(|night| date::days(&night.at))
        .collect::<Option<_>>()?;
    if days.is_empty() {
        return None;
    }
    let lines = [
        Some(levels(series, &days)),
        baseline(series, &days),
        Some(figure(series, &days)),
    ];
    Some(Picture::Plot(Plot {
        title: title.to_owned(),
        x: Axis {
            label: "night".to_owned(),
            unit: "",
            kind: Kind::Dates,
        },
        y: Axis {
            label: String::new(),
            unit: series.metric.unit().symbol(),
            kind: Kind::Around,
        },
        lines: lines.into_iter().flatten().collect(),
        window: None,
        turns: turns(series, &days),
    }))
}

/// The legend of lines and marks, the same for all charts.
pub(super) fn legend() -> Vec<Key> {
    let line = |line: Line| (sample(&line), line.name);
    let lines = [
        line(drawn("the figure", FIGURE, Look::Marked, Vec::new(), Vec::new())),
        line(drawn(
            "its level between changes",
            FIGURE,
            Look::Behind,
            Vec::new(),
            Vec::new(),
        )),
        line(drawn(
            "the baseline of the night",
            BASELINE,
            Look::Line,
            Vec::new(),
            Vec::new(),
        )),
    ];
    let turns = [
        (TurnLook::Worse, "level changed for the worse"),
        (TurnLook::Better, "level changed for the better"),
        (
            TurnLook::Cut,
            "machine or prompts changed: what lies before is something else",
        ),
        (TurnLook::Note, "engine changed, or baseline moved"),
        (TurnLook::Gap, "failed, invalid or not measured"),
    ];
    let turns = turns.map(|(look, name)| (turn_sample(look), name.to_owned()));
    let keys = lines.into_iter().chain(turns);
    keys.map(|(sample, name)| Key::new(sample, &name)).collect()
}

const FIGURE: usize = 0;
const BASELINE: usize = 6;

fn drawn(name: &str, color: usize, look: Look, points: Vec<Dot>, breaks: Vec<usize>) -> Line {
    Line {
        name: name.to_owned(),
        color,
        look,
        points,
        breaks,
    }
}

fn dot(x: f64, y: f64, note: String) -> Dot {
    Dot {
        x,
        y,
        note,
        is_doubtful: false,
    }
}

fn figure(series: &Series, days: &[f64]) -> Line {
    let nights = series.nights.iter().zip(days);
    let points = nights.map(|(night, day)| dot(*day, night.value, history::starts(night.starts)));
    let look = if days.len() <= MARKED {
        Look::Marked
    } else {
        Look::Line
    };
    drawn(
        &series.metric.label(),
        FIGURE,
        look,
        points.collect(),
        broken(series),
    )
}

/// Indices at which the line of a figure is interrupted: after runs without the figure, and at cuts,
/// whose two sides are not comparable.
fn broken(series: &Series) -> Vec<usize> {
    let gaps = series.gaps.iter().map(|gap| gap.before);
    let cuts = series.turns.iter().filter(|turn| turn.kind == TurnKind::Cut);
    let mut breaks: Vec<usize> = gaps.chain(cuts.map(|turn| turn.at)).collect();
    breaks.retain(|at| *at < series.nights.len());
    breaks.sort_unstable();
    breaks.dedup();
    breaks
}

fn levels(series: &Series, days: &[f64]) -> Line {
    let (mut points, mut breaks) = (Vec::new(), Vec::new());
    for [from, to] in series.levels() {
        let nights = &series.nights[from..to];
        if nights.len() < 2 {
            continue;
        }
        let logs: f64 = nights.iter().map(|night| night.value.ln()).sum();
        let level = (logs / nights.len() as f64).exp();
        breaks.extend((!points.is_empty()).then_some(points.len()));
        points.extend([days[from], days[to - 1]].map(|day| dot(day, level, String::new())));
    }
    drawn("level", FIGURE, Look::Behind, points, breaks)
}

/// The baseline level of each nightly run, interrupted where it changed.
fn baseline(series: &Series, days: &[f64]) -> Option<Line> {
    let mut last = None;
    let (mut points, mut breaks) = (Vec::new(), Vec::new());
    for (night, day) in series.nights.iter().zip(days) {
        if night.baseline.is_some() && night.baseline != last && !points.is_empty() {
            breaks.push(points.len());
        }
        last = night.baseline;
        points.extend(last.map(|value| dot(*day, value, String::new())));
    }
    (points.len() > 1).then(|| drawn("baseline", BASELINE, Look::Line, points, breaks))
}

fn turns(series: &Series, days: &[f64]) -> Vec<Turn> {
    let gaps = series.gaps.iter().filter_map(|gap| {
        Some(Turn {
            x: date::days(&gap.at)?,
            look: TurnLook::Gap,
            label: String::new(),
            title: gap.why.clone(),
        })
    });
    let turns = series.turns.iter().map(|turn| Turn {
        x: days[turn.at],
        look: match turn.kind {
            TurnKind::Cut => TurnLook::Cut,
            TurnKind::Host | TurnKind::Engine | TurnKind::Baseline => TurnLook::Note,
        },
        label: String::new(),
        title: turn.what.clone(),
    });
    let changes = series.changes.iter().map(|step| {
        let is_better = (step.change > 0.0) == (series.metric.better() != Some(Better::Lower));
        Turn {
            x: days[step.at],
            look: if is_better {
                TurnLook::Better
            } else {
                TurnLook::Worse
            },
            label: percent(step.change),
            title: history::told(series, step),
        }
    });
    let mut turns: Vec<Turn> = gaps.chain(turns).chain(changes).collect();
    turns.sort_by(|a, b| a.x.total_cmp(&b.x));
    turns
}
