//! CPU time of the engine's processes, which are looked up repeatedly as they come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::base::clock::MonotonicTime;
use crate::base::proc::{self, ProcessInfo};
use crate::telemetry::host::cpu_set::{CpuRanges, allowed_cpus};

/// Interval of the search for new processes. A host may have thousands.
const SEARCH_PERIOD: Duration = Duration::from_secs(5);

/// Number of hexadecimal digits in a container id.
const CONTAINER_ID_DIGITS: usize = 64;

/// CPU time of all processes that descend from given roots.
pub(super) struct ProcessTreeCpu {
    roots: Vec<u32>,
    members: BTreeMap<u32, ProcessInfo>,
    last_search: Option<MonotonicTime>,
    /// Clock ticks of ended processes that no remaining member includes.
    ended_ticks: u64,
    /// The cgroup counter of the engine's container; it replaces the sum over processes.
    container_cpu: Option<CgroupCpu>,
    allowed_cpus: CpuRanges,
}

/// File with the CPU time of a cgroup.
#[derive(Clone, Debug, PartialEq)]
enum CgroupCpu {
    /// `usage_usec` in `cpu.stat`, cgroup version 2.
    Micros(PathBuf),
    /// `cpuacct.usage`, cgroup version 1.
    Nanos(PathBuf),
}

impl ProcessTreeCpu {
    pub(super) fn new(roots: Vec<u32>) -> Self {
        let group = |root: &u32| fs::read_to_string(format!("/proc/{root}/cgroup")).ok();
        let container = roots
            .first()
            .and_then(group)
            .and_then(|groups| container_cpu(&groups));
        Self {
            roots,
            members: BTreeMap::new(),
            last_search: None,
            ended_ticks: 0,
            container_cpu: container.filter(|cgroup| cgroup.seconds().is_some()),
            allowed_cpus: CpuRanges::new(),
        }
    }

    /// CPU time of all processes so far, in seconds; `None` if unknown.
    pub(super) fn cpu_s(&mut self, now: MonotonicTime) -> Option<f64> {
        self.update(now);
        if let Some(cgroup) = &self.container_cpu {
            return cgroup.seconds();
        }
        let live = self
            .members
            .values()
            .map(|process| process.cpu_ticks + process.reaped_cpu_ticks);
        let ticks = self.ended_ticks + live.sum::<u64>();
        (ticks > 0 || !self.members.is_empty()).then(|| ticks as f64 / procfs::ticks_per_second() as f64)
    }

    /// CPUs on which any of the processes may run.
    pub(super) fn allowed_cpus(&self) -> CpuRanges {
        self.allowed_cpus.clone()
    }

    fn update(&mut self, now: MonotonicTime) {
        let is_due = self
            .last_search
            .is_none_or(|searched| now.since(searched) >= SEARCH_PERIOD);
        let is_known = |process: &ProcessInfo| {
            self.members
                .get(&process.pid)
                .is_some_and(|old| old.start_ticks == process.start_ticks)
        };
        let process: BTreeMap<u32, ProcessInfo> = if is_due {
            let processes = proc::all_processes();
            // After the first search, known processes are the roots: an orphan's parent is gone, and a root's
            // pid may be reused.
            let roots = match self.last_search {
                None => self.roots.clone(),
                Some(_) => processes
                    .iter()
                    .filter(|process| is_known(process))
                    .map(|process| process.pid)
                    .collect(),
            };
            let own = proc::tree_pids(&processes, &roots);
            let own = processes.into_iter().filter(|process| own.contains(&process.pid));
            own.map(|process| (process.pid, process)).collect()
        } else {
            let own = self
                .members
                .keys()
                .filter_map(|pid| proc::by_id(*pid))
                .filter(is_known);
            own.map(|process| (process.pid, process)).collect()
        };
        self.set_members(process);
        if is_due {
            self.last_search = Some(now);
            let cpus: BTreeSet<(u32, u32)> = self.members.keys().flat_map(|pid| allowed_cpus(*pid)).collect();
            self.allowed_cpus = cpus.into_iter().collect();
        }
    }

    /// Replaces the members and keeps the time of those that have ended. A parent that waits for a child
    /// includes its time from then on; the time of other ended processes is added to `ended`.
    fn set_members(&mut self, process: BTreeMap<u32, ProcessInfo>) {
        let old = std::mem::replace(&mut self.members, process);
        let now = &self.members;
        let lives = |old: &ProcessInfo| {
            now.get(&old.pid)
                .is_some_and(|new| new.start_ticks == old.start_ticks)
        };
        let mut lost_ticks: BTreeMap<Option<u32>, u64> = BTreeMap::new();
        for ended in old.values().filter(|old| !lives(old)) {
            *lost_ticks
                .entry(surviving_ancestor(ended, &old, lives))
                .or_default() += ended.cpu_ticks + ended.reaped_cpu_ticks;
        }
        for (ancestor, lost_ticks) in lost_ticks {
            let inherited = ancestor.map_or(0, |ancestor| {
                now[&ancestor]
                    .reaped_cpu_ticks
                    .saturating_sub(old[&ancestor].reaped_cpu_ticks)
            });
            self.ended_ticks += lost_ticks.saturating_sub(inherited);
        }
    }
}

