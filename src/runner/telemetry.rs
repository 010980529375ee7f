//! Telemetry of a launch, or around loads on somebody else's server: which probes ask, and what they say of the window of a
//! measurement.

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

/// How long probes may take to answer once more, directly before and after a load. An engine that is done with a load may be slow.
const BRACKET: Duration = Duration::from_secs(5);

/// What asks, as long as a launch lives.
#[derive(Default)]
pub(crate) struct Sampling {
    sampler: Sampler,
    /// The launch's devices on this host.
    pub(crate) devices: Vec<u32>,
    /// How they were before the engine was started, and who is on them.
    watch: Watch,
    is_simulated: bool,
    /// Where the devices are on the bus.
    buses: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasuredWindow {
    /// The start of the measurement.
    pub(crate) zero: Moment,
    /// The end of its last request.
    pub(crate) end: Moment,
}

impl Sampling {
    /// Before the engine of a launch is started.
    pub(crate) fn begin(launch: &Launch, devices: &[u32]) -> Self {
        Self {
            devices: devices.to_vec(),
            is_simulated: launch.engine.simulated,
            ..Self::default()
        }
    }

    /// Around loads on a server that somebody else started: the host, and, where it runs here, the devices on which it computes now.
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

    /// Asks the host of a started engine, and the engine itself, unless it says that it has no metrics: what it does not tell is unknown,
    /// and no gap.
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
            // Nobody promised that it has metrics, nor which.
            true => !page.tells().await,
            false => engine::lacks(&metrics.path, running.endpoint(), http).await,
        };
        if !lacks {
            self.sampler.add(Box::new(EngineProbe::new(page)));
        }
    }

    /// Asks the devices of a started engine, where somebody tells about them.
    pub(crate) fn add_devices(&mut self, gpus: Option<&Gpus>, watch: Watch) {
        self.watch = watch;
        // An engine that somebody else started computes on devices of which nobody knows the numbers.
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

    /// Ends the asking; how the devices were before the launch.
    pub(crate) fn end(self) -> Vec<AtRest> {
        self.watch.rest
    }

    /// Directly before a load: everybody is asked once more, and what was sampled before that is forgotten.
    pub(crate) async fn before(&self) {
        let began = clock::now();
        self.watch.processes.forget();
        self.sampler.bracket(BRACKET).await;
        self.sampler.forget(began);
    }

    /// Directly after a load: everybody is asked once more, unless the engine is known to be gone, and the window is cut.
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

/// The processes that listen at an address, and where they run.
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

/// What the kernel's log said of faults of these devices in the last seconds, where it may be read.
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
