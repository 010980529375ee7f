//! Draws bars and rows of dots. The name stands above each, so that long names fit on a small screen too.

use super::scale::{Kind, Scale, text};
use super::svg::Svg;
use super::{Bar, Bars, COLORS};

const WIDTH: f64 = 380.0;
const MARGIN: f64 = 8.0;
/// Height of a row: name and bar.
const ROW: f64 = 40.0;
const BAR: f64 = 13.0;
/// Maximum number of letters of a name beside its value.
const LETTERS: usize = 38;

pub(super) fn draw(bars: &Bars) -> String {
    let bottom = ROW * bars.rows.len() as f64 + 6.0;
    let height = bottom + 22.0;
    let kind = if bars.has_bars {
        Kind::FromZero
    } else {
        Kind::Around
    };
    let values = bars
        .rows
        .iter()
        .flat_map(|bar| bar.values.iter().copied().chain([bar.value]));
    let scale = Scale::of(kind, values, MARGIN, WIDTH - MARGIN, 4);
    let shows = format!("{}: {}", bars.title, told(bars));
    let mut svg = Svg::new(WIDTH, height, &shows, &[("class", "bars".to_owned())]);
    let labels = scale.labels();
    for (place, (tick, written)) in labels.iter().enumerate() {
        let x = scale.at(*tick);
        svg.line((x, 0.0), (x, bottom), "g");
        let anchor = match place {
            0 => "start",
            _ if place + 1 == labels.len() => "end",
            _ => "middle",
        };
        svg.label((x, bottom + 15.0), anchor, "t", written);
    }
    for (at, bar) in bars.rows.iter().enumerate() {
        row(&mut svg, bars, bar, &scale, ROW * at as f64);
    }
    svg.end()
}

fn row(svg: &mut Svg, bars: &Bars, bar: &Bar, scale: &Scale, top: f64) {
    let value = format!("{} {}", text(bar.value), bars.unit);
    let title = format!("{}: {}", bar.name, range(bars, bar));
    svg.label((MARGIN, top + 17.0), "start", "n", &shortened(&bar.name));
    svg.label((WIDTH - MARGIN, top + 17.0), "end", "v", value.trim_end());
    let (y, from) = (top + 23.0, scale.at(scale.from.max(0.0)));
    let color = bar.color % COLORS;
    if bars.has_bars {
        let hollow = if bar.is_doubtful { " hollow" } else { "" };
        let to = scale.at(bar.value);
        svg.rectangle(
            (from, y),
            (to - from, BAR),
            &format!("b c{color}{hollow}"),
            Some(&title),
        );
    }
    if bar.values.len() > 1 || !bars.has_bars {
        let [least, most] = ends(bar);
        let middle = y + BAR / 2.0;
        svg.line((scale.at(least), middle), (scale.at(most), middle), "w");
        for value in &bar.values {
            let title = format!("{}: {} {}", bar.name, text(*value), bars.unit);
            let class = if bars.has_bars {
                "k".to_owned()
            } else {
                format!("m c{color}")
            };
            svg.marker((scale.at(*value), middle), 0, &class, Some(title.trim_end()));
        }
    }
}

fn ends(bar: &Bar) -> [f64; 2] {
    let all = || bar.values.iter().copied().chain([bar.value]);
    [
        all().fold(f64::INFINITY, f64::min),
        all().fold(f64::NEG_INFINITY, f64::max),
    ]
}

fn range(bars: &Bars, bar: &Bar) -> String {
    let [least, most] = ends(bar);
    let spread = match bar.values.len() {
        0 | 1 => String::new(),
        n => format!(" (n={n}, {} to {})", text(least), text(most)),
    };
    format!("{} {}{spread}", text(bar.value), bars.unit).replace("  ", " ")
}

fn told(bars: &Bars) -> String {
    let rows = bars
        .rows
        .iter()
        .map(|bar| format!("{} {}", bar.name, range(bars, bar)));
    rows.collect::<Vec<_>>().join("; ")
}

/// Shortens a name that does not fit; the title of the bar and the table have the full name.
fn shortened(name: &str) -> String {
    match name.chars().count() > LETTERS {
        true => name.chars().take(LETTERS - 1).chain(['…']).collect(),
        false => name.to_owned(),
    }
}
