//! Searches for the best values of an engine's settings: which configuration is measured next, which one is best, and
//! what each setting contributes. All of it is a pure function of the space, the seed and the finished trials, so that a
//! search that was interrupted continues as if it had not been.
//!
//! The search is Bayesian optimisation: a Gaussian process of the logarithm of the figure ([`process`], [`fit`]) and one of
//! feasibility ([`model`]) give the expected improvement of each configuration, weighted by the chance that it runs (J. Gardner
//! et al., "Bayesian optimization with inequality constraints", 2014). The best configuration is the one with the highest
//! mean of the model, not the highest figure, so that a lucky start does not win. `tests/tune.sh` compares it with random
//! search on simulated engines.

mod draws;
mod fit;
mod measured;
mod model;
mod process;
mod search;
#[cfg(test)]
mod tests;

use search::Search;

/// A setting that is varied, and its values by their positions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Knob {
    pub(crate) name: String,
    /// Whether neighbouring values act alike.
    pub(crate) is_ordered: bool,
    /// The number of values, at least one.
    pub(crate) values: usize,
    /// The position of the value that the default configuration has.
    pub(crate) default: usize,
}

/// All configurations that may be measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Space {
    pub(crate) knobs: Vec<Knob>,
}

/// A configuration: for each knob of a space the position of its value.
pub(crate) type Point = Vec<usize>;

/// How much is measured in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrialSize {
    Short,
    Full,
}

/// What a trial found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum TrialOutcome {
    /// The figure to maximise, above zero.
    Measured(f64),
    /// The configuration crashed, was refused, answered wrongly or held no load within the SLO: it cannot win.
    Infeasible,
    /// Nothing is known of the configuration, such as after an error of the host.
    Unknown,
}

/// A finished trial.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trial {
    pub(crate) point: Point,
    pub(crate) size: TrialSize,
    pub(crate) outcome: TrialOutcome,
}

/// The configuration to measure next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) point: Point,
    pub(crate) size: TrialSize,
}

/// What the value of one knob contributes to the best configuration, by the model's estimate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Contribution {
    /// The position of the knob in the space.
    pub(crate) knob: usize,
    /// The best configuration's figure divided by its figure with that knob's default; `None` if that is not known to run, or not known well.
    pub(crate) ratio: Option<f64>,
}

/// A search with its finished trials.
#[derive(Clone, Debug)]
pub(crate) struct Tuner {
    pub(crate) space: Space,
    pub(crate) seed: u64,
    /// In the order in which they were measured.
    pub(crate) trials: Vec<Trial>,
    /// Whether configurations are measured with a short load first, which saves time where the budget is time.
    pub(crate) begins_short: bool,
}

impl Tuner {
    /// The next configuration, if about that many more trials can be measured; `None` if nothing is left to measure.
    pub(crate) fn next(&self, left: usize) -> Option<Proposal> {
        Search::new(self).next(left)
    }

    /// The configuration that is expected to be the best of those measured; `None` if none was measured. It may be the
    /// default.
    pub(crate) fn winner(&self) -> Option<Point> {
        Search::new(self).winner()
    }

    /// The knobs in which the winner differs from the default, the largest contribution first.
    pub(crate) fn contributions(&self) -> Vec<Contribution> {
        Search::new(self).contributions()
    }
}
