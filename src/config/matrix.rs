//! The matrix file, as users write it.

use std::num::NonZeroU32;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::base::units::{HumanDuration, RequestRate};
use crate::config::arrival::{ArrivalProcess, Ramp, RateProfile, Stage};
use crate::config::container::ContainerOverride;
use crate::config::dataset::{DatasetName, with_dataset_options};
use crate::config::engine::{BodyFields, Devices, Executor, ProcessEnvironment, TimeoutsRecipe};
use crate::config::forms::{ByEngine, Named, OneOrMany, OrderedMap};
use crate::config::gpus::GpuList;
use crate::config::lora::Lora;
use crate::config::repeats::Repeats;
use crate::config::scenario::Slo;
use crate::config::search::Search;
use crate::config::select::Selector;
use crate::config::template::Template;
use crate::config::validity::Bounds;
use crate::config::workload::{Profile, Workload};
use crate::config::yaml::Spanned;

/// A matrix: which engines, models and scenarios are crossed, and what else varies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Matrix {
    /// The matrix's name; runs are called after it.
    pub name: Spanned<String>,
    /// What it is for.
    #[serde(default)]
    pub about: Option<String>,
    /// The rules by which prompts are made: `current` (sglang 0.5.23) or `classic` (the published reports of August 2025).
    #[serde(default)]
    pub profile: Profile,
    /// What every draw starts from; 1 unless said otherwise.
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Engines: names of recipes, or `name: {…}` with changes.
    pub engines: Spanned<Vec<Named<EngineEntry>>>,
    /// Models: ids or paths, or `id: {…}` with what belongs to it.
    pub models: Spanned<Vec<Named<ModelEntry>>>,
    /// Scenarios: the four standard ones by name, changed ones, or your own.
    pub scenarios: Spanned<Vec<Named<ScenarioEntry>>>,
    /// What else is crossed.
    #[serde(default)]
    pub axes: Axes,
    /// Groups of axes that move together instead of being crossed, such as `[[rate, concurrency]]`.
    #[serde(default)]
    pub zip: Vec<Vec<Spanned<String>>>,
    /// Changes for the cells that fit `when`, applied in order.
    #[serde(default)]
    pub overrides: Vec<Override>,
    /// Cells left out, each with a reason.
    #[serde(default)]
    pub exclude: Vec<Spanned<Exclusion>>,
    /// Cells added, each with a reason.
    #[serde(default)]
    pub include: Vec<Spanned<Inclusion>>,
    /// How often each cell is measured.
    #[serde(default)]
    pub repeats: Spanned<Repeats>,
    /// Whether launches that need fewer GPUs than the host has run side by side on others, containers held to the processors of their
    /// GPUs' NUMA nodes; rows measured beside a neighbour say so.
    #[serde(default)]
    pub parallel: bool,
    /// Which GPUs of this host may be used, such as `4-7`; all of them unless said otherwise. `--gpus` and `CUDA_VISIBLE_DEVICES` name them too.
    #[serde(default)]
    pub gpus: Option<GpuList>,
    /// The engine that comparisons refer to; the first one unless said otherwise.
    #[serde(default)]
    pub reference: Option<Spanned<String>>,
    /// Whether the next engine's image is pulled while cells run; rows beside a pull say so.
    #[serde(default)]
    pub pull_ahead: bool,
    /// How `matrix nightly` judges this matrix.
    #[serde(default)]
    pub nightly: NightlyOptions,
    /// From where on a measurement is doubted, as in `{ window: 60s, max_cache_hits: 0.02 }`; what each bound is for is told by
    /// `matrix explain --codes`.
    #[serde(default)]
    pub validity: Option<Spanned<Bounds>>,
    /// Files of data sets, relative to this file: `sharegpt: data/ShareGPT.json`.
    #[serde(default)]
    pub datasets: OrderedMap<Spanned<String>>,
}

/// How `matrix nightly` judges a matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NightlyOptions {
    /// Whether the baseline is started in turn with every cell each night (`paired: true`), so that whatever a night does to the host happens
    /// to both, instead of when a loss is suspected. A night then takes about twice as long.
    pub paired: bool,
}

const fn default_seed() -> u64 {
    1
}

