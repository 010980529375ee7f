//! Executor of processes on this host: runs the recipe's command in its own process group below the shim.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::base::clock;
use crate::base::ids::RunId;
use crate::engine::api;
use crate::engine::context::{Context, Logs};
use crate::engine::endpoint::{Devices, Endpoint};
use crate::engine::environment;
use crate::engine::error::StartError;
use crate::engine::executor::Ended;
use crate::engine::executor::{Executor, PortHolder};
use crate::engine::log::Log;
use crate::engine::ownership::Marks;
use crate::engine::port;
use crate::engine::process_group::{Group, Order};
use crate::engine::program::find_program;
use crate::engine::running::Running;
use crate::engine::start_record::StartRecord;
use crate::engine::venv::{self, Made, Make};
use crate::plan::{Launch, Process};
use crate::results::record::post_mortem::End;

/// How long to wait for the end of the log after the process has ended. Descendants that still run keep the
/// pipe open.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// How long to wait until the log is complete after everything has ended.
const LAST_WRITE: Duration = Duration::from_secs(5);

pub(super) struct Engine {
    group: Group,
    grace: Duration,
}

pub(super) async fn start(
    launch: &Launch,
    process: &Process,
    context: &Context,
    logs: Logs,
) -> Result<Running, StartError> {
    let headers = api::headers(launch, context)?;
    let marks = marks(launch, &context.run, context.start)?;
    let made = match &process.venv {
        Some(asked) => Some(environment(launch, asked, context, &marks, logs.install).await?),
        None => None,
    };
    let venv = made.as_ref().map(|made| made.folder.as_path());
    let order = order(launch, process, context, venv, marks)?;
    if !port::is_free(context.port) {
        return Err(StartError::PortTaken { port: context.port });
    }
    let spawn = |source| StartError::Spawn {
        program: order.program.display().to_string(),
        source,
    };
    let began = clock::now();
    let (reader, writer) = std::io::pipe().map_err(spawn)?;
    let log = Log::follow(reader, logs.engine, launch.signs.clone(), &context.redactor).map_err(spawn)?;
    let group = Group::spawn(&order, &writer).await.map_err(spawn)?;
    Ok(Running {
        endpoint: Endpoint {
            host: "127.0.0.1".to_owned(),
            port: context.port,
            base_url: format!("http://127.0.0.1:{}", context.port),
            headers,
        },
        log,
        devices: Devices::Local(context.devices.clone()),
        began,
        executor: Box::new(Engine {
            group,
            grace: launch.patience.stop.duration(),
        }),
        shm: None,
        alarm: None,
    })
}

impl Executor for Engine {
    fn identity(&self) -> String {
        self.group.pid().to_string()
    }

    fn exited<'a>(&'a mut self, log: &'a Log) -> BoxFuture<'a, Ended> {
        Box::pin(self.ended(log))
    }

    fn root_pids(&self, _endpoint: &Endpoint) -> Vec<u32> {
        vec![self.group.root()]
    }

    fn port_holder(&self) -> PortHolder {
        PortHolder::Processes(Some(self.group.marks().clone()))
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
            let how = self.group.stop(self.grace).await;
            log.over(LAST_WRITE).await;
            (how, self.group.is_gone().then(|| self.group.record().clone()))
        })
    }
}

impl Engine {
    /// Waits for the exit, and up to [`LAST_WORDS`] for the rest of the log.
    async fn ended(&mut self, log: &Log) -> Ended {
        use std::os::unix::process::ExitStatusExt;
        let status = self.group.exited().await;
        log.over(LAST_WORDS).await;
        let (how, end) = match status {
            Ok(status) => {
                let end = End {
                    code: status.code().map(i64::from),
                    signal: status.signal(),
                    // The exit status does not say who killed the process; the kernel's log may.
                    out_of_memory: None,
                };
                (format!("ended ({status})"), end)
            }
            Err(error) => (
                format!("ended (its status cannot be read: {error})"),
                End::default(),
            ),
        };
        Ended {
            how,
            omen: None,
            end,
            blame: None,
        }
    }
}

fn marks(launch: &Launch, run: &RunId, start: u32) -> Result<Marks, StartError> {
    Ok(Marks::new(run, &launch.id, start)?)
}

/// Creates or finds the Python environment of the process.
async fn environment(
    launch: &Launch,
    asked: &crate::plan::Venv,
    context: &Context,
    marks: &Marks,
    log: crate::results::store::Log,
) -> Result<Made, StartError> {
    let path = match &asked.path {
        Some(path) => Some(context.folder.join(context.reveal(None, path, "`venv:`")?)),
        None => None,
    };
    let name = match &launch.engine.version {
        Some(version) => format!("{}-{version}", launch.engine.recipe),
        None => launch.engine.recipe.clone(),
    };
    let make = Make {
        name: &name,
        asked,
        path,
        cache: &context.cache,
        search: context.path.as_deref(),
        shim: context.shim.as_deref(),
        redactor: &context.redactor,
        marks,
    };
    Ok(venv::make(&make, log).await?)
}

/// The command to spawn, with placeholders and secrets filled in.
fn order(
    launch: &Launch,
    process: &Process,
    context: &Context,
    venv: Option<&Path>,
    marks: Marks,
) -> Result<Order, StartError> {
    let mut words = Vec::new();
    for text in launch.argv(context.port) {
        words.push(context.reveal(venv, &text, "`command:`")?);
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
            context.reveal(venv, text, &format!("`env: {name}`"))?.into(),
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
        Some(dir) => Some(folder(context.folder.join(context.reveal(venv, dir, "`dir:`")?))?),
        None => None,
    };
    Ok(Order {
        program: find_program(&program, &path, dir.as_deref(), &context.redactor)?,
        args: words.collect(),
        withheld: environment::withheld(launch, process, &context.environment)
            .into_iter()
            .map(str::to_owned)
            .collect(),
        env,
        dir,
        marks,
        shim: context.shim.clone(),
        cache: context.cache.clone(),
    })
}

fn folder(dir: PathBuf) -> Result<PathBuf, StartError> {
    match dir.is_dir() {
        true => Ok(dir),
        false => Err(StartError::NoFolder {
            dir: dir.display().to_string(),
        }),
    }
}
