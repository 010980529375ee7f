//! Engines whose best configuration is known: for each configuration the true figure, or that it does not run.

use super::engine::{EngineCase, WORKLOADS};
use crate::analysis::tune::{Knob, Point, Space};
use crate::sim::rng::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Flat,
    Dominant,
    Interactions,
    Narrow,
    /// The simulated engine's throughput; the largest shares of the memory crash.
    CrashCliff,
    /// The simulated engine's goodput under an SLO, with large differences between its starts.
    Noisy,
}

pub const KINDS: [Kind; 6] = [
    Kind::Flat,
    Kind::Dominant,
    Kind::Interactions,
    Kind::Narrow,
    Kind::CrashCliff,
    Kind::Noisy,
];

/// The true figures of all configurations, and the noise of one start.
#[derive(Clone, Debug)]
pub struct Surface {
    pub space: Space,
    /// Standard deviation of the logarithm of the figure over starts.
    pub noise: f64,
    /// Logarithms of the true figures in the order of the points, the last knob fastest; `None` for those that do not run.
    pub figures: Vec<Option<f64>>,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::Dominant => "one dominant knob",
            Self::Interactions => "interactions",
            Self::Narrow => "narrow feasible region",
            Self::CrashCliff => "crash cliff (engine)",
            Self::Noisy => "noisy (engine)",
        }
    }

    /// The surface of a seed. Those of the engine depend on the seed by their workload only.
    pub fn surface(self, seed: u64) -> Surface {
        let mut rng = Rng::new(seed, 0x5eaf);
        match self {
            Self::Flat => Surface::of(flags(&mut rng), 0.01, |_| Some(0.0)),
            Self::Dominant => dominant(&mut rng),
            Self::Interactions => interactions(&mut rng),
            Self::Narrow => narrow(&mut rng),
            Self::CrashCliff => engine(&WORKLOADS[0], seed, 0.01),
            Self::Noisy => engine(&WORKLOADS[1], seed, 0.05),
        }
    }

    /// Seeds with the same number have the same surface.
    pub fn variant(self, seed: u64) -> u64 {
        match self {
            Self::CrashCliff | Self::Noisy => seed % EngineCase::VARIANTS,
            _ => seed,
        }
    }
}

impl Surface {
    fn of(space: Space, noise: f64, figure: impl Fn(&[usize]) -> Option<f64>) -> Self {
        let count = space.knobs.iter().map(|knob| knob.values).product();
        let figures = (0..count).map(|index| figure(&point_at(&space, index))).collect();
        Self { space, noise, figures }
    }

    /// The logarithm of the true figure.
    pub fn figure(&self, point: &[usize]) -> Option<f64> {
        let knobs = self.space.knobs.iter().zip(point);
        self.figures[knobs.fold(0, |index, (knob, value)| index * knob.values + value)]
    }

    pub fn best(&self) -> f64 {
        self.figures.iter().flatten().copied().fold(f64::NEG_INFINITY, f64::max)
    }

    pub fn default_point(&self) -> Point {
        self.space.knobs.iter().map(|knob| knob.default).collect()
    }

    pub fn random_point(&self, rng: &mut Rng) -> Point {
        let knobs = self.space.knobs.iter();
        knobs.map(|knob| rng.below(knob.values as u64) as usize).collect()
    }

    /// The share of configurations that run.
    pub fn feasible(&self) -> f64 {
        self.figures.iter().flatten().count() as f64 / self.figures.len() as f64
    }
}

pub fn point_at(space: &Space, mut index: usize) -> Point {
    let mut point: Point = space.knobs.iter().rev().map(|knob| {
        let value = index % knob.values;
        index /= knob.values;
        value
    }).collect();
    point.reverse();
    point
}

pub fn knob(name: &str, is_ordered: bool, values: usize, default: usize) -> Knob {
    Knob { name: name.to_owned(), is_ordered, values, default }
}

/// The knobs of an engine, with defaults that are not the best.
fn flags(rng: &mut Rng) -> Space {
    let inner = |rng: &mut Rng, values: u64| (1 + rng.below(values - 2)) as usize;
    Space {
        knobs: vec![
            knob("batch tokens", true, 6, inner(rng, 6)),
            knob("sequences", true, 6, inner(rng, 6)),
            knob("chunked prefill", false, 2, rng.below(2) as usize),
            knob("cache share", true, 5, inner(rng, 5)),
            knob("graphs", false, 2, rng.below(2) as usize),
            knob("threads", true, 5, inner(rng, 5)),
        ],
    }
}

/// The place of each knob, from 0 to 1.
fn places(space: &Space, point: &[usize]) -> Vec<f64> {
    let knobs = space.knobs.iter().zip(point);
    knobs.map(|(knob, value)| *value as f64 / (knob.values - 1) as f64).collect()
}

