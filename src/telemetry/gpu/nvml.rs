//! NVIDIA GPUs, read with NVML. Only this module uses its crate. The library is loaded on first use, so that
//! a host without it behaves like one without a GPU.
//!
//! A GPU is looked up by its UUID. Values that the GPU or driver does not support are left out and not
//! requested again. A GPU that has fallen off the bus is an error.

mod facts;

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::enums::device::{SampleValue, UsedGpuMemory};
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::{Bits, NvmlError};
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id;
use nvml_wrapper::{Device, Nvml};

use crate::base::clock;
use crate::base::proc;
use crate::results::record::telemetry::{Gpu, GpuProcess, SampleValues, TelemetrySource};
use crate::telemetry::gpu::DeviceSnapshot;
use crate::telemetry::gpu::processes::{DeviceProcesses, Occupancy};
use crate::telemetry::probe::{Probe, Reading};

/// Interval of values that change quickly.
const FAST_PERIOD: Duration = Duration::from_millis(100);

/// Average duration of a call below which each reading requests all values. A call that blocks costs a thread
/// wake-up; reading all values of eight GPUs with blocking calls would cost a hundredth of a core. [`Turn`]
/// then spreads the calls.
const FAST_CALL_LIMIT: Duration = Duration::from_micros(500);

/// Values that one call returns together: energy since the driver was loaded in mJ, current power in mW,
/// memory temperature in °C (0 without a sensor). On newer GPUs the separate call for power returns a mean
/// over one second.
const FAST_FIELDS: [u32; 3] = [
    field_id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
    field_id::NVML_FI_DEV_POWER_INSTANT,
    field_id::NVML_FI_DEV_MEMORY_TEMP,
];

/// Error counters of a GPU, with the names used here: uncorrectable memory errors since the driver was
/// loaded, memory rows remapped after such errors, and whether a remapping failed.
const FAULT_COUNTERS: [(u32, &str); 3] = [
    (field_id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL, "ecc_uncorrected"),
    (field_id::NVML_FI_DEV_REMAPPED_UNC, "rows_remapped"),
    (field_id::NVML_FI_DEV_REMAPPED_FAILURE, "row_remap_failed"),
];

/// Interval of the process list and of throughput, which the driver measures over about 20 ms.
const SLOW_PERIOD: Duration = Duration::from_secs(1);

/// The initialized library. It stays loaded until the program ends, because a hanging call may still use it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Library(&'static Nvml);

impl Library {
    /// Loads the library and reads the static facts of its GPUs; `None` if there is no library or no driver.
    pub(super) fn open(file: Option<&Path>) -> Result<Option<(Self, Vec<Gpu>)>, String> {
        let mut builder = Nvml::builder();
        if let Some(file) = file {
            builder.lib_path(file.as_os_str());
        }
        let nvml = match builder.init() {
            Ok(nvml) => nvml,
            Err(error) if file.is_none() && is_unsupported(&error) => return Ok(None),
            Err(error) => {
                let file = file.map_or(OsStr::new("NVIDIA's library"), Path::as_os_str);
                return Err(format!("{} cannot be used: {error}", file.display()));
            }
        };
        let nvml: &'static Nvml = Box::leak(Box::new(nvml));
        let facts = facts::read(nvml)?;
        Ok(Some((Self(nvml), facts)))
    }

    /// The probes of a GPU: one for values that change quickly, one for the others.
    pub(super) fn probes(self, gpu: &Gpu, processes: &DeviceProcesses) -> Vec<Box<dyn Probe>> {
        let quick = FastProbe {
            device: QueriedDevice::new(self.0, gpu),
            readings: 0,
            is_fast: true,
        };
        let slow = SlowProbe {
            device: QueriedDevice::new(self.0, gpu),
            processes: processes.clone(),
            last_gpm_sample: None,
        };
        vec![Box::new(quick), Box::new(slow)]
    }

    pub(super) fn snapshot(self, gpu: &Gpu) -> Result<DeviceSnapshot, String> {
        let mut queried = QueriedDevice::new(self.0, gpu);
        Ok(DeviceSnapshot {
            values: read_fast(&mut queried, ReadPlan::ALL)?,
            processes: queried.processes()?,
        })
    }
}

/// Whether the error means that the host has no NVIDIA library or driver.
const fn is_unsupported(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::LibloadingError(_) | NvmlError::DriverNotLoaded | NvmlError::LibraryNotFound
    )
}

/// Whether the error means that the GPU does not respond at all.
const fn is_device_lost(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::GpuLost
            | NvmlError::ResetRequired
            | NvmlError::DriverNotLoaded
            | NvmlError::Uninitialized
            | NvmlError::IrqIssue
    )
}

