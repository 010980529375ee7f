//! What is sent: the data set, how many prompts, how long, under which rules. Reads no file and draws no prompt.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::dataset_options::{AgenticTrace, Mooncake, SharedPrefix};
use crate::config::images::{Pictures, SpeedBench};

/// Which published generator's rules decide the prompts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// The 2024 rules that the reports of August 2025 were made with (LMDeploy's `profile_restful_api`).
    Classic,
    /// The rules of today's `sglang.bench_serving` (0.5.23).
    #[default]
    Current,
}

/// Where the prompts come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Dataset {
    /// First turns of conversations in the ShareGPT format; the second turns give the output lengths.
    Sharegpt,
    /// First turns of conversations in the ShareGPT format, cut or repeated to drawn lengths.
    Random,
    /// Runs of consecutive token ids of drawn lengths; needs no file.
    RandomIds,
    /// Groups of questions behind one long system prompt each, all of random tokens; needs no file.
    GeneratedSharedPrefix,
    /// Pictures of random pixels with random text; needs no file.
    Image,
    /// Exam questions about a picture, from MMMU's mathematics.
    Mmmu,
    /// First turns of conversations in a file of JSON lines.
    Custom,
    /// Chat requests as OpenAI's API takes them, in a file of JSON lines.
    Openai,
    /// Long documents with a multiple-choice question, from LongBench v2.
    LongbenchV2,
    /// First turns of SPEED-Bench, in a file of JSON lines.
    SpeedBench,
    /// Recorded conversations of an agent, sent turn by turn.
    AgenticTrace,
    /// A trace of requests with their moments and the blocks that they share.
    Mooncake,
}

impl Dataset {
    /// What `bench_serving --dataset-name` calls it.
    pub const fn bench_serving_name(self) -> &'static str {
        match self {
            Self::Sharegpt => "sharegpt",
            Self::Random => "random",
            Self::RandomIds => "random-ids",
            Self::GeneratedSharedPrefix => "generated-shared-prefix",
            Self::Image => "image",
            Self::Mmmu => "mmmu",
            Self::Custom => "custom",
            Self::Openai => "openai",
            Self::LongbenchV2 => "longbench_v2",
            Self::SpeedBench => "speed-bench",
            Self::AgenticTrace => "agentic-trace",
            Self::Mooncake => "mooncake",
        }
    }

    /// Whether its prompts show pictures.
    pub const fn has_pictures(self) -> bool {
        matches!(self, Self::Image | Self::Mmmu)
    }

    /// Whether the prompts come from a file.
    pub const fn needs_file(self) -> bool {
        !matches!(self, Self::RandomIds | Self::GeneratedSharedPrefix | Self::Image)
    }

    /// Under which name a matrix gives its file among its `datasets`; `None` if it needs none.
    pub const fn file_key(self) -> Option<&'static str> {
        match self {
            Self::Sharegpt | Self::Random => Some("sharegpt"),
            Self::LongbenchV2 => Some("longbench-v2"),
            _ if self.needs_file() => Some(self.bench_serving_name()),
            _ => None,
        }
    }

    /// Whether every prompt goes through the tokenizer's chat template, or is counted by it.
    pub const fn is_templated(self) -> bool {
        matches!(
            self,
            Self::Image | Self::Mmmu | Self::Openai | Self::SpeedBench | Self::Mooncake
        )
    }

    /// Whether the lengths of its rows are drawn, where a range is asked for.
    pub const fn draws_lengths(self) -> bool {
        matches!(self, Self::Random | Self::RandomIds | Self::Image)
    }

    /// The share of the given length at which drawn lengths begin, where a matrix does not say: rows are exactly as long as given.
    /// 0 where there is nothing to draw. `matrix bench` draws from 1 on, as the Python tool does.
    pub const fn usual_range_ratio(self) -> f64 {
        if self.draws_lengths() { 1.0 } else { 0.0 }
    }

    /// Whether its usual file holds conversations in the ShareGPT format.
    pub const fn is_of_sharegpt(self) -> bool {
        matches!(self, Self::Sharegpt | Self::Random)
    }
}

