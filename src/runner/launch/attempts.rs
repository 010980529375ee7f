//! Decides whether a launch is attempted again: a state machine without effects.
//!
//! A failure caused by the host is retried after a pause. An invalid measurement is repeated as
//! `--retry-invalid` says. An engine that dies under load is restarted for the remaining measurements.

use std::time::Duration;

use crate::results::record::cell::{FailureClass, Phase};
use crate::results::record::post_mortem::Retry;

/// Number of times that an engine which died under load is restarted.
pub(super) const RESTARTS: u32 = 16;

/// Pauses before the retries of a failure caused by the host.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(16),
];

#[derive(Debug)]
pub(super) struct Attempts {
    /// Failed attempts of the next measurement.
    retries: Vec<Retry>,
    /// Number of times that the engine ended although measurements remained.
    restarts: u32,
    /// Number of times that an invalid measurement may be repeated.
    retry_invalid: u32,
}

/// A retry after a failure caused by the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HostRetry {
    /// Number of the failed attempt, from 1.
    pub(super) attempt: usize,
    /// Largest number of attempts.
    pub(super) attempts: usize,
    pub(super) pause: Duration,
}

/// What follows the end of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restart {
    /// The end was planned, or a retry has already reported it: the next start needs no warning.
    Expected,
    /// It is restarted after a failure of the engine; `left` restarts remain.
    AfterFailure { left: u32 },
    /// It died too often.
    RestartsExhausted,
}

/// What follows a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// The next measurement on the same engine.
    Continue,
    /// Another start, because the recipe restarts the engine for each cell.
    StopAsPlanned,
    /// No further measurement on this engine.
    Stop,
}

/// The facts that decide what follows a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct AfterMeasurement {
    /// Whether the engine can measure another cell.
    pub(super) engine_is_healthy: bool,
    pub(super) restarts_for_cells: bool,
    /// Whether the measurement failed because of the host.
    pub(super) is_host_fault: bool,
    /// Whether nothing new may begin.
    pub(super) is_stopping: bool,
}

impl AfterMeasurement {
    pub(super) const fn next_step(self) -> NextStep {
        match self {
            Self {
                engine_is_healthy: true,
                restarts_for_cells: true,
                ..
            } => NextStep::StopAsPlanned,
            Self {
                engine_is_healthy: true,
                is_host_fault: false,
                is_stopping: false,
                ..
            } => NextStep::Continue,
            _ => NextStep::Stop,
        }
    }
}

impl Attempts {
    pub(super) const fn new(retry_invalid: u32) -> Self {
        Self {
            retries: Vec::new(),
            restarts: 0,
            retry_invalid,
        }
    }

    pub(super) fn retries(&self) -> &[Retry] {
        &self.retries
    }

    /// Forgets the failed attempts, because the measurement is not repeated.
    pub(super) fn clear(&mut self) {
        self.retries.clear();
    }

    /// The retry after a failure; `None` if the host did not cause it or no attempt is left.
    pub(super) fn retry_after_host_fault(
        &mut self,
        phase: Phase,
        class: FailureClass,
        reason: &str,
    ) -> Option<HostRetry> {
        let failed = self
            .retries
            .iter()
            .filter(|retry| retry.class.is_retryable())
            .count();
        let pause = *PAUSES.get(failed).filter(|_| class.is_retryable())?;
        self.retries.push(Retry {
            phase,
            class,
            reason: reason.to_owned(),
            pause_s: pause.as_secs_f64(),
        });
        Some(HostRetry {
            attempt: failed + 1,
            attempts: PAUSES.len() + 1,
            pause,
        })
    }

    /// Number of the repetition of an invalid measurement, from 1; `None` if it is not repeated.
    pub(super) fn repeat_invalid(&mut self, reason: &str) -> Option<usize> {
        let is_validity = |retry: &&Retry| retry.class == FailureClass::Validity;
        let repeated = self.retries.iter().filter(is_validity).count();
        if repeated >= self.retry_invalid as usize {
            return None;
        }
        self.retries.push(Retry {
            phase: Phase::Measure,
            class: FailureClass::Validity,
            reason: reason.to_owned(),
            pause_s: 0.0,
        });
        Some(repeated + 1)
    }

