//! A recipe: everything that `matrix` knows of an engine, as written in `engines/<name>.yaml`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::units::{Bytes, HumanDuration};
use crate::config::api::{CacheResetSpec, JsonField, Protocol, UsageRequest};
use crate::config::container::{ContainerGpus, ContainerNetwork, Mount};
use crate::config::forms::OrderedMap;
use crate::config::log_patterns::Signs;
use crate::config::metrics::Metrics;
use crate::config::template::Template;
use crate::config::yaml::Spanned;

/// Where an engine can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Executor {
    /// In a container, through the Docker API.
    Container,
    /// As a process of this host.
    Process,
    /// Not started by us: a server someone else runs, by URL.
    Attach,
}

impl Executor {
    /// The executor as it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Process => "process",
            Self::Attach => "attach",
        }
    }
}

/// Which devices an engine computes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Devices {
    /// GPUs of this host: tp × pp × dp of them are leased.
    #[default]
    Gpu,
    /// None that we lease: CPU, simulation, or somebody else's host.
    None,
}

/// The recipes that a matrix can name.
pub type Recipes = BTreeMap<String, Recipe>;

/// An engine recipe. Texts may hold holes: `{model}` (what is loaded), `{served_model_name}` (its name in requests), `{tp}` `{pp}` `{dp}` `{ep}`,
/// `{version}`, `{precision}`, `{variant}`, and those that only a start fills: `{port}`, `{devices}`, `{venv}`, `{hf_home}`,
/// `{matrix}` (this binary), `{dir}` (the folder of the matrix file).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// The recipe's name; it must be the file's.
    pub name: Spanned<String>,
    /// The engine's name for people.
    pub title: String,
    /// What it is, in a sentence.
    #[serde(default)]
    pub about: Option<String>,
    /// Whether its figures are simulated, which every table then says.
    #[serde(default)]
    pub simulated: bool,
    /// The name that bench_serving knows the backend by.
    pub backend: String,
    /// The version used when the matrix names none.
    #[serde(default)]
    pub version: Option<String>,
    /// Where it can run, the usual place first.
    pub executors: Vec<Executor>,
    /// Which devices it computes on.
    #[serde(default)]
    pub devices: Devices,
    /// The command that starts it, where process and container share it.
    #[serde(default)]
    pub command: Option<Vec<Template>>,
    /// The command that makes it print every flag that it knows, such as `[vllm, serve, --help=all]`: flags of a launch that are not
    /// among them are refused before anything starts.
    #[serde(default)]
    pub help: Option<Vec<Template>>,
    /// How it runs in a container.
    #[serde(default)]
    pub container: Option<ContainerRecipe>,
    /// How it runs as a process.
    #[serde(default)]
    pub process: Option<ProcessRecipe>,
    /// Arguments appended for each kind of parallelism above 1, where the command does not hold them: `tp`, `pp`, `dp`, `ep`.
    #[serde(default)]
    pub parallel: OrderedMap<Vec<Template>>,
    /// The name of the model in requests; `{model}` unless said otherwise.
    #[serde(default)]
    #[serde(rename = "served_model_name")]
    pub served_model_name: Option<String>,
    /// What is loaded for a model and a precision; the first that fits counts, else the model itself.
    #[serde(default)]
    pub checkpoints: Vec<Checkpoint>,
    /// The precision of the weights when the matrix names none.
    #[serde(default)]
    pub precision: Option<String>,
    /// Where it listens.
    pub port: PortRecipe,
    /// How to talk to it.
    #[serde(rename = "api")]
    pub api: ApiRecipe,
    /// What its log says about its state.
    #[serde(default)]
    #[serde(rename = "log_patterns")]
    pub log_patterns: Signs,
    /// How long to wait for it.
    #[serde(default)]
    #[serde(rename = "timeouts")]
    pub timeouts: TimeoutsRecipe,
    /// What differs between versions; every entry whose range holds the version is applied, in order.
    #[serde(default)]
    pub versions: Vec<VersionPatch>,
    /// What differs between named variants; a matrix asks for one by `variant:`.
    #[serde(default)]
    pub variants: OrderedMap<Patch>,
}

impl Recipe {
    /// Every patch of its variants and versions, whether it applies or not.
    pub(crate) fn patches(&self) -> impl Iterator<Item = &Patch> {
        let variants = self.variants.iter().map(|(_, patch)| patch);
        variants.chain(self.versions.iter().map(|version| &version.change))
    }
}

