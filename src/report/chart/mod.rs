//! Pictures of figures as SVG, drawn by our own writer: nothing to load, and the same figures give the same bytes.
//!
//! Colours are classes (`c0` to `c6`), so that the page decides them for light, dark and print; every line has a dash and a marker of
//! its own besides, and every mark a `<title>` with its values. What a picture shows is told by [`Picture::table`] too.

mod bars;
mod plot;
mod scale;
mod svg;

pub(crate) use scale::Kind;

use super::{Align, Column, Row, Table, Value};

/// Colours there are; the dashes and markers go on.
const COLORS: usize = 7;
const DASHES: usize = 4;
const MARKERS: usize = 6;

/// A picture, before it is drawn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Picture {
    /// A bar or a row of dots for each name.
    Bars(Bars),
    /// Lines or points between two axes.
    Plot(Plot),
}

/// A bar or a row of dots for each name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bars {
    pub title: String,
    /// The unit of its values; empty where they have none.
    pub unit: &'static str,
    /// Whether bars are drawn, from nothing on. Otherwise there are dots alone, and the axis begins where they do.
    pub has_bars: bool,
    /// Its rows, from the top.
    pub rows: Vec<Bar>,
}

/// A row of [`Bars`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    /// Whose value it is.
    pub name: String,
    /// Its place in the order of colours.
    pub color: usize,
    /// The value, such as the median of several.
    pub value: f64,
    /// Each of the values, if they are several.
    pub values: Vec<f64>,
    /// Whether there are doubts about it: it is drawn hollow.
    pub is_doubtful: bool,
}

/// Lines or points between two axes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plot {
    pub title: String,
    /// From left to right.
    pub x: Axis,
    /// From bottom to top.
    pub y: Axis,
    pub lines: Vec<Line>,
    /// From where to where on the x axis the ground is shaded.
    pub window: Option<[f64; 2]>,
    /// What happened at places of the x axis.
    pub turns: Vec<Turn>,
}

/// Something that happened at a place of the x axis of a [`Plot`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Turn {
    pub x: f64,
    pub look: TurnLook,
    /// What is written above it; empty for nothing.
    pub label: String,
    pub title: String,
}

/// How a [`Turn`] looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnLook {
    /// A broken line: what lies on either side cannot be held against each other.
    Cut,
    /// A line: from here on values are worse.
    Worse,
    /// A line: from here on values are better.
    Better,
    /// A fine dotted line: what the values are of changed.
    Note,
    /// A cross on the axis: there is no value.
    Gap,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    /// What lies on it.
    pub label: String,
    /// The unit of its values; empty where they have none.
    pub unit: &'static str,
    /// How values lie on it.
    pub kind: Kind,
}

/// A line of a [`Plot`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    /// What it is called.
    pub name: String,
    /// Its place in the order of colours, dashes and markers.
    pub color: usize,
    pub look: Look,
    /// Its points, in the order in which they are joined.
    pub points: Vec<Dot>,
    /// The points, by their position, that are not joined to the one before.
    pub breaks: Vec<usize>,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    Line,
    /// A line with a marker at every point.
    Marked,
    /// A broken line behind the others.
    Behind,
}

/// A point of a line.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dot {
    /// Its place from left to right.
    pub x: f64,
    /// Its place from bottom to top.
    pub y: f64,
    /// What is to be known of it besides.
    pub note: String,
    /// Whether there are doubts about it: its marker is hollow.
    pub is_doubtful: bool,
}

impl Picture {
    pub(crate) fn title(&self) -> &str {
        match self {
            Self::Bars(bars) => &bars.title,
            Self::Plot(plot) => &plot.title,
        }
    }

    /// The picture as SVG. Every text in it is escaped.
    pub(crate) fn svg(&self) -> String {
        match self {
            Self::Bars(bars) => bars::draw(bars),
            Self::Plot(plot) => plot::draw(plot),
        }
    }

