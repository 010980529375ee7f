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
use crate::results::record::telemetry::{Gpu, GpuProcess, Source, Values};
use crate::telemetry::gpu::Look;
use crate::telemetry::gpu::processes::{Occupancy, Processes};
use crate::telemetry::probe::{Probe, Reading};

/// Interval of values that change quickly.
const OFTEN: Duration = Duration::from_millis(100);

/// Average duration of a call below which each reading requests all values. A call that blocks costs a thread
/// wake-up; reading all values of eight GPUs with blocking calls would cost a hundredth of a core. [`Turn`]
/// then spreads the calls.
const BRISK: Duration = Duration::from_micros(500);

/// Values that one call returns together: energy since the driver was loaded in mJ, current power in mW,
/// memory temperature in °C (0 without a sensor). On newer GPUs the separate call for power returns a mean
/// over one second.
const FIELDS: [u32; 3] = [
    field_id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION,
    field_id::NVML_FI_DEV_POWER_INSTANT,
    field_id::NVML_FI_DEV_MEMORY_TEMP,
];

/// Error counters of a GPU, with the names used here: uncorrectable memory errors since the driver was
/// loaded, memory rows remapped after such errors, and whether a remapping failed.
const FAULTS: [(u32, &str); 3] = [
    (field_id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL, "ecc_uncorrected"),
    (field_id::NVML_FI_DEV_REMAPPED_UNC, "rows_remapped"),
    (field_id::NVML_FI_DEV_REMAPPED_FAILURE, "row_remap_failed"),
];

/// Interval of the process list and of throughput, which the driver measures over about 20 ms.
const SELDOM: Duration = Duration::from_secs(1);

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
            Err(error) if file.is_none() && is_absence(&error) => return Ok(None),
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
    pub(super) fn probes(self, gpu: &Gpu, processes: &Processes) -> Vec<Box<dyn Probe>> {
        let quick = Quick {
            asked: Asked::of(self.0, gpu),
            readings: 0,
            is_brisk: true,
        };
        let slow = Slow {
            asked: Asked::of(self.0, gpu),
            processes: processes.clone(),
            last: None,
        };
        vec![Box::new(quick), Box::new(slow)]
    }

    pub(super) fn look(self, gpu: &Gpu) -> Result<Look, String> {
        let mut asked = Asked::of(self.0, gpu);
        Ok(Look {
            values: quick(&mut asked, Turn::WHOLE)?,
            processes: asked.processes()?,
        })
    }
}

/// Whether the error means that the host has no NVIDIA library or driver.
const fn is_absence(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::LibloadingError(_) | NvmlError::DriverNotLoaded | NvmlError::LibraryNotFound
    )
}

/// Whether the error means that the GPU does not respond at all.
const fn is_death(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::GpuLost
            | NvmlError::ResetRequired
            | NvmlError::DriverNotLoaded
            | NvmlError::Uninitialized
            | NvmlError::IrqIssue
    )
}