/// What is queried from NVML. Each is a bit in [`QueriedDevice::unsupported_calls`].
#[derive(Clone, Copy, Debug)]
enum NvmlQuery {
    Power,
    Energy,
    Utilization,
    Memory,
    Temperature,
    Fields,
    SmClock,
    MemoryClock,
    Throttle,
    Sent,
    Received,
    Gpm,
    Processes,
    PcieGeneration,
    PcieWidth,
    Faults,
}

impl NvmlQuery {
    /// Whether a MIG instance takes the value from the whole GPU, which alone reports it: clocks,
    /// temperature, bus. Power, energy and load of the whole GPU cover all instances, so they are not used
    /// for one.
    const fn is_whole_gpu_only(self) -> bool {
        matches!(
            self,
            Self::Temperature
                | Self::SmClock
                | Self::MemoryClock
                | Self::Throttle
                | Self::PcieGeneration
                | Self::PcieWidth
                | Self::Faults
        )
    }
}

/// A GPU with its handle and the calls that it does not support.
struct QueriedDevice {
    nvml: &'static Nvml,
    index: u32,
    uuid: Option<String>,
    /// UUID of the whole GPU if the device is a MIG instance.
    whole_gpu: Option<String>,
    /// Looked up again after an error, because a GPU that was reset has a new handle.
    device: Option<Device<'static>>,
    unsupported_calls: u32,
    /// Which fields of [`FIELDS`] are supported, as far as known.
    supported_fields: [bool; FAST_FIELDS.len()],
    /// Why the last call returned no value.
    last_error: Option<NvmlError>,
    calls: u32,
}

impl QueriedDevice {
    fn new(nvml: &'static Nvml, gpu: &Gpu) -> Self {
        Self {
            nvml,
            index: gpu.device,
            uuid: gpu.uuid.clone(),
            whole_gpu: gpu
                .instance
                .as_ref()
                .and_then(|instance| instance.gpu_uuid.clone()),
            device: None,
            unsupported_calls: 0,
            supported_fields: [true; FAST_FIELDS.len()],
            last_error: None,
            calls: 0,
        }
    }

    /// Makes a call. `None` if the GPU does not support it or has no value now. Fails if the GPU does not
    /// respond at all.
    fn call<T>(
        &mut self,
        call: NvmlQuery,
        make: impl FnOnce(&Device<'static>) -> Result<T, NvmlError>,
    ) -> Result<Option<T>, String> {
        let bit = 1 << call as u32;
        if self.unsupported_calls & bit != 0 {
            return Ok(None);
        }
        self.calls += 1;
        let device = match self.whole_gpu.as_deref().filter(|_| call.is_whole_gpu_only()) {
            Some(whole_gpu) => self
                .nvml
                .device_by_uuid(whole_gpu)
                .and_then(|whole_gpu| make(&whole_gpu)),
            None => self.handle().and_then(make),
        };
        match device {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_device_lost(&error) => {
                self.device = None;
                Err(format!("GPU {} cannot be read: {error}", self.index))
            }
            Err(error) => {
                if matches!(
                    error,
                    NvmlError::NotSupported
                        | NvmlError::FailedToLoadSymbol(_)
                        | NvmlError::FunctionNotFound
                        | NvmlError::NoPermission
                ) {
                    self.unsupported_calls |= bit;
                }
                self.last_error = Some(error);
                Ok(None)
            }
        }
    }

    fn handle(&mut self) -> Result<&Device<'static>, NvmlError> {
        let device = match (self.device.take(), &self.uuid) {
            (Some(device), _) => device,
            (None, Some(uuid)) => self.nvml.device_by_uuid(uuid.as_str())?,
            (None, None) => self.nvml.device_by_index(self.index)?,
        };
        Ok(self.device.insert(device))
    }

    /// Compute processes on the GPU.
    fn processes(&mut self) -> Result<Option<Vec<GpuProcess>>, String> {
        let result = self.call(NvmlQuery::Processes, Device::running_compute_processes)?;
        let process = |result: nvml_wrapper::struct_wrappers::device::ProcessInfo| GpuProcess {
            pid: result.pid,
            name: proc::process_name(result.pid),
            memory_bytes: match result.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        };
        Ok(result.map(|result| result.into_iter().map(process).collect()))
    }

    /// Returns `values`, or the last error if they are empty.
    fn result(&mut self, values: SampleValues) -> Result<SampleValues, String> {
        match self.last_error.take() {
            Some(error) if values.is_empty() => Err(format!("GPU {} cannot be read: {error}", self.index)),
            _ => Ok(values),
        }
    }
}

