//! A recipe: everything that `matrix` knows of an engine, as written in `engines/<name>.yaml`.

use std::cmp::Ordering;
use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::units::{Bytes, HumanDuration};
use crate::config::api::{CacheResetSpec, JsonField, Protocol, UsageRequest};
use crate::config::container::{ContainerGpus, ContainerNetwork, Mount};
use crate::config::forms::OrderedMap;
use crate::config::log_patterns::LogPatterns;
use crate::config::members::NodesRecipe;
use crate::config::metrics::MetricDefinitions;
use crate::config::template::Template;
use crate::config::tune::TuneSpace;
use crate::config::yaml::Spanned;

/// Where an engine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Executor {
    /// In a container, through the Docker API.
    Container,
    /// As a process on this host.
    Process,
    /// Not started by `matrix`: a running server, reached by its URL.
    Attach,
}

impl Executor {
    /// The executor as it is written.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Process => "process",
            Self::Attach => "attach",
        }
    }
}

/// Devices that an engine computes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Devices {
    /// GPUs of this host; a launch leases tp × pp × dp of them.
    #[default]
    Gpu,
    /// No leased GPUs: the engine runs on a CPU, is simulated, or runs on another host.
    None,
}

/// The recipes that a matrix can name.
pub(crate) type Recipes = BTreeMap<String, Recipe>;

/// An engine recipe. Texts may contain placeholders: `{model}` (the loaded checkpoint), `{served_model_name}`
/// (its name in requests), `{tp}` `{pp}` `{dp}` `{ep}`, `{version}`, `{precision}`, `{variant}`, and those that
/// get a value when the engine starts: `{port}`, `{devices}`, `{venv}`, `{hf_home}`, `{matrix}` (the `matrix`
/// binary), `{dir}` (the folder of the matrix file), `{aux_port}` (a second free port, in `roles`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    /// Name of the recipe; it must equal the file name without `.yaml`.
    pub(crate) name: Spanned<String>,
    /// Name of the engine in tables and reports; default: the name of the recipe.
    #[serde(default)]
    pub(crate) title: String,
    /// Description of the engine, in one sentence.
    #[serde(default)]
    pub(crate) about: Option<String>,
    /// Whether the engine is simulated; every table then marks its figures as simulated.
    #[serde(default)]
    pub(crate) simulated: bool,
    /// Name of the engine's backend in bench_serving (`--backend`); default: `vllm` with the protocol
    /// `completions`, and `vllm-` with the name of any other protocol.
    #[serde(default)]
    pub(crate) backend: String,
    /// Version that is used if the matrix sets none.
    #[serde(default)]
    pub(crate) version: Option<String>,
    /// Executors that can run the engine; the first one is the default. Without this key: `container` if the
    /// recipe has `container`, and `process` if it has `process`, or a `command` but no `container`.
    #[serde(default)]
    pub(crate) executors: Vec<Executor>,
    /// Devices that the engine computes on; default `gpu`.
    #[serde(default)]
    pub(crate) devices: Devices,
    /// Command that starts the engine, in a container or as a process, unless `container.command` or
    /// `process.command` is set.
    #[serde(default)]
    pub(crate) command: Option<Vec<Template>>,
    /// Command that prints all flags of the engine, such as `[vllm, serve, --help=all]`. If it can run, a
    /// launch with a flag that is not in its output is rejected before anything starts.
    #[serde(default)]
    pub(crate) help: Option<Vec<Template>>,
    /// Settings for running the engine in a container.
    #[serde(default)]
    pub(crate) container: Option<ContainerRecipe>,
    /// Settings for running the engine as a process.
    #[serde(default)]
    pub(crate) process: Option<ProcessRecipe>,
    /// Arguments by parallel size (`tp`, `pp`, `dp`, `ep`), appended if the size is above 1. For sizes that are
    /// not a placeholder in the command.
    #[serde(default)]
    pub(crate) parallel: OrderedMap<Vec<Template>>,
    /// What the engine needs to run over several nodes; absent: it cannot.
    #[serde(default)]
    pub(crate) nodes: Option<NodesRecipe>,
    /// Name of the model in requests; default `{model}`.
    #[serde(default)]
    #[serde(rename = "served_model_name")]
    pub(crate) served_model_name: Option<String>,
    /// Checkpoints to load, by model and precision. The first match is used; without a match, the model itself
    /// is loaded.
    #[serde(default)]
    pub(crate) checkpoints: Vec<Checkpoint>,
    /// Precision of the weights if the matrix sets none.
    #[serde(default)]
    pub(crate) precision: Option<String>,
    /// Port that the engine listens on; default: 8000, and `{port}` in the command if another port is used.
    #[serde(default)]
    pub(crate) port: PortRecipe,
    /// HTTP API of the engine; default: OpenAI completions, with prompts that begin differently in each
    /// measurement (`unique_prefixes`).
    #[serde(rename = "api", default = "ApiRecipe::openai")]
    pub(crate) api: ApiRecipe,
    /// Log lines that show a phase of the start or a fatal error.
    #[serde(default)]
    #[serde(rename = "log_patterns")]
    pub(crate) log_patterns: LogPatterns,
    /// Timeouts for starting, probing and stopping the engine.
    #[serde(default)]
    #[serde(rename = "timeouts")]
    pub(crate) timeouts: TimeoutsRecipe,
    /// Changes for ranges of versions. All entries whose range contains the version are applied, in order.
    #[serde(default)]
    pub(crate) versions: Vec<VersionPatch>,
    /// Changes by variant name; a matrix selects one with `variant:`.
    #[serde(default)]
    pub(crate) variants: OrderedMap<Patch>,
    /// Settings that `matrix tune` varies if the matrix has no `tune: { space: … }`, with their values, such as
    /// `--max-num-seqs: [64, 128, 256]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tune: Option<Spanned<TuneSpace>>,
}

