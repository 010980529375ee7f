//! The plan of a launch in a container: image, command, mounts, and the command line that is shown to users.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::base::units::Bytes;
use crate::config::container::{ContainerGpus, ContainerNetwork, Mount};
use crate::config::forms::OrderedMap;
use crate::config::job_containers::ContainerRuntime;
use crate::config::template::{Template, TemplatePart};
use crate::plan::executor::{ExecutorSettings, ExecutorSpec, Facts, Process};
use crate::plan::layers::Layers;
use crate::plan::shell::{CommandLine, LineContext, passes_variable, shell_quote};

pub(super) const FACTS: Facts = Facts {
    starts_engine: true,
    leases_gpus: true,
    has_container: true,
    help: |recipe| {
        let own = recipe
            .container
            .as_ref()
            .and_then(|container| container.help.as_ref());
        own.or(recipe.help.as_ref())
    },
    merge: |layers| {
        let container = Container::merge(layers);
        match layers.site.matrix.containers.as_ref() {
            Some(started_by) if started_by.runtime != ContainerRuntime::Docker => {
                ExecutorSpec::Process(Process::in_container(layers, container, started_by))
            }
            _ => ExecutorSpec::Container(Box::new(container)),
        }
    },
};

/// A container to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Container {
    /// The image with its tag or digest.
    pub(crate) image: String,
    /// The entrypoint, if it replaces the image's own.
    pub(crate) entrypoint: Option<Vec<Template>>,
    /// The arguments of the entrypoint.
    pub(crate) command: Vec<Template>,
    /// Environment variables, in order.
    pub(crate) env: Vec<(String, Template)>,
    /// Mounted folders of the host.
    pub(crate) mounts: Vec<Mount>,
    /// The container runtime, such as `nvidia`.
    pub(crate) runtime: Option<String>,
    /// GPUs of the container.
    pub(crate) gpus: ContainerGpus,
    /// The IPC namespace, such as `host`.
    pub(crate) ipc: Option<String>,
    pub(crate) network: ContainerNetwork,
    /// Size of `/dev/shm`; without effect with host IPC.
    pub(crate) shm_size: Option<Bytes>,
    /// Resource limits: name and value.
    pub(crate) ulimits: Vec<(String, i64)>,
    /// Whether an init process forwards signals and reaps children.
    pub(crate) init: bool,
    /// Device nodes of the host.
    pub(crate) devices: Vec<String>,
    /// Whether the container is privileged.
    pub(crate) privileged: bool,
    /// CPUs that it may use, such as `0-7,16`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cpuset: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory: Option<Bytes>,
    /// Limit of memory and swap together; equal to `memory` means no swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) memory_swap: Option<Bytes>,
    /// Additional host names, such as `hub:10.0.0.1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) extra_hosts: Vec<String>,
    /// Additional capabilities, such as `SYS_PTRACE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) cap_add: Vec<String>,
    /// Security options, such as `seccomp=unconfined`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) security_opt: Vec<String>,
    /// Additional groups of its processes, such as `video`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) group_add: Vec<String>,
}

