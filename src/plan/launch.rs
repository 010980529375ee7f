//! One launch: a resolved recipe as a plain value. The command line that `plan` prints, the process and the
//! container are all derived from it.

use serde::{Deserialize, Serialize};

use crate::base::ids::LaunchId;
use crate::base::units::HumanDuration;
use crate::config::api::{CacheResetSpec, ClientStyle, EmbeddingsForm, JsonField, Protocol, UsageRequest};
use crate::config::log_patterns::LogPatterns;
use crate::config::metrics::MetricDefinitions;
use crate::config::template::Template;
use crate::plan::executor::ExecutorSpec;
use crate::plan::executor::members::Member;

/// A recipe resolved with arguments, shared by several cells.
///
/// Texts may still contain the placeholders that only a start can fill: `{port}`, `{devices}`, `{venv}`,
/// `{hf_home}`, `{matrix}`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launch {
    /// Its name, unique in the plan.
    pub(crate) id: LaunchId,
    /// Name, recipe and version of the engine.
    pub(crate) engine: Engine,
    /// The model as the matrix names it.
    pub(crate) model: String,
    /// What the engine loads; depends on model, precision and engine.
    pub(crate) checkpoint: String,
    /// The model's name in requests.
    #[serde(rename = "served_model_name", alias = "served")]
    pub(crate) served_model_name: String,
    /// Precision of the weights, such as `bf16`, if known.
    pub(crate) precision: Option<String>,
    /// The tokenizer for making prompts and counting tokens: a path or a model id.
    pub(crate) tokenizer: String,
    /// How the model is distributed over devices.
    pub(crate) parallel: Parallel,
    /// Number of GPUs, on all its nodes together; 0 for an engine without GPUs.
    pub(crate) devices: u32,
    /// The executor with its settings.
    pub(crate) place: ExecutorSpec,
    /// Command that prints `--help` (arguments only, for a container). Empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) help: Vec<Template>,
    /// Paths, protocol and metrics of the engine's HTTP API.
    #[serde(rename = "api", alias = "contact")]
    pub(crate) api: Api,
    /// Patterns that show the engine's state in its log.
    #[serde(rename = "log_patterns", alias = "signs")]
    pub(crate) log_patterns: LogPatterns,
    /// Timeouts of the engine.
    #[serde(rename = "timeouts", alias = "patience")]
    pub(crate) timeouts: Timeouts,
}

impl Launch {
    /// Creates a launch without id, GPUs and timeouts.
    pub(crate) fn new(engine: Engine, model: &str, place: ExecutorSpec, api: Api) -> Self {
        Self {
            id: LaunchId::new(""),
            engine,
            model: model.to_owned(),
            checkpoint: model.to_owned(),
            served_model_name: model.to_owned(),
            precision: None,
            tokenizer: model.to_owned(),
            parallel: Parallel::default(),
            devices: 0,
            place,
            help: Vec::new(),
            api,
            log_patterns: LogPatterns::default(),
            timeouts: Timeouts::default(),
        }
    }

    /// The port it listens on unless a start chooses another one.
    pub(crate) fn default_port(&self) -> u16 {
        self.api.port.fixed.unwrap_or(self.api.port.default)
    }

    /// Whether it is an attached server, whose measurements are repeats and not starts.
    pub(crate) const fn is_attached(&self) -> bool {
        self.place.is_attached()
    }

    /// Number of GPUs; `None` if unknown.
    pub(crate) fn gpus(&self) -> Option<u32> {
        self.place.settings().gpus(self.devices)
    }

    /// The processes of an engine that consists of several; empty for others.
    pub(crate) fn members(&self) -> &[Member] {
        self.place.settings().members()
    }

    /// Whether its processes have roles; otherwise they are ranks, or there is only one.
    pub(crate) fn has_roles(&self) -> bool {
        // Processes of a role are numbered from 1.
        self.members().first().is_some_and(|first| first.name != "rank 0")
    }

    /// Number of nodes that it runs on.
    pub(crate) fn nodes(&self) -> u32 {
        let last = self.members().iter().map(|member| member.node).max();
        last.map_or(1, |last| last + 1)
    }

    /// Number of GPUs of one of its nodes.
    pub(crate) fn gpus_on(&self, node: u32) -> u32 {
        let members = self.members().iter().filter(|member| member.node == node);
        members.map(|member| member.gpus).sum()
    }

    /// Number of GPUs of the node that has most.
    pub(crate) fn gpus_of_a_node(&self) -> u32 {
        let nodes = (0..self.nodes()).map(|node| self.gpus_on(node));
        match self.members() {
            [] => self.devices,
            _ => nodes.max().unwrap_or(0),
        }
    }

    /// Number of GPUs of the first node, which is the one that `matrix` runs on.
    pub(crate) fn local_gpus(&self) -> u32 {
        match self.members() {
            [] => self.devices,
            _ => self.gpus_on(0),
        }
    }

    /// The command with the arguments that set `port`, if it differs from the engine's default.
    pub(crate) fn command_args(&self, port: u16) -> Vec<Template> {
        let Some(command) = self.place.settings().command() else {
            return Vec::new();
        };
        let flag = if port == self.api.port.default {
            &[][..]
        } else {
            &self.api.port.flag[..]
        };
        command.iter().chain(flag).cloned().collect()
    }

