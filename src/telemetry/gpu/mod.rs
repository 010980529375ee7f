//! GPUs and NPUs of this host, read with NVIDIA's library or the tools of AMD and Huawei. The index of a
//! device is that of the library or tool; NVIDIA's is the order on the PCI bus.

mod amd;
mod ascend;
#[cfg(feature = "nvml")]
mod nvml;
mod processes;
mod vendor_cli;

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::results::record::machine::Machine;
use crate::results::record::telemetry::{Gpu, GpuProcess, SampleValues, TelemetrySource};
use crate::telemetry::machine;
use crate::telemetry::probe::Probe;
use vendor_cli::Tool as _;

pub use processes::DeviceProcesses;

/// Timeout of opening the library or tool and listing the devices.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);

/// Timeout of one reading of a device.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);

/// Where libraries and tools are looked up.
#[derive(Clone, Debug, Default)]
pub struct GpuSources {
    /// NVIDIA's library by its file; without it the loader finds it by its usual name.
    pub nvml: Option<PathBuf>,
    /// `PATH` in which the tools are looked up.
    pub path: Option<String>,
}

/// The devices of this host.
#[derive(Debug)]
pub struct Gpus {
    backend: Backend,
    facts: Vec<Gpu>,
}

/// The library or tool that reads the devices.
#[derive(Clone, Debug)]
enum Backend {
    #[cfg(feature = "nvml")]
    Nvml(nvml::Library),
    Amd(amd::Amd),
    Ascend(ascend::Ascend),
}

/// State of one GPU just before the launch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct GpuBaseline {
    pub(crate) device: u32,
    /// Memory in use, in bytes, if reported.
    pub(crate) memory_bytes: Option<u64>,
    /// Mean power over one second, in watts.
    pub(crate) idle_w: Option<f64>,
    /// Processes on the GPU; none of them belongs to the launch.
    pub(crate) foreign: Vec<GpuProcess>,
}

/// One reading of a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DeviceSnapshot {
    /// The values that the fast probe would read.
    pub values: SampleValues,
    /// Processes on the device; `None` if unknown.
    pub processes: Option<Vec<GpuProcess>>,
}

impl Gpus {
    /// Opens the library or tool for the devices of this host. `None` if there is no library, driver, tool or
    /// device.
    ///
    /// # Errors
    /// The library or tool exists, but cannot be used.
    pub fn open(sources: &GpuSources) -> Result<Option<Self>, String> {
        let sources = sources.clone();
        call_with_timeout(OPEN_TIMEOUT, "matrix-gpus", move || Self::find(&sources))?
    }

    fn find(sources: &GpuSources) -> Result<Option<Self>, String> {
        #[cfg(feature = "nvml")]
        if let Some((library, facts)) = nvml::Library::open(sources.nvml.as_deref())? {
            let backend = Backend::Nvml(library);
            return Ok((!facts.is_empty()).then_some(Self { backend, facts }));
        }
        #[cfg(not(feature = "nvml"))]
        if let Some(named) = &sources.nvml {
            return Err(format!(
                "{} cannot be loaded: this program was built without its feature `nvml`",
                named.display()
            ));
        }
        if let Some((tool, facts)) = amd::Amd::find(sources.path.as_deref())? {
            let backend = Backend::Amd(tool);
            return Ok((!facts.is_empty()).then_some(Self { backend, facts }));
        }
        if let Some((tool, facts)) = ascend::Ascend::find(sources.path.as_deref())? {
            let backend = Backend::Ascend(tool);
            return Ok((!facts.is_empty()).then_some(Self { backend, facts }));
        }
        Ok(None)
    }

    /// Facts about each device, by index.
    pub fn facts(&self) -> &[Gpu] {
        &self.facts
    }

    /// The source of the readings.
    pub const fn source(&self) -> TelemetrySource {
        match &self.backend {
            #[cfg(feature = "nvml")]
            Backend::Nvml(_) => TelemetrySource::Nvml,
            Backend::Amd(_) => TelemetrySource::Amd,
            Backend::Ascend(_) => TelemetrySource::Ascend,
        }
    }

    /// Returns the probes for the devices of a launch. They record processes in `processes`.
    pub fn probes(&self, devices: &[u32], processes: &DeviceProcesses) -> Vec<Box<dyn Probe>> {
        match &self.backend {
            #[cfg(feature = "nvml")]
            Backend::Nvml(library) => {
                let launch_gpus = self.facts.iter().filter(|gpu| devices.contains(&gpu.device));
                launch_gpus
                    .flat_map(|gpu| library.probes(gpu, processes))
                    .collect()
            }
            Backend::Amd(tool) => tool.probes(devices, processes),
            Backend::Ascend(tool) => tool.probes(devices, processes),
        }
    }

    /// Reads a device once. Blocks for up to `QUERY_TIMEOUT`.
    ///
    /// # Errors
    /// The device is unknown or cannot be read.
    pub fn snapshot(&self, device: u32) -> Result<DeviceSnapshot, String> {
        let gpu = self.facts.iter().find(|gpu| gpu.device == device);
        let gpu = gpu
            .ok_or_else(|| format!("no telemetry source reports GPU {device}"))?
            .clone();
        let backend = self.backend.clone();
        call_with_timeout(QUERY_TIMEOUT, "matrix-gpu-look", move || match &backend {
            #[cfg(feature = "nvml")]
            Backend::Nvml(library) => library.snapshot(&gpu),
            Backend::Amd(tool) => tool.snapshot(gpu.device),
            Backend::Ascend(tool) => tool.snapshot(gpu.device),
        })?
    }

    /// Adds the facts about the devices to those about the machine.
    pub fn describe(&self, about: &mut Machine) {
        about.gpus = self.facts.iter().map(|gpu| gpu.name.clone()).collect();
        about.devices.clone_from(&self.facts);
        let driver = self.facts.iter().find_map(|gpu| gpu.driver.clone());
        about.driver = driver.or_else(|| about.driver.take());
        let buses = self.facts.iter();
        let buses = buses.filter_map(|gpu| Some((gpu.device, gpu.bus.clone()?)));
        about.numa = machine::numa_nodes(Path::new("/"), buses);
    }
}

/// Runs a call that may hang in a thread. On a timeout the thread is left running, because it cannot be
/// ended.
fn call_with_timeout<T: Send + 'static>(
    limit: Duration,
    name: &str,
    call: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            // After a timeout there is no receiver.
            let _ = sender.send(call());
        })
        .map_err(|error| format!("cannot start a thread: {error}"))?;
    receiver
        .recv_timeout(limit)
        .map_err(|_| format!("no response within {} s", limit.as_secs()))
}
