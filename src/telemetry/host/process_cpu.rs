//! CPU time of the engine's processes, which are looked up repeatedly as they come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::base::clock::Moment;
use crate::base::proc::{self, ProcessInfo};
use crate::telemetry::host::{Cpus, allowed};

/// Interval of the search for new processes. A host may have thousands.
const SEARCH: Duration = Duration::from_secs(5);

/// Number of hexadecimal digits in a container id.
const CONTAINER: usize = 64;

/// CPU time of all processes that descend from given roots.
pub(super) struct Kin {
    roots: Vec<u32>,
    members: BTreeMap<u32, ProcessInfo>,
    searched: Option<Moment>,
    /// Clock ticks of ended processes that no remaining member includes.
    ended: u64,
    /// The cgroup counter of the engine's container; it replaces the sum over processes.
    container: Option<Account>,
    cpus: Cpus,
}

/// File with the CPU time of a cgroup.
#[derive(Clone, Debug, PartialEq)]
enum Account {
    /// `usage_usec` in `cpu.stat`, cgroup version 2.
    Micros(PathBuf),
    /// `cpuacct.usage`, cgroup version 1.
    Nanos(PathBuf),
}

impl Kin {
    pub(super) fn new(roots: Vec<u32>) -> Self {
        let group = |root: &u32| fs::read_to_string(format!("/proc/{root}/cgroup")).ok();
        let container = roots.first().and_then(group).and_then(|groups| account(&groups));
        Self {
            roots,
            members: BTreeMap::new(),
            searched: None,
            ended: 0,
            container: container.filter(|account| account.seconds().is_some()),
            cpus: Cpus::new(),
        }
    }

    /// CPU time of all processes so far, in seconds; `None` if unknown.
    pub(super) fn cpu_s(&mut self, now: Moment) -> Option<f64> {
        self.look(now);
        if let Some(account) = &self.container {
            return account.seconds();
        }
        let live = self.members.values().map(|seen| seen.ticks + seen.ended_ticks);
        let ticks = self.ended + live.sum::<u64>();
        (ticks > 0 || !self.members.is_empty()).then(|| ticks as f64 / procfs::ticks_per_second() as f64)
    }

    /// CPUs on which any of the processes may run.
    pub(super) fn allowed(&self) -> Cpus {
        self.cpus.clone()
    }

    fn look(&mut self, now: Moment) {
        let is_due = self.searched.is_none_or(|searched| now.since(searched) >= SEARCH);
        let is_known = |seen: &ProcessInfo| {
            self.members
                .get(&seen.pid)
                .is_some_and(|old| old.started == seen.started)
        };
        let seen: BTreeMap<u32, ProcessInfo> = if is_due {
            let all = proc::all();
            // After the first search, known processes are the roots: an orphan's parent is gone, and a root's
            // pid may be reused.
            let roots = match self.searched {
                None => self.roots.clone(),
                Some(_) => all
                    .iter()
                    .filter(|seen| is_known(seen))
                    .map(|seen| seen.pid)
                    .collect(),
            };
            let own = proc::belonging(&all, &roots);
            let own = all.into_iter().filter(|seen| own.contains(&seen.pid));
            own.map(|seen| (seen.pid, seen)).collect()
        } else {
            let own = self
                .members
                .keys()
                .filter_map(|pid| proc::by_id(*pid))
                .filter(is_known);
            own.map(|seen| (seen.pid, seen)).collect()
        };
        self.take(seen);
        if is_due {
            self.searched = Some(now);
            let cpus: BTreeSet<(u32, u32)> = self.members.keys().flat_map(|pid| allowed(*pid)).collect();
            self.cpus = cpus.into_iter().collect();
        }
    }

    /// Replaces the members and keeps the time of those that have ended. A parent that waits for a child
    /// includes its time from then on; the time of other ended processes is added to `ended`.
    fn take(&mut self, seen: BTreeMap<u32, ProcessInfo>) {
        let old = std::mem::replace(&mut self.members, seen);
        let now = &self.members;
        let lives = |old: &ProcessInfo| now.get(&old.pid).is_some_and(|new| new.started == old.started);
        let mut lost: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        for ended in old.values().filter(|old| !lives(old)) {
            *lost.entry(heir(ended, &old, lives)).or_default() += ended.ticks + ended.ended_ticks;
        }
        for (heir, lost) in lost {
            let inherited = heir.map_or(0, |heir| {
                now[&heir].ended_ticks.saturating_sub(old[&heir].ended_ticks)
            });
            self.ended += lost.saturating_sub(inherited);
        }
    }
}

