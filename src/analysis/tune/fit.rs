//! Fits the hyperparameters of a Gaussian process to observations: a random search for the highest posterior density,
//! with refinement, then a Markov chain from there. Predictions average over members of that chain, because a few dozen
//! observations leave the hyperparameters uncertain.

use super::draws::Draws;
use super::process::{Belief, Hyperparameters, Observations, Process};

/// Means and standard deviations of the normal priors of the hyperparameters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Priors {
    /// A long scale stands for a knob without effect.
    pub(super) scale: (f64, f64),
    pub(super) amplitude: (f64, f64),
    pub(super) noise: (f64, f64),
    pub(super) interaction: (f64, f64),
}

/// Evaluations of the density for up to [`FEW`] observations: random ones, steps of refinement, steps of the chain.
const EVALUATIONS: [usize; 3] = [40, 140, 120];

/// Most observations for which all evaluations are made; their time grows with the cube of the number.
const FEW: usize = 40;

/// Processes over which predictions average.
const MEMBERS: usize = 6;

/// A mixture of processes; the first one has the highest posterior density.
#[derive(Clone, Debug)]
pub(super) struct Mixture(Vec<Process>);

impl Mixture {
    /// Fits processes to observations. Equal observations and seeds give equal processes.
    pub(super) fn fit(observations: &Observations, priors: &Priors, seed: u64) -> Option<Self> {
        let mut draws = Draws::new(seed, observations.inputs.len() as u64);
        let slowdown = (observations.inputs.len() as f64 / FEW as f64).powi(2).max(1.0);
        let [random, refining, chain] = EVALUATIONS.map(|count| (count as f64 / slowdown).ceil() as usize);
        let dimensions = observations.dimensions.len();
        let center = priors.center(dimensions);
        let mut best = Fitted::new(observations, priors, center.clone())?;
        for _ in 0..random {
            let drawn = priors.moved(&center, 1.0, 1.0, &mut draws);
            best.replace_if_better(Fitted::new(observations, priors, drawn));
        }
        let mut step = 0.6;
        for _ in 0..refining {
            let moved = priors.moved(&best.parameters, step, 0.4, &mut draws);
            let is_better = best.replace_if_better(Fitted::new(observations, priors, moved));
            step = (step * if is_better { 1.5 } else { 0.96 }).clamp(0.05, 1.0);
        }
        Some(Self::sampled(observations, priors, best, chain, &mut draws))
    }

    /// Adds members of a Metropolis chain that begins at the best parameters.
    fn sampled(
        observations: &Observations,
        priors: &Priors,
        best: Fitted,
        steps: usize,
        draws: &mut Draws,
    ) -> Self {
        let every = (steps / (MEMBERS - 1)).max(1);
        let mut members = vec![best.process.clone()];
        let mut current = best;
        for step in 1..=steps {
            let moved = priors.moved(&current.parameters, 0.5, 0.4, draws);
            if let Some(moved) = Fitted::new(observations, priors, moved)
                && draws.unit().ln() < moved.log_posterior - current.log_posterior
            {
                current = moved;
            }
            if step % every == 0 && members.len() < MEMBERS {
                members.push(current.process.clone());
            }
        }
        Self(members)
    }

    /// The single process with the highest posterior density.
    pub(super) fn best(&self) -> &Process {
        &self.0[0]
    }

    pub(super) fn members(&self) -> &[Process] {
        &self.0
    }

    pub(super) fn at(&self, input: &[usize]) -> Belief {
        mixed(self.0.iter().map(|process| process.at(input)))
    }

    pub(super) fn difference(&self, first: &[usize], second: &[usize]) -> Belief {
        mixed(self.0.iter().map(|process| process.difference(first, second)))
    }
}

/// Mean and standard deviation of a mixture.
fn mixed(beliefs: impl Iterator<Item = Belief>) -> Belief {
    let (mut count, mut mean, mut square) = (0.0, 0.0, 0.0);
    for belief in beliefs {
        count += 1.0;
        mean += belief.mean;
        square += belief.mean * belief.mean + belief.deviation * belief.deviation;
    }
    mean /= count;
    Belief {
        mean,
        deviation: (square / count - mean * mean).max(0.0).sqrt(),
    }
}

/// Hyperparameters with their process.
struct Fitted {
    parameters: Hyperparameters,
    process: Process,
    log_posterior: f64,
}

impl Fitted {
    fn new(observations: &Observations, priors: &Priors, parameters: Hyperparameters) -> Option<Self> {
        let process = Process::new(observations, &parameters)?;
        let log_posterior = process.log_likelihood + priors.log_density(&parameters);
        Some(Self {
            parameters,
            process,
            log_posterior,
        })
    }

    fn replace_if_better(&mut self, other: Option<Self>) -> bool {
        match other {
            Some(other) if other.log_posterior > self.log_posterior => {
                *self = other;
                true
            }
            _ => false,
        }
    }
}

impl Priors {
    fn center(&self, dimensions: usize) -> Hyperparameters {
        Hyperparameters {
            scales: vec![self.scale.0; dimensions],
            amplitude: self.amplitude.0,
            noise: self.noise.0,
            interaction: self.interaction.0,
        }
    }

    fn log_density(&self, parameters: &Hyperparameters) -> f64 {
        let normal = |value: f64, (mean, deviation): (f64, f64)| -0.5 * ((value - mean) / deviation).powi(2);
        let scales: f64 = parameters
            .scales
            .iter()
            .map(|scale| normal(*scale, self.scale))
            .sum();
        scales
            + normal(parameters.amplitude, self.amplitude)
            + normal(parameters.noise, self.noise)
            + normal(parameters.interaction, self.interaction)
    }

    /// Moves each parameter with a probability, by normal steps that are a share of the deviation of its prior.
    fn moved(&self, from: &Hyperparameters, step: f64, chance: f64, draws: &mut Draws) -> Hyperparameters {
        let mut moved = |value: f64, deviation: f64| {
            let by = step * deviation * draws.normal();
            if draws.unit() < chance { value + by } else { value }
        };
        Hyperparameters {
            scales: from
                .scales
                .iter()
                .map(|scale| moved(*scale, self.scale.1))
                .collect(),
            amplitude: moved(from.amplitude, self.amplitude.1),
            noise: moved(from.noise, self.noise.1),
            interaction: moved(from.interaction, self.interaction.1),
        }
    }
}
