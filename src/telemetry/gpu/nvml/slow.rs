//! Values of a GPU that change slowly: throughput, PCIe link, faults, processes.

use std::time::Duration;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::PcieUtilCounter;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::sys_exports::field_id;

use super::device::{NvmlQuery, QueriedDevice};
use crate::results::record::telemetry::{SampleValues, TelemetrySource};
use crate::telemetry::gpu::processes::{DeviceProcesses, Occupancy};
use crate::telemetry::probe::{DeviceReading, Probe};

/// Error counters of a GPU, with the names used here: uncorrectable memory errors since the driver was
/// loaded, memory rows remapped after such errors, and whether a remapping failed.
const FAULT_COUNTERS: [(u32, &str); 3] = [
    (field_id::NVML_FI_DEV_ECC_DBE_VOL_TOTAL, "ecc_uncorrected"),
    (field_id::NVML_FI_DEV_REMAPPED_UNC, "rows_remapped"),
    (field_id::NVML_FI_DEV_REMAPPED_FAILURE, "row_remap_failed"),
];

/// Interval of the process list and of throughput, which the driver measures over about 20 ms.
const SLOW_PERIOD: Duration = Duration::from_secs(1);

/// Probe of values that change slowly: throughput, PCIe link, faults, processes.
pub(super) struct SlowProbe {
    device: QueriedDevice,
    processes: DeviceProcesses,
    /// Previous sample; NVLink throughput is computed from two samples.
    last_gpm_sample: Option<GpmSample<'static>>,
}

impl SlowProbe {
    pub(super) const fn new(device: QueriedDevice, processes: DeviceProcesses) -> Self {
        Self {
            device,
            processes,
            last_gpm_sample: None,
        }
    }
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

    fn read(&mut self) -> Result<Vec<DeviceReading>, String> {
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
        Ok(vec![DeviceReading {
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
