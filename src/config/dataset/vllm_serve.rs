//! `vllm-serve`: the data sets of `vllm bench serve`, with its rules.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::ReportError;
use super::lengths::too_many_tokens;
use super::rules::{DataFile, Facts, PromptForm, Rules, TemplateUse};
use crate::config::api::ClientStyle;
use crate::config::profile::Profile;

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct VllmServe {
    pub(crate) vllm_serve: VllmRows,
}

/// One of the data sets, with what all have in common.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct VllmRows {
    pub(crate) source: VllmSource,
    /// Prefix of the ids of requests.
    pub(crate) request_id_prefix: String,
    /// Whether the rows of a file keep their order.
    pub(crate) keeps_order: bool,
    /// Whether rows of a small file are drawn again until there are enough.
    pub(crate) repeats_rows: bool,
}

/// A data set with its own options.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) enum VllmSource {
    /// Consecutive ids after a common prefix, decoded to text.
    Random(RandomTokens),
    /// A query with documents in each request, of random tokens.
    RandomRerank(RerankTokens),
    /// First turns of conversations.
    Sharegpt {
        output_len: Option<u32>,
        /// Whether prompts are lists of chat messages.
        as_messages: bool,
    },
    /// Prompts in a file of JSON lines.
    Custom(Questions),
    /// Recordings that a file of JSON lines names; `None`: each row has `output_tokens`.
    CustomAudio { output_len: Option<u32> },
    /// Groups of prompts with a common prefix.
    PrefixRepetition {
        prefix_len: u32,
        suffix_len: u32,
        prefixes: u32,
        output_len: u32,
    },
    /// Lengths of a trace in CSV; the prompts are consecutive ids.
    Burstgpt,
    /// Requests of a trace, made of the blocks that they share.
    TimedTrace(TimedTrace),
}

impl Default for VllmSource {
    fn default() -> Self {
        Self::Random(RandomTokens::default())
    }
}

/// Options of random prompts.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RandomTokens {
    pub(crate) input_len: u32,
    pub(crate) output_len: u32,
    /// Lengths are drawn from `len · (1 − ratio)` to `len · (1 + ratio)`.
    pub(crate) input_ratio: f64,
    pub(crate) output_ratio: f64,
    /// Tokens at the beginning of every prompt, besides `input_len`.
    pub(crate) prefix_len: u32,
    /// Prompts of one request, for embeddings.
    pub(crate) batch_size: u32,
}

impl Default for RandomTokens {
    fn default() -> Self {
        Self {
            input_len: 1024,
            output_len: 128,
            input_ratio: 0.0,
            output_ratio: 0.0,
            prefix_len: 0,
            batch_size: 1,
        }
    }
}

/// Options of random queries with documents.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RerankTokens {
    /// Tokens of a query and a document together; of each, if the model is no reranker.
    pub(crate) input_len: u32,
    /// Lengths are drawn from `len · (1 − ratio)` to `len · (1 + ratio)`.
    pub(crate) range_ratio: f64,
    /// Documents of one request; texts of one request, if the model is no reranker.
    pub(crate) batch_size: u32,
    /// Whether the model reads the query with each document.
    pub(crate) is_reranker: bool,
    /// Whether requests have `documents`, instead of one list with the query at its beginning.
    pub(crate) has_documents: bool,
}

/// Where a file of JSON lines has its prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PromptField {
    /// A text `prompt`.
    Prompt,
    /// The first of `turns`.
    Turns,
    /// The `content` of the first of `messages`.
    Messages,
}

impl PromptField {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Prompt => "prompt",
            Self::Turns => "turns",
            Self::Messages => "messages",
        }
    }
}

/// Options of prompts in a file of JSON lines.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Questions {
    pub(crate) field: PromptField,
    /// `None`: each row has `output_tokens`.
    pub(crate) output_len: Option<u32>,
    /// Only rows of this category.
    pub(crate) category: Option<String>,
    pub(crate) applies_template: bool,
    /// Further variables of the chat template.
    pub(crate) template_variables: Map<String, Value>,
    /// Whether rows are shuffled with seed 0, whatever the seed of the load is.
    pub(crate) fixed_seed: bool,
}

/// Options of a trace with timestamps.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TimedTrace {
    /// Tokens of a block.
    pub(crate) block_tokens: u32,
    /// Seconds of one unit of the timestamps.
    pub(crate) unit_s: f64,
    /// The names of the fields.
    pub(crate) timestamp: String,
    pub(crate) input_length: String,
    pub(crate) output_length: String,
    pub(crate) hash_ids: String,
    /// Whether requests are sent at their timestamps.
    pub(crate) is_replayed: bool,
}

impl VllmSource {
    /// The name in `vllm bench serve`.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Random(_) => "random",
            Self::RandomRerank(_) => "random-rerank",
            Self::Sharegpt { .. } => "sharegpt",
            Self::Custom(Questions { field, .. }) => match field {
                PromptField::Prompt => "custom",
                PromptField::Turns => "spec_bench",
                PromptField::Messages => "speed_bench",
            },
            Self::CustomAudio { .. } => "custom_audio",
            Self::PrefixRepetition { .. } => "prefix_repetition",
            Self::Burstgpt => "burstgpt",
            Self::TimedTrace(_) => "timed_trace",
        }
    }

    /// Whether the prompts come from a file.
    pub(crate) const fn has_file(&self) -> bool {
        !matches!(
            self,
            Self::Random(_) | Self::RandomRerank(_) | Self::PrefixRepetition { .. }
        )
    }
}

