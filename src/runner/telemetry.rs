//! Telemetry of a launch, or around loads on an attached server: the probes, and the aggregates over the
//! window of a measurement.

use std::sync::Arc;
use std::time::Duration;

use crate::analysis::aggregate::{self, About};
use crate::base::clock::{self, Moment};
use crate::base::proc;
use crate::engine::{self, Devices, Running};
use crate::loadgen::Address;
use crate::plan::Launch;
use crate::results::record::post_mortem::KernelLog;
use crate::results::record::telemetry::{Sample, Telemetry};
use crate::runner::context::Host;
use crate::runner::gpu_idle::{self, AtRest, Watch};
use crate::telemetry::dmesg;
use crate::telemetry::engine::{EngineProbe, Page};
use crate::telemetry::gpu::{Gpus, Processes};
use crate::telemetry::host::{Engine, HostProbe};
use crate::telemetry::sampler::Sampler;

/// Timeout of the probes directly before and after a load. An engine that has just finished a load may be
/// slow.
const BRACKET: Duration = Duration::from_secs(5);

/// The probes of a launch, while it runs.
#[derive(Default)]
pub(crate) struct Sampling {
    sampler: Sampler,
    /// GPUs of the launch on this host.
    pub(crate) devices: Vec<u32>,
    /// State of the GPUs before the engine was started, and the processes on them.
    watch: Watch,
    is_simulated: bool,
    /// Bus addresses of the GPUs.
    buses: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredWindow {
    /// Start of the measurement.
    pub(crate) zero: Moment,
    /// End of its last request.
    pub(crate) end: Moment,
}

impl Sampling {
    /// Creates the state before the engine of a launch is started.
    pub(crate) fn begin(launch: &Launch, devices: &[u32]) -> Self {
        Self {
            devices: devices.to_vec(),
            is_simulated: launch.engine.simulated,
            ..Self::default()
        }
    }

    /// Samples around loads on an attached server: its host, and if it runs on this host, the GPUs that it
    /// currently uses.
    pub(crate) async fn around(address: &Address, gpus: Option<Arc<Gpus>>) -> Self {
        let (engine, roots) = found(&address.host, address.port);
        let mut sampling = Self::default();
        if let Some(gpus) = gpus.filter(|_| !roots.is_empty()) {
            let own = proc::belonging(&proc::all(), &roots);
            let all: Vec<u32> = gpus.facts().iter().map(|gpu| gpu.device).collect();
            let mut strangers = Vec::new();
            for (device, look) in gpu_idle::look(&gpus, &all).await {
                let there = look.ok().and_then(|look| look.processes).unwrap_or_default();
                let (ours, foreign): (Vec<_>, Vec<_>) =
                    there.into_iter().partition(|process| own.contains(&process.pid));
                if !ours.is_empty() {
                    sampling.devices.push(device);
                    strangers.extend(foreign.iter().map(|process| process.pid));
                    sampling.watch.rest.push(AtRest {
                        device,
                        foreign,
                        ..AtRest::default()
                    });
                }
            }
            sampling.watch.processes = Processes::of(roots, strangers);
            for probe in gpus.probes(&sampling.devices, &sampling.watch.processes) {
                sampling.sampler.add(probe);
            }
        }
        sampling.sampler.add(Box::new(HostProbe::new(engine)));
        sampling
    }

