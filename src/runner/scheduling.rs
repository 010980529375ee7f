//! Schedules concurrent launches: which start may begin now, and which launches ran during a cell.

use std::sync::Mutex;

use crate::base::clock::{self, Moment};
use crate::base::ids::LaunchId;
use crate::plan::{Launch, Plan, Start};

/// Whether a launch must run alone: if the matrix does not allow concurrent launches, or if it leases no GPUs
/// or all of them, since its computation then cannot be separated.
pub(super) fn is_alone(plan: &Plan, launch: &Launch, devices: u32) -> bool {
    !plan.parallel || launch.devices == 0 || launch.devices >= devices
}

/// Picks the largest waiting start that fits into the free GPUs (ties: plan order). A start that must run
/// alone blocks those behind it, which keeps the plan's order around it.
pub(super) fn next(
    plan: &Plan,
    waiting: &[Start],
    running: &[&Launch],
    devices: u32,
    free: u32,
) -> Option<usize> {
    let first = plan.launch(&waiting.first()?.launch);
    if is_alone(plan, first, devices) {
        return running.is_empty().then_some(0);
    }
    let together = waiting
        .iter()
        .map(|start| plan.launch(&start.launch))
        .take_while(|launch| !is_alone(plan, launch, devices));
    let fits = |launch: &&Launch| {
        let is_clear = running.iter().all(|other| {
            let port = launch.contact.port.fixed;
            // Two starts of one launch are repeats, not concurrent launches.
            other.id != launch.id && (port.is_none() || port != other.contact.port.fixed)
        });
        launch.devices <= free && is_clear
    };
    together
        .enumerate()
        .filter(|(_, launch)| fits(launch))
        .max_by_key(|(at, launch)| (launch.devices, std::cmp::Reverse(*at)))
        .map(|(at, _)| at)
}

#[derive(Default)]
pub(super) struct Roster {
    /// The lock is never held across an await.
    all: Mutex<Vec<Turn>>,
}

struct Turn {
    launch: LaunchId,
    ended: Option<Moment>,
}

impl Roster {
    /// Records that a launch runs, until the result is dropped.
    pub(super) fn enter(&self, launch: &LaunchId) -> Entered<'_> {
        let mut all = self.all.lock().expect("noting a turn does not panic");
        all.push(Turn {
            launch: launch.clone(),
            ended: None,
        });
        Entered {
            roster: self,
            at: all.len() - 1,
        }
    }

    /// The other launches that ran at any time since `from`, sorted.
    pub(super) fn beside(&self, launch: &LaunchId, from: Moment) -> Vec<LaunchId> {
        let all = self.all.lock().expect("noting a turn does not panic");
        let mut others: Vec<LaunchId> = all
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
pub(super) struct Entered<'r> {
    roster: &'r Roster,
    at: usize,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut all = self.roster.all.lock().expect("noting a turn does not panic");
        all[self.at].ended = Some(clock::now());
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
        for (at, count) in devices.iter().enumerate() {
            let id = LaunchId::new(format!("l{at}"));
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
        let running: Vec<&Launch> = running.iter().map(|at| &plan.launches[*at]).collect();
        next(&plan, &plan.starts[running.len()..], &running, 4, free).map(|at| at + running.len())
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
        assert_eq!(next(&plan, &plan.starts, &[], 4, 4), Some(0));
        assert_eq!(next(&plan, &plan.starts[1..], &[&plan.launches[0]], 4, 3), None);
    }

    #[test]
    fn a_neighbour_is_whoever_ran_at_any_moment_of_it() {
        let roster = Roster::default();
        let (a, b, c) = (LaunchId::new("a"), LaunchId::new("b"), LaunchId::new("c"));
        drop(roster.enter(&a));
        let _b = roster.enter(&b);
        let from = clock::now();
        drop(roster.enter(&c));
        assert_eq!(roster.beside(&b, from), std::slice::from_ref(&c));
        assert_eq!(roster.beside(&c, from), [b]);
    }
}
