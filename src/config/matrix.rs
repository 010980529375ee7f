//! The matrix file, as users write it.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::units::{HumanDuration, RequestRate};
use crate::config::arrival::{ArrivalProcess, Ramp, RateProfile, Stage};
use crate::config::cancel::Cancel;
use crate::config::connections::{Balance, ConnectionLifetime, LoadConnections, TlsOptions};
use crate::config::container::{ContainerOverride, Mount};
use crate::config::dataset::{DatasetName, with_dataset_options};
use crate::config::engine::{BodyFields, Devices, Executor, ProcessEnvironment, TimeoutsRecipe};
use crate::config::forms::{ByEngine, Named, OneOrMany, OrderedMap};
use crate::config::gpus::GpuList;
use crate::config::job_containers::JobContainers;
use crate::config::lora::Lora;
use crate::config::members::RoleEntry;
use crate::config::pacing::{Pacing, ThinkTime};
use crate::config::prices::MatrixPrice;
use crate::config::quality::QualityEntry;
use crate::config::repeats::Repeats;
use crate::config::scenario::Slo;
use crate::config::search::Search;
use crate::config::select::Selector;
use crate::config::template::Template;
use crate::config::tune::TuneEntry;
use crate::config::validity::ValidityBounds;
use crate::config::workload::{Profile, Workload};
use crate::config::yaml::{Diagnostic, Spanned};

/// A matrix: engines, models and scenarios that are combined into cells, and further axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Matrix {
    /// Name of the matrix; the names of its runs contain it. Default: the name of its file.
    #[serde(default)]
    pub(crate) name: Spanned<String>,
    /// Purpose of the matrix, in a sentence.
    #[serde(default)]
    pub(crate) about: Option<String>,
    /// How a job starts containers, which the profile of its cluster says; `None` where nothing is started.
    #[serde(skip)]
    pub(crate) containers: Option<JobContainers>,
    /// Rules for making prompts: `current` (sglang 0.5.23, the default) or `classic` (the published reports of
    /// August 2025).
    #[serde(default)]
    pub(crate) profile: Profile,
    /// Seed of all random draws; default 1.
    #[serde(default = "default_seed")]
    pub(crate) seed: u64,
    /// Engines: names of recipes, or `name: {…}` with changes.
    pub(crate) engines: Spanned<Vec<Named<EngineEntry>>>,
    /// Models: ids or paths, or `id: {…}` with settings of the model.
    pub(crate) models: Spanned<Vec<Named<ModelEntry>>>,
    /// Scenarios: names of the four standard ones, `name: {…}` with changes to them, or your own.
    pub(crate) scenarios: Spanned<Vec<Named<ScenarioEntry>>>,
    /// Further axes that are combined with engines, models and scenarios.
    #[serde(default)]
    pub(crate) axes: Axes,
    /// Groups of axes whose values are paired in order instead of combined, such as `[[rate, concurrency]]`.
    #[serde(default)]
    pub(crate) zip: Vec<Vec<Spanned<String>>>,
    /// Changes to the cells that match `when`, applied in order.
    #[serde(default)]
    pub(crate) overrides: Vec<Override>,
    /// Cells to leave out, each with a reason.
    #[serde(default)]
    pub(crate) exclude: Vec<Spanned<Exclusion>>,
    /// Cells to add, each with a reason.
    #[serde(default)]
    pub(crate) include: Vec<Spanned<Inclusion>>,
    /// Number and order of starts and measurements of each cell.
    #[serde(default)]
    pub(crate) repeats: Spanned<Repeats>,
    /// Whether launches that need fewer GPUs than the host has run at the same time on different GPUs; default
    /// `false`. Their containers run on the CPUs of their GPUs' NUMA nodes. Rows measured during another launch
    /// are marked.
    #[serde(default)]
    pub(crate) parallel: bool,
    /// GPUs of this host that may be used, such as `4-7`; default: those in `CUDA_VISIBLE_DEVICES`, otherwise
    /// all. `--gpus` replaces this list.
    #[serde(default)]
    pub(crate) gpus: Option<GpuList>,
    /// Engine that ratios in reports refer to; default: the first one.
    #[serde(default)]
    pub(crate) reference: Option<Spanned<String>>,
    /// Whether the image of the next engine is pulled while cells run; default `false`. Rows measured during a
    /// pull are marked.
    #[serde(default)]
    pub(crate) pull_ahead: bool,
    /// How `matrix nightly` judges this matrix.
    #[serde(default)]
    pub(crate) nightly: NightlyOptions,
    /// Bounds that decide whether a measurement is valid, such as `{ window: 60s, max_cache_hits: 0.02 }`.
    /// `matrix explain --codes` describes each.
    #[serde(default)]
    pub(crate) validity: Option<Spanned<ValidityBounds>>,
    /// Answers that are graded in every cell, after its measurement and under its load, such as
    /// `{ tasks: [arithmetic, recall] }`.
    #[serde(default)]
    pub(crate) quality: Option<Spanned<QualityEntry>>,
    /// What `matrix tune` varies and maximises, such as
    /// `{ engine: vllm, objective: throughput, space: { --max-num-seqs: [64, 128, 256] } }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tune: Option<Spanned<TuneEntry>>,
    /// What a GPU costs for an hour and energy for a kilowatt-hour, in US dollars, such as `{ gpu_hour: 2.50, kwh: 0.12 }`;
    /// default: the list `matrices/prices.yaml`.
    #[serde(default)]
    pub(crate) price: MatrixPrice,
    /// Files of data sets, relative to the matrix file, such as `sharegpt: data/ShareGPT.json`.
    #[serde(default)]
    pub(crate) datasets: OrderedMap<Spanned<String>>,
}

