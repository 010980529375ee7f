//! The plan of a launch as a process of this host: command, Python environment, and the command line for users. The process
//! may be a container, if a job starts it without a daemon.

use std::cell::RefCell;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::config::container::ContainerGpus;
use crate::config::engine::{ProcessEnvironment, ProcessRecipe};
use crate::config::job_containers::JobContainers;
use crate::config::template::Template;
use crate::plan::executor::container::Container;
use crate::plan::executor::container_command::ContainerCommand;
use crate::plan::executor::members::{self, Addresses, Member};
use crate::plan::executor::{ExecutorSettings, ExecutorSpec, Facts};
use crate::plan::layers::Layers;
use crate::plan::shell::{CommandLine, LineContext, passes_variable};

pub(super) const FACTS: Facts = Facts {
    starts_engine: true,
    leases_gpus: true,
    has_container: false,
    help: |recipe| {
        let own = recipe.process.as_ref().and_then(|process| process.help.as_ref());
        own.or(recipe.help.as_ref())
    },
    merge: |layers| ExecutorSpec::Process(Process::merge(layers)),
};

/// The variable that tells an engine on CUDA its GPUs.
const CUDA_DEVICES: &str = "CUDA_VISIBLE_DEVICES";

/// A process to start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) command: Vec<Template>,
    /// Environment variables on top of the inherited ones, in order.
    pub(crate) env: Vec<(String, Template)>,
    /// Variables that the process inherits.
    #[serde(default, skip_serializing_if = "is_inherited")]
    pub(crate) environment: ProcessEnvironment,
    /// Working folder; that of `matrix` if absent.
    pub(crate) dir: Option<Template>,
    /// The variable that tells the process its leased GPUs, such as `CUDA_VISIBLE_DEVICES`.
    pub(crate) devices_env: Option<String>,
    pub(crate) venv: Option<Venv>,
    /// The container in which the command runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) container: Option<Box<ContainerCommand>>,
    /// The processes of an engine that consists of several, each with its own command and environment. `command` and `env`
    /// are then those of the engine without them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) members: Vec<Member>,
}

fn is_inherited(environment: &ProcessEnvironment) -> bool {
    *environment == ProcessEnvironment::Inherited
}

/// A Python environment for one engine version. Its `bin` folder comes first in the process's `PATH`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Venv {
    /// An existing environment; if absent, `matrix` creates its own and installs `packages` into it.
    pub(crate) path: Option<Template>,
    /// Packages for pip, such as `lmdeploy==0.10.0`.
    pub(crate) packages: Vec<String>,
    /// The distribution whose installed version must be `version`.
    pub(crate) distribution: Option<String>,
    pub(crate) version: Option<String>,
    /// The Python interpreter that creates the environment.
    pub(crate) python: String,
}

impl Process {
    pub(super) fn merge(layers: &Layers<'_>) -> Self {
        let entry = layers.site.entry;
        let none = ProcessRecipe::default();
        let patched = layers.patched(|patch| patch.process.as_ref());
        let recipe = patched.or(layers.site.recipe.process.as_ref()).unwrap_or(&none);
        let version = layers.point.version.as_deref().unwrap_or_default();
        let version = version.trim_start_matches('v');
        let packages = recipe.pip.iter();
        let overridden_venv = layers.overridden(|over| over.venv.as_ref());
        let own_venv = overridden_venv.or(entry.venv.as_ref());
        let has_program = layers.overridden(|over| over.program.as_ref()).is_some();
        let wants_venv = own_venv.is_some() || (!recipe.pip.is_empty() && !has_program);
        let base = |layers: &Layers<'_>| {
            let command = layers.command_with_arguments(recipe.command.as_ref());
            (command, layers.environment(&recipe.env))
        };
        let (command, env) = base(layers);
        Self {
            members: members::merge(layers, &base),
            command,
            env,
            environment: entry.environment.unwrap_or(recipe.environment),
            dir: recipe.dir.as_ref().map(|dir| dir.fill_placeholders(layers.fill)),
            devices_env: recipe.devices_env.clone(),
            container: None,
            venv: wants_venv.then(|| Venv {
                path: own_venv.cloned(),
                packages: packages
                    .map(|package| package.replace("{version}", version))
                    .collect(),
                // The environment of an override has the version that it has.
                distribution: recipe.distribution.clone().filter(|_| overridden_venv.is_none()),
                version: layers.point.version.clone(),
                python: recipe.python.clone().unwrap_or_else(|| "python3".to_owned()),
            }),
        }
    }
}