/// What is sent, with everything decided.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Workload {
    /// Where the prompts come from.
    pub dataset: Dataset,
    /// The data set's file, relative to the matrix file's folder; without it the Hugging Face cache is looked into.
    pub path: Option<String>,
    /// How many prompts to send; a data set with fewer usable rows gives fewer, and `generated-shared-prefix` has a number of its own.
    pub prompts: u32,
    /// Tokens in each prompt, at most; for `random` and `random-ids`.
    pub input_len: Option<u32>,
    /// Tokens to ask for, at most; for `sharegpt` a fixed number instead of the length of the second turn.
    pub output_len: Option<u32>,
    /// Lengths of `random` and `random-ids` are drawn between this share of the given length and all of it, 0 to 1.
    pub range_ratio: f64,
    /// Rows of `sharegpt` whose prompt and output exceed this many tokens together are left out; 0 is no limit.
    pub context_len: Option<u32>,
    /// Put behind each prompt of `sharegpt`, followed by `Assistant:`.
    pub prompt_suffix: Option<String>,
    /// Send token ids instead of text; for `random`, `random-ids` and `generated-shared-prefix`.
    #[serde(default)]
    pub tokenize_prompt: bool,
    /// Send the text that the tokenizer's chat template makes of each prompt; for `sharegpt` and `custom`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub apply_chat_template: bool,
    /// Send each row at the moment that its `timestamp` says; for `custom`, `openai` and `agentic-trace`. A trace of `mooncake`
    /// is always sent so.
    #[serde(default, skip_serializing_if = "is_false")]
    pub trace_timestamps: bool,
    /// What `generated-shared-prefix` draws; its own usual numbers without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_prefix: Option<SharedPrefix>,
    /// Which part of an `agentic-trace` is sent; all of it without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agentic_trace: Option<AgenticTrace>,
    /// How a trace of `mooncake` is sent; once and at its own speed without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mooncake: Option<Mooncake>,
    /// The pictures of `image`; one of 1080p in each request without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pictures: Option<Pictures>,
    /// Which part of `speed-bench` is sent; all of it without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_bench: Option<SpeedBench>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Lengths from one number of tokens to another, each as likely as the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lengths {
    low: u32,
    high: u32,
}

impl Lengths {
    /// Source: docs/bench-serving.md 4.2.
    fn drawn(longest: u32, ratio: f64, shortest: u32) -> Self {
        Self {
            low: ((f64::from(longest) * ratio) as u32).max(shortest).min(longest),
            high: longest,
        }
    }
}

impl std::fmt::Display for Lengths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { low, high } = *self;
        match low == high {
            true => write!(f, "{high}"),
            false => write!(
                f,
                "{low} to {high} (mean {})",
                f64::midpoint(low.into(), high.into())
            ),
        }
    }
}

/// Something a workload asks for that cannot be, and the field that asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// The field, as it is written: `input_len`.
    pub field: &'static str,
    /// What is wrong and how to mend it.
    pub says: String,
}

impl Workload {
    /// A workload of a thousand rows that leaves everything else to the data set.
    pub const fn of(dataset: Dataset) -> Self {
        Self {
            dataset,
            path: None,
            prompts: 1_000,
            input_len: None,
            output_len: None,
            range_ratio: 0.0,
            context_len: None,
            prompt_suffix: None,
            tokenize_prompt: false,
            apply_chat_template: false,
            trace_timestamps: false,
            shared_prefix: None,
            agentic_trace: None,
            mooncake: None,
            pictures: None,
            speed_bench: None,
        }
    }

