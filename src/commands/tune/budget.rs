//! How many trials the budget of a search still allows.

use crate::commands::error::CommandError;
use crate::config::tune::TuneBudget;
use crate::exit::Exit;

/// Fewest trials of a search, besides its confirmation.
const MIN_TRIALS: u32 = 4;

/// How much longer a start with all prompts may take than one with a quarter of them.
const FULL_PER_SHORT: f64 = 4.0;

/// What finished trials cost.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TrialCosts {
    /// GPU-minutes of trials with all prompts.
    pub(super) full: Vec<f64>,
    /// GPU-minutes of trials with fewer prompts.
    pub(super) short: Vec<f64>,
    /// Starts of finished confirmations, and their GPU-minutes.
    pub(super) confirming_starts: u32,
    pub(super) confirming_minutes: f64,
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

impl TrialCosts {
    pub(super) fn total(&self) -> f64 {
        self.confirming_minutes + self.full.iter().chain(&self.short).sum::<f64>()
    }

    fn count(&self) -> usize {
        self.full.len() + self.short.len()
    }

    /// The expected cost of a start of the confirmation; `None` before the first trial.
    fn full_start(&self) -> Option<f64> {
        mean(&self.full).or_else(|| Some(FULL_PER_SHORT * mean(&self.short)?))
    }

    /// The expected cost of the next trial.
    fn next_trial(&self) -> Option<f64> {
        mean(&self.short).or_else(|| mean(&self.full))
    }
}

/// Refuses a number of starts that is too small for a confirmation and a few trials.
pub(super) fn check_starts(budget: TuneBudget, confirm_starts: u32) -> Result<(), CommandError> {
    let needed = 2 * confirm_starts + MIN_TRIALS;
    match budget {
        TuneBudget::Starts(starts) if starts < needed => Err(CommandError::usage(format!(
            "error: a budget of {starts} starts is too small: {needed} are needed, 2 x {confirm_starts} for the confirmation and {MIN_TRIALS} trials\n  = help: give `--budget '{needed} starts'` or more\n"
        ))),
        _ => Ok(()),
    }
}

/// How many more trials the budget allows, apart from the confirmation.
pub(super) fn trials_left(budget: TuneBudget, confirm_starts: u32, costs: &TrialCosts) -> usize {
    let confirming = f64::from(2 * confirm_starts);
    match budget {
        TuneBudget::Starts(starts) => (starts as usize)
            .saturating_sub(2 * confirm_starts as usize)
            .saturating_sub(costs.count() + costs.confirming_starts as usize),
        TuneBudget::GpuMinutes(minutes) => match (costs.full_start(), costs.next_trial()) {
            // One start with fewer prompts does not show what one with all costs.
            _ if costs.full.is_empty() && costs.count() < 2 => MIN_TRIALS as usize,
            (Some(full), Some(next)) if next > 0.0 => {
                let left = minutes - costs.total() - confirming * full;
                // The conversion saturates.
                (left / next).floor() as usize
            }
            _ => MIN_TRIALS as usize,
        },
    }
}

/// A budget with which a finished search goes on: half as much again as it has, and enough for another confirmation.
pub(super) fn larger(budget: TuneBudget, confirm_starts: u32, costs: &TrialCosts) -> TuneBudget {
    match budget {
        TuneBudget::Starts(starts) => {
            let spent = costs.count() as u32 + costs.confirming_starts;
            TuneBudget::Starts((starts.max(spent).saturating_mul(3) / 2).max(spent + 2 * confirm_starts))
        }
        TuneBudget::GpuMinutes(minutes) => {
            TuneBudget::GpuMinutes((15.0 * minutes.max(costs.total())).ceil() / 10.0)
        }
    }
}

/// A budget for the trials that were made and a confirmation with as many starts of each side, instead of the last one.
pub(super) fn for_confirmation(budget: TuneBudget, starts: u32, costs: &TrialCosts) -> TuneBudget {
    let more = f64::from(2 * starts);
    match budget {
        TuneBudget::Starts(now) => {
            TuneBudget::Starts(now.max(costs.count() as u32 + costs.confirming_starts + 2 * starts))
        }
        TuneBudget::GpuMinutes(now) => {
            let needed = costs.total() + more * costs.full_start().unwrap_or(0.0);
            TuneBudget::GpuMinutes(now.max((10.0 * needed).ceil() / 10.0))
        }
    }
}

/// How much longer than its budget a search may take, as starts differ.
const TOLERANCE: f64 = 1.1;

/// Why a confirmation with so many more starts does not begin: it would exceed the budget; `None` if it may begin.
pub(super) fn why_unconfirmed(budget: TuneBudget, more_starts: u32, costs: &TrialCosts) -> Option<String> {
    if more_starts == 0 {
        return None;
    }
    let minutes = match budget {
        TuneBudget::GpuMinutes(minutes) => minutes,
        TuneBudget::Starts(starts) => {
            let needed = costs.count() as u32 + costs.confirming_starts + more_starts;
            return (needed > starts).then(|| {
                format!("the confirmation would exceed the budget of {starts} starts; continue with a budget of {needed} starts")
            });
        }
    };
    let last = costs.full.len().saturating_sub(3);
    let start = mean(&costs.full[last..]).or_else(|| costs.full_start())?;
    let needed = costs.total() + f64::from(more_starts) * start;
    (needed > TOLERANCE * minutes).then(|| {
        format!(
            "the confirmation would exceed the budget of {minutes} gpu-min; continue with a budget of about {:.1} gpu-min (starts became slower, or an earlier confirmation used a part of the budget)",
            (10.0 * needed).ceil() / 10.0
        )
    })
}