struct FastProbe {
    device: QueriedDevice,
    readings: u64,
    /// Whether the calls of the last reading were faster than [`FAST_CALL_LIMIT`].
    is_fast: bool,
}

/// What a reading requests besides power and energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReadPlan {
    /// Utilization and the SM clock.
    load: bool,
    throttling: bool,
    /// Values that change slowly: temperature, memory use, memory clock.
    slow: bool,
}

impl ReadPlan {
    const ALL: Self = Self {
        load: true,
        throttling: true,
        slow: true,
    };

    /// What a reading requests if the driver is slow: load and throttling about three times a second, which
    /// is as often as the driver updates them, and the rest about once.
    const fn for_reading(reading: u64) -> Self {
        Self {
            load: reading.is_multiple_of(3),
            throttling: reading % 3 == 1,
            slow: reading % 9 == 2,
        }
    }
}

impl Probe for FastProbe {
    fn source(&self) -> TelemetrySource {
        TelemetrySource::Nvml
    }

    fn device(&self) -> Option<u32> {
        Some(self.device.index)
    }

    fn period(&self) -> Duration {
        FAST_PERIOD
    }

    fn read(&mut self) -> Result<Vec<Reading>, String> {
        let plan = match self.is_fast {
            true => ReadPlan::ALL,
            false => ReadPlan::for_reading(self.readings),
        };
        self.readings += 1;
        self.device.calls = 0;
        let began = clock::now();
        let values = read_fast(&mut self.device, plan)?;
        self.is_fast = clock::now().since(began) < FAST_CALL_LIMIT * self.device.calls;
        Ok(vec![Reading {
            device: Some(self.device.index),
            values,
        }])
    }
}

/// Reads power and energy, and the values selected by `turn`.
fn read_fast(queried: &mut QueriedDevice, plan: ReadPlan) -> Result<SampleValues, String> {
    let mut values = SampleValues::new();
    let mut put = |name: &str, value: Option<f64>| {
        values.extend(value.map(|value| (name.to_owned(), value)));
    };
    let [energy, power, memory_heat] = read_fields(queried)?;
    let power = match power {
        Some(milliwatts) => Some(milliwatts),
        None => queried
            .call(NvmlQuery::Power, Device::power_usage)?
            .map(f64::from),
    };
    put("power_w", power.map(|milliwatts| milliwatts / 1e3));
    let energy = match energy {
        Some(millijoules) => Some(millijoules),
        None => queried
            .call(NvmlQuery::Energy, Device::total_energy_consumption)?
            .map(|millijoules| millijoules as f64),
    };
    put("energy_j", energy.map(|millijoules| millijoules / 1e3));
    put(
        "memory_temperature_c",
        memory_heat.filter(|degrees| *degrees > 0.0),
    );
    if plan.load {
        let used = queried.call(NvmlQuery::Utilization, Device::utilization_rates)?;
        put(
            "gpu_util_share",
            used.as_ref().map(|used| f64::from(used.gpu) / 1e2),
        );
        put("memory_util_share", used.map(|used| f64::from(used.memory) / 1e2));
        let clock = queried.call(NvmlQuery::SmClock, |device| device.clock_info(Clock::SM))?;
        put("sm_clock_mhz", clock.map(f64::from));
    }
    if plan.throttling {
        let reasons = queried.call(NvmlQuery::Throttle, |device| {
            match device.current_throttle_reasons_strict() {
                // A throttle reason that the crate does not know.
                Err(NvmlError::IncorrectBits(Bits::U64(bits))) => Ok(bits),
                result => result.map(|reasons| reasons.bits()),
            }
        })?;
        for (name, is_so) in reasons.map(throttle_reasons).into_iter().flatten() {
            put(name, Some(f64::from(u8::from(is_so))));
        }
    }
    if plan.slow {
        let memory = queried.call(NvmlQuery::Memory, Device::memory_info)?;
        put("memory_used_bytes", memory.map(|memory| memory.used as f64));
        let heat = queried.call(NvmlQuery::Temperature, |device| {
            device.temperature(TemperatureSensor::Gpu)
        })?;
        put("temperature_c", heat.map(f64::from));
        let clock = queried.call(NvmlQuery::MemoryClock, |device| device.clock_info(Clock::Memory))?;
        put("memory_clock_mhz", clock.map(f64::from));
    }
    queried.result(values)
}

/// Values of [`FIELDS`], in their order.
type FieldValues = [Option<f64>; FAST_FIELDS.len()];

