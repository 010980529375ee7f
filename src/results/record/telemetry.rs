//! Telemetry of host and engine during a measurement: the samples, and their aggregates over the window.
//! Pure.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::config::metrics::current_name;
use crate::results::record::machine::Machine;

/// A source of telemetry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TelemetrySource {
    /// The management library of NVIDIA.
    Nvml,
    /// `amd-smi` or `rocm-smi`.
    Amd,
    /// Huawei's tool for Ascend devices.
    Ascend,
    /// The engine's own metrics.
    Engine,
    /// The kernel of the host.
    Host,
}

impl TelemetrySource {
    /// The name on disk.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nvml => "nvml",
            Self::Amd => "amd",
            Self::Ascend => "ascend",
            Self::Engine => "engine",
            Self::Host => "host",
        }
    }

    /// Whether it reads GPUs, whose samples become [`Telemetry::gpus`].
    pub(crate) const fn is_gpu(self) -> bool {
        matches!(self, Self::Nvml | Self::Amd | Self::Ascend)
    }

    /// Whether its samples have a field of [`Telemetry`]; those of other sources become [`Telemetry::ranges`].
    pub(crate) const fn has_own_field(self) -> bool {
        self.is_gpu() || matches!(self, Self::Engine | Self::Host)
    }
}

/// Values by name. The end of a name is its unit (`power_w`, `sm_clock_mhz`, `cpu_s`). A name without a unit
/// is a count, or with `_share` a value between 0 and 1. Names that end in `_total` or in a unit of time or
/// energy are counters, which may restart at zero.
pub type SampleValues = BTreeMap<String, f64>;

/// Reads values, translating the names of earlier versions.
fn with_current_names<'de, T, D>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let values = BTreeMap::<String, T>::deserialize(deserializer)?;
    let renamed = values
        .into_iter()
        .map(|(name, value)| (current_name(&name).to_owned(), value));
    Ok(renamed.collect())
}

/// Values of one source at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time of the middle of the reading, in nanoseconds after the start of the measurement; negative before
    /// it.
    pub at_ns: i64,
    /// The source of the values.
    pub source: TelemetrySource,
    /// The node of the job, if it is not the one that the load runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<String>,
    /// Device of the node; none if the values concern no single device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<u32>,
    /// The values; values that the source did not give are absent.
    #[serde(deserialize_with = "with_current_names")]
    pub values: SampleValues,
}

/// Availability of one source over a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceFacts {
    /// The source that was read.
    pub source: TelemetrySource,
    /// The node of the job, if it is not the one that the load runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Device of the node; none if the source concerns no single device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    /// Planned seconds between two samples.
    pub(crate) period_s: f64,
    /// Samples within the window.
    pub samples: u32,
    /// Longest time without a sample within the window, including its start and end, in seconds.
    pub longest_gap_s: f64,
    /// Whether there are samples at or before the start of the window and at or after its end.
    pub is_bracketed: bool,
    /// Why the source gave no values, or stopped giving them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

impl SourceFacts {
    /// The source with its device and node in words.
    pub(crate) fn name(&self) -> String {
        let device = self
            .device
            .map_or_else(String::new, |device| format!(" of GPU {device}"));
        let node = self
            .node
            .as_ref()
            .map_or_else(String::new, |node| format!(" of {node}"));
        format!("{}{device}{node}", self.source.name())
    }
}

/// A GPU of a launch: its index on a node of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The node, if it is not the one that the load runs on.
    pub(crate) node: Option<String>,
    /// Index on the node.
    pub(crate) device: u32,
}

impl DeviceId {
    /// A GPU of the node that the load runs on.
    pub const fn local(device: u32) -> Self {
        Self { node: None, device }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU {}", self.device)?;
        self.node.as_ref().map_or(Ok(()), |node| write!(f, " of {node}"))
    }
}

