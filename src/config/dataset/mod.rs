//! The data sets: a file for each, with its own fields, checks and files. Reads no file and draws no prompt.
//!
//! A matrix, the flags of `matrix bench` and stored results give options by name; the struct of the data set is read out of them.

pub(crate) mod agentic_sessions;
pub(crate) mod agentic_trace;
pub(crate) mod audio;
pub(crate) mod common_prefix;
pub(crate) mod custom;
mod error;
pub(crate) mod generated_shared_prefix;
pub(crate) mod image;
pub(crate) mod length_distribution;
mod lengths;
pub(crate) mod longbench_v2;
pub(crate) mod mmmu;
pub(crate) mod mooncake;
pub(crate) mod openai;
pub(crate) mod random;
pub(crate) mod random_audio;
pub(crate) mod random_ids;
pub(crate) mod random_rerank;
mod rules;
pub(crate) mod sharegpt;
pub(crate) mod speed_bench;
pub(crate) mod structured;
pub(crate) mod vllm_serve;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, Serialize, forward_to_deserialize_any};
use serde_json::{Map, Value};

pub(crate) use self::error::WorkloadError;
pub(crate) use self::lengths::{MAX_DRAWN_TOKENS, too_many_tokens};
pub(crate) use self::rules::{Facts, PromptForm, PublishedFile, Rules, TemplateUse, WebFile, is_false};

/// Options of a data set by name, as far as they are given.
pub(crate) type Options = Map<String, Value>;

/// Makes the enums of all data sets from a list of them.
macro_rules! datasets {
    ($($(#[$doc:meta])* $name:ident = $module:ident as $theirs:literal,)*) => {
        /// A data set: where the prompts come from.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(rename_all = "kebab-case")]
        #[cfg_attr(test, schemars(rename = "Dataset"))]
        pub enum DatasetName {
            $($(#[$doc])* $name,)*
        }

        /// A data set with its options.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) enum Dataset {
            $($name($module::$name),)*
        }

        impl DatasetName {
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            /// What `bench_serving --dataset-name` calls it.
            pub(crate) const fn bench_serving_name(self) -> &'static str {
                match self {
                    $(Self::$name => $theirs,)*
                }
            }

            fn read(self, options: Taken<'_>) -> Result<Dataset, serde_json::Error> {
                Ok(match self {
                    $(Self::$name => Dataset::$name(Deserialize::deserialize(options)?),)*
                })
            }
        }

        impl Dataset {
            /// Which one it is.
            pub(crate) const fn name(&self) -> DatasetName {
                match self {
                    $(Self::$name(_) => DatasetName::$name,)*
                }
            }

            /// What `bench_serving --dataset-name` calls it.
            pub(crate) const fn bench_serving_name(&self) -> &'static str {
                self.name().bench_serving_name()
            }

            /// Its options, each with its value.
            pub(crate) fn options(&self) -> Result<Value, serde_json::Error> {
                match self {
                    $(Self::$name(dataset) => serde_json::to_value(dataset),)*
                }
            }

            /// What the data set does differently from others.
            pub(crate) fn facts(&self) -> Facts<'_> {
                self.rules().facts()
            }

            /// The data set's own code.
            pub(crate) const fn rules(&self) -> &dyn Rules {
                match self {
                    $(Self::$name(dataset) => dataset,)*
                }
            }
        }

        $(impl From<$module::$name> for Dataset {
            fn from(dataset: $module::$name) -> Self {
                Self::$name(dataset)
            }
        })*
    };
}

