//! Telemetry of a launch, or around loads on an attached server: the probes, and the aggregates over the
//! window of a measurement.

use std::sync::Arc;
use std::time::Duration;

use crate::analysis::aggregate::{self, MeasurementContext};
use crate::base::clock::{self, MonotonicTime};
use crate::base::proc;
use crate::engine::{self, Devices, RunningEngine};
use crate::loadgen::Address;
use crate::plan::Launch;
use crate::results::record::post_mortem::KernelLog;
use crate::results::record::telemetry::{Sample, Telemetry};
use crate::runner::context::HostEnv;
use crate::runner::environment::Environment;
use crate::runner::gpu_idle;
use crate::runner::gpu_watch::{GpuBaseline, GpuWatch};
use crate::telemetry::engine::{EngineProbe, MetricsPage};
use crate::telemetry::gpu::{DeviceProcesses, Gpus};
use crate::telemetry::host::EngineLocation;
use crate::telemetry::probe::Probe;
use crate::telemetry::sampler::Sampler;
use crate::telemetry::{self, ProbeContext, dmesg};

/// Timeout of the probes directly before and after a load. An engine that has just finished a load may be
/// slow.
const BRACKET_TIMEOUT: Duration = Duration::from_secs(5);

/// The probes of a launch, while it runs.
#[derive(Default)]
pub(crate) struct Sampling {
    sampler: Sampler,
    /// GPUs of the launch on this host.
    pub(crate) devices: Vec<u32>,
    /// State of the GPUs before the engine was started, and the processes on them.
    watch: GpuWatch,
    /// Number of further GPUs of the launch, on other nodes.
    unsampled_devices: u32,
    is_simulated: bool,
    /// Bus addresses of the GPUs.
    bus_addresses: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredWindow {
    /// Start of the measurement.
    pub(crate) start: MonotonicTime,
    /// End of its last request.
    pub(crate) end: MonotonicTime,
}

impl Sampling {
    /// Creates the state before the engine of a launch is started.
    pub(crate) fn begin(launch: &Launch, devices: &[u32]) -> Self {
        Self {
            devices: devices.to_vec(),
            unsampled_devices: launch.devices - launch.local_gpus(),
            is_simulated: launch.engine.simulated,
            ..Self::default()
        }
    }

    /// Samples around loads on an attached server: its host, and if it runs on this host, the GPUs that it
    /// currently uses.
    pub(crate) async fn for_attached(
        address: &Address,
        gpus: Option<Arc<Gpus>>,
        environment: &Environment,
    ) -> Self {
        let (engine, roots) = match &address.socket {
            Some(_) => (EngineLocation::Unknown, Vec::new()),
            None => listeners_at(&address.host, address.port),
        };
        let mut sampling = Self::default();
        if let Some(gpus) = gpus.filter(|_| !roots.is_empty()) {
            let engine_pids = proc::tree_pids(&proc::all_processes(), &roots);
            let devices: Vec<u32> = gpus.facts().iter().map(|gpu| gpu.device).collect();
            let mut strangers = Vec::new();
            for (device, snapshot) in gpu_idle::poll(&gpus, &devices).await {
                let processes = snapshot
                    .ok()
                    .and_then(|snapshot| snapshot.processes)
                    .unwrap_or_default();
                let (engine_processes, foreign): (Vec<_>, Vec<_>) = processes
                    .into_iter()
                    .partition(|process| engine_pids.contains(&process.pid));
                if !engine_processes.is_empty() {
                    sampling.devices.push(device);
                    strangers.extend(foreign.iter().map(|process| process.pid));
                    sampling.watch.baselines.push(GpuBaseline {
                        device,
                        foreign,
                        ..GpuBaseline::default()
                    });
                }
            }
            sampling.watch.processes = DeviceProcesses::new(roots, strangers);
            sampling.add_probes(gpus.probes(&sampling.devices, &sampling.watch.processes));
        }
        sampling.add_probes(telemetry::host_probes(ProbeContext {
            engine,
            near_cpus: None,
            variable: environment.variable,
        }));
        sampling
    }

