//! What a `matrix` that was killed left running, found by its marks: processes here, containers in `docker::left`. It touches
//! nothing whose owner lives, and no stranger.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::engine::docker::{self, Whereabouts};
use crate::engine::ownership::{Marks, Owner};
use crate::engine::process_info::{self, Seen};
use crate::engine::shim;
use crate::engine::start_record;
use crate::engine::sweep_result::Swept;

/// How long the system may take to remove killed processes.
const KILLED: Duration = Duration::from_secs(5);

/// How long a shim may take, after everything that it supervises was killed, to free what that leaves and to end by itself.
const SETTLED: Duration = Duration::from_secs(2);

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
    fn new(seen: Seen, marks: Marks) -> Self {
        Self {
            pid: seen.pid,
            pgid: seen.pgid,
            run: marks.run,
            start: marks.start,
            owner: marks.owner,
            command: seen.command.clone(),
            seen,
        }
    }

    /// Whether it is a shim, which ends what lives below it and then itself.
    fn is_shim(&self) -> bool {
        self.command.contains(&format!(" {} ", shim::SUPERVISE))
    }

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

/// Processes that carry marks of `matrix`, and those without marks that share a group with one or descend from one: all of them, or
/// only those whose owner lives no more. This process and its ancestors are never among them.
pub fn find(owner_is_dead_only: bool) -> Vec<Leftover> {
    let all = process_info::processes();
    let spared = lineage(&all);
    let marked: Vec<(&Seen, &Marks)> = all
        .iter()
        .filter(|seen| !spared.contains(&seen.pid))
        .filter_map(|seen| Some((seen, seen.marks.as_ref()?)))
        .filter(|(_, marks)| !owner_is_dead_only || marks.owner.is_dead())
        .collect();
    let descendants: Vec<(BTreeSet<i32>, &Marks)> = marked
        .iter()
        .map(|(seen, marks)| (process_info::descendants(&all, &[seen.pid]), *marks))
        .collect();
    let marks_of = |seen: &Seen| -> Option<Marks> {
        if let Some(own) = &seen.marks {
            let is_marked = marked.iter().any(|(kin, _)| kin.pid == seen.pid);
            return is_marked.then(|| own.clone());
        }
        // A process may wipe its environment; its group and its ancestors still say whose it is.
        let is_kin = |kin: &Seen| kin.pgid == seen.pgid && kin.session == seen.session;
        let group = marked
            .iter()
            .find(|(kin, _)| is_kin(kin))
            .map(|(_, marks)| *marks);
        let ancestor = || descendants.iter().find(|(below, _)| below.contains(&seen.pid));
        group.or_else(|| ancestor().map(|(_, marks)| *marks)).cloned()
    };
    all.iter()
        .filter(|seen| !spared.contains(&seen.pid))
        .filter_map(|seen| Some(Leftover::new(seen.clone(), marks_of(seen)?)))
        .collect()
}

/// Kills the processes that this one started, at once, and says which. A shim ends by itself once nothing lives below it.
pub fn kill_own() -> Vec<String> {
    let Ok(own) = Owner::this() else { return Vec::new() };
    let mut left = find(false);
    left.retain(|leftover| leftover.owner == own && !leftover.is_shim());
    for leftover in &left {
        leftover.seen.member().signal(Signal::KILL);
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

/// Ends everything whose owner lives no more: SIGTERM, then after `grace` SIGKILL; containers at the daemon of `whereabouts` are
/// removed.
///
/// `cache` is where starts are recorded, by which processes without marks are found.
pub async fn sweep(grace: Duration, whereabouts: &Whereabouts, cache: &Path) -> Swept {
    let (processes, containers) =
        tokio::join!(processes(grace, cache), docker::sweep(grace, whereabouts, cache));
    // Containers that share the host's memory are gone by now as well.
    let memory = start_record::settle(cache);
    Swept {
        removed: [processes.removed, containers.removed, memory.freed].concat(),
        remaining: [processes.remaining, containers.remaining].concat(),
        notes: [containers.notes.clone(), memory.remaining].concat(),
        ..containers
    }
}

/// What dead owners left: by marks, and by the records of their starts.
fn orphans(cache: &Path) -> Vec<Leftover> {
    let mut all = find(true);
    for start_record::Orphan { marks, seen } in start_record::orphans(cache) {
        if !all.iter().any(|known| known.pid == seen.pid) {
            all.push(Leftover::new(seen, marks));
        }
    }
    all
}

async fn processes(grace: Duration, cache: &Path) -> Swept {
    let mut found: Vec<Leftover> = Vec::new();
    for (signal, limit) in [(Signal::TERM, grace), (Signal::KILL, KILLED)] {
        let began = tokio::time::Instant::now();
        let deadline = began + limit;
        let spares_shims = |now| signal == Signal::KILL && now < began + SETTLED;
        let mut signalled = BTreeSet::new();
        loop {
            let left = orphans(cache);
            if left.is_empty() {
                return Swept {
                    removed: words(&found, |_| true),
                    ..Swept::default()
                };
            }
            // A shim keeps what it supervises together, so it is the last one.
            let are_shims = left.iter().all(Leftover::is_shim) && !spares_shims(tokio::time::Instant::now());
            for leftover in left {
                let member = leftover.seen.member();
                if (are_shims || !leftover.is_shim()) && signalled.insert(member) {
                    member.signal(signal);
                }
                if !found.iter().any(|known| known.seen.member() == member) {
                    found.push(leftover);
                }
            }
            if tokio::time::Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
    let live: BTreeSet<i32> = orphans(cache).iter().map(|leftover| leftover.pid).collect();
    Swept {
        removed: words(&found, |leftover| !live.contains(&leftover.pid)),
        remaining: words(&found, |leftover| live.contains(&leftover.pid))
            .into_iter()
            .map(|words| format!("{words}: it is there after SIGKILL"))
            .collect(),
        ..Swept::default()
    }
}

/// Those that are wanted in words, without shims.
fn words(found: &[Leftover], is_wanted: impl Fn(&Leftover) -> bool) -> Vec<String> {
    let engines = found.iter().filter(|leftover| !leftover.is_shim());
    engines
        .filter(|leftover| is_wanted(leftover))
        .map(Leftover::words)
        .collect()
}