/// The nearest running ancestor of an ended process.
fn surviving_ancestor(
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

impl CgroupCpu {
    fn seconds(&self) -> Option<f64> {
        let text = |path: &PathBuf| fs::read_to_string(path).ok();
        match self {
            Self::Micros(path) => {
                let content = text(path)?;
                let line = content
                    .lines()
                    .find_map(|line| line.strip_prefix("usage_usec "))?;
                Some(line.trim().parse::<f64>().ok()? / 1e6)
            }
            Self::Nanos(path) => Some(text(path)?.trim().parse::<f64>().ok()? / 1e9),
        }
    }
}

/// The CPU counter of the container that a process is in, from its `/proc/<pid>/cgroup`; `None` if it is in
/// no container.
fn container_cpu(groups: &str) -> Option<CgroupCpu> {
    let own = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let name = path.rsplit('/').find(|part| !part.is_empty())?;
        let digits = |run: &str| run.len() >= CONTAINER_ID_DIGITS;
        let is_container = name.split(|letter: char| !letter.is_ascii_hexdigit()).any(digits);
        is_container.then_some((controllers, path))
    };
    groups.lines().filter_map(own).find_map(|(controllers, path)| {
        let path = path.trim_start_matches('/');
        match controllers.as_str() {
            "" => Some(CgroupCpu::Micros(
                format!("/sys/fs/cgroup/{path}/cpu.stat").into(),
            )),
            some if some.split(',').any(|one| one == "cpuacct") => Some(CgroupCpu::Nanos(
                format!("/sys/fs/cgroup/cpuacct/{path}/cpuacct.usage").into(),
            )),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process_info(pid: u32, parent: u32, ticks: u64, ended_ticks: u64) -> ProcessInfo {
        ProcessInfo {
            pid,
            parent,
            group: 1,
            start_ticks: u64::from(pid),
            cpu_ticks: ticks,
            reaped_cpu_ticks: ended_ticks,
            session: 0,
            has_ended: false,
        }
    }

    fn total(tree: &mut ProcessTreeCpu, processes: &[ProcessInfo]) -> u64 {
        tree.set_members(processes.iter().map(|process| (process.pid, *process)).collect());
        tree.ended_ticks
            + tree
                .members
                .values()
                .map(|process| process.cpu_ticks + process.reaped_cpu_ticks)
                .sum::<u64>()
    }

    #[test]
    fn time_is_counted_once_whoever_ends_and_whoever_waits_for_it() {
        let tree = &mut ProcessTreeCpu::new(Vec::new());
        let processes = [
            process_info(1, 0, 10, 0),
            process_info(2, 1, 20, 0),
            process_info(3, 2, 30, 0),
            process_info(4, 1, 40, 0),
        ];
        assert_eq!(total(tree, &processes), 100);
        // 3 ended, and its parent 2 waited for it.
        assert_eq!(
            total(
                tree,
                &[
                    process_info(1, 0, 10, 0),
                    process_info(2, 1, 20, 31),
                    process_info(4, 1, 40, 0)
                ]
            ),
            101
        );
        // 2 ended, and 1 waited for it and its children; another process came and went unseen.
        assert_eq!(
            total(tree, &[process_info(1, 0, 10, 58), process_info(4, 1, 40, 0)]),
            108
        );
        // 4 ended, and no process waited for it.
        assert_eq!(total(tree, &[process_info(1, 0, 11, 58)]), 109);
        // All have ended.
        assert_eq!(total(tree, &[]), 109);
    }

    #[test]
    fn a_grandchild_that_ends_with_its_parent_is_counted_once() {
        let tree = &mut ProcessTreeCpu::new(Vec::new());
        assert_eq!(
            total(
                tree,
                &[
                    process_info(1, 0, 1, 0),
                    process_info(2, 1, 20, 0),
                    process_info(3, 2, 30, 0)
                ]
            ),
            51
        );
        assert_eq!(total(tree, &[process_info(1, 0, 1, 50)]), 51);
    }

    #[test]
    fn a_container_has_an_account_of_its_own() {
        let id = "a".repeat(64);
        assert_eq!(
            container_cpu(&format!("0::/system.slice/docker-{id}.scope\n")),
            Some(CgroupCpu::Micros(
                format!("/sys/fs/cgroup/system.slice/docker-{id}.scope/cpu.stat").into()
            ))
        );
        assert_eq!(
            container_cpu(&format!("5:memory:/docker/{id}\n4:cpu,cpuacct:/docker/{id}\n")),
            Some(CgroupCpu::Nanos(
                format!("/sys/fs/cgroup/cpuacct/docker/{id}/cpuacct.usage").into()
            ))
        );
        assert_eq!(container_cpu("0::/user.slice/session-3.scope\n"), None);
    }
}