    /// Adds probes for the host of a started engine and for the engine's own metrics. If the engine has no
    /// metrics, they are unknown; that is no gap in the samples.
    pub(crate) async fn add_engine(&mut self, launch: &Launch, running: &Running, host: &Host) {
        let http = &host.http;
        let is_remote = *running.devices() == Devices::Remote;
        if is_remote {
            self.devices.clear();
        }
        let engine = match running.tree() {
            roots if !roots.is_empty() => Engine::Here(roots),
            _ if is_remote => found(&running.endpoint().host, running.endpoint().port).0,
            _ => Engine::Unknown,
        };
        let near = host.machine.cpus_near(&self.devices);
        self.sampler
            .add(Box::new(HostProbe::new(engine).near(near.as_deref())));
        let Some(metrics) = &launch.contact.metrics else {
            return;
        };
        let page = Page {
            http: http.clone(),
            url: running.endpoint().url(&metrics.path),
            headers: running.endpoint().headers().clone(),
            names: (metrics.names.iter())
                .map(|(name, theirs)| (name.value.clone(), theirs.clone()))
                .collect(),
        };
        let lacks = match launch.is_attached() {
            // Nothing is known about the metrics of an attached server.
            true => !page.tells().await,
            false => engine::lacks(&metrics.path, running.endpoint(), http).await,
        };
        if !lacks {
            self.sampler.add(Box::new(EngineProbe::new(page)));
        }
    }

    /// Adds probes for the GPUs of a started engine, if they can be read.
    pub(crate) fn add_devices(&mut self, gpus: Option<&Gpus>, watch: Watch) {
        self.watch = watch;
        // The GPUs of an attached server are unknown.
        let Some(gpus) = gpus.filter(|_| !self.watch.rest.is_empty()) else {
            return;
        };
        for probe in gpus.probes(&self.devices, &self.watch.processes) {
            self.sampler.add(probe);
        }
        let own = gpus
            .facts()
            .iter()
            .filter(|gpu| self.devices.contains(&gpu.device));
        self.buses = own.filter_map(|gpu| gpu.bus.clone()).collect();
    }

    /// Stops sampling; returns the state of the GPUs before the launch.
    pub(crate) fn end(self) -> Vec<AtRest> {
        self.watch.rest
    }

    /// Called directly before a load: polls every source once, and drops earlier samples.
    pub(crate) async fn before(&self) {
        let began = clock::now();
        self.watch.processes.forget();
        self.sampler.bracket(BRACKET).await;
        self.sampler.forget(began);
    }

    /// Called directly after a load: polls every source once, unless the engine is known to be gone, and
    /// aggregates the window.
    pub(crate) async fn after(
        &self,
        window: MeasuredWindow,
        engine_is_well: bool,
    ) -> (Telemetry, Vec<Sample>) {
        if engine_is_well {
            self.sampler.bracket(BRACKET).await;
        }
        let (samples, facts) = self.sampler.cut(window.zero, window.zero, window.end);
        let about = About {
            seconds: window.end.since(window.zero).as_secs_f64(),
            devices: self.devices.clone(),
            idle_w: self.watch.idle_w(),
            foreign: self
                .devices
                .iter()
                .map(|device| (*device, self.watch.foreign(*device)))
                .collect(),
            is_simulated: self.is_simulated,
        };
        let mut telemetry = aggregate::telemetry(&samples, facts, &about);
        for gpu in &mut telemetry.gpus {
            gpu.rest_memory_bytes = self.watch.memory_bytes(gpu.device);
        }
        telemetry.kernel = faults(&self.buses, telemetry.seconds).await;
        (telemetry, samples)
    }
}

/// The processes that listen at an address, and the engine's location.
fn found(host: &str, port: u16) -> (Engine, Vec<u32>) {
    if !engine::is_here(host) {
        return (Engine::Elsewhere, Vec::new());
    }
    let roots = engine::listeners(port);
    match roots.is_empty() {
        true => (Engine::Unknown, roots),
        false => (Engine::Here(roots.clone()), roots),
    }
}

/// Messages of the kernel log about faults of these GPUs in the last seconds, if it is readable.
async fn faults(buses: &[String], seconds: f64) -> Vec<String> {
    if buses.is_empty() {
        return Vec::new();
    }
    let ago = Duration::from_secs_f64(seconds) + BRACKET;
    let reading = tokio::task::spawn_blocking(move || dmesg::told_since(ago));
    let Ok(KernelLog::Lines(lines)) = reading.await else {
        return Vec::new();
    };
    let is_ours = |line: &String| dmesg::is_fault_of(line, buses);
    lines.into_iter().filter(is_ours).collect()
}
