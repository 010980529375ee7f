//! Schedules concurrent launches: which start may begin now, and which launches ran during a cell.

use std::sync::Mutex;

use crate::base::clock::{self, MonotonicTime};
use crate::base::ids::LaunchId;
use crate::plan::{Launch, Plan, Start};

/// Whether a launch must run alone: if the matrix does not allow concurrent launches, if it leases no GPUs
/// or all of them, since its computation then cannot be separated, or if it has GPUs of other nodes, which are not leased.
pub(super) fn is_exclusive(plan: &Plan, launch: &Launch, devices: u32) -> bool {
    let leased = launch.local_gpus();
    !plan.parallel || leased == 0 || leased >= devices || launch.nodes() > 1
}

/// Picks the largest waiting start that fits into the free GPUs (ties: plan order). A start that must run
/// alone blocks those behind it, which keeps the plan's order around it.
pub(super) fn next_start(
    plan: &Plan,
    waiting: &[Start],
    running: &[&Launch],
    devices: u32,
    free: u32,
) -> Option<usize> {
    let first = plan.launch(&waiting.first()?.launch);
    if is_exclusive(plan, first, devices) {
        return running.is_empty().then_some(0);
    }
    let together = waiting
        .iter()
        .map(|start| plan.launch(&start.launch))
        .take_while(|launch| !is_exclusive(plan, launch, devices));
    let fits = |launch: &&Launch| {
        let is_clear = running.iter().all(|other| {
            let port = launch.api.port.fixed;
            // Two starts of one launch are repeats, not concurrent launches.
            other.id != launch.id && (port.is_none() || port != other.api.port.fixed)
        });
        launch.local_gpus() <= free && is_clear
    };
    together
        .enumerate()
        .filter(|(_, launch)| fits(launch))
        .max_by_key(|(index, launch)| (launch.local_gpus(), std::cmp::Reverse(*index)))
        .map(|(index, _)| index)
}

#[derive(Default)]
pub(super) struct ActivityLog {
    /// The lock is never held across an await.
    intervals: Mutex<Vec<ActivityInterval>>,
}

struct ActivityInterval {
    launch: LaunchId,
    ended: Option<MonotonicTime>,
}

impl ActivityLog {
    /// Records that a launch runs, until the result is dropped.
    pub(super) fn begin(&self, launch: &LaunchId) -> ActivityGuard<'_> {
        let mut intervals = self.intervals.lock().expect("noting a turn does not panic");
        intervals.push(ActivityInterval {
            launch: launch.clone(),
            ended: None,
        });
        ActivityGuard {
            log: self,
            index: intervals.len() - 1,
        }
    }

    /// The other launches that ran at any time since `from`, sorted.
    pub(super) fn concurrent_with(&self, launch: &LaunchId, from: MonotonicTime) -> Vec<LaunchId> {
        let intervals = self.intervals.lock().expect("noting a turn does not panic");
        let mut others: Vec<LaunchId> = intervals
            .iter()
            .filter(|turn| turn.launch != *launch && turn.ended.is_none_or(|ended| ended > from))
            .map(|turn| turn.launch.clone())
            .collect();
        others.sort();
        others.dedup();
        others
    }
}

/// A running launch, until dropped.
pub(super) struct ActivityGuard<'r> {
    log: &'r ActivityLog,
    index: usize,
}

impl Drop for ActivityGuard<'_> {
    fn drop(&mut self) {
        let mut intervals = self.log.intervals.lock().expect("noting a turn does not panic");
        intervals[self.index].ended = Some(clock::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::store::testing;

    /// A plan with one start for each number of GPUs.
    fn plan(devices: &[u32], parallel: bool) -> Plan {
        let mut plan = testing::plan();
        let usual = plan.launches.remove(0);
        plan.starts.clear();
        plan.parallel = parallel;
        for (index, count) in devices.iter().enumerate() {
            let id = LaunchId::new(format!("l{index}"));
            plan.launches.push(Launch {
                id: id.clone(),
                devices: *count,
                ..usual.clone()
            });
            plan.starts.push(Start {
                launch: id,
                start: 1,
                cells: Vec::new(),
                confirms: false,
            });
        }
        plan
    }

    fn chosen(devices: &[u32], running: &[usize], free: u32) -> Option<usize> {
        let plan = plan(devices, true);
        let running: Vec<&Launch> = running.iter().map(|index| &plan.launches[*index]).collect();
        next_start(&plan, &plan.starts[running.len()..], &running, 4, free).map(|index| index + running.len())
    }

    #[test]
    fn the_largest_that_fits_comes_first_and_nothing_passes_one_that_must_be_alone() {
        assert_eq!(chosen(&[1, 2, 2, 1], &[], 4), Some(1));
        assert_eq!(chosen(&[2, 1, 2, 1], &[0], 2), Some(2));
        assert_eq!(chosen(&[2, 3, 1], &[0], 2), Some(2));
        assert_eq!(chosen(&[2, 3], &[0], 2), None);
        assert_eq!(chosen(&[1, 4, 1], &[0], 3), None);
        assert_eq!(chosen(&[1, 0, 1], &[0], 3), None);
        assert_eq!(chosen(&[4, 1], &[], 4), Some(0));
    }

    #[test]
    fn without_the_matrix_asking_for_it_nothing_runs_beside_anything() {
        let plan = plan(&[1, 1], false);
        assert_eq!(next_start(&plan, &plan.starts, &[], 4, 4), Some(0));
        assert_eq!(
            next_start(&plan, &plan.starts[1..], &[&plan.launches[0]], 4, 3),
            None
        );
    }

    #[test]
    fn a_neighbour_is_whoever_ran_at_any_moment_of_it() {
        let roster = ActivityLog::default();
        let (a, b, c) = (LaunchId::new("a"), LaunchId::new("b"), LaunchId::new("c"));
        drop(roster.begin(&a));
        let _b = roster.begin(&b);
        let from = clock::now();
        drop(roster.begin(&c));
        assert_eq!(roster.concurrent_with(&b, from), std::slice::from_ref(&c));
        assert_eq!(roster.concurrent_with(&c, from), [b]);
    }
}
