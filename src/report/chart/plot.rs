//! Draws lines and points between two axes.

use super::scale::{AxisKind, Scale, date_text, value_text};
use super::svg::{Svg, coordinate};
use super::{Axis, COLORS, DASHES, Line, Plot, PlotEventStyle, PlotLimit, StrokeStyle};

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 240.0;
const TOP: f64 = 24.0;
const RIGHT: f64 = 14.0;
const BOTTOM: f64 = 38.0;
/// Assumed width of a letter of a tick's label, slightly above the real one.
const CHAR_WIDTH: f64 = 6.6;

pub(super) fn draw(plot: &Plot) -> String {
    let values = |axis: usize| {
        let points = plot.lines.iter().flat_map(|line| &line.points);
        let limits = plot
            .limits
            .iter()
            .filter(move |limit| limit.is_of_x == (axis == 0));
        points
            .flat_map(move |point| point.extent(axis))
            .chain(limits.map(|limit| limit.value))
    };
    let ys = values(1);
    let y = Scale::from_values(plot.y.kind, ys, HEIGHT - BOTTOM, TOP, 5);
    let longest = y.labels().iter().map(|(_, text)| text.chars().count()).max();
    let left = 14.0 + CHAR_WIDTH * longest.unwrap_or(1) as f64;
    let ends = plot.window.into_iter().flatten();
    let happened = plot.events.iter().map(|event| event.x);
    let x = Scale::from_values(
        plot.x.kind,
        values(0).chain(ends).chain(happened),
        left,
        WIDTH - RIGHT,
        6,
    );
    let mut points = plot.lines.iter().flat_map(|line| &line.points);
    let begin = match points.any(|point| !point.link.is_empty()) {
        true => Svg::with_links,
        false => Svg::new,
    };
    let mut svg = begin(
        WIDTH,
        HEIGHT,
        &alt_text(plot),
        &script_attributes(plot, &x, &y, left),
    );
    if let Some([from, to]) = plot.window {
        let (from, to) = (x.position(from.max(x.from)), x.position(to.min(x.to)));
        let title = "the measured window";
        svg.rectangle(
            (from, TOP),
            (to - from, HEIGHT - BOTTOM - TOP),
            "window",
            Some(title),
        );
    }
    axes(&mut svg, plot, (&x, &y), left);
    draw_events(&mut svg, plot, &x);
    let limit_labels = draw_limits(&mut svg, plot, (&x, &y), left);
    // Background lines are drawn first.
    let (behind, before): (Vec<&Line>, Vec<&Line>) = plot
        .lines
        .iter()
        .partition(|line| line.style == StrokeStyle::Background);
    for line in behind.into_iter().chain(before) {
        draw_line(&mut svg, plot, line, (&x, &y));
    }
    draw_labels(&mut svg, plot, (&x, &y), limit_labels);
    svg.finish()
}

/// Left, top, right and bottom of a text.
type TextArea = [f64; 4];

/// Draws limits with their labels, and returns where these stand.
fn draw_limits(svg: &mut Svg, plot: &Plot, (x, y): (&Scale, &Scale), left: f64) -> Vec<TextArea> {
    let draw = |limit: &PlotLimit| {
        let width = CHAR_WIDTH * limit.label.chars().count() as f64;
        let (begin, foot) = if limit.is_of_x {
            let at = x.position(limit.value);
            svg.line((at, TOP), (at, HEIGHT - BOTTOM), "limit");
            // At the bottom, on the side that has room.
            match at - width - 8.0 > left {
                true => (at - width - 4.0, HEIGHT - BOTTOM - 6.0),
                false => (at + 4.0, HEIGHT - BOTTOM - 6.0),
            }
        } else {
            let at = y.position(limit.value);
            svg.line((left, at), (WIDTH - RIGHT, at), "limit");
            // Below the line where the name of the axis stands above it.
            match at < TOP + 12.0 {
                true => (left + 4.0, at + 13.0),
                false => (left + 4.0, at - 4.0),
            }
        };
        svg.label((begin, foot), "start", "t", &limit.label);
        [begin, foot - 10.0, begin + width, foot + 2.0]
    };
    plot.limits.iter().map(draw).collect()
}

/// Writes the labels of points, each above its marker, unless it would cover another marker or label.
fn draw_labels(svg: &mut Svg, plot: &Plot, (x, y): (&Scale, &Scale), mut taken: Vec<TextArea>) {
    const LETTER: f64 = 6.0;
    const LINE: f64 = 11.0;
    let points = || {
        let lines = plot
            .lines
            .iter()
            .filter(|line| line.style == StrokeStyle::LineWithMarkers);
        lines.flat_map(|line| &line.points)
    };
    let markers = points().map(|point| (x.position(point.x), y.position(point.y)));
    taken.extend(markers.map(|(x, y)| [x - 5.0, y - 5.0, x + 5.0, y + 5.0]));
    for point in points().filter(|point| !point.label.is_empty()) {
        let (across, up) = (x.position(point.x), y.position(point.y));
        let half = LETTER * point.label.chars().count() as f64 / 2.0;
        let covers = |[left, top, right, bottom]: TextArea| {
            taken
                .iter()
                .any(|[l, t, r, b]| left < *r && *l < right && top < *b && *t < bottom)
        };
        let places = [(0.0, -8.0), (0.0, 17.0), (half + 9.0, 4.0), (-half - 9.0, 4.0)];
        let boxed = places.iter().map(|(dx, dy)| {
            let (middle, foot) = (across + dx, up + dy);
            [middle - half, foot - LINE + 2.0, middle + half, foot + 1.0]
        });
        let is_inside = |area: &TextArea| area[0] > 0.0 && area[2] < WIDTH && area[3] < HEIGHT - BOTTOM;
        let free = boxed
            .zip(places)
            .find(|(area, _)| is_inside(area) && !covers(*area));
        if let Some((area, (dx, dy))) = free {
            svg.label((across + dx, up + dy), "middle", "p", &point.label);
            taken.push(area);
        }
    }
}