/// Host and engine over the measured window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    /// Length of the window in seconds.
    pub seconds: f64,
    /// Every source that was polled.
    pub sources: Vec<SourceFacts>,
    /// GPUs of the launch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuWindow>,
    /// The engine, by its own metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineWindow>,
    /// Use of the host by engine, client and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostWindow>,
    /// Sampled values by name of each source without a field of its own; a counter `*_total` becomes its rate,
    /// `*_per_s`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) ranges: BTreeMap<TelemetrySource, BTreeMap<String, SampledRange>>,
    /// Energy, if a source reports power or energy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
    /// Messages of the kernel log about GPU faults during the window, if the log is readable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) kernel: Vec<String>,
    /// Further nodes of the launch on which samples were requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeWindow>,
}

/// A further node of the launch over the window. Its GPUs are among [`Telemetry::gpus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeWindow {
    /// The name by which the scheduler knows it.
    pub node: String,
    /// Number of GPUs of the launch there.
    pub(crate) gpus: u32,
    /// Facts about these GPUs, as far as they can be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) devices: Vec<Gpu>,
    /// The host; absent if its sampler did not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Box<Machine>>,
    /// Use of the node by the engine and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostWindow>,
    /// Why its samples are missing or incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Minimum, mean and maximum of samples, weighted by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SampledRange {
    /// Smallest value in the window.
    pub min: f64,
    /// The mean over time.
    pub(crate) mean: f64,
    /// Largest value in the window.
    pub max: f64,
}

/// One GPU over the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuWindow {
    /// The node of the job, if it is not the one that the load runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Index on the node.
    pub device: u32,
    /// Sampled values by name, such as `power_w`, `sm_clock_mhz`, `temperature_c`, `gpu_util_share`,
    /// `memory_used_bytes`.
    pub(crate) ranges: BTreeMap<String, SampledRange>,
    /// Number of busy samples, with `gpu_util_share` of at least 0.1; the clock statistics use them.
    pub(crate) busy_samples: u32,
    /// Mean `sm_clock_mhz` of the busy samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_clock_mhz: Option<f64>,
    /// Spread of the busy clock: (P95 - P5) / median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_spread: Option<f64>,
    /// Throttling reasons with their share of the samples: `thermal`, `power`, `hardware`, `other`. Idling
    /// and user-defined clocks are not throttling.
    pub throttled: BTreeMap<String, f64>,
    /// Processes on the GPU that do not belong to the engine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<GpuProcess>,
    /// Joules by the GPU's energy counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter_j: Option<f64>,
    /// Joules by integrated power.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integral_j: Option<f64>,
    /// Memory in use before the engine was started, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest_memory_bytes: Option<u64>,
    /// Power in watts before the engine was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_w: Option<f64>,
}

impl GpuWindow {
    /// Which GPU it is.
    pub(crate) fn id(&self) -> DeviceId {
        DeviceId {
            node: self.node.clone(),
            device: self.device,
        }
    }
}

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuProcess {
    /// Process id on the host.
    pub pid: u32,
    /// Its name, if the host reports it.
    pub name: Option<String>,
    /// Memory on the device in bytes, if the driver reports it.
    pub memory_bytes: Option<u64>,
}

/// The engine over the window, by its own metrics under our names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineWindow {
    /// Growth of each counter over the window (`prefix_hits`, `generation_tokens`, `preemptions`, ...).
    pub grown: BTreeMap<String, f64>,
    /// Gauges over the window (`running`, `waiting`, `kv_cache_usage`, ...).
    #[serde(deserialize_with = "with_current_names")]
    pub gauges: BTreeMap<String, SampledRange>,
    /// Means over the window, in seconds, of metrics that the engine keeps as sum and count (`ttft_s`,
    /// `itl_s`, `e2e_s`, `queue_s`, ...).
    pub means: BTreeMap<String, f64>,
    /// Share of samples with a full KV cache, if the engine reports its usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kv_full_share: Option<f64>,
    /// Counters that fell because the engine restarted.
    pub reset: Vec<String>,
    /// Counters that fell to a value other than their start, so that their growth is unknown: several servers
    /// answer in turn, or a part of one restarted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) mixed: Vec<String>,
    /// Whether the counters return to earlier values repeatedly, which shows that several servers answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_in_turn: bool,
}

