//! Charts as SVG, drawn without a library: nothing has to be loaded, and equal figures give equal bytes.
//!
//! Colours are classes (`c0` to `c6`), so that the page sets them for light, dark and print. Each line also
//! has its own dash and marker, and every mark has a `<title>` with its values. [`Chart::table`] has the
//! same content as a table.

mod bars;
mod plot;
mod scale;
mod svg;

pub(crate) use scale::AxisKind;
pub(crate) use svg::escape;

use super::table::{Align, Column, Row, Table, Value};

/// Number of colours; dashes and markers have other periods, so that lines of equal colour still differ.
const COLORS: usize = 7;
const DASHES: usize = 4;
const MARKERS: usize = 6;

/// A chart that is not drawn yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Chart {
    Bars(Bars),
    Plot(Plot),
}

/// A chart with a bar or a row of dots for each name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bars {
    pub(crate) title: String,
    /// Empty if the values have no unit.
    pub(crate) unit: &'static str,
    /// Whether bars are drawn, from zero. Otherwise only dots are drawn, and the axis starts near the
    /// smallest value.
    pub(crate) has_bars: bool,
    /// From top to bottom.
    pub(crate) rows: Vec<Bar>,
}

/// A row of [`Bars`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// Index in the order of colours.
    pub(crate) color: usize,
    /// The value of the bar; for several measurements their mean.
    pub(crate) value: f64,
    /// The value of each measurement.
    pub(crate) values: Vec<f64>,
    /// Whether the value is suspect or invalid; it is then drawn hollow.
    pub(crate) is_doubtful: bool,
}

/// A chart of lines or points between two axes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) lines: Vec<Line>,
    /// The range of the x axis that is shaded.
    pub(crate) window: Option<[f64; 2]>,
    /// Events at places of the x axis.
    pub(crate) events: Vec<PlotEvent>,
    /// Limits that values are compared with.
    pub(crate) limits: Vec<PlotLimit>,
}

/// A limit, drawn as a line across a [`Plot`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlotLimit {
    /// Whether it limits the values of the x axis; otherwise those of the y axis.
    pub(crate) is_of_x: bool,
    pub(crate) value: f64,
    /// Text beside the line.
    pub(crate) label: String,
}