impl Process {
    /// The process that starts this container in a job.
    pub(super) fn in_container(
        layers: &Layers<'_>,
        mut container: Container,
        started_by: &JobContainers,
    ) -> Self {
        let recipe = layers.site.recipe.container.as_ref();
        let base = |layers: &Layers<'_>| {
            let command = recipe.and_then(|recipe| recipe.command.as_ref());
            let env = recipe.map(|recipe| &recipe.env);
            let env = env.map(|env| layers.environment(env)).unwrap_or_default();
            (layers.command_with_arguments(command), env)
        };
        let patched = layers.patched(|patch| patch.process.as_ref());
        let process = patched.or(layers.site.recipe.process.as_ref());
        let devices_env = process.and_then(|process| process.devices_env.clone());
        let has_gpus = container.gpus != ContainerGpus::None;
        Self {
            members: members::merge(layers, &base),
            command: std::mem::take(&mut container.command),
            env: std::mem::take(&mut container.env),
            devices_env: devices_env.or(has_gpus.then(|| CUDA_DEVICES.to_owned())),
            container: Some(Box::new(ContainerCommand {
                started_by: started_by.clone(),
                container,
            })),
            ..Self::default()
        }
    }

    /// The command that a host executes for `command`, the engine's own, and the variables to set for it. `passed` names
    /// further variables that it gets.
    pub(crate) fn outer_command(
        &self,
        command: Vec<Template>,
        env: &[(String, Template)],
        passed: &[&str],
        has_gpus: bool,
    ) -> (Vec<Template>, Vec<(String, Template)>) {
        let Some(container) = &self.container else {
            return (command, env.to_vec());
        };
        let mut passed = passed.to_vec();
        if let Some(name) = self.devices_env.as_deref().filter(|_| has_gpus) {
            passed.push(name);
        }
        container.wrap(&command, env, &passed, has_gpus)
    }
}

impl ExecutorSettings for Process {
    fn name(&self) -> &'static str {
        match self.container {
            Some(_) => "container",
            None => "process",
        }
    }

    fn engine_source(&self) -> &'static str {
        match (&self.container, &self.venv) {
            (Some(_), _) => "container image",
            (None, Some(_)) => "pip package",
            (None, None) => "process",
        }
    }

    fn image(&self) -> Option<&str> {
        let command = self.container.as_ref()?;
        Some(&command.container.image)
    }

    fn container_command(&self) -> Option<&ContainerCommand> {
        self.container.as_deref()
    }

    fn pip_install(&self) -> Option<String> {
        let venv = self.venv.as_ref().filter(|venv| !venv.packages.is_empty())?;
        Some(format!(
            "{} -m pip install {}",
            venv.python,
            venv.packages.join(" ")
        ))
    }

    fn command(&self) -> Option<&[Template]> {
        Some(&self.command)
    }

    fn env(&self) -> &[(String, Template)] {
        &self.env
    }

    fn other_templates(&self) -> Vec<&Template> {
        let venv = self.venv.iter().filter_map(|venv| venv.path.as_ref());
        let members = self.members.iter().flat_map(|member| {
            let peers = member.peers.iter().flat_map(|peer| &peer.arguments);
            let env = member.env.iter().map(|(_, value)| value);
            member.command.iter().chain(peers).chain(env)
        });
        let container = self.container.iter().flat_map(|command| {
            let mounts = command.container.mounts.iter().map(|mount| &mount.source);
            command.container.entrypoint.iter().flatten().chain(mounts)
        });
        let texts = self.dir.iter().chain(venv).chain(members);
        texts.chain(container).collect()
    }

    fn members(&self) -> &[Member] {
        &self.members
    }

    fn pin(&self, digest: Option<&str>) -> Result<ExecutorSpec, &'static str> {
        let mut pinned = self.clone();
        if let Some(command) = &mut pinned.container {
            let digest = digest.ok_or("the digest of the engine's image is unknown")?;
            command.container.image = digest.to_owned();
        }
        Ok(ExecutorSpec::Process(pinned))
    }

    fn command_line(&self, context: &LineContext<'_>) -> CommandLine {
        match self.members.is_empty() {
            true => {
                let arguments = context.arguments.clone();
                CommandLine(self.shell_command(&self.env, arguments, context.gpus > 0, context))
            }
            false => members_command(self, context),
        }
    }
}

/// How a shell inside a job of a cluster starts a process on another of its nodes.
pub(crate) const SRUN: [&str; 5] = ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none"];