/// Attributes from which the page's script converts positions to values.
fn script_attributes(plot: &Plot, x: &Scale, y: &Scale, left: f64) -> Vec<(&'static str, String)> {
    let axis = |axis: &Axis, scale: &Scale| {
        let (from, to) = (scale.from, scale.to);
        let kind = scale.spacing.name();
        format!("{kind}|{from}|{to}|{}|{}", axis.label, axis.unit)
    };
    let right = WIDTH - RIGHT;
    vec![
        ("class", "plot".to_owned()),
        ("data-x", axis(&plot.x, x)),
        ("data-y", axis(&plot.y, y)),
        (
            "data-box",
            [left, TOP, right, HEIGHT - BOTTOM].map(coordinate).join(" "),
        ),
    ]
}

fn axes(svg: &mut Svg, plot: &Plot, (x, y): (&Scale, &Scale), left: f64) {
    let bottom = HEIGHT - BOTTOM;
    for (tick, written) in y.labels() {
        let at = y.position(tick);
        svg.line((left, at), (WIDTH - RIGHT, at), "g");
        svg.label((left - 6.0, at + 4.0), "end", "t", &written);
    }
    let mut free = f64::NEG_INFINITY;
    for (tick, written) in x.labels() {
        let (at, half) = (
            x.position(tick),
            CHAR_WIDTH * written.chars().count() as f64 / 2.0,
        );
        svg.line((at, bottom), (at, bottom + 4.0), "ax");
        // A tick keeps no label if that would overlap the previous one.
        if at - half > free {
            svg.label((at, bottom + 16.0), "middle", "t", &written);
            free = at + half + 4.0;
        }
    }
    svg.line((left, bottom), (WIDTH - RIGHT, bottom), "ax");
    svg.label((4.0, 13.0), "start", "l", &axis_title(&plot.y));
    svg.label((WIDTH - RIGHT, HEIGHT - 5.0), "end", "l", &axis_title(&plot.x));
}

fn axis_title(axis: &Axis) -> String {
    match (axis.label.as_str(), axis.unit) {
        (label, "") => label.to_owned(),
        ("", unit) => unit.to_owned(),
        (label, unit) => format!("{label} ({unit})"),
    }
}

fn draw_line(svg: &mut Svg, plot: &Plot, line: &Line, (x, y): (&Scale, &Scale)) {
    let places: Vec<(f64, f64)> = line
        .points
        .iter()
        .map(|dot| (x.position(dot.x), y.position(dot.y)))
        .collect();
    for stroke in strokes(line, &places) {
        let points: Vec<String> = stroke
            .iter()
            .map(|(x, y)| format!("{},{}", coordinate(*x), coordinate(*y)))
            .collect();
        svg.element(
            "polyline",
            &[
                ("points", points.join(" ")),
                ("class", class_of(line)),
                ("data-name", line.name.clone()),
            ],
            None,
        );
    }
    // A single point would be invisible as a line, so it gets a marker.
    if line.style == StrokeStyle::Background || (line.style == StrokeStyle::Line && places.len() > 1) {
        return;
    }
    for (dot, at) in line.points.iter().zip(places) {
        if let Some([across, up]) = dot.ranges {
            let class = format!("range c{}", line.color % COLORS);
            let [left, right] = across.map(|value| x.position(value));
            let [low, high] = up.map(|value| y.position(value));
            svg.line((left, at.1), (right, at.1), &class);
            svg.line((at.0, low), (at.0, high), &class);
        }
        let note = match dot.tooltip.as_str() {
            "" => String::new(),
            note => format!(", {note}"),
        };
        let (across, up) = (value_with_unit(&plot.x, dot.x), value_with_unit(&plot.y, dot.y));
        let hollow = if dot.is_doubtful { " hollow" } else { "" };
        let title = format!("{}{note}: {across}, {up}", line.name);
        if !dot.link.is_empty() {
            svg.begin_link(&dot.link, &title);
        }
        svg.marker(
            at,
            line.color,
            &format!("m c{}{hollow}", line.color % COLORS),
            Some(&title),
        );
        if !dot.link.is_empty() {
            svg.end_link();
        }
    }
}

