//! What is known about the GPUs of a launch: their state before it, and the processes on them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::engine::RunningEngine;
use crate::results::record::post_mortem::KernelLog;
use crate::results::record::telemetry::GpuProcess;
use crate::telemetry::dmesg;
use crate::telemetry::gpu::DeviceProcesses;
pub(crate) use crate::telemetry::gpu::GpuBaseline;

/// Observation of the GPUs of a running engine.
#[derive(Clone, Debug, Default)]
pub(crate) struct GpuWatch {
    /// State of each GPU before the launch.
    pub(crate) baselines: Vec<GpuBaseline>,
    /// Processes on the GPUs, as the probes see them.
    pub(crate) processes: DeviceProcesses,
}

impl GpuWatch {
    /// Begins to observe the GPUs of an engine that was just started.
    pub(crate) fn new(running: &RunningEngine, rest: Vec<GpuBaseline>) -> Self {
        let before = rest.iter().flat_map(|gpu| &gpu.foreign);
        let before = before.map(|process| process.pid).collect();
        Self {
            processes: match rest.is_empty() {
                true => DeviceProcesses::default(),
                false => DeviceProcesses::new(running.root_pids(), before),
            },
            baselines: rest,
        }
    }

    /// Idle power of each GPU in watts, before the launch.
    pub(crate) fn idle_w(&self) -> BTreeMap<u32, f64> {
        let baselines = self.baselines.iter();
        baselines
            .filter_map(|gpu| Some((gpu.device, gpu.idle_w?)))
            .collect()
    }

    /// Processes on a GPU that do not belong to the launch: from before it, or since the list was last
    /// cleared.
    pub(crate) fn foreign(&self, device: u32) -> Vec<GpuProcess> {
        let mut foreign = self.processes.foreign(device);
        let before = self.baseline(device).into_iter().flat_map(|gpu| &gpu.foreign);
        for old in before {
            if foreign.iter().all(|new| new.pid != old.pid) {
                foreign.push(old.clone());
            }
        }
        foreign
    }

    fn baseline(&self, device: u32) -> Option<&GpuBaseline> {
        self.baselines.iter().find(|gpu| gpu.device == device)
    }
}

/// Messages of the kernel log about faults of these GPUs in the last time, if it is readable.
pub(crate) async fn kernel_faults(buses: &[String], ago: Duration) -> Vec<String> {
    if buses.is_empty() {
        return Vec::new();
    }
    let reading = tokio::task::spawn_blocking(move || dmesg::read_since(ago));
    let Ok(KernelLog::Lines(lines)) = reading.await else {
        return Vec::new();
    };
    let is_ours = |line: &String| dmesg::is_fault_of(line, buses);
    lines.into_iter().filter(is_ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_there_before_the_launch_is_foreign_to_each_of_its_windows() {
        let stranger = vec![GpuProcess {
            pid: 7,
            name: Some("python3".to_owned()),
            memory_bytes: Some(300 << 20),
        }];
        let watch = GpuWatch {
            baselines: vec![GpuBaseline {
                device: 1,
                memory_bytes: Some(5),
                idle_w: Some(70.0),
                foreign: stranger.clone(),
            }],
            processes: DeviceProcesses::default(),
        };
        assert_eq!(watch.foreign(1), stranger);
        assert_eq!(watch.foreign(0), Vec::new());
        assert_eq!(watch.idle_w(), BTreeMap::from([(1, 70.0)]));
    }
}