    /// What stands beside the picture: for each line a sample of how it looks, as SVG, and its name. Rows of bars carry their names.
    pub(crate) fn legend(&self) -> Vec<(String, String)> {
        match self {
            Self::Plot(plot) if plot.lines.len() > 1 => {
                let sample = |line: &Line| (sample(line), line.name.clone());
                plot.lines.iter().map(sample).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The same in figures, for those who do not see it. A line of many points is told by its least, mean and most.
    pub(crate) fn table(&self) -> Table {
        match self {
            Self::Bars(bars) => bars_table(bars),
            Self::Plot(plot) if plot.x.kind == Kind::Dates => dated(plot),
            Self::Plot(plot)
                if plot.lines.iter().all(|line| line.look == Look::Line) && plot.x.unit == "s" =>
            {
                over_time(plot)
            }
            Self::Plot(plot) => points_table(plot),
        }
    }
}

/// How something that happened looks, as SVG, for a legend.
pub(crate) fn turn_sample(look: TurnLook) -> String {
    plot::turn_sample(look)
}

/// How a line looks, as SVG, for a legend.
pub(crate) fn sample(line: &Line) -> String {
    plot::sample(line)
}

fn column(head: &str, unit: &'static str, align: Align) -> Column {
    Column {
        head: head.to_owned(),
        unit,
        align,
        better: None,
        rank: 0,
    }
}

fn number(value: f64) -> Value {
    Value::Number {
        value,
        decimals: scale::decimals(value),
    }
}

fn row(cells: Vec<Value>) -> Row {
    Row {
        cells,
        marks: Vec::new(),
    }
}

fn bars_table(bars: &Bars) -> Table {
    let rows = bars.rows.iter().map(|bar| {
        let each: Vec<String> = bar.values.iter().map(|value| scale::text(*value)).collect();
        row(vec![
            Value::text(&bar.name),
            number(bar.value),
            match each.len() {
                0 | 1 => Value::Missing,
                _ => Value::Text(each.join(", ")),
            },
        ])
    });
    Table {
        title: bars.title.clone(),
        columns: vec![
            column("name", "", Align::Left),
            column("median", bars.unit, Align::Right),
            column("each measurement", bars.unit, Align::Left),
        ],
        rows: rows.collect(),
        notes: Vec::new(),
    }
}

fn points_table(plot: &Plot) -> Table {
    let rows = plot.lines.iter().flat_map(|line| {
        line.points.iter().map(|dot| {
            row(vec![
                Value::text(&line.name),
                Value::text(&dot.note),
                number(dot.x),
                number(dot.y),
            ])
        })
    });
    Table {
        title: plot.title.clone(),
        columns: vec![
            column("line", "", Align::Left),
            column("point", "", Align::Left),
            column(&plot.x.label, plot.x.unit, Align::Right),
            column(&plot.y.label, plot.y.unit, Align::Right),
        ],
        rows: rows.collect(),
        notes: Vec::new(),
    }
}

/// Moments that a table tells at most.
const MOMENTS: usize = 90;

/// A row for each moment, the last one first: the values of every line but those behind, and what happened.
fn dated(plot: &Plot) -> Table {
    let lines: Vec<&Line> = plot
        .lines
        .iter()
        .filter(|line| line.look != Look::Behind)
        .collect();
    let dots = lines.iter().flat_map(|line| &line.points);
    let turns = plot.turns.iter().map(|turn| turn.x);
    let mut moments: Vec<f64> = dots.map(|dot| dot.x).chain(turns).collect();
    moments.sort_by(|a, b| b.total_cmp(a));
    moments.dedup();
    let rows = moments.iter().take(MOMENTS).map(|x| {
        let happened = plot.turns.iter().filter(|turn| turn.x == *x);
        let happened: Vec<&str> = happened.map(|turn| turn.title.as_str()).collect();
        let value = |line: &&Line| {
            let dot = line.points.iter().find(|dot| dot.x == *x);
            dot.map_or(Value::Missing, |dot| number(dot.y))
        };
        let first = [Value::Text(scale::moment(*x))].into_iter();
        let told = match happened[..] {
            [] => Value::Missing,
            _ => Value::Text(happened.join("; ")),
        };
        row(first.chain(lines.iter().map(value)).chain([told]).collect())
    });
    let first = [column(&plot.x.label, "", Align::Left)].into_iter();
    let values = lines
        .iter()
        .map(|line| column(&line.name, plot.y.unit, Align::Right));
    let left_out = moments.len().saturating_sub(MOMENTS);
    Table {
        title: plot.title.clone(),
        columns: first
            .chain(values)
            .chain([column("what happened", "", Align::Left)])
            .collect(),
        rows: rows.collect(),
        notes: (left_out > 0)
            .then(|| format!("{left_out} earlier ones are left out"))
            .into_iter()
            .collect(),
    }
}

fn over_time(plot: &Plot) -> Table {
    let rows = plot
        .lines
        .iter()
        .filter(|line| !line.points.is_empty())
        .map(|line| {
            let values = || line.points.iter().map(|dot| dot.y);
            row(vec![
                Value::text(&line.name),
                number(values().fold(f64::INFINITY, f64::min)),
                number(values().sum::<f64>() / line.points.len() as f64),
                number(values().fold(f64::NEG_INFINITY, f64::max)),
            ])
        });
    Table {
        title: plot.title.clone(),
        columns: vec![
            column("line", "", Align::Left),
            column("least", plot.y.unit, Align::Right),
            column("mean", plot.y.unit, Align::Right),
            column("most", plot.y.unit, Align::Right),
        ],
        rows: rows.collect(),
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
