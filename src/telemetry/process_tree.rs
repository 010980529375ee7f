//! Processes and what they started, from `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use procfs::FromRead;
use procfs::process::Stat;

/// A live process, as it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its id.
    pub pid: u32,
    /// Who started it, or who has it now.
    pub parent: u32,
    /// Its process group.
    pub group: u32,
    /// When it was started, in clock ticks after the machine was: with the id it names one process for ever.
    pub started: u64,
    /// Processor time of its own so far, in clock ticks.
    pub ticks: u64,
    /// Processor time of those that it started and that have ended, in clock ticks.
    pub ended_ticks: u64,
}

/// A process by its id; `None` where it lives no more.
pub fn see(pid: u32) -> Option<Seen> {
    let stat = Stat::from_file(format!("/proc/{pid}/stat")).ok()?;
    let number = |number: i32| u32::try_from(number).unwrap_or(0);
    Some(Seen {
        pid,
        parent: number(stat.ppid),
        group: number(stat.pgrp),
        started: stat.starttime,
        ticks: stat.utime + stat.stime,
        ended_ticks: (stat.cutime + stat.cstime).unsigned_abs(),
    })
}

/// Every process that this user may see.
pub fn all() -> Vec<Seen> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(see).collect()
}

/// Those of `all` that are roots, descend from one, or are in the process group of a root that leads one.
pub fn belonging(all: &[Seen], roots: &[u32]) -> BTreeSet<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for seen in all {
        children.entry(seen.parent).or_default().push(seen.pid);
    }
    let leads = |root: &u32| all.iter().any(|seen| seen.pid == *root && seen.group == *root);
    let groups: BTreeSet<u32> = roots.iter().copied().filter(leads).collect();
    let kin = all.iter().filter(|seen| groups.contains(&seen.group));
    let mut open: Vec<u32> = roots.iter().copied().chain(kin.map(|seen| seen.pid)).collect();
    let mut found = BTreeSet::new();
    while let Some(pid) = open.pop() {
        if found.insert(pid) {
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found.retain(|pid| all.iter().any(|seen| seen.pid == *pid));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pid: u32, parent: u32, group: u32) -> Seen {
        Seen {
            pid,
            parent,
            group,
            started: 0,
            ticks: 0,
            ended_ticks: 0,
        }
    }

    #[test]
    fn descendants_and_the_orphans_of_the_group_belong() {
        let all = [
            seen(1, 0, 1),
            seen(10, 1, 10),
            seen(11, 10, 10),
            seen(12, 11, 12),
            // Its parent has ended.
            seen(13, 1, 10),
            seen(14, 13, 14),
            seen(20, 1, 20),
        ];
        assert_eq!(belonging(&all, &[10]), BTreeSet::from([10, 11, 12, 13, 14]));
        assert_eq!(belonging(&all, &[12]), BTreeSet::from([12]));
        assert_eq!(belonging(&all, &[99]), BTreeSet::new());
        assert_eq!(belonging(&all, &[]), BTreeSet::new());
    }

    #[test]
    fn this_process_is_seen_with_its_parent() {
        let own = see(std::process::id()).unwrap();
        assert!(
            all()
                .iter()
                .any(|seen| seen.pid == own.pid && seen.started == own.started)
        );
        assert!(belonging(&all(), &[own.parent]).contains(&own.pid));
        assert_eq!(see(u32::MAX), None);
    }
}
