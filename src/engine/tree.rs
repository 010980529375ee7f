//! The processes of this host by who started whom.

use std::collections::{BTreeMap, BTreeSet};

use procfs::process;

/// A live process by its id and its start in clock ticks after the machine's, which name it for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Member {
    pub(super) pid: i32,
    pub(super) started: u64,
}

/// The live ones of `roots`, what descends from them, and what is in the process group that one of them leads.
pub(super) fn of(roots: &[u32]) -> Vec<Member> {
    let mut found: BTreeMap<i32, Member> = BTreeMap::new();
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let mut open: Vec<i32> = roots
        .iter()
        .filter_map(|root| i32::try_from(*root).ok())
        .collect();
    let leaders: BTreeSet<i32> = open.iter().copied().collect();
    for stat in process::all_processes()
        .into_iter()
        .flatten()
        .filter_map(|process| process.ok()?.stat().ok())
    {
        if !matches!(stat.state, 'Z' | 'X') {
            let (pid, started) = (stat.pid, stat.starttime);
            found.insert(pid, Member { pid, started });
        }
        children.entry(stat.ppid).or_default().push(stat.pid);
        if leaders.contains(&stat.pgrp) {
            open.push(stat.pid);
        }
    }
    let mut members = BTreeSet::new();
    while let Some(pid) = open.pop() {
        if members.insert(pid) {
            open.extend(children.get(&pid).into_iter().flatten());
        }
    }
    members.iter().filter_map(|pid| found.get(pid).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_holds_children_and_their_children() {
        let mut child = std::process::Command::new("sh")
            .args(["-c", "sleep 60 & echo; wait"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = [0];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
        let id = i32::try_from(child.id()).unwrap();
        let members = of(&[child.id()]);
        assert_eq!(members.len(), 2, "{members:?}");
        assert!(members.iter().any(|member| member.pid == id));
        let this = i32::try_from(std::process::id()).unwrap();
        assert!(members.iter().all(|member| member.pid != this));
        for member in members {
            let pid = rustix::process::Pid::from_raw(member.pid).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        }
        child.wait().unwrap();
    }

    #[test]
    fn of_nothing_there_is_nothing() {
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[u32::MAX]), []);
    }
}
