//! GPUs of the host: access to them, those that a run may use, and the lock against other runs.

use std::sync::Arc;

use thiserror::Error;

use crate::config::gpus::GpuList;
use crate::plan::Plan;
use crate::results::record::machine::Machine;
use crate::runner::context::HostEnv;
use crate::runner::environment::Environment;
use crate::runner::gpu_lock::{GpuLock, GpuLockError};
use crate::runner::gpu_selection::{self, GpuRequest};
use crate::runner::session::observer::Notice;
use crate::telemetry::gpu::{GpuSources, Gpus};
use crate::telemetry::machine;

#[derive(Debug, Error)]
pub(crate) enum GpuError {
    /// The variable for simulated GPUs is malformed.
    #[error("{0}")]
    Pretended(String),
    /// The library that the environment names cannot be used.
    #[error(
        "{0}\n  = help: set MATRIX_NVML_LIBRARY to the path of NVIDIA's `libnvidia-ml.so.1`, or unset it"
    )]
    Library(String),
    /// The host does not have the requested GPUs.
    #[error("{0}\n  = help: `nvidia-smi -L` lists the GPUs of this host")]
    Unknown(String),
    /// Another run uses the GPUs.
    #[error(
        "{0}\n  = help: wait until that run has ended, or stop it; two runs at once would disturb each other"
    )]
    Locked(GpuLockError),
}

/// Reads the facts of this host and opens its GPUs. Simulated GPUs cannot be opened.
pub(crate) fn machine(
    environment: &Environment,
    notice: &dyn Fn(Notice),
) -> Result<(Machine, Option<Arc<Gpus>>), GpuError> {
    let mut about = machine::read(&environment.tool);
    about.node = environment.variable("SLURMD_NODENAME");
    let pretended = environment.pretended_gpus.clone().map_err(GpuError::Pretended)?;
    if let Some(count) = pretended {
        about.gpus = vec!["pretended GPU".to_owned(); count as usize];
        about.gpus_pretended = true;
        return Ok((about, None));
    }
    let gpus = open_gpus(environment, notice)?;
    if let Some(gpus) = &gpus {
        gpus.describe(&mut about);
    }
    Ok((about, gpus))
}

/// Opens the GPUs of the host. A library that cannot be used is a note, unless the environment names it.
pub(crate) fn open_gpus(
    environment: &Environment,
    notice: &dyn Fn(Notice),
) -> Result<Option<Arc<Gpus>>, GpuError> {
    let places = GpuSources {
        nvml: environment.nvml_library.clone(),
        path: environment.variable("PATH"),
    };
    match Gpus::open(&places) {
        Ok(gpus) => Ok(gpus.map(Arc::new)),
        Err(reason) if places.nvml.is_some() => Err(GpuError::Library(reason)),
        Err(reason) => {
            notice(Notice::Note(format!(
                "no telemetry source reports the GPUs of this host: {reason}"
            )));
            Ok(None)
        }
    }
}

/// GPUs that a run may use: from the flag, the matrix or the environment, otherwise all.
pub(super) fn allowed_gpus(
    flag: Option<&GpuList>,
    plan: &Plan,
    machine: &Machine,
    environment: &Environment,
    notice: &dyn Fn(Notice),
) -> Result<Vec<u32>, GpuError> {
    let named = |list: &GpuList, from: &'static str| GpuRequest {
        list: list.clone(),
        source: from,
    };
    let request = flag.map(|list| named(list, "`--gpus`"));
    let request = request.or_else(|| plan.gpus.as_ref().map(|list| named(list, "`gpus:`")));
    if request.is_some() || environment.visible_gpus.is_none() {
        return gpu_selection::allowed_gpus(machine, request.as_ref()).map_err(GpuError::Unknown);
    }
    let visible = gpu_selection::visible_gpus(machine, environment);
    let name = environment.visible_gpus.as_ref().map_or("", |(name, _)| *name);
    match visible {
        Ok(visible) => {
            if visible.is_empty() {
                notice(Notice::Note(format!(
                    "the environment variable `{name}` hides all GPUs from this run"
                )));
            }
            Ok(visible)
        }
        Err(reason) => {
            notice(Notice::Note(format!("`{name}` is ignored: {reason}")));
            Ok((0..).take(machine.gpus.len()).collect())
        }
    }
}

/// Locks GPUs against other runs, if the plan uses any. Locks of simulated GPUs lie in the cache folder.
pub(super) fn lock_gpus(
    plan: &Plan,
    host: &HostEnv,
    allowed: &[u32],
    environment: &Environment,
) -> Result<Option<GpuLock>, GpuError> {
    if plan.launches.iter().all(|launch| launch.devices == 0) {
        return Ok(None);
    }
    let pretended = host.machine.gpus_pretended.then(|| host.cache.clone());
    let folder = environment.lock_folder.clone().or(pretended);
    GpuLock::acquire(allowed, folder.as_deref())
        .map(Some)
        .map_err(GpuError::Locked)
}
