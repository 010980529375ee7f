//! The data sets: a file for each, with its own fields, checks and files. Reads no file and draws no prompt.
//!
//! A matrix, the flags of `matrix bench` and stored results give options by name; the struct of the data set is read out of them.

pub(crate) mod agentic_trace;
pub(crate) mod custom;
pub(crate) mod generated_shared_prefix;
pub(crate) mod image;
mod lengths;
pub(crate) mod longbench_v2;
pub(crate) mod mmmu;
pub(crate) mod mooncake;
pub(crate) mod openai;
pub(crate) mod random;
pub(crate) mod random_ids;
pub(crate) mod sharegpt;
pub(crate) mod speed_bench;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::de::{Deserializer, Error as _, Visitor};
use serde::{Deserialize, Serialize, forward_to_deserialize_any};
use serde_json::{Map, Value};

use self::lengths::Drawn;
use crate::config::workload::Profile;

/// Options of a data set by name, as far as they are given.
pub(crate) type Options = Map<String, Value>;

/// Takes down a field and what is wrong with it.
pub(crate) type Say<'a> = dyn FnMut(&'static str, String) + 'a;

/// What code outside of a data set's own files asks of it.
pub(crate) trait Rules {
    /// What it does differently from others.
    fn facts(&self) -> Facts<'_>;

    /// How many requests are asked for, each conversation counted once; `None` for all that there are.
    fn requests(&self, prompts: u32) -> Option<u64> {
        Some(u64::from(prompts))
    }

    /// Lengths of prompts and answers in words, with the mean where they are drawn.
    fn lengths(&self, profile: Profile) -> String {
        let facts = self.facts();
        let drawn = facts.drawn.and_then(|drawn| drawn.in_words(profile));
        drawn.unwrap_or_else(|| match facts.output_len {
            Some(output) => format!("prompts of the data set / {output} out"),
            None => "lengths of the data set".to_owned(),
        })
    }

    /// Takes down what the profile's rules do not allow, beyond what holds for all data sets.
    fn objections(&self, _profile: Profile, _say: &mut Say<'_>) {}
}

/// What a data set does differently from others.
#[derive(Default)]
pub(crate) struct Facts<'a> {
    /// The file that the prompts come from.
    pub(crate) file: Option<DataFile>,
    /// What the prompts consist of.
    pub(crate) prompts: PromptForm,
    /// What the tokenizer's chat template is for.
    pub(crate) template: TemplateUse,
    /// The lengths, where the data set draws them.
    pub(crate) drawn: Option<Drawn>,
    /// Tokens to ask for, at most, where that is chosen.
    pub(crate) output_len: Option<u32>,
    /// The Python tool's flag for the output length, where it is not `--sharegpt-output-len`.
    pub(crate) output_flag: Option<&'static str>,
    /// Whether token ids are sent instead of text.
    pub(crate) sends_ids: bool,
    /// Whether requests tell a router their group.
    pub(crate) has_routing_key: bool,
    /// Text put behind each prompt.
    pub(crate) prompt_suffix: Option<&'a str>,
    /// By how much the moments of the rows are stretched, where rows are sent at moments of their own.
    pub(crate) slowdown: Option<f64>,
    /// Whether the rules of `classic` know the data set.
    pub(crate) is_classic: bool,
}

impl Facts<'_> {
    /// Those of a data set that draws lengths.
    fn of_drawn(input_len: Option<u32>, output_len: Option<u32>, range_ratio: f64) -> Self {
        Self {
            drawn: Some(Drawn {
                input_len,
                output_len,
                range_ratio,
            }),
            output_len,
            output_flag: Some("random-output-len"),
            ..Self::default()
        }
    }

    /// Tokens in each prompt, at most, where that is chosen.
    pub(crate) fn input_len(&self) -> Option<u32> {
        self.drawn?.input_len
    }
}

/// What prompts consist of, which not every protocol carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PromptForm {
    /// Text, or the ids of its tokens.
    #[default]
    Text,
    /// Text to which a chat template was applied.
    Templated,
    /// Lists of chat messages.
    Messages,
    /// Conversations whose turns are sent one after another.
    Conversations {
        /// How many turns were asked for; `None` where the file decides.
        turns: Option<u32>,
    },
    /// Text and pictures.
    Pictures,
}

/// What the tokenizer's chat template is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TemplateUse {
    /// Nothing.
    #[default]
    None,
    /// Prompts are put through it where the tokenizer has one.
    Optional,
    /// The data set cannot be prepared without it.
    Required,
    /// The scenario asks for it.
    Requested,
}

impl TemplateUse {
    /// For data sets that go through the template where a scenario asks for it.
    const fn requested(is_requested: bool) -> Self {
        match is_requested {
            true => Self::Requested,
            false => Self::None,
        }
    }

    /// Whether nothing can be prepared without a template.
    pub(crate) const fn is_needed(self) -> bool {
        matches!(self, Self::Required | Self::Requested)
    }
}

/// The file of a data set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DataFile {
    /// The name under which a matrix gives it among its `datasets`.
    pub(crate) key: &'static str,
    /// The file that is used where none is named; `None`: one must be named.
    pub(crate) default: Option<PublishedFile>,
    /// What `matrix fetch` gets for it.
    pub(crate) published: Vec<PublishedFile>,
    /// What that is, in words.
    pub(crate) about: &'static str,
}

