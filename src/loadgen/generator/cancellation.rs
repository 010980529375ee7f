//! Chooses the requests that the client cancels, and counts the time until then.

use std::time::Duration;

use crate::base::clock::MonotonicTime;
use crate::config::cancel::Cancel;
use crate::loadgen::dataset::rng::NumpyGenerator;
use crate::loadgen::request::CancelPoint;

/// Separates these draws from those of the prompts, which may use the same seed: the bytes of `cancel`.
const STREAM: u64 = 0x6361_6e63_656c;
/// Interval at which a request is looked at whose time to its cancellation has not begun, because it is not yet
/// written.
const UNWRITTEN_INTERVAL: Duration = Duration::from_millis(10);

/// The client's cancellations of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CancelPlan {
    pub(crate) cancel: Cancel,
    /// Seed of the choice.
    pub(crate) seed: u64,
}

/// The requests that the client cancels.
pub(super) struct Cancellations {
    point: CancelPoint,
    /// Whether the request with this index is cancelled.
    chosen: Vec<bool>,
}

impl Cancellations {
    /// Chooses among so many requests. The choice of a request does not depend on how many follow.
    ///
    /// It is `numpy.random.default_rng(seed ^ 0x63616e63656c).random() < share` for each request in turn.
    pub(super) fn draw(plan: CancelPlan, requests: usize) -> Self {
        let mut rng = NumpyGenerator::new(plan.seed ^ STREAM);
        Self {
            point: CancelPoint {
                tokens: plan.cancel.after_tokens,
                time: plan.cancel.after.map(|time| time.duration()),
            },
            chosen: (0..requests).map(|_| rng.random() < plan.cancel.share).collect(),
        }
    }

    /// Returns when the request with this index is cancelled, if it is.
    pub(super) fn point(&self, index: u32) -> Option<CancelPoint> {
        let is_chosen = self.chosen.get(index as usize).copied().unwrap_or(false);
        is_chosen.then_some(self.point)
    }
}

/// Returns when to look again at a request that is cancelled `after` it was written; `None` if that time is over.
pub(super) fn next_look(
    written: Option<MonotonicTime>,
    after: Duration,
    now: MonotonicTime,
) -> Option<MonotonicTime> {
    match written {
        Some(written) => Some(written.plus(after)).filter(|at| *at > now),
        None => Some(now.plus(UNWRITTEN_INTERVAL)),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn draw(share: f64, seed: u64, requests: usize) -> Vec<bool> {
        let cancel = Cancel {
            share,
            after_tokens: NonZeroU32::new(3),
            after: None,
        };
        Cancellations::draw(CancelPlan { cancel, seed }, requests).chosen
    }

    #[test]
    fn the_seed_chooses_the_share_and_more_requests_change_no_earlier_choice() {
        let chosen = draw(0.2, 42, 10_000);
        let count = chosen.iter().filter(|is_chosen| **is_chosen).count();
        // Five standard deviations of the binomial distribution: 5 · √(10 000 · 0.2 · 0.8) = 200.
        assert!(count.abs_diff(2000) <= 200, "{count}");
        assert_eq!(draw(0.2, 42, 50), chosen[..50]);
        assert_ne!(draw(0.2, 43, 50), chosen[..50]);
        assert!(draw(1.0, 1, 100).iter().all(|is_chosen| *is_chosen));
    }

    #[test]
    fn the_time_counts_from_the_end_of_the_writing() {
        let (start, after) = (MonotonicTime::default(), Duration::from_millis(50));
        let at = |ms| start.plus(Duration::from_millis(ms));
        assert_eq!(next_look(Some(at(10)), after, at(59)), Some(at(60)));
        assert_eq!(next_look(Some(at(10)), after, at(60)), None);
        assert_eq!(next_look(None, after, at(500)), Some(at(510)));
    }
}
