//! Draws a series over time with text characters for a terminal: [`plot`] over several lines, [`trend`]
//! within one.

use std::fmt::Write as _;

/// Height of a plot in lines.
const HEIGHT: usize = 8;
/// Maximum width of a plot in columns.
const WIDTH: usize = 72;
/// A character for each number of eighths that is filled.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws a value for each second from 0, on a scale from 0 to the maximum. If there are more seconds than
/// columns, a column shows the maximum of several.
pub(crate) fn plot(title: &str, values: &[f64]) -> String {
    let per = values.len().div_ceil(WIDTH).max(1);
    let columns: Vec<f64> = values
        .chunks(per)
        .map(|some| some.iter().copied().fold(0.0, f64::max))
        .collect();
    let top = columns.iter().copied().fold(0.0, f64::max);
    let filled: Vec<usize> = columns
        .iter()
        .map(|value| match top > 0.0 {
            // A value above 0 always shows.
            true if *value > 0.0 => ((value / top * (HEIGHT * 8) as f64).round() as usize).max(1),
            _ => 0,
        })
        .collect();
    let labels = [format!("{top:.0}"), format!("{:.0}", top / 2.0), "0".to_owned()];
    let margin = labels[0].len();
    let mut text = format!("\n{title}");
    if per > 1 {
        let _ = write!(text, " (each column shows the largest value within {per} s)");
    }
    text.push('\n');
    for row in (0..HEIGHT).rev() {
        let label = match row {
            _ if row == HEIGHT - 1 => &labels[0],
            _ if row == HEIGHT / 2 - 1 => &labels[1],
            _ => "",
        };
        let bar: String = filled
            .iter()
            .map(|eighths| EIGHTHS[eighths.saturating_sub(row * 8).min(8)])
            .collect();
        let _ = writeln!(text, "{}", format!("{label:>margin$} │{bar}").trim_end());
    }
    let _ = writeln!(text, "{:>margin$} └{}", labels[2], "─".repeat(columns.len()));
    let end = format!("{} s", values.len());
    let room = columns.len().saturating_sub(1).max(end.len() + 1);
    let _ = writeln!(text, "{:>margin$}  0{end:>room$}", "");
    text
}

/// Minimum range of the scale of a trend, as a share of its largest absolute value, so that small differences
/// do not look large.
const MIN_TREND_RANGE_SHARE: f64 = 0.04;
/// The character of a missing value.
const NO_VALUE: char = '·';

/// Draws a character for each value on a scale from the minimum to the maximum.
pub(crate) fn trend(values: &[Option<f64>]) -> String {
    let present = || values.iter().copied().flatten();
    let (min, max) = (
        present().fold(f64::INFINITY, f64::min),
        present().fold(f64::NEG_INFINITY, f64::max),
    );
    let range = (max - min)
        .max(max.abs() * MIN_TREND_RANGE_SHARE)
        .max(f64::MIN_POSITIVE);
    let from = f64::midpoint(min, max) - range / 2.0;
    let letter = |value: &Option<f64>| match value {
        Some(value) => EIGHTHS[1 + ((value - from) / range * 7.0).round().clamp(0.0, 7.0) as usize],
        None => NO_VALUE,
    };
    values.iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_drawn_from_nothing_to_its_largest_value() {
        insta::assert_snapshot!(plot("Output tokens per second", &[0.0, 25.0, 50.0, 100.0, 75.0, 0.1]), @"

        Output tokens per second
        100 │   █
            │   █
            │   ██
            │   ██
         50 │  ███
            │  ███
            │ ████
            │ ████▁
          0 └──────
             0  6 s
        ");
    }

    #[test]
    fn a_trend_shows_steps_and_gaps_and_does_not_blow_up_noise() {
        let trend_of = |values: &[f64]| trend(&values.iter().copied().map(Some).collect::<Vec<_>>());
        assert_eq!(trend_of(&[100.0, 100.0, 90.0, 95.0]), "██▁▅");
        let noise = trend_of(&[100.0, 100.1, 99.9]);
        assert!(noise.chars().all(|letter| "▄▅".contains(letter)), "{noise}");
        assert_eq!(trend(&[Some(1.0), None, Some(2.0)]), "▁·█");
        assert_eq!(trend(&[None, None]), "··");
        assert_eq!(trend(&[Some(0.0)]), "▅");
    }

    #[test]
    fn a_long_series_keeps_its_peak_and_an_empty_one_is_flat() {
        let mut long = vec![1.0; 200];
        long[130] = 9.0;
        let drawn = plot("Requests", &long);
        assert!(
            drawn.contains("(each column shows the largest value within 3 s)"),
            "{drawn}"
        );
        assert_eq!(drawn.matches('█').count(), 8, "{drawn}");
        assert!(
            drawn.lines().all(|line| line.chars().count() <= WIDTH + 4),
            "{drawn}"
        );
        assert!(!plot("Requests", &[0.0, 0.0]).contains('▁'));
        assert!(plot("Requests", &[]).contains("0 s"));
    }
}