    /// Names of the secrets in its texts, sorted.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let mut texts: Vec<&Template> = self.api.headers.iter().map(|(_, value)| value).collect();
        texts.extend(&self.api.port.flag);
        let settings = self.place.settings();
        texts.extend(settings.command().into_iter().flatten());
        texts.extend(settings.env().iter().map(|(_, value)| value));
        texts.extend(settings.other_templates());
        let mut names: Vec<String> = texts
            .into_iter()
            .flat_map(|text| text.secrets().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

/// The engine of a launch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Engine {
    /// Its unique name in the matrix; `as:` sets it.
    pub(crate) name: String,
    pub(crate) recipe: String,
    /// The engine's name for users.
    pub(crate) title: String,
    /// The requested version; `None` for an attached server.
    pub(crate) version: Option<String>,
    /// The requested variant of the recipe.
    pub(crate) variant: Option<String>,
    /// bench_serving's name of the backend.
    pub(crate) backend: String,
    /// Whether its metrics are simulated.
    pub(crate) simulated: bool,
}

impl Engine {
    /// Creates an engine with one name for all uses.
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            recipe: name.to_owned(),
            title: name.to_owned(),
            version: None,
            variant: None,
            backend: name.to_owned(),
            simulated: false,
        }
    }
}

/// How a model is distributed over devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Parallel {
    pub(crate) tp: u32,
    pub(crate) pp: u32,
    pub(crate) dp: u32,
    pub(crate) ep: u32,
}

impl Parallel {
    /// The size of each kind, by the name of its axis.
    pub(crate) const fn sizes(self) -> [(&'static str, u32); 4] {
        [("tp", self.tp), ("pp", self.pp), ("dp", self.dp), ("ep", self.ep)]
    }
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

/// The HTTP API of an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Api {
    pub(crate) port: Port,
    /// The path that answers 200 if the engine is healthy.
    pub(crate) health: String,
    /// The path that lists its models, if there is one.
    pub(crate) models: Option<String>,
    /// How its version is read.
    pub(crate) version: Option<JsonField>,
    /// The path of its live configuration, if there is one.
    pub(crate) info: Option<String>,
    pub(crate) metrics: Option<MetricDefinitions>,
    /// How its prefix cache is reset; `None` if that is impossible.
    pub(crate) reset: Option<CacheResetSpec>,
    /// Whether prompts of each measurement get a unique prefix, because its caches cannot be reset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unique_prefixes: bool,
    /// Whether it is restarted for each cell, because its caches cannot be reset.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) restart_for_cells: bool,
    /// Protocol and settings of requests.
    pub(crate) dialect: ProtocolSpec,
    /// Headers of every request, such as `Authorization: Bearer ${API_KEY}`.
    pub(crate) headers: Vec<(String, Template)>,
}

impl Api {
    /// Creates an API with only a protocol, at the default port.
    pub(crate) fn new(protocol: Protocol) -> Self {
        Self {
            port: Port {
                default: 8000,
                fixed: None,
                flag: Vec::new(),
            },
            health: "/health".to_owned(),
            models: None,
            version: None,
            info: None,
            metrics: None,
            reset: None,
            unique_prefixes: false,
            restart_for_cells: false,
            dialect: ProtocolSpec {
                protocol,
                path: None,
                usage: UsageRequest::Unasked,
                body: serde_json::Map::new(),
                routing_key_header: None,
                embeddings: Default::default(),
                style: ClientStyle::BenchServing,
            },
            headers: Vec::new(),
        }
    }
}

/// The port of an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Port {
    /// Its port without arguments.
    pub(crate) default: u16,
    /// The required port; a process without one gets a free port.
    pub(crate) fixed: Option<u16>,
    /// Arguments that set a port other than the default, such as `--port {port}`; appended to the command.
    pub(crate) flag: Vec<Template>,
}

/// How requests are written and answers read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProtocolSpec {
    /// The protocol of requests and answers.
    pub protocol: Protocol,
    /// The path, if it is not the protocol's own.
    pub path: Option<String>,
    /// How token counts are requested.
    pub usage: UsageRequest,
    /// Fields to add to every request body; `null` removes a field.
    pub body: serde_json::Map<String, serde_json::Value>,
    /// The header by which a router recognizes requests that belong together; without it, only rows with a routing key of
    /// their own have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routing_key_header: Option<String>,
    /// The fields of embeddings.
    #[serde(default, skip_serializing_if = "EmbeddingsForm::is_default")]
    pub embeddings: EmbeddingsForm,
    /// The client whose body fields are sent.
    #[serde(default, skip_serializing_if = "ClientStyle::is_default")]
    pub style: ClientStyle,
}

impl ProtocolSpec {
    /// Whether answers are streamed if a load adds these fields to every request body.
    pub(crate) fn is_streamed(&self, added: &serde_json::Map<String, serde_json::Value>) -> bool {
        use serde_json::Value;
        let field = added.get("stream").or(self.body.get("stream"));
        !matches!(field, Some(Value::Null | Value::Bool(false)))
    }
}

/// How long to wait for an engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Timeouts {
    /// For the whole start.
    pub(crate) start: HumanDuration,
    /// For silence in its log during the start.
    pub(crate) stall: HumanDuration,
    /// Between SIGTERM and SIGKILL.
    pub(crate) stop: HumanDuration,
    /// For the first real token, which proves readiness.
    pub(crate) probe: HumanDuration,
}
