//! What a `matrix` that was killed left running, found by its marks: processes here, containers in `docker::left`. It touches
//! nothing whose owner lives, and no stranger.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::base::proc::{self, ProcessInfo};
use crate::engine::docker::{self, Whereabouts};
use crate::engine::ownership::{Marks, Owner};
use crate::engine::shim;
use crate::engine::start_record;
use crate::engine::sweep_result::Swept;
use crate::engine::tagged_process::{self, TaggedProcess};

/// How long the system may take to remove killed processes.
const KILLED: Duration = Duration::from_secs(5);

/// How long a shim may take, after everything that it supervises was killed, to free what that leaves and to end by itself.
const SETTLED: Duration = Duration::from_secs(2);

/// A process that `matrix` started, or a descendant of one.
#[derive(Clone, Debug)]
pub(crate) struct Leftover {
    pub pid: u32,
    /// The run it was started for.
    pub run: String,
    /// The launch and the start: `<launch>#<start>`.
    pub start: String,
    /// The `matrix` process that started it.
    pub owner: Owner,
    /// What it was started as.
    pub command: String,
    info: ProcessInfo,
}

impl Leftover {
    fn new(process: &TaggedProcess, marks: Marks) -> Self {
        Self {
            pid: process.info.pid,
            run: marks.run,
            start: marks.start,
            owner: marks.owner,
            command: process.command.clone(),
            info: process.info,
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
pub(crate) fn find(owner_is_dead_only: bool) -> Vec<Leftover> {
    let all = tagged_process::all();
    let infos: Vec<ProcessInfo> = all.iter().map(|process| process.info).collect();
    let spared = lineage(&infos);
    let marked: Vec<(&ProcessInfo, &Marks)> = all
        .iter()
        .filter(|process| !spared.contains(&process.info.pid))
        .filter_map(|process| Some((&process.info, process.marks.as_ref()?)))
        .filter(|(_, marks)| !owner_is_dead_only || marks.owner.is_dead())
        .collect();
    let descendants: Vec<(BTreeSet<u32>, &Marks)> = marked
        .iter()
        .map(|(info, marks)| (proc::descendants(&infos, info.pid), *marks))
        .collect();
    let marks_of = |process: &TaggedProcess| -> Option<Marks> {
        let info = &process.info;
        if let Some(own) = &process.marks {
            let is_marked = marked.iter().any(|(kin, _)| kin.pid == info.pid);
            return is_marked.then(|| own.clone());
        }
        // A process may wipe its environment; its group and its ancestors still say whose it is.
        let is_kin = |kin: &ProcessInfo| kin.group == info.group && kin.session == info.session;
        let group = marked
            .iter()
            .find(|(kin, _)| is_kin(kin))
            .map(|(_, marks)| *marks);
        let ancestor = || descendants.iter().find(|(below, _)| below.contains(&info.pid));
        group.or_else(|| ancestor().map(|(_, marks)| *marks)).cloned()
    };
    all.iter()
        .filter(|process| !spared.contains(&process.info.pid))
        .filter_map(|process| Some(Leftover::new(process, marks_of(process)?)))
        .collect()
}

/// Kills the processes that this one started, at once, and says which. A shim ends by itself once nothing lives below it.
pub(crate) fn kill_own() -> Vec<String> {
    let Ok(own) = Owner::this() else { return Vec::new() };
    let mut left = find(false);
    left.retain(|leftover| leftover.owner == own && !leftover.is_shim());
    for leftover in &left {
        leftover.info.id().signal(Signal::KILL);
    }
    left.iter().map(Leftover::words).collect()
}

/// This process, its ancestors, and everything in its own group.
fn lineage(all: &[ProcessInfo]) -> BTreeSet<u32> {
    let find = |pid: u32| all.iter().find(|process| process.pid == pid);
    let mut spared = BTreeSet::new();
    let own = std::process::id();
    let mut next = Some(own);
    while let Some(pid) = next.filter(|pid| spared.insert(*pid)) {
        next = find(pid).map(|process| process.parent);
    }
    let own_group = find(own).map(|process| process.group);
    let grouped = all.iter().filter(|process| Some(process.group) == own_group);
    spared.extend(grouped.map(|process| process.pid));
    spared
}

/// Ends everything whose owner lives no more: SIGTERM, then after `grace` SIGKILL; containers at the daemon of `whereabouts` are
/// removed.
///
/// `cache` is where starts are recorded, by which processes without marks are found.
pub(crate) async fn sweep(grace: Duration, whereabouts: &Whereabouts, cache: &Path) -> Swept {
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
    for start_record::Orphan { marks, process } in start_record::orphans(cache) {
        if !all.iter().any(|known| known.pid == process.info.pid) {
            all.push(Leftover::new(&process, marks));
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
                let id = leftover.info.id();
                if (are_shims || !leftover.is_shim()) && signalled.insert(id) {
                    id.signal(signal);
                }
                if !found.iter().any(|known| known.info.id() == id) {
                    found.push(leftover);
                }
            }
            if tokio::time::Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
    let live: BTreeSet<u32> = orphans(cache).iter().map(|leftover| leftover.pid).collect();
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
