//! Where a measurement comes from that another tool made.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is known of a measurement only because it was read from what another tool wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    /// The tool that measured.
    pub tool: Tool,
    /// The file that it was read from, by its name.
    pub file: String,
    /// Where in that file its figures begin, from 1.
    pub line: u32,
    /// What the file does not tell, such as `tp` or `seed`: what the plan says of these is only a filler.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<Unknown>,
    /// Whether its block has a line for tokens of pictures, as some layouts have whatever was sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vision_line: bool,
    /// What its client was told besides, where that is not usual and the plan has no field for it, such as a profile of the server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub client: BTreeMap<String, String>,
}

impl Imported {
    /// Whether the file tells nothing of that.
    pub fn lacks(&self, what: Unknown) -> bool {
        self.unknown.contains(&what)
    }
}

/// A tool whose results can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    /// sglang's `bench_serving`, or one of its forks.
    BenchServing,
    /// `vllm bench serve`.
    VllmBench,
}

impl Tool {
    /// Its name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BenchServing => "bench_serving",
            Self::VllmBench => "vllm bench serve",
        }
    }
}

/// Something that other tools need not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unknown {
    /// Which engine answered.
    Engine,
    /// In which version.
    Version,
    /// Which model it served.
    Model,
    /// Over how many devices the model was spread.
    Tp,
    /// How many GPUs there were.
    Gpus,
    /// Where the prompts came from.
    Dataset,
    /// How long prompts and answers were to be.
    Lengths,
    /// What the draws started from.
    Seed,
    /// How many requests were to be sent.
    Prompts,
    /// How requests arrived.
    Rate,
}

impl Unknown {
    /// What it is, in words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Engine => "the engine",
            Self::Version => "the engine's version",
            Self::Model => "the model",
            Self::Tp => "the tensor-parallel size",
            Self::Gpus => "the number of GPUs",
            Self::Dataset => "the data set",
            Self::Lengths => "the lengths that were asked for",
            Self::Seed => "the seed",
            Self::Prompts => "the number of prompts",
            Self::Rate => "the request rate",
        }
    }
}