/// The host over the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostWindow {
    /// Number of online logical CPUs.
    pub cpus: u32,
    /// Processors used by this process, including the threads of the load (1.0 is one whole processor).
    pub client_cpus: Option<f64>,
    /// Processors used by the engine.
    pub engine_cpus: Option<f64>,
    /// Processors used by everything else.
    pub other_cpus: Option<f64>,
    /// Whether the client's threads may run on the engine's processors; `None` if unknown.
    pub shares_cpus: Option<bool>,
    /// Processors that the hypervisor gave to other machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stolen_cpus: Option<f64>,
    /// Whether the engine is bound to processors that are not near its GPUs; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) is_numa_remote: Option<bool>,
    /// Seconds that runnable threads of the client waited for a processor.
    pub(crate) client_wait_s: Option<f64>,
    /// Sampled values by name, such as `memory_available_bytes`, `load_1`, `context_switches_per_s`,
    /// `net_rx_bytes_per_s`, `disk_write_bytes_per_s`.
    pub ranges: BTreeMap<String, SampledRange>,
}

/// The source of an energy figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EnergySource {
    /// The energy counter of each GPU.
    Counter,
    /// Power of each GPU, integrated over time.
    Power,
    /// The engine's own metrics.
    Engine,
}

/// Energy over the window, summed over the GPUs of the launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// The source of the figure.
    pub source: EnergySource,
    /// Joules.
    pub joules: f64,
    /// Joules by the other method (counter or integrated power), if both exist and differ by more than 5 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagrees_j: Option<f64>,
    /// Joules above the idle energy of the same GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above_idle_j: Option<f64>,
    /// Mean power in watts.
    pub mean_w: f64,
    /// Peak power in watts, at least the mean; present if power was sampled within the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_w: Option<f64>,
    /// Whether a simulated engine reported the power.
    pub is_simulated: bool,
}

/// A MIG instance of a GPU. To an engine it is a device of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MigInstance {
    /// Index of the GPU in the library's order.
    pub(crate) gpu: u32,
    /// UUID of the GPU.
    pub(crate) gpu_uuid: Option<String>,
    /// Index of the instance on the GPU, from 0.
    pub(crate) number: u32,
}

/// Static facts about a GPU. Serial numbers and other facts that identify the owner are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Index on the host.
    pub(crate) device: u32,
    /// Model name, as the driver reports it.
    pub name: String,
    /// The UUID that the driver reports.
    pub uuid: Option<String>,
    /// Address on the PCI bus, such as `0000:17:00.0`.
    pub bus: Option<String>,
    /// Version of the GPU driver.
    pub driver: Option<String>,
    /// Newest CUDA version that the driver supports, such as `12.8`.
    pub cuda: Option<String>,
    /// Version of the firmware (VBIOS).
    pub vbios: Option<String>,
    /// Whether MIG is enabled.
    pub mig: Option<bool>,
    /// The MIG instance, if the device is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) instance: Option<MigInstance>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Configured power limit in watts.
    pub power_limit_w: Option<f64>,
    /// Highest SM clock in MHz.
    pub max_sm_clock_mhz: Option<f64>,
    /// Whether ECC memory is enabled.
    pub ecc: Option<bool>,
    pub(crate) numa: Option<u32>,
    /// Whether a display is attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) display: Option<bool>,
    /// Highest PCIe generation of device and slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pcie_generation: Option<u32>,
    /// Largest number of PCIe lanes of device and slot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pcie_width: Option<u32>,
    /// Link to each other device by index: `nvlink`, or the level at which they meet, such as `same-board`,
    /// `host-bridge`, `numa-node`, `system`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<u32, String>,
}
