//! A GPU with its handle: calls that it does not support are not repeated.

use std::time::Duration;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::sys_exports::field_id;
use nvml_wrapper::{Device, Nvml};

use crate::base::proc;
use crate::results::record::telemetry::{Gpu, GpuProcess, SampleValues};

/// The energy counter.
pub(super) const ENERGY_FIELD: u32 = field_id::NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION;

/// Values that one call returns together: energy since the driver was loaded in mJ, current power in mW,
/// memory temperature in °C (0 without a sensor). On newer GPUs the separate call for power returns a mean
/// over one second.
pub(super) const FAST_FIELDS: [u32; 3] = [
    ENERGY_FIELD,
    field_id::NVML_FI_DEV_POWER_INSTANT,
    field_id::NVML_FI_DEV_MEMORY_TEMP,
];

/// Whether the error means that the GPU does not respond at all.
pub(super) const fn is_device_lost(error: &NvmlError) -> bool {
    matches!(
        error,
        NvmlError::GpuLost
            | NvmlError::ResetRequired
            | NvmlError::DriverNotLoaded
            | NvmlError::Uninitialized
            | NvmlError::IrqIssue
    )
}

/// The calls. Each is a bit in the set of unsupported calls, [`QueriedDevice::unsupported_calls`].
#[derive(Clone, Copy, Debug)]
pub(super) enum NvmlQuery {
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
pub(super) struct QueriedDevice {
    pub(super) nvml: &'static Nvml,
    pub(super) index: u32,
    uuid: Option<String>,
    /// UUID of the whole GPU if the device is a MIG instance.
    whole_gpu: Option<String>,
    /// Looked up again after an error, because a GPU that was reset has a new handle.
    device: Option<Device<'static>>,
    unsupported_calls: u32,
    /// Which fields of [`FAST_FIELDS`] are supported, as far as known.
    pub(super) supported_fields: [bool; FAST_FIELDS.len()],
    /// Why the last call returned no value.
    last_error: Option<NvmlError>,
    pub(super) calls: u32,
    /// Duration of the last call that read the energy counter.
    pub(super) energy_took: Duration,
}

impl QueriedDevice {
    pub(super) fn new(nvml: &'static Nvml, gpu: &Gpu) -> Self {
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
            energy_took: Duration::ZERO,
        }
    }

    /// Makes a call. `None` if the GPU does not support it or has no value now. Fails if the GPU does not
    /// respond at all.
    pub(super) fn call<T>(
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
    pub(super) fn processes(&mut self) -> Result<Option<Vec<GpuProcess>>, String> {
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
    pub(super) fn result(&mut self, values: SampleValues) -> Result<SampleValues, String> {
        match self.last_error.take() {
            Some(error) if values.is_empty() => Err(format!("GPU {} cannot be read: {error}", self.index)),
            _ => Ok(values),
        }
    }
}
