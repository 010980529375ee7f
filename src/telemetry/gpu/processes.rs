//! Processes on the GPUs of a launch, recorded by probes and queried by the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::base::proc;
use crate::results::record::telemetry::GpuProcess;

/// The processes seen on each GPU of a launch. Probes and the run share it.
#[derive(Clone, Debug, Default)]
pub struct DeviceProcesses(
    /// A probe per device writes once a second, and the run reads when a window ends, so the lock is never
    /// held for long.
    Arc<Mutex<State>>,
);

#[derive(Debug, Default)]
struct State {
    /// Roots of the launch's process trees.
    roots: Vec<u32>,
    /// Processes that were on the GPUs before the launch.
    preexisting: Vec<u32>,
    seen_processes: BTreeMap<u32, BTreeMap<u32, (GpuProcess, bool)>>,
    /// Pids unknown on this host that were seen before the first window; by then all processes of the engine
    /// run.
    foreign_namespace: BTreeSet<u32>,
    /// Whether a window has begun.
    has_window: bool,
}

/// Current processes on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occupancy {
    /// Number of processes that do not belong to the launch.
    pub(crate) foreign: usize,
    /// Memory of the launch's own processes, in bytes. `None` if there are none or the driver does not report
    /// all of them.
    pub(crate) own_bytes: Option<u64>,
}

impl DeviceProcesses {
    /// Creates an empty list for a launch whose processes descend from `roots`; processes of `before` were on
    /// its devices before the start.
    pub fn new(roots: Vec<u32>, before: Vec<u32>) -> Self {
        Self(Arc::new(Mutex::new(State {
            roots,
            preexisting: before,
            ..State::default()
        })))
    }

    /// Clears the recorded processes at the begin of a window.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        state.seen_processes.clear();
        state.has_window = true;
    }

    /// Every process that was seen on a device, with the most memory that it held.
    pub fn on_device(&self, device: u32) -> Vec<GpuProcess> {
        self.list(device, |_| true)
    }

    /// Those of them that are not the launch's.
    pub fn foreign(&self, device: u32) -> Vec<GpuProcess> {
        self.list(device, |is_own| !is_own)
    }

    /// Records the current processes of a GPU.
    pub(super) fn record(&self, device: u32, now: &[GpuProcess]) -> Occupancy {
        let mut state = self.lock();
        if !state.has_window {
            let unknown = now.iter().filter(|process| process.name.is_none());
            state.foreign_namespace.extend(unknown.map(|process| process.pid));
        }
        let classified: Vec<(GpuProcess, bool)> = now
            .iter()
            .map(|process| (process.clone(), state.is_own(process)))
            .collect();
        let foreign = classified.iter().filter(|(_, is_own)| !is_own).count();
        // A later process with a pid unknown on this host may belong to anyone, so its memory is not
        // attributed to the launch.
        let is_explained =
            |process: &GpuProcess| process.name.is_some() || state.foreign_namespace.contains(&process.pid);
        let own = classified
            .iter()
            .filter(|(process, is_own)| *is_own && is_explained(process));
        let own: Vec<Option<u64>> = own.map(|(process, _)| process.memory_bytes).collect();
        let own_bytes = own
            .iter()
            .copied()
            .sum::<Option<u64>>()
            .filter(|_| !own.is_empty());
        let seen = state.seen_processes.entry(device).or_default();
        for (process, is_own) in classified {
            let most = seen
                .get(&process.pid)
                .and_then(|(before, _)| before.memory_bytes)
                .max(process.memory_bytes);
            let process = GpuProcess {
                memory_bytes: most,
                ..process
            };
            seen.insert(process.pid, (process, is_own));
        }
        Occupancy { foreign, own_bytes }
    }

    fn list(&self, device: u32, is_listed: impl Fn(bool) -> bool) -> Vec<GpuProcess> {
        let state = self.lock();
        let listed = state
            .seen_processes
            .get(&device)
            .into_iter()
            .flat_map(BTreeMap::values);
        listed
            .filter(|(_, is_own)| is_listed(*is_own))
            .map(|(process, _)| process.clone())
            .collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().expect("keeping a list does not panic")
    }
}

impl State {
    /// Whether a process belongs to the launch. A pid unknown on this host is ambiguous: the driver may
    /// report another pid namespace, or the process has just ended. It is attributed to the launch unless it
    /// was there before.
    fn is_own(&self, process: &GpuProcess) -> bool {
        match process.name {
            Some(_) => proc::is_in_tree(process.pid, &self.roots),
            None => !self.preexisting.contains(&process.pid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, memory: u64) -> GpuProcess {
        GpuProcess {
            pid,
            name: proc::process_name(pid),
            memory_bytes: Some(memory),
        }
    }

    #[test]
    fn the_launchs_own_are_told_from_strangers_and_the_most_memory_is_kept() {
        let own = std::process::id();
        let parent = proc::by_id(own).unwrap().parent;
        let processes = DeviceProcesses::new(vec![own], Vec::new());
        let occupancy = processes.record(0, &[process(own, 10), process(parent, 7)]);
        assert_eq!((occupancy.foreign, occupancy.own_bytes), (1, Some(10)));
        assert_eq!(processes.record(0, &[process(own, 4)]).foreign, 0);
        assert_eq!(processes.on_device(0).len(), 2, "who has left was there");
        assert_eq!(processes.foreign(0), [process(parent, 7)]);
        let mine = processes
            .on_device(0)
            .into_iter()
            .find(|occupancy| occupancy.pid == own)
            .unwrap();
        assert_eq!(mine.memory_bytes, Some(10));
        assert_eq!(processes.on_device(1), [], "another device");
        processes.clear();
        assert_eq!(processes.on_device(0), []);
    }

    #[test]
    fn a_number_that_means_nothing_here_is_a_stranger_only_if_it_was_there_before() {
        let unknown = |pid: u32| process(pid, 1);
        let processes = DeviceProcesses::new(vec![std::process::id()], vec![u32::MAX]);
        let both = [unknown(u32::MAX), unknown(u32::MAX - 1)];
        let occupancy = processes.record(0, &both);
        assert_eq!((occupancy.foreign, occupancy.own_bytes), (1, Some(1)));
        assert_eq!(processes.foreign(0), [unknown(u32::MAX)]);
        processes.clear();
        let later = [unknown(u32::MAX - 1), unknown(u32::MAX - 2)];
        assert_eq!(
            processes.record(0, &later).own_bytes,
            Some(1),
            "who came within the window is nobody's"
        );
    }
}
