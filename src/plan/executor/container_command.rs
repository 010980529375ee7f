//! The command that starts a container as a process of a job, for each container runtime without a daemon. Pure.
//!
//! Values of environment variables may be secrets, so that they are never words of the command: it only names them.

use serde::{Deserialize, Serialize};

use crate::config::container::{ContainerNetwork, Mount};
use crate::config::job_containers::{ContainerRuntime, JobContainers};
use crate::config::template::Template;
use crate::plan::executor::container::Container;

/// Ends of the names of squashfs images, which `enroot` starts.
const SQUASHFS: [&str; 3] = [".sqsh", ".sqfs", ".squashfs"];
/// Variables that container runtimes read.
const RUNTIME_VARIABLES: [&str; 11] = [
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_CONFIG",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "LD_LIBRARY_PATH",
    "NO_PROXY",
    "REGISTRY_AUTH_FILE",
    "XDG_RUNTIME_DIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];
/// Beginnings of names of variables that container runtimes read.
const RUNTIME_PREFIXES: [&str; 6] = [
    "APPTAINER_",
    "APPTAINERENV_",
    "CONTAINERS_",
    "ENROOT_",
    "SINGULARITY_",
    "SINGULARITYENV_",
];

/// A container that is started as a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ContainerCommand {
    /// How it is started.
    pub(crate) started_by: JobContainers,
    /// The container, without command and environment, which are those of the process.
    pub(crate) container: Container,
}

/// Something that a container runtime cannot do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsupported {
    pub(crate) key: &'static str,
    pub(crate) help: String,
}

/// A command and the variables to set for it.
pub(crate) type CommandAndEnv = (Vec<Template>, Vec<(String, Template)>);

impl ContainerCommand {
    pub(crate) const fn runtime(&self) -> ContainerRuntime {
        self.started_by.runtime
    }

    /// Whether the runtime needs a variable of the job that engines in containers do not get.
    pub(crate) fn is_runtime_variable(name: &str) -> bool {
        RUNTIME_VARIABLES.contains(&name) || RUNTIME_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    }

    /// The command that runs `command` in the container, and the variables to set for it. `passed` names further
    /// variables that the container gets with the value that they have outside.
    pub(crate) fn wrap(
        &self,
        command: &[Template],
        env: &[(String, Template)],
        passed: &[&str],
        has_gpus: bool,
    ) -> CommandAndEnv {
        let has_gpus = has_gpus && self.container.gpus != crate::config::container::ContainerGpus::None;
        let mut words: Vec<Template> = Vec::new();
        let mut add = |word: &str| words.push(Template::new(word));
        let mut env = env.to_vec();
        match self.runtime() {
            ContainerRuntime::Docker | ContainerRuntime::Podman => {
                ["podman", "--cgroup-manager=cgroupfs", "run", "--rm"]
                    .iter()
                    .for_each(|word| add(word));
                // It stays in the cgroup of the job.
                ["--cgroups=disabled", "--network=host"]
                    .iter()
                    .for_each(|word| add(word));
                if has_gpus {
                    add("--device=nvidia.com/gpu=all");
                }
                let names = env.iter().map(|(name, _)| name.as_str());
                for name in names.chain(passed.iter().copied()) {
                    add(&format!("--env={name}"));
                }
                self.podman_flags().iter().for_each(|flag| add(flag));
            }
            ContainerRuntime::Apptainer | ContainerRuntime::Singularity => {
                let (program, prefix) = match self.runtime() {
                    ContainerRuntime::Singularity => ("singularity", "SINGULARITYENV_"),
                    _ => ("apptainer", "APPTAINERENV_"),
                };
                add(program);
                // `run` executes the entrypoint of an image of Docker with the arguments.
                add(if self.container.entrypoint.is_some() {
                    "exec"
                } else {
                    "run"
                });
                if has_gpus {
                    add("--nv");
                }
                // It inherits the folder of the job, which the container does not have.
                if !env.iter().any(|(name, _)| name == "TMPDIR") {
                    env.push(("TMPDIR".to_owned(), Template::new("/tmp")));
                }
                // Other variables are inherited; only these replace those of the image.
                for (name, _) in &mut env {
                    name.insert_str(0, prefix);
                }
            }
            ContainerRuntime::Enroot => {
                ["enroot", "start"].iter().for_each(|word| add(word));
                if has_gpus && !env.iter().any(|(name, _)| name == "NVIDIA_VISIBLE_DEVICES") {
                    env.push(("NVIDIA_VISIBLE_DEVICES".to_owned(), Template::new("all")));
                }
                let names = env.iter().map(|(name, _)| name.as_str());
                for name in names.chain(passed.iter().copied()) {
                    ["--env", name].iter().for_each(|word| add(word));
                }
            }
        }
        for (source, target, is_read_only) in self.mounts() {
            self.mount_words(&source, &target, is_read_only)
                .iter()
                .for_each(|word| add(word));
        }
        for option in &self.started_by.options {
            add(option.as_str());
        }
        let mut entrypoint = self.container.entrypoint.iter().flatten();
        if self.runtime() == ContainerRuntime::Podman
            && let Some(program) = entrypoint.next()
        {
            add(&format!("--entrypoint={program}"));
        }
        add(&self.image());
        words.extend(entrypoint.cloned());
        words.extend(command.iter().cloned());
        (words, env)
    }

