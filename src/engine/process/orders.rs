//! The processes of an engine to start: their commands with everything filled in, and where each runs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::engine_process::{EngineProcess, ProcessPlace};
use crate::config::template::Template;
use crate::engine::context::StartContext;
use crate::engine::environment;
use crate::engine::error::StartError;
use crate::engine::labelled_output::LabelledOutput;
use crate::engine::ownership::OwnershipTags;
use crate::engine::process_group::{ProcessGroup, SpawnSpec};
use crate::engine::program::find_program;
use crate::engine::remote_process::{NodeGpus, RemoteProcess, RemoteStart};
use crate::plan::{Addresses, Launch, Member, Process, SRUN, gpus_before};

/// The variable that orders the GPUs of CUDA.
const DEVICE_ORDER: &str = "CUDA_DEVICE_ORDER";

/// Where the processes of an engine write.
pub(super) enum Output {
    Plain(std::io::PipeWriter),
    Labelled(LabelledOutput),
}

/// A process to start.
pub(super) struct SpawnOrder {
    pub(super) spec: SpawnSpec,
    /// What it is among several processes.
    member: Option<Member>,
    /// On another node, the number of GPUs there that other processes have.
    gpus_before: u32,
    /// The ports on which it may listen.
    ports: Vec<u16>,
    devices_env: Option<String>,
}

impl SpawnOrder {
    pub(super) async fn start(
        self,
        output: &Output,
        launch: &Launch,
        context: &StartContext,
    ) -> std::io::Result<EngineProcess> {
        let labelled;
        let (writer, name) = match (output, &self.member) {
            (Output::Plain(writer), _) => (writer, None),
            (Output::Labelled(output), member) => {
                let name = member
                    .as_ref()
                    .map(|member| member.name.clone())
                    .unwrap_or_default();
                labelled = output.of_process(&name)?;
                (&labelled, Some(name))
            }
        };
        let node = self.member.as_ref().map_or(0, |member| member.node);
        let place = match node {
            0 => ProcessPlace::Here(Box::new(ProcessGroup::spawn(&self.spec, writer).await?)),
            node => ProcessPlace::Elsewhere(Box::new(
                self.start_elsewhere(node, writer, launch, context).await?,
            )),
        };
        Ok(EngineProcess { name, place })
    }

    async fn start_elsewhere(
        self,
        node: u32,
        writer: &std::io::PipeWriter,
        launch: &Launch,
        context: &StartContext,
    ) -> std::io::Result<RemoteProcess> {
        let Self {
            spec,
            member,
            gpus_before,
            ports,
            devices_env,
        } = self;
        let absent = || std::io::Error::other(format!("the job has no node {}", node + 1));
        let host = context.job_nodes.names.get(node as usize).ok_or_else(absent)?;
        let path = context.path.as_deref().unwrap_or_default();
        let srun = find_program(SRUN[0], path, None, &context.redactor).map_err(std::io::Error::other)?;
        let gpus = member.map_or(0, |member| member.gpus);
        let texts = spec.env.into_iter();
        let env = texts.map(|(name, value)| (name, value.to_string_lossy().into_owned()));
        let start = RemoteStart {
            run: spec.tags.run,
            start: spec.tags.start,
            program: spec.program,
            args: spec.args,
            withheld_variables: spec.withheld_variables,
            env: env.collect(),
            dir: spec.dir,
            gpus: devices_env.filter(|_| gpus > 0).map(|variable| NodeGpus {
                variable,
                skip: gpus_before,
                count: gpus,
            }),
            ports,
            cache_dir: spec.cache_dir,
            grace_ms: launch.timeouts.stop.duration().as_millis() as u64,
        };
        RemoteProcess::spawn(&srun, &context.matrix_binary, host, &start, writer).await
    }
}

/// The processes to start, with placeholders and secrets filled in.
pub(super) fn spawn_orders(
    launch: &Launch,
    process: &Process,
    context: &StartContext,
    venv: Option<&Path>,
    tags: &OwnershipTags,
) -> Result<Vec<SpawnOrder>, StartError> {
    let maker = SpecMaker {
        launch,
        process,
        context,
        venv,
    };
    let members = launch.members();
    if members.is_empty() {
        let devices = Some(context.device_list()).filter(|_| launch.devices > 0);
        let spec = maker.spec(
            launch.command_args(context.port),
            &process.env,
            devices,
            launch.devices > 0,
            tags.clone(),
        )?;
        return Ok(vec![SpawnOrder {
            spec,
            member: None,
            gpus_before: 0,
            ports: Vec::new(),
            devices_env: process.devices_env.clone(),
        }]);
    }
    let ports = context.ports();
    let addresses = Addresses {
        members,
        ports: &ports,
        host: &|node| context.job_nodes.address(node),
    };
    let mut names = context.device_names.iter().cloned();
    let mut orders = Vec::new();
    for (index, member) in members.iter().enumerate() {
        let devices: Vec<String> = names.by_ref().take(member.local_gpus()).collect();
        let devices = Some(devices.join(",")).filter(|_| !devices.is_empty());
        let fill = |(name, value): &(String, Template)| {
            let value = addresses.fill(index, value);
            (name.clone(), value)
        };
        let env: Vec<(String, Template)> = member.env.iter().map(fill).collect();
        let spec = maker.spec(
            addresses.command(index),
            &env,
            devices,
            member.gpus > 0,
            tags.of_process(&member.name),
        );
        let spec = spec.map_err(|source| StartError::Member {
            name: member.name.clone(),
            source: Box::new(source),
        })?;
        orders.push(SpawnOrder {
            spec,
            member: Some(member.clone()),
            gpus_before: gpus_before(members, index),
            ports: ports.of_process(members, index),
            devices_env: process.devices_env.clone(),
        });
    }
    Ok(orders)
}

/// Makes the descriptions of processes to spawn.
struct SpecMaker<'a> {
    launch: &'a Launch,
    process: &'a Process,
    context: &'a StartContext,
    venv: Option<&'a Path>,
}

impl SpecMaker<'_> {
    fn spec(
        &self,
        command: Vec<Template>,
        own_env: &[(String, Template)],
        devices: Option<String>,
        has_gpus: bool,
        tags: OwnershipTags,
    ) -> Result<SpawnSpec, StartError> {
        let Self {
            launch,
            process,
            context,
            venv,
        } = *self;
        // A container gets only the variables that its command names.
        let passed = tags.variables().map(|(name, _)| name);
        let passed = [&passed[..], &[DEVICE_ORDER]].concat();
        let (command, own_env) = process.outer_command(command, own_env, &passed, has_gpus);
        let mut words = Vec::new();
        for text in &command {
            words.push(context.fill(venv, text, "`command:`")?);
        }
        let mut words = words.into_iter();
        let program = words.next().filter(|program| !program.is_empty());
        let program = program.ok_or_else(|| StartError::NoCommand {
            engine: launch.engine.name.clone(),
        })?;
        let mut env: Vec<(String, OsString)> = Vec::new();
        if let Some((name, devices)) = process.devices_env.as_ref().zip(devices) {
            if name == "CUDA_VISIBLE_DEVICES" {
                // GPUs are numbered in PCI bus order; CUDA's default order is fastest first.
                env.push((DEVICE_ORDER.to_owned(), "PCI_BUS_ID".into()));
            }
            env.push((name.clone(), devices.into()));
        }
        for (name, text) in &own_env {
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
}

fn existing_folder(dir: PathBuf) -> Result<PathBuf, StartError> {
    match dir.is_dir() {
        true => Ok(dir),
        false => Err(StartError::MissingFolder {
            dir: dir.display().to_string(),
        }),
    }
}