impl Container {
    fn merge(layers: &Layers<'_>) -> Self {
        let (entry, version) = (
            layers.site.entry,
            layers.point.version.as_deref().unwrap_or_default(),
        );
        let Some(recipe) = &layers.site.recipe.container else {
            return Self::default();
        };
        let patched = layers.patched(|patch| patch.image.as_ref());
        let image = layers
            .overridden(|over| over.image.as_ref())
            .or(entry.image.as_ref());
        let image = image.or(recipe.images.get(version)).or(patched);
        let command = layers.command_with_arguments(recipe.command.as_ref());
        let env = layers.environment(&recipe.env);
        let mounts = merged_mounts(&[&recipe.mounts, &entry.mounts, &layers.site.model_entry.mounts]);
        let recipe = recipe.clone();
        let over = entry.container.as_deref().cloned().unwrap_or_default();
        let limits = recipe.ulimits.into_iter().chain(over.ulimits);
        Self {
            image: image.unwrap_or(&recipe.image).replace("{version}", version),
            entrypoint: recipe.entrypoint.map(|words| layers.filled(&words)),
            command,
            env,
            mounts: mounts
                .into_iter()
                .map(|mount| Mount {
                    source: mount.source.fill_placeholders(layers.fill),
                    ..mount
                })
                .collect(),
            runtime: over.runtime.or(recipe.runtime),
            // If launches run concurrently, none of them gets all GPUs.
            gpus: match over.gpus.unwrap_or(recipe.gpus) {
                ContainerGpus::All if layers.site.matrix.parallel => ContainerGpus::Leased,
                gpus => gpus,
            },
            ipc: over.ipc.or(recipe.ipc),
            network: recipe.network,
            shm_size: over.shm_size.or(recipe.shm_size),
            ulimits: limits
                .collect::<OrderedMap<_>>()
                .into_iter()
                .map(|(name, limit)| (name.value, limit))
                .collect(),
            init: over.init.unwrap_or(recipe.init),
            devices: recipe.device_nodes,
            privileged: recipe.privileged,
            cpuset: over.cpuset.or(recipe.cpuset),
            memory: over.memory.or(recipe.memory),
            memory_swap: over.memory_swap.or(recipe.memory_swap),
            extra_hosts: [recipe.extra_hosts, over.extra_hosts].concat(),
            cap_add: [recipe.cap_add, over.cap_add].concat(),
            security_opt: [recipe.security_opt, over.security_opt].concat(),
            group_add: [recipe.group_add, over.group_add].concat(),
        }
    }
}

/// The mounts of all layers. A later one replaces an earlier one with the same target.
fn merged_mounts(layers: &[&Vec<Mount>]) -> Vec<Mount> {
    let mut merged: Vec<Mount> = Vec::new();
    for mount in layers.iter().copied().flatten() {
        merged.retain(|earlier| earlier.target.value != mount.target.value);
        merged.push(mount.clone());
    }
    merged
}

impl ExecutorSettings for Container {
    fn name(&self) -> &'static str {
        "container"
    }

    fn engine_source(&self) -> &'static str {
        "container image"
    }

    fn container(&self) -> Option<&Container> {
        Some(self)
    }

    fn image(&self) -> Option<&str> {
        Some(&self.image)
    }

    fn command(&self) -> Option<&[Template]> {
        Some(&self.command)
    }

    fn env(&self) -> &[(String, Template)] {
        &self.env
    }

    fn other_templates(&self) -> Vec<&Template> {
        let mounts = self.mounts.iter().map(|mount| &mount.source);
        self.entrypoint.iter().flatten().chain(mounts).collect()
    }

    fn pin(&self, digest: Option<&str>) -> Result<ExecutorSpec, &'static str> {
        let digest = digest.ok_or("the digest of the engine's image is unknown")?;
        Ok(ExecutorSpec::Container(Box::new(Self {
            image: digest.to_owned(),
            ..self.clone()
        })))
    }

    fn command_line(&self, context: &LineContext<'_>) -> CommandLine {
        docker_command(self, context)
    }
}