/// How an engine runs in a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ContainerRecipe {
    /// The image; `{version}` stands for the version.
    pub image: String,
    /// Versions whose image is called otherwise.
    pub images: OrderedMap<String>,
    /// The entrypoint, where the image's own is replaced.
    pub entrypoint: Option<Vec<Template>>,
    /// The command, where it differs from the recipe's: what follows the image's entrypoint.
    pub command: Option<Vec<Template>>,
    /// What makes it print every flag that it knows, where it differs from the recipe's: what follows the image's entrypoint.
    pub help: Option<Vec<Template>>,
    /// Environment variables.
    pub env: OrderedMap<Template>,
    /// Directories of the host that it sees.
    pub mounts: Vec<Mount>,
    /// The container runtime, such as `nvidia`.
    pub runtime: Option<String>,
    /// Which GPUs it gets.
    pub gpus: ContainerGpus,
    /// The IPC namespace, such as `host`.
    pub ipc: Option<String>,
    /// How it is reached.
    pub network: ContainerNetwork,
    /// Size of `/dev/shm`; without meaning beside host IPC.
    pub shm_size: Option<Bytes>,
    /// Resource limits such as `memlock: -1`.
    pub ulimits: OrderedMap<i64>,
    /// Whether an init process forwards signals and reaps.
    pub init: bool,
    /// Device nodes of the host that it sees.
    pub device_nodes: Vec<String>,
    /// Whether it may do anything to the host.
    pub privileged: bool,
    /// The CPUs that it may use, such as `0-7,16`.
    pub cpuset: Option<String>,
    /// The most memory that it may have.
    pub memory: Option<Bytes>,
    /// The most memory and swap together; as much as `memory` means no swap.
    pub memory_swap: Option<Bytes>,
    /// Names of hosts that it knows, such as `hub:10.0.0.1`.
    pub extra_hosts: Vec<String>,
    /// Capabilities that it has beside the usual ones, such as `SYS_PTRACE`.
    pub cap_add: Vec<String>,
    /// Security options, such as `seccomp=unconfined`.
    pub security_opt: Vec<String>,
    /// Groups that its processes belong to as well, such as `video`.
    pub group_add: Vec<String>,
}

/// Which variables of the environment of `matrix` a process gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessEnvironment {
    /// All but those of `matrix` itself and those whose names look like secrets (`*_TOKEN`, `*_KEY`, `*_PWD`, `*SECRET*`, `*PASSWORD*`) and
    /// that nothing names; `HF_TOKEN` is passed.
    #[default]
    Inherited,
    /// Only what every program expects, such as `PATH` and `HOME`.
    Clean,
}

/// How an engine runs as a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessRecipe {
    /// The command, where it differs from the recipe's.
    pub command: Option<Vec<Template>>,
    /// The command that makes it print every flag that it knows, where it differs from the recipe's.
    pub help: Option<Vec<Template>>,
    /// Environment variables set on top of our own.
    pub env: OrderedMap<Template>,
    /// Which variables of our own environment it gets.
    pub environment: ProcessEnvironment,
    /// Working directory.
    pub dir: Option<Template>,
    /// The variable that names the leased devices to it, such as `CUDA_VISIBLE_DEVICES`.
    pub devices_env: Option<String>,
    /// What pip installs into an environment of its own, such as `lmdeploy=={version}`; without it the command is looked up in `PATH`.
    pub pip: Vec<String>,
    /// The distribution whose installed version must be the one asked for.
    pub distribution: Option<String>,
    /// The Python that makes the environment.
    pub python: Option<String>,
}

/// What is loaded for a model and a precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Which models, as a pattern such as `Qwen/*`.
    pub model: String,
    /// Which precision.
    pub precision: String,
    /// What is loaded; `{model}` stands for the model.
    pub checkpoint: String,
}

/// Where an engine listens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PortRecipe {
    /// Where it listens when nobody says otherwise.
    pub default: u16,
    /// The arguments that set another port, such as `[--port, "{port}"]`.
    #[serde(default)]
    pub flag: Vec<Template>,
}

/// How to talk to an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiRecipe {
    /// The protocol of requests.
    pub protocol: Protocol,
    /// The path of requests, where it is not the protocol's own.
    #[serde(default)]
    pub path: Option<String>,
    /// How it is asked for its token counts.
    #[serde(default)]
    pub usage: UsageRequest,
    /// Fields added to every request body; `null` removes one.
    #[serde(default)]
    pub body: BodyFields,
    /// The path that answers 200 when it is healthy.
    pub health: String,
    /// The path that lists its models.
    #[serde(default)]
    pub models: Option<String>,
    /// Where its version can be read.
    #[serde(default)]
    pub version: Option<JsonField>,
    /// The path of its live configuration.
    #[serde(default)]
    pub info: Option<String>,
    /// Its Prometheus metrics.
    #[serde(default)]
    pub metrics: Option<Metrics>,
    /// How its prefix cache is emptied; absent: it cannot be. Of this, `unique_prefixes` and `restart_for_cells` a recipe names one.
    #[serde(default)]
    pub reset: Option<CacheResetSpec>,
    /// Whether the prompts of each measurement begin with some letters that none before it had, in the place of as many of their own
    /// tokens: it keeps what it has seen, cannot be told to forget it, and finds a prompt by its beginning.
    #[serde(default)]
    pub unique_prefixes: Option<Spanned<bool>>,
    /// Whether it is started anew for each cell, because it keeps what it has seen and nothing else empties its caches.
    #[serde(default)]
    pub restart_for_cells: Spanned<bool>,
}

