//! Searches on a surface: by the tuner, and at random.

use super::surfaces::Surface;
use crate::analysis::tune::{Point, Trial, TrialOutcome, TrialSize, Tuner};
use crate::sim::rng::Rng;

/// What a search of a number of starts came to.
#[derive(Clone, Debug)]
pub struct Found {
    pub winner: Point,
    /// The share of the best figure that the winner lacks.
    pub regret: f64,
    /// The starts after which the winner first lacked at most 5 %.
    pub starts: Option<usize>,
    /// Starts of configurations that did not run.
    pub crashes: usize,
}

/// The regret at which a search has arrived.
const ARRIVED: f64 = 0.05;

pub fn normal(rng: &mut Rng) -> f64 {
    (-2.0 * (1.0 - rng.next_unit()).ln()).sqrt() * (std::f64::consts::TAU * rng.next_unit()).cos()
}

impl Surface {
    pub fn regret(&self, point: &[usize]) -> f64 {
        self.figure(point).map_or(1.0, |figure| 1.0 - (figure - self.best()).exp())
    }

    /// Starts a configuration once.
    fn start(&self, point: &[usize], rng: &mut Rng) -> TrialOutcome {
        let noise = self.noise * normal(rng);
        self.figure(point).map_or(TrialOutcome::Infeasible, |log| TrialOutcome::Measured((log + noise).exp()))
    }

    /// A search by the tuner.
    pub fn tuned(&self, starts: usize, seed: u64) -> Found {
        let mut rng = Rng::new(seed, 0x7a1);
        let mut tuner = Tuner { space: self.space.clone(), seed, trials: Vec::new(), begins_short: false };
        let mut arrived = None;
        while tuner.trials.len() < starts {
            let Some(next) = tuner.next(starts - tuner.trials.len()) else { break };
            let outcome = self.start(&next.point, &mut rng);
            tuner.trials.push(Trial { point: next.point, size: TrialSize::Full, outcome });
            if arrived.is_none() && self.has_arrived(&tuner.trials) {
                let is_there = tuner.winner().is_some_and(|winner| self.regret(&winner) <= ARRIVED);
                arrived = is_there.then_some(tuner.trials.len());
            }
        }
        let winner = tuner.winner().unwrap_or_else(|| self.default_point());
        self.found(winner, arrived, &tuner.trials)
    }

    /// The default, then random configurations; the highest figure wins.
    pub fn random(&self, starts: usize, seed: u64) -> Found {
        let mut rng = Rng::new(seed, 0x4a4d);
        let mut trials: Vec<Trial> = Vec::new();
        let (mut best, mut arrived): (Option<(f64, Point)>, _) = (None, None);
        while trials.len() < starts {
            let point = if trials.is_empty() { self.default_point() } else { self.random_point(&mut rng) };
            if trials.iter().any(|trial| trial.point == point) {
                continue;
            }
            let outcome = self.start(&point, &mut rng);
            if let TrialOutcome::Measured(figure) = outcome
                && best.as_ref().is_none_or(|(other, _)| figure > *other)
            {
                best = Some((figure, point.clone()));
            }
            trials.push(Trial { point, size: TrialSize::Full, outcome });
            let is_there = best.as_ref().is_some_and(|(_, point)| self.regret(point) <= ARRIVED);
            arrived = arrived.or(is_there.then_some(trials.len()));
        }
        let winner = best.map_or_else(|| self.default_point(), |(_, point)| point);
        self.found(winner, arrived, &trials)
    }

    /// Whether a configuration that lacks little was started.
    fn has_arrived(&self, trials: &[Trial]) -> bool {
        trials.iter().any(|trial| self.regret(&trial.point) <= ARRIVED)
    }

    fn found(&self, winner: Point, starts: Option<usize>, trials: &[Trial]) -> Found {
        Found {
            regret: self.regret(&winner),
            winner,
            starts,
            crashes: trials.iter().filter(|trial| trial.outcome == TrialOutcome::Infeasible).count(),
        }
    }
}