impl Recipe {
    /// The recipe with the keys that follow from others.
    pub(crate) fn completed(mut self) -> Self {
        if self.title.is_empty() {
            self.title.clone_from(&self.name.value);
        }
        if self.backend.is_empty() {
            self.backend = match self.api.protocol {
                Protocol::Completions => "vllm".to_owned(),
                protocol => format!("vllm-{}", protocol.facts().name),
            };
        }
        if self.executors.is_empty() {
            let runs_process = self.process.is_some() || (self.command.is_some() && self.container.is_none());
            let container = self.container.as_ref().map(|_| Executor::Container);
            self.executors.extend(
                container
                    .into_iter()
                    .chain(runs_process.then_some(Executor::Process)),
            );
        }
        self
    }

    /// Whether the recipe says how the engine is started or reached.
    pub(crate) fn has_start(&self) -> bool {
        !self.executors.is_empty()
    }

    /// The commands that start the engine, whichever executor uses them.
    pub(crate) fn commands(&self) -> impl Iterator<Item = &Vec<Template>> {
        let container = self
            .container
            .as_ref()
            .and_then(|container| container.command.as_ref());
        let process = self.process.as_ref().and_then(|process| process.command.as_ref());
        [self.command.as_ref(), container, process].into_iter().flatten()
    }

    /// Every patch of its variants and versions, whether it applies or not.
    pub(crate) fn patches(&self) -> impl Iterator<Item = &Patch> {
        let variants = self.variants.iter().map(|(_, patch)| patch);
        variants.chain(self.versions.iter().map(|version| &version.change))
    }
}

