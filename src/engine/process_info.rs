//! The live processes of this host, each with the marks that it carries.

use std::collections::{BTreeMap, BTreeSet};

use procfs::process::{self, Process};

use crate::engine::ownership::Marks;
use crate::engine::tree::{self, Member};

/// A live process, as it was seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) pgid: i32,
    pub(crate) session: i32,
    pub(crate) started: u64,
    pub(crate) marks: Option<Marks>,
    pub(crate) command: String,
}

impl Seen {
    /// What names it for ever.
    pub(crate) const fn member(&self) -> Member {
        Member {
            pid: self.pid,
            started: self.started,
        }
    }
}

/// Every live process whose state can be read; those that ended and were not yet reaped are not live.
pub(crate) fn processes() -> Vec<Seen> {
    let Ok(all) = process::all_processes() else {
        return Vec::new();
    };
    all.filter_map(|process| see(&process.ok()?)).collect()
}

/// A live process by its id, with its command line.
pub(crate) fn see_by_id(pid: i32) -> Option<Seen> {
    let process = Process::new(pid).ok()?;
    let command = process.cmdline().unwrap_or_default().join(" ");
    Some(Seen {
        command,
        ..see(&process)?
    })
}

/// The processes that descend from `roots`, without these.
pub(super) fn descendants(all: &[Seen], roots: &[i32]) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for seen in all {
        children.entry(seen.parent).or_default().push(seen.pid);
    }
    let mut members = BTreeSet::new();
    let mut open = roots.to_vec();
    while let Some(pid) = open.pop() {
        for child in children.get(&pid).into_iter().flatten() {
            if members.insert(*child) {
                open.push(*child);
            }
        }
    }
    members
}

fn see(process: &Process) -> Option<Seen> {
    let stat = process.stat().ok()?;
    if tree::has_ended(&stat) {
        return None;
    }
    let marks = process.environ().ok().and_then(|environ| Marks::read(&environ));
    Some(Seen {
        pid: stat.pid,
        parent: stat.ppid,
        pgid: stat.pgrp,
        session: stat.session,
        started: stat.starttime,
        command: match &marks {
            Some(_) => process.cmdline().unwrap_or_default().join(" "),
            None => stat.comm,
        },
        marks,
    })
}