    /// Counts the end of an engine as a restart, unless it was planned or a retry follows. `retries_before`
    /// is the number of retries when the engine became ready.
    pub(super) fn engine_ended(&mut self, is_planned: bool, retries_before: usize) {
        self.restarts += u32::from(!is_planned && self.retries.len() <= retries_before);
    }

    /// What follows if measurements remain.
    pub(super) fn restart(&self) -> Restart {
        match self.restarts {
            restarts if restarts > RESTARTS => Restart::RestartsExhausted,
            0 => Restart::Expected,
            _ if !self.retries.is_empty() => Restart::Expected,
            restarts => Restart::AfterFailure {
                left: RESTARTS + 1 - restarts,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_fault(attempts: &mut Attempts) -> Option<HostRetry> {
        attempts.retry_after_host_fault(Phase::Launch, FailureClass::Infrastructure, "no space")
    }

    #[test]
    fn a_fault_of_the_host_is_retried_three_times_with_longer_pauses() {
        let mut attempts = Attempts::new(0);
        let retries: Vec<(usize, u64)> = std::iter::from_fn(|| host_fault(&mut attempts))
            .map(|retry| (retry.attempt, retry.pause.as_secs()))
            .collect();
        assert_eq!(retries, [(1, 1), (2, 4), (3, 16)]);
        assert_eq!(attempts.retries().len(), 3);
        attempts.clear();
        assert_eq!(host_fault(&mut attempts).map(|retry| retry.attempts), Some(4));
    }

    #[test]
    fn a_fault_of_the_engine_is_not_retried() {
        let mut attempts = Attempts::new(0);
        let retry = attempts.retry_after_host_fault(Phase::Launch, FailureClass::Engine, "it crashed");
        assert_eq!(retry, None);
        assert!(attempts.retries().is_empty());
    }

    #[test]
    fn invalid_measurements_are_repeated_as_often_as_asked_and_apart_from_faults_of_the_host() {
        let mut attempts = Attempts::new(2);
        host_fault(&mut attempts);
        assert_eq!(attempts.repeat_invalid("late"), Some(1));
        assert_eq!(attempts.repeat_invalid("late"), Some(2));
        assert_eq!(attempts.repeat_invalid("late"), None);
        let retry = host_fault(&mut attempts);
        assert_eq!(retry.map(|retry| retry.attempt), Some(2));
    }

    #[test]
    fn an_engine_that_dies_is_restarted_sixteen_times() {
        let mut attempts = Attempts::new(0);
        for left in (1..=RESTARTS).rev() {
            attempts.engine_ended(false, 0);
            assert_eq!(attempts.restart(), Restart::AfterFailure { left });
        }
        attempts.engine_ended(false, 0);
        assert_eq!(attempts.restart(), Restart::RestartsExhausted);
    }

    #[test]
    fn neither_a_planned_end_nor_a_retry_counts_as_a_restart() {
        let mut attempts = Attempts::new(0);
        attempts.engine_ended(true, 0);
        assert_eq!(attempts.restart(), Restart::Expected);
        host_fault(&mut attempts);
        attempts.engine_ended(false, 0);
        assert_eq!(attempts.restart(), Restart::Expected);
        // A later crash counts, but is not reported during a retry.
        attempts.engine_ended(false, 1);
        assert_eq!(attempts.restart(), Restart::Expected);
        attempts.clear();
        assert_eq!(attempts.restart(), Restart::AfterFailure { left: RESTARTS });
    }

    #[test]
    fn an_engine_goes_on_only_if_it_is_well_and_nothing_else_ends_it() {
        let after = AfterMeasurement {
            engine_is_healthy: true,
            restarts_for_cells: false,
            is_host_fault: false,
            is_stopping: false,
        };
        assert_eq!(after.next_step(), NextStep::Continue);
        let planned = AfterMeasurement {
            restarts_for_cells: true,
            ..after
        };
        assert_eq!(planned.next_step(), NextStep::StopAsPlanned);
        for stopped in [
            AfterMeasurement {
                engine_is_healthy: false,
                ..planned
            },
            AfterMeasurement {
                is_host_fault: true,
                ..after
            },
            AfterMeasurement {
                is_stopping: true,
                ..after
            },
        ] {
            assert_eq!(stopped.next_step(), NextStep::Stop);
        }
    }
}