impl Matrix {
    /// Takes apart engines that are written with their version, such as `vllm@v0.11.0`, unless a recipe has that very name.
    /// Returns the errors of those that also have a key `version`.
    pub(crate) fn split_versions(&mut self, has_recipe: &dyn Fn(&str) -> bool) -> Vec<Diagnostic> {
        let mut diagnostics = Vec::new();
        for Named { name, value: entry } in &mut self.engines.value {
            let Some((engine, version)) = name.value.split_once('@') else {
                continue;
            };
            if version.is_empty() || has_recipe(&name.value) || !has_recipe(engine) {
                continue;
            }
            if entry.version.is_some() {
                let diagnostic =
                    Diagnostic::new(format!("`{}` and `version` both set a version", name.value))
                        .with_help("keep one of them");
                diagnostics.push(match &name.place {
                    Some(place) => diagnostic.with_place(place, "sets the version"),
                    None => diagnostic,
                });
            }
            let version = OneOrMany::from(vec![version.to_owned()]);
            entry.version.get_or_insert_with(|| version.into());
            name.value = engine.to_owned();
        }
        diagnostics
    }
}

/// How `matrix nightly` judges a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NightlyOptions {
    /// Whether every nightly run also starts the baseline, alternating with each cell, so that changes of the
    /// host affect both sides; default `false`: the baseline is started only to confirm a suspected loss. A
    /// paired run takes about twice as long.
    pub(crate) paired: bool,
}

const fn default_seed() -> u64 {
    1
}

