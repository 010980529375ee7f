//! What a `matrix` that was killed left running, found by its marks: processes here, containers in `docker::left`. It touches
//! nothing whose owner lives, and no stranger.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;

use crate::engine::docker::{self, Whereabouts};
use crate::engine::marks::{self, Owner, Seen};

/// How long the system may take to remove killed processes.
const KILLED: Duration = Duration::from_secs(5);

/// A process that `matrix` started, or a descendant of one.
#[derive(Clone, Debug)]
pub struct Leftover {
    /// Its process id.
    pub pid: i32,
    /// Its process group.
    pub pgid: i32,
    /// The run it was started for.
    pub run: String,
    /// The launch and the start: `<launch>#<start>`.
    pub start: String,
    /// The `matrix` process that started it.
    pub owner: Owner,
    /// What it was started as.
    pub command: String,
    seen: Seen,
}

impl Leftover {
    /// The leftover in words, its command shortened.
    fn words(&self) -> String {
        let command: String = self.command.chars().take(80).collect();
        format!(
            "process {} `{}` of run {} ({})",
            self.pid,
            command.trim_end(),
            self.run,
            self.start
        )
    }
}

/// Processes that carry marks of `matrix`, and those that share a group with one: all of them, or only those whose owner
/// lives no more. This process and its ancestors are never among them.
pub fn find(owner_is_dead_only: bool) -> Vec<Leftover> {
    let all = marks::processes();
    let spared = lineage(&all);
    let marked: Vec<&Seen> = all
        .iter()
        .filter(|seen| !spared.contains(&seen.pid))
        .filter(|seen| {
            let owner = seen.marks.as_ref().map(|marks| &marks.owner);
            owner.is_some_and(|owner| !owner_is_dead_only || owner.is_dead())
        })
        .collect();
    all.iter()
        .filter(|seen| !spared.contains(&seen.pid))
        .filter_map(|seen| {
            // A process may wipe its environment when it gives itself a title; its group still tells whose it is.
            let kin = marked.iter().find(|kin| kin.pid == seen.pid).or_else(|| {
                let is_bare = seen.marks.is_none();
                marked
                    .iter()
                    .find(|kin| is_bare && kin.pgid == seen.pgid && kin.session == seen.session)
            })?;
            let marks = kin.marks.clone()?;
            Some(Leftover {
                pid: seen.pid,
                pgid: seen.pgid,
                run: marks.run,
                start: marks.start,
                owner: marks.owner,
                command: seen.command.clone(),
                seen: seen.clone(),
            })
        })
        .collect()
}

/// Kills the processes that this one started, at once, and says which.
pub fn kill_own() -> Vec<String> {
    let Ok(own) = Owner::this() else { return Vec::new() };
    let mut left = find(false);
    left.retain(|leftover| leftover.owner == own);
    for leftover in &left {
        leftover.seen.signal(Signal::KILL);
    }
    left.iter().map(Leftover::words).collect()
}

/// This process, its ancestors, and everything in its own group.
fn lineage(all: &[Seen]) -> BTreeSet<i32> {
    let mut spared = BTreeSet::new();
    let mut next = i32::try_from(std::process::id()).ok();
    let own_group = all
        .iter()
        .find(|seen| Some(seen.pid) == next)
        .map(|seen| seen.pgid);
    while let Some(pid) = next.filter(|pid| spared.insert(*pid)) {
        next = all.iter().find(|seen| seen.pid == pid).map(|seen| seen.parent);
    }
    spared.extend(
        all.iter()
            .filter(|seen| Some(seen.pgid) == own_group)
            .map(|seen| seen.pid),
    );
    spared
}

/// What became of what dead runs left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// What is gone.
    pub removed: Vec<String>,
    /// What is still there, and why.
    pub remaining: Vec<String>,
    /// What else is to be known.
    pub notes: Vec<String>,
    /// Why the containers could not be looked at, where there is, or should be, a daemon.
    pub unseen: Option<String>,
}

/// Ends everything whose owner lives no more: SIGTERM, then after `grace` SIGKILL; containers at the daemon of `whereabouts` are
/// removed.
pub async fn sweep(grace: Duration, whereabouts: &Whereabouts) -> Swept {
    let (processes, containers) = tokio::join!(processes(grace), docker::sweep(grace, whereabouts));
    Swept {
        removed: [processes.removed, containers.removed].concat(),
        remaining: [processes.remaining, containers.remaining].concat(),
        ..containers
    }
}

async fn processes(grace: Duration) -> Swept {
    let mut told: Vec<Leftover> = Vec::new();
    for (signal, patience) in [(Signal::TERM, grace), (Signal::KILL, KILLED)] {
        let deadline = tokio::time::Instant::now() + patience;
        let mut signalled = BTreeSet::new();
        loop {
            let left = find(true);
            if left.is_empty() {
                return Swept {
                    removed: told.iter().map(Leftover::words).collect(),
                    ..Swept::default()
                };
            }
            for leftover in left {
                if signalled.insert((leftover.pid, leftover.seen.started)) {
                    leftover.seen.signal(signal);
                }
                if !told
                    .iter()
                    .any(|old| old.pid == leftover.pid && old.seen.started == leftover.seen.started)
                {
                    told.push(leftover);
                }
            }
            if tokio::time::Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
    let stubborn: BTreeSet<i32> = find(true).iter().map(|leftover| leftover.pid).collect();
    let is_stubborn = |leftover: &&Leftover| stubborn.contains(&leftover.pid);
    let (remaining, removed): (Vec<&Leftover>, Vec<&Leftover>) = told.iter().partition(is_stubborn);
    Swept {
        removed: removed.into_iter().map(Leftover::words).collect(),
        remaining: remaining
            .into_iter()
            .map(|leftover| format!("{}: it is there after SIGKILL", leftover.words()))
            .collect(),
        ..Swept::default()
    }
}
