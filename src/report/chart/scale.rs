//! Maps values to positions: the range of an axis, its ticks, and how numbers are written.

use crate::base::date;

/// The kind of an axis, which decides its range and spacing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AxisKind {
    /// From zero, evenly spaced.
    FromZero,
    /// Around the values, evenly spaced.
    Around,
    /// A share between 0 and 1.
    Share,
    /// Logarithmic. [`Self::FromZero`] if a value is not above 0 or if the values span less than a factor of
    /// [`MIN_LOG_RATIO`].
    Ratio,
    /// Times in days after 1970-01-01 UTC, written as dates.
    Dates,
}

/// How positions follow from values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spacing {
    Even,
    Log,
    /// Even, with dates as ticks.
    Dates,
}

impl Spacing {
    /// The name in the page's script.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Even => "even",
            Self::Log => "log",
            Self::Dates => "dates",
        }
    }
}

/// An axis with its range and its position in the drawing.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    /// The value at `start`.
    pub(super) from: f64,
    /// The value at `end`.
    pub(super) to: f64,
    pub(super) spacing: Spacing,
    /// The position of `from`.
    start: f64,
    /// The position of `to`.
    end: f64,
    pub(super) ticks: Vec<f64>,
}

/// Ratio of maximum to minimum from which an axis is logarithmic.
const MIN_LOG_RATIO: f64 = 30.0;

impl Scale {
    /// A scale for `values` between two positions, with about `count` ticks.
    pub(super) fn from_values(
        kind: AxisKind,
        values: impl Iterator<Item = f64>,
        start: f64,
        end: f64,
        count: usize,
    ) -> Self {
        let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            (min, max) = (min.min(value), max.max(value));
        }
        if min > max {
            (min, max) = (0.0, 1.0);
        }
        let is_log = kind == AxisKind::Ratio && min > 0.0 && max / min >= MIN_LOG_RATIO;
        if kind == AxisKind::Dates {
            return Self::dates((min, max), start, end, count);
        }
        let ticks = match kind {
            _ if is_log => log_ticks(min, max),
            AxisKind::Share => even_ticks(0.0, 1.0, 5),
            AxisKind::Around => {
                // A minimum range keeps the noise of nearly equal values from filling the chart.
                let room = ((max - min) / 2.0).max(max.abs() * 0.02).max(f64::MIN_POSITIVE);
                let middle = f64::midpoint(min, max);
                even_ticks(middle - room, middle + room, count)
            }
            AxisKind::FromZero | AxisKind::Ratio | AxisKind::Dates => {
                even_ticks(min.min(0.0), max.max(0.0), count)
            }
        };
        let (from, to) = (ticks[0], ticks[ticks.len() - 1]);
        Self {
            from,
            to,
            spacing: if is_log { Spacing::Log } else { Spacing::Even },
            start,
            end,
            ticks,
        }
    }

    /// A scale for times. It ends slightly beyond them instead of at a round date.
    fn dates((min, max): (f64, f64), start: f64, end: f64, count: usize) -> Self {
        let room = ((max - min) * 0.03).max(0.5 / 24.0);
        let (from, to) = (min - room, max + room);
        Self {
            from,
            to,
            spacing: Spacing::Dates,
            start,
            end,
            ticks: date_ticks(from, to, count),
        }
    }

    /// The position of a value.
    pub(super) fn position(&self, value: f64) -> f64 {
        let share = match self.spacing {
            Spacing::Log => (value.max(self.from).ln() - self.from.ln()) / (self.to.ln() - self.from.ln()),
            Spacing::Even | Spacing::Dates => (value - self.from) / (self.to - self.from),
        };
        self.start + share * (self.end - self.start)
    }

    /// The ticks with their texts.
    pub(super) fn labels(&self) -> Vec<(f64, String)> {
        let step = match self.ticks[..] {
            [first, second, ..] if self.spacing != Spacing::Log => second - first,
            _ => 0.0,
        };
        let date = match self.to - self.from {
            range if range <= MAX_HOUR_DAYS => "%m-%d %H:%M",
            range if range <= MAX_DAY_DAYS => "%m-%d",
            _ => "%Y-%m",
        };
        let written = |tick: &f64| match self.spacing {
            Spacing::Dates => (*tick, date::format_date(*tick, date)),
            Spacing::Even | Spacing::Log => (*tick, tick_text(*tick, step)),
        };
        self.ticks.iter().map(written).collect()
    }
}

