//! One launch: a recipe with given arguments, as a plain value. The command line that `plan` prints, the process that is
//! spawned and the container that is created are all derived from it.

use serde::{Deserialize, Serialize};

use crate::base::ids::LaunchId;
use crate::base::units::Span;
use crate::config::api::{Protocol, Reading, Reset, Usage};
use crate::config::log_patterns::Signs;
use crate::config::metrics::Metrics;
use crate::config::template::Text;
use crate::plan::place::Place;

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
    /// A launch of which only this is said: without a name, devices and waiting.
    pub fn new(engine: Engine, model: &str, place: Place, contact: Contact) -> Self {
        Self {
            id: LaunchId::new(""),
            engine,
            model: model.to_owned(),
            checkpoint: model.to_owned(),
            served: model.to_owned(),
            precision: None,
            tokenizer: model.to_owned(),
            parallel: Parallel::default(),
            devices: 0,
            place,
            help: Vec::new(),
            contact,
            signs: Signs::default(),
            patience: Patience::default(),
        }
    }

    /// The port it listens on unless a start chooses another one.
    pub(crate) fn usual_port(&self) -> u16 {
        self.contact.port.fixed.unwrap_or(self.contact.port.default)
    }

    /// Whether someone else started it: nothing that is measured on it is a start.
    pub(crate) const fn is_attached(&self) -> bool {
        self.place.is_attached()
    }

    /// How many GPUs it computes on; `None` where nobody knows.
    pub fn gpus(&self) -> Option<u32> {
        self.place.gpus(self.devices)
    }

    /// The command with the arguments that set `port`, where that is not the engine's own default.
    pub fn argv(&self, port: u16) -> Vec<Text> {
        let Some(command) = self.place.command() else {
            return Vec::new();
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
        texts.extend(self.place.texts());
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

impl Engine {
    /// An engine that is called so everywhere.
    pub fn new(name: &str) -> Self {
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

impl Contact {
    /// How to talk to a server of which only the protocol is known, at the default port.
    pub fn new(protocol: Protocol) -> Self {
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
            dialect: Dialect {
                protocol,
                path: None,
                usage: Usage::Unasked,
                body: serde_json::Map::new(),
            },
            headers: Vec::new(),
        }
    }
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

/// How long to wait for an engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