/// An engine of the matrix: a recipe with changes. Each setting replaces that of the recipe, unless it says
/// otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EngineEntry {
    /// Name of the engine in this matrix; needed if a recipe is used twice.
    pub(crate) r#as: Option<Spanned<String>>,
    /// Version, or several versions as an axis.
    pub(crate) version: Option<Spanned<OneOrMany<String>>>,
    /// Where the engine runs; several values are an axis.
    pub(crate) executor: Option<Spanned<OneOrMany<Executor>>>,
    /// Name of a variant of the recipe.
    pub(crate) variant: Option<Spanned<String>>,
    /// Precision of the weights, or several precisions as an axis.
    pub(crate) precision: Option<Spanned<OneOrMany<String>>>,
    /// Arguments appended to the command.
    pub(crate) args: Vec<Spanned<Template>>,
    /// Environment variables added. Write a secret as a reference, such as `HF_TOKEN: "${HF_TOKEN}"`.
    pub(crate) env: OrderedMap<Spanned<Template>>,
    /// Image of the container.
    pub(crate) image: Option<String>,
    /// Directories of the host added to the container, as `docker run -v` takes them, such as
    /// `["/data/hf:/models:ro"]`. One with the same target replaces the recipe's.
    pub(crate) mounts: Vec<Mount>,
    /// Command that starts the engine.
    pub(crate) command: Option<Vec<Template>>,
    /// Changes to the recipe's container on this host, such as `{ cpuset: 0-15, memory: 64GiB }`.
    pub(crate) container: Option<Spanned<ContainerOverride>>,
    /// URL of the running server, for `attach`.
    pub(crate) url: Option<Spanned<Template>>,
    /// Several servers that share the load, for `attach`, such as `["http://a:8000", "http://b:8000"]`,
    /// instead of `url`.
    pub(crate) urls: Option<Spanned<Vec<Spanned<Template>>>>,
    /// How requests are distributed over `urls`; default `round-robin`.
    pub(crate) balance: Option<Spanned<Balance>>,
    /// How an `https://` server is trusted, and the client's certificate, for `attach`, such as
    /// `{ ca_file: ca.pem }`. Relative paths are below the folder of the matrix file.
    pub(crate) tls: Option<Spanned<TlsOptions>>,
    /// Number of GPUs that the server uses, for `attach`, if nothing else reports it; figures per GPU need it.
    pub(crate) gpus: Option<Spanned<NonZeroU32>>,
    /// Kind of GPU that the server uses, such as `H100`, for `attach`.
    pub(crate) gpu: Option<Spanned<String>>,
    /// Whether the prompts of each measurement start with letters that no earlier measurement used. Default:
    /// the recipe's setting, otherwise `true` for an attached server whose prefix cache cannot be emptied (no
    /// `reset`).
    pub(crate) unique_prefixes: Option<Spanned<bool>>,
    /// Port of the engine; default: a free port.
    pub(crate) port: Option<Spanned<u16>>,
    /// Path of an existing Python virtual environment to run in.
    pub(crate) venv: Option<Template>,
    /// Which environment variables of `matrix` the process inherits: `inherited` or `clean`.
    pub(crate) environment: Option<ProcessEnvironment>,
    /// Devices that the engine computes on.
    pub(crate) devices: Option<Devices>,
    /// Number of nodes of a cluster that one start of the engine uses, with one process on each; default 1.
    pub(crate) nodes: Option<Spanned<NonZeroU32>>,
    /// The processes of an engine whose processes have different tasks, by role, such as
    /// `{ prefill: {…}, decode: {…}, router: { endpoint: true } }`.
    pub(crate) roles: OrderedMap<RoleEntry>,
    /// Name of the model in requests.
    #[serde(rename = "served_model_name")]
    pub(crate) served_model_name: Option<String>,
    /// Fields added to every request body; `null` removes a field.
    pub(crate) body: BodyFields,
    /// Headers sent with every request, such as `Authorization: Bearer ${API_KEY}`.
    pub(crate) headers: OrderedMap<Spanned<Template>>,
    /// Header by which a router in front of the engine keeps the requests of a conversation or session on one
    /// worker, such as `X-Session-ID`; its value is the same for all requests of one conversation.
    pub(crate) routing_key_header: Option<Spanned<String>>,
    /// Timeouts for starting, probing and stopping the engine.
    #[serde(rename = "timeouts")]
    pub(crate) timeouts: TimeoutsRecipe,
}

impl EngineEntry {
    /// Whether several servers share the load.
    pub(crate) fn has_several_urls(&self) -> bool {
        self.urls.as_ref().is_some_and(|urls| urls.value.len() > 1)
    }
}

/// The name of an engine in the matrix: `as`, otherwise the recipe's.
pub(crate) fn engine_name(engine: &Named<EngineEntry>) -> &Spanned<String> {
    engine.value.r#as.as_ref().unwrap_or(&engine.name)
}

