//! Where an imported measurement comes from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Facts about an imported measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    /// The tool that measured.
    pub(crate) tool: Tool,
    /// The version of the tool, if the file has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tool_version: Option<String>,
    /// The tool's name for the prompts, if they are of no data set that `matrix` knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) workload: Option<String>,
    /// Name of the imported file.
    pub(crate) file: String,
    /// Line of the file at which the figures begin, from 1.
    pub(crate) line: u32,
    /// Facts that the file does not contain, such as `tp` or `seed`; the plan holds only a filler for them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) unknown: Vec<UnknownFact>,
    /// Whether the block has a line for vision tokens; some layouts have it without images too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) vision_line: bool,
    /// Unusual settings of the client that the plan has no field for, such as a profile of the server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) client: BTreeMap<String, String>,
}

impl Provenance {
    /// Whether the file does not contain this fact.
    pub(crate) fn lacks(&self, what: UnknownFact) -> bool {
        self.unknown.contains(&what)
    }

    /// The tool with its version, in words.
    pub(crate) fn tool_in_words(&self) -> String {
        match &self.tool_version {
            Some(version) => format!("{} {version}", self.tool.name()),
            None => self.tool.name().to_owned(),
        }
    }
}

/// A tool whose results can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Tool {
    /// sglang's `bench_serving`, or one of its forks.
    BenchServing,
    /// `vllm bench serve`.
    VllmBench,
    /// NVIDIA's AIPerf.
    Aiperf,
    /// GuideLLM.
    Guidellm,
    /// InferenceX, formerly InferenceMAX.
    Inferencex,
    /// inference-perf of Kubernetes.
    InferencePerf,
    /// genai-bench of SGLang.
    GenaiBench,
    /// Benchmark reports of llm-d, about the figures of another tool.
    LlmdReport,
}

impl Tool {
    /// Its name for users.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BenchServing => "bench_serving",
            Self::VllmBench => "vllm bench serve",
            Self::Aiperf => "AIPerf",
            Self::Guidellm => "GuideLLM",
            Self::Inferencex => "InferenceX",
            Self::InferencePerf => "inference-perf",
            Self::GenaiBench => "genai-bench",
            Self::LlmdReport => "llm-d benchmark report",
        }
    }

    /// How the tool defines the figures that are imported of it, in words for readers of a report.
    pub(crate) const fn definitions(self) -> &'static str {
        match self {
            Self::BenchServing | Self::VllmBench => {
                "E2E and TPOT end at the last line of the response; ITL is the time between events (as the benchmark tool defines them)"
            }
            Self::Aiperf => {
                "E2E and TPOT end at the last event with output; TPOT is AIPerf's inter-token latency; ITL is AIPerf's \
                 inter-chunk latency (the time between events); by default, AIPerf's tokenizer counts the tokens"
            }
            Self::Guidellm => {
                "figures are those of successful requests; TPOT is GuideLLM's inter-token latency (only where \
                 all answers have the same length); percentiles are not interpolated"
            }
            Self::Inferencex => {
                "throughput is computed from InferenceX's figures for each GPU; latencies are those of InferenceX's \
                 fork of bench_serving"
            }
            Self::InferencePerf => {
                "E2E ends with the stream; TPOT ends at the last event with output; the time for throughput includes \
                 failed requests (definitions of inference-perf)"
            }
            Self::GenaiBench => {
                "E2E and TPOT end at the last line of the response (definitions of genai-bench)"
            }
            Self::LlmdReport => {
                "the figures in the llm-d report come from another benchmark tool and follow the definitions of that tool"
            }
        }
    }
}

/// A fact that an imported file may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum UnknownFact {
    Engine,
    Version,
    /// Which model it served.
    Model,
    Tp,
    /// The number of GPUs.
    Gpus,
    /// Where the prompts came from.
    Dataset,
    /// The requested lengths of prompts and answers.
    Lengths,
    Seed,
    /// The number of requests.
    Prompts,
    Rate,
}

impl UnknownFact {
    /// Its name in messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Engine => "the engine",
            Self::Version => "the engine's version",
            Self::Model => "the model",
            Self::Tp => "the tensor-parallel size",
            Self::Gpus => "the number of GPUs",
            Self::Dataset => "the data set",
            Self::Lengths => "the requested lengths",
            Self::Seed => "the seed",
            Self::Prompts => "the number of prompts",
            Self::Rate => "the request rate",
        }
    }
}
