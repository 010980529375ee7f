//! Finds and ends processes that a killed `matrix` left running, by their ownership tags. Containers are
//! handled in `docker::orphans`. Processes of a live owner and processes without tags are not touched.

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

/// How long killed processes may take to disappear.
const KILLED: Duration = Duration::from_secs(5);

/// How long a shim may take to clean up and exit after all processes below it were killed.
const SETTLED: Duration = Duration::from_secs(2);

/// A process that `matrix` started, or a descendant of one.
#[derive(Clone, Debug)]
pub(crate) struct Leftover {
    pub pid: u32,
    /// The run it was started for.
    pub run: String,
    /// Launch and start: `<launch>#<start>`.
    pub start: String,
    pub owner: Owner,
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

    /// Whether it is a shim. A shim ends the processes below it and then itself.
    fn is_shim(&self) -> bool {
        self.command.contains(&format!(" {} ", shim::SUPERVISE))
    }

    /// Description with a shortened command.
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

/// Processes with ownership tags, and untagged processes that share a process group with one or descend from
/// one. `owner_is_dead_only` selects those whose owner has ended. This process and its ancestors are never
/// included.
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
        // A process may clear its environment; its group or its ancestors still identify its owner.
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

/// Kills all processes that this `matrix` started and returns their descriptions. Shims exit by themselves
/// afterwards.
pub(crate) fn kill_own() -> Vec<String> {
    let Ok(own) = Owner::this() else { return Vec::new() };
    let mut left = find(false);
    left.retain(|leftover| leftover.owner == own && !leftover.is_shim());
    for leftover in &left {
        leftover.info.id().signal(Signal::KILL);
    }
    left.iter().map(Leftover::words).collect()
}

/// Pids of this process, its ancestors, and its process group.
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

/// Ends everything whose owner has ended: SIGTERM, and SIGKILL after `grace`. Containers at the daemon of
/// `whereabouts` are removed.
///
/// `cache` has the start records, by which untagged processes are found.
pub(crate) async fn sweep(grace: Duration, whereabouts: &Whereabouts, cache: &Path) -> Swept {
    let (processes, containers) =
        tokio::join!(processes(grace, cache), docker::sweep(grace, whereabouts, cache));
    // By now, containers that share the host's memory are gone as well.
    let memory = start_record::settle(cache);
    Swept {
        removed: [processes.removed, containers.removed, memory.freed].concat(),
        remaining: [processes.remaining, containers.remaining].concat(),
        notes: [containers.notes.clone(), memory.remaining].concat(),
        ..containers
    }
}

/// Orphans found by ownership tags or by start records.
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
            // Shims hold the processes below them together, so they are signalled last.
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

/// Descriptions of the selected processes, without shims.
fn words(found: &[Leftover], is_wanted: impl Fn(&Leftover) -> bool) -> Vec<String> {
    let engines = found.iter().filter(|leftover| !leftover.is_shim());
    engines
        .filter(|leftover| is_wanted(leftover))
        .map(Leftover::words)
        .collect()
}
