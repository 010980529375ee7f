//! Values to places: where axes begin and end, where their ticks stand, how numbers are written.

/// How values lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From nothing on, evenly.
    FromZero,
    /// Around the values, evenly.
    Around,
    /// A share between 0 and 1.
    Share,
    /// Equal ratios lie equally far apart; where a value is not above 0, or all lie close together, this is [`Self::FromZero`].
    Ratio,
}

/// An axis with its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    /// The value at `start`.
    pub(super) from: f64,
    /// The value at `end`.
    pub(super) to: f64,
    /// Whether equal ratios lie equally far apart.
    pub(super) is_log: bool,
    /// The place of `from`.
    start: f64,
    /// The place of `to`.
    end: f64,
    /// Values that are marked.
    pub(super) ticks: Vec<f64>,
}

/// The ratio of the most to the least from which equal ratios are worth equal distances.
const WIDE: f64 = 30.0;

impl Scale {
    /// A scale for these values between two places, with about `count` ticks.
    pub(super) fn of(
        kind: Kind,
        values: impl Iterator<Item = f64>,
        start: f64,
        end: f64,
        count: usize,
    ) -> Self {
        let (mut least, mut most) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            (least, most) = (least.min(value), most.max(value));
        }
        if least > most {
            (least, most) = (0.0, 1.0);
        }
        let is_log = kind == Kind::Ratio && least > 0.0 && most / least >= WIDE;
        let ticks = match kind {
            _ if is_log => decades(least, most),
            Kind::Share => even(0.0, 1.0, 5),
            Kind::Around => {
                // Values that hardly differ are not blown up until their noise fills the picture.
                let room = ((most - least) / 2.0)
                    .max(most.abs() * 0.02)
                    .max(f64::MIN_POSITIVE);
                let middle = f64::midpoint(least, most);
                even(middle - room, middle + room, count)
            }
            Kind::FromZero | Kind::Ratio => even(least.min(0.0), most.max(0.0), count),
        };
        let (from, to) = (ticks[0], ticks[ticks.len() - 1]);
        Self {
            from,
            to,
            is_log,
            start,
            end,
            ticks,
        }
    }

    /// The place of a value.
    pub(super) fn at(&self, value: f64) -> f64 {
        let share = match self.is_log {
            true => (value.max(self.from).ln() - self.from.ln()) / (self.to.ln() - self.from.ln()),
            false => (value - self.from) / (self.to - self.from),
        };
        self.start + share * (self.end - self.start)
    }

    /// The ticks with what is written beside them.
    pub(super) fn labels(&self) -> Vec<(f64, String)> {
        let step = match self.ticks[..] {
            [first, second, ..] if !self.is_log => second - first,
            _ => 0.0,
        };
        let written = |tick: &f64| (*tick, tick_text(*tick, step));
        self.ticks.iter().map(written).collect()
    }
}

/// About `count` steps of 1, 2, 2.5 or 5 times a power of ten that hold both ends.
fn even(from: f64, to: f64, count: usize) -> Vec<f64> {
    let range = if to > from { to - from } else { 1.0 };
    let rough = range / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(power * 10.0);
    // A little less than the end itself, so that rounding does not add a step.
    let (first, last) = ((from / step + 1e-9).floor(), (from + range) / step - 1e-9);
    let steps = (last.ceil() - first).max(1.0) as usize;
    (0..=steps).map(|at| (first + at as f64) * step).collect()
}

/// Powers of ten with 2 and 5 times each, where there is room, that hold both ends.
fn decades(least: f64, most: f64) -> Vec<f64> {
    let (first, last) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    let factors: &[f64] = if last - first > 4 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let all: Vec<f64> = (first..=last)
        .flat_map(|power| factors.iter().map(move |factor| factor * 10f64.powi(power)))
        .collect();
    let begin = all.iter().rposition(|tick| *tick <= least).unwrap_or(0);
    let end = all.iter().position(|tick| *tick >= most).unwrap_or(all.len() - 1);
    all[begin..=end].to_vec()
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

/// Digits after the point that a value is worth: four in all, as far as there are as many.
pub(super) fn decimals(value: f64) -> usize {
    match value.abs() {
        size if size >= 1000.0 || size == 0.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        size if size >= 1.0 => 3,
        _ => 4,
    }
}

/// A value as it is written beside a mark.
pub(super) fn text(value: f64) -> String {
    format!("{value:.*}", decimals(value))
}