/// How an engine runs in a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ContainerRecipe {
    /// Image reference; `{version}` is replaced by the version.
    pub(crate) image: String,
    /// Image references of single versions that do not follow `image`.
    pub(crate) images: OrderedMap<String>,
    /// Entrypoint that replaces the image's own.
    pub(crate) entrypoint: Option<Vec<Template>>,
    /// Arguments after the image's entrypoint; default: the recipe's `command`.
    pub(crate) command: Option<Vec<Template>>,
    /// Arguments after the image's entrypoint that print all flags; default: the recipe's `help`.
    pub(crate) help: Option<Vec<Template>>,
    /// Environment variables of the engine.
    pub(crate) env: OrderedMap<Template>,
    /// Directories of the host that are mounted into the container.
    pub(crate) mounts: Vec<Mount>,
    /// The container runtime, such as `nvidia`.
    pub(crate) runtime: Option<String>,
    /// GPUs that the container can use; default `none`.
    pub(crate) gpus: ContainerGpus,
    /// IPC namespace, such as `host`; default: Docker's.
    pub(crate) ipc: Option<String>,
    /// Network of the container; default `host`.
    pub(crate) network: ContainerNetwork,
    /// Size of `/dev/shm`; without effect if `ipc` is `host`.
    pub(crate) shm_size: Option<Bytes>,
    /// Resource limits such as `memlock: -1`.
    pub(crate) ulimits: OrderedMap<i64>,
    /// Whether an init process in the container forwards signals and reaps ended processes; default `false`.
    pub(crate) init: bool,
    /// Device nodes of the host that the container can use.
    pub(crate) device_nodes: Vec<String>,
    /// Whether the container runs privileged, with full access to the host; default `false`.
    pub(crate) privileged: bool,
    /// CPUs that the container may use, such as `0-7,16`.
    pub(crate) cpuset: Option<String>,
    /// Memory limit, such as `200GiB`.
    pub(crate) memory: Option<Bytes>,
    /// Limit of memory and swap together; the same value as `memory` disables swap.
    pub(crate) memory_swap: Option<Bytes>,
    /// Host names added to `/etc/hosts`, such as `hub:10.0.0.1`.
    pub(crate) extra_hosts: Vec<String>,
    /// Linux capabilities added to Docker's default ones, such as `SYS_PTRACE`.
    pub(crate) cap_add: Vec<String>,
    /// Security options, such as `seccomp=unconfined`.
    pub(crate) security_opt: Vec<String>,
    /// Supplementary groups of the container's processes, such as `video`.
    pub(crate) group_add: Vec<String>,
}

/// Environment variables of `matrix` that an engine's process inherits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ProcessEnvironment {
    /// All, except `MATRIX_*` and those with a name like a secret (`*_TOKEN`, `*_KEY`, `*_PWD`, `*SECRET*`,
    /// `*PASSWORD*`) that the launch does not refer to; `HF_TOKEN` is passed.
    #[default]
    Inherited,
    /// Only those that every program expects, such as `PATH` and `HOME`.
    Clean,
}

/// How an engine runs as a process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProcessRecipe {
    /// Command that starts the engine; default: the recipe's `command`.
    pub(crate) command: Option<Vec<Template>>,
    /// Command that prints all flags; default: the recipe's `help`.
    pub(crate) help: Option<Vec<Template>>,
    /// Environment variables, added to the inherited ones.
    pub(crate) env: OrderedMap<Template>,
    /// Which environment variables of `matrix` the process inherits; default `inherited`.
    pub(crate) environment: ProcessEnvironment,
    /// Working directory; a relative path is below the folder of the matrix file. Default: the current folder.
    pub(crate) dir: Option<Template>,
    /// Environment variable that receives the leased GPUs, such as `CUDA_VISIBLE_DEVICES`.
    pub(crate) devices_env: Option<String>,
    /// Packages that pip installs into a virtual environment that `matrix` creates, such as
    /// `lmdeploy=={version}`. Without packages, the command is searched in `PATH`.
    pub(crate) pip: Vec<String>,
    /// Python package whose installed version must equal the version of the cell.
    pub(crate) distribution: Option<String>,
    /// Python interpreter that creates the virtual environment; default `python3`.
    pub(crate) python: Option<String>,
}

/// The checkpoint to load for a model and a precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Checkpoint {
    /// Models for which this checkpoint is loaded, as a pattern such as `Qwen/*`.
    pub(crate) model: String,
    /// Precision for which this checkpoint is loaded, such as `fp8`.
    pub(crate) precision: String,
    /// Checkpoint to load; `{model}` is replaced by the model.
    pub(crate) checkpoint: String,
}

/// The port that an engine listens on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct PortRecipe {
    /// Port that the engine listens on without arguments; default 8000.
    #[serde(default = "PortRecipe::usual")]
    pub(crate) default: u16,
    /// Arguments appended if another port is used, such as `[--port, "{port}"]`.
    #[serde(default)]
    pub(crate) flag: Vec<Template>,
}

impl PortRecipe {
    fn usual() -> u16 {
        8000
    }
}

impl Default for PortRecipe {
    fn default() -> Self {
        Self {
            default: Self::usual(),
            flag: Vec::new(),
        }
    }
}