/// A model of the matrix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ModelEntry {
    /// Tensor-parallel size: one, several as an axis, or by engine as in `{ lmdeploy: 4, default: 8 }`; default
    /// 1.
    pub(crate) tp: Option<Spanned<ByEngine<OneOrMany<u32>>>>,
    /// Pipeline-parallel size, in the same forms as `tp`; default 1.
    pub(crate) pp: Option<Spanned<ByEngine<OneOrMany<u32>>>>,
    /// Data-parallel size, in the same forms as `tp`; default 1.
    pub(crate) dp: Option<Spanned<ByEngine<OneOrMany<u32>>>>,
    /// Expert-parallel size, in the same forms as `tp`; default 1.
    pub(crate) ep: Option<Spanned<ByEngine<OneOrMany<u32>>>>,
    /// Precision of the weights: one, several as an axis, or by engine.
    pub(crate) precision: Option<Spanned<ByEngine<OneOrMany<String>>>>,
    /// Checkpoint to load; default: the match in the recipe's `checkpoints`, otherwise the model itself.
    pub(crate) checkpoint: Option<Spanned<ByEngine<String>>>,
    /// Arguments appended to the command, for all engines or by engine.
    pub(crate) args: Option<Spanned<ByEngine<Vec<Template>>>>,
    /// Environment variables to add or replace.
    pub(crate) env: OrderedMap<Spanned<Template>>,
    /// Directories of the host added to the containers of this model, as at engines.
    pub(crate) mounts: Vec<Mount>,
    /// Path or model id of the tokenizer that makes and counts prompts, or `built-in`, which needs no file but makes prompts of
    /// about the lengths only; default: the model's own.
    pub(crate) tokenizer: Option<Spanned<String>>,
}

with_dataset_options! {
    /// A scenario of the matrix: a standard one with changes, or your own.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(deny_unknown_fields, default)]
    pub(crate) struct ScenarioEntry {
        /// Data set that the prompts come from.
        pub(crate) dataset: Option<DatasetName>,
        /// File of the data set, relative to the matrix file.
        pub(crate) path: Option<Spanned<String>>,
        /// Number of prompts. Default: as many as the rate needs until its end, for a standard scenario at
        /// least its own number; otherwise 1000. For `openai`, 0 sends all rows.
        pub(crate) prompts: Option<Spanned<u32>>,
        /// LoRA adapters of the requests, such as `{ names: [a, b], distribution: distinct }`.
        pub(crate) lora: Option<Lora>,
        /// Requests per second, one or several as an axis; `inf` (the default) sends all at once.
        pub(crate) rate: Option<Spanned<OneOrMany<RequestRate>>>,
        /// A rate that changes steadily, instead of `rate`, such as `{ from: 1, to: 16 }`.
        pub(crate) ramp: Option<Spanned<Ramp>>,
        /// Rates one after another, instead of `rate`, such as
        /// `[{ rate: 2, duration: 30s }, { rate: 8, duration: 30s }]`.
        pub(crate) stages: Option<Spanned<Vec<Stage>>>,
        /// Search for the highest rate or concurrency that meets the SLO, instead of measuring one.
        pub(crate) search: Option<Spanned<Search>>,
        /// Distribution of the gaps between requests; default `poisson`.
        pub(crate) spacing: Option<ArrivalProcess>,
        /// Maximum number of requests in flight, one or several as an axis; default: unlimited.
        pub(crate) concurrency: Option<Spanned<OneOrMany<NonZeroU32>>>,
        /// Maximum number of sessions or conversations at a time; default: unlimited.
        pub(crate) sessions: Option<NonZeroU32>,
        /// Pause between the turns of sessions and conversations: `recorded`, `2s`, `exponential:2s` (mean) or
        /// `lognormal:2s:0.6` (median and sigma). By default, sessions of the data set `agentic_sessions`
        /// have their recorded pauses, and conversations of other data sets have no pauses.
        pub(crate) think_time: Option<ThinkTime>,
        /// Longest pause within sessions and conversations; longer ones are cut. Default: unlimited.
        pub(crate) max_idle: Option<HumanDuration>,
        /// Seed of this scenario's random draws; default: the `seed` of the matrix.
        pub(crate) seed: Option<u64>,
        /// Number of requests before the measurement; default 1.
        pub(crate) warmup: Option<u32>,
        /// Timeout of a request; default 6h.
        pub(crate) timeout: Option<HumanDuration>,
        /// Timeout of the first byte of a response; default: `timeout`.
        pub(crate) first_byte_timeout: Option<HumanDuration>,
        /// How long a connection lasts: `new` (the default) makes one for each request, `reuse` lets idle ones
        /// serve further requests of the load.
        pub(crate) connections: Option<ConnectionLifetime>,
        /// How often a request is sent again if the server answers 429 or 503; default 0. Latencies count from
        /// the first time that it was sent.
        pub(crate) retries: Option<u32>,
        /// Requests that the client cancels before their answers end, such as
        /// `{ share: 0.2, after_tokens: 50 }` or `{ share: 0.2, after: 2s }`; default: none.
        pub(crate) cancel: Option<Spanned<Cancel>>,
        /// Time after which no more requests are sent; default: no limit. Without `prompts`, the number of
        /// prompts is what a rate needs for this time.
        pub(crate) duration: Option<HumanDuration>,
        /// Time that requests in flight have after the end of `duration`; default 6h.
        pub(crate) drain: Option<HumanDuration>,
        /// Time without progress on any stream after which the engine counts as hung and the cell fails;
        /// default 10m.
        pub(crate) stall: Option<HumanDuration>,
        /// Share of failed requests above which the cell is invalid; default 0.01.
        pub(crate) error_share: Option<Spanned<f64>>,
        /// Share of failed requests above which the load is aborted, checked once 20 requests have ended;
        /// default: never.
        pub(crate) abort_error_share: Option<Spanned<f64>>,
        /// Number of tokens beyond the requested output length after which an answer is cut off as endless;
        /// default 1024.
        pub(crate) excess_tokens: Option<u32>,
        /// Limits that a good request meets; with `search` also a list of tiers, such as
        /// `[{ ttft: 15s, speed: 30 tok/s }, { ttft: 15s, speed: 100 tok/s }]`, of which each gets its capacity.
        pub(crate) slo: Option<Spanned<OneOrMany<Slo>>>,
        /// Fields added to every request body; `null` removes a field.
        pub(crate) body: BodyFields,
        /// Whether an answer may end where the model ends it; default `false`: the requested output length is
        /// enforced, except for `structured`.
        pub(crate) stop_at_eos: bool,
        /// Whether answers are compared with what their requests demand: a JSON schema, the offered tools, or the
        /// `expected_answer` of a row of `openai`. Then goodput counts only correct answers. Default: only for `structured`.
        pub(crate) check_answers: Option<Spanned<bool>>,
        /// Whether records contain the texts of answers; default `false`.
        pub(crate) keep_text: bool,
        /// Whether answers are graded after the measurement, if the matrix has `quality`; default `true`.
        pub(crate) quality: Option<bool>,
    }
}