fn docker_command(container: &Container, context: &LineContext<'_>) -> CommandLine {
    let port = context.port;
    let mut groups = vec!["docker run".to_owned()];
    let runtime = container
        .runtime
        .as_ref()
        .map(|runtime| format!("--runtime {}", shell_quote(runtime)));
    let gpus = match container.gpus {
        ContainerGpus::None | ContainerGpus::Cdi | ContainerGpus::CdiAll => None,
        ContainerGpus::All => Some("--gpus all".to_owned()),
        ContainerGpus::Leased if context.gpus == 0 => None,
        ContainerGpus::Leased => Some(format!("--gpus '\"device={}\"'", context.device_list())),
    };
    let devices: Vec<String> = runtime.into_iter().chain(gpus).collect();
    if !devices.is_empty() {
        groups[0] = format!("{} {}", groups[0], devices.join(" "));
    }
    for mount in &container.mounts {
        groups.push(format!("--mount {}", mount_flag(mount, context)));
    }
    for (name, value) in &container.env {
        groups.push(match passes_variable(name, value) {
            true => format!("-e {}", shell_quote(name)),
            false => format!("-e {}", context.quote(&Template::new(format!("{name}={value}")))),
        });
    }
    for name in container.gpus.cdi_names(&context.devices) {
        groups.push(format!("--device {name}"));
    }
    for device in &container.devices {
        groups.push(format!("--device {}", shell_quote(device)));
    }
    match container.network {
        ContainerNetwork::Host => groups.push("--net host".to_owned()),
        ContainerNetwork::Bridge => groups.push(format!("-p {port}:{port}")),
    }
    let mut flags = Vec::new();
    flags.extend(
        container
            .ipc
            .as_ref()
            .map(|ipc| shell_quote(&format!("--ipc={ipc}"))),
    );
    if container.ipc.as_deref() != Some("host") {
        flags.extend(container.shm_size.map(|size| format!("--shm-size {}", size.0)));
    }
    flags.extend(
        container
            .ulimits
            .iter()
            .map(|(name, limit)| format!("--ulimit {}", shell_quote(&format!("{name}={limit}")))),
    );
    flags.extend(limit_flags(container));
    flags.extend(container.init.then(|| "--init".to_owned()));
    flags.extend(container.privileged.then(|| "--privileged".to_owned()));
    let mut command = context.arguments.clone();
    if let Some(entrypoint) = &container.entrypoint {
        let program = entrypoint
            .first()
            .map_or_else(|| "''".to_owned(), |program| context.quote(program));
        flags.push(format!("--entrypoint {program}"));
        command.splice(0..0, entrypoint.iter().skip(1).cloned());
    }
    flags.push(format!("--name {}", context.name));
    groups.push(flags.join(" "));
    groups.push(shell_quote(&container.image));
    if !command.is_empty() {
        groups.push(context.quote_all(&command));
    }
    CommandLine(groups)
}

/// Flags for resource limits and privileges.
fn limit_flags(container: &Container) -> Vec<String> {
    let mut flags = Vec::new();
    let cpuset = container.cpuset.as_ref();
    flags.extend(cpuset.map(|cpus| format!("--cpuset-cpus {}", shell_quote(cpus))));
    flags.extend(container.memory.map(|bytes| format!("--memory {}", bytes.0)));
    flags.extend(
        container
            .memory_swap
            .map(|bytes| format!("--memory-swap {}", bytes.0)),
    );
    let lists = [
        ("--add-host", &container.extra_hosts),
        ("--cap-add", &container.cap_add),
        ("--security-opt", &container.security_opt),
        ("--group-add", &container.group_add),
    ];
    for (flag, values) in lists {
        flags.extend(
            values
                .iter()
                .map(|value| format!("{flag} {}", shell_quote(value))),
        );
    }
    flags
}

/// The value of `--mount`. A missing source is an error for it, as in a run; `-v` would create an empty
/// folder.
fn mount_flag(mount: &Mount, context: &LineContext<'_>) -> String {
    let mode = if mount.read_only { ",readonly" } else { "" };
    let source = csv_field(&format!(
        "source={}",
        absolute_source(&mount.source, context.folder)
    ));
    let target = csv_field(&format!("target={}", mount.target));
    context.quote(&Template::new(format!("type=bind,{source},{target}{mode}")))
}

/// The source of a mount as a run passes it to the daemon: absolute if the folder of the matrix is known.
fn absolute_source(source: &Template, folder: Option<&Path>) -> String {
    let Some(folder) = folder else {
        return source.to_string();
    };
    let folder = folder.to_string_lossy();
    match source.parts().first() {
        Some(TemplatePart::Literal(start)) if !start.starts_with('/') => format!("{folder}/{source}"),
        Some(TemplatePart::Placeholder("dir")) => source.as_str().replacen("{dir}", &folder, 1),
        _ => source.to_string(),
    }
}

/// Formats a field of `--mount`, which Docker parses as a line of CSV.
fn csv_field(field: &str) -> String {
    match field.contains([',', '"', '\n']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}
