//! Values of a GPU that change quickly: power, energy, load, clocks, throttling.

use std::time::Duration;

use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::{Bits, NvmlError};
use nvml_wrapper::structs::device::FieldId;

use super::device::{ENERGY_FIELD, FAST_FIELDS, NvmlQuery, QueriedDevice, is_device_lost};
use crate::base::clock;
use crate::results::record::telemetry::{SampleValues, TelemetrySource};
use crate::telemetry::probe::{DeviceReading, Probe};

/// Interval of values that change quickly.
const FAST_PERIOD: Duration = Duration::from_millis(100);

/// If the mean duration of the calls of a reading is below this, the next reading requests all values. A call that blocks costs a thread
/// wake-up; reading all values of eight GPUs with blocking calls would cost a hundredth of a core. [`ReadPlan`]
/// then spreads the calls.
const MAX_MEAN_CALL_TO_READ_ALL: Duration = Duration::from_micros(500);

/// If reading the energy counter takes longer, it is read at the edges of windows and twice a second only: drivers compute for milliseconds to
/// answer (3.5 to 4.8 ms on an H200).
const MAX_ENERGY_CALL: Duration = Duration::from_millis(1);

pub(super) struct FastProbe {
    device: QueriedDevice,
    readings: u64,
    /// Whether the energy counter took longer than [`MAX_ENERGY_CALL`].
    energy_is_slow: bool,
    /// Whether the next reading requests all values, see [`MAX_MEAN_CALL_TO_READ_ALL`].
    reads_all_values: bool,
}

impl FastProbe {
    pub(super) const fn new(device: QueriedDevice) -> Self {
        Self {
            device,
            readings: 0,
            energy_is_slow: false,
            reads_all_values: true,
        }
    }
}

/// What a reading requests besides power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadPlan {
    energy: bool,
    /// Utilization and the SM clock.
    load: bool,
    throttling: bool,
    /// Values that change slowly: temperature, memory use, memory clock.
    slow: bool,
}

impl ReadPlan {
    pub(super) const ALL: Self = Self {
        energy: true,
        load: true,
        throttling: true,
        slow: true,
    };

    /// What a reading requests if the driver is slow: load and throttling about three times a second, which
    /// is as often as the driver updates them, and the rest about once.
    const fn for_reading(reading: u64) -> Self {
        Self {
            energy: true,
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

    fn read(&mut self) -> Result<Vec<DeviceReading>, String> {
        let plan = match self.reads_all_values {
            true => ReadPlan::ALL,
            false => ReadPlan::for_reading(self.readings),
        };
        self.read_planned(ReadPlan {
            energy: !self.energy_is_slow || self.readings.is_multiple_of(5),
            ..plan
        })
    }

    fn read_all(&mut self) -> Result<Vec<DeviceReading>, String> {
        self.read_planned(ReadPlan::ALL)
    }
}

impl FastProbe {
    fn read_planned(&mut self, plan: ReadPlan) -> Result<Vec<DeviceReading>, String> {
        self.readings += 1;
        self.device.calls = 0;
        let began = clock::now();
        let values = read_fast(&mut self.device, plan)?;
        let took = clock::now().since(began);
        let energy_took = self.device.energy_took;
        if plan.energy {
            self.energy_is_slow = energy_took > MAX_ENERGY_CALL;
        }
        // Its call has an interval of its own.
        let (took, calls) = match plan.energy && self.energy_is_slow {
            true => (
                took.saturating_sub(energy_took),
                self.device.calls.saturating_sub(1),
            ),
            false => (took, self.device.calls),
        };
        if calls > 0 {
            self.reads_all_values = took < MAX_MEAN_CALL_TO_READ_ALL * calls;
        }
        Ok(vec![DeviceReading {
            device: Some(self.device.index),
            values,
        }])
    }
}

/// Reads power and the values selected by `plan`.
pub(super) fn read_fast(queried: &mut QueriedDevice, plan: ReadPlan) -> Result<SampleValues, String> {
    let mut values = SampleValues::new();
    let mut put = |name: &str, value: Option<f64>| {
        values.extend(value.map(|value| (name.to_owned(), value)));
    };
    let began = clock::now();
    let [energy, power, memory_heat] = read_fields(queried, plan.energy)?;
    queried.energy_took = clock::now().since(began);
    let power = match power {
        Some(milliwatts) => Some(milliwatts),
        None => queried
            .call(NvmlQuery::Power, Device::power_usage)?
            .map(f64::from),
    };
    put("power_w", power.map(|milliwatts| milliwatts / 1e3));
    let energy = match energy {
        Some(millijoules) => Some(millijoules),
        None if !plan.energy => None,
        None => {
            let began = clock::now();
            let energy = queried.call(NvmlQuery::Energy, Device::total_energy_consumption)?;
            queried.energy_took = clock::now().since(began);
            energy.map(|millijoules| millijoules as f64)
        }
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

/// Values of [`FAST_FIELDS`], in their order.
type FieldValues = [Option<f64>; FAST_FIELDS.len()];

fn read_fields(queried: &mut QueriedDevice, with_energy: bool) -> Result<FieldValues, String> {
    let mut result = FieldValues::default();
    let requested: Vec<usize> = (0..FAST_FIELDS.len())
        .filter(|at| queried.supported_fields[*at])
        .filter(|at| with_energy || FAST_FIELDS[*at] != ENERGY_FIELD)
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
}
