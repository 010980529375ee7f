//! NVIDIA GPUs, read with NVML. Only this module uses its crate. The library is loaded on first use, so that
//! a host without it behaves like one without a GPU.
//!
//! A GPU is looked up by its UUID. Values that the GPU or driver does not support are left out and not
//! requested again. A GPU that has fallen off the bus is an error.

mod device;
mod facts;
mod fast;
mod slow;

use std::ffi::OsStr;
use std::path::Path;

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use self::device::QueriedDevice;
use self::fast::{FastProbe, ReadPlan, read_fast};
use self::slow::SlowProbe;
use crate::results::record::telemetry::Gpu;
use crate::telemetry::gpu::DeviceSnapshot;
use crate::telemetry::gpu::processes::DeviceProcesses;
use crate::telemetry::probe::Probe;

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
        let quick = FastProbe::new(QueriedDevice::new(self.0, gpu));
        let slow = SlowProbe::new(QueriedDevice::new(self.0, gpu), processes.clone());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_without_the_library_is_one_without_a_gpu_but_a_named_one_must_be_there() {
        let named = Library::open(Some(Path::new("/nowhere/libnvidia-ml.so.1"))).unwrap_err();
        assert!(
            named.starts_with("/nowhere/libnvidia-ml.so.1 cannot be used: "),
            "{named}"
        );
    }
}
