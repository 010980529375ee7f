//! Telemetry of a launch, or around loads on an attached server: the probes, and the aggregates over the
//! window of a measurement.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::analysis::aggregate::{self, MeasurementContext};
use crate::base::clock::{self, MonotonicTime};
use crate::base::proc;
use crate::engine::{self, Devices, RunningEngine};
use crate::loadgen::Address;
use crate::plan::Launch;
use crate::results::record::telemetry::{DeviceId, GpuProcess, Sample, Telemetry};
use crate::runner::context::{HostEnv, RunContext};
use crate::runner::environment::Environment;
use crate::runner::gpu_watch::{GpuBaseline, GpuWatch};
use crate::runner::node_sampling::{self, NodeSampler};
use crate::runner::{gpu_idle, gpu_watch};
use crate::telemetry::engine::{EngineProbe, MetricsPage};
use crate::telemetry::gpu::{DeviceProcesses, Gpus};
use crate::telemetry::host::EngineLocation;
use crate::telemetry::probe::Probe;
use crate::telemetry::sampler::Sampler;
use crate::telemetry::{self, ProbeContext};

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
    /// The samplers of the further nodes of the launch.
    nodes: Vec<NodeSampler>,
    /// Number of GPUs of the launch on other nodes.
    remote_devices: u32,
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
    pub(crate) fn begin(run_context: &RunContext<'_>, launch: &Launch, start: u32, devices: &[u32]) -> Self {
        let nodes = node_sampling::start(run_context, launch, start);
        let mut sampler = Sampler::default();
        for node in &nodes {
            sampler.add_node(Arc::clone(node.link()));
        }
        Self {
            sampler,
            nodes,
            devices: devices.to_vec(),
            remote_devices: launch.devices - launch.local_gpus(),
            is_simulated: launch.engine.simulated,
            ..Self::default()
        }
    }

    /// Waits until the state of the GPUs of further nodes is known, and returns which are not idle.
    pub(crate) async fn wait_nodes_ready(&self) -> Vec<String> {
        join_all(self.nodes.iter().map(NodeSampler::wait_ready))
            .await
            .concat()
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
        for node in &self.nodes {
            node.link().watch();
        }
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

    /// Why the samples of a further node are missing, which may be because it is lost, with its name.
    pub(crate) fn node_trouble(&self) -> Option<(&str, String)> {
        let mut troubles = self.nodes.iter().filter_map(|node| {
            let link = node.link();
            Some((link.node(), link.trouble()?))
        });
        troubles.next()
    }

    /// Stops sampling; returns the state of the GPUs before the launch.
    pub(crate) fn end(self) -> Vec<GpuBaseline> {
        self.watch.baselines
    }

    /// Called directly before a load: polls every source once, and drops earlier samples.
    pub(crate) async fn sample_before_load(&self) {
        let began = clock::now();
        self.watch.processes.clear();
        self.sampler.sample_at_edge(BRACKET_TIMEOUT, true).await;
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
        let about = self.measurement_context(window);
        let mut telemetry = aggregate::summarize_telemetry(&samples, facts, &about);
        let rest = self.memory_before();
        for gpu in &mut telemetry.gpus {
            gpu.rest_memory_bytes = rest.get(&gpu.id()).copied();
        }
        let ago = Duration::from_secs_f64(telemetry.seconds) + BRACKET_TIMEOUT;
        telemetry.kernel = gpu_watch::kernel_faults(&self.bus_addresses, ago).await;
        for node in &self.nodes {
            let lines = node.link().kernel().into_iter();
            let named = lines.map(|line| format!("{}: {line}", node.link().node()));
            telemetry.kernel.extend(named);
        }
        (telemetry, samples)
    }

    fn measurement_context(&self, window: MeasuredWindow) -> MeasurementContext {
        let local = || self.devices.iter().copied();
        let remote: Vec<DeviceId> = self.nodes.iter().flat_map(NodeSampler::devices).collect();
        let baselines = self.nodes.iter().flat_map(NodeSampler::baselines);
        let mut idle_w: BTreeMap<DeviceId, f64> = baselines
            .filter_map(|(device, gpu)| Some((device, gpu.idle_w?)))
            .collect();
        let own = self.watch.idle_w().into_iter();
        idle_w.extend(own.map(|(device, watts)| (DeviceId::local(device), watts)));
        let mut foreign: BTreeMap<DeviceId, Vec<GpuProcess>> = local()
            .map(|device| (DeviceId::local(device), self.watch.foreign(device)))
            .collect();
        for node in &self.nodes {
            let devices = node.devices().into_iter();
            foreign.extend(devices.map(|id| {
                let processes = node.link().foreign(id.device);
                (id, processes)
            }));
        }
        let sampled = u32::try_from(remote.len()).unwrap_or(u32::MAX);
        MeasurementContext {
            window_s: window.end.since(window.start).as_secs_f64(),
            devices: local().map(DeviceId::local).chain(remote).collect(),
            unsampled_devices: self.remote_devices.saturating_sub(sampled),
            idle_w,
            foreign,
            nodes: self.nodes.iter().map(NodeSampler::window).collect(),
            is_simulated: self.is_simulated,
        }
    }

    /// Memory in use on each GPU before the launch, in bytes.
    fn memory_before(&self) -> BTreeMap<DeviceId, u64> {
        let remote = self.nodes.iter().flat_map(NodeSampler::baselines);
        let local = self.watch.baselines.iter();
        let local = local.map(|gpu| (DeviceId::local(gpu.device), gpu.clone()));
        remote
            .chain(local)
            .filter_map(|(device, gpu)| Some((device, gpu.memory_bytes?)))
            .collect()
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