/// The HTTP API of an engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct ApiRecipe {
    /// The protocol of requests; default `completions`.
    #[serde(default)]
    pub(crate) protocol: Protocol,
    /// Path of requests; default: the protocol's path.
    #[serde(default)]
    pub(crate) path: Option<String>,
    /// How token counts are requested; default `unasked`.
    #[serde(default)]
    pub(crate) usage: UsageRequest,
    /// Fields added to every request body; `null` removes a field.
    #[serde(default)]
    pub(crate) body: BodyFields,
    /// Path that returns status 200 when the engine is healthy; default `/health`.
    #[serde(default = "ApiRecipe::usual_health")]
    pub(crate) health: String,
    /// Path that lists the engine's models.
    #[serde(default)]
    pub(crate) models: Option<String>,
    /// Where the engine reports its version.
    #[serde(default)]
    pub(crate) version: Option<JsonField>,
    /// Path that returns the engine's live configuration.
    #[serde(default)]
    pub(crate) info: Option<String>,
    /// Where to read its Prometheus metrics.
    #[serde(default)]
    pub(crate) metrics: Option<MetricDefinitions>,
    /// How the prefix cache is emptied; absent: it cannot be emptied. A recipe sets at most one of `reset`,
    /// `unique_prefixes` and `restart_for_cells`.
    #[serde(default)]
    pub(crate) reset: Option<CacheResetSpec>,
    /// Whether the prompts of each measurement start with letters that no earlier measurement used; the letters
    /// replace as many tokens of the prompt. For an engine whose prefix cache cannot be emptied and finds
    /// prompts by their beginning.
    #[serde(default)]
    pub(crate) unique_prefixes: Option<Spanned<bool>>,
    /// Whether the engine is restarted for each cell, because its caches can be emptied in no other way;
    /// default `false`.
    #[serde(default)]
    pub(crate) restart_for_cells: Spanned<bool>,
}

impl ApiRecipe {
    fn usual_health() -> String {
        "/health".to_owned()
    }

    /// The API of an engine whose recipe says nothing of it.
    fn openai() -> Self {
        Self {
            protocol: Protocol::default(),
            path: None,
            usage: UsageRequest::StreamOptions,
            body: BodyFields::default(),
            health: Self::usual_health(),
            models: Some("/v1/models".to_owned()),
            version: None,
            info: None,
            metrics: None,
            reset: None,
            unique_prefixes: Some(Spanned::from(true)),
            restart_for_cells: Spanned::default(),
        }
    }
}

/// Timeouts of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TimeoutsRecipe {
    /// Timeout of the start; default 60m.
    pub(crate) start: Option<HumanDuration>,
    /// Longest time without a new log line during the start; default 15m.
    pub(crate) stall: Option<HumanDuration>,
    /// Time from SIGTERM until the engine is killed; default 30s.
    pub(crate) stop: Option<HumanDuration>,
    /// Timeout of the first real token, which proves that the engine is ready; default 5m.
    pub(crate) probe: Option<HumanDuration>,
}

/// Changes for a range of versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct VersionPatch {
    /// Range of versions, such as `<0.16` or `>=0.5, <0.6`.
    pub(crate) when: Spanned<VersionRange>,
    /// Changes to the recipe.
    pub(crate) change: Patch,
}

/// Changes to a recipe, for some versions or for a variant.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Patch {
    /// Reason, in one sentence.
    pub(crate) why: Option<String>,
    /// Replaces the name of the backend in bench_serving.
    pub(crate) backend: Option<String>,
    /// Arguments appended to the command.
    pub(crate) args: Vec<Template>,
    /// Environment variables to add or replace.
    pub(crate) env: OrderedMap<Template>,
    /// Replaces the command of the recipe.
    pub(crate) command: Option<Vec<Template>>,
    /// Replaces the image of the recipe.
    pub(crate) image: Option<String>,
    /// Replaces the whole `process` section.
    pub(crate) process: Option<ProcessRecipe>,
    /// Replaces the devices of the recipe.
    pub(crate) devices: Option<Devices>,
    /// Replaces the whole `api` section.
    #[serde(rename = "api")]
    pub(crate) api: Option<ApiRecipe>,
    /// Replaces the whole `port` section.
    pub(crate) port: Option<PortRecipe>,
}

/// Fields of a request body, as JSON values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(transparent)]
pub(crate) struct BodyFields(pub serde_json::Map<String, serde_json::Value>);