    /// The image as the runtime names it. A relative path is below the folder of the matrix file.
    fn image(&self) -> String {
        let image = self.container.image.as_str();
        let is_file = match self.runtime() {
            ContainerRuntime::Docker | ContainerRuntime::Podman => false,
            ContainerRuntime::Apptainer | ContainerRuntime::Singularity => {
                image.ends_with(".sif") || image.starts_with(['/', '.'])
            }
            ContainerRuntime::Enroot => is_squashfs(image),
        };
        match (is_file, self.runtime()) {
            (true, _) => below_folder(image),
            (false, ContainerRuntime::Apptainer | ContainerRuntime::Singularity)
                if !image.contains("://") =>
            {
                format!("docker://{image}")
            }
            (false, _) => image.to_owned(),
        }
    }

    /// The file of the image on the node; `None` if it comes from a registry or a store of the runtime.
    pub(crate) fn image_file(&self) -> Option<Template> {
        let image = Template::new(self.image());
        let is_file = image.as_str().starts_with('/') || image.as_str().starts_with("{dir}");
        is_file.then_some(image)
    }

    /// Source, target, and whether the container cannot write to it.
    fn mounts(&self) -> Vec<(String, String, bool)> {
        let own = self.container.mounts.iter().map(|mount| {
            let source = below_folder(mount.source.as_str());
            (source, mount.target.value.clone(), mount.read_only)
        });
        let bind = self.started_by.bind.iter();
        let bind = bind.map(|bind| (bind.source.clone(), bind.target.clone(), bind.is_read_only));
        own.chain(bind).collect()
    }

    fn mount_words(&self, source: &str, target: &str, is_read_only: bool) -> Vec<String> {
        let mode = if is_read_only { ":ro" } else { "" };
        match self.runtime() {
            ContainerRuntime::Docker | ContainerRuntime::Podman => {
                vec![format!("--volume={source}:{target}{mode}")]
            }
            ContainerRuntime::Apptainer | ContainerRuntime::Singularity => {
                vec!["--bind".to_owned(), format!("{source}:{target}{mode}")]
            }
            ContainerRuntime::Enroot => {
                let mode = if is_read_only { ",ro" } else { "" };
                vec![
                    "--mount".to_owned(),
                    format!("{source}:{target}:none:x-create=auto,bind{mode}"),
                ]
            }
        }
    }

    /// Flags of `podman run` for settings that only it has.
    fn podman_flags(&self) -> Vec<String> {
        let container = &self.container;
        let mut flags = Vec::new();
        let ipc = container.ipc.as_ref();
        flags.extend(ipc.map(|ipc| format!("--ipc={ipc}")));
        let shm_size = container.shm_size.filter(|_| ipc.is_none_or(|ipc| ipc != "host"));
        flags.extend(shm_size.map(|size| format!("--shm-size={}", size.0)));
        let limits = container.ulimits.iter();
        flags.extend(limits.map(|(name, limit)| format!("--ulimit={name}={limit}")));
        flags.extend(container.init.then(|| "--init".to_owned()));
        flags.extend(container.privileged.then(|| "--privileged".to_owned()));
        let lists = [
            ("--device", &container.devices),
            ("--add-host", &container.extra_hosts),
            ("--cap-add", &container.cap_add),
            ("--security-opt", &container.security_opt),
            ("--group-add", &container.group_add),
        ];
        for (flag, values) in lists {
            flags.extend(values.iter().map(|value| format!("{flag}={value}")));
        }
        flags
    }

