//! The steps of a search: the default, configurations spread over the space, then the most promising ones by the model
//! with random ones in between, and at the end the best one again.

use super::draws::Draws;
use super::measured::{Measured, Record};
use super::model::Model;
use super::{Contribution, Knob, Point, Proposal, Space, TrialSize, Tuner};

/// Most points of a space for which all are candidates.
const ALL_POINTS: usize = 4000;

/// Random candidates in larger spaces.
const RANDOM_CANDIDATES: usize = 2500;

/// Most trials of a size of one configuration.
const MAX_REPEATS: usize = 3;

/// One of this many configurations is random, after the first ones.
const RANDOM_EVERY: usize = 8;

/// Random points of which the one that is furthest from all others is proposed.
const SPREAD_OVER: usize = 60;

/// The least expected improvement, as a share, for which a configuration is measured again where all have been.
const LEAST_IMPROVEMENT: f64 = 0.001;

/// Fewest trials of a search whose last ones repeat the best configuration.
const MIN_BUDGET_OF_REPEATS: usize = 6;

/// The least ratio to the default for which a winner is preferred to it, as a logarithm.
const LEAST_GAIN: f64 = 0.005;

/// A standard deviation of the logarithm of a ratio up to which a contribution is known, however small it is.
const LEAST_KNOWN: f64 = 0.03;

/// The least probability at which an unmeasured configuration counts as one that runs.
const RUNS: f64 = 0.8;

/// A search at one moment.
pub(super) struct Search<'a> {
    tuner: &'a Tuner,
    measured: Measured,
    model: Model,
}

impl<'a> Search<'a> {
    pub(super) fn new(tuner: &'a Tuner) -> Self {
        let measured = Measured::new(&tuner.trials);
        let model = Model::new(&tuner.space, &measured, tuner.seed);
        Self {
            tuner,
            measured,
            model,
        }
    }

    pub(super) fn next(&self, left: usize) -> Option<Proposal> {
        if left == 0 {
            return None;
        }
        let mut candidates = self.candidates();
        let is_new = |point: &Point| self.measured.get(point).is_none();
        let new = candidates.iter().filter(|point| is_new(point)).count();
        let has_new = new > 0;
        let tries_all = has_new && new <= left && self.tuner.space.size() <= ALL_POINTS;
        let chosen = self
            .default_trial()
            .or_else(|| self.confirming_trial(left, tries_all));
        if chosen.is_some() {
            return chosen;
        }
        // Nothing is measured again while the budget allows to measure all.
        if tries_all {
            candidates.retain(is_new);
        }
        let point = if has_new && self.is_random_turn(left) {
            self.spread_point(&candidates)
        } else {
            self.promising_point(&candidates, has_new)
        }?;
        Some(self.proposal(point))
    }

    /// The default, until something is known of it.
    fn default_trial(&self) -> Option<Proposal> {
        let point = self.tuner.space.default_point();
        let none = Record::default();
        let record = self.measured.get(&point).unwrap_or(&none);
        let is_open = !record.is_infeasible && record.unknown < 2;
        let size = if self.tuner.begins_short && record.short.is_empty() {
            TrialSize::Short
        } else {
            TrialSize::Full
        };
        (is_open && record.full.is_empty()).then_some(Proposal { point, size })
    }

    /// A trial of a configuration that may be the best, so that it is known well enough: a full one after a short one,
    /// or a repeat at the end.
    fn confirming_trial(&self, left: usize, tries_all: bool) -> Option<Proposal> {
        let budget = self.tuner.trials.len() + left;
        let is_end = left <= 2 && budget >= MIN_BUDGET_OF_REPEATS && !tries_all;
        let means = self.measured.0.iter().filter(|(_, record)| record.is_measured());
        let means = means.filter_map(|(point, record)| Some((self.model.figure(point)?.mean, point, record)));
        let means: Vec<(f64, &Point, &Record)> = means.collect();
        let best = means.iter().max_by(|one, other| one.0.total_cmp(&other.0));
        let (_, best, record) = best?;
        if self.tuner.begins_short && !record.is_full() && record.unknown == 0 {
            let reference = means.iter().filter(|(_, _, record)| record.is_full());
            let reference = reference.max_by(|one, other| one.0.total_cmp(&other.0));
            let is_promising = reference.is_none_or(|(_, other, _)| {
                let gain = self.model.ratio(best, other);
                gain.is_some_and(|gain| gain.mean > LEAST_GAIN.max(0.5 * gain.deviation))
            });
            if is_promising || left <= 2 {
                return Some(Proposal {
                    point: (*best).clone(),
                    size: TrialSize::Full,
                });
            }
        }
        let is_once = record.full.len() == 1 && record.unknown == 0;
        (is_end && is_once).then(|| Proposal {
            point: (*best).clone(),
            size: TrialSize::Full,
        })
    }