fn value_with_unit(axis: &Axis, value: f64) -> String {
    let written = match axis.kind {
        AxisKind::Dates => date_text(value),
        _ => value_text(value),
    };
    let words = [axis.label.as_str(), written.as_str(), axis.unit];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

/// The parts of a line that are drawn in one stroke each. A part may be a single point: it is invisible, but
/// the page's script finds it.
fn strokes<'a>(line: &Line, places: &'a [(f64, f64)]) -> Vec<&'a [(f64, f64)]> {
    if places.len() < 2 {
        return Vec::new();
    }
    let breaks = line.breaks.iter().copied();
    let ends: Vec<usize> = [0].into_iter().chain(breaks).chain([places.len()]).collect();
    let pairs = ends.windows(2).filter(|pair| pair[0] < pair[1]);
    pairs.map(|pair| &places[pair[0]..pair[1]]).collect()
}

/// Draws events over the whole height of the plot.
fn draw_events(svg: &mut Svg, plot: &Plot, x: &Scale) {
    let bottom = HEIGHT - BOTTOM;
    // Labels stand to the right of the axis' name and do not overlap.
    let mut free = 4.0 + CHAR_WIDTH * (axis_title(&plot.y).chars().count() + 1) as f64;
    for event in &plot.events {
        let at = x.position(event.x);
        draw_event(svg, event.style, at, (TOP, bottom), Some(&event.title));
        let half = CHAR_WIDTH * event.label.chars().count() as f64 / 2.0;
        let middle = at.min(WIDTH - half);
        if !event.label.is_empty() && middle - half > free {
            svg.label((middle, 13.0), "middle", "v", &event.label);
            free = middle + half + 4.0;
        }
    }
}

fn draw_event(svg: &mut Svg, style: PlotEventStyle, at: f64, (top, bottom): (f64, f64), title: Option<&str>) {
    const R: f64 = 3.5;
    let (class, shape) = match style {
        PlotEventStyle::Break => ("turn cut", vec![[(at, top), (at, bottom)]]),
        PlotEventStyle::Worse => ("turn worse", vec![[(at, top), (at, bottom)]]),
        PlotEventStyle::Better => ("turn better", vec![[(at, top), (at, bottom)]]),
        PlotEventStyle::Note => ("turn note", vec![[(at, top), (at, bottom)]]),
        PlotEventStyle::MissingValue => {
            let middle = bottom - 7.0;
            let stroke = |way: f64| [(at - R, middle - way * R), (at + R, middle + way * R)];
            ("turn gap", vec![stroke(1.0), stroke(-1.0)])
        }
    };
    let path: Vec<String> = shape
        .iter()
        .map(|[from, to]| {
            format!(
                "M{} {}L{} {}",
                coordinate(from.0),
                coordinate(from.1),
                coordinate(to.0),
                coordinate(to.1)
            )
        })
        .collect();
    svg.element(
        "path",
        &[
            ("d", path.concat()),
            ("class", class.to_owned()),
            ("data-at", coordinate(at)),
        ],
        title,
    );
}

/// Draws the mark of an event, for the legend.
pub(super) fn event_sample(style: PlotEventStyle) -> String {
    let mut svg = Svg::new(
        30.0,
        12.0,
        "",
        &[("class", "key".to_owned()), ("aria-hidden", "true".to_owned())],
    );
    let bottom = if style == PlotEventStyle::MissingValue {
        13.0
    } else {
        12.0
    };
    draw_event(&mut svg, style, 15.0, (0.0, bottom), None);
    svg.finish()
}

fn class_of(line: &Line) -> String {
    match line.style {
        StrokeStyle::Background => "s behind".to_owned(),
        StrokeStyle::Line | StrokeStyle::LineWithMarkers => {
            format!("s c{} d{}", line.color % COLORS, line.color % DASHES)
        }
    }
}

/// Draws a sample of a line, for the legend.
pub(super) fn line_sample(line: &Line) -> String {
    let mut svg = Svg::new(
        30.0,
        12.0,
        "",
        &[("class", "key".to_owned()), ("aria-hidden", "true".to_owned())],
    );
    svg.line((1.0, 6.0), (29.0, 6.0), &class_of(line));
    if line.style == StrokeStyle::LineWithMarkers {
        svg.marker(
            (15.0, 6.0),
            line.color,
            &format!("m c{}", line.color % COLORS),
            None,
        );
    }
    svg.finish()
}

/// The content of the chart in one sentence, for screen readers.
fn alt_text(plot: &Plot) -> String {
    let names: Vec<&str> = plot.lines.iter().map(|line| line.name.as_str()).collect();
    let over = match plot.y.kind {
        AxisKind::Share => format!("cumulative share of values up to each {}", axis_title(&plot.x)),
        _ => format!("{} over {}", axis_title(&plot.y), axis_title(&plot.x)),
    };
    let happened: Vec<&str> = plot.events.iter().map(|event| event.title.as_str()).collect();
    let happened = match happened[..] {
        [] => String::new(),
        _ => format!("; events: {}", happened.join("; ")),
    };
    format!("{}: {over}; lines: {}{happened}", plot.title, names.join(", "))
}