    /// How many requests are asked for, each conversation counted once; `None` for all that there are.
    pub fn asked(&self) -> Option<u64> {
        match self.dataset {
            Dataset::GeneratedSharedPrefix => Some(u64::from(self.shared_prefix().prompts())),
            Dataset::Mooncake => Some(u64::from(self.prompts) * u64::from(self.mooncake().rounds)),
            Dataset::Openai if self.prompts == 0 => None,
            _ => Some(u64::from(self.prompts)),
        }
    }

    /// Whether its prompts cannot be made or counted without the tokenizer's chat template.
    pub fn needs_template(&self) -> bool {
        self.apply_chat_template || matches!(self.dataset, Dataset::Image | Dataset::Mmmu | Dataset::Openai)
    }

    /// Whether rows are sent at moments of their own.
    pub fn is_replayed(&self) -> bool {
        self.dataset == Dataset::Mooncake || self.trace_timestamps
    }

    /// What `generated-shared-prefix` draws.
    pub fn shared_prefix(&self) -> SharedPrefix {
        self.shared_prefix.clone().unwrap_or_default()
    }

    /// How a trace of `mooncake` is sent.
    pub fn mooncake(&self) -> Mooncake {
        self.mooncake.clone().unwrap_or_default()
    }

    /// The lengths of prompts and answers in words, with the mean where they are drawn.
    pub fn lengths(&self, profile: Profile) -> String {
        if self.dataset == Dataset::GeneratedSharedPrefix {
            let prefix = self.shared_prefix();
            let drawn = |longest: u32| Lengths::drawn(longest, prefix.range_ratio, 1);
            let output = self
                .output_len
                .map_or_else(String::new, |tokens| format!(" / {} out", drawn(tokens)));
            return format!(
                "{} + {} in{output}",
                drawn(prefix.system_len),
                drawn(prefix.question_len)
            );
        }
        match (self.input_len, self.output_len) {
            (Some(input), Some(output)) if self.dataset.draws_lengths() => {
                let shortest = u32::from(profile == Profile::Current);
                format!(
                    "{} in / {} out",
                    Lengths::drawn(input, self.range_ratio, 1),
                    Lengths::drawn(output, self.range_ratio, shortest)
                )
            }
            (_, Some(output)) => format!("prompts of the data set / {output} out"),
            _ => "lengths of the data set".to_owned(),
        }
    }

    /// Everything about this workload that the profile's rules do not allow.
    pub fn objections(&self, profile: Profile) -> Vec<Objection> {
        let mut found = Vec::new();
        let mut say = |field, says: String| found.push(Objection { field, says });
        // For recorded requests 0 means all of them.
        if self.prompts == 0 && self.dataset != Dataset::Openai {
            say(
                "prompts",
                "0 prompts measure nothing; ask for at least 1".to_owned(),
            );
        }
        self.say_what_is_wrong_with_lengths(&mut say);
        self.say_what_is_wrong_with_rows(&mut say);
        self.say_what_has_no_effect(&mut say);
        if profile == Profile::Classic {
            self.say_what_classic_lacks(&mut say);
        }
        found
    }