/// The nearest running ancestor of an ended process.
fn heir(
    ended: &ProcessInfo,
    old: &BTreeMap<u32, ProcessInfo>,
    lives: impl Fn(&ProcessInfo) -> bool,
) -> Option<u32> {
    let mut parent = old.get(&ended.parent)?;
    // Bounded, because an inconsistent process list may contain a cycle.
    for _ in 0..old.len() {
        if lives(parent) {
            return Some(parent.pid);
        }
        parent = old.get(&parent.parent)?;
    }
    None
}

impl Account {
    fn seconds(&self) -> Option<f64> {
        let text = |path: &PathBuf| fs::read_to_string(path).ok();
        match self {
            Self::Micros(path) => {
                let told = text(path)?;
                let line = told.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
                Some(line.trim().parse::<f64>().ok()? / 1e6)
            }
            Self::Nanos(path) => Some(text(path)?.trim().parse::<f64>().ok()? / 1e9),
        }
    }
}

/// The CPU counter of the container that a process is in, from its `/proc/<pid>/cgroup`; `None` if it is in
/// no container.
fn account(groups: &str) -> Option<Account> {
    let own = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let name = path.rsplit('/').find(|part| !part.is_empty())?;
        let digits = |run: &str| run.len() >= CONTAINER;
        let is_container = name.split(|letter: char| !letter.is_ascii_hexdigit()).any(digits);
        is_container.then_some((controllers, path))
    };
    groups.lines().filter_map(own).find_map(|(controllers, path)| {
        let path = path.trim_start_matches('/');
        match controllers.as_str() {
            "" => Some(Account::Micros(format!("/sys/fs/cgroup/{path}/cpu.stat").into())),
            some if some.split(',').any(|one| one == "cpuacct") => Some(Account::Nanos(
                format!("/sys/fs/cgroup/cpuacct/{path}/cpuacct.usage").into(),
            )),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: u32, parent: u32, ticks: u64, ended_ticks: u64) -> ProcessInfo {
        ProcessInfo {
            pid,
            parent,
            group: 1,
            started: u64::from(pid),
            ticks,
            ended_ticks,
            session: 0,
            has_ended: false,
        }
    }

    fn total(kin: &mut Kin, all: &[ProcessInfo]) -> u64 {
        kin.take(all.iter().map(|seen| (seen.pid, *seen)).collect());
        kin.ended
            + kin
                .members
                .values()
                .map(|seen| seen.ticks + seen.ended_ticks)
                .sum::<u64>()
    }

    #[test]
    fn time_is_counted_once_whoever_ends_and_whoever_waits_for_it() {
        let kin = &mut Kin::new(Vec::new());
        let all = [
            seen(1, 0, 10, 0),
            seen(2, 1, 20, 0),
            seen(3, 2, 30, 0),
            seen(4, 1, 40, 0),
        ];
        assert_eq!(total(kin, &all), 100);
        // 3 ended, and its parent 2 waited for it.
        assert_eq!(
            total(kin, &[seen(1, 0, 10, 0), seen(2, 1, 20, 31), seen(4, 1, 40, 0)]),
            101
        );
        // 2 ended, and 1 waited for it and its children; another process came and went unseen.
        assert_eq!(total(kin, &[seen(1, 0, 10, 58), seen(4, 1, 40, 0)]), 108);
        // 4 ended, and no process waited for it.
        assert_eq!(total(kin, &[seen(1, 0, 11, 58)]), 109);
        // All have ended.
        assert_eq!(total(kin, &[]), 109);
    }

    #[test]
    fn a_grandchild_that_ends_with_its_parent_is_counted_once() {
        let kin = &mut Kin::new(Vec::new());
        assert_eq!(
            total(kin, &[seen(1, 0, 1, 0), seen(2, 1, 20, 0), seen(3, 2, 30, 0)]),
            51
        );
        assert_eq!(total(kin, &[seen(1, 0, 1, 50)]), 51);
    }

    #[test]
    fn a_container_has_an_account_of_its_own() {
        let id = "a".repeat(64);
        assert_eq!(
            account(&format!("0::/system.slice/docker-{id}.scope\n")),
            Some(Account::Micros(
                format!("/sys/fs/cgroup/system.slice/docker-{id}.scope/cpu.stat").into()
            ))
        );
        assert_eq!(
            account(&format!("5:memory:/docker/{id}\n4:cpu,cpuacct:/docker/{id}\n")),
            Some(Account::Nanos(
                format!("/sys/fs/cgroup/cpuacct/docker/{id}/cpuacct.usage").into()
            ))
        );
        assert_eq!(account("0::/user.slice/session-3.scope\n"), None);
    }
}
