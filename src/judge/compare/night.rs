//! Many cells in one night against a pinned baseline: screen all, confirm the suspects by fresh starts, alarm only then.
//!
//! Five starts against five have a smallest p of 0.008, and a gate over 360 cells needs 0.00014: one look can never alarm soundly. So
//! a first look with what the night measured picks suspects, generously, and only starts made after that decide. As every
//! gating cell counts in the family whether it was suspected or not, the chance of any false alarm in a night is at most
//! [`Policy::alpha`] however suspects are picked: the picking can only turn rejections into none.

use super::multiplicity;
use super::spread::{self, Demand};
use super::student;
use crate::judge::metrics::Better;

/// How a night decides. Shares are between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Policy {
    /// The chance of any false alarm in a night.
    pub alpha: f64,
    /// The chance at which a cell becomes a suspect though nothing changed, where the floor does not hold it back.
    pub suspicion: f64,
    /// The smallest loss that counts.
    pub floor: f64,
    /// The loss that confirmation is planned to find.
    pub loss: f64,
    /// The chance of finding it.
    pub power: f64,
    /// The fewest fresh starts of a confirmation.
    pub least: usize,
    /// The most.
    pub most: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            alpha: 0.05,
            suspicion: 0.05,
            floor: 0.02,
            loss: 0.05,
            power: 0.98,
            least: 3,
            most: 16,
        }
    }
}

/// What a single comparison must show, for the floor that noise demands.
const FLOOR: Demand = Demand {
    alpha: 0.025,
    power: 0.9,
};

/// How much worse the second side is than the first, as a difference of logarithms above zero; below zero where it is better.
fn loss(first: &[f64], second: &[f64], better: Better) -> f64 {
    let change = student::mean(second) - student::mean(first);
    match better {
        Better::Higher => -change,
        Better::Lower => change,
    }
}

/// The chance of a loss as large where there is none; `None` where the starts cannot tell.
fn chance(first: &[f64], second: &[f64], better: Better) -> Option<f64> {
    let difference = student::difference(first, second)?;
    Some(match better {
        Better::Higher => difference.below(),
        Better::Lower => difference.above(),
    })
}

impl Policy {
    /// Whether a loss (as a difference of logarithms) is beyond the floor, or beyond a higher one that noise demands.
    fn is_beyond(&self, loss: f64, floor: f64) -> bool {
        loss > floor.max(self.floor).ln_1p()
    }

    /// Whether what the night measured makes the cell a suspect. Sides are logarithms of the figures of starts; one start is enough on
    /// the second side. `floor` is what the noise of this cell demands.
    pub fn suspects(&self, first: &[f64], second: &[f64], better: Better, floor: f64) -> bool {
        let Some(p) = chance(first, second, better) else {
            return false;
        };
        p <= self.suspicion && self.is_beyond(loss(first, second, better), floor)
    }

    /// The smallest loss, as a share, that so many starts show through a standard deviation of `sigma` (of logarithms) by themselves: below it
    /// nothing is said. Infinite where they are too few.
    pub fn noise_floor(&self, sigma: f64, baseline: usize, candidate: usize) -> f64 {
        spread::detectable(sigma, baseline, candidate, FLOOR).exp_m1()
    }

    /// How many fresh starts decide, for a cell whose starts have the standard deviation `sigma` (of logarithms), among `family` cells.
    pub fn fresh_starts(&self, sigma: f64, baseline: usize, family: usize) -> usize {
        let demand = Demand {
            alpha: self.alpha / family.max(1) as f64,
            power: self.power,
        };
        let loss = -(-self.loss).ln_1p();
        spread::starts_needed(sigma, baseline, loss, demand, self.least, self.most)
    }

    /// Which suspects are confirmed by their fresh starts, among `family` gating cells. A suspect that got none is not.
    pub fn confirm(&self, suspects: &[Suspect<'_>], family: usize) -> Vec<bool> {
        let p: Vec<f64> = suspects
            .iter()
            .map(|suspect| {
                let Suspect {
                    first,
                    fresh,
                    better,
                    floor,
                } = suspect;
                match chance(first, fresh, *better) {
                    Some(p) if self.is_beyond(loss(first, fresh, *better), *floor) => p,
                    _ => 1.0,
                }
            })
            .collect();
        multiplicity::holm(&p, family, self.alpha)
    }
}

/// A suspect with what decides over it; figures as logarithms, one of each start.
#[derive(Clone, Copy, Debug)]
pub struct Suspect<'a> {
    /// The baseline's starts.
    pub first: &'a [f64],
    /// Starts made after it was suspected.
    pub fresh: &'a [f64],
    /// Which way is better.
    pub better: Better,
    /// What the noise of this cell demands.
    pub floor: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: [f64; 5] = [0.0, 0.01, -0.01, 0.005, -0.005];

    #[test]
    fn a_suspect_is_a_loss_beyond_floor_and_chance() {
        let policy = Policy::default();
        let moved = |by: f64| FIRST.map(|log| log + by);
        assert!(policy.suspects(&FIRST, &moved(-0.05), Better::Higher, 0.0));
        assert!(!policy.suspects(&FIRST, &moved(0.05), Better::Higher, 0.0));
        assert!(policy.suspects(&FIRST, &moved(0.05), Better::Lower, 0.0));
        assert!(
            !policy.suspects(&FIRST, &moved(-0.015), Better::Higher, 0.0),
            "within the floor"
        );
        assert!(
            !policy.suspects(&FIRST, &moved(-0.05), Better::Higher, 0.06),
            "the noise allows it"
        );
        assert!(
            policy.suspects(&FIRST, &[-0.05], Better::Higher, 0.0),
            "one start is enough to suspect"
        );
        assert!(
            !policy.suspects(&[0.0], &[-0.5], Better::Higher, 0.0),
            "one against one tells nothing"
        );
    }

    #[test]
    fn fresh_starts_decide_and_a_suspect_without_any_is_not_confirmed() {
        let policy = Policy::default();
        let low = FIRST.map(|log| log - 0.06);
        let suspect = |fresh| Suspect {
            first: &FIRST,
            fresh,
            better: Better::Higher,
            floor: 0.0,
        };
        assert_eq!(
            policy.confirm(&[suspect(&low), suspect(&FIRST), suspect(&[])], 360),
            [true, false, false]
        );
    }

    #[test]
    fn noisier_cells_need_more_starts_to_decide() {
        let policy = Policy::default();
        let starts = |sigma| policy.fresh_starts(sigma, 5, 360);
        assert_eq!(starts(0.0), policy.least);
        assert!(
            starts(0.005) < starts(0.01) && starts(0.01) < starts(0.03),
            "{} {}",
            starts(0.01),
            starts(0.03)
        );
        assert_eq!(starts(0.5), policy.most);
    }
}