impl Rules for VllmServe {
    fn facts(&self) -> Facts<'_> {
        let source = &self.vllm_serve.source;
        let (prompts, template) = match source {
            VllmSource::Sharegpt {
                as_messages: true, ..
            } => (PromptForm::Messages, TemplateUse::None),
            VllmSource::RandomRerank(rerank) if rerank.has_documents => {
                (PromptForm::Documents, TemplateUse::None)
            }
            VllmSource::Custom(questions) => {
                let template = TemplateUse::requested(questions.applies_template);
                (PromptForm::Text, template)
            }
            VllmSource::CustomAudio { .. } => (PromptForm::Audio, TemplateUse::Optional),
            _ => (PromptForm::Text, TemplateUse::None),
        };
        Facts {
            file: source.has_file().then(|| DataFile::named("vllm-serve")),
            prompts,
            template,
            output_len: match source {
                VllmSource::Random(random) => Some(random.output_len),
                VllmSource::Sharegpt { output_len, .. } | VllmSource::CustomAudio { output_len } => {
                    *output_len
                }
                VllmSource::Custom(questions) => questions.output_len,
                VllmSource::PrefixRepetition { output_len, .. } => Some(*output_len),
                VllmSource::RandomRerank(_) | VllmSource::Burstgpt | VllmSource::TimedTrace(_) => None,
            },
            sends_ids: matches!(source, VllmSource::TimedTrace(_)),
            style: ClientStyle::VllmServe,
            ..Facts::default()
        }
    }

    fn requests(&self, prompts: u32) -> Option<u64> {
        let has_rows = matches!(
            self.vllm_serve.source,
            VllmSource::Custom(_) | VllmSource::CustomAudio { .. }
        );
        let is_all = prompts == 0 && has_rows;
        (!is_all).then_some(u64::from(prompts))
    }

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        match &self.vllm_serve.source {
            VllmSource::Random(random) => {
                for (flag, ratio) in [("input", random.input_ratio), ("output", random.output_ratio)] {
                    if !(0.0..1.0).contains(&ratio) {
                        report(
                            "vllm_serve",
                            format!("the {flag} range ratio is {ratio}; write a number from 0 to below 1"),
                        );
                    }
                }
                if random.batch_size == 0 {
                    report("vllm_serve", "the batch size is 0; write at least 1".to_owned());
                }
            }
            VllmSource::RandomRerank(rerank) => {
                let why = rerank.find_error();
                why.into_iter()
                    .for_each(|why| report("vllm_serve", why.to_owned()));
            }
            VllmSource::PrefixRepetition {
                prefix_len,
                suffix_len,
                prefixes,
                ..
            } => {
                if *prefixes == 0 {
                    report(
                        "vllm_serve",
                        "the number of prefixes is 0; write at least 1".to_owned(),
                    );
                }
                if prefix_len + suffix_len == 0 {
                    report(
                        "vllm_serve",
                        "prefix and suffix have 0 tokens together; write at least 1".to_owned(),
                    );
                }
            }
            VllmSource::TimedTrace(trace) => {
                if trace.block_tokens == 0 {
                    report(
                        "vllm_serve",
                        "a block of the trace has 0 tokens; write at least 1".to_owned(),
                    );
                }
                if !(trace.unit_s.is_finite() && trace.unit_s >= 0.0) {
                    let unit = trace.unit_s;
                    report(
                        "vllm_serve",
                        format!(
                            "the unit of timestamps is {unit} s, but it cannot be negative or infinite; write the number of seconds in one unit"
                        ),
                    );
                }
            }
            VllmSource::Sharegpt { .. }
            | VllmSource::Custom(_)
            | VllmSource::CustomAudio { .. }
            | VllmSource::Burstgpt => {}
        }
    }
}

impl RerankTokens {
    fn find_error(&self) -> Option<&'static str> {
        if !(0.0..1.0).contains(&self.range_ratio) {
            return Some("the range ratio must be at least 0 and below 1");
        }
        match (self.is_reranker, self.batch_size) {
            (_, 0) => Some("the batch size is 0; write at least 1"),
            (false, 1) => Some(
                "without a reranker model, the query is one item of each batch; write a batch size of at least 2",
            ),
            (true, _) if self.input_len < 4 => Some(
                "the input length has no room for a query, a document and two separators; write at least 4",
            ),
            _ => None,
        }
    }

    /// How many documents so many prompts are.
    pub(crate) const fn documents(&self, prompts: u32) -> u32 {
        prompts.saturating_sub(if self.is_reranker { 0 } else { 1 })
    }

    /// How many documents a request has, unless it is the last.
    pub(crate) const fn documents_per_request(&self) -> u32 {
        let documents = self
            .batch_size
            .saturating_sub(if self.is_reranker { 0 } else { 1 });
        if documents == 0 { 1 } else { documents }
    }
}

/// Why this number of prompts is too large for memory.
pub(crate) fn memory_error(source: &VllmSource, prompts: u32) -> Option<String> {
    let longest = match source {
        VllmSource::Random(random) => {
            let input = f64::from(random.input_len) * (1.0 + random.input_ratio);
            input.ceil() as u64 + u64::from(random.prefix_len)
        }
        VllmSource::PrefixRepetition {
            prefix_len,
            suffix_len,
            ..
        } => u64::from(*prefix_len) + u64::from(*suffix_len),
        VllmSource::RandomRerank(rerank) => 2 * u64::from(rerank.input_len),
        _ => 0,
    };
    too_many_tokens(longest * u64::from(prompts))
}
