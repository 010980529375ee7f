//! One figure of one cell on two sides: the effect, and what may be said of it.

use super::exact;
use super::student::{self, Interval};
use crate::judge::metrics::Better;

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It got worse, by more than the floor and beyond chance.
    Worse,
    /// It cannot be told.
    Unclear,
    /// Whatever changed lies within the floor.
    Same,
    /// It got better, by more than the floor and beyond chance.
    Better,
}

impl Verdict {
    /// The verdict as it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Worse => "worse",
            Self::Unclear => "unclear",
            Self::Same => "same",
            Self::Better => "better",
        }
    }
}

/// How the chance was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// The exact rank-sum test, with the shift of Hodges and Lehmann.
    RankSum,
    /// Student's t on the logarithms.
    Student,
}

impl Test {
    /// The test as it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RankSum => "rank-sum, exact",
            Self::Student => "t on log ratio",
        }
    }
}

/// A relative change with how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// The candidate relative to the baseline, less one: -0.05 is five percent less.
    pub change: f64,
    /// Where it lies with 95 % confidence, taken alone.
    pub interval: Interval,
    /// The two-sided chance of such a difference where there is none, taken alone.
    pub p: f64,
    /// The test that gave both.
    pub test: Test,
}

/// The confidence of intervals.
pub const LEVEL: f64 = 0.95;

/// The logarithms of a figure of starts; `None` if one of them has none.
pub fn logs(starts: &[f64]) -> Option<Vec<f64>> {
    let all_positive = starts.iter().all(|value| value.is_finite() && *value > 0.0);
    (all_positive && !starts.is_empty()).then(|| starts.iter().map(|value| value.ln()).collect())
}

/// A difference of logarithms as a relative change.
pub fn relative(difference: f64) -> f64 {
    difference.exp_m1()
}

/// The effect between two sides of at least two starts each, whose figures are given as logarithms. `family` is the number of tests that
/// are looked at together: where their smallest attainable p could not stand among so many, the exact test would be silent by design, and
/// an interval by t takes its place.
pub fn effect(first: &[f64], second: &[f64], family: usize) -> Option<Effect> {
    if first.len() < 2 || second.len() < 2 {
        return None;
    }
    let bar = (1.0 - LEVEL) / family.max(1) as f64;
    let attains = exact::smallest_p(first.len(), second.len()).is_some_and(|least| least <= bar);
    let ranked = || {
        Some(Effect {
            change: relative(exact::shift(first, second)?),
            interval: scaled(exact::shift_interval(first, second, LEVEL)?),
            p: exact::rank_sum(first, second)?.two_sided,
            test: Test::RankSum,
        })
    };
    if attains && let Some(effect) = ranked() {
        return Some(effect);
    }
    let difference = student::difference(first, second)?;
    Some(Effect {
        change: relative(difference.value),
        interval: scaled(difference.interval(LEVEL)),
        p: difference.two_sided(),
        test: Test::Student,
    })
}

fn scaled(interval: Interval) -> Interval {
    Interval {
        low: relative(interval.low),
        high: relative(interval.high),
    }
}

/// A verdict and the reason for it.
pub type Said = (Verdict, String);

/// What may be said of an effect: it is beyond chance *and* beyond the floor, or wholly within the floor, or unclear. `q` is the chance
/// after all tests that were looked at, `floor` the smallest change that counts, as a share.
pub fn verdict(effect: &Effect, q: f64, floor: f64, better: Better) -> Said {
    let Effect { change, interval, .. } = effect;
    let percent = |share: f64| format!("{:+.1} %", share * 100.0);
    let between = format!("{} to {}", percent(interval.low), percent(interval.high));
    let floored = format!("the floor of {:.1} %", floor * 100.0);
    let is_beyond = change.abs() > floor;
    if q <= 1.0 - LEVEL && is_beyond {
        let is_good = (*change > 0.0) == (better == Better::Higher);
        let said = if is_good { Verdict::Better } else { Verdict::Worse };
        return (
            said,
            format!(
                "{} is beyond {floored} and beyond chance (p = {})",
                percent(*change),
                chance(q)
            ),
        );
    }
    if interval.low >= -floor && interval.high <= floor {
        return (Verdict::Same, format!("{between} lies within {floored}"));
    }
    let why = if !is_beyond {
        format!(
            "{between} reaches beyond {floored}, and {} does not",
            percent(*change)
        )
    } else if effect.p <= 1.0 - LEVEL {
        format!(
            "{between} would be beyond chance alone, and is not among all that was compared (p = {})",
            chance(q)
        )
    } else {
        format!("{between} holds no change and one beyond {floored}")
    };
    (Verdict::Unclear, format!("{why}: more starts are needed"))
}

/// A chance in few characters.
pub fn chance(p: f64) -> String {
    if p < 0.0001 {
        "< 0.0001".to_owned()
    } else {
        format!("{p:.4}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: [f64; 5] = [100.0, 101.0, 99.0, 100.5, 99.5];

    fn judged(scale: f64, spread: f64, floor: f64, family: usize) -> (Verdict, String, Test) {
        let first = logs(&BASE).unwrap();
        let second: Vec<f64> = first
            .iter()
            .map(|log| first[0] + (log - first[0]) * spread + scale.ln())
            .collect();
        let effect = effect(&first, &second, family).unwrap();
        let (said, why) = verdict(
            &effect,
            (effect.p * family as f64).min(1.0),
            floor,
            Better::Higher,
        );
        (said, why, effect.test)
    }

    #[test]
    fn four_things_can_be_said() {
        assert_eq!(judged(0.95, 1.0, 0.02, 1).0, Verdict::Worse);
        assert_eq!(judged(1.05, 1.0, 0.02, 1).0, Verdict::Better);
        assert_eq!(judged(0.999, 1.0, 0.02, 1).0, Verdict::Same);
        assert_eq!(judged(0.98, 8.0, 0.02, 1).0, Verdict::Unclear);
    }

    #[test]
    fn a_sure_change_within_the_floor_is_no_finding() {
        let (said, why, _) = judged(0.985, 0.5, 0.02, 1);
        assert_eq!(said, Verdict::Unclear, "{why}");
        assert!(why.contains("reaches beyond the floor of 2.0 %"), "{why}");
        assert_eq!(judged(0.985, 0.5, 0.04, 1).0, Verdict::Same);
    }

    #[test]
    fn the_exact_test_is_taken_only_where_it_could_be_heard() {
        assert_eq!(judged(0.95, 1.0, 0.02, 6).2, Test::RankSum);
        let (said, _, test) = judged(0.95, 1.0, 0.02, 7);
        assert_eq!((said, test), (Verdict::Worse, Test::Student));
    }

    #[test]
    fn less_is_better_for_times() {
        let first = logs(&BASE).unwrap();
        let second: Vec<f64> = first.iter().map(|log| log - 0.1).collect();
        let effect = effect(&first, &second, 1).unwrap();
        assert_eq!(verdict(&effect, effect.p, 0.02, Better::Lower).0, Verdict::Better);
        assert_eq!(super::effect(&first[..1], &second, 1), None);
        assert_eq!(logs(&[1.0, 0.0]), None);
    }
}
