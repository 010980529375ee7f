//! What the finished trials say about configurations: the expected figure, and whether a configuration runs.

use statrs::distribution::{Continuous, ContinuousCDF, Normal};

use super::fit::{Mixture, Priors};
use super::measured::{Measured, mean};
use super::process::{Belief, Dimension, Observations, Process};
use super::{Point, Space};

/// Standard deviation of the logarithm of the figure over starts, as expected before the trials.
const USUAL_NOISE: f64 = 0.015;

/// Figures that vary less than this over all configurations are taken as noise.
const LEAST_SPREAD: f64 = 0.02;

/// Logarithms further below the median than this many times the distance from the median to the best are drawn in: how
/// slow a slow configuration is says little about the best ones.
const LOW_TAIL: f64 = 1.5;

/// How long the search believes that knobs act: the scale priors in units of the range of a knob.
const FIGURE_PRIORS: Priors = Priors {
    scale: (-0.7, 1.0),
    amplitude: (0.0, 0.6),
    noise: (0.0, 1.0),
    interaction: (0.0, 1.5),
};

const FEASIBILITY_PRIORS: Priors = Priors {
    scale: (0.0, 1.0),
    amplitude: (0.0, 0.4),
    noise: (-2.3, 0.4),
    interaction: (0.5, 1.5),
};

/// The models of figures and of feasibility.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// The logarithm of the figure; `None` before the first figure.
    figures: Option<Figures>,
    /// `None` if no configuration failed.
    feasibility: Option<Feasibility>,
}

#[derive(Clone, Debug)]
struct Figures {
    mixture: Mixture,
    center: f64,
    spread: f64,
    has_sizes: bool,
    low_tail: LowTail,
}

#[derive(Clone, Debug)]
struct Feasibility {
    mixture: Mixture,
    /// The expected label.
    center: f64,
}

impl Model {
    pub(super) fn new(space: &Space, measured: &Measured, seed: u64) -> Self {
        Self {
            figures: Figures::fit(space, measured, seed),
            feasibility: Feasibility::fit(space, measured, seed),
        }
    }

    pub(super) fn has_figures(&self) -> bool {
        self.figures.is_some()
    }

    /// The expected logarithm of the figure of full trials.
    pub(super) fn figure(&self, point: &[usize]) -> Option<Belief> {
        let figures = self.figures.as_ref()?;
        let belief = figures.mixture.at(&figures.full(point));
        Some(Belief {
            mean: figures.center + figures.spread * belief.mean,
            deviation: figures.spread * belief.deviation,
        })
    }

    /// The expected logarithm of the ratio of two figures of full trials.
    pub(super) fn ratio(&self, point: &[usize], other: &[usize]) -> Option<Belief> {
        let figures = self.figures.as_ref()?;
        let belief = figures
            .mixture
            .difference(&figures.full(point), &figures.full(other));
        Some(Belief {
            mean: figures.spread * belief.mean,
            deviation: figures.spread * belief.deviation,
        })
    }

    /// [`Self::ratio`] of a good configuration to one that may be slow, as slow as it is.
    pub(super) fn full_ratio(&self, good: &[usize], other: &[usize]) -> Option<Belief> {
        let ratio = self.ratio(good, other)?;
        let drawn = self.figure(other)?.mean;
        let (undrawn, growth) = self.figures.as_ref()?.low_tail.undrawn(drawn);
        Some(Belief {
            mean: ratio.mean + drawn - undrawn,
            deviation: growth * ratio.deviation,
        })
    }

    /// The probability that a configuration runs.
    pub(super) fn chance_to_run(&self, point: &[usize]) -> f64 {
        self.feasibility
            .as_ref()
            .map_or(1.0, |model| model.chance(&model.mixture.at(point)))
    }

    /// A faster, rougher form of [`Self::chance_to_run`].
    fn rough_chance_to_run(&self, point: &[usize]) -> f64 {
        self.feasibility
            .as_ref()
            .map_or(1.0, |model| model.chance(&model.mixture.best().at(point)))
    }

    /// The candidate with the highest expected improvement over the best of the measured configurations, and that
    /// improvement as a share; weighted by the chance that it runs.
    pub(super) fn most_promising(&self, candidates: &[Point], measured: &[&Point]) -> Option<(Point, f64)> {
        const EXAMINED: usize = 150;
        let figures = self.figures.as_ref()?;
        let best = figures.incumbent(figures.mixture.best(), measured);
        let rough = candidates.iter().map(|point| {
            let improvement = figures.improvement(figures.mixture.best(), point, best);
            (improvement * self.rough_chance_to_run(point), point)
        });
        let mut rough: Vec<(f64, &Point)> = rough.collect();
        let examined = EXAMINED.min(rough.len());
        if examined < rough.len() {
            rough.select_nth_unstable_by(examined, |one, other| {
                other.0.total_cmp(&one.0).then(one.1.cmp(other.1))
            });
        }
        let members: Vec<(&Process, f64)> = figures
            .mixture
            .members()
            .iter()
            .map(|process| (process, figures.incumbent(process, measured)))
            .collect();
        let scored = rough[..examined].iter().map(|(_, point)| {
            let improvements = members
                .iter()
                .map(|(process, best)| figures.improvement(process, point, *best));
            let improvement = improvements.sum::<f64>() / members.len() as f64;
            (figures.spread * improvement * self.chance_to_run(point), *point)
        });
        let best = scored.max_by(|one, other| one.0.total_cmp(&other.0).then(other.1.cmp(one.1)))?;
        Some((best.1.clone(), best.0))
    }
}

