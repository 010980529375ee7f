//! The processes of this host, from `/proc`. Processes that the user may not see, or that end during a read,
//! are left out.

use std::collections::{BTreeMap, BTreeSet};

use procfs::process::{self, Process, Stat};
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

/// A process, identified by its id and its start time in clock ticks since boot. The pair is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    pub(crate) started: u64,
}

impl ProcessId {
    /// Sends a signal to the process if it still exists.
    pub(crate) fn signal(self, signal: Signal) {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return;
        };
        // The descriptor pins the process, so that its id cannot pass to another process between the check
        // and the signal.
        let pinned = rustix::process::pidfd_open(pid, PidfdFlags::empty());
        if by_id(self.pid).is_none_or(|process| process.start_ticks != self.started) {
            return;
        }
        // If the process has ended in the meantime, there is nothing to do.
        let _ = match pinned {
            Ok(pinned) => rustix::process::pidfd_send_signal(&pinned, signal),
            Err(_) => rustix::process::kill_process(pid, signal),
        };
    }
}

/// The part of `/proc/PID/stat` that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessInfo {
    pub(crate) pid: u32,
    /// The process that started it, or that adopted it.
    pub(crate) parent: u32,
    pub(crate) group: u32,
    pub(crate) session: u32,
    /// Start time in clock ticks since boot.
    pub(crate) start_ticks: u64,
    /// Own processor time, in clock ticks.
    pub(crate) cpu_ticks: u64,
    /// Processor time of its ended children, in clock ticks.
    pub(crate) reaped_cpu_ticks: u64,
    /// True for zombies too, whose parent has not collected them yet.
    pub(crate) has_ended: bool,
}

impl From<&Stat> for ProcessInfo {
    fn from(stat: &Stat) -> Self {
        let number = |number: i32| u32::try_from(number).unwrap_or(0);
        Self {
            pid: number(stat.pid),
            parent: number(stat.ppid),
            group: number(stat.pgrp),
            session: number(stat.session),
            start_ticks: stat.starttime,
            cpu_ticks: stat.utime + stat.stime,
            reaped_cpu_ticks: (stat.cutime + stat.cstime).unsigned_abs(),
            // A process whose first thread has ended lives as long as another thread does.
            has_ended: matches!(stat.state, 'Z' | 'X') && stat.num_threads <= 1,
        }
    }
}

impl ProcessInfo {
    pub(crate) const fn id(&self) -> ProcessId {
        ProcessId {
            pid: self.pid,
            started: self.start_ticks,
        }
    }
}

pub(crate) fn open(pid: u32) -> Option<Process> {
    Process::new(i32::try_from(pid).ok()?).ok()
}

pub(crate) fn open_all() -> impl Iterator<Item = Process> {
    process::all_processes().into_iter().flatten().flatten()
}

/// Returns this process. It works even if `/proc` shows another namespace of process ids.
pub(crate) fn current_process() -> Option<ProcessInfo> {
    Some(ProcessInfo::from(&Process::myself().ok()?.stat().ok()?))
}

pub(crate) fn by_id(pid: u32) -> Option<ProcessInfo> {
    Some(ProcessInfo::from(&open(pid)?.stat().ok()?))
}

pub(crate) fn all_processes() -> Vec<ProcessInfo> {
    let stats = open_all().filter_map(|process| process.stat().ok());
    stats.map(|stat| ProcessInfo::from(&stat)).collect()
}

/// Returns the processes of `all` that are roots, descend from one, or are in the process group that a root
/// leads. A root that is not in `all` leads no group.
pub(crate) fn tree_pids(processes: &[ProcessInfo], roots: &[u32]) -> BTreeSet<u32> {
    let leads = |root: &u32| {
        processes
            .iter()
            .any(|process| process.pid == *root && process.group == *root)
    };
    let groups: Vec<u32> = roots.iter().copied().filter(leads).collect();
    related_pids(processes, roots, &groups)
}

/// Returns the live processes that are roots, descend from one, or are in a process group with the id of a
/// root. The root itself may have ended.
pub(crate) fn live_tree(roots: &[u32]) -> Vec<ProcessId> {
    let processes = all_processes();
    let members = related_pids(&processes, roots, roots);
    let mut live: Vec<ProcessId> = processes
        .iter()
        .filter(|process| !process.has_ended && members.contains(&process.pid))
        .map(ProcessInfo::id)
        .collect();
    live.sort();
    live
}