/// How long to wait for an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutsRecipe {
    /// The longest start; 60m unless said otherwise.
    pub start: Option<HumanDuration>,
    /// The longest silence of its log while it starts; 15m unless said otherwise.
    pub stall: Option<HumanDuration>,
    /// How long it may take to end after SIGTERM before it is killed; 30s unless said otherwise.
    pub stop: Option<HumanDuration>,
    /// The longest wait for the one real token that proves it ready; 5m unless said otherwise.
    pub probe: Option<HumanDuration>,
}

/// What differs from a version on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VersionPatch {
    /// Which versions, such as `<0.16` or `>=0.5, <0.6`.
    pub when: Spanned<VersionRange>,
    /// What differs.
    pub change: Patch,
}

/// What differs for some versions or for a variant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Patch {
    /// Why, in a sentence.
    pub why: Option<String>,
    /// The name that bench_serving knows the backend by.
    pub backend: Option<String>,
    /// Arguments appended to the command.
    pub args: Vec<Template>,
    /// Environment variables added.
    pub env: OrderedMap<Template>,
    /// Another command.
    pub command: Option<Vec<Template>>,
    /// Another image.
    pub image: Option<String>,
    /// Another way to run as a process.
    pub process: Option<ProcessRecipe>,
    /// Other devices.
    pub devices: Option<Devices>,
    /// Another way to talk to it.
    #[serde(rename = "api")]
    pub api: Option<ApiRecipe>,
    /// Another port.
    pub port: Option<PortRecipe>,
}

/// Fields of a request body, as JSON values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct BodyFields(pub serde_json::Map<String, serde_json::Value>);

/// A range of versions: comparisons joined by commas, all of which must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionRange {
    spec: String,
    conditions: Vec<(VersionOperator, Vec<u64>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum VersionOperator {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

impl VersionRange {
    /// Whether a version lies in the range. Only the leading numbers of a version count: `v0.5.1-cu126` is 0.5.1. A version
    /// without numbers, such as `nightly` or `latest`, counts as newer than every other.
    pub(crate) fn contains(&self, version: &str) -> bool {
        let numbers = parse_version(version);
        self.conditions.iter().all(|(comparison, bound)| {
            let order = match &numbers {
                None => std::cmp::Ordering::Greater,
                Some(numbers) => compare_versions(numbers, bound),
            };
            match comparison {
                VersionOperator::Less => order.is_lt(),
                VersionOperator::LessOrEqual => order.is_le(),
                VersionOperator::Equal => order.is_eq(),
                VersionOperator::GreaterOrEqual => order.is_ge(),
                VersionOperator::Greater => order.is_gt(),
            }
        })
    }
}

impl std::str::FromStr for VersionRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        for part in text.split(',').map(str::trim) {
            let (comparison, rest) = [
                ("<=", VersionOperator::LessOrEqual),
                (">=", VersionOperator::GreaterOrEqual),
                ("<", VersionOperator::Less),
                (">", VersionOperator::Greater),
                ("=", VersionOperator::Equal),
            ]
            .into_iter()
            .find_map(|(sign, comparison)| Some((comparison, part.strip_prefix(sign)?)))
            .unwrap_or((VersionOperator::Equal, part));
            let bound = parse_version(rest.trim()).ok_or_else(|| {
                format!("`{text}` is not a range of versions; write it like `<0.16` or `>=0.5, <0.6`")
            })?;
            parts.push((comparison, bound));
        }
        Ok(Self {
            spec: text.to_owned(),
            conditions: parts,
        })
    }
}

impl Serialize for VersionRange {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.spec)
    }
}

impl<'de> Deserialize<'de> for VersionRange {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for VersionRange {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "VersionRange".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "A range of versions: `<0.16`, `>=0.5, <0.6`." })
    }
}

fn parse_version(version: &str) -> Option<Vec<u64>> {
    let mut numbers = Vec::new();
    for part in version.trim_start_matches('v').split('.') {
        let digits: String = part.chars().take_while(char::is_ascii_digit).collect();
        match digits.parse() {
            Ok(number) => numbers.push(number),
            Err(_) => break,
        }
        if digits.len() < part.len() {
            break;
        }
    }
    (!numbers.is_empty()).then_some(numbers)
}

fn compare_versions(a: &[u64], b: &[u64]) -> std::cmp::Ordering {
    let length = a.len().max(b.len());
    let padded = |numbers: &[u64]| {
        (0..length)
            .map(|index| numbers.get(index).copied().unwrap_or(0))
            .collect::<Vec<_>>()
    };
    padded(a).cmp(&padded(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_read_the_leading_numbers() {
        let old: VersionRange = "<0.16".parse().unwrap();
        assert!(
            old.contains("0.10.0")
                && old.contains("v0.15.9-cu126")
                && !old.contains("0.16")
                && !old.contains("nightly")
        );
        let window: VersionRange = ">=0.5, <0.6".parse().unwrap();
        assert!(window.contains("v0.5.1") && !window.contains("0.6.0") && !window.contains("0.4"));
        assert!("newer".parse::<VersionRange>().is_err());
    }
}