/// The calls. Each is a bit in the set of unsupported calls, [`Asked::lacks`].
#[derive(Clone, Copy, Debug)]
enum Call {
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

impl Call {
    /// Whether a MIG instance takes the value from the whole GPU, which alone reports it: clocks,
    /// temperature, bus. Power, energy and load of the whole GPU cover all instances, so they are not used
    /// for one.
    const fn is_of_whole(self) -> bool {
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
struct Asked {
    nvml: &'static Nvml,
    index: u32,
    uuid: Option<String>,
    /// UUID of the whole GPU if the device is a MIG instance.
    whole: Option<String>,
    /// Looked up again after an error, because a GPU that was reset has a new handle.
    device: Option<Device<'static>>,
    lacks: u32,
    /// Which fields of [`FIELDS`] are supported, as far as known.
    offers: [bool; FIELDS.len()],
    /// Why the last call returned no value.
    trouble: Option<NvmlError>,
    calls: u32,
}

impl Asked {
    fn of(nvml: &'static Nvml, gpu: &Gpu) -> Self {
        Self {
            nvml,
            index: gpu.device,
            uuid: gpu.uuid.clone(),
            whole: gpu
                .instance
                .as_ref()
                .and_then(|instance| instance.gpu_uuid.clone()),
            device: None,
            lacks: 0,
            offers: [true; FIELDS.len()],
            trouble: None,
            calls: 0,
        }
    }

    /// Makes a call. `None` if the GPU does not support it or has no value now. Fails if the GPU does not
    /// respond at all.
    fn ask<T>(
        &mut self,
        call: Call,
        make: impl FnOnce(&Device<'static>) -> Result<T, NvmlError>,
    ) -> Result<Option<T>, String> {
        let bit = 1 << call as u32;
        if self.lacks & bit != 0 {
            return Ok(None);
        }
        self.calls += 1;
        let device = match self.whole.as_deref().filter(|_| call.is_of_whole()) {
            Some(whole) => self.nvml.device_by_uuid(whole).and_then(|whole| make(&whole)),
            None => self.found().and_then(make),
        };
        match device {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_death(&error) => {
                self.device = None;
                Err(format!("GPU {} tells nothing: {error}", self.index))
            }
            Err(error) => {
                if matches!(
                    error,
                    NvmlError::NotSupported
                        | NvmlError::FailedToLoadSymbol(_)
                        | NvmlError::FunctionNotFound
                        | NvmlError::NoPermission
                ) {
                    self.lacks |= bit;
                }
                self.trouble = Some(error);
                Ok(None)
            }
        }
    }

    fn found(&mut self) -> Result<&Device<'static>, NvmlError> {
        let device = match (self.device.take(), &self.uuid) {
            (Some(device), _) => device,
            (None, Some(uuid)) => self.nvml.device_by_uuid(uuid.as_str())?,
            (None, None) => self.nvml.device_by_index(self.index)?,
        };
        Ok(self.device.insert(device))
    }

    /// Compute processes on the GPU.
    fn processes(&mut self) -> Result<Option<Vec<GpuProcess>>, String> {
        let told = self.ask(Call::Processes, Device::running_compute_processes)?;
        let process = |told: nvml_wrapper::struct_wrappers::device::ProcessInfo| GpuProcess {
            pid: told.pid,
            name: proc::name(told.pid),
            memory_bytes: match told.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            },
        };
        Ok(told.map(|told| told.into_iter().map(process).collect()))
    }

    /// Returns `values`, or the last error if they are empty.
    fn told(&mut self, values: Values) -> Result<Values, String> {
        match self.trouble.take() {
            Some(error) if values.is_empty() => Err(format!("GPU {} tells nothing: {error}", self.index)),
            _ => Ok(values),
        }
    }
}

struct Quick {
    asked: Asked,
    readings: u64,
    /// Whether the calls of the last reading were faster than [`BRISK`].
    is_brisk: bool,
}

/// What a reading requests besides power and energy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    /// Utilization and the SM clock.
    load: bool,
    throttling: bool,
    /// Values that change slowly: temperature, memory use, memory clock.
    slow: bool,
}

impl Turn {
    const WHOLE: Self = Self {
        load: true,
        throttling: true,
        slow: true,
    };

    /// What a reading requests if the driver is slow: load and throttling about three times a second, which
    /// is as often as the driver updates them, and the rest about once.
    const fn of(reading: u64) -> Self {
        Self {
            load: reading.is_multiple_of(3),
            throttling: reading % 3 == 1,
            slow: reading % 9 == 2,
        }
    }
}

impl Probe for Quick {
    fn source(&self) -> Source {
        Source::Nvml
    }

    fn device(&self) -> Option<u32> {
        Some(self.asked.index)
    }

    fn period(&self) -> Duration {
        OFTEN
    }

