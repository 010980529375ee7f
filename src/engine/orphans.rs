//! Finds and ends processes that a killed `matrix` left running, by their ownership tags. Containers are
//! handled in `docker::orphan_processes`. Processes of a live owner and processes without tags are not touched.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::base::proc::{self, ProcessInfo};
use crate::engine::docker::{self, DockerEnv};
use crate::engine::ownership::{Owner, OwnershipTags};
use crate::engine::shim;
use crate::engine::start_record;
use crate::engine::sweep_result::SweepResult;
use crate::engine::tagged_process::{self, TaggedProcess};

/// How long killed processes may take to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a shim may take to clean up and exit after all processes below it were killed.
const SHIM_EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A process that `matrix` started, or a descendant of one.
#[derive(Clone, Debug)]
pub(crate) struct OwnedProcess {
    pub(crate) pid: u32,
    /// The run it was started for.
    pub(crate) run: String,
    /// Launch and start: `<launch>#<start>`.
    pub(crate) start: String,
    pub(crate) owner: Owner,
    pub(crate) command: String,
    info: ProcessInfo,
}

impl OwnedProcess {
    fn new(process: &TaggedProcess, tags: OwnershipTags) -> Self {
        Self {
            pid: process.info.pid,
            run: tags.run,
            start: tags.start,
            owner: tags.owner,
            command: process.command.clone(),
            info: process.info,
        }
    }

    /// Whether it is a shim. A shim ends the processes below it and then itself.
    fn is_shim(&self) -> bool {
        self.command.contains(&format!(" {} ", shim::SUPERVISE))
    }

