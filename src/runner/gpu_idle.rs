//! The devices of a launch before and after it: at rest and nobody's before, nobody's again after. What is found is named; only before
//! the whole run does it keep anything from starting.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::base::clock::{self, Moment};
use crate::base::units::Bytes;
use crate::engine::{self, Running};
use crate::plan::{Launch, Plan};
use crate::results::record::event::Event;
use crate::results::record::telemetry::GpuProcess;
use crate::runner::context::{Host, Job};
use crate::telemetry::gpu::{Gpus, Look, Processes};

/// How long devices may take to come to rest before a run: what an earlier one left may be ending.
const SETTLING: Duration = Duration::from_secs(5);

/// How often they are looked at meanwhile.
const PAUSE: Duration = Duration::from_millis(250);

/// For how long the power of an idle device is watched.
const IDLE: Duration = Duration::from_secs(1);

/// The share of its time for which an idle device may have been busy: its driver smooths over up to a second.
const BUSY: f64 = 0.1;

/// How often it is looked whether the memory of a starting engine grows.
const BEAT: Duration = Duration::from_millis(500);

/// By how much it must have grown to be a sign of life; weights come at hundreds of times that each second.
const STEP: u64 = 1 << 20;

/// Memory that a device may hold more than before the launch and count as free again: drivers keep a little for themselves.
const SLACK: u64 = 256 << 20;

/// A device of a launch just before it was started.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct AtRest {
    pub(crate) device: u32,
    /// Memory that was taken, in bytes, where that is told.
    pub(crate) memory_bytes: Option<u64>,
    /// Mean power over a second, in watts.
    pub(crate) idle_w: Option<f64>,
    /// Who computed on it: none of them is the launch's.
    pub(crate) foreign: Vec<GpuProcess>,
}

/// What is known of the devices of an engine that runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    /// Each of them before.
    pub(crate) rest: Vec<AtRest>,
    /// Who is on them, as the probes see.
    pub(crate) processes: Processes,
}

impl Watch {
    /// A watch over the devices of an engine that was just started.
    pub(crate) fn of(running: &Running, rest: Vec<AtRest>) -> Self {
        let before = rest.iter().flat_map(|gpu| &gpu.foreign);
        let before = before.map(|process| process.pid).collect();
        Self {
            processes: match rest.is_empty() {
                true => Processes::default(),
                false => Processes::of(running.tree(), before),
            },
            rest,
        }
    }

    /// Watts of each device before the launch.
    pub(crate) fn idle_w(&self) -> BTreeMap<u32, f64> {
        let told = self.rest.iter();
        told.filter_map(|gpu| Some((gpu.device, gpu.idle_w?))).collect()
    }

    /// Memory that was taken on a device before the launch, in bytes.
    pub(crate) fn memory_bytes(&self, device: u32) -> Option<u64> {
        self.before(device)?.memory_bytes
    }

    /// Who is or was on a device and is not the launch's: before it, or since the list was emptied last.
    pub(crate) fn foreign(&self, device: u32) -> Vec<GpuProcess> {
        let mut foreign = self.processes.foreign(device);
        let before = self.before(device).into_iter().flat_map(|gpu| &gpu.foreign);
        for old in before {
            if foreign.iter().all(|new| new.pid != old.pid) {
                foreign.push(old.clone());
            }
        }
        foreign
    }

    fn before(&self, device: u32) -> Option<&AtRest> {
        self.rest.iter().find(|gpu| gpu.device == device)
    }
}

/// What keeps the devices that a plan will use from being measured on, and how to mend it.
pub(crate) async fn unfit(plan: &Plan, host: &Host) -> Vec<(String, String)> {
    let is_wanted = plan.launches.iter().any(|launch| is_watched(host, launch));
    let Some(gpus) = host.gpus.as_ref().filter(|_| is_wanted) else {
        return Vec::new();
    };
    let known = |gpu: &&u32| gpus.facts().iter().any(|facts| facts.device == **gpu);
    let devices: Vec<u32> = host.devices.iter().filter(known).copied().collect();
    let bound = plan.validity.rest_memory;
    let looks = settled(gpus, &devices, bound, SETTLING, |_, _| {}).await;
    looks
        .into_iter()
        .filter_map(|(device, look)| match look {
            Err(reason) => Some((
                reason,
                "its driver's tool, such as `nvidia-smi`, may say more".to_owned(),
            )),
            Ok(look) => Some((
                unrest(device, &look, bound, draws(gpus, device))?,
                mend(&look).to_owned(),
            )),
        })
        .collect()
}