    /// The configuration with the size at which it is measured next.
    fn proposal(&self, point: Point) -> Proposal {
        let is_new = self
            .measured
            .get(&point)
            .is_none_or(|record| record.figures() == 0);
        let size = if self.tuner.begins_short && is_new {
            TrialSize::Short
        } else {
            TrialSize::Full
        };
        Proposal { point, size }
    }

    /// Whether a configuration is measured now that does not depend on the model.
    fn is_random_turn(&self, left: usize) -> bool {
        let varied = self
            .tuner
            .space
            .knobs
            .iter()
            .filter(|knob| knob.values > 1)
            .count();
        let budget = self.tuner.trials.len() + left;
        let first = varied.clamp(2, 3).min((budget / 4).max(1));
        let tried = self.measured.0.len();
        if tried <= first || !self.model.has_figures() {
            return tried <= first;
        }
        left > 3 && (tried - first).is_multiple_of(RANDOM_EVERY)
    }

    /// All points that may be measured. Left out are those that do not run, those of which nothing could be found, and
    /// those that have been measured often.
    fn candidates(&self) -> Vec<Point> {
        let space = &self.tuner.space;
        let mut points = if space.size() <= ALL_POINTS {
            space.all_points()
        } else {
            self.sampled_points()
        };
        points.retain(|point| {
            let is_open = |record: &Record| {
                record.is_measured() && record.unknown == 0 && record.full.len() < MAX_REPEATS
            };
            self.measured.get(point).is_none_or(is_open)
        });
        points
    }

    /// Random points, the neighbours of the best ones, and what was measured.
    fn sampled_points(&self) -> Vec<Point> {
        const BEST: usize = 4;
        let space = &self.tuner.space;
        let mut draws = self.draws(1);
        let mut points: Vec<Point> = (0..RANDOM_CANDIDATES)
            .map(|_| space.random_point(&mut draws))
            .collect();
        let mut best: Vec<(f64, &Point)> = self
            .measured
            .0
            .iter()
            .filter(|(_, record)| record.is_measured())
            .filter_map(|(point, _)| Some((self.model.figure(point)?.mean, point)))
            .collect();
        best.sort_by(|one, other| other.0.total_cmp(&one.0));
        for (_, point) in best.iter().take(BEST) {
            points.extend(space.neighbours(point, &mut draws));
        }
        points.extend(self.measured.0.keys().cloned());
        points.sort();
        points.dedup();
        points
    }

    /// The unmeasured one of some random points that is furthest from all measured ones and likely to run.
    fn spread_point(&self, candidates: &[Point]) -> Option<Point> {
        let mut draws = self.draws(2);
        let new: Vec<&Point> = candidates
            .iter()
            .filter(|point| self.measured.get(point).is_none())
            .collect();
        if new.is_empty() {
            return None;
        }
        let drawn = (0..SPREAD_OVER).map(|_| new[draws.below(new.len())]);
        let scored = drawn.map(|point| (self.remoteness(point) * self.model.chance_to_run(point), point));
        scored
            .max_by(|one, other| one.0.total_cmp(&other.0))
            .map(|(_, point)| point.clone())
    }

    /// The distance to the nearest configuration with a trial.
    fn remoteness(&self, point: &[usize]) -> f64 {
        let distances = self
            .measured
            .0
            .keys()
            .map(|other| self.tuner.space.distance(point, other));
        distances.fold(f64::INFINITY, f64::min).min(1e9)
    }

    fn promising_point(&self, candidates: &[Point], has_new: bool) -> Option<Point> {
        let runs = self.measured.0.iter().filter(|(_, record)| record.is_measured());
        let runs: Vec<&Point> = runs.map(|(point, _)| point).collect();
        if runs.is_empty() {
            return self.spread_point(candidates);
        }
        let (point, improvement) = self.model.most_promising(candidates, &runs)?;
        if has_new || improvement >= LEAST_IMPROVEMENT {
            Some(point)
        } else {
            None
        }
    }

