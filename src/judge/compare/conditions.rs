//! Under which conditions the measurements of a cell were made, as far as two sides must agree in them: what a cell alone is not doubted for,
//! two cells that differ in it are.

use crate::results::record::cell::Summary;
use crate::results::record::telemetry::GpuWindow;

/// Busy clocks of two sides further apart than this are different clocks.
const CLOCK: f64 = 0.03;

/// Shares of two sides further apart than this are different: of the time at the power limit, of answers that are one token.
const SHARE: f64 = 0.2;

/// The fewest answers of which a share is told.
const ANSWERS: u32 = 8;

/// What is known of a cell's measurements together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Mean clock of the GPUs while they were busy, in MHz.
    pub clock_mhz: Option<f64>,
    /// The share of the samples in which a GPU was at its power limit, the mean over all GPUs.
    pub capped_share: Option<f64>,
    /// The share of answers that are one token over and over.
    pub one_token_share: Option<f64>,
}

/// One condition in which two sides differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differs {
    /// Its name.
    pub what: &'static str,
    /// On the first side.
    pub before: String,
    /// On the second side.
    pub after: String,
    /// Whether it is the answers that differ, and not the machine.
    pub is_of_answers: bool,
}

impl Conditions {
    /// The conditions of all these measurements.
    pub fn of(summaries: &[&Summary]) -> Self {
        let gpus = || {
            let told = summaries.iter().filter_map(|summary| summary.telemetry.as_ref());
            told.flat_map(|telemetry| &telemetry.gpus)
        };
        let capped = |gpu: &GpuWindow| {
            let is_busy = gpu.busy_samples > 0;
            is_busy.then(|| gpu.throttled.get("power").copied().unwrap_or(0.0))
        };
        let (mut one_token, mut read) = (0, 0);
        for answers in summaries.iter().filter_map(|summary| summary.answers.as_ref()) {
            one_token += answers.one_token;
            read += answers.read;
        }
        Self {
            clock_mhz: mean(gpus().filter_map(|gpu| gpu.busy_clock_mhz)),
            capped_share: mean(gpus().filter_map(capped)),
            one_token_share: (read >= ANSWERS).then(|| f64::from(one_token) / f64::from(read)),
        }
    }

    /// What differs so much that figures of the two sides are not only those of their engines.
    pub fn differing(&self, other: &Self) -> Vec<Differs> {
        let mut found = Vec::new();
        if let (Some(before), Some(after)) = (self.clock_mhz, other.clock_mhz)
            && (after / before - 1.0).abs() > CLOCK
        {
            found.push(Differs {
                what: "clock of busy GPUs",
                before: format!("{before:.0} MHz"),
                after: format!("{after:.0} MHz"),
                is_of_answers: false,
            });
        }
        let shares = [
            (
                "time at the power limit",
                self.capped_share,
                other.capped_share,
                false,
            ),
            (
                "answers that are one token over and over",
                self.one_token_share,
                other.one_token_share,
                true,
            ),
        ];
        for (what, before, after, is_of_answers) in shares {
            if let (Some(before), Some(after)) = (before, after)
                && (after - before).abs() > SHARE
            {
                let percent = |share: f64| format!("{:.0} %", 100.0 * share);
                found.push(Differs {
                    what,
                    before: percent(before),
                    after: percent(after),
                    is_of_answers,
                });
            }
        }
        found
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_differ_from_a_bound_on_and_never_where_one_is_unknown() {
        let of = |clock_mhz, capped_share, one_token_share| Conditions {
            clock_mhz,
            capped_share,
            one_token_share,
        };
        let differing = |one: Conditions, other: Conditions| -> Vec<&str> {
            let found = one.differing(&other).into_iter();
            found.map(|differs| differs.what).collect()
        };
        let usual = of(Some(1755.0), Some(0.1), Some(0.02));
        assert!(differing(usual, of(Some(1710.0), Some(0.29), Some(0.2))).is_empty());
        assert!(differing(usual, Conditions::default()).is_empty());
        assert_eq!(
            differing(usual, of(Some(1500.0), Some(0.5), Some(0.4))),
            [
                "clock of busy GPUs",
                "time at the power limit",
                "answers that are one token over and over"
            ]
        );
    }
}
