//! What was known of the machine and the engine while a measurement was taken: samples as they were read, and what came of them over
//! the window. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::config::metrics::todays;

/// Who was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// NVIDIA's management library.
    Nvml,
    /// AMD's tools.
    Amd,
    /// Huawei's tool for Ascend devices.
    Ascend,
    /// The engine's own metrics.
    Engine,
    /// The kernel of the host.
    Host,
}

impl Source {
    /// The source as it is written.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Nvml => "nvml",
            Self::Amd => "amd",
            Self::Ascend => "ascend",
            Self::Engine => "engine",
            Self::Host => "host",
        }
    }
}

/// Values by name. The unit is the end of a name (`power_w`, `sm_clock_mhz`, `cpu_s`); a name without one is a count or, ending in
/// `_share`, between 0 and 1. Names that end in `_total` or in a unit of time or energy and begin again at nothing are counters.
pub type Values = BTreeMap<String, f64>;

/// Reads values that earlier versions wrote by other names.
fn by_todays_names<'de, T, D>(deserializer: D) -> Result<BTreeMap<String, T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let values = BTreeMap::<String, T>::deserialize(deserializer)?;
    let renamed = values
        .into_iter()
        .map(|(name, value)| (todays(&name).to_owned(), value));
    Ok(renamed.collect())
}

/// What one source gave at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// When, in nanoseconds after the start of the measurement, in the middle of the asking; before it where negative.
    pub at_ns: i64,
    /// Who gave it.
    pub source: Source,
    /// About which device of the host; none if it is about no single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    /// What it gave; what it did not give is absent.
    #[serde(deserialize_with = "by_todays_names")]
    pub values: Values,
}

/// How one source did over a window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceFacts {
    /// The source.
    pub source: Source,
    /// About which device; none if it is about no single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<u32>,
    /// Seconds between two samples, as it was meant.
    pub period_s: f64,
    /// Samples within the window.
    pub samples: u32,
    /// The longest time within the window without one, from its start and to its end included, in seconds.
    pub longest_gap_s: f64,
    /// Whether a sample lies at or before the start of the window and one at or after its end.
    pub is_bracketed: bool,
    /// Why it gave nothing, or no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// The machine and the engine over the measured window: from the start of the measurement to the end of the last request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Telemetry {
    /// Length of the window in seconds.
    pub seconds: f64,
    /// Every source that was asked, and how it did.
    pub sources: Vec<SourceFacts>,
    /// The launch's devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuWindow>,
    /// The engine by its own metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineWindow>,
    /// The host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostWindow>,
    /// Energy, where anybody told power or energy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<Energy>,
    /// What the kernel's log said of GPU faults meanwhile, where it may be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernel: Vec<String>,
}

/// Least, mean and most of what was sampled, weighted by time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Range {
    /// The least.
    pub min: f64,
    /// The mean over time.
    pub mean: f64,
    /// The most.
    pub max: f64,
}

/// One device over the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GpuWindow {
    /// Its index on the host.
    pub device: u32,
    /// What was sampled, by name, such as `power_w`, `sm_clock_mhz`, `temperature_c`, `gpu_util_share`, `memory_used_bytes`.
    pub ranges: BTreeMap<String, Range>,
    /// Samples while it was busy (`gpu_util_share` of a tenth and more), for what is said of its clocks.
    pub busy_samples: u32,
    /// Mean `sm_clock_mhz` of the busy samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_clock_mhz: Option<f64>,
    /// Spread of the busy clock: (P95 - P5) / median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_spread: Option<f64>,
    /// Reasons of throttling that were seen, with the share of samples that told them: `thermal`, `power`, `hardware`, `other`. Being idle
    /// and clocks that somebody set are none.
    pub throttled: BTreeMap<String, f64>,
    /// Processes on it that are not the engine's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<GpuProcess>,
    /// Joules by its energy counter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter_j: Option<f64>,
    /// Joules by its power, integrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integral_j: Option<f64>,
    /// Memory that was taken on it before the engine was started, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest_memory_bytes: Option<u64>,
    /// Watts before the engine was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_w: Option<f64>,
}

/// A process on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuProcess {
    /// Its id on the host.
    pub pid: u32,
    /// Its name, where the host tells.
    pub name: Option<String>,
    /// Memory that it holds on the device, in bytes, where the driver tells.
    pub memory_bytes: Option<u64>,
}