/// A range of versions: comparisons joined by commas, all of which must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VersionRange {
    spec: String,
    conditions: Vec<(VersionOperator, Version)>,
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
    /// Whether a version lies in the range. The leading numbers of a version count: `v0.5.1-cu126` is 0.5.1. A pre-release
    /// such as `1.0rc1` is below its release. A version without numbers, such as `nightly` or `latest`, counts as newer than
    /// every other.
    pub(crate) fn contains(&self, version: &str) -> bool {
        let version = Version::parse(version);
        self.conditions.iter().all(|(comparison, bound)| {
            let order = match &version {
                None => Ordering::Greater,
                Some(version) => version.compare(bound),
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
            let bound = Version::parse(rest.trim()).ok_or_else(|| {
                format!("`{text}` is not a range of versions; write for example `<0.16` or `>=0.5, <0.6`")
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

#[cfg(test)]
impl JsonSchema for VersionRange {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "VersionRange".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "A range of versions, such as `<0.16` or `>=0.5, <0.6`." })
    }
}

/// A version, as far as it can be ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version {
    numbers: Vec<u64>,
    /// Kind and number of a pre-release; kinds are ordered.
    prerelease: Option<(u8, u64)>,
}

impl Version {
    fn parse(version: &str) -> Option<Self> {
        let mut numbers = Vec::new();
        let mut rest = version.trim_start_matches('v');
        loop {
            let digits = leading(rest, |c| c.is_ascii_digit());
            let Ok(number) = digits.parse() else { break };
            numbers.push(number);
            rest = &rest[digits.len()..];
            match rest.strip_prefix('.') {
                Some(next) if next.starts_with(|c: char| c.is_ascii_digit()) => rest = next,
                _ => break,
            }
        }
        let prerelease = parse_prerelease(rest);
        (!numbers.is_empty()).then_some(Self { numbers, prerelease })
    }

    fn compare(&self, other: &Self) -> Ordering {
        let length = self.numbers.len().max(other.numbers.len());
        let padded = |version: &Self| {
            let numbers = version.numbers.iter().copied().chain(std::iter::repeat(0));
            numbers.take(length).collect::<Vec<_>>()
        };
        let release = (self.prerelease.is_none(), self.prerelease);
        let numbers = padded(self).cmp(&padded(other));
        numbers.then(release.cmp(&(other.prerelease.is_none(), other.prerelease)))
    }
}

/// The pre-release that follows the numbers of a version. A single letter counts only directly behind them: `-b200` is a
/// variant of an image.
fn parse_prerelease(rest: &str) -> Option<(u8, u64)> {
    let text = rest.trim_start_matches(['.', '-', '_']).to_ascii_lowercase();
    let word = leading(&text, |c| c.is_ascii_alphabetic());
    let kind = match word {
        "dev" => 0,
        "alpha" => 1,
        "beta" => 2,
        "rc" | "pre" | "preview" => 3,
        "a" if text.len() == rest.len() => 1,
        "b" if text.len() == rest.len() => 2,
        _ => return None,
    };
    let after = text[word.len()..].trim_start_matches(['.', '-', '_']);
    let number = leading(after, |c| c.is_ascii_digit());
    Some((kind, number.parse().unwrap_or(0)))
}

/// The beginning of a text whose characters fit.
fn leading(text: &str, fits: impl Fn(char) -> bool) -> &str {
    let end = text.find(|c| !fits(c)).unwrap_or(text.len());
    &text[..end]
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

    #[test]
    fn a_prerelease_is_below_its_release() {
        let release: VersionRange = ">=1.0".parse().unwrap();
        for below in [
            "1.0rc1",
            "v1.0.0-rc.1",
            "1.0a1",
            "1.0b2",
            "1.0.0.dev3+g1a2b",
            "1.0.0-beta",
            "1.0rc1-cu126",
        ] {
            assert!(!release.contains(below), "{below}");
        }
        for above in [
            "1.0",
            "1.0.0",
            "1.0.post1",
            "1.0-cu126",
            "1.0-b200",
            "1.0+cpu",
            "1.1rc1",
            "1.0-alpine",
            "nightly",
        ] {
            assert!(release.contains(above), "{above}");
        }
        let candidate: VersionRange = ">=1.0rc2, <1.0".parse().unwrap();
        assert!(candidate.contains("1.0rc2") && candidate.contains("1.0rc10"));
        assert!(!candidate.contains("1.0rc1") && !candidate.contains("1.0b3") && !candidate.contains("1.0"));
    }
}
