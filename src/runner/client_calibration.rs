//! `matrix calibrate`: calibrates the client of this host outside any run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::base::ids::RunId;
use crate::base::secrets::Redactor;
use crate::base::threads::{self, ThreadLimitError};
use crate::engine::{self, DockerEnv};
use crate::results::record::client::Calibration;
use crate::results::store::calibration::{self, CalibrationFolder};
use crate::results::store::{Store, StoreError};
use crate::runner::calibrate::{CalibrationRequest, calibrate};
use crate::runner::context::{EventBus, HostEnv};
use crate::runner::environment::Environment;
use crate::runner::host_error::{self, HostError};
use crate::runner::shutdown::{Shutdown, Signals};
use crate::telemetry::machine;

/// Why the calibration failed.
#[derive(Debug, Error)]
pub(crate) enum CalibrationError {
    #[error(
        "the cache folder cannot be written: {0}\n  = help: choose another folder with `--cache` or XDG_CACHE_HOME"
    )]
    Cache(StoreError),
    #[error("cannot create the log folder")]
    Logs(#[source] StoreError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Threads(#[from] ThreadLimitError),
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    #[error(
        "the client cannot be calibrated: {0}\n  = help: calibrate again when nothing else uses this host; an earlier calibration is kept"
    )]
    Failed(String),
    #[error("cannot save the calibration")]
    Save(#[source] StoreError),
}

pub(crate) struct SavedCalibration {
    pub(crate) calibration: Calibration,
    pub(crate) path: PathBuf,
}

/// Calibrates the client and saves the result in the cache; `None` if a signal interrupted it.
pub(crate) fn run(
    environment: &Environment,
    cache: &Path,
    request: &CalibrationRequest,
) -> Result<Option<SavedCalibration>, CalibrationError> {
    machine::raise_open_files();
    calibration::sweep(cache);
    let logs = CalibrationFolder::create(cache).map_err(CalibrationError::Cache)?;
    let run = RunId::new("calibration");
    let store = Store::create(logs.path(), &run, Redactor::default()).map_err(CalibrationError::Logs)?;
    let host = calibration_host(run, environment, cache, logs.path())?;
    let runtime = threads::runtime()?;
    let shutdown = Shutdown::default();
    let measured = runtime.block_on(async {
        let mut signals = Signals::catch().map_err(CalibrationError::Signals)?;
        let events = EventBus::default();
        tokio::select! {
            measured = calibrate(&host, &store, request, &shutdown) => Ok::<_, CalibrationError>(measured),
            never = shutdown.listen(&mut signals, &events) => match never {},
        }
    });
    let measured = measured?;
    if shutdown.is_requested() {
        return Ok(None);
    }
    let Some(calibration) = measured.map_err(CalibrationError::Failed)? else {
        return Ok(None);
    };
    let path = calibration::save(cache, &calibration).map_err(CalibrationError::Save)?;
    Ok(Some(SavedCalibration { calibration, path }))
}

fn calibration_host(
    run: RunId,
    environment: &Environment,
    cache: &Path,
    logs: &Path,
) -> Result<HostEnv, HostError> {
    Ok(HostEnv {
        run,
        matrix: host_error::own_program()?,
        folder: logs.to_owned(),
        environment: environment.clone(),
        hf_home: None,
        cache: cache.to_owned(),
        prompts: None,
        docker: DockerEnv::default(),
        images: Arc::default(),
        orphans: Arc::default(),
        secrets: BTreeMap::new(),
        redactor: Redactor::default(),
        http: engine::http_client(),
        machine: machine::read(&environment.tool),
        devices: Vec::new(),
        job_nodes: Default::default(),
        gpus: None,
    })
}
