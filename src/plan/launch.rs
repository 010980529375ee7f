//! One launch: a recipe with given arguments, as a plain value. The command line that `plan` prints, the process that is
//! spawned and the container that is created are all derived from it.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::ids::LaunchId;
use crate::base::units::{Bytes, Span};
use crate::config::engine::Environment;
use crate::config::template::Text;

/// The recipe with given arguments, which several cells share.
///
/// Texts may still hold the holes that only a start can fill: `{port}`, `{devices}`, `{venv}`, `{hf_home}`, `{matrix}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// Its name, unique within the plan.
    pub id: LaunchId,
    /// Which engine, in which version.
    pub engine: Engine,
    /// The model as the matrix names it.
    pub model: String,
    /// What the engine loads: a function of model, precision and engine.
    pub checkpoint: String,
    /// The model's name in requests.
    #[serde(rename = "served_model_name", alias = "served")]
    pub served: String,
    /// The precision of the weights, such as `bf16`, where known.
    pub precision: Option<String>,
    /// Whose tokenizer makes and counts tokens: a path or a model id.
    pub tokenizer: String,
    /// How the model is spread over devices.
    pub parallel: Parallel,
    /// How many devices it needs; 0 for an engine that runs without.
    pub devices: u32,
    /// Where and how it runs.
    pub place: Place,
    /// The command that makes it print every flag that it knows: of a container what follows its entrypoint. Empty: nobody knows one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub help: Vec<Text>,
    /// How to talk to it.
    #[serde(rename = "api", alias = "contact")]
    pub contact: Contact,
    /// What its log says about its state.
    #[serde(rename = "log_patterns", alias = "signs")]
    pub signs: Signs,
    /// How long to wait for it.
    #[serde(rename = "timeouts", alias = "patience")]
    pub patience: Patience,
}

impl Launch {
    /// The port it listens on unless a start chooses another one.
    pub fn usual_port(&self) -> u16 {
        self.contact.port.fixed.unwrap_or(self.contact.port.default)
    }

    /// Whether someone else started it: nothing that is measured on it is a start.
    pub const fn is_attached(&self) -> bool {
        matches!(self.place, Place::Attach(_))
    }

    /// How many GPUs it computes on; `None` where nobody knows.
    pub fn gpus(&self) -> Option<u32> {
        match &self.place {
            Place::Attach(attach) => attach.gpus.map(NonZeroU32::get),
            _ => Some(self.devices),
        }
    }

    /// The command with the arguments that set `port`, where that is not the engine's own default.
    pub fn argv(&self, port: u16) -> Vec<Text> {
        let command = match &self.place {
            Place::Container(container) => &container.command,
            Place::Process(process) => &process.command,
            Place::Attach(_) | Place::Imported(_) => return Vec::new(),
        };
        let flag = if port == self.contact.port.default {
            &[][..]
        } else {
            &self.contact.port.flag[..]
        };
        command.iter().chain(flag).cloned().collect()
    }

    /// The secrets that its texts name, sorted.
    pub fn secrets(&self) -> Vec<String> {
        let mut texts: Vec<&Text> = self.contact.headers.iter().map(|(_, value)| value).collect();
        texts.extend(&self.contact.port.flag);
        match &self.place {
            Place::Container(container) => {
                texts.extend(container.entrypoint.iter().flatten().chain(&container.command));
                texts.extend(container.env.iter().map(|(_, value)| value));
                texts.extend(container.mounts.iter().map(|mount| &mount.source));
            }
            Place::Process(process) => {
                texts.extend(process.command.iter().chain(&process.dir));
                texts.extend(process.env.iter().map(|(_, value)| value));
                texts.extend(process.venv.iter().filter_map(|venv| venv.path.as_ref()));
            }
            Place::Attach(attach) => texts.push(&attach.url),
            Place::Imported(_) => {}
        }
        let mut names: Vec<String> = texts
            .into_iter()
            .flat_map(|text| text.secrets().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

/// Which engine a launch starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Engine {
    /// The name in the matrix, unique there; `as:` sets it.
    pub name: String,
    /// The recipe's name.
    pub recipe: String,
    /// The engine's name for people.
    pub title: String,
    /// The version asked for; `None` for an engine someone else started.
    pub version: Option<String>,
    /// The variant of the recipe, where one was asked for.
    pub variant: Option<String>,
    /// The name that bench_serving knows the backend by.
    pub backend: String,
    /// Whether its figures are simulated.
    pub simulated: bool,
}

/// How a model is spread over devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parallel {
    /// Tensor-parallel size.
    pub tp: u32,
    /// Pipeline-parallel size.
    pub pp: u32,
    /// Data-parallel size.
    pub dp: u32,
    /// Expert-parallel size.
    pub ep: u32,
}

impl Default for Parallel {
    fn default() -> Self {
        Self {
            tp: 1,
            pp: 1,
            dp: 1,
            ep: 1,
        }
    }
}

/// Where and how an engine runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In a container.
    Container(Box<Container>),
    /// As a process of this host.
    Process(Process),
    /// Started by someone else.
    Attach(Attach),
    /// Told by another tool's results; nothing can be started from it.
    Imported(Imported),
}