datasets! {
    /// Recorded sessions of agents with sub-agents, whose requests wait for one another.
    AgenticSessions = agentic_sessions as "agentic-sessions",
    /// Recorded conversations of an agent, sent turn by turn.
    AgenticTrace = agentic_trace as "agentic-trace",
    /// Recordings to transcribe, from a folder or from a file of JSON lines.
    Audio = audio as "audio",
    /// First turns of conversations in the ShareGPT format; the lengths of the second turns are the output lengths.
    Sharegpt = sharegpt as "sharegpt",
    /// First turns of conversations in a file of JSON lines.
    Custom = custom as "custom",
    /// Chat requests in the format of OpenAI's API, in a file of JSON lines.
    Openai = openai as "openai",
    /// First turns of conversations in the ShareGPT format, cut or repeated to drawn lengths.
    Random = random as "random",
    /// Runs of consecutive token ids of drawn lengths; needs no file.
    RandomIds = random_ids as "random-ids",
    /// Recordings of drawn tones or noise, of drawn lengths; needs no file.
    RandomAudio = random_audio as "random-audio",
    /// Queries with documents to rank, of drawn lengths; needs no file.
    RandomRerank = random_rerank as "random-rerank",
    /// Prompts whose answers must be JSON of a schema or calls of tools, all drawn; needs no file.
    Structured = structured as "structured",
    /// Groups of questions, each group with one long system prompt, all of random tokens; needs no file.
    GeneratedSharedPrefix = generated_shared_prefix as "generated-shared-prefix",
    /// Exam questions about an image, from the mathematics part of MMMU.
    Mmmu = mmmu as "mmmu",
    /// Images of random pixels with random text; needs no file.
    Image = image as "image",
    /// A trace of requests with their timestamps and the blocks that they share.
    Mooncake = mooncake as "mooncake",
    /// Long documents with a multiple-choice question, from LongBench v2.
    LongbenchV2 = longbench_v2 as "longbench_v2",
    /// First turns of SPEED-Bench, in a file of JSON lines.
    SpeedBench = speed_bench as "speed-bench",
    /// The data sets of `vllm bench serve`; only `matrix bench --like vllm` sends them.
    #[serde(skip_deserializing)]
    #[cfg_attr(test, schemars(skip))]
    VllmServe = vllm_serve as "vllm-serve",
}

/// Adds the options of all data sets to a struct of a matrix.
macro_rules! with_dataset_options {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($own:tt)* }) => {
        $(#[$meta])*
        $vis struct $name {
            $($own)*
            /// Length of a prompt in tokens, for `random`, `random-ids` and `image`; the maximum if
            /// `range_ratio` is below 1. For `structured` about the length, at least that of its task.
            pub(crate) input_len: Option<u32>,
            /// Output length in tokens, the maximum if lengths are drawn; default: that of each row, or a value
            /// of the data set. `random`, `random-ids` and `image` require it.
            pub(crate) output_len: Option<u32>,
            /// Lengths are drawn between this share of `input_len` and `output_len` and their full values, from
            /// 0 to 1; default 1: all have the full length.
            pub(crate) range_ratio: Option<$crate::config::yaml::Spanned<f64>>,
            /// Distributions of lengths or a file with pairs of lengths, for `random` and `random-ids`, such as
            /// `{ input: { lognormal: { median: 512, sigma: 1.0 } } }` or `{ file: lengths.csv }`; default: `range_ratio`.
            pub(crate) lengths: Option<$crate::config::dataset::length_distribution::Lengths>,
            /// Tokens that the prompts of a group have in common, for `random` and `random-ids`, such as
            /// `{ share: 0.5, groups: 4, block_tokens: 16 }`; default: none.
            pub(crate) common_prefix: Option<$crate::config::dataset::common_prefix::CommonPrefix>,
            /// Maximum number of tokens of prompt and answer together, for `sharegpt`, `custom` and
            /// `longbench-v2`; longer rows are left out.
            pub(crate) context_len: Option<u32>,
            /// Text appended to each prompt, for `sharegpt` and `custom`.
            pub(crate) prompt_suffix: Option<String>,
            /// Whether token ids are sent instead of text, for `random`, `random-ids` and
            /// `generated-shared-prefix`; default `false`.
            pub(crate) tokenize_prompt: bool,
            /// Whether the tokenizer's chat template is applied to each prompt, for `sharegpt` and `custom`;
            /// default `false`.
            pub(crate) apply_chat_template: bool,
            /// Groups of `generated-shared-prefix`, such as
            /// `{ groups: 8, prompts_per_group: 32, system_len: 1024 }`.
            pub(crate) shared_prefix: Option<$crate::config::dataset::generated_shared_prefix::SharedPrefix>,
            /// Queries and documents of `random-rerank`, such as
            /// `{ query_len: 32, documents: 16, document_len: 256 }`.
            pub(crate) rerank: Option<$crate::config::dataset::random_rerank::Documents>,
            /// Recordings of `random-audio`, such as `{ seconds: 10, range_ratio: 0.5, content: tones }`.
            pub(crate) audio: Option<$crate::config::dataset::random_audio::Recordings>,
            /// What the requests of `structured` demand of their answers, such as
            /// `{ tools_share: 0.5, schemas: 8 }`.
            pub(crate) structured: Option<$crate::config::dataset::structured::Demands>,
            /// Conversations of `agentic-trace` that are sent, such as `{ offset: 10, max_turns: 4 }`.
            pub(crate) agentic_trace: Option<$crate::config::dataset::agentic_trace::Conversations>,
            /// How the sessions of `agentic-sessions` are sent, such as `{ format: weka, start: random }`.
            pub(crate) agentic_sessions: Option<$crate::config::dataset::agentic_sessions::Replay>,
            /// How the trace of `mooncake` is sent, such as `{ slowdown: 2, rounds: 1 }`.
            pub(crate) mooncake: Option<$crate::config::dataset::mooncake::Replay>,
            /// Images of `image`, such as `{ count: 2, resolution: 720p, format: png }`.
            pub(crate) pictures: Option<$crate::config::dataset::image::Pictures>,
            /// Rows of `speed-bench` that are sent, such as `{ category: low_entropy }`.
            pub(crate) speed_bench: Option<$crate::config::dataset::speed_bench::Rows>,
        }
    };
}
pub(super) use with_dataset_options;