/// An event at a place of the x axis of a [`Plot`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlotEvent {
    pub(crate) x: f64,
    pub(crate) style: PlotEventStyle,
    /// Text above the mark; empty for none.
    pub(crate) label: String,
    pub(crate) title: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlotEventStyle {
    /// A dashed line: values on its two sides are not comparable.
    Break,
    /// A line: values are worse from here on.
    Worse,
    /// A line: values are better from here on.
    Better,
    /// A fine dotted line: something besides the values changed.
    Note,
    /// A cross on the axis: there is no value.
    MissingValue,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Axis {
    pub(crate) label: String,
    /// Empty if the values have no unit.
    pub(crate) unit: &'static str,
    pub(crate) kind: AxisKind,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) name: String,
    /// Index in the order of colours, dashes and markers.
    pub(crate) color: usize,
    pub(crate) style: StrokeStyle,
    /// In the order in which they are joined.
    pub(crate) points: Vec<PlotPoint>,
    /// Indices of points that are not joined to the previous one.
    pub(crate) breaks: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StrokeStyle {
    Line,
    /// A line with a marker at each point.
    LineWithMarkers,
    /// A broad, faint line behind the others.
    Background,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PlotPoint {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// Further text for the title of the point.
    pub(crate) tooltip: String,
    /// Text beside the marker, which is left out where it would cover another; empty for none.
    pub(crate) label: String,
    /// Smallest and largest of several measurements, on both axes.
    pub(crate) ranges: Option<[[f64; 2]; 2]>,
    /// Whether the value is suspect or invalid; its marker is then hollow.
    pub(crate) is_doubtful: bool,
    /// The page that its marker links to; empty for none.
    pub(crate) link: String,
}

impl PlotPoint {
    /// All values of one axis that must be visible: the point and its range.
    fn extent(&self, axis: usize) -> impl Iterator<Item = f64> + '_ {
        let range = self.ranges.iter().flat_map(move |ranges| ranges[axis]);
        std::iter::once([self.x, self.y][axis]).chain(range)
    }
}

impl Chart {
    pub(crate) fn title(&self) -> &str {
        match self {
            Self::Bars(bars) => &bars.title,
            Self::Plot(plot) => &plot.title,
        }
    }

    /// Draws the chart as SVG. Every text in it is escaped.
    pub(crate) fn svg(&self) -> String {
        match self {
            Self::Bars(bars) => bars::draw(bars),
            Self::Plot(plot) => plot::draw(plot),
        }
    }

    /// The legend: a sample of each line as SVG, and its name. It is empty for bars, which carry their names.
    pub(crate) fn legend(&self) -> Vec<(String, String)> {
        match self {
            Self::Plot(plot) if plot.lines.len() > 1 => {
                let sample = |line: &Line| (line_sample(line), line.name.clone());
                plot.lines.iter().map(sample).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The values of the chart as a table, for readers who do not see it. Lines over time are reduced to
    /// minimum, mean and maximum.
    pub(crate) fn table(&self) -> Table {
        match self {
            Self::Bars(bars) => bars_table(bars),
            Self::Plot(plot) if plot.x.kind == AxisKind::Dates => dated_table(plot),
            Self::Plot(plot)
                if plot.lines.iter().all(|line| line.style == StrokeStyle::Line) && plot.x.unit == "s" =>
            {
                over_time_table(plot)
            }
            Self::Plot(plot) => points_table(plot),
        }
    }
}

/// Draws the mark of an event as SVG, for a legend.
pub(crate) fn event_sample(style: PlotEventStyle) -> String {
    plot::event_sample(style)
}

/// Draws a sample of a line as SVG, for a legend.
pub(crate) fn line_sample(line: &Line) -> String {
    plot::line_sample(line)
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
        let each: Vec<String> = bar.values.iter().map(|value| scale::value_text(*value)).collect();
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
            column("mean", bars.unit, Align::Right),
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
                Value::text(&dot.tooltip),
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

/// Maximum number of rows of a table by date.
const MAX_TABLE_ROWS: usize = 90;

/// A row for each time, the latest first: the values of all lines in front, and events.
fn dated_table(plot: &Plot) -> Table {
    let lines: Vec<&Line> = plot
        .lines
        .iter()
        .filter(|line| line.style != StrokeStyle::Background)
        .collect();
    let dots = lines.iter().flat_map(|line| &line.points);
    let events = plot.events.iter().map(|event| event.x);
    let mut moments: Vec<f64> = dots.map(|dot| dot.x).chain(events).collect();
    moments.sort_by(|a, b| b.total_cmp(a));
    moments.dedup();
    let rows = moments.iter().take(MAX_TABLE_ROWS).map(|x| {
        let happened = plot.events.iter().filter(|event| event.x == *x);
        let happened: Vec<&str> = happened.map(|event| event.title.as_str()).collect();
        let value = |line: &&Line| {
            let dot = line.points.iter().find(|dot| dot.x == *x);
            dot.map_or(Value::Missing, |dot| number(dot.y))
        };
        let first = [Value::Text(scale::date_text(*x))].into_iter();
        let text = match happened[..] {
            [] => Value::Missing,
            _ => Value::Text(happened.join("; ")),
        };
        row(first.chain(lines.iter().map(value)).chain([text]).collect())
    });
    let first = [column(&plot.x.label, "", Align::Left)].into_iter();
    let values = lines
        .iter()
        .map(|line| column(&line.name, plot.y.unit, Align::Right));
    let left_out = moments.len().saturating_sub(MAX_TABLE_ROWS);
    Table {
        title: plot.title.clone(),
        columns: first
            .chain(values)
            .chain([column("events", "", Align::Left)])
            .collect(),
        rows: rows.collect(),
        notes: (left_out > 0)
            .then(|| format!("{left_out} earlier rows are left out"))
            .into_iter()
            .collect(),
    }
}

fn over_time_table(plot: &Plot) -> Table {
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
            column("minimum", plot.y.unit, Align::Right),
            column("mean", plot.y.unit, Align::Right),
            column("maximum", plot.y.unit, Align::Right),
        ],
        rows: rows.collect(),
        notes: Vec::new(),
    }
}

#[cfg(test)]
mod tests;