impl Place {
    /// The executor's name in YAML.
    pub const fn executor(&self) -> &'static str {
        match self {
            Self::Container(_) => "container",
            Self::Process(_) => "process",
            Self::Attach(_) => "attach",
            Self::Imported(_) => "imported",
        }
    }
}

/// A container to create.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Container {
    /// The image with its tag or digest.
    pub image: String,
    /// The entrypoint, where the image's own is replaced.
    pub entrypoint: Option<Vec<Text>>,
    /// The command, which follows the entrypoint.
    pub command: Vec<Text>,
    /// Environment variables in order.
    pub env: Vec<(String, Text)>,
    /// Directories of the host that it sees.
    pub mounts: Vec<Mount>,
    /// The container runtime, such as `nvidia`.
    pub runtime: Option<String>,
    /// Which GPUs it gets.
    pub gpus: Gpus,
    /// The IPC namespace, such as `host`.
    pub ipc: Option<String>,
    /// How it is reached.
    pub network: Network,
    /// Size of `/dev/shm`; without meaning beside host IPC.
    pub shm_size: Option<Bytes>,
    /// Resource limits: name, soft and hard.
    pub ulimits: Vec<(String, i64)>,
    /// Whether an init process forwards signals and reaps.
    pub init: bool,
    /// Device nodes of the host that it sees.
    pub devices: Vec<String>,
    /// Whether it may do anything to the host.
    pub privileged: bool,
    /// The CPUs that it may use, such as `0-7,16`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpuset: Option<String>,
    /// The most memory that it may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
    /// The most memory and swap together; as much as `memory` means no swap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_swap: Option<Bytes>,
    /// Names of hosts that it knows, such as `hub:10.0.0.1`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extra_hosts: Vec<String>,
    /// Capabilities that it has beside the usual ones, such as `SYS_PTRACE`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cap_add: Vec<String>,
    /// Security options, such as `seccomp=unconfined`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub security_opt: Vec<String>,
    /// Groups that its processes belong to as well, such as `video`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_add: Vec<String>,
}

/// A directory of the host in a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mount {
    /// The directory of the host.
    pub source: Text,
    /// Where the container sees it.
    pub target: String,
    /// Whether the container may not write there.
    pub read_only: bool,
}

/// Which GPUs a container gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Gpus {
    /// None.
    #[default]
    None,
    /// All of the host's.
    All,
    /// Those that the launch leased, by id.
    Leased,
    /// Those that the launch leased, by their CDI names, such as `nvidia.com/gpu=0`.
    Cdi,
    /// All of the host's, by the CDI name `nvidia.com/gpu=all`.
    CdiAll,
}

impl Gpus {
    /// The CDI names by which a launch with these devices asks for GPUs; none where it asks otherwise, or for none.
    pub fn cdi(self, devices: &[String]) -> Vec<String> {
        match self {
            Self::Cdi => devices
                .iter()
                .map(|device| format!("nvidia.com/gpu={device}"))
                .collect(),
            Self::CdiAll => vec!["nvidia.com/gpu=all".to_owned()],
            Self::None | Self::All | Self::Leased => Vec::new(),
        }
    }
}

/// How a container is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// It shares the host's network; no port mapping.
    #[default]
    Host,
    /// Docker's bridge with the port mapped.
    Bridge,
}

/// A process to start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// Program and arguments.
    pub command: Vec<Text>,
    /// Environment variables set on top of our own, in order.
    pub env: Vec<(String, Text)>,
    /// Which variables of our own environment it gets.
    #[serde(default, skip_serializing_if = "is_inherited")]
    pub environment: Environment,
    /// Working directory; the one of `matrix` where absent.
    pub dir: Option<Text>,
    /// The variable that names the leased devices to it, such as `CUDA_VISIBLE_DEVICES`.
    pub devices_env: Option<String>,
    /// The Python environment it runs in.
    pub venv: Option<Venv>,
}

fn is_inherited(environment: &Environment) -> bool {
    *environment == Environment::Inherited
}

/// A Python environment for one engine version. Its `bin` directory comes first in the process's `PATH`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Venv {
    /// An existing environment; where absent `matrix` keeps one of its own and installs `packages` into it.
    pub path: Option<Text>,
    /// What pip installs, such as `lmdeploy==0.10.0`.
    pub packages: Vec<String>,
    /// The distribution whose installed version must be the one asked for.
    pub distribution: Option<String>,
    /// The version asked for.
    pub version: Option<String>,
    /// The Python to make it with.
    pub python: String,
}

/// An engine that someone else started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Attach {
    /// Its base URL, such as `http://host:8000`.
    pub url: Text,
    /// How many GPUs it computes on, as the matrix declares; `None` where nobody knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<NonZeroU32>,
    /// Which kind of GPU it computes on, as the matrix declares.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
}

/// What another tool's results tell of how an engine was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// The image of the container.
    pub image: Option<String>,
    /// What was installed from pip, such as `lmdeploy==0.10.0`.
    pub package: Option<String>,
    /// Which kind of GPU it computed on, as somebody declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// The command, line by line as it was published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
}