/// One knob is worth 40 to 120 %, with its best value anywhere but at the default; the others at most 1.5 % each.
fn dominant(rng: &mut Rng) -> Surface {
    let space = flags(rng);
    let at = [0, 1, 3, 5][rng.below(4) as usize];
    let knob = &space.knobs[at];
    let ends = [0, knob.values - 1];
    let farther = if knob.default.abs_diff(ends[0]) > knob.default.abs_diff(ends[1]) { ends[0] } else { ends[1] };
    let best = farther as f64 / (knob.values - 1) as f64;
    let reach = best - knob.default as f64 / (knob.values - 1) as f64;
    let gain = (1.4 + 0.8 * rng.next_unit()).ln() / reach.abs().powf(1.3);
    let small: Vec<f64> = space.knobs.iter().map(|_| 0.015 * (2.0 * rng.next_unit() - 1.0)).collect();
    let knobs = space.clone();
    Surface::of(space, 0.01, move |point| {
        let places = places(&knobs, point);
        let others: f64 = places.iter().zip(&small).map(|(place, effect)| place * effect).sum();
        Some(others - gain * (best - places[at]).abs().powf(1.3))
    })
}

/// Batch tokens and sequences must fit each other, and so must threads and graphs; chunked prefill turns around which
/// batches are best. No single change of the default gains much.
fn interactions(rng: &mut Rng) -> Surface {
    let mut space = flags(rng);
    let is_high = rng.below(2) == 1;
    for at in [0, 1] {
        space.knobs[at].default = if is_high { 1 } else { 4 };
    }
    space.knobs[2].default = usize::from(!is_high);
    let (match_cost, level, switch) = (1.6 + rng.next_unit(), 0.5 + 0.3 * rng.next_unit(), 0.25 + 0.2 * rng.next_unit());
    let (thread_cost, cache, cache_best) = (0.3 + 0.3 * rng.next_unit(), 0.2 * rng.next_unit(), rng.next_unit());
    let graphs_at_high = rng.below(2) == 1;
    let knobs = space.clone();
    Surface::of(space, 0.01, move |point| {
        let x = places(&knobs, point);
        let size = 0.5 * (x[0] + x[1]);
        let toward = if is_high { size } else { 1.0 - size };
        let chunked = if (x[2] > 0.5) == is_high { switch * (toward - 0.5) } else { -switch * (toward - 0.5) };
        let threads = if (x[4] > 0.5) == graphs_at_high { 0.75 } else { 0.25 };
        let graphs = if (x[4] > 0.5) == is_high { 0.1 } else { 0.0 };
        Some(level * toward - match_cost * (x[0] - x[1]).powi(2) + chunked
            - thread_cost * (x[5] - threads).abs() + graphs - cache * (x[3] - cache_best).powi(2))
    })
}

/// Most configurations run out of memory or are refused; the figure rises towards the border.
fn narrow(rng: &mut Rng) -> Surface {
    let mut space = flags(rng);
    for (at, default) in [(0, 1), (1, 1), (3, 1)] {
        space.knobs[at].default = default;
    }
    (space.knobs[2].default, space.knobs[4].default) = (1, 0);
    let weights: Vec<f64> = [0, 1, 3].map(|_| 0.6 + 0.8 * rng.next_unit()).to_vec();
    let gains: Vec<f64> = [0, 1, 3].map(|_| 0.15 + 0.5 * rng.next_unit()).to_vec();
    let (graphs, threads, chunked) = (0.1 + 0.15 * rng.next_unit(), 0.1 + 0.3 * rng.next_unit(), 0.1 * rng.next_unit());
    let best_threads = rng.next_unit();
    let knobs = space.clone();
    Surface::of(space, 0.01, move |point| {
        let x = places(&knobs, point);
        let memory = weights[0] * x[0] + weights[1] * x[1] + weights[2] * x[3] + 0.3 * x[4];
        // Without chunked prefill a step must hold the longest prompt; too many threads are refused.
        let is_refused = (point[2] == 0 && point[0] < 4) || (point[5] == 4 && point[4] == 1);
        if memory > 1.0 || is_refused {
            return None;
        }
        Some(gains[0] * x[0] + gains[1] * x[1] + gains[2] * x[3] + graphs * x[4] - chunked * x[2]
            - threads * (x[5] - best_threads).abs())
    })
}

fn engine(case: &EngineCase, seed: u64, noise: f64) -> Surface {
    let variant = seed % EngineCase::VARIANTS;
    Surface::of(case.space(), noise, |point| case.figure(point, variant))
}
