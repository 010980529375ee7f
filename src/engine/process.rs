//! Executor of processes on this host: runs the recipe's command in its own process group below the shim.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::base::clock;
use crate::base::ids::RunId;
use crate::engine::api;
use crate::engine::context::{Logs, StartContext};
use crate::engine::endpoint::{Devices, Endpoint};
use crate::engine::environment;
use crate::engine::error::StartError;
use crate::engine::executor::control::ExitCause;
use crate::engine::executor::control::{AllowedListeners, Executor};
use crate::engine::log::Log;
use crate::engine::ownership::OwnershipTags;
use crate::engine::port;
use crate::engine::process_group::{ProcessGroup, SpawnSpec};
use crate::engine::program::find_program;
use crate::engine::running::RunningEngine;
use crate::engine::start_record::StartRecord;
use crate::engine::venv::{self, PreparedVenv, VenvRequest};
use crate::plan::{Launch, Process};
use crate::results::record::post_mortem::EngineExitStatus;

/// How long to wait for the end of the log after the process has ended. Descendants that still run keep the
/// pipe open.
const LOG_DRAIN_TIMEOUT: Duration = Duration::from_millis(300);

/// How long to wait until the log is complete after everything has ended.
const LOG_CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct ProcessEngine {
    group: ProcessGroup,
    grace: Duration,
}

pub(super) async fn start(
    launch: &Launch,
    process: &Process,
    context: &StartContext,
    logs: Logs,
) -> Result<RunningEngine, StartError> {
    let headers = api::request_headers(launch, context)?;
    let tags = ownership_tags(launch, &context.run, context.start)?;
    let prepared_venv = match &process.venv {
        Some(spec) => Some(prepare_venv(launch, spec, context, &tags, logs.install).await?),
        None => None,
    };
    let venv = prepared_venv
        .as_ref()
        .map(|prepared_venv| prepared_venv.folder.as_path());
    let order = spawn_spec(launch, process, context, venv, tags)?;
    if !port::is_free(context.port) {
        return Err(StartError::PortTaken { port: context.port });
    }
    let spawn = |source| StartError::Spawn {
        program: order.program.display().to_string(),
        source,
    };
    let started_at = clock::now();
    let (reader, writer) = std::io::pipe().map_err(spawn)?;
    let log = Log::follow(
        reader,
        logs.engine,
        launch.log_patterns.clone(),
        &context.redactor,
    )
    .map_err(spawn)?;
    let group = ProcessGroup::spawn(&order, &writer).await.map_err(spawn)?;
    Ok(RunningEngine {
        endpoint: Endpoint::new(
            "127.0.0.1".to_owned(),
            context.port,
            format!("http://127.0.0.1:{}", context.port),
            headers,
        ),
        log,
        devices: Devices::Local(context.devices.clone()),
        started_at,
        executor: Box::new(ProcessEngine {
            group,
            grace: launch.timeouts.stop.duration(),
        }),
        shared_memory: None,
        shared_memory_events: None,
    })
}

impl Executor for ProcessEngine {
    fn identity(&self) -> String {
        self.group.pid().to_string()
    }

    fn wait_for_exit<'a>(&'a mut self, log: &'a Log) -> BoxFuture<'a, ExitCause> {
        Box::pin(self.process_exit(log))
    }

    fn root_pids(&self, _endpoint: &Endpoint) -> Vec<u32> {
        vec![self.group.root_pid()]
    }

    fn allowed_listeners(&self) -> AllowedListeners {
        AllowedListeners::Processes(Some(self.group.tags().clone()))
    }

    fn record(&self) -> Option<&StartRecord> {
        Some(self.group.record())
    }

    fn records_processes(&self) -> bool {
        true
    }

    fn set_record(&mut self, record: StartRecord) {
        self.group.set_record(record);
    }

    /// Returns the record only if no process of the engine is left.
    fn stop(mut self: Box<Self>, log: &Log) -> BoxFuture<'_, (String, Option<StartRecord>)> {
        Box::pin(async move {
            let description = self.group.stop(self.grace).await;
            log.wait_closed(LOG_CLOSE_TIMEOUT).await;
            (
                description,
                self.group.is_gone().then(|| self.group.record().clone()),
            )
        })
    }
}