/// Which of these devices are not at rest, or tell nothing.
pub(super) async fn busy(gpus: &Arc<Gpus>, devices: &[u32], bound: Bytes) -> Vec<u32> {
    let looks = look(gpus, devices).await.into_iter();
    let busy = looks.filter(|(device, look)| restless(*device, look, bound, draws(gpus, *device)).is_some());
    busy.map(|(device, _)| device).collect()
}

/// Waits until the devices of a launch are at rest, for as long as an engine may take to stop, and takes down how they are then. Empty where nobody tells.
pub(crate) async fn before(job: &Job<'_>, launch: &Launch, devices: &[u32]) -> Vec<AtRest> {
    let Some(gpus) = job.host.gpus.as_ref().filter(|_| is_watched(job.host, launch)) else {
        return Vec::new();
    };
    let bound = job.plan.validity.rest_memory;
    let tell = |unrest: String, waited: Duration| {
        job.events.tell(Event::LaunchProgress {
            launch: launch.id.clone(),
            phase: "devices".to_owned(),
            elapsed_s: waited.as_secs_f64(),
            last_line: unrest,
        });
    };
    for (device, look) in settled(gpus, devices, bound, launch.patience.stop.duration(), tell).await {
        if let Some(unrest) = restless(device, &look, bound, draws(gpus, device)) {
            job.events.tell(Event::Warning {
                message: format!("before the start of engine `{}`: {unrest}", launch.engine.name),
            });
        }
    }
    idle(gpus, devices).await
}