impl ScenarioEntry {
    /// So many prompts of its data set, where it has one.
    ///
    /// # Errors
    /// A number among its options is infinite, which JSON does not have.
    pub(crate) fn workload(&self, prompts: u32) -> Result<Option<Workload>, serde_json::Error> {
        let Value::Object(mut given) = serde_json::to_value(self)? else {
            unreachable!("a scenario is a map");
        };
        let has_ratio = self.range_ratio.is_some();
        given.retain(|key, value| !value.is_null() || (has_ratio && key == "range_ratio"));
        let workload = self.dataset.map(|name| Workload::given(name, given, prompts));
        workload.transpose()
    }

    /// How its load uses connections.
    pub(crate) fn load_connections(&self) -> LoadConnections {
        LoadConnections {
            lifetime: self.connections.unwrap_or_default(),
            retries: self.retries.unwrap_or_default(),
        }
    }

    /// How its sessions and conversations are paced.
    pub(crate) const fn pacing(&self) -> Pacing {
        Pacing {
            sessions: self.sessions,
            think_time: self.think_time,
            max_idle: self.max_idle,
        }
    }

    /// How the rate changes, where it does.
    pub(crate) fn rate_profile(&self) -> Option<RateProfile> {
        let ramp = self.ramp.as_ref().map(|ramp| RateProfile::Ramp(ramp.value));
        ramp.or_else(|| {
            let stages = self.stages.as_ref()?;
            Some(RateProfile::Stages(stages.value.clone()))
        })
    }
}

