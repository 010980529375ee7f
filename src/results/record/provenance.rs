//! Where an imported measurement comes from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Facts about an imported measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Provenance {
    /// The tool that measured.
    pub(crate) tool: Tool,
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
}

/// A tool whose results can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Tool {
    /// sglang's `bench_serving`, or one of its forks.
    BenchServing,
    /// `vllm bench serve`.
    VllmBench,
}

impl Tool {
    /// Its name for users.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::BenchServing => "bench_serving",
            Self::VllmBench => "vllm bench serve",
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
