//! Checks that a launch's GPUs are idle before it starts and free after it stops. Findings are reported; only
//! the check before a run prevents a start.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::base::clock::{self, MonotonicTime};
use crate::base::units::Bytes;
use crate::engine;
use crate::plan::{Launch, Plan};
use crate::results::record::event::Event;
use crate::results::record::telemetry::GpuProcess;
use crate::runner::context::{HostEnv, RunContext};
use crate::runner::gpu_watch::GpuBaseline;
use crate::telemetry::gpu::{DeviceSnapshot, Gpus};

/// Time that GPUs get to become idle before a run, because an earlier run may be ending.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between two readings while waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// Time over which the power of an idle GPU is measured.
const IDLE_WINDOW: Duration = Duration::from_secs(1);

/// Highest utilisation of an idle GPU; its driver averages over up to a second.
const MAX_IDLE_UTIL: f64 = 0.1;

/// Pause between two readings of memory while an engine starts.
const MEMORY_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Memory growth, in bytes, that counts as a sign of life. Loading weights is hundreds of times faster, per
/// second.
const MIN_GROWTH_BYTES: u64 = 1 << 20;

/// Memory that a GPU may hold beyond its use before the launch and still count as free, because drivers keep
/// some.
const MEMORY_SLACK_BYTES: u64 = 256 << 20;

/// Describes why GPUs of a plan are not ready to measure, with the fix.
pub(crate) async fn preflight(plan: &Plan, host: &HostEnv) -> Vec<(String, String)> {
    let is_wanted = plan.launches.iter().any(|launch| is_watched(host, launch));
    let Some(gpus) = host.gpus.as_ref().filter(|_| is_wanted) else {
        return Vec::new();
    };
    let known = |gpu: &&u32| gpus.facts().iter().any(|facts| facts.device == **gpu);
    let devices: Vec<u32> = host.devices.iter().filter(known).copied().collect();
    let bound = plan.validity.rest_memory;
    let looks = wait_settled(gpus, &devices, bound, SETTLE_TIMEOUT, |_, _| {}).await;
    looks
        .into_iter()
        .filter_map(|(device, snapshot)| match snapshot {
            Err(reason) => Some((
                reason,
                "the tool of the GPU driver, such as `nvidia-smi`, may show the cause".to_owned(),
            )),
            Ok(snapshot) => Some((
                busy_reason(device, &snapshot, bound, has_display(gpus, device))?,
                fix(&snapshot).to_owned(),
            )),
        })
        .collect()
}

/// Which of these GPUs are not idle, or cannot be read.
pub(super) async fn busy_devices(gpus: &Arc<Gpus>, devices: &[u32], bound: Bytes) -> Vec<u32> {
    let looks = poll(gpus, devices).await.into_iter();
    let busy = looks.filter(|(device, snapshot)| {
        idle_failure(*device, snapshot, bound, has_display(gpus, *device)).is_some()
    });
    busy.map(|(device, _)| device).collect()
}

/// Waits until the launch's GPUs are idle, at most the stop timeout, and returns their state. Empty if GPUs
/// cannot be read.
pub(crate) async fn wait_until_idle(
    run_context: &RunContext<'_>,
    launch: &Launch,
    devices: &[u32],
) -> Vec<GpuBaseline> {
    let Some(gpus) = run_context
        .host
        .gpus
        .as_ref()
        .filter(|_| is_watched(run_context.host, launch))
    else {
        return Vec::new();
    };
    let bound = run_context.plan.validity.rest_memory;
    let report = |unrest: String, waited: Duration| {
        run_context.events.emit(Event::LaunchProgress {
            launch: launch.id.clone(),
            phase: "devices".to_owned(),
            elapsed_s: waited.as_secs_f64(),
            last_line: unrest,
        });
    };
    let (busy, baselines) = settle(gpus, devices, bound, launch.timeouts.stop.duration(), report).await;
    warn_of_busy(run_context, launch, busy);
    baselines
}

/// Warns that GPUs of a launch are not idle before its start.
pub(super) fn warn_of_busy(run_context: &RunContext<'_>, launch: &Launch, busy: Vec<String>) {
    for unrest in busy {
        run_context.events.emit(Event::Warning {
            message: format!(
                "the GPUs are not ready before the start of engine `{}`: {unrest}",
                launch.engine.name
            ),
        });
    }
}