impl Figures {
    fn fit(space: &Space, measured: &Measured, seed: u64) -> Option<Self> {
        let offset = measured.short_offset();
        let runs = || measured.0.iter().filter(|(_, record)| record.is_measured());
        let has_sizes = runs().any(|(_, record)| !record.short.is_empty());
        let (mut inputs, mut logs) = (Vec::new(), Vec::new());
        for (point, record) in runs() {
            for log in &record.full {
                inputs.push(sized(point, has_sizes, true));
                logs.push(*log);
            }
            for log in &record.short {
                inputs.push(sized(point, has_sizes, false));
                logs.push(log - offset);
            }
        }
        let low_tail = LowTail::of(&logs)?;
        for log in &mut logs {
            *log = low_tail.drawn_in(*log);
        }
        let center = mean(&logs);
        let squares = logs.iter().map(|log| (log - center).powi(2)).sum::<f64>();
        let spread = (squares / logs.len() as f64).sqrt().max(LEAST_SPREAD);
        let mut dimensions = dimensions(space);
        if has_sizes {
            dimensions.push(Dimension {
                is_ordered: false,
                values: 2,
            });
        }
        let observations = Observations {
            dimensions,
            inputs,
            targets: logs.iter().map(|log| (log - center) / spread).collect(),
            mean_variance: 0.5,
        };
        let priors = Priors {
            noise: ((USUAL_NOISE / spread).ln(), FIGURE_PRIORS.noise.1),
            ..FIGURE_PRIORS
        };
        Some(Self {
            mixture: Mixture::fit(&observations, &priors, seed)?,
            center,
            spread,
            has_sizes,
            low_tail,
        })
    }

    /// The input of a full trial.
    fn full(&self, point: &[usize]) -> Vec<usize> {
        sized(point, self.has_sizes, true)
    }

    /// The best mean among measured configurations.
    fn incumbent(&self, process: &Process, measured: &[&Point]) -> f64 {
        let means = measured.iter().map(|point| process.at(&self.full(point)).mean);
        means.fold(f64::NEG_INFINITY, f64::max)
    }

    /// The expected improvement over `best`, in units of the spread.
    fn improvement(&self, process: &Process, point: &[usize], best: f64) -> f64 {
        let belief = process.at(&self.full(point));
        let gain = belief.mean - best;
        if belief.deviation < 1e-9 {
            return gain.max(0.0);
        }
        let scaled = gain / belief.deviation;
        let normal = Normal::standard();
        let expected = gain * normal.cdf(scaled) + belief.deviation * normal.pdf(scaled);
        expected * (1.0 - process.left_by_observation(belief.deviation))
    }
}

impl Feasibility {
    fn fit(space: &Space, measured: &Measured, seed: u64) -> Option<Self> {
        let decided = || measured.0.iter().filter(|(_, record)| record.is_decided());
        if !decided().any(|(_, record)| record.is_infeasible) {
            return None;
        }
        let labels: Vec<f64> = decided()
            .map(|(_, record)| if record.is_infeasible { -1.0 } else { 1.0 })
            .collect();
        let center = labels.iter().sum::<f64>() / (labels.len() as f64 + 2.0);
        let observations = Observations {
            dimensions: dimensions(space),
            inputs: decided().map(|(point, _)| point.clone()).collect(),
            targets: labels.iter().map(|label| label - center).collect(),
            mean_variance: 0.1,
        };
        let mixture = Mixture::fit(&observations, &FEASIBILITY_PRIORS, seed ^ 0xfea5)?;
        Some(Self { mixture, center })
    }

    /// The probability that the label is positive.
    fn chance(&self, belief: &Belief) -> f64 {
        let deviation = (belief.deviation.powi(2) + 0.05).sqrt();
        Normal::standard().cdf((self.center + belief.mean) / deviation)
    }
}

fn dimensions(space: &Space) -> Vec<Dimension> {
    let knobs = space.knobs.iter();
    knobs
        .map(|knob| Dimension {
            is_ordered: knob.is_ordered,
            values: knob.values,
        })
        .collect()
}

/// The input of a trial, with its size if both sizes occur.
fn sized(point: &[usize], has_sizes: bool, is_full: bool) -> Vec<usize> {
    let mut input = point.to_vec();
    if has_sizes {
        input.push(usize::from(is_full));
    }
    input
}

/// The limit below which logarithms are drawn in, and the distance below it that none exceeds then.
#[derive(Clone, Copy, Debug)]
struct LowTail {
    limit: f64,
    width: f64,
}

impl LowTail {
    fn of(logs: &[f64]) -> Option<Self> {
        let mut sorted = logs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (best, median) = (sorted.last()?, sorted[sorted.len() / 2]);
        let width = (LOW_TAIL * (best - median)).max(0.3);
        Some(Self {
            limit: median - width,
            width,
        })
    }

    fn drawn_in(self, log: f64) -> f64 {
        match self.limit - log {
            below if below > 0.0 => self.limit - self.width * (1.0 - (-below / self.width).exp()),
            _ => log,
        }
    }

    /// The logarithm whose drawn-in one this is, with the factor by which an uncertainty grows.
    fn undrawn(self, log: f64) -> (f64, f64) {
        match (self.limit - log) / self.width {
            share if share > 0.0 => {
                let left = (1.0 - share).max(1e-6);
                (self.limit + self.width * left.ln(), 1.0 / left)
            }
            _ => (log, 1.0),
        }
    }
}
