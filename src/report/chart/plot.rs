//! Lines and points between two axes.

use super::scale::{Kind, Scale, text};
use super::svg::{Svg, place};
use super::{Axis, COLORS, DASHES, Line, Look, Plot};

const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 240.0;
const TOP: f64 = 24.0;
const RIGHT: f64 = 14.0;
const BOTTOM: f64 = 38.0;
/// Width of a letter beside a tick, a little more than it is.
const LETTER: f64 = 6.6;

pub(super) fn draw(plot: &Plot) -> String {
    let xs = || {
        plot.lines
            .iter()
            .flat_map(|line| line.points.iter().map(|dot| dot.x))
    };
    let ys = plot
        .lines
        .iter()
        .flat_map(|line| line.points.iter().map(|dot| dot.y));
    let y = Scale::of(plot.y.kind, ys, HEIGHT - BOTTOM, TOP, 5);
    let longest = y.labels().iter().map(|(_, text)| text.chars().count()).max();
    let left = 14.0 + LETTER * longest.unwrap_or(1) as f64;
    let ends = plot.window.into_iter().flatten();
    let x = Scale::of(plot.x.kind, xs().chain(ends), left, WIDTH - RIGHT, 6);
    let mut svg = Svg::new(WIDTH, HEIGHT, &shows(plot), &told_to_script(plot, &x, &y, left));
    if let Some([from, to]) = plot.window {
        let (from, to) = (x.at(from.max(x.from)), x.at(to.min(x.to)));
        let title = "the measured window";
        svg.rectangle(
            (from, TOP),
            (to - from, HEIGHT - BOTTOM - TOP),
            "window",
            Some(title),
        );
    }
    axes(&mut svg, plot, (&x, &y), left);
    // What lies behind is drawn first.
    let (behind, before): (Vec<&Line>, Vec<&Line>) =
        plot.lines.iter().partition(|line| line.look == Look::Behind);
    for line in behind.into_iter().chain(before) {
        draw_line(&mut svg, plot, line, (&x, &y));
    }
    svg.end()
}

/// What the page's script needs to tell values from places.
fn told_to_script(plot: &Plot, x: &Scale, y: &Scale, left: f64) -> Vec<(&'static str, String)> {
    let axis = |axis: &Axis, scale: &Scale| {
        let (from, to) = (scale.from, scale.to);
        let kind = if scale.is_log { "log" } else { "even" };
        format!("{kind}|{from}|{to}|{}|{}", axis.label, axis.unit)
    };
    let right = WIDTH - RIGHT;
    vec![
        ("class", "plot".to_owned()),
        ("data-x", axis(&plot.x, x)),
        ("data-y", axis(&plot.y, y)),
        (
            "data-box",
            [left, TOP, right, HEIGHT - BOTTOM].map(place).join(" "),
        ),
    ]
}

fn axes(svg: &mut Svg, plot: &Plot, (x, y): (&Scale, &Scale), left: f64) {
    let bottom = HEIGHT - BOTTOM;
    for (tick, written) in y.labels() {
        let at = y.at(tick);
        svg.line((left, at), (WIDTH - RIGHT, at), "g");
        svg.label((left - 6.0, at + 4.0), "end", "t", &written);
    }
    let mut free = f64::NEG_INFINITY;
    for (tick, written) in x.labels() {
        let (at, half) = (x.at(tick), LETTER * written.chars().count() as f64 / 2.0);
        svg.line((at, bottom), (at, bottom + 4.0), "ax");
        // Where ticks stand close together, one is left unwritten rather than written over another.
        if at - half > free {
            svg.label((at, bottom + 16.0), "middle", "t", &written);
            free = at + half + 4.0;
        }
    }
    svg.line((left, bottom), (WIDTH - RIGHT, bottom), "ax");
    svg.label((4.0, 13.0), "start", "l", &named(&plot.y));
    svg.label((WIDTH - RIGHT, HEIGHT - 5.0), "end", "l", &named(&plot.x));
}

fn named(axis: &Axis) -> String {
    match (axis.label.as_str(), axis.unit) {
        (label, "") => label.to_owned(),
        ("", unit) => unit.to_owned(),
        (label, unit) => format!("{label} ({unit})"),
    }
}

fn draw_line(svg: &mut Svg, plot: &Plot, line: &Line, (x, y): (&Scale, &Scale)) {
    let places: Vec<(f64, f64)> = line.points.iter().map(|dot| (x.at(dot.x), y.at(dot.y))).collect();
    let points: Vec<String> = places
        .iter()
        .map(|(x, y)| format!("{},{}", place(*x), place(*y)))
        .collect();
    if places.len() > 1 {
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
    // A single point would be invisible as a line.
    if line.look == Look::Behind || (line.look == Look::Line && places.len() > 1) {
        return;
    }
    for (dot, at) in line.points.iter().zip(places) {
        let note = match dot.note.as_str() {
            "" => String::new(),
            note => format!(", {note}"),
        };
        let value = |axis: &Axis, value: f64| match axis.unit {
            "" => format!("{} {}", axis.label, text(value)),
            unit => format!("{} {} {unit}", axis.label, text(value)),
        };
        let (across, up) = (value(&plot.x, dot.x), value(&plot.y, dot.y));
        let hollow = if dot.is_doubtful { " hollow" } else { "" };
        svg.marker(
            at,
            line.color,
            &format!("m c{}{hollow}", line.color % COLORS),
            Some(&format!("{}{note}: {across}, {up}", line.name)),
        );
    }
}

fn class_of(line: &Line) -> String {
    match line.look {
        Look::Behind => "s behind".to_owned(),
        Look::Line | Look::Marked => format!("s c{} d{}", line.color % COLORS, line.color % DASHES),
    }
}

/// How a line looks, for the legend.
pub(super) fn sample(line: &Line) -> String {
    let mut svg = Svg::new(
        30.0,
        12.0,
        "",
        &[("class", "key".to_owned()), ("aria-hidden", "true".to_owned())],
    );
    svg.line((1.0, 6.0), (29.0, 6.0), &class_of(line));
    if line.look == Look::Marked {
        svg.marker(
            (15.0, 6.0),
            line.color,
            &format!("m c{}", line.color % COLORS),
            None,
        );
    }
    svg.end()
}

/// What the picture shows, in a sentence.
fn shows(plot: &Plot) -> String {
    let names: Vec<&str> = plot.lines.iter().map(|line| line.name.as_str()).collect();
    let over = match plot.y.kind {
        Kind::Share => format!("share of values up to each {}", named(&plot.x)),
        _ => format!("{} over {}", named(&plot.y), named(&plot.x)),
    };
    format!("{}: {over}; lines: {}", plot.title, names.join(", "))
}