/// Returns the processes of `all` that descend from `root`, without `root`.
pub(crate) fn descendants(processes: &[ProcessInfo], root: u32) -> BTreeSet<u32> {
    let mut members = related_pids(processes, &[root], &[]);
    members.remove(&root);
    members
}

/// Returns the processes of `all` that are roots, are in one of `groups`, or descend from any of these.
fn related_pids(processes: &[ProcessInfo], roots: &[u32], groups: &[u32]) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for process in processes {
        children.entry(process.parent).or_default().push(process.pid);
    }
    let grouped = processes.iter().filter(|process| groups.contains(&process.group));
    let mut open: Vec<u32> = roots
        .iter()
        .copied()
        .chain(grouped.map(|process| process.pid))
        .collect();
    let mut pids = BTreeSet::new();
    while let Some(pid) = open.pop() {
        if pids.insert(pid) {
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    pids.retain(|pid| processes.iter().any(|process| process.pid == *pid));
    pids
}

/// Returns true if the process is one of `roots`, descends from one, or is in a group with the id of one.
pub(crate) fn is_in_tree(pid: u32, roots: &[u32]) -> bool {
    let mut current = Some(pid);
    while let Some(process) = current.and_then(by_id) {
        if roots.contains(&process.pid) || roots.contains(&process.group) {
            return true;
        }
        current = (process.parent > 0).then_some(process.parent);
    }
    false
}

/// Returns the command name of a process; `None` if this host has no such process.
#[cfg(any(feature = "nvml", test))]
pub(crate) fn process_name(pid: u32) -> Option<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, group: u32) -> ProcessInfo {
        ProcessInfo {
            pid,
            parent,
            group,
            session: 0,
            start_ticks: 0,
            cpu_ticks: 0,
            reaped_cpu_ticks: 0,
            has_ended: false,
        }
    }

    #[test]
    fn descendants_and_the_orphans_of_the_group_belong() {
        let all = [
            process(1, 0, 1),
            process(10, 1, 10),
            process(11, 10, 10),
            process(12, 11, 12),
            // The parent of this process has ended.
            process(13, 1, 10),
            process(14, 13, 14),
            process(20, 1, 20),
        ];
        assert_eq!(tree_pids(&all, &[10]), BTreeSet::from([10, 11, 12, 13, 14]));
        assert_eq!(tree_pids(&all, &[12]), BTreeSet::from([12]));
        assert_eq!(tree_pids(&all, &[99]), BTreeSet::new());
        assert_eq!(tree_pids(&all, &[]), BTreeSet::new());
    }

    #[test]
    fn a_group_is_followed_without_its_leader_only_where_it_is_named() {
        let all = [process(1, 0, 1), process(13, 1, 10), process(14, 13, 14)];
        assert_eq!(tree_pids(&all, &[10]), BTreeSet::new());
        assert_eq!(related_pids(&all, &[10], &[10]), BTreeSet::from([13, 14]));
        assert_eq!(descendants(&all, 13), BTreeSet::from([14]));
    }

    #[test]
    fn this_process_is_seen_with_its_parent() {
        let own = by_id(std::process::id()).unwrap();
        assert!(all_processes().iter().any(|process| process.id() == own.id()));
        assert!(tree_pids(&all_processes(), &[own.parent]).contains(&own.pid));
        assert_eq!(by_id(u32::MAX), None);
    }

    #[test]
    fn a_tree_holds_children_and_their_children() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let members = live_tree(&[child.id()]);
        assert_eq!(members.len(), 2, "{members:?}");
        assert!(members.iter().any(|member| member.pid == child.id()));
        assert!(members.iter().all(|member| member.pid != std::process::id()));
        for member in members {
            let pid = Pid::from_raw(i32::try_from(member.pid).unwrap()).unwrap();
            rustix::process::kill_process(pid, Signal::KILL).unwrap();
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_lives_while_another_thread_does() {
        let mut stat = Process::myself().unwrap().stat().unwrap();
        stat.num_threads = 1;
        assert!(!ProcessInfo::from(&stat).has_ended);
        stat.state = 'Z';
        assert!(ProcessInfo::from(&stat).has_ended);
        stat.num_threads = 2;
        assert!(!ProcessInfo::from(&stat).has_ended);
    }

    #[test]
    fn of_nothing_there_is_nothing() {
        assert_eq!(live_tree(&[]), []);
        assert_eq!(live_tree(&[u32::MAX]), []);
    }
}