    /// The settings that the runtime cannot apply.
    pub(crate) fn unsupported(&self) -> Vec<Unsupported> {
        let container = &self.container;
        let name = self.runtime().name();
        let mut found = Vec::new();
        let mut refuse = |is_set: bool, key: &'static str, help: &str| {
            if is_set {
                found.push(Unsupported {
                    key,
                    help: help.to_owned(),
                });
            }
        };
        let of_job =
            "the container has the limits of the job: set `cpus` and `memory` in the profile of the cluster";
        refuse(container.cpuset.is_some(), "cpuset", of_job);
        refuse(container.memory.is_some(), "memory", of_job);
        refuse(container.memory_swap.is_some(), "memory_swap", of_job);
        let is_bridge = container.network == ContainerNetwork::Bridge;
        refuse(is_bridge, "network", "set `network: host` in the recipe");
        let is_foreign = container.runtime.as_ref().is_some_and(|own| own != "nvidia");
        refuse(
            is_foreign,
            "runtime",
            "remove `runtime`; `options` of `containers` in the profile of the cluster may have the same effect",
        );
        let separators = |text: &str| text.contains([':', ',']);
        let is_split = |mount: &Mount| separators(mount.source.as_str()) || separators(&mount.target.value);
        let is_split = container.mounts.iter().any(is_split);
        refuse(is_split, "mounts", "use paths without `:` and `,`");
        if self.runtime() != ContainerRuntime::Podman {
            let inherited = "the container takes this setting from the job. Remove it, or try `options` of `containers` in the profile of the cluster";
            let shares_ipc = container.ipc.as_ref().is_none_or(|ipc| ipc == "host");
            refuse(
                !shares_ipc,
                "ipc",
                "this container runtime always shares the IPC namespace of the node; set `ipc: host`",
            );
            let has_shm = container.shm_size.is_some() && container.ipc.is_none();
            refuse(
                has_shm,
                "shm_size",
                "the container uses `/dev/shm` of the node; set `ipc: host` as well",
            );
            refuse(
                !container.ulimits.is_empty(),
                "ulimits",
                "the container has the limits of the job. Write limits into `prolog` of the profile, such as `ulimit -l unlimited`, and remove `ulimits` from the recipe",
            );
            refuse(container.privileged, "privileged", inherited);
            let is_renamed = container.devices.iter().any(|device| device.contains(':'));
            refuse(
                is_renamed,
                "device_nodes",
                "a device cannot have another name in the container than on the node; write only its name on the node",
            );
            refuse(!container.extra_hosts.is_empty(), "extra_hosts", inherited);
            refuse(!container.cap_add.is_empty(), "cap_add", inherited);
            refuse(!container.security_opt.is_empty(), "security_opt", inherited);
            refuse(!container.group_add.is_empty(), "group_add", inherited);
        }
        if self.runtime() == ContainerRuntime::Enroot {
            let has_own = container.entrypoint.is_some();
            refuse(
                has_own,
                "entrypoint",
                &format!(
                    "remove `entrypoint`, because `{name}` passes the command to the entrypoint of the image"
                ),
            );
            let image = &container.image;
            let is_remote = !is_squashfs(image) && image.contains(['/', ':']);
            refuse(
                is_remote,
                "image",
                &format!(
                    "`{name}` starts only squashfs files and its own containers; import the image with `enroot import --output FILE.sqsh docker://{image}`, and set `image: FILE.sqsh`"
                ),
            );
        }
        found
    }
}

fn is_squashfs(image: &str) -> bool {
    SQUASHFS.iter().any(|end| image.ends_with(end))
}

/// A path with the placeholder of the folder of the matrix file, if it is relative.
fn below_folder(path: &str) -> String {
    match path.starts_with(['/', '{', '$']) {
        true => path.to_owned(),
        false => format!("{{dir}}/{}", path.trim_start_matches("./")),
    }
}

#[cfg(test)]
mod tests;