/// How to talk to an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contact {
    /// The port it listens on.
    pub port: Port,
    /// The path that answers 200 when it is healthy.
    pub health: String,
    /// The path that lists its models, where it has one.
    pub models: Option<String>,
    /// Where its version can be read.
    pub version: Option<Reading>,
    /// The path of its live configuration, where it has one.
    pub info: Option<String>,
    /// Its Prometheus metrics.
    pub metrics: Option<Metrics>,
    /// How its prefix cache is emptied; `None`: it cannot be.
    pub reset: Option<Reset>,
    /// Whether the prompts of each measurement begin with letters that none before it had, because nothing empties its caches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unique_prefixes: bool,
    /// Whether it is started anew for each cell, because nothing else empties its caches.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart_for_cells: bool,
    /// How requests are written and answers read.
    pub dialect: Dialect,
    /// Headers sent with every request, such as `Authorization: Bearer ${API_KEY}`.
    pub headers: Vec<(String, Text)>,
}

/// Which port an engine listens on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Where it listens when nobody says otherwise.
    pub default: u16,
    /// The port it must have; a process without one gets a free port.
    pub fixed: Option<u16>,
    /// The arguments that set another port than the default, such as `--port {port}`; appended to the command.
    pub flag: Vec<Text>,
}

/// A value to be read from a JSON answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reading {
    /// The path to ask.
    pub path: String,
    /// Where the value stands, as a JSON pointer such as `/version`.
    pub pointer: String,
}

/// An engine's Prometheus metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// The path that answers with Prometheus text.
    pub path: String,
    /// Our name for a figure, such as `running`, and the engine's names for it, the first one found counts.
    pub names: BTreeMap<String, Vec<String>>,
}

/// How a prefix cache is emptied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reset {
    /// `GET` or `POST`.
    pub method: String,
    /// The path to call.
    pub path: String,
    /// Where a JSON answer says `true` for success, as a JSON pointer; without it status 200 counts.
    #[serde(default)]
    pub success: Option<String>,
}

/// How requests are written and answers read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dialect {
    /// The protocol.
    pub protocol: Protocol,
    /// The path, where it is not the protocol's own.
    pub path: Option<String>,
    /// How the engine is asked for its token counts.
    pub usage: Usage,
    /// Fields added to every request body; `null` removes one.
    pub body: serde_json::Map<String, serde_json::Value>,
}

/// A protocol that `matrix` speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// SGLang's own: `POST /generate`, cumulative text.
    SglangNative,
    /// OpenAI completions: `POST /v1/completions`.
    Completions,
    /// OpenAI chat: `POST /v1/chat/completions`.
    Chat,
    /// TensorRT-LLM behind Triton: `POST /v2/models/ensemble/generate_stream`.
    Trt,
    /// Truss: `POST /v1/models/model:predict`, answered like completions.
    Truss,
    /// OpenAI embeddings: `POST /v1/embeddings`.
    Embeddings,
}

impl Protocol {
    /// Its name, as recipes write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SglangNative => "sglang-native",
            Self::Completions => "completions",
            Self::Chat => "chat",
            Self::Trt => "trt",
            Self::Truss => "truss",
            Self::Embeddings => "embeddings",
        }
    }
}

/// How an engine is asked for its token counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Usage {
    /// It always tells, or it cannot be asked.
    #[default]
    Unasked,
    /// `stream_options: {"include_usage": true}` brings one event at the end.
    StreamOptions,
}

/// What an engine's log says about its state. All patterns are plain parts of a line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Signs {
    /// Lines that begin a phase of starting.
    pub phases: Vec<PhaseSign>,
    /// Lines that mean it is dead, though its process may live on.
    #[serde(rename = "fatal", alias = "dead")]
    pub dead: Vec<DeadSign>,
}

/// A line that begins a phase of starting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PhaseSign {
    /// The phase, such as `weights`, `compile` or `graphs`.
    pub phase: String,
    /// A part of the line.
    pub pattern: String,
}

/// A line that means an engine is dead.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeadSign {
    /// A part of the line.
    pub pattern: String,
    /// What it means, in a few words.
    pub means: String,
    /// What to try.
    pub help: String,
    /// Whether the line alone ends the launch; otherwise it only explains a death.
    #[serde(default)]
    pub fatal: bool,
    /// Whose fault it is.
    #[serde(default)]
    #[serde(rename = "fault", alias = "blame")]
    pub blame: Blame,
}

/// Whose fault the death of an engine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Blame {
    /// The engine's own.
    #[default]
    Engine,
    /// Too little memory or too few devices.
    Capacity,
    /// What the matrix asks for cannot be.
    Spec,
}

/// How long to wait for an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Patience {
    /// The longest start.
    pub start: Span,
    /// The longest silence of its log while it starts.
    pub stall: Span,
    /// How long it may take to end after SIGTERM before it is killed.
    pub stop: Span,
    /// The longest wait for the one real token that proves it ready.
    pub probe: Span,
}