/// An engine of the matrix: a recipe with changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineEntry {
    /// Its name in this matrix, where one recipe stands twice.
    pub r#as: Option<Spanned<String>>,
    /// One version, or several that are crossed.
    pub version: Option<Spanned<OneOrMany<String>>>,
    /// Where it runs: `container`, `process` or `attach`.
    pub executor: Option<Spanned<OneOrMany<Executor>>>,
    /// A variant of the recipe.
    pub variant: Option<Spanned<String>>,
    /// The precision of the weights, or several that are crossed.
    pub precision: Option<Spanned<OneOrMany<String>>>,
    /// Arguments appended to the command.
    pub args: Vec<Spanned<Template>>,
    /// Environment variables added; a secret is named, as in `HF_TOKEN: ${HF_TOKEN}`.
    pub env: OrderedMap<Spanned<Template>>,
    /// Another image.
    pub image: Option<String>,
    /// Another command.
    pub command: Option<Vec<Template>>,
    /// What is changed of its container on this host, such as `{ cpuset: 0-15, memory: 64GiB }`.
    pub container: Option<Spanned<ContainerOverride>>,
    /// Where it already runs, for `attach`.
    pub url: Option<Spanned<Template>>,
    /// How many GPUs it computes on, for `attach`, where nothing else tells.
    pub gpus: Option<Spanned<NonZeroU32>>,
    /// Which kind of GPU it computes on, such as `H100`, for `attach`.
    pub gpu: Option<Spanned<String>>,
    /// Whether the prompts of each measurement begin with letters that none before it had. An attached server without `reset` gets such
    /// prompts unless this is `false`.
    pub unique_prefixes: Option<Spanned<bool>>,
    /// The port it must have.
    pub port: Option<Spanned<u16>>,
    /// An existing Python environment to run in.
    pub venv: Option<Template>,
    /// Which variables of our own environment it gets as a process: `inherited` or `clean`.
    pub environment: Option<ProcessEnvironment>,
    /// Which devices it computes on.
    pub devices: Option<Devices>,
    /// The name of the model in requests.
    #[serde(rename = "served_model_name")]
    pub served_model_name: Option<String>,
    /// Fields added to every request body; `null` removes one.
    pub body: BodyFields,
    /// Headers sent with every request, such as `Authorization: Bearer ${API_KEY}`.
    pub headers: OrderedMap<Spanned<Template>>,
    /// How long to wait for it.
    #[serde(rename = "timeouts")]
    pub timeouts: TimeoutsRecipe,
}

/// The name of an engine in the matrix: `as`, otherwise the recipe's.
pub(crate) fn engine_name(engine: &Named<EngineEntry>) -> &Spanned<String> {
    engine.value.r#as.as_ref().unwrap_or(&engine.name)
}

/// A model of the matrix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelEntry {
    /// Tensor-parallel size: one, several, or by engine as in `{ lmdeploy: 4, default: 8 }`.
    pub tp: Option<Spanned<ByEngine<OneOrMany<u32>>>>,
    /// Pipeline-parallel size.
    pub pp: Option<Spanned<ByEngine<OneOrMany<u32>>>>,
    /// Data-parallel size.
    pub dp: Option<Spanned<ByEngine<OneOrMany<u32>>>>,
    /// Expert-parallel size.
    pub ep: Option<Spanned<ByEngine<OneOrMany<u32>>>>,
    /// The precision of the weights.
    pub precision: Option<Spanned<ByEngine<OneOrMany<String>>>>,
    /// What is loaded, where neither the model's id nor the recipe's table gives it.
    pub checkpoint: Option<Spanned<ByEngine<String>>>,
    /// Arguments appended to the command.
    pub args: Option<Spanned<ByEngine<Vec<Template>>>>,
    /// Environment variables added.
    pub env: OrderedMap<Spanned<Template>>,
    /// Whose tokenizer makes and counts tokens: a path or a model id; the model's own unless said otherwise.
    pub tokenizer: Option<Spanned<String>>,
}

with_dataset_options! {
    /// A scenario of the matrix: a standard one with changes, or one of your own.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    pub struct ScenarioEntry {
        /// Where prompts come from.
        pub dataset: Option<DatasetName>,
        /// The data set's file, relative to this file.
        pub path: Option<Spanned<String>>,
        /// How many prompts; as many as a rate with an end needs, else 1000, unless said otherwise.
        pub prompts: Option<Spanned<u32>>,
        /// The LoRA adapters that requests ask for: `{ names: [a, b], distribution: distinct }`.
        pub lora: Option<Lora>,
        /// Requests per second, one or several that are crossed; `inf`: all at once.
        pub rate: Option<Spanned<OneOrMany<RequestRate>>>,
        /// A rate that changes steadily, instead of `rate`: `{ from: 1, to: 16 }`.
        pub ramp: Option<Spanned<Ramp>>,
        /// Rates one after another, instead of `rate`: `[{ rate: 2, duration: 30s }, { rate: 8, duration: 30s }]`.
        pub stages: Option<Spanned<Vec<Stage>>>,
        /// Look for the highest rate or concurrency that holds the SLO, instead of measuring one.
        pub search: Option<Spanned<Search>>,
        /// How gaps between requests are drawn.
        pub spacing: Option<ArrivalProcess>,
        /// The most requests under way at once, one or several that are crossed.
        pub concurrency: Option<Spanned<OneOrMany<NonZeroU32>>>,
        /// What every draw of this scenario starts from.
        pub seed: Option<u64>,
        /// Requests sent before the measurement begins; 1 unless said otherwise.
        pub warmup: Option<u32>,
        /// The longest a request may take; 6h unless said otherwise.
        pub timeout: Option<HumanDuration>,
        /// The longest wait for the first byte of an answer; 6h unless said otherwise.
        pub first_byte_timeout: Option<HumanDuration>,
        /// After this long nothing more falls due; without `prompts` there are as many as a rate needs for it.
        pub duration: Option<HumanDuration>,
        /// How long what is under way may go on after `duration`; 6h unless said otherwise.
        pub drain: Option<HumanDuration>,
        /// An engine whose streams all stand still for this long is taken to hang; 10m unless said otherwise.
        pub stall: Option<HumanDuration>,
        /// The share of failed requests above which the cell is invalid; 0.01 unless said otherwise.
        pub error_share: Option<Spanned<f64>>,
        /// The share of failed requests above which the load is ended early, once 20 have ended; never, unless said otherwise.
        pub abort_error_share: Option<Spanned<f64>>,
        /// The most tokens an answer may have beyond those asked for before it is cut as endless; 1024 unless said otherwise.
        pub excess_tokens: Option<u32>,
        /// What makes a request good.
        pub slo: Option<Slo>,
        /// Fields added to every request body; `null` removes one.
        pub body: BodyFields,
        /// Whether answers may end where the model ends them, instead of at the asked length.
        pub stop_at_eos: bool,
        /// Whether the texts of the answers are kept in the records.
        pub keep_text: bool,
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

    /// How the rate changes, where it does.
    pub(crate) fn rate_profile(&self) -> Option<RateProfile> {
        let ramp = self.ramp.as_ref().map(|ramp| RateProfile::Ramp(ramp.value));
        ramp.or_else(|| {
            let stages = self.stages.as_ref()?;
            Some(RateProfile::Stages(stages.value.clone()))
        })
    }
}