/// Maximum range in days with ticks at hours.
const MAX_HOUR_DAYS: f64 = 2.5;
/// Maximum range in days with ticks at days; longer ranges have ticks at months.
const MAX_DAY_DAYS: f64 = 130.0;
/// The first Monday after 1970-01-01, from which steps of weeks are counted.
const FIRST_MONDAY: f64 = 4.0;

/// At most `count` + 1 ticks at round hours, days, Mondays or first days of months between two times.
fn date_ticks(from: f64, to: f64, count: usize) -> Vec<f64> {
    let fits = |ticks: &Vec<f64>| ticks.len() <= count + 1;
    if to - from > MAX_DAY_DAYS {
        return [1, 2, 3, 6]
            .into_iter()
            .map(|every| date::month_starts(from, to, every))
            .find(fits)
            .unwrap_or_else(|| date::month_starts(from, to, 12));
    }
    let steps: &[f64] = match to - from <= MAX_HOUR_DAYS {
        true => &[1.0 / 24.0, 3.0 / 24.0, 6.0 / 24.0, 0.5, 1.0],
        false => &[1.0, 2.0, 7.0, 14.0, 28.0],
    };
    let multiples = |step: &f64| {
        let (first, last) = (
            ((from - FIRST_MONDAY) / step).ceil(),
            ((to - FIRST_MONDAY) / step).floor(),
        );
        let count = (last - first + 1.0).max(0.0) as usize;
        (0..count)
            .map(|at| FIRST_MONDAY + (first + at as f64) * step)
            .collect()
    };
    steps.iter().map(multiples).find(fits).unwrap_or_default()
}

/// About `count` steps of 1, 2, 2.5, 5 or 10 times a power of ten that include both ends.
fn even_ticks(from: f64, to: f64, count: usize) -> Vec<f64> {
    let range = if to > from { to - from } else { 1.0 };
    let rough = range / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(power * 10.0);
    // The small difference keeps rounding from adding a step.
    let (first, last) = ((from / step + 1e-9).floor(), (from + range) / step - 1e-9);
    let steps = (last.ceil() - first).max(1.0) as usize;
    (0..=steps).map(|at| (first + at as f64) * step).collect()
}

/// Powers of ten that include both ends, also 2 and 5 times each if the range is small enough.
fn log_ticks(min: f64, max: f64) -> Vec<f64> {
    let (first, last) = (min.log10().floor() as i32, max.log10().ceil() as i32);
    let factors: &[f64] = if last - first > 4 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let ticks: Vec<f64> = (first..=last)
        .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
        .collect();
    let begin = ticks.iter().rposition(|tick| *tick <= min).unwrap_or(0);
    let end = ticks
        .iter()
        .position(|tick| *tick >= max)
        .unwrap_or(ticks.len() - 1);
    ticks[begin..=end].to_vec()
}

fn tick_text(tick: f64, step: f64) -> String {
    let (divisor, unit) = match tick.abs().max(step.abs()) {
        size if size >= 1e9 => (1e9, "G"),
        size if size >= 1e6 => (1e6, "M"),
        size if size >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    };
    if tick == 0.0 {
        return "0".to_owned();
    }
    let text = format!("{:.6}", tick / divisor);
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

/// Digits after the point for about four significant digits, at most four.
pub(super) fn decimals(value: f64) -> usize {
    match value.abs() {
        size if size >= 1000.0 || size == 0.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        size if size >= 1.0 => 3,
        _ => 4,
    }
}

/// The text of a time beside a mark.
pub(super) fn date_text(days: f64) -> String {
    date::format_date(days, "%Y-%m-%d %H:%M")
}

/// The text of a value beside a mark.
pub(super) fn value_text(value: f64) -> String {
    format!("{value:.*}", decimals(value))
}
