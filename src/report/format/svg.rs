//! Draws the charts over the loads of a report as one picture, for pages of others: with its own style, for light and dark.

use std::fmt::Write as _;

use crate::base::text::wrap;
use crate::report::chart::{Chart, escape};
use crate::report::document::Document;
use crate::report::html::{chart_style, load_charts, view};
use crate::report::single_line;

/// Size of a chart, as charts are drawn, and the gap around it.
const CHART: (f64, f64) = (380.0, 240.0);
const GAP: f64 = 20.0;
const COLUMNS: usize = 2;
const WIDTH: f64 = COLUMNS as f64 * (CHART.0 + GAP) + GAP;

/// Height of a line of text.
const LINE: f64 = 18.0;

/// Letters of a line of the answer.
const LETTERS: usize = 108;

/// Most charts in the picture.
const MAX_CHARTS: usize = 8;

pub(super) fn report(document: &Document) -> String {
    let charts: Vec<Chart> = load_charts::tradeoff_charts(document)
        .into_iter()
        .chain(load_charts::load_charts(document))
        .take(MAX_CHARTS)
        .collect();
    let mut top = 2.0 * GAP;
    let mut body = format!(
        "<text x=\"{GAP}\" y=\"{top}\" class=\"title\">{}</text>\n",
        escape(&document.title)
    );
    let answers = document.headlines().into_iter().map(|headline| {
        let sentence = single_line(&format!("{}: {}", headline.about, headline.sentence));
        ("answer", sentence)
    });
    let warnings = view::origin_warnings(document).into_iter();
    for (class, sentence) in answers.chain(warnings.map(|warning| ("v", warning))) {
        for line in wrap("", 0, &sentence, LETTERS).lines() {
            top += LINE;
            let _ = writeln!(
                body,
                "<text x=\"{GAP}\" y=\"{top}\" class=\"{class}\">{}</text>",
                escape(line)
            );
        }
    }
    if charts.is_empty() {
        top += LINE;
        let _ = writeln!(
            body,
            "<text x=\"{GAP}\" y=\"{top}\">no chart: no engine was measured at two loads of a scenario</text>"
        );
    }
    for row in charts.chunks(COLUMNS) {
        top += GAP;
        for (chart, column) in row.iter().zip(0_u8..) {
            body.push_str(&placed(chart, GAP + f64::from(column) * (CHART.0 + GAP), top));
        }
        let legends = row.iter().map(|chart| chart.legend().len()).max().unwrap_or(0);
        top += LINE + CHART.1 + LINE * legends as f64;
    }
    if !charts.is_empty() {
        top += LINE;
        let _ = writeln!(
            body,
            "<text x=\"{GAP}\" y=\"{top}\">hollow points are suspect, invalid ones are left out; numbers are the load, and bars the range of the starts</text>"
        );
    }
    let height = top + GAP;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\" aria-label=\"{}\">\n\
         <style>{}\n.title {{ font-size: 18px; font-weight: 600; fill: var(--ink); }}\n.answer, .caption {{ font-size: 13px; fill: var(--ink); }}\n\
         .caption {{ font-weight: 600; }}\n</style>\n<rect width=\"100%\" height=\"100%\" style=\"fill: var(--ground)\"/>\n{body}</svg>\n",
        escape(&document.title),
        chart_style()
    )
}

/// A chart with its caption above and its legend below.
fn placed(chart: &Chart, left: f64, top: f64) -> String {
    let at = |y: f64, width: f64, height: f64| {
        format!("<svg x=\"{left}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" ")
    };
    let mut text = format!(
        "<text x=\"{left}\" y=\"{}\" class=\"caption\">{}</text>\n",
        top + 12.0,
        escape(chart.title())
    );
    text.push_str(
        &chart
            .svg()
            .replacen("<svg ", &at(top + LINE, CHART.0, CHART.1), 1),
    );
    for ((sample, name), line) in chart.legend().into_iter().zip(0_u8..) {
        let y = top + LINE + CHART.1 + f64::from(line) * LINE;
        text.push_str(&sample.replacen("<svg ", &at(y, 30.0, 12.0), 1));
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\" class=\"v\">{}</text>",
            left + 36.0,
            y + 10.0,
            escape(&name)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::document::tests::TestRun;
    use crate::report::testing::Case;

    #[test]
    fn a_report_without_loads_says_so_and_names_are_escaped() {
        let mut case = Case::new("a<b>", "bf16", 1, 1000.0);
        case.launch.model = "x\" onload=\"y".to_owned();
        let case = case.on_simulated_engine();
        let picture = report(&TestRun::new("one", vec![case]).document());
        assert!(
            picture.contains("no chart: no engine was measured at two loads"),
            "{picture}"
        );
        assert!(
            !picture.contains("<b>") && !picture.contains("\" onload"),
            "{picture}"
        );
        assert!(
            picture.contains("Every cell was measured on the simulated engine"),
            "{picture}"
        );
    }

    #[test]
    fn charts_stand_in_two_columns_with_their_legends() {
        let at = |engine: &str, slots: u32, per_user: f64, output: f64| {
            Case::new(engine, "bf16", 1, output).at_concurrency(slots, per_user)
        };
        let cases = vec![
            at("a", 1, 100.0, 100.0),
            at("a", 8, 60.0, 500.0),
            at("b", 1, 120.0, 120.0),
            at("b", 8, 75.0, 600.0),
        ];
        let picture = report(&TestRun::new("one", cases).document());
        assert!(
            picture.contains("<svg x=\"20\"") && picture.contains("<svg x=\"420\""),
            "{picture}"
        );
        assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"));
        assert_eq!(
            picture.matches("<svg ").count(),
            picture.matches("</svg>").count()
        );
    }
}