    pub(super) fn winner(&self) -> Option<Point> {
        let full = self.measured.0.iter().filter(|(_, record)| record.is_full());
        let means = full.filter_map(|(point, _)| Some((self.model.figure(point)?.mean, point)));
        let (_, best) = means.max_by(|one, other| one.0.total_cmp(&other.0))?;
        let default = self.tuner.space.default_point();
        let is_default_known = self.measured.get(&default).is_some_and(Record::is_full);
        let is_no_gain = || {
            let gain = self.model.ratio(best, &default);
            gain.is_none_or(|gain| gain.mean < LEAST_GAIN.max(0.3 * gain.deviation))
        };
        if is_default_known && is_no_gain() {
            Some(default)
        } else {
            Some(best.clone())
        }
    }

    pub(super) fn contributions(&self) -> Vec<Contribution> {
        let Some(winner) = self.winner() else {
            return Vec::new();
        };
        let changed = self
            .tuner
            .space
            .knobs
            .iter()
            .enumerate()
            .filter(|(at, knob)| winner[*at] != knob.default);
        let contribution = |(at, knob): (usize, &Knob)| {
            let mut without = winner.clone();
            without[at] = knob.default;
            let runs = match self.measured.get(&without) {
                Some(record) if record.is_decided() => record.is_measured(),
                _ => self.model.chance_to_run(&without) >= RUNS,
            };
            let of_trials = self.measured.full_ratio(&winner, &without);
            let of_model = || {
                let ratio = self.model.full_ratio(&winner, &without).filter(|_| runs)?;
                // The trials do not separate settings that always changed together.
                (ratio.deviation <= (0.5 * ratio.mean.abs()).max(LEAST_KNOWN)).then_some(ratio.mean)
            };
            Contribution {
                knob: at,
                ratio: of_trials.or_else(of_model).map(f64::exp),
            }
        };
        let mut contributions: Vec<Contribution> = changed.map(contribution).collect();
        let order = |contribution: &Contribution| contribution.ratio.unwrap_or(f64::INFINITY);
        contributions.sort_by(|one, other| order(other).total_cmp(&order(one)));
        contributions
    }

    /// Draws for one purpose of this step.
    fn draws(&self, purpose: u64) -> Draws {
        Draws::new(self.tuner.seed, (self.tuner.trials.len() as u64) << 8 | purpose)
    }
}

impl Space {
    pub(super) fn default_point(&self) -> Point {
        self.knobs.iter().map(|knob| knob.default).collect()
    }

    /// The number of points.
    fn size(&self) -> usize {
        self.knobs
            .iter()
            .fold(1, |size: usize, knob| size.saturating_mul(knob.values))
    }

    fn all_points(&self) -> Vec<Point> {
        let mut points = vec![Vec::with_capacity(self.knobs.len())];
        for knob in &self.knobs {
            let extended = points.iter().flat_map(|point: &Point| {
                (0..knob.values).map(|value| {
                    let mut longer = point.clone();
                    longer.push(value);
                    longer
                })
            });
            points = extended.collect();
        }
        points
    }

    fn random_point(&self, draws: &mut Draws) -> Point {
        self.knobs.iter().map(|knob| draws.below(knob.values)).collect()
    }

    /// All points that differ in one knob, and some that differ in two.
    fn neighbours(&self, point: &[usize], draws: &mut Draws) -> Vec<Point> {
        const VALUES: usize = 16;
        const PAIRS: usize = 100;
        let mut neighbours = Vec::new();
        for (at, knob) in self.knobs.iter().enumerate() {
            for step in 0..knob.values.min(VALUES) {
                let value = if knob.values <= VALUES {
                    step
                } else {
                    draws.below(knob.values)
                };
                let mut neighbour = point.to_vec();
                neighbour[at] = value;
                neighbours.push(neighbour);
            }
        }
        for _ in 0..PAIRS.min(self.knobs.len() * self.knobs.len() * 4) {
            let mut neighbour = point.to_vec();
            for _ in 0..2 {
                let at = draws.below(self.knobs.len());
                neighbour[at] = draws.below(self.knobs[at].values);
            }
            neighbours.push(neighbour);
        }
        neighbours
    }

    /// The sum of the distances of all knobs, each from 0 to 1.
    fn distance(&self, first: &[usize], second: &[usize]) -> f64 {
        let of_knob = |(at, knob): (usize, &Knob)| {
            if knob.is_ordered {
                first[at].abs_diff(second[at]) as f64 / (knob.values.max(2) - 1) as f64
            } else {
                f64::from(u8::from(first[at] != second[at]))
            }
        };
        self.knobs.iter().enumerate().map(of_knob).sum()
    }
}
