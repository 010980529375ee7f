//! The executors in a plan, a file for each: what the plan asks of it ([`Facts`]), its settings
//! ([`ExecutorSettings`]), how recipe and matrix become these settings, and its line for a shell. To add one,
//! write a file, and name it here in the enum and in the two tables.

mod attach;
mod container;
mod container_command;
mod imported;
pub(crate) mod members;
mod process;

use serde::{Deserialize, Serialize};

pub(crate) use attach::AttachedServer;
pub(crate) use container::Container;
pub(crate) use container_command::{ContainerCommand, Unsupported};
pub(crate) use imported::ImportedLaunch;
pub(crate) use members::{Addresses, Member, Ports, further_ports, gpus_before};
pub(crate) use process::{Process, SRUN, Venv};

use crate::config::engine::{Executor, Recipe};
use crate::config::template::Template;
use crate::plan::layers::Layers;
use crate::plan::shell::{CommandLine, LineContext};

/// The executor of an engine with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ExecutorSpec {
    Container(Box<Container>),
    /// As a process of this host.
    Process(Process),
    Attach(AttachedServer),
    /// Known only from another tool's results; cannot be started.
    Imported(ImportedLaunch),
}

impl ExecutorSpec {
    pub(crate) fn settings(&self) -> &dyn ExecutorSettings {
        match self {
            Self::Container(container) => &**container,
            Self::Process(process) => process,
            Self::Attach(attach) => attach,
            Self::Imported(imported) => imported,
        }
    }

    /// Whether it is an attached server.
    pub(crate) const fn is_attached(&self) -> bool {
        matches!(self, Self::Attach(_))
    }
}

pub(crate) const fn facts(executor: Executor) -> &'static Facts {
    match executor {
        Executor::Container => &container::FACTS,
        Executor::Process => &process::FACTS,
        Executor::Attach => &attach::FACTS,
    }
}

/// What the plan asks of an executor that a matrix names.
pub(crate) struct Facts {
    /// Whether `matrix` starts the engine.
    pub(crate) starts_engine: bool,
    /// Whether a launch leases GPUs of this host.
    pub(crate) leases_gpus: bool,
    /// Whether `container:` of a matrix has an effect.
    pub(crate) has_container: bool,
    /// The command of a recipe that prints the engine's flags.
    pub(crate) help: fn(&Recipe) -> Option<&Vec<Template>>,
    pub(crate) merge: fn(&Layers<'_>) -> ExecutorSpec,
}

/// The settings of one launch. Reports and comparisons ask these methods.
pub(crate) trait ExecutorSettings {
    /// The executor's name in YAML.
    fn name(&self) -> &'static str;

    /// Where the engine comes from, such as `container image`.
    fn engine_source(&self) -> &'static str;

    /// The processes of an engine that consists of several; empty for others.
    fn members(&self) -> &[Member] {
        &[]
    }

    /// The container, if it runs in one of the container daemon.
    fn container(&self) -> Option<&Container> {
        None
    }

    fn image(&self) -> Option<&str> {
        None
    }

    /// The command that starts its container, if it runs in one without a daemon.
    fn container_command(&self) -> Option<&ContainerCommand> {
        None
    }

    /// The shell line that installs it from pip, where it comes from there.
    fn pip_install(&self) -> Option<String> {
        None
    }

    /// The command that starts it (for a container, the arguments of the entrypoint), whose words are compared
    /// as arguments of the engine. `None` if `matrix` does not start it.
    fn command(&self) -> Option<&[Template]> {
        None
    }

    /// Environment variables to set, in order.
    fn env(&self) -> &[(String, Template)] {
        &[]
    }

    /// Texts besides command and environment that may name a secret.
    fn other_templates(&self) -> Vec<&Template> {
        Vec::new()
    }

    /// Number of GPUs if the launch leases `leased` of this host; `None` if unknown.
    fn gpus(&self, leased: u32) -> Option<u32> {
        Some(leased)
    }

    /// The kind of GPU that the matrix or an import declares.
    fn declared_gpu(&self) -> Option<&str> {
        None
    }

    /// How many servers share the load, and how.
    fn servers_in_words(&self) -> String {
        "1".to_owned()
    }

    /// Returns the measured build itself: a container by its image's digest, because its tag may have moved.
    ///
    /// # Errors
    /// Why that build cannot be started.
    fn pin(&self, digest: Option<&str>) -> Result<ExecutorSpec, &'static str>;

    /// The line that starts it in a shell, or a comment.
    fn command_line(&self, context: &LineContext<'_>) -> CommandLine;
}