    /// Description with a shortened command.
    fn description(&self) -> String {
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
pub(crate) fn find_owned_processes(owner_is_dead_only: bool) -> Vec<OwnedProcess> {
    let all = tagged_process::all();
    let infos: Vec<ProcessInfo> = all.iter().map(|process| process.info).collect();
    let spared = own_lineage(&infos);
    let marked: Vec<(&ProcessInfo, &OwnershipTags)> = all
        .iter()
        .filter(|process| !spared.contains(&process.info.pid))
        .filter_map(|process| Some((&process.info, process.tags.as_ref()?)))
        .filter(|(_, tags)| !owner_is_dead_only || tags.owner.is_dead())
        .collect();
    let descendants: Vec<(BTreeSet<u32>, &OwnershipTags)> = marked
        .iter()
        .map(|(info, tags)| (proc::descendants(&infos, info.pid), *tags))
        .collect();
    let marks_of = |process: &TaggedProcess| -> Option<OwnershipTags> {
        let info = &process.info;
        if let Some(own_tags) = &process.tags {
            let is_marked = marked.iter().any(|(other, _)| other.pid == info.pid);
            return is_marked.then(|| own_tags.clone());
        }
        // A process may clear its environment; its group or its ancestors still identify its owner.
        let is_kin = |other: &ProcessInfo| other.group == info.group && other.session == info.session;
        let group = marked
            .iter()
            .find(|(other, _)| is_kin(other))
            .map(|(_, tags)| *tags);
        let ancestor = || descendants.iter().find(|(below, _)| below.contains(&info.pid));
        group.or_else(|| ancestor().map(|(_, tags)| *tags)).cloned()
    };
    all.iter()
        .filter(|process| !spared.contains(&process.info.pid))
        .filter_map(|process| Some(OwnedProcess::new(process, marks_of(process)?)))
        .collect()
}

/// Kills all processes that this `matrix` started and returns their descriptions. Shims exit by themselves
/// afterwards.
pub(crate) fn kill_own() -> Vec<String> {
    let Ok(owner) = Owner::current() else {
        return Vec::new();
    };
    let mut remaining = find_owned_processes(false);
    remaining.retain(|process| process.owner == owner && !process.is_shim());
    for process in &remaining {
        process.info.id().signal(Signal::KILL);
    }
    remaining.iter().map(OwnedProcess::description).collect()
}

/// Pids of this process, its ancestors, and its process group.
fn own_lineage(processes: &[ProcessInfo]) -> BTreeSet<u32> {
    let find = |pid: u32| processes.iter().find(|process| process.pid == pid);
    let mut spared = BTreeSet::new();
    let own_pid = std::process::id();
    let mut next = Some(own_pid);
    while let Some(pid) = next.filter(|pid| spared.insert(*pid)) {
        next = find(pid).map(|process| process.parent);
    }
    let own_group = find(own_pid).map(|process| process.group);
    let grouped = processes
        .iter()
        .filter(|process| Some(process.group) == own_group);
    spared.extend(grouped.map(|process| process.pid));
    spared
}

/// Ends everything whose owner has ended: SIGTERM, and SIGKILL after `grace`. Containers at the daemon of
/// `docker_env` are removed.
///
/// `cache` has the start records, by which untagged processes are found.
pub(crate) async fn sweep(grace: Duration, docker_env: &DockerEnv, cache: &Path) -> SweepResult {
    let (processes, containers) = tokio::join!(
        sweep_processes(grace, cache),
        docker::sweep(grace, docker_env, cache)
    );
    // By now, containers that share the host's memory are gone as well.
    let memory = start_record::clean_up(cache);
    SweepResult {
        removed: [processes.removed, containers.removed, memory.freed].concat(),
        remaining: [processes.remaining, containers.remaining].concat(),
        notes: [containers.notes.clone(), memory.remaining].concat(),
        ..containers
    }
}

/// Orphans found by ownership tags or by start records.
fn orphan_processes(cache: &Path) -> Vec<OwnedProcess> {
    let mut all = find_owned_processes(true);
    for start_record::OrphanProcess { tags, process } in start_record::orphan_processes(cache) {
        if !all.iter().any(|known| known.pid == process.info.pid) {
            all.push(OwnedProcess::new(&process, tags));
        }
    }
    all
}

async fn sweep_processes(grace: Duration, cache: &Path) -> SweepResult {
    let mut all_processes: Vec<OwnedProcess> = Vec::new();
    for (signal, limit) in [(Signal::TERM, grace), (Signal::KILL, KILL_TIMEOUT)] {
        let started_at = tokio::time::Instant::now();
        let deadline = started_at + limit;
        let spares_shims = |now| signal == Signal::KILL && now < started_at + SHIM_EXIT_TIMEOUT;
        let mut signalled = BTreeSet::new();
        loop {
            let remaining = orphan_processes(cache);
            if remaining.is_empty() {
                return SweepResult {
                    removed: descriptions(&all_processes, |_| true),
                    ..SweepResult::default()
                };
            }
            // Shims hold the processes below them together, so they are signalled last.
            let are_shims =
                remaining.iter().all(OwnedProcess::is_shim) && !spares_shims(tokio::time::Instant::now());
            for process in remaining {
                let id = process.info.id();
                if (are_shims || !process.is_shim()) && signalled.insert(id) {
                    id.signal(signal);
                }
                if !all_processes.iter().any(|known| known.info.id() == id) {
                    all_processes.push(process);
                }
            }
            if tokio::time::Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
    let live: BTreeSet<u32> = orphan_processes(cache)
        .iter()
        .map(|process| process.pid)
        .collect();
    SweepResult {
        removed: descriptions(&all_processes, |process| !live.contains(&process.pid)),
        remaining: descriptions(&all_processes, |process| live.contains(&process.pid))
            .into_iter()
            .map(|words| format!("{words}: the process is still running after SIGKILL"))
            .collect(),
        ..SweepResult::default()
    }
}

/// Descriptions of the selected processes, without shims.
fn descriptions(all_processes: &[OwnedProcess], is_wanted: impl Fn(&OwnedProcess) -> bool) -> Vec<String> {
    let engines = all_processes.iter().filter(|process| !process.is_shim());
    engines
        .filter(|process| is_wanted(process))
        .map(OwnedProcess::description)
        .collect()
}