/// Waits until nothing of a launch is left on its devices, for as long as it may take to stop; then whoever is there still is told.
pub(crate) async fn after(job: &Job<'_>, launch: &Launch, rest: &[AtRest]) {
    let Some(gpus) = job.host.gpus.as_ref().filter(|_| !rest.is_empty()) else {
        return;
    };
    let devices: Vec<u32> = rest.iter().map(|gpu| gpu.device).collect();
    let patience = launch.patience.stop.duration();
    let deadline = Instant::now() + patience;
    loop {
        let looks = look(gpus, &devices).await;
        // Of a device that tells nothing any more there is nothing to wait for: whoever is to use it next will say so.
        let left: Vec<String> = looks
            .iter()
            .zip(rest)
            .filter_map(|((_, look), before)| left(before, look.as_ref().ok()?))
            .collect();
        if left.is_empty() {
            return;
        }
        if Instant::now() >= deadline {
            let message = format!(
                "engine `{}` was stopped {} s ago, and {}",
                launch.engine.name,
                patience.as_secs(),
                left.join("; ")
            );
            job.events.tell(Event::Warning { message });
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// When the memory of a launch's devices grew last while its engine starts: weights load for minutes without a word in the log.
#[derive(Debug, Default)]
pub(crate) struct Growth(
    /// The moment in nanoseconds; 0 as long as nobody has looked.
    AtomicU64,
);

impl Growth {
    /// The moment; `None` where nobody looks.
    pub(crate) fn last(&self) -> Option<Moment> {
        let nanos = self.0.load(Ordering::Relaxed);
        (nanos > 0).then(|| Moment::from_nanos(nanos))
    }

    /// Looks again and again for as long as it is polled, where somebody tells of the devices.
    pub(crate) async fn watch(&self, host: &Host, launch: &Launch, devices: &[u32]) -> Infallible {
        let gpus = host.gpus.as_ref().filter(|_| is_watched(host, launch));
        let Some(gpus) = gpus.filter(|_| !devices.is_empty()) else {
            return pending().await;
        };
        let mut most: Option<u64> = None;
        loop {
            let looks = look(gpus, devices).await;
            let taken: Option<u64> = looks
                .iter()
                .map(|(_, look)| look.as_ref().ok().and_then(memory))
                .sum();
            // Of devices that do not tell nobody can say that nothing moves.
            if let Some(taken) = taken
                && most.is_none_or(|most| taken >= most + STEP)
            {
                most = Some(taken);
                self.0.store(clock::now().as_nanos(), Ordering::Relaxed);
            }
            tokio::time::sleep(BEAT).await;
        }
    }
}

/// Whether a launch uses devices of this host that it does not share with whoever started its engine.
fn is_watched(host: &Host, launch: &Launch) -> bool {
    launch.devices > 0 && engine::is_local(launch, &host.whereabouts)
}

/// Looks at devices until all are at rest or the time is over; how they were in the end. What is waited for is told meanwhile.
async fn settled(
    gpus: &Arc<Gpus>,
    devices: &[u32],
    bound: Bytes,
    limit: Duration,
    tell: impl Fn(String, Duration),
) -> Vec<(u32, Result<Look, String>)> {
    let began = Instant::now();
    loop {
        let looks = look(gpus, devices).await;
        let unrest = looks
            .iter()
            .find_map(|(device, look)| restless(*device, look, bound, draws(gpus, *device)));
        let Some(unrest) = unrest.filter(|_| began.elapsed() < limit) else {
            return looks;
        };
        tell(unrest, began.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
}

/// Why a device is not at rest, or tells nothing.
fn restless(device: u32, look: &Result<Look, String>, bound: Bytes, draws: bool) -> Option<String> {
    match look {
        Ok(look) => unrest(device, look, bound, draws),
        Err(reason) => Some(reason.clone()),
    }
}

pub(crate) async fn look(gpus: &Arc<Gpus>, devices: &[u32]) -> Vec<(u32, Result<Look, String>)> {
    let (gpus, wanted) = (Arc::clone(gpus), devices.to_vec());
    let looking = tokio::task::spawn_blocking(move || {
        let look = |device: u32| (device, gpus.look(device));
        wanted.into_iter().map(look).collect()
    });
    looking.await.expect("looking does not panic")
}

/// The devices over a second in which nothing of the launch is there yet.
async fn idle(gpus: &Arc<Gpus>, devices: &[u32]) -> Vec<AtRest> {
    let mut found: Vec<AtRest> = devices
        .iter()
        .map(|device| AtRest {
            device: *device,
            ..AtRest::default()
        })
        .collect();
    let mut watts: Vec<Vec<f64>> = vec![Vec::new(); devices.len()];
    let until = Instant::now() + IDLE;
    loop {
        let is_last = Instant::now() >= until;
        let looks = look(gpus, devices).await;
        for (((_, look), rest), watts) in looks.into_iter().zip(&mut found).zip(&mut watts) {
            let Ok(look) = look else { continue };
            watts.extend(look.values.get("power_w"));
            rest.memory_bytes = memory(&look).or(rest.memory_bytes);
            for process in look.processes.unwrap_or_default() {
                rest.foreign.retain(|known| known.pid != process.pid);
                rest.foreign.push(process);
            }
        }
        if is_last {
            break;
        }
        tokio::time::sleep(PAUSE).await;
    }
    for (rest, watts) in found.iter_mut().zip(watts) {
        rest.idle_w = (!watts.is_empty()).then(|| watts.iter().sum::<f64>() / watts.len() as f64);
    }
    found
}

fn memory(look: &Look) -> Option<u64> {
    look.values.get("memory_used_bytes").map(|bytes| *bytes as u64)
}

/// Whether a desktop is drawn on a device: its memory and its use are known, and stand as notes beside the cells.
fn draws(gpus: &Gpus, device: u32) -> bool {
    let facts = gpus.facts().iter().find(|gpu| gpu.device == device);
    facts.is_some_and(|gpu| gpu.display == Some(true))
}

/// Why a device is not at rest.
fn unrest(device: u32, look: &Look, bound: Bytes, draws: bool) -> Option<String> {
    let there = look.processes.as_deref().unwrap_or_default();
    if !there.is_empty() {
        return Some(format!("GPU {device} is used by {}", named(there)));
    }
    if draws {
        return None;
    }
    if let Some(taken) = memory(look).filter(|taken| *taken > bound.0) {
        return Some(format!(
            "{} of the memory of GPU {device} is taken (more than {bound} at rest), and nobody is named who holds it",
            size(taken)
        ));
    }
    let busy = look.values.get("gpu_util_share").filter(|share| **share > BUSY);
    busy.map(|share| {
        format!(
            "GPU {device} is busy ({:.0} %), and nobody is named who uses it",
            share * 100.0
        )
    })
}

const fn mend(look: &Look) -> &'static str {
    match &look.processes {
        Some(there) if !there.is_empty() => {
            "stop it: what else runs on a GPU is measured along with the engine"
        }
        _ => {
            "wait until it is free, or stop what uses it: a container, a virtual machine, another user's process"
        }
    }
}

/// What of a launch is left on a device.
fn left(before: &AtRest, look: &Look) -> Option<String> {
    let device = before.device;
    let was_there = |process: &&GpuProcess| before.foreign.iter().any(|old| old.pid == process.pid);
    let there = look.processes.iter().flatten();
    let left: Vec<GpuProcess> = there.filter(|process| !was_there(process)).cloned().collect();
    if !left.is_empty() {
        return Some(format!("GPU {device} is still used by {}", named(&left)));
    }
    let (held, old) = (memory(look)?, before.memory_bytes?);
    (held > old.saturating_add(SLACK)).then(|| {
        format!(
            "{} of the memory of GPU {device} is still taken ({} before), and nobody is named who holds it",
            size(held),
            size(old)
        )
    })
}

fn named(processes: &[GpuProcess]) -> String {
    let name = |process: &GpuProcess| {
        let name = process.name.as_deref().unwrap_or("unknown on this host");
        let memory = process
            .memory_bytes
            .map_or_else(String::new, |bytes| format!(", {}", size(bytes)));
        format!("process {} ({name}{memory})", process.pid)
    };
    let names: Vec<String> = processes.iter().map(name).collect();
    names.join(", ")
}

fn size(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    match bytes >= GIB {
        true => format!("{:.1} GiB", bytes as f64 / GIB as f64),
        false => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(memory_mib: u64, util: f64, processes: &[(u32, &str)]) -> Look {
        let process = |(pid, name): &(u32, &str)| GpuProcess {
            pid: *pid,
            name: Some((*name).to_owned()),
            memory_bytes: Some(300 << 20),
        };
        Look {
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
        let unrest = |look: &Look| unrest(1, look, Bytes(1 << 30), false);
        assert_eq!(unrest(&look(900, 0.02, &[])), None);
        assert_eq!(unrest(&Look::default()), None, "what nobody tells is no reason");
        let used = unrest(&look(900, 0.0, &[(7, "python3")])).unwrap();
        assert_eq!(used, "GPU 1 is used by process 7 (python3, 300 MiB)");
        let taken = unrest(&look(1536, 0.0, &[])).unwrap();
        assert!(
            taken.starts_with("1.5 GiB of the memory of GPU 1 is taken"),
            "{taken}"
        );
        let busy = unrest(&look(100, 0.97, &[])).unwrap();
        assert!(busy.starts_with("GPU 1 is busy (97 %)"), "{busy}");
        // A desktop is at rest with what it draws; who computes beside it is not.
        let desktop = |look: &Look| super::unrest(1, look, Bytes(1 << 30), true);
        assert_eq!(desktop(&look(1536, 0.3, &[])), None);
        assert!(desktop(&look(1536, 0.0, &[(7, "python3")])).is_some());
    }

    #[test]
    fn what_was_there_before_is_not_left_by_the_launch() {
        let before = AtRest {
            device: 0,
            memory_bytes: Some(512 << 20),
            foreign: look(0, 0.0, &[(7, "python3")]).processes.unwrap(),
            ..AtRest::default()
        };
        assert_eq!(left(&before, &look(600, 0.9, &[(7, "python3")])), None);
        let process = left(&before, &look(600, 0.0, &[(7, "python3"), (8, "vllm")])).unwrap();
        assert_eq!(process, "GPU 0 is still used by process 8 (vllm, 300 MiB)");
        let memory = left(&before, &look(4096, 0.0, &[])).unwrap();
        assert!(
            memory.starts_with("4.0 GiB of the memory of GPU 0 is still taken (512 MiB before)"),
            "{memory}"
        );
    }

    #[test]
    fn who_was_there_before_the_launch_is_foreign_to_each_of_its_windows() {
        let stranger = look(0, 0.0, &[(7, "python3")]).processes.unwrap();
        let watch = Watch {
            rest: vec![AtRest {
                device: 1,
                memory_bytes: Some(5),
                idle_w: Some(70.0),
                foreign: stranger.clone(),
            }],
            processes: Processes::default(),
        };
        assert_eq!(watch.foreign(1), stranger);
        assert_eq!((watch.foreign(0), watch.memory_bytes(0)), (Vec::new(), None));
        assert_eq!(watch.memory_bytes(1), Some(5));
        assert_eq!(watch.idle_w(), BTreeMap::from([(1, 70.0)]));
    }
}