/// Refuses a time that turns out too short after the first trial with all prompts.
pub(super) fn check_minutes(
    budget: TuneBudget,
    confirm_starts: u32,
    costs: &TrialCosts,
) -> Result<(), CommandError> {
    let TuneBudget::GpuMinutes(minutes) = budget else {
        return Ok(());
    };
    let is_first = costs.full.len() == 1 && costs.short.len() < 2;
    let (true, Some(full), Some(next)) = (is_first, costs.full_start(), costs.next_trial()) else {
        return Ok(());
    };
    let needed = f64::from(2 * confirm_starts) * full + f64::from(MIN_TRIALS) * next;
    if minutes >= needed {
        return Ok(());
    }
    let rounded = (100.0 * needed).ceil() / 100.0;
    Err(CommandError {
        exit: Exit::NotJudged,
        message: format!(
            "error: a budget of {minutes} gpu-min is too small: about {rounded} gpu-min are needed\n  = note: the confirmation takes 2 x {confirm_starts} starts of about {full:.2} gpu-min each; {MIN_TRIALS} trials are needed before it\n  = help: give `--budget '{rounded} gpu-min'` or more; add `--resume` to keep the first trial\n"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(full: &[f64], short: &[f64]) -> TrialCosts {
        TrialCosts {
            full: full.to_vec(),
            short: short.to_vec(),
            ..TrialCosts::default()
        }
    }

    #[test]
    fn starts_are_left_after_those_of_the_confirmation() {
        let left = |trials: usize| trials_left(TuneBudget::Starts(24), 5, &costs(&vec![1.0; trials], &[]));
        assert_eq!([left(0), left(13), left(14), left(30)], [14, 1, 0, 0]);
        assert!(check_starts(TuneBudget::Starts(14), 5).is_ok());
        let error = check_starts(TuneBudget::Starts(13), 5).unwrap_err();
        assert!(error.message.contains("14 are needed"), "{}", error.message);
    }

    #[test]
    fn time_is_left_after_that_of_a_confirmation_with_all_prompts() {
        let left = |minutes, full: &[f64], short: &[f64]| {
            trials_left(TuneBudget::GpuMinutes(minutes), 5, &costs(full, short))
        };
        assert_eq!(left(1.0, &[], &[]), 4);
        assert_eq!(left(1.0, &[], &[1.0]), 4);
        // Ten starts of 4 minutes are reserved, as far as is known.
        assert_eq!(left(52.0, &[], &[1.0, 1.0]), 10);
        // A start with all prompts took 2 minutes.
        assert_eq!(left(51.0, &[2.0], &[1.0]), 28);
        assert_eq!(left(20.0, &[2.0], &[1.0]), 0);
    }

    #[test]
    fn a_confirmation_that_would_exceed_the_time_does_not_begin() {
        let why =
            |minutes, full: &[f64]| why_unconfirmed(TuneBudget::GpuMinutes(minutes), 10, &costs(full, &[]));
        assert_eq!(why(20.0, &[1.0; 8]), None);
        // The last starts took three times as long.
        let why = why(20.0, &[1.0, 1.0, 1.0, 3.0, 3.0, 3.0]);
        assert!(why.is_some_and(|why| why.contains("about 42.0 gpu-min")));
        let spent = TrialCosts {
            confirming_starts: 10,
            ..costs(&[9.0; 4], &[])
        };
        let why = |starts, costs: &TrialCosts| why_unconfirmed(TuneBudget::Starts(starts), 10, costs);
        assert_eq!(why(14, &costs(&[9.0; 4], &[])), None);
        assert_eq!(why(24, &spent), None);
        assert_eq!(larger(TuneBudget::Starts(14), 5, &spent), TuneBudget::Starts(24));
        assert_eq!(larger(TuneBudget::Starts(40), 5, &spent), TuneBudget::Starts(60));
        assert!(why(23, &spent).is_some_and(|why| why.contains("a budget of 24 starts")));
    }

    #[test]
    fn a_time_that_is_too_short_is_refused_with_what_is_needed() {
        let check = |minutes, costs| check_minutes(TuneBudget::GpuMinutes(minutes), 5, &costs);
        assert!(check(28.0, costs(&[2.0], &[])).is_ok());
        let error = check(27.0, costs(&[2.0], &[])).unwrap_err();
        assert!(
            error.message.contains("about 28 gpu-min are needed"),
            "{}",
            error.message
        );
        // Later trials do not end a search that has begun.
        assert!(check(27.0, costs(&[2.0, 2.0], &[])).is_ok());
    }
}