    fn say_what_is_wrong_with_lengths(&self, say: &mut impl FnMut(&'static str, String)) {
        use Dataset::{
            AgenticTrace, Custom, Image, LongbenchV2, Mmmu, Openai, Random, RandomIds, Sharegpt, SpeedBench,
        };
        let name = self.dataset.bench_serving_name();
        match self.dataset {
            Random | RandomIds | Image => {
                for (field, length) in [("input_len", self.input_len), ("output_len", self.output_len)] {
                    if length.is_none() {
                        say(
                            field,
                            format!("`{name}` needs `{field}`: the most tokens a row may have"),
                        );
                    }
                }
                if !(0.0..=1.0).contains(&self.range_ratio) {
                    say(
                        "range_ratio",
                        format!("{} is not a share; write a number from 0 to 1", self.range_ratio),
                    );
                }
            }
            Sharegpt | Custom => {
                if let Some(tokens) = self.output_len.filter(|tokens| *tokens < 4) {
                    say(
                        "output_len",
                        format!("{tokens} tokens are too few for `{name}`; ask for at least 4"),
                    );
                }
            }
            Openai | AgenticTrace | Mmmu | LongbenchV2 | SpeedBench if self.output_len == Some(0) => {
                say(
                    "output_len",
                    "0 tokens are no answer; ask for at least 1".to_owned(),
                );
            }
            _ => {}
        }
    }

    fn say_what_is_wrong_with_rows(&self, say: &mut impl FnMut(&'static str, String)) {
        if let Some(prefix) = &self.shared_prefix {
            prefix
                .objections()
                .into_iter()
                .for_each(|why| say("shared_prefix", why));
            if prefix.turns > 1 && self.tokenize_prompt {
                say(
                    "tokenize_prompt",
                    "conversations of several `turns` are chat messages, which are no token ids; remove one of them"
                        .to_owned(),
                );
            }
        }
        if let Some(why) = self.mooncake.as_ref().and_then(Mooncake::objection) {
            say("mooncake", why);
        }
        if let Some(why) = self.pictures.as_ref().and_then(Pictures::objection) {
            say("pictures", why);
        }
        if self
            .agentic_trace
            .as_ref()
            .is_some_and(|trace| trace.max_turns == Some(0))
        {
            say(
                "agentic_trace",
                "`max_turns` is 0 and must be at least 1".to_owned(),
            );
        }
    }

    /// Fields that only other data sets read.
    fn say_what_has_no_effect(&self, say: &mut impl FnMut(&'static str, String)) {
        use Dataset::{
            AgenticTrace, Custom, GeneratedSharedPrefix, Image, LongbenchV2, Mooncake, Random, RandomIds,
            Sharegpt, SpeedBench,
        };
        let name = self.dataset.bench_serving_name();
        let is_drawn = matches!(self.dataset, Random | RandomIds | Image);
        let is_paired = matches!(self.dataset, Sharegpt | Custom);
        for (field, is_given, is_read, why) in [
            (
                "input_len",
                self.input_len.is_some(),
                is_drawn,
                "takes its prompts as they are",
            ),
            (
                "output_len",
                self.output_len.is_some(),
                self.dataset != Mooncake,
                "has its output lengths in its file",
            ),
            (
                "context_len",
                self.context_len.is_some(),
                is_paired || self.dataset == LongbenchV2,
                "has no context limit, which only `sharegpt`, `custom` and `longbench_v2` have",
            ),
            (
                "prompt_suffix",
                self.prompt_suffix.is_some(),
                is_paired,
                "takes no suffix, which only `sharegpt` and `custom` take",
            ),
            (
                "tokenize_prompt",
                self.tokenize_prompt,
                matches!(self.dataset, Random | RandomIds | GeneratedSharedPrefix),
                "sends no token ids",
            ),
            (
                "apply_chat_template",
                self.apply_chat_template,
                is_paired,
                "leaves the chat template to the server, unlike `sharegpt` and `custom`",
            ),
            (
                "shared_prefix",
                self.shared_prefix.is_some(),
                self.dataset == GeneratedSharedPrefix,
                "has no groups, which only `generated-shared-prefix` has",
            ),
            (
                "agentic_trace",
                self.agentic_trace.is_some(),
                self.dataset == AgenticTrace,
                "is no `agentic-trace`",
            ),
            (
                "mooncake",
                self.mooncake.is_some(),
                self.dataset == Mooncake,
                "is no trace of `mooncake`",
            ),
            (
                "pictures",
                self.pictures.is_some(),
                self.dataset == Image,
                "draws no pictures, which only `image` does",
            ),
            (
                "speed_bench",
                self.speed_bench.is_some(),
                self.dataset == SpeedBench,
                "is not `speed-bench`",
            ),
        ] {
            if is_given && !is_read {
                say(field, format!("`{name}` {why}; remove `{field}`"));
            }
        }
    }

    fn say_what_classic_lacks(&self, say: &mut impl FnMut(&'static str, String)) {
        let unknown = "the `classic` profile has no such option; remove it, or use the `current` profile";
        match self.dataset {
            _ if !self.dataset.is_of_sharegpt() => say(
                "dataset",
                "the `classic` profile knows only `sharegpt` and `random`; use the `current` profile"
                    .to_owned(),
            ),
            Dataset::Sharegpt => {
                if self.context_len.is_some() {
                    say("context_len", unknown.to_owned());
                }
                if self.prompt_suffix.is_some() {
                    say("prompt_suffix", unknown.to_owned());
                }
                if self.apply_chat_template {
                    say("apply_chat_template", unknown.to_owned());
                }
            }
            _ => {
                if self.tokenize_prompt {
                    say("tokenize_prompt", unknown.to_owned());
                }
                if self.input_len == Some(0) {
                    say(
                        "input_len",
                        "the `classic` profile draws at least 1 token; ask for 1 or more".to_owned(),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(text: &str) -> Workload {
        serde_json::from_str(text).unwrap()
    }

    fn fields(workload: &Workload, profile: Profile) -> Vec<&'static str> {
        workload
            .objections(profile)
            .into_iter()
            .map(|mistake| mistake.field)
            .collect()
    }

    #[test]
    fn a_workload_reads_what_it_writes() {
        let random = workload(
            r#"{"dataset": "random-ids", "prompts": 3, "input_len": 8, "output_len": 2, "range_ratio": 0.5}"#,
        );
        let written = serde_json::to_string(&random).unwrap();
        assert_eq!(workload(&written), random);
        assert_eq!(random.dataset.bench_serving_name(), "random-ids");
    }

    #[test]
    fn lengths_are_told_with_their_mean_where_they_are_drawn() {
        let mut random = workload(
            r#"{"dataset": "random", "prompts": 1, "input_len": 1024, "output_len": 64, "range_ratio": 0}"#,
        );
        assert_eq!(
            random.lengths(Profile::Current),
            "1 to 1024 (mean 512.5) in / 1 to 64 (mean 32.5) out"
        );
        random.range_ratio = 0.5;
        assert_eq!(
            random.lengths(Profile::Current),
            "512 to 1024 (mean 768) in / 32 to 64 (mean 48) out"
        );
        random.range_ratio = 1.0;
        assert_eq!(random.lengths(Profile::Current), "1024 in / 64 out");
        let sharegpt = Workload::of(Dataset::Sharegpt);
        assert_eq!(sharegpt.lengths(Profile::Current), "lengths of the data set");
    }

    #[test]
    fn every_mistake_is_found_at_once() {
        let random = workload(r#"{"dataset": "random", "prompts": 0, "range_ratio": 1.5, "context_len": 9}"#);
        assert_eq!(
            fields(&random, Profile::Current),
            ["prompts", "input_len", "output_len", "range_ratio", "context_len"]
        );
        let sharegpt = workload(
            r#"{"dataset": "sharegpt", "prompts": 1, "range_ratio": 0, "input_len": 1, "output_len": 3, "tokenize_prompt": true}"#,
        );
        assert_eq!(
            fields(&sharegpt, Profile::Current),
            ["output_len", "input_len", "tokenize_prompt"]
        );
    }

    #[test]
    fn the_classic_profile_lacks_what_came_later() {
        let ids = workload(
            r#"{"dataset": "random-ids", "prompts": 1, "input_len": 8, "output_len": 2, "range_ratio": 1.0}"#,
        );
        assert!(ids.objections(Profile::Current).is_empty());
        assert_eq!(fields(&ids, Profile::Classic), ["dataset"]);
        let suffixed = workload(
            r#"{"dataset": "sharegpt", "prompts": 1, "range_ratio": 0, "context_len": 9, "prompt_suffix": "!"}"#,
        );
        assert!(suffixed.objections(Profile::Current).is_empty());
        assert_eq!(
            fields(&suffixed, Profile::Classic),
            ["context_len", "prompt_suffix"]
        );
    }
}