    fn read(&mut self) -> Result<Vec<Reading>, String> {
        let turn = match self.is_brisk {
            true => Turn::WHOLE,
            false => Turn::of(self.readings),
        };
        self.readings += 1;
        self.asked.calls = 0;
        let began = clock::now();
        let values = quick(&mut self.asked, turn)?;
        self.is_brisk = clock::now().since(began) < BRISK * self.asked.calls;
        Ok(vec![Reading {
            device: Some(self.asked.index),
            values,
        }])
    }
}

/// Reads power and energy, and the values selected by `turn`.
fn quick(asked: &mut Asked, turn: Turn) -> Result<Values, String> {
    let mut values = Values::new();
    let mut put = |name: &str, value: Option<f64>| {
        values.extend(value.map(|value| (name.to_owned(), value)));
    };
    let [energy, power, memory_heat] = fields(asked)?;
    let power = match power {
        Some(milliwatts) => Some(milliwatts),
        None => asked.ask(Call::Power, Device::power_usage)?.map(f64::from),
    };
    put("power_w", power.map(|milliwatts| milliwatts / 1e3));
    let energy = match energy {
        Some(millijoules) => Some(millijoules),
        None => asked
            .ask(Call::Energy, Device::total_energy_consumption)?
            .map(|millijoules| millijoules as f64),
    };
    put("energy_j", energy.map(|millijoules| millijoules / 1e3));
    put(
        "memory_temperature_c",
        memory_heat.filter(|degrees| *degrees > 0.0),
    );
    if turn.load {
        let used = asked.ask(Call::Utilization, Device::utilization_rates)?;
        put(
            "gpu_util_share",
            used.as_ref().map(|used| f64::from(used.gpu) / 1e2),
        );
        put("memory_util_share", used.map(|used| f64::from(used.memory) / 1e2));
        let clock = asked.ask(Call::SmClock, |device| device.clock_info(Clock::SM))?;
        put("sm_clock_mhz", clock.map(f64::from));
    }
    if turn.throttling {
        let reasons = asked.ask(Call::Throttle, |device| {
            match device.current_throttle_reasons_strict() {
                // A throttle reason that the crate does not know.
                Err(NvmlError::IncorrectBits(Bits::U64(bits))) => Ok(bits),
                told => told.map(|reasons| reasons.bits()),
            }
        })?;
        for (name, is_so) in reasons.map(throttled).into_iter().flatten() {
            put(name, Some(f64::from(u8::from(is_so))));
        }
    }
    if turn.slow {
        let memory = asked.ask(Call::Memory, Device::memory_info)?;
        put("memory_used_bytes", memory.map(|memory| memory.used as f64));
        let heat = asked.ask(Call::Temperature, |device| {
            device.temperature(TemperatureSensor::Gpu)
        })?;
        put("temperature_c", heat.map(f64::from));
        let clock = asked.ask(Call::MemoryClock, |device| device.clock_info(Clock::Memory))?;
        put("memory_clock_mhz", clock.map(f64::from));
    }
    asked.told(values)
}

/// Values of [`FIELDS`], in their order.
type Told = [Option<f64>; FIELDS.len()];

fn fields(asked: &mut Asked) -> Result<Told, String> {
    let mut told = Told::default();
    let wanted: Vec<usize> = (0..FIELDS.len()).filter(|at| asked.offers[*at]).collect();
    if wanted.is_empty() {
        return Ok(told);
    }
    let ids: Vec<FieldId> = wanted.iter().map(|at| FieldId(FIELDS[*at])).collect();
    let answers = asked.ask(Call::Fields, |device| {
        let answers = device.field_values_for(&ids)?.into_iter();
        let values: Vec<Result<SampleValue, NvmlError>> = answers
            .map(|answer| answer.and_then(|sample| sample.value))
            .collect();
        match values.into_iter().collect::<Vec<_>>() {
            values if values.iter().any(|value| value.as_ref().is_err_and(is_death)) => {
                Err(NvmlError::GpuLost)
            }
            values => Ok(values),
        }
    })?;
    for (at, answer) in wanted.into_iter().zip(answers.into_iter().flatten()) {
        match answer {
            Ok(SampleValue::U32(value)) => told[at] = Some(f64::from(value)),
            Ok(SampleValue::U64(value)) => told[at] = Some(value as f64),
            Ok(SampleValue::I64(value)) => told[at] = Some(value as f64),
            Ok(SampleValue::F64(value)) => told[at] = Some(value),
            Err(_) => asked.offers[at] = false,
        }
    }
    Ok(told)
}

/// Throttle reasons under the names used here. Idle GPUs and clocks set by the user are not throttled.
fn throttled(bits: u64) -> [(&'static str, bool); 4] {
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
struct Slow {
    asked: Asked,
    processes: Processes,
    /// Previous sample; NVLink throughput is computed from two samples.
    last: Option<GpmSample<'static>>,
}

impl Probe for Slow {
    fn source(&self) -> Source {
        Source::Nvml
    }

    fn device(&self) -> Option<u32> {
        Some(self.asked.index)
    }

    fn period(&self) -> Duration {
        SELDOM
    }

    fn read(&mut self) -> Result<Vec<Reading>, String> {
        let mut values = Values::new();
        let rates = [
            ("pcie_tx_bytes_per_s", Call::Sent, PcieUtilCounter::Send),
            ("pcie_rx_bytes_per_s", Call::Received, PcieUtilCounter::Receive),
        ];
        for (name, call, counter) in rates {
            let rate = self.asked.ask(call, |device| device.pcie_throughput(counter))?;
            values.extend(rate.map(|kilobytes| (name.to_owned(), f64::from(kilobytes) * 1e3)));
        }
        let bus = [
            (
                "pcie_generation",
                Call::PcieGeneration,
                Device::current_pcie_link_gen as fn(&Device<'static>) -> _,
            ),
            ("pcie_width", Call::PcieWidth, Device::current_pcie_link_width),
        ];
        for (name, call, read) in bus {
            let told = self.asked.ask(call, read)?;
            values.extend(told.map(|told| (name.to_owned(), f64::from(told))));
        }
        self.faults(&mut values)?;
        self.links(&mut values)?;
        if let Some(now) = self.asked.processes()? {
            let Occupancy { foreign, own_bytes } = self.processes.see(self.asked.index, &now);
            values.insert("processes".to_owned(), now.len() as f64);
            values.insert("foreign_processes".to_owned(), foreign as f64);
            values.extend(own_bytes.map(|bytes| ("own_memory_bytes".to_owned(), bytes as f64)));
        }
        let values = self.asked.told(values)?;
        Ok(vec![Reading {
            device: Some(self.asked.index),
            values,
        }])
    }
}

impl Slow {
    /// Adds the GPU's error counters.
    fn faults(&mut self, values: &mut Values) -> Result<(), String> {
        let ids = FAULTS.map(|(id, _)| FieldId(id));
        let told = self.asked.ask(Call::Faults, |device| {
            let told = device.field_values_for(&ids)?.into_iter();
            let told: Vec<_> = told
                .map(|told| told.and_then(|sample| sample.value).ok())
                .collect();
            match told.iter().all(Option::is_none) {
                true => Err(NvmlError::NotSupported),
                false => Ok(told),
            }
        })?;
        for ((_, name), told) in FAULTS.into_iter().zip(told.into_iter().flatten()) {
            let count = match told {
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
    fn links(&mut self, values: &mut Values) -> Result<(), String> {
        let (nvml, is_first) = (self.asked.nvml, self.last.is_none());
        let now = self.asked.ask(Call::Gpm, |device| {
            if is_first && !device.gpm_support()? {
                return Err(NvmlError::NotSupported);
            }
            device.gpm_sample()
        })?;
        let last = std::mem::replace(&mut self.last, now);
        let (Some(last), Some(now)) = (&last, &self.last) else {
            return Ok(());
        };
        let wanted = [
            ("nvlink_tx_bytes_per_s", GpmMetricId::NvlinkTotalTxPerSec),
            ("nvlink_rx_bytes_per_s", GpmMetricId::NvlinkTotalRxPerSec),
        ];
        let told = gpm_metrics_get(nvml, last, now, &wanted.map(|(_, id)| id)).unwrap_or_default();
        for ((name, _), told) in wanted.into_iter().zip(told) {
            // The metric is in MiB per second.
            values.extend(
                told.ok()
                    .map(|told| (name.to_owned(), told.value * 1024.0 * 1024.0)),
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
        let told = |bits: ThrottleReasons| {
            let all = throttled(bits.bits()).into_iter();
            let so: Vec<&str> = all.filter(|(_, is_so)| *is_so).map(|(name, _)| name).collect();
            so
        };
        let reasons = ThrottleReasons::GPU_IDLE | ThrottleReasons::SYNC_BOOST;
        assert!(told(reasons | ThrottleReasons::APPLICATIONS_CLOCKS_SETTING).is_empty());
        assert_eq!(told(ThrottleReasons::SW_POWER_CAP | reasons), ["throttled_power"]);
        assert_eq!(told(ThrottleReasons::SW_THERMAL_SLOWDOWN), ["throttled_thermal"]);
        let slow = ThrottleReasons::HW_SLOWDOWN;
        assert_eq!(told(slow), ["throttled_hardware"]);
        assert_eq!(
            told(slow | ThrottleReasons::HW_THERMAL_SLOWDOWN),
            ["throttled_thermal"]
        );
        assert_eq!(
            told(slow | ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN),
            ["throttled_hardware"]
        );
        let unknown = throttled(1 << 20);
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
