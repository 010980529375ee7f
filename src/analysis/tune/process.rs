//! A Gaussian process over configurations, for given hyperparameters.
//!
//! The covariance of two configurations is a constant (the unknown mean), plus a mixture of two parts with one length
//! scale per knob: the mean of one Matérn-5/2 kernel per knob (knobs that act independently), and one Matérn-5/2 kernel
//! over all knobs (knobs that interact). See C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine
//! Learning", 2006, chapters 2 and 4.

use nalgebra::{Cholesky, DMatrix, DVector, Dyn};

/// One dimension of the inputs, such as a knob.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dimension {
    /// Whether neighbouring positions are alike. If not, all different positions are equally far apart.
    pub(super) is_ordered: bool,
    /// The number of positions, at least one.
    pub(super) values: usize,
}

impl Dimension {
    /// The number of different distances.
    fn distances(self) -> usize {
        if self.is_ordered { self.values } else { 2 }
    }

    /// The index of the distance of two positions.
    fn distance(self, first: usize, second: usize) -> usize {
        if self.is_ordered {
            first.abs_diff(second)
        } else {
            usize::from(first != second)
        }
    }

    /// The distance with this index, from 0 to 1.
    fn length(self, index: usize) -> f64 {
        if self.is_ordered {
            index as f64 / (self.values.max(2) - 1) as f64
        } else {
            index as f64
        }
    }
}

/// The parameters of the covariance.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Hyperparameters {
    /// Logarithms of the length scales, one per dimension.
    pub(super) scales: Vec<f64>,
    /// Logarithm of the standard deviation of the function.
    pub(super) amplitude: f64,
    /// Logarithm of the standard deviation of the noise.
    pub(super) noise: f64,
    /// Logit of the share of the part with interactions.
    pub(super) interaction: f64,
}

/// The covariance of inputs, tabulated by distance.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    dimensions: Vec<Dimension>,
    /// For each dimension and distance: the square of the scaled distance, and the part of that dimension alone.
    tables: Vec<Vec<(f64, f64)>>,
    /// Variance of the unknown mean.
    mean_variance: f64,
    variance: f64,
    interaction: f64,
}

impl Kernel {
    pub(super) fn new(dimensions: &[Dimension], parameters: &Hyperparameters, mean_variance: f64) -> Self {
        let variance = (2.0 * parameters.amplitude).exp();
        let interaction = 1.0 / (1.0 + (-parameters.interaction).exp());
        let alone = variance * (1.0 - interaction) / dimensions.len().max(1) as f64;
        let tables = dimensions
            .iter()
            .zip(&parameters.scales)
            .map(|(dimension, scale)| {
                let entry = |index| {
                    let scaled = dimension.length(index) * (-scale).exp();
                    (scaled * scaled, alone * matern(scaled))
                };
                (0..dimension.distances()).map(entry).collect()
            });
        Self {
            tables: tables.collect(),
            dimensions: dimensions.to_vec(),
            mean_variance,
            variance,
            interaction: variance * interaction,
        }
    }

    fn covariance(&self, first: &[usize], second: &[usize]) -> f64 {
        let (mut squared, mut alone) = (0.0, 0.0);
        for (at, (dimension, table)) in self.dimensions.iter().zip(&self.tables).enumerate() {
            let (square, part) = table[dimension.distance(first[at], second[at])];
            squared += square;
            alone += part;
        }
        self.mean_variance + alone + self.interaction * matern(squared.sqrt())
    }

    /// The variance before any observation.
    fn prior_variance(&self) -> f64 {
        self.mean_variance + self.variance
    }
}

/// The Matérn-5/2 correlation at a scaled distance.
fn matern(distance: f64) -> f64 {
    let scaled = 5.0_f64.sqrt() * distance;
    (1.0 + scaled + scaled * scaled / 3.0) * (-scaled).exp()
}

/// Observations of a function with an unknown mean.
#[derive(Clone, Debug)]
pub(super) struct Observations {
    pub(super) dimensions: Vec<Dimension>,
    pub(super) inputs: Vec<Vec<usize>>,
    /// Relative to the expected mean.
    pub(super) targets: Vec<f64>,
    /// Variance of the mean of the function around the expected one.
    pub(super) mean_variance: f64,
}

/// A process that is conditioned on observations.
#[derive(Clone, Debug)]
pub(super) struct Process {
    kernel: Kernel,
    inputs: Vec<Vec<usize>>,
    factor: Cholesky<f64, Dyn>,
    weights: DVector<f64>,
    noise_variance: f64,
    /// Logarithm of the density of the observations.
    pub(super) log_likelihood: f64,
}

/// Mean and standard deviation of the function at an input, without noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Belief {
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

impl Process {
    /// `None` if the covariance is singular.
    pub(super) fn new(observations: &Observations, parameters: &Hyperparameters) -> Option<Self> {
        let kernel = Kernel::new(&observations.dimensions, parameters, observations.mean_variance);
        let inputs = &observations.inputs;
        let count = inputs.len();
        let mut matrix = DMatrix::zeros(count, count);
        // The decomposition reads the lower triangle only.
        for column in 0..count {
            for row in column..count {
                matrix[(row, column)] = kernel.covariance(&inputs[row], &inputs[column]);
            }
            matrix[(column, column)] += (2.0 * parameters.noise).exp() + 1e-9;
        }
        let factor = Cholesky::new(matrix)?;
        let targets = DVector::from_column_slice(&observations.targets);
        let weights = factor.solve(&targets);
        let log_determinant: f64 = (0..count).map(|at| factor.l_dirty()[(at, at)].ln()).sum();
        let log_likelihood: f64 = -0.5 * targets.dot(&weights) - log_determinant;
        log_likelihood.is_finite().then(|| Self {
            noise_variance: (2.0 * parameters.noise).exp(),
            kernel,
            inputs: inputs.clone(),
            factor,
            weights,
            log_likelihood,
        })
    }

    /// How much of the uncertainty one more observation leaves, given the deviation of what is believed now: near 1 where it only
    /// repeats what is known.
    pub(super) fn left_by_observation(&self, deviation: f64) -> f64 {
        (self.noise_variance / (self.noise_variance + deviation * deviation)).sqrt()
    }

    pub(super) fn at(&self, input: &[usize]) -> Belief {
        let mut covariances = self.covariances(input);
        let mean = covariances.dot(&self.weights);
        self.factor.l_dirty().solve_lower_triangular_mut(&mut covariances);
        let variance = self.kernel.prior_variance() - covariances.norm_squared();
        Belief {
            mean,
            deviation: variance.max(0.0).sqrt(),
        }
    }

    /// The difference of the function at two inputs.
    pub(super) fn difference(&self, first: &[usize], second: &[usize]) -> Belief {
        let mut covariances = self.covariances(first) - self.covariances(second);
        let mean = covariances.dot(&self.weights);
        self.factor.l_dirty().solve_lower_triangular_mut(&mut covariances);
        let prior = 2.0 * (self.kernel.prior_variance() - self.kernel.covariance(first, second));
        Belief {
            mean,
            deviation: (prior - covariances.norm_squared()).max(0.0).sqrt(),
        }
    }

    fn covariances(&self, input: &[usize]) -> DVector<f64> {
        let with = |other: &Vec<usize>| self.kernel.covariance(input, other);
        DVector::from_iterator(self.inputs.len(), self.inputs.iter().map(with))
    }
}