/// Waits until GPUs are idle, at most `limit`. Returns why some are not, and the state of all.
pub(super) async fn settle(
    gpus: &Arc<Gpus>,
    devices: &[u32],
    bound: Bytes,
    limit: Duration,
    report: impl Fn(String, Duration),
) -> (Vec<String>, Vec<GpuBaseline>) {
    let looks = wait_settled(gpus, devices, bound, limit, report).await;
    let busy = looks
        .iter()
        .filter_map(|(device, snapshot)| idle_failure(*device, snapshot, bound, has_display(gpus, *device)));
    (busy.collect(), measure_idle(gpus, devices).await)
}

/// Waits until the launch has left its GPUs, at most the stop timeout, then warns about the remaining use.
pub(crate) async fn wait_until_free(run_context: &RunContext<'_>, launch: &Launch, rest: &[GpuBaseline]) {
    let Some(gpus) = run_context.host.gpus.as_ref().filter(|_| !rest.is_empty()) else {
        return;
    };
    let devices: Vec<u32> = rest.iter().map(|gpu| gpu.device).collect();
    let timeout = launch.timeouts.stop.duration();
    let deadline = Instant::now() + timeout;
    loop {
        let looks = poll(gpus, &devices).await;
        // Do not wait for a GPU that cannot be read any more; its next user will report it.
        let leftovers: Vec<String> = looks
            .iter()
            .zip(rest)
            .filter_map(|((_, snapshot), before)| leftover(before, snapshot.as_ref().ok()?))
            .collect();
        if leftovers.is_empty() {
            return;
        }
        if Instant::now() >= deadline {
            let message = format!(
                "engine `{}` was stopped {} s ago, but {}",
                launch.engine.name,
                timeout.as_secs(),
                leftovers.join("; ")
            );
            run_context.events.emit(Event::Warning { message });
            return;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Time at which the memory of a launch's GPUs last grew while its engine starts. Weights load for minutes
/// without a log line.
#[derive(Debug, Default)]
pub(crate) struct MemoryGrowth(
    /// The time in nanoseconds; 0 before the first reading.
    AtomicU64,
);

impl MemoryGrowth {
    /// The time of the last growth; `None` if there was no reading.
    pub(crate) fn last(&self) -> Option<MonotonicTime> {
        let nanos = self.0.load(Ordering::Relaxed);
        (nanos > 0).then(|| MonotonicTime::from_nanos(nanos))
    }

    /// Reads the memory repeatedly while polled; waits forever if GPUs cannot be read.
    pub(crate) async fn watch(&self, host: &HostEnv, launch: &Launch, devices: &[u32]) -> Infallible {
        let gpus = host.gpus.as_ref().filter(|_| is_watched(host, launch));
        let Some(gpus) = gpus.filter(|_| !devices.is_empty()) else {
            return pending().await;
        };
        let mut most: Option<u64> = None;
        loop {
            let looks = poll(gpus, devices).await;
            let used: Option<u64> = looks
                .iter()
                .map(|(_, snapshot)| snapshot.as_ref().ok().and_then(used_memory))
                .sum();
            // If one GPU reports no memory, there is no total to compare.
            if let Some(used) = used
                && most.is_none_or(|most| used >= most + MIN_GROWTH_BYTES)
            {
                most = Some(used);
                self.0.store(clock::now().as_nanos(), Ordering::Relaxed);
            }
            tokio::time::sleep(MEMORY_POLL_INTERVAL).await;
        }
    }
}

/// Whether a launch uses GPUs of this host and is not an attached server.
fn is_watched(host: &HostEnv, launch: &Launch) -> bool {
    launch.devices > 0 && engine::is_local(launch, &host.docker)
}

/// Polls GPUs until all are idle or the limit passes, and returns the last readings. Reports what it waits
/// for.
async fn wait_settled(
    gpus: &Arc<Gpus>,
    devices: &[u32],
    bound: Bytes,
    limit: Duration,
    report: impl Fn(String, Duration),
) -> Vec<(u32, Result<DeviceSnapshot, String>)> {
    let began = Instant::now();
    loop {
        let looks = poll(gpus, devices).await;
        let unrest = looks.iter().find_map(|(device, snapshot)| {
            idle_failure(*device, snapshot, bound, has_display(gpus, *device))
        });
        let Some(unrest) = unrest.filter(|_| began.elapsed() < limit) else {
            return looks;
        };
        report(unrest, began.elapsed());
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Why a GPU is not idle, or cannot be read.
fn idle_failure(
    device: u32,
    snapshot: &Result<DeviceSnapshot, String>,
    bound: Bytes,
    draws: bool,
) -> Option<String> {
    match snapshot {
        Ok(snapshot) => busy_reason(device, snapshot, bound, draws),
        Err(reason) => Some(reason.clone()),
    }
}

pub(crate) async fn poll(gpus: &Arc<Gpus>, devices: &[u32]) -> Vec<(u32, Result<DeviceSnapshot, String>)> {
    let (gpus, wanted) = (Arc::clone(gpus), devices.to_vec());
    let looking = tokio::task::spawn_blocking(move || {
        let snapshot = |device: u32| (device, gpus.snapshot(device));
        wanted.into_iter().map(snapshot).collect()
    });
    looking.await.expect("looking does not panic")
}

/// Measures idle GPUs over one second before the launch.
async fn measure_idle(gpus: &Arc<Gpus>, devices: &[u32]) -> Vec<GpuBaseline> {
    let mut baselines: Vec<GpuBaseline> = devices
        .iter()
        .map(|device| GpuBaseline {
            device: *device,
            ..GpuBaseline::default()
        })
        .collect();
    let mut watts: Vec<Vec<f64>> = vec![Vec::new(); devices.len()];
    let until = Instant::now() + IDLE_WINDOW;
    loop {
        let is_last = Instant::now() >= until;
        let looks = poll(gpus, devices).await;
        for (((_, snapshot), rest), watts) in looks.into_iter().zip(&mut baselines).zip(&mut watts) {
            let Ok(snapshot) = snapshot else { continue };
            watts.extend(snapshot.values.get("power_w"));
            rest.memory_bytes = used_memory(&snapshot).or(rest.memory_bytes);
            for process in snapshot.processes.unwrap_or_default() {
                rest.foreign.retain(|known| known.pid != process.pid);
                rest.foreign.push(process);
            }
        }
        if is_last {
            break;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    for (rest, watts) in baselines.iter_mut().zip(watts) {
        rest.idle_w = (!watts.is_empty()).then(|| watts.iter().sum::<f64>() / watts.len() as f64);
    }
    baselines
}

fn used_memory(snapshot: &DeviceSnapshot) -> Option<u64> {
    snapshot
        .values
        .get("memory_used_bytes")
        .map(|bytes| *bytes as u64)
}

/// Whether a GPU drives a display. The memory and utilisation of a display are expected; they become notes of
/// the cells.
fn has_display(gpus: &Gpus, device: u32) -> bool {
    let facts = gpus.facts().iter().find(|gpu| gpu.device == device);
    facts.is_some_and(|gpu| gpu.display == Some(true))
}

/// Why a GPU is not idle.
fn busy_reason(device: u32, snapshot: &DeviceSnapshot, bound: Bytes, draws: bool) -> Option<String> {
    let processes = snapshot.processes.as_deref().unwrap_or_default();
    if !processes.is_empty() {
        return Some(format!("GPU {device} is used by {}", list_processes(processes)));
    }
    if draws {
        return None;
    }
    if let Some(used) = used_memory(snapshot).filter(|used| *used > bound.0) {
        return Some(format!(
            "{} of the memory of GPU {device} is in use, but no process is reported that uses it (`rest_memory` allows {bound} on an idle GPU)",
            format_size(used)
        ));
    }
    let busy = snapshot
        .values
        .get("gpu_util_share")
        .filter(|share| **share > MAX_IDLE_UTIL);
    busy.map(|share| {
        format!(
            "GPU {device} is busy ({:.0} %), but no process is reported that uses it",
            share * 100.0
        )
    })
}

const fn fix(snapshot: &DeviceSnapshot) -> &'static str {
    match &snapshot.processes {
        Some(there) if !there.is_empty() => {
            "stop the other processes on the GPU, because they distort the measurement"
        }
        _ => {
            "wait until the GPU is free, or stop what uses it: a container, a virtual machine or another user's process"
        }
    }
}

/// Describes what the launch has left on a GPU.
fn leftover(before: &GpuBaseline, snapshot: &DeviceSnapshot) -> Option<String> {
    let device = before.device;
    let was_there = |process: &&GpuProcess| before.foreign.iter().any(|old| old.pid == process.pid);
    let processes = snapshot.processes.iter().flatten();
    let remaining_processes: Vec<GpuProcess> =
        processes.filter(|process| !was_there(process)).cloned().collect();
    if !remaining_processes.is_empty() {
        return Some(format!(
            "GPU {device} is still used by {}",
            list_processes(&remaining_processes)
        ));
    }
    let (held, old) = (used_memory(snapshot)?, before.memory_bytes?);
    (held > old.saturating_add(MEMORY_SLACK_BYTES)).then(|| {
        format!(
            "{} of the memory of GPU {device} is still in use ({} before), but no process is reported that uses it",
            format_size(held),
            format_size(old)
        )
    })
}

fn list_processes(processes: &[GpuProcess]) -> String {
    let name = |process: &GpuProcess| {
        let name = process.name.as_deref().unwrap_or("unknown on this host");
        let memory = process
            .memory_bytes
            .map_or_else(String::new, |bytes| format!(", {}", format_size(bytes)));
        format!("process {} ({name}{memory})", process.pid)
    };
    let names: Vec<String> = processes.iter().map(name).collect();
    names.join(", ")
}

fn format_size(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    match bytes >= GIB {
        true => format!("{:.1} GiB", bytes as f64 / GIB as f64),
        false => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(memory_mib: u64, util: f64, processes: &[(u32, &str)]) -> DeviceSnapshot {
        let process = |(pid, name): &(u32, &str)| GpuProcess {
            pid: *pid,
            name: Some((*name).to_owned()),
            memory_bytes: Some(300 << 20),
        };
        DeviceSnapshot {
            values: [
                ("memory_used_bytes".to_owned(), (memory_mib << 20) as f64),
                ("gpu_util_share".to_owned(), util),
            ]
            .into(),
            processes: Some(processes.iter().map(process).collect()),
        }
    }

    #[test]
    fn a_device_is_at_rest_when_nobody_is_there_and_its_memory_and_time_are_free() {
        let unrest = |snapshot: &DeviceSnapshot| busy_reason(1, snapshot, Bytes(1 << 30), false);
        assert_eq!(unrest(&snapshot(900, 0.02, &[])), None);
        assert_eq!(
            unrest(&DeviceSnapshot::default()),
            None,
            "an unknown value is no reason"
        );
        let used = unrest(&snapshot(900, 0.0, &[(7, "python3")])).unwrap();
        assert_eq!(used, "GPU 1 is used by process 7 (python3, 300 MiB)");
        let taken = unrest(&snapshot(1536, 0.0, &[])).unwrap();
        assert!(
            taken.starts_with("1.5 GiB of the memory of GPU 1 is in use"),
            "{taken}"
        );
        let busy = unrest(&snapshot(100, 0.97, &[])).unwrap();
        assert!(busy.starts_with("GPU 1 is busy (97 %)"), "{busy}");
        // A display's memory and utilisation count as idle; another process does not.
        let desktop = |snapshot: &DeviceSnapshot| busy_reason(1, snapshot, Bytes(1 << 30), true);
        assert_eq!(desktop(&snapshot(1536, 0.3, &[])), None);
        assert!(desktop(&snapshot(1536, 0.0, &[(7, "python3")])).is_some());
    }

    #[test]
    fn what_was_there_before_is_not_left_by_the_launch() {
        let before = GpuBaseline {
            device: 0,
            memory_bytes: Some(512 << 20),
            foreign: snapshot(0, 0.0, &[(7, "python3")]).processes.unwrap(),
            ..GpuBaseline::default()
        };
        assert_eq!(leftover(&before, &snapshot(600, 0.9, &[(7, "python3")])), None);
        let process = leftover(&before, &snapshot(600, 0.0, &[(7, "python3"), (8, "vllm")])).unwrap();
        assert_eq!(process, "GPU 0 is still used by process 8 (vllm, 300 MiB)");
        let memory = leftover(&before, &snapshot(4096, 0.0, &[])).unwrap();
        assert!(
            memory.starts_with("4.0 GiB of the memory of GPU 0 is still in use (512 MiB before)"),
            "{memory}"
        );
    }
}