/// The engine by its own metrics, under our names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineWindow {
    /// How much each counter grew over the window (`prefix_hits`, `generation_tokens`, `preemptions`, ...).
    pub grown: BTreeMap<String, f64>,
    /// Gauges over the window (`running`, `waiting`, `kv_cache_usage`, ...).
    #[serde(deserialize_with = "by_todays_names")]
    pub gauges: BTreeMap<String, Range>,
    /// Means over the window of what the engine keeps as sum and count (`ttft_s`, `itl_s`, `e2e_s`, `queue_s`, ...), in seconds.
    pub means: BTreeMap<String, f64>,
    /// The share of samples in which the KV cache was full, where the engine tells its use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_full_share: Option<f64>,
    /// Counters that fell: the engine began anew.
    pub reset: Vec<String>,
    /// Counters that fell, and not to where one begins, so that nothing that was counted is known: several servers tell in turn, or a part of
    /// one began anew.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mixed: Vec<String>,
    /// Whether they came back again and again, so that it is several servers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_in_turn: bool,
}

/// The host over the window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostWindow {
    /// Logical processors that are online.
    pub cpus: u32,
    /// Processors that the client kept busy, its load's threads and everything else of this process (1.0 is one whole processor).
    pub client_cpus: Option<f64>,
    /// Processors that the engine kept busy.
    pub engine_cpus: Option<f64>,
    /// Processors that everybody else kept busy.
    pub other_cpus: Option<f64>,
    /// Whether the client's threads may run where the engine's run: `None` where nobody knows.
    pub shares_cpus: Option<bool>,
    /// Processors that the hypervisor gave to other machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stolen_cpus: Option<f64>,
    /// Whether the engine is held to processors that are not near its devices: `None` where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_numa_remote: Option<bool>,
    /// Seconds that the client's threads waited for a processor while they could have run.
    pub client_wait_s: Option<f64>,
    /// What was sampled, by name, such as `memory_available_bytes`, `load_1`, `context_switches_per_s`, `net_rx_bytes_per_s`,
    /// `disk_write_bytes_per_s`.
    pub ranges: BTreeMap<String, Range>,
}

/// Where energy was told.
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

/// Energy over the window, all devices of the launch together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Energy {
    /// Who told it.
    pub source: EnergySource,
    /// Joules.
    pub joules: f64,
    /// Joules by the other way (counter or integrated power), where the devices tell both and they lie more than 5 % apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagrees_j: Option<f64>,
    /// Joules above what the same devices take when idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above_idle_j: Option<f64>,
    /// Mean watts.
    pub mean_w: f64,
    /// Most watts at one moment, no less than the mean; where power was told within the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_w: Option<f64>,
    /// Whether the watts are those of a simulated engine.
    pub is_simulated: bool,
}

/// An instance of a GPU (MIG): to an engine a device of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigInstance {
    /// The GPU's index in the library's order.
    pub gpu: u32,
    /// The GPU's UUID.
    pub gpu_uuid: Option<String>,
    /// Its number on that GPU, from 0.
    pub number: u32,
}

/// What a device is: read once. Nothing that tells one machine's owner from another's, such as a serial number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// Its index on the host.
    pub device: u32,
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: Option<String>,
    /// Its address on the bus.
    pub bus: Option<String>,
    /// The driver's version.
    pub driver: Option<String>,
    /// The newest CUDA that the driver serves, such as `12.8`.
    pub cuda: Option<String>,
    /// Its firmware.
    pub vbios: Option<String>,
    /// Whether it is cut into instances (MIG).
    pub mig: Option<bool>,
    /// Which instance it is, where the device is a part of a GPU that is cut into instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<MigInstance>,
    /// Its memory in bytes.
    pub memory_bytes: Option<u64>,
    /// The power limit that is set, in watts.
    pub power_limit_w: Option<f64>,
    /// The highest SM clock, in MHz.
    pub max_sm_clock_mhz: Option<f64>,
    /// Whether its memory corrects errors.
    pub ecc: Option<bool>,
    /// Its NUMA node.
    pub numa: Option<u32>,
    /// Whether a desktop is drawn on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display: Option<bool>,
    /// The highest PCIe generation that device and slot can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_generation: Option<u32>,
    /// The most PCIe lanes that device and slot can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_width: Option<u32>,
    /// How it reaches the other devices, by their index: `nvlink`, or the level of the tree where they meet, such as `same-board`, `host-bridge`, `numa-node`, `system`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub links: BTreeMap<u32, String>,
}