impl ProcessEngine {
    /// Waits for the exit, and up to [`LOG_DRAIN_TIMEOUT`] for the rest of the log.
    async fn process_exit(&mut self, log: &Log) -> ExitCause {
        use std::os::unix::process::ExitStatusExt;
        let status = self.group.wait_for_exit().await;
        log.wait_closed(LOG_DRAIN_TIMEOUT).await;
        let (description, end) = match status {
            Ok(status) => {
                let end = EngineExitStatus {
                    code: status.code().map(i64::from),
                    signal: status.signal(),
                    // The exit status does not say who killed the process; the kernel's log may.
                    out_of_memory: None,
                };
                (format!("ended ({status})"), end)
            }
            Err(error) => (
                format!("ended (its status cannot be read: {error})"),
                EngineExitStatus::default(),
            ),
        };
        ExitCause {
            description,
            fatal_line: None,
            end,
            fault: None,
        }
    }
}

fn ownership_tags(launch: &Launch, run: &RunId, start: u32) -> Result<OwnershipTags, StartError> {
    Ok(OwnershipTags::new(run, &launch.id, start)?)
}

/// Creates or finds the Python environment of the process.
async fn prepare_venv(
    launch: &Launch,
    spec: &crate::plan::Venv,
    context: &StartContext,
    tags: &OwnershipTags,
    log: crate::results::store::Log,
) -> Result<PreparedVenv, StartError> {
    let path = match &spec.path {
        Some(path) => Some(context.folder.join(context.fill(None, path, "`venv:`")?)),
        None => None,
    };
    let name = match &launch.engine.version {
        Some(version) => format!("{}-{version}", launch.engine.recipe),
        None => launch.engine.recipe.clone(),
    };
    let make = VenvRequest {
        name: &name,
        spec,
        path,
        cache_dir: &context.cache_dir,
        search_path: context.path.as_deref(),
        shim: context.shim_binary.as_deref(),
        redactor: &context.redactor,
        tags,
    };
    Ok(venv::prepare(&make, log).await?)
}

/// The command to spawn, with placeholders and secrets filled in.
fn spawn_spec(
    launch: &Launch,
    process: &Process,
    context: &StartContext,
    venv: Option<&Path>,
    tags: OwnershipTags,
) -> Result<SpawnSpec, StartError> {
    let mut words = Vec::new();
    for text in launch.command_args(context.port) {
        words.push(context.fill(venv, &text, "`command:`")?);
    }
    let mut words = words.into_iter();
    let program = words.next().filter(|program| !program.is_empty());
    let program = program.ok_or_else(|| StartError::NoCommand {
        engine: launch.engine.name.clone(),
    })?;
    let mut env: Vec<(String, OsString)> = Vec::new();
    if let Some(name) = process.devices_env.as_ref().filter(|_| launch.devices > 0) {
        if name == "CUDA_VISIBLE_DEVICES" {
            // GPUs are numbered in PCI bus order; CUDA's default order is fastest first.
            env.push(("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".into()));
        }
        env.push((name.clone(), context.device_list().into()));
    }
    for (name, text) in &process.env {
        env.push((
            name.clone(),
            context.fill(venv, text, &format!("`env: {name}`"))?.into(),
        ));
    }
    let own = env.iter().rev().find(|(name, _)| name == "PATH");
    let mut path = own.map_or_else(
        || context.path.clone().unwrap_or_default(),
        |(_, path)| path.to_string_lossy().into_owned(),
    );
    if let Some(venv) = venv {
        path = format!("{}:{path}", venv.join("bin").display());
        env.push(("PATH".to_owned(), path.clone().into()));
        env.push(("VIRTUAL_ENV".to_owned(), venv.into()));
    }
    let dir = match &process.dir {
        Some(dir) => Some(existing_folder(
            context.folder.join(context.fill(venv, dir, "`dir:`")?),
        )?),
        None => None,
    };
    Ok(SpawnSpec {
        program: find_program(&program, &path, dir.as_deref(), &context.redactor)?,
        args: words.collect(),
        withheld_variables: environment::withheld_variables(launch, process, &context.variable_names)
            .into_iter()
            .map(str::to_owned)
            .collect(),
        env,
        dir,
        tags,
        shim: context.shim_binary.clone(),
        cache_dir: context.cache_dir.clone(),
    })
}

fn existing_folder(dir: PathBuf) -> Result<PathBuf, StartError> {
    match dir.is_dir() {
        true => Ok(dir),
        false => Err(StartError::MissingFolder {
            dir: dir.display().to_string(),
        }),
    }
}
