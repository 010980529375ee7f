//! The finished trials of a search, by configuration.

use std::collections::BTreeMap;

use super::{Point, Trial, TrialOutcome, TrialSize};

/// What the trials of one configuration found.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    /// Logarithms of the figures of short trials.
    pub(super) short: Vec<f64>,
    /// Logarithms of the figures of full trials.
    pub(super) full: Vec<f64>,
    pub(super) is_infeasible: bool,
    /// Trials that found nothing.
    pub(super) unknown: usize,
}

impl Record {
    /// Whether it ran each time and has a figure.
    pub(super) fn is_measured(&self) -> bool {
        !self.is_infeasible && self.figures() > 0
    }

    /// Whether it can win.
    pub(super) fn is_full(&self) -> bool {
        !self.is_infeasible && !self.full.is_empty()
    }

    /// The number of figures, of any size.
    pub(super) fn figures(&self) -> usize {
        self.short.len() + self.full.len()
    }

    /// Whether a trial found that it runs or that it does not.
    pub(super) fn is_decided(&self) -> bool {
        self.is_infeasible || self.figures() > 0
    }
}

/// All configurations with at least one trial.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured(pub(super) BTreeMap<Point, Record>);

impl Measured {
    pub(super) fn new(trials: &[Trial]) -> Self {
        let mut records: BTreeMap<Point, Record> = BTreeMap::new();
        for trial in trials {
            let record = records.entry(trial.point.clone()).or_default();
            match trial.outcome {
                TrialOutcome::Measured(figure) if figure > 0.0 && figure.is_finite() => match trial.size {
                    TrialSize::Short => record.short.push(figure.ln()),
                    TrialSize::Full => record.full.push(figure.ln()),
                },
                // A figure without a logarithm is no load at all.
                TrialOutcome::Measured(_) | TrialOutcome::Infeasible => record.is_infeasible = true,
                TrialOutcome::Unknown => record.unknown += 1,
            }
        }
        Self(records)
    }

    pub(super) fn get(&self, point: &[usize]) -> Option<&Record> {
        self.0.get(point)
    }

    /// The logarithm of the ratio of two configurations' figures; `None` if one has no full trial.
    pub(super) fn full_ratio(&self, first: &[usize], second: &[usize]) -> Option<f64> {
        let of = |point| {
            let record = self.get(point).filter(|record| record.is_full())?;
            Some(mean(&record.full))
        };
        Some(of(first)? - of(second)?)
    }

    /// How much the logarithm of a short figure is above that of a full one. Shrunk to zero where few configurations
    /// have both.
    pub(super) fn short_offset(&self) -> f64 {
        let both = self
            .0
            .values()
            .filter(|record| record.is_full() && !record.short.is_empty());
        let differences: Vec<f64> = both
            .map(|record| mean(&record.short) - mean(&record.full))
            .collect();
        differences.iter().sum::<f64>() / (differences.len() as f64 + 0.3)
    }
}

pub(super) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