impl DataFile {
    /// A file that somebody must name.
    pub(crate) const fn named(key: &'static str) -> Self {
        Self {
            key,
            default: None,
            published: Vec::new(),
            about: "",
        }
    }

    /// A file of Hugging Face's hub.
    fn of_hub(key: &'static str, repository: &'static str, file: &'static str, about: &'static str) -> Self {
        let published = PublishedFile::Hub { repository, file };
        Self {
            key,
            default: Some(published.clone()),
            published: vec![published],
            about,
        }
    }
}

/// A file that the authors of a data set published.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PublishedFile {
    /// In a repository of data sets of Hugging Face's hub.
    Hub {
        repository: &'static str,
        file: &'static str,
    },
    /// At an address of its own.
    Web(WebFile),
}

/// A file at an address of its own, kept at a path that the Python tool uses, too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct WebFile {
    pub(crate) url: String,
    pub(crate) path: PathBuf,
}

impl WebFile {
    pub(crate) fn name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or(&self.url)
    }
}

/// Makes the enums of all data sets from a list of them.
macro_rules! datasets {
    ($($(#[$doc:meta])* $name:ident = $module:ident as $theirs:literal,)*) => {
        /// Where the prompts come from.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        #[schemars(rename = "Dataset")]
        pub enum DatasetName {
            $($(#[$doc])* $name,)*
        }

        /// A data set with its options.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) enum Dataset {
            $($(#[$doc])* $name($module::$name),)*
        }

        impl DatasetName {
            /// All of them.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            /// What `bench_serving --dataset-name` calls it.
            pub const fn bench_serving_name(self) -> &'static str {
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
    /// Recorded conversations of an agent, sent turn by turn.
    AgenticTrace = agentic_trace as "agentic-trace",
    /// First turns of conversations in the ShareGPT format; the second turns give the output lengths.
    Sharegpt = sharegpt as "sharegpt",
    /// First turns of conversations in a file of JSON lines.
    Custom = custom as "custom",
    /// Chat requests as OpenAI's API takes them, in a file of JSON lines.
    Openai = openai as "openai",
    /// First turns of conversations in the ShareGPT format, cut or repeated to drawn lengths.
    Random = random as "random",
    /// Runs of consecutive token ids of drawn lengths; needs no file.
    RandomIds = random_ids as "random-ids",
    /// Groups of questions behind one long system prompt each, all of random tokens; needs no file.
    GeneratedSharedPrefix = generated_shared_prefix as "generated-shared-prefix",
    /// Exam questions about a picture, from MMMU's mathematics.
    Mmmu = mmmu as "mmmu",
    /// Pictures of random pixels with random text; needs no file.
    Image = image as "image",
    /// A trace of requests with their moments and the blocks that they share.
    Mooncake = mooncake as "mooncake",
    /// Long documents with a multiple-choice question, from LongBench v2.
    LongbenchV2 = longbench_v2 as "longbench_v2",
    /// First turns of SPEED-Bench, in a file of JSON lines.
    SpeedBench = speed_bench as "speed-bench",
}

/// Adds the options of all data sets to a struct of a matrix.
macro_rules! with_dataset_options {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($own:tt)* }) => {
        $(#[$meta])*
        $vis struct $name {
            $($own)*
            /// Input length of `random`, `random-ids` and `image`, in tokens: every prompt has exactly so many, unless `range_ratio` says otherwise.
            pub(crate) input_len: Option<u32>,
            /// Output length, in tokens.
            pub(crate) output_len: Option<u32>,
            /// Have lengths drawn between this share of the given ones and all of them, from 0 to 1; 1, unless said otherwise, draws none.
            pub(crate) range_ratio: Option<$crate::config::yaml::Spanned<f64>>,
            /// The most tokens that prompt and answer of `sharegpt`, `custom` and `longbench-v2` may have together.
            pub(crate) context_len: Option<u32>,
            /// Text put after each prompt of `sharegpt` and `custom`.
            pub(crate) prompt_suffix: Option<String>,
            /// Send token ids instead of text; for `random`, `random-ids` and `generated-shared-prefix`.
            pub(crate) tokenize_prompt: bool,
            /// Send the text that the tokenizer's chat template makes of each prompt; for `sharegpt` and `custom`.
            pub(crate) apply_chat_template: bool,
            /// What `generated-shared-prefix` draws: `{ groups: 8, prompts_per_group: 32, system_len: 1024 }`.
            pub(crate) shared_prefix: Option<$crate::config::dataset::generated_shared_prefix::SharedPrefix>,
            /// Which part of an `agentic-trace` is sent: `{ offset: 10, max_turns: 4 }`.
            pub(crate) agentic_trace: Option<$crate::config::dataset::agentic_trace::Conversations>,
            /// How a trace of `mooncake` is sent: `{ slowdown: 2, rounds: 1 }`.
            pub(crate) mooncake: Option<$crate::config::dataset::mooncake::Replay>,
            /// The pictures of `image`: `{ count: 2, resolution: 720p, format: png }`.
            pub(crate) pictures: Option<$crate::config::dataset::image::Pictures>,
            /// Which part of `speed-bench` is sent: `{ category: low_entropy }`.
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