/// What else is crossed. An entry of its own (`tp:` at a model, `rate:` at a scenario) comes before these.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Axes {
    /// Versions of every engine.
    pub version: Option<Spanned<OneOrMany<String>>>,
    /// Where engines run.
    pub executor: Option<Spanned<OneOrMany<Executor>>>,
    /// Precisions of the weights.
    pub precision: Option<Spanned<OneOrMany<String>>>,
    /// Tensor-parallel sizes.
    pub tp: Option<Spanned<OneOrMany<u32>>>,
    /// Pipeline-parallel sizes.
    pub pp: Option<Spanned<OneOrMany<u32>>>,
    /// Data-parallel sizes.
    pub dp: Option<Spanned<OneOrMany<u32>>>,
    /// Expert-parallel sizes.
    pub ep: Option<Spanned<OneOrMany<u32>>>,
    /// Named sets of arguments: `plain: []`, `chunked: { vllm: [--max-num-batched-tokens, 8192] }`.
    pub args: OrderedMap<ByEngine<Vec<Template>>>,
    /// Named sets of environment variables: `plain: {}`, `fast: { X: 1 }`.
    pub env: OrderedMap<OrderedMap<Spanned<Template>>>,
    /// Requests per second.
    pub rate: Option<Spanned<OneOrMany<RequestRate>>>,
    /// The most requests under way at once.
    pub concurrency: Option<Spanned<OneOrMany<NonZeroU32>>>,
}

/// Changes for the cells that fit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Override {
    /// Which cells: axis names and patterns, as in `{ engine: vllm, model: "*235B*" }`.
    pub when: Spanned<Selector>,
    /// Arguments appended to the command.
    #[serde(default)]
    pub args: Vec<Spanned<Template>>,
    /// Environment variables added.
    #[serde(default)]
    pub env: OrderedMap<Spanned<Template>>,
    /// The number of prompts.
    #[serde(default)]
    pub prompts: Option<u32>,
    /// How long to wait for the engine.
    #[serde(default)]
    #[serde(rename = "timeouts")]
    pub timeouts: TimeoutsRecipe,
}

/// Cells left out: axis names and patterns, with a reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Exclusion {
    /// Which cells: axis names and patterns, as in `{ engine: vllm, scenario: random-2k-6k }`.
    pub when: Spanned<Selector>,
    /// Why; `plan` and the reports show it.
    pub why: String,
}

/// A cell that the axes do not give, with a reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Inclusion {
    /// An engine of this matrix.
    pub engine: Spanned<String>,
    /// A model of this matrix.
    pub model: Spanned<String>,
    /// A scenario of this matrix.
    pub scenario: Spanned<String>,
    /// Another version.
    #[serde(default)]
    pub version: Option<String>,
    /// Another place to run.
    #[serde(default)]
    pub executor: Option<Spanned<Executor>>,
    /// Another precision.
    #[serde(default)]
    pub precision: Option<String>,
    /// Another tensor-parallel size.
    #[serde(default)]
    pub tp: Option<Spanned<u32>>,
    /// Another rate.
    #[serde(default)]
    pub rate: Option<RequestRate>,
    /// Another concurrency.
    #[serde(default)]
    pub concurrency: Option<NonZeroU32>,
    /// Why; `plan` and the reports show it.
    pub why: String,
}
