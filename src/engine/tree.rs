//! The processes of this host by who started whom.

use std::collections::{BTreeMap, BTreeSet};

use procfs::process::{self, Process, Stat};
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

/// A live process by its id and its start in clock ticks after the machine's, which name it for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) pid: i32,
    pub(crate) started: u64,
}

impl Member {
    /// Sends it a signal, if it is still the same process.
    pub(crate) fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return;
        };
        // The descriptor pins the process: its id cannot pass to a stranger between the look and the signal.
        let pinned = rustix::process::pidfd_open(pid, PidfdFlags::empty());
        let is_same = Process::new(self.pid)
            .and_then(|process| process.stat())
            .is_ok_and(|stat| stat.starttime == self.started);
        if !is_same {
            return;
        }
        // It may have ended in the meantime, which is as good.
        let _ = match pinned {
            Ok(pinned) => rustix::process::pidfd_send_signal(&pinned, signal),
            Err(_) => rustix::process::kill_process(pid, signal),
        };
    }
}

/// Whether a process has ended, though its parent may not know yet. One whose first thread has ended lives while another thread does.
pub(crate) const fn has_ended(stat: &Stat) -> bool {
    matches!(stat.state, 'Z' | 'X') && stat.num_threads <= 1
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
        if !has_ended(&stat) {
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
            let pid = Pid::from_raw(member.pid).unwrap();
            rustix::process::kill_process(pid, Signal::KILL).unwrap();
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_process_whose_first_thread_has_ended_lives_while_another_thread_does() {
        let mut stat = Process::myself().unwrap().stat().unwrap();
        stat.num_threads = 1;
        assert!(!has_ended(&stat));
        stat.state = 'Z';
        assert!(has_ended(&stat));
        stat.num_threads = 2;
        assert!(!has_ended(&stat));
    }

    #[test]
    fn of_nothing_there_is_nothing() {
        assert_eq!(of(&[]), []);
        assert_eq!(of(&[u32::MAX]), []);
    }
}