/// Further axes. A value at an engine, a model or a scenario (such as `tp:` or `rate:`) takes precedence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Axes {
    /// Versions of every engine.
    pub(crate) version: Option<Spanned<OneOrMany<String>>>,
    /// Where the engines run.
    pub(crate) executor: Option<Spanned<OneOrMany<Executor>>>,
    /// Precisions of the weights.
    pub(crate) precision: Option<Spanned<OneOrMany<String>>>,
    /// Tensor-parallel sizes, an axis if several.
    pub(crate) tp: Option<Spanned<OneOrMany<u32>>>,
    /// Pipeline-parallel sizes, an axis if several.
    pub(crate) pp: Option<Spanned<OneOrMany<u32>>>,
    /// Data-parallel sizes, an axis if several.
    pub(crate) dp: Option<Spanned<OneOrMany<u32>>>,
    /// Expert-parallel sizes, an axis if several.
    pub(crate) ep: Option<Spanned<OneOrMany<u32>>>,
    /// Named sets of arguments, such as `plain: []` and `chunked: { vllm: [--max-num-batched-tokens, 8192] }`.
    pub(crate) args: OrderedMap<ByEngine<Vec<Template>>>,
    /// Named sets of environment variables, such as `plain: {}` and `fast: { X: 1 }`.
    pub(crate) env: OrderedMap<OrderedMap<Spanned<Template>>>,
    /// Requests per second; `inf` sends all at once.
    pub(crate) rate: Option<Spanned<OneOrMany<RequestRate>>>,
    /// Maximum numbers of requests in flight.
    pub(crate) concurrency: Option<Spanned<OneOrMany<NonZeroU32>>>,
}

/// Changes to the cells that match `when`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Override {
    /// Cells that are changed: axis names and patterns, such as `{ engine: vllm, model: "*235B*" }`.
    pub(crate) when: Spanned<Selector>,
    /// Arguments appended to the command.
    #[serde(default)]
    pub(crate) args: Vec<Spanned<Template>>,
    /// Environment variables to add or replace.
    #[serde(default)]
    pub(crate) env: OrderedMap<Spanned<Template>>,
    /// Image of the container, instead of that of the engine's entry.
    #[serde(default)]
    pub(crate) image: Option<String>,
    /// Path of an existing Python virtual environment to run in, instead of that of the engine's entry.
    #[serde(default)]
    pub(crate) venv: Option<Template>,
    /// Program of the process that replaces the first word of the engine's command, such as another build of it.
    #[serde(default)]
    pub(crate) program: Option<Template>,
    /// Number of prompts that are sent.
    #[serde(default)]
    pub(crate) prompts: Option<u32>,
    /// Timeouts for starting, probing and stopping the engine.
    #[serde(default)]
    #[serde(rename = "timeouts")]
    pub(crate) timeouts: TimeoutsRecipe,
}

/// Cells to leave out, with a reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Exclusion {
    /// Cells to leave out: axis names and patterns, such as `{ engine: vllm, scenario: random-2k-6k }`.
    pub(crate) when: Spanned<Selector>,
    /// Reason, shown by `matrix plan` and in reports.
    pub(crate) why: String,
}

/// A cell to add that the axes do not contain, with a reason. Axes that are not set have their first value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct Inclusion {
    /// An engine of this matrix.
    pub(crate) engine: Spanned<String>,
    /// A model of this matrix.
    pub(crate) model: Spanned<String>,
    /// A scenario of this matrix.
    pub(crate) scenario: Spanned<String>,
    /// The version of the engine.
    #[serde(default)]
    pub(crate) version: Option<String>,
    /// The executor that runs it.
    #[serde(default)]
    pub(crate) executor: Option<Spanned<Executor>>,
    /// Precision of the weights.
    #[serde(default)]
    pub(crate) precision: Option<String>,
    /// The tensor-parallel size of the launch.
    #[serde(default)]
    pub(crate) tp: Option<Spanned<u32>>,
    /// Requests per second, above zero.
    #[serde(default)]
    pub(crate) rate: Option<RequestRate>,
    /// Maximum number of requests in flight.
    #[serde(default)]
    pub(crate) concurrency: Option<NonZeroU32>,
    /// Reason, shown by `matrix plan` and in reports.
    pub(crate) why: String,
}