fn read_fields(queried: &mut QueriedDevice) -> Result<FieldValues, String> {
    let mut result = FieldValues::default();
    let requested: Vec<usize> = (0..FAST_FIELDS.len())
        .filter(|at| queried.supported_fields[*at])
        .collect();
    if requested.is_empty() {
        return Ok(result);
    }
    let ids: Vec<FieldId> = requested.iter().map(|at| FieldId(FAST_FIELDS[*at])).collect();
    let answers = queried.call(NvmlQuery::Fields, |device| {
        let answers = device.field_values_for(&ids)?.into_iter();
        let values: Vec<Result<SampleValue, NvmlError>> = answers
            .map(|answer| answer.and_then(|sample| sample.value))
            .collect();
        match values.into_iter().collect::<Vec<_>>() {
            values
                if values
                    .iter()
                    .any(|value| value.as_ref().is_err_and(is_device_lost)) =>
            {
                Err(NvmlError::GpuLost)
            }
            values => Ok(values),
        }
    })?;
    for (at, answer) in requested.into_iter().zip(answers.into_iter().flatten()) {
        match answer {
            Ok(SampleValue::U32(value)) => result[at] = Some(f64::from(value)),
            Ok(SampleValue::U64(value)) => result[at] = Some(value as f64),
            Ok(SampleValue::I64(value)) => result[at] = Some(value as f64),
            Ok(SampleValue::F64(value)) => result[at] = Some(value),
            Err(_) => queried.supported_fields[at] = false,
        }
    }
    Ok(result)
}