    /// Adds probes for the host of a started engine and for the engine's own metrics. If the engine has no
    /// metrics, they are unknown; that is no gap in the samples.
    pub(crate) async fn add_engine(&mut self, launch: &Launch, running: &RunningEngine, host: &HostEnv) {
        let http = &host.http;
        let is_remote = *running.devices() == Devices::Remote;
        if is_remote {
            self.devices.clear();
        }
        let engine = match running.root_pids() {
            roots if !roots.is_empty() => EngineLocation::Local(roots),
            _ if is_remote && running.endpoint().socket.is_none() => {
                listeners_at(&running.endpoint().host, running.endpoint().port).0
            }
            _ => EngineLocation::Unknown,
        };
        self.add_probes(telemetry::host_probes(ProbeContext {
            engine,
            near_cpus: host.machine.cpus_near(&self.devices),
            variable: host.environment.variable,
        }));
        let Some(metrics) = &launch.api.metrics else {
            return;
        };
        let page = MetricsPage {
            http: running.endpoint().http(http),
            url: running.endpoint().url(&metrics.path),
            headers: running.endpoint().headers().clone(),
            names: (metrics.names.iter())
                .map(|(name, theirs)| (name.value.clone(), theirs.clone()))
                .collect(),
        };
        let lacks = match launch.is_attached() {
            // Nothing is known about the metrics of an attached server.
            true => !page.has_metrics().await,
            false => engine::is_path_missing(&metrics.path, running.endpoint(), http).await,
        };
        if !lacks {
            self.sampler.add(Box::new(EngineProbe::new(page)));
        }
    }

    /// Adds probes for the GPUs of a started engine, if they can be read.
    pub(crate) fn add_devices(&mut self, gpus: Option<&Gpus>, watch: GpuWatch) {
        self.watch = watch;
        // The GPUs of an attached server are unknown.
        let Some(gpus) = gpus.filter(|_| !self.watch.baselines.is_empty()) else {
            return;
        };
        self.add_probes(gpus.probes(&self.devices, &self.watch.processes));
        let own = gpus
            .facts()
            .iter()
            .filter(|gpu| self.devices.contains(&gpu.device));
        self.bus_addresses = own.filter_map(|gpu| gpu.bus.clone()).collect();
    }

    fn add_probes(&mut self, probes: Vec<Box<dyn Probe>>) {
        for probe in probes {
            self.sampler.add(probe);
        }
    }

    /// Stops sampling; returns the state of the GPUs before the launch.
    pub(crate) fn end(self) -> Vec<GpuBaseline> {
        self.watch.baselines
    }

    /// Called directly before a load: polls every source once, and drops earlier samples.
    pub(crate) async fn sample_before_load(&self) {
        let began = clock::now();
        self.watch.processes.clear();
        self.sampler.sample_now(BRACKET_TIMEOUT).await;
        self.sampler.discard_before(began);
    }

    /// Called directly after a load: polls every source once, unless the engine is known to be gone, and
    /// aggregates the window.
    pub(crate) async fn sample_after_load(
        &self,
        window: MeasuredWindow,
        engine_is_healthy: bool,
    ) -> (Telemetry, Vec<Sample>) {
        if engine_is_healthy {
            self.sampler.sample_now(BRACKET_TIMEOUT).await;
        }
        let (samples, facts) = self
            .sampler
            .samples_between(window.start, window.start, window.end);
        let about = MeasurementContext {
            window_s: window.end.since(window.start).as_secs_f64(),
            devices: self.devices.clone(),
            unsampled_devices: self.unsampled_devices,
            idle_w: self.watch.idle_w(),
            foreign: self
                .devices
                .iter()
                .map(|device| (*device, self.watch.foreign(*device)))
                .collect(),
            is_simulated: self.is_simulated,
        };
        let mut telemetry = aggregate::summarize_telemetry(&samples, facts, &about);
        for gpu in &mut telemetry.gpus {
            gpu.rest_memory_bytes = self.watch.memory_bytes(gpu.device);
        }
        telemetry.kernel = gpu_faults(&self.bus_addresses, telemetry.seconds).await;
        (telemetry, samples)
    }
}

/// The processes that listen at an address, and the engine's location.
fn listeners_at(host: &str, port: u16) -> (EngineLocation, Vec<u32>) {
    if !engine::is_local_host(host) {
        return (EngineLocation::Remote, Vec::new());
    }
    let roots = engine::listeners(port);
    match roots.is_empty() {
        true => (EngineLocation::Unknown, roots),
        false => (EngineLocation::Local(roots.clone()), roots),
    }
}

/// Messages of the kernel log about faults of these GPUs in the last seconds, if it is readable.
async fn gpu_faults(buses: &[String], seconds: f64) -> Vec<String> {
    if buses.is_empty() {
        return Vec::new();
    }
    let ago = Duration::from_secs_f64(seconds) + BRACKET_TIMEOUT;
    let reading = tokio::task::spawn_blocking(move || dmesg::read_since(ago));
    let Ok(KernelLog::Lines(lines)) = reading.await else {
        return Vec::new();
    };
    let is_ours = |line: &String| dmesg::is_fault_of(line, buses);
    lines.into_iter().filter(is_ours).collect()
}