/// The commands of all processes, which a shell on the first node runs at the same time. Its variables `NODE1`, `ADDRESS1` and so on
/// are the names and addresses of the nodes.
fn members_command(process: &Process, context: &LineContext<'_>) -> CommandLine {
    let used = RefCell::new(BTreeSet::new());
    let addresses = Addresses {
        members: &process.members,
        ports: &context.ports,
        host: &|node| {
            used.borrow_mut().insert(node);
            Some(format!("${{{ADDRESS}{node}}}"))
        },
    };
    let mut groups = Vec::new();
    let mut devices = context.devices.iter().cloned();
    for (index, member) in process.members.iter().enumerate() {
        let own: Vec<String> = devices.by_ref().take(member.local_gpus()).collect();
        let mut env = member.env.clone();
        if let Some(name) = process.devices_env.as_ref().filter(|_| !own.is_empty()) {
            env.insert(0, (name.clone(), Template::new(own.join(","))));
        }
        let env: Vec<(String, Template)> = env
            .into_iter()
            .map(|(name, value)| (name, addresses.fill(index, &value)))
            .collect();
        let arguments = addresses.command(index);
        let mut words = process.shell_command(&env, arguments, member.gpus > 0, context);
        if member.node > 0 {
            let node = format!("--nodelist=\"${NODE}{}\"", member.node);
            let at = words.len() - 1;
            words.splice(at..at, [SRUN.join(" "), node]);
            words.splice(at + 2..at + 2, process.gpus_of_shared_node(index));
        }
        groups.extend(words);
        if index + 1 < process.members.len() {
            groups.push("&".to_owned());
        }
    }
    let mut all = node_assignments(&process.members, &used.into_inner());
    all.extend(groups);
    CommandLine(all)
}

/// How the variables of a printed command with the name and with the address of a node begin.
const NODE: &str = "NODE";
const ADDRESS: &str = "ADDRESS";

/// The assignments to the variables of the nodes; empty on one node. `addressed` are the nodes whose addresses are used.
fn node_assignments(members: &[Member], addressed: &BTreeSet<u32>) -> Vec<String> {
    let mut named: BTreeSet<u32> = members.iter().map(|member| member.node).collect();
    if named.last() == Some(&0) {
        return Vec::new();
    }
    if !addressed.contains(&0) {
        named.remove(&0);
    }
    let mut lines =
        vec![": \"${SLURM_JOB_NODELIST:?enter this on the first node of an allocation}\";".to_owned()];
    lines.extend(named.iter().map(|node| {
        format!(
            "{NODE}{node}=$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n {}p);",
            node + 1
        )
    }));
    lines.extend(addressed.iter().map(|node| {
        format!(
            "{ADDRESS}{node}=$(scontrol show node --oneliner \"${NODE}{node}\" | sed 's/.* NodeAddr=\\([^ ]*\\).*/\\1/');"
        )
    }));
    lines
}

impl Process {
    /// The words by which a process gets its GPUs of another node that it shares: their positions among those of the job there.
    fn gpus_of_shared_node(&self, index: usize) -> Option<String> {
        let member = &self.members[index];
        let others = self.members.iter().filter(|other| other.node == member.node);
        let is_shared = others.map(|other| other.gpus).sum::<u32>() > member.gpus;
        let name = self
            .devices_env
            .as_ref()
            .filter(|_| is_shared && member.gpus > 0)?;
        let first = members::gpus_before(&self.members, index);
        let gpus: Vec<String> = (first..first + member.gpus).map(|gpu| gpu.to_string()).collect();
        Some(format!("env {name}={}", gpus.join(",")))
    }

    /// The command of a process, in its container if it has one.
    fn shell_command(
        &self,
        env: &[(String, Template)],
        arguments: Vec<Template>,
        has_gpus: bool,
        context: &LineContext<'_>,
    ) -> Vec<String> {
        let (words, env) = self.outer_command(arguments, env, &[], has_gpus);
        // The folder of the matrix file is known once a launch runs.
        let folder = context.folder.map(|folder| folder.to_string_lossy().into_owned());
        let fill = |name: &str| {
            folder
                .clone()
                .filter(|_| name == "dir" && self.container.is_some())
        };
        let words: Vec<Template> = words.iter().map(|word| word.fill_placeholders(&fill)).collect();
        shell_command(&env, &words, context)
    }
}

fn shell_command(
    env: &[(String, Template)],
    arguments: &[Template],
    context: &LineContext<'_>,
) -> Vec<String> {
    let given: Vec<&(String, Template)> = env
        .iter()
        .filter(|(name, value)| !passes_variable(name, value))
        .collect();
    let is_plain = given.iter().all(|(name, _)| is_shell_name(name));
    let mut groups: Vec<String> = given
        .iter()
        .map(|(name, value)| match is_plain {
            true => format!("{name}={}", context.quote(value)),
            false => context.quote(&Template::new(format!("{name}={value}"))),
        })
        .collect();
    if !is_plain {
        // A shell takes an assignment to another name for a program.
        groups.insert(0, "env".to_owned());
    }
    groups.push(context.quote_all(arguments));
    groups
}

/// Whether a POSIX shell can assign to a variable of that name.
fn is_shell_name(name: &str) -> bool {
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    name.chars().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit())
}