/// Throttle reasons under the names used here. Idle GPUs and clocks set by the user are not throttled.
fn throttle_reasons(bits: u64) -> [(&'static str, bool); 4] {
    let has = |reason: ThrottleReasons| bits & reason.bits() != 0;
    let chosen = ThrottleReasons::GPU_IDLE
        | ThrottleReasons::APPLICATIONS_CLOCKS_SETTING
        | ThrottleReasons::SYNC_BOOST;
    let named = ThrottleReasons::SW_POWER_CAP
        | ThrottleReasons::HW_SLOWDOWN
        | ThrottleReasons::SW_THERMAL_SLOWDOWN
        | ThrottleReasons::HW_THERMAL_SLOWDOWN
        | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN;
    let is_hot = has(ThrottleReasons::SW_THERMAL_SLOWDOWN) || has(ThrottleReasons::HW_THERMAL_SLOWDOWN);
    // `HW_SLOWDOWN` is also set together with its causes, such as heat.
    let is_braked = has(ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN)
        || (has(ThrottleReasons::HW_SLOWDOWN) && !has(ThrottleReasons::HW_THERMAL_SLOWDOWN));
    [
        ("throttled_thermal", is_hot),
        ("throttled_power", has(ThrottleReasons::SW_POWER_CAP)),
        ("throttled_hardware", is_braked),
        ("throttled_other", bits & !(chosen | named).bits() != 0),
    ]
}

/// Probe of values that change slowly: throughput, PCIe link, faults, processes.
struct SlowProbe {
    device: QueriedDevice,
    processes: DeviceProcesses,
    /// Previous sample; NVLink throughput is computed from two samples.
    last_gpm_sample: Option<GpmSample<'static>>,
}

impl Probe for SlowProbe {
    fn source(&self) -> TelemetrySource {
        TelemetrySource::Nvml
    }

    fn device(&self) -> Option<u32> {
        Some(self.device.index)
    }

    fn period(&self) -> Duration {
        SLOW_PERIOD
    }

    fn read(&mut self) -> Result<Vec<Reading>, String> {
        let mut values = SampleValues::new();
        let rates = [
            ("pcie_tx_bytes_per_s", NvmlQuery::Sent, PcieUtilCounter::Send),
            (
                "pcie_rx_bytes_per_s",
                NvmlQuery::Received,
                PcieUtilCounter::Receive,
            ),
        ];
        for (name, call, counter) in rates {
            let rate = self.device.call(call, |device| device.pcie_throughput(counter))?;
            values.extend(rate.map(|kilobytes| (name.to_owned(), f64::from(kilobytes) * 1e3)));
        }
        let bus = [
            (
                "pcie_generation",
                NvmlQuery::PcieGeneration,
                Device::current_pcie_link_gen as fn(&Device<'static>) -> _,
            ),
            (
                "pcie_width",
                NvmlQuery::PcieWidth,
                Device::current_pcie_link_width,
            ),
        ];
        for (name, call, read) in bus {
            let result = self.device.call(call, read)?;
            values.extend(result.map(|result| (name.to_owned(), f64::from(result))));
        }
        self.read_faults(&mut values)?;
        self.read_links(&mut values)?;
        if let Some(now) = self.device.processes()? {
            let Occupancy { foreign, own_bytes } = self.processes.record(self.device.index, &now);
            values.insert("processes".to_owned(), now.len() as f64);
            values.insert("foreign_processes".to_owned(), foreign as f64);
            values.extend(own_bytes.map(|bytes| ("own_memory_bytes".to_owned(), bytes as f64)));
        }
        let values = self.device.result(values)?;
        Ok(vec![Reading {
            device: Some(self.device.index),
            values,
        }])
    }
}

impl SlowProbe {
    /// Adds the GPU's error counters.
    fn read_faults(&mut self, values: &mut SampleValues) -> Result<(), String> {
        let ids = FAULT_COUNTERS.map(|(id, _)| FieldId(id));
        let result = self.device.call(NvmlQuery::Faults, |device| {
            let result = device.field_values_for(&ids)?.into_iter();
            let result: Vec<_> = result
                .map(|result| result.and_then(|sample| sample.value).ok())
                .collect();
            match result.iter().all(Option::is_none) {
                true => Err(NvmlError::NotSupported),
                false => Ok(result),
            }
        })?;
        for ((_, name), result) in FAULT_COUNTERS.into_iter().zip(result.into_iter().flatten()) {
            let count = match result {
                Some(SampleValue::U32(count)) => f64::from(count),
                Some(SampleValue::U64(count)) => count as f64,
                _ => continue,
            };
            values.insert(name.to_owned(), count);
        }
        Ok(())
    }

    /// Adds the throughput of all NVLinks since the last reading. Supported from Hopper on. Older GPUs report
    /// it only per link, with a scope that the crate does not support.
    fn read_links(&mut self, values: &mut SampleValues) -> Result<(), String> {
        let (nvml, is_first) = (self.device.nvml, self.last_gpm_sample.is_none());
        let now = self.device.call(NvmlQuery::Gpm, |device| {
            if is_first && !device.gpm_support()? {
                return Err(NvmlError::NotSupported);
            }
            device.gpm_sample()
        })?;
        let last = std::mem::replace(&mut self.last_gpm_sample, now);
        let (Some(last), Some(now)) = (&last, &self.last_gpm_sample) else {
            return Ok(());
        };
        let requested = [
            ("nvlink_tx_bytes_per_s", GpmMetricId::NvlinkTotalTxPerSec),
            ("nvlink_rx_bytes_per_s", GpmMetricId::NvlinkTotalRxPerSec),
        ];
        let result = gpm_metrics_get(nvml, last, now, &requested.map(|(_, id)| id)).unwrap_or_default();
        for ((name, _), result) in requested.into_iter().zip(result) {
            // The metric is in MiB per second.
            values.extend(
                result
                    .ok()
                    .map(|result| (name.to_owned(), result.value * 1024.0 * 1024.0)),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_apart_and_being_idle_is_none() {
        let result = |bits: ThrottleReasons| {
            let all = throttle_reasons(bits.bits()).into_iter();
            let so: Vec<&str> = all.filter(|(_, is_so)| *is_so).map(|(name, _)| name).collect();
            so
        };
        let reasons = ThrottleReasons::GPU_IDLE | ThrottleReasons::SYNC_BOOST;
        assert!(result(reasons | ThrottleReasons::APPLICATIONS_CLOCKS_SETTING).is_empty());
        assert_eq!(
            result(ThrottleReasons::SW_POWER_CAP | reasons),
            ["throttled_power"]
        );
        assert_eq!(
            result(ThrottleReasons::SW_THERMAL_SLOWDOWN),
            ["throttled_thermal"]
        );
        let slow = ThrottleReasons::HW_SLOWDOWN;
        assert_eq!(result(slow), ["throttled_hardware"]);
        assert_eq!(
            result(slow | ThrottleReasons::HW_THERMAL_SLOWDOWN),
            ["throttled_thermal"]
        );
        assert_eq!(
            result(slow | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN),
            ["throttled_hardware"]
        );
        let unknown = throttle_reasons(1 << 20);
        assert_eq!(unknown.map(|(_, is_so)| is_so), [false, false, false, true]);
    }

    #[test]
    fn a_host_without_the_library_is_one_without_a_gpu_but_a_named_one_must_be_there() {
        let named = Library::open(Some(Path::new("/nowhere/libnvidia-ml.so.1"))).unwrap_err();
        assert!(
            named.starts_with("/nowhere/libnvidia-ml.so.1 cannot be used: "),
            "{named}"
        );
    }
}
