//! Draws bars and rows of dots. The name stands above each, so that long names fit on a small screen too.

use super::scale::{AxisKind, Scale, value_text};
use super::svg::Svg;
use super::{Bar, Bars, COLORS};

const WIDTH: f64 = 380.0;
const MARGIN: f64 = 8.0;
/// Height of a row: name and bar.
const ROW_HEIGHT: f64 = 40.0;
const BAR_HEIGHT: f64 = 13.0;
/// Maximum number of letters of a name beside its value.
const MAX_NAME_CHARS: usize = 38;

pub(super) fn draw(bars: &Bars) -> String {
    let bottom = ROW_HEIGHT * bars.rows.len() as f64 + 6.0;
    let height = bottom + 22.0;
    let kind = if bars.has_bars {
        AxisKind::FromZero
    } else {
        AxisKind::Around
    };
    let values = bars
        .rows
        .iter()
        .flat_map(|bar| bar.values.iter().copied().chain([bar.value]));
    let scale = Scale::from_values(kind, values, MARGIN, WIDTH - MARGIN, 4);
    let shows = format!("{}: {}", bars.title, alt_text(bars));
    let mut svg = Svg::new(WIDTH, height, &shows, &[("class", "bars".to_owned())]);
    let labels = scale.labels();
    for (place, (tick, written)) in labels.iter().enumerate() {
        let x = scale.position(*tick);
        svg.line((x, 0.0), (x, bottom), "g");
        let anchor = match place {
            0 => "start",
            _ if place + 1 == labels.len() => "end",
            _ => "middle",
        };
        svg.label((x, bottom + 15.0), anchor, "t", written);
    }
    for (at, bar) in bars.rows.iter().enumerate() {
        row(&mut svg, bars, bar, &scale, ROW_HEIGHT * at as f64);
    }
    svg.finish()
}

fn row(svg: &mut Svg, bars: &Bars, bar: &Bar, scale: &Scale, top: f64) {
    let value = format!("{} {}", value_text(bar.value), bars.unit);
    let title = format!("{}: {}", bar.name, range(bars, bar));
    svg.label((MARGIN, top + 17.0), "start", "n", &shorten(&bar.name));
    svg.label((WIDTH - MARGIN, top + 17.0), "end", "v", value.trim_end());
    let (y, from) = (top + 23.0, scale.position(scale.from.max(0.0)));
    let color = bar.color % COLORS;
    if bars.has_bars {
        let hollow = if bar.is_doubtful { " hollow" } else { "" };
        let to = scale.position(bar.value);
        svg.rectangle(
            (from, y),
            (to - from, BAR_HEIGHT),
            &format!("b c{color}{hollow}"),
            Some(&title),
        );
    }
    if bar.values.len() > 1 || !bars.has_bars {
        let [min, max] = bar_ends(bar);
        let middle = y + BAR_HEIGHT / 2.0;
        svg.line((scale.position(min), middle), (scale.position(max), middle), "w");
        for value in &bar.values {
            let title = format!("{}: {} {}", bar.name, value_text(*value), bars.unit);
            let class = if bars.has_bars {
                "k".to_owned()
            } else {
                format!("m c{color}")
            };
            svg.marker(
                (scale.position(*value), middle),
                0,
                &class,
                Some(title.trim_end()),
            );
        }
    }
}

fn bar_ends(bar: &Bar) -> [f64; 2] {
    let values = || bar.values.iter().copied().chain([bar.value]);
    [
        values().fold(f64::INFINITY, f64::min),
        values().fold(f64::NEG_INFINITY, f64::max),
    ]
}

fn range(bars: &Bars, bar: &Bar) -> String {
    let [min, max] = bar_ends(bar);
    let spread = match bar.values.len() {
        0 | 1 => String::new(),
        n => format!(" (n={n}, {} to {})", value_text(min), value_text(max)),
    };
    format!("{} {}{spread}", value_text(bar.value), bars.unit).replace("  ", " ")
}

fn alt_text(bars: &Bars) -> String {
    let rows = bars
        .rows
        .iter()
        .map(|bar| format!("{} {}", bar.name, range(bars, bar)));
    rows.collect::<Vec<_>>().join("; ")
}

/// Shortens a name that does not fit; the title of the bar and the table have the full name.
fn shorten(name: &str) -> String {
    match name.chars().count() > MAX_NAME_CHARS {
        true => name.chars().take(MAX_NAME_CHARS - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}
