//! The plan of a launch as a process of this host: command, Python environment, and the command line for users.

use serde::{Deserialize, Serialize};

use crate::config::engine::{ProcessEnvironment, ProcessRecipe};
use crate::config::template::Template;
use crate::plan::executor::members::{self, Member};
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
        let wants_venv = entry.venv.is_some() || !recipe.pip.is_empty();
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
            venv: wants_venv.then(|| Venv {
                path: entry.venv.clone(),
                packages: packages
                    .map(|package| package.replace("{version}", version))
                    .collect(),
                distribution: recipe.distribution.clone(),
                version: layers.point.version.clone(),
                python: recipe.python.clone().unwrap_or_else(|| "python3".to_owned()),
            }),
        }
    }
}

impl ExecutorSettings for Process {
    fn name(&self) -> &'static str {
        "process"
    }

    fn engine_source(&self) -> &'static str {
        match self.venv {
            Some(_) => "pip package",
            None => "process",
        }
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
        self.dir.iter().chain(venv).chain(members).collect()
    }

    fn members(&self) -> &[Member] {
        &self.members
    }

    fn pin(&self, _digest: Option<&str>) -> Result<ExecutorSpec, &'static str> {
        Ok(ExecutorSpec::Process(self.clone()))
    }

    fn command_line(&self, context: &LineContext<'_>) -> CommandLine {
        match self.members.is_empty() {
            true => CommandLine(shell_command(&self.env, &context.arguments, context)),
            false => members_command(self, context),
        }
    }
}

/// How a shell inside a job of a cluster starts a process on another of its nodes.
pub(crate) const SRUN: [&str; 5] = ["srun", "--overlap", "--nodes=1", "--ntasks=1", "--cpu-bind=none"];

/// The commands of all processes, which a shell runs at the same time.
fn members_command(process: &Process, context: &LineContext<'_>) -> CommandLine {
    let mut groups = Vec::new();
    let mut devices = context.devices.iter().cloned();
    for (index, member) in process.members.iter().enumerate() {
        let own: Vec<String> = devices.by_ref().take(member.local_gpus()).collect();
        let mut env = member.env.clone();
        if let Some(name) = process.devices_env.as_ref().filter(|_| !own.is_empty()) {
            env.insert(0, (name.clone(), Template::new(own.join(","))));
        }
        let arguments = members::member_command(&process.members, index, &context.ports);
        let mut words = shell_command(&env, &arguments, context);
        if member.node > 0 {
            let node = format!(
                "--nodelist=\"$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n {}p)\"",
                member.node + 1
            );
            let at = words.len() - 1;
            words.splice(at..at, [SRUN.join(" "), node]);
        }
        groups.extend(words);
        if index + 1 < process.members.len() {
            groups.push("&".to_owned());
        }
    }
    CommandLine(groups)
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