impl DatasetName {
    /// The data set with its default options.
    pub(crate) fn default_dataset(self) -> Dataset {
        self.take(&mut Options::new())
            .expect("no data set has an option without default")
    }

    /// Takes the data set's options out of those that are given, and leaves the others.
    pub(crate) fn take(self, given: &mut Options) -> Result<Dataset, serde_json::Error> {
        let names = &mut Default::default();
        self.read(Taken { given, names })
    }

    /// Whether the data set reads an option.
    pub(crate) fn reads(self, option: &str) -> bool {
        self.options().contains(&option)
    }

    /// The names of the options that the data set reads.
    fn options(self) -> &'static [&'static str] {
        let (given, mut names) = (&mut Options::new(), Default::default());
        let taken = Taken {
            given,
            names: &mut names,
        };
        let _ = self.read(taken);
        names
    }

    /// The name by which `matrix fetch` knows the data set's file; `None` if it is not published.
    pub(crate) fn fetched_as(self) -> Option<Self> {
        let file = |name: Self| name.default_dataset().facts().file;
        let own = file(self).filter(|own| !own.published.is_empty())?;
        let mut all = Self::ALL.iter().copied();
        all.find(|name| file(*name).is_some_and(|file| file.key == own.key))
    }
}

impl From<DatasetName> for Dataset {
    fn from(name: DatasetName) -> Self {
        name.default_dataset()
    }
}

/// The names of all options of data sets.
pub(crate) static OPTIONS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
    let all = DatasetName::ALL.iter();
    all.flat_map(|name| name.options()).copied().collect()
});

/// The data sets that read an option.
pub(crate) fn readers(option: &str) -> impl Iterator<Item = &'static str> {
    let all = DatasetName::ALL.iter().filter(move |name| name.reads(option));
    all.map(|name| name.bench_serving_name())
}

/// Takes the fields of a struct out of options and leaves the others.
struct Taken<'o> {
    given: &'o mut Options,
    /// The names of the fields.
    names: &'o mut &'static [&'static str],
}

impl<'de> Deserializer<'de> for Taken<'_> {
    type Error = serde_json::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.names = fields;
        let taken = fields.iter().filter_map(|field| self.given.remove_entry(*field));
        Value::Object(taken.collect()).deserialize_struct(name, fields, visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(Self::Error::custom("a data set is a struct"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}
