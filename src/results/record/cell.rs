//! One measurement of a cell: how it ended, what it went through, what came out.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::ids::{CellKey, ContentHash, LaunchId};
use crate::config::arrival::Arrival;
use crate::config::scenario::Scenario;
use crate::plan::Measurement;
use crate::results::record::FORMAT;
use crate::results::record::client::ClientFacts;
use crate::results::record::engine_change::EngineChange;
use crate::results::record::post_mortem::Retry;
use crate::results::record::provenance::Imported;
use crate::results::record::request::Class;
use crate::results::record::search::SearchRecord;
use crate::results::record::telemetry::Telemetry;
use crate::results::record::validity::{Validity, Verdict};

/// Everything known about one measurement of a cell but its requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The version of the layout.
    pub format: u32,
    /// The cell.
    pub cell: CellKey,
    /// A digest of what was measured.
    pub content: ContentHash,
    /// The launch it was measured on.
    pub launch: LaunchId,
    /// Which start of the launch, from 1.
    pub start: u32,
    /// Which repeat on that start, from 1.
    pub repeat: u32,
    /// How it ended.
    #[serde(rename = "status", alias = "ending")]
    pub ending: Ending,
    /// Where its figures come from.
    pub origin: Origin,
    /// When it began, RFC 3339.
    pub began: String,
    /// When it ended, RFC 3339.
    pub ended: String,
    /// What it went through, with times.
    pub phases: Vec<PhaseTime>,
    /// What is known of the engine that answered.
    pub engine: EngineFacts,
    /// What was sent: a digest of all prompts with their lengths.
    pub prompts_hash: Option<ContentHash>,
    /// The share of the prompts that begins like another one before it: so much a prefix cache may know of them by right. Absent where
    /// nobody can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompts_repeated: Option<f64>,
    /// When it was to be sent: a digest of all due times.
    pub schedule_hash: Option<ContentHash>,
    /// Prompts that the data set gave; may be fewer than asked for.
    pub prompts: Option<u32>,
    /// Whose clock stamped arrivals: `user` or `kernel`.
    #[serde(rename = "timestamp_source", alias = "stamps")]
    pub stamps: Option<String>,
    /// What is known of the client meanwhile; absent in older runs and where nothing was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientFacts>,
    /// What emptying the caches came to.
    #[serde(rename = "cache_reset", alias = "reset")]
    pub reset: Option<ResetProof>,
    /// Failed requests by class.
    pub failures: BTreeMap<Class, u32>,
    /// The figures, by definition set.
    pub figures: BTreeMap<Definitions, Figures>,
    /// Between which two values percentiles lie with 95 % confidence, in milliseconds, by the name of the figure; absent where requests
    /// are too few to tell, and in older runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub intervals: BTreeMap<String, [f64; 2]>,
    /// What the answers held; absent in older runs and where no text was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answers: Option<Answers>,
    /// What was searched for and found; requests, figures and schedule are then those of the point that was found, or of the
    /// first one if none held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchRecord>,
    /// Tries before this one that failed by the host's fault.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retries: Vec<Retry>,
    /// Other launches that ran on this host meanwhile, on other devices.
    #[serde(
        rename = "concurrent_launches",
        alias = "beside",
        default,
        skip_serializing_if = "Vec::is_empty"
    )]
    pub beside: Vec<LaunchId>,
    /// Whether an image was pulled meanwhile.
    #[serde(
        rename = "pull_during",
        alias = "pulled_beside",
        default,
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub pulled_beside: bool,
    /// Why it could not be verified that the socket that answered was the engine's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listener_unverified: Option<String>,
    /// What the engine tells of itself otherwise than at an earlier measurement of the same launch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engine_changes: Vec<EngineChange>,
    /// The machine and the engine meanwhile; absent in older runs and where nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub telemetry: Option<Telemetry>,
    /// Whether its figures can be believed; absent in older runs and where nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validity: Option<Validity>,
    /// Where it was read from, where another tool measured it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<Imported>,
    /// Doubts that belong beside the figures.
    pub warnings: Vec<String>,
}

impl Summary {
    /// The first measurement of a cell, done, of which nothing else is known.
    pub fn new(cell: CellKey, content: ContentHash, launch: LaunchId, origin: Origin) -> Self {
        Self {
            format: FORMAT,
            cell,
            content,
            launch,
            start: 1,
            repeat: 1,
            ending: Ending::Done,
            origin,
            began: String::new(),
            ended: String::new(),
            phases: Vec::new(),
            engine: EngineFacts::default(),
            prompts_hash: None,
            prompts_repeated: None,
            schedule_hash: None,
            prompts: None,
            stamps: None,
            client: None,
            reset: None,
            failures: BTreeMap::new(),
            figures: BTreeMap::new(),
            intervals: BTreeMap::new(),
            answers: None,
            search: None,
            retries: Vec::new(),
            beside: Vec::new(),
            pulled_beside: false,
            listener_unverified: None,
            engine_changes: Vec::new(),
            telemetry: None,
            validity: None,
            imported: None,
            warnings: Vec::new(),
        }
    }
}

/// Figures whose sign and size are known: what they end in.
const NEVER_NEGATIVE: [&str; 8] = [
    "_req_s",
    "_tok_s",
    "_tokens",
    "_requests",
    "duration_s",
    "_ttft_ms",
    "_tpot_ms",
    "_e2e_ms",
];

/// A rate, and the count that it is over the duration.
const RATES: [[&str; 2]; 3] = [
    ["request_throughput_req_s", "completed_requests"],
    ["output_throughput_tok_s", "output_tokens"],
    ["input_throughput_tok_s", "input_tokens"],
];

/// The share by which a rate may differ from what it is made of: figures are written with all their digits.
const ROUNDING: f64 = 1e-6;

impl Summary {
    /// All of each cell.
    pub(crate) fn by_cell(summaries: &[Self]) -> BTreeMap<&CellKey, Vec<&Self>> {
        let mut cells: BTreeMap<&CellKey, Vec<&Self>> = BTreeMap::new();
        for summary in summaries {
            cells.entry(&summary.cell).or_default().push(summary);
        }
        cells
    }

    /// Whether its figures are worth nothing.
    pub fn is_invalid(&self) -> bool {
        let mut reasons = self.validity.iter().flat_map(|validity| &validity.reasons);
        reasons.any(|reason| reason.weight == Verdict::Invalid)
    }

    /// How the figures that we derived ourselves contradict each other, if they do: somebody wrote them who did not measure them. What was
    /// imported has warnings of its own.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let figures = self.figures.get(&Definitions::Matrix)?;
        if self.origin == Origin::Imported {
            return None;
        }
        let negative = figures.iter().find(|(name, value)| {
            let may_not = NEVER_NEGATIVE.iter().any(|end| name.ends_with(end));
            may_not && value.is_some_and(|value| value < 0.0)
        });
        if let Some((name, Some(value))) = negative {
            return Some(format!("`{name}` is {value}"));
        }
        let value = |name: &str| figures.get(name).copied().flatten();
        let duration = value("duration_s")?;
        RATES.iter().find_map(|[rate, count]| {
            let (told, counted) = (value(rate)?, value(count)?);
            let come = told * duration;
            let is_same = (come - counted).abs() <= ROUNDING * (counted + 1.0);
            (!is_same).then(|| {
                format!("`{rate}` is {told:.2} over {duration:.2} s, which makes {come:.0}, and `{count}` is {counted:.0}")
            })
        })
    }

    /// Which measurement it is of.
    pub fn measurement(&self) -> Measurement {
        Measurement {
            cell: self.cell.clone(),
            start: self.start,
            repeat: self.repeat,
        }
    }

    /// The arrival that requests and figures belong to: the scenario's, or that of the point that a search chose.
    pub fn arrival(&self, scenario: &Scenario) -> Arrival {
        let chosen = self.search.as_ref().and_then(|record| {
            let first = record.points.first().map(|point| point.value);
            record.found.or(first)
        });
        match scenario.search.as_ref().zip(chosen) {
            Some((search, value)) => search.arrival(&scenario.arrival, value),
            None => scenario.arrival.clone(),
        }
    }
}

/// What the answers of a measurement held, and how its prompts were counted, over all completed requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    /// Answers that were long enough to be looked at.
    pub read: u32,
    /// Those of them that are one token nearly all the way.
    pub one_token: u32,
    /// Answers that begin with the text of their prompt.
    #[serde(default)]
    pub echoes: u32,
    /// Answers that are a loop of a few tokens nearly all the way.
    #[serde(default)]
    pub loops: u32,
    /// Answers that are the same text as that to another prompt.
    #[serde(default)]
    pub canned: u32,
    /// Prompts whose tokens the server counted too.
    pub prompts: u32,
    /// Their tokens by our count.
    pub prompt_tokens: u64,
    /// Their tokens by the server's count.
    pub reported_prompt_tokens: u64,
    /// Answers whose tokens the server counted and we did too.
    #[serde(default)]
    pub counted: u32,
    /// Their tokens by the server's count.
    #[serde(default)]
    pub reported_tokens: u64,
    /// Their tokens by our count of the text.
    #[serde(default)]
    pub counted_tokens: u64,
    /// The events that they came in.
    #[serde(default)]
    pub events: u64,
    /// Completed answers whose prompt the server counted.
    #[serde(default)]
    pub prompts_reported: u32,
    /// Tokens of these prompts that stand for pictures.
    #[serde(default)]
    pub vision_tokens: u64,
}

impl Answers {
    /// The share of the answers that are one token nearly all the way; `None` where too few were read.
    pub fn one_token_share(&self) -> Option<f64> {
        self.share(self.one_token)
    }

    /// The share of the answers that begin with their own prompt; `None` where too few were read.
    pub(crate) fn echo_share(&self) -> Option<f64> {
        self.share(self.echoes)
    }

    /// The share of the answers that are a loop of a few tokens; `None` where too few were read.
    pub fn loop_share(&self) -> Option<f64> {
        self.share(self.loops)
    }

    /// The share of the answers that are the same text as that to another prompt; `None` where too few were read.
    pub fn canned_share(&self) -> Option<f64> {
        self.share(self.canned)
    }

    fn share(&self, count: u32) -> Option<f64> {
        (self.read >= 8).then(|| f64::from(count) / f64::from(self.read))
    }
}

/// Figures by name, such as `mean_ttft_ms`; `None` where a figure has no meaning.
pub(crate) type Figures = BTreeMap<String, Option<f64>>;

/// The definitions a figure follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Definitions {
    /// What the fork of bench_serving in lmdeploy of 2025 would print.
    Classic,
    /// What bench_serving of sglang 0.5.23 would print.
    Current,
    /// Ours: every known fault of the others mended.
    Matrix,
}

impl Definitions {
    /// The set as it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Current => "current",
            Self::Matrix => "matrix",
        }
    }
}

/// Where figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Measured on an engine.
    Measured,
    /// Read from what another tool wrote.
    Imported,
    /// Measured on the simulated engine.
    Simulated,
}

impl Origin {
    /// The origin as it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::Imported => "imported",
            Self::Simulated => "simulated",
        }
    }
}

/// How a measurement ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// To its end.
    Done,
    /// It could not be measured, or not to its end; what was recorded is kept.
    Failed {
        /// Where it failed.
        phase: Phase,
        /// Whose fault it seems.
        class: FailureClass,
        /// What happened, in one sentence.
        reason: String,
        /// The engine's last words.
        tail: Vec<String>,
    },
    /// It was not tried.
    Skipped {
        /// Why.
        reason: String,
    },
    /// The run was stopped while it was measured.
    Interrupted,
}

impl Ending {
    /// One word for tables.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed { .. } => "failed",
            Self::Skipped { .. } => "skipped",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The parts of a cell's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The environment of the engine is made.
    Install,
    /// The engine starts, up to its first real token.
    Launch,
    /// Prompts are made.
    Prepare,
    /// Requests before the measurement.
    Warmup,
    /// Caches are emptied.
    Reset,
    /// Requests are sent and recorded.
    Measure,
    /// The engine is stopped.
    Stop,
}

impl Phase {
    /// The phase as it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Launch => "launch",
            Self::Prepare => "prepare",
            Self::Warmup => "warmup",
            Self::Reset => "reset",
            Self::Measure => "measure",
            Self::Stop => "stop",
        }
    }
}

/// Whose fault a failure seems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureClass {
    /// What the matrix asks for cannot be: unknown flag, missing model, port taken.
    Spec,
    /// The image or environment could not be made.
    Image,
    /// Too little memory or too few devices.
    Capacity,
    /// The engine died, hung or lied.
    Engine,
    /// The host or its container runtime.
    Infrastructure,
    /// Our own.
    Client,
    /// It was measured to its end, and what came is worth no figure.
    Validity,
}

impl FailureClass {
    /// The class as it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::Image => "image",
            Self::Capacity => "capacity",
            Self::Engine => "engine",
            Self::Infrastructure => "infrastructure",
            Self::Client => "client",
            Self::Validity => "validity",
        }
    }

    /// What it means, in a few words.
    pub const fn means(self) -> &'static str {
        match self {
            Self::Spec => "what the matrix asks for cannot be",
            Self::Image => "the image or environment could not be had",
            Self::Capacity => "too little memory or too few devices",
            Self::Engine => "the engine died, hung or lied",
            Self::Infrastructure => "the host or its container runtime; such a try is made again",
            Self::Client => "our own fault",
            Self::Validity => "measured to its end, and worth no figure",
        }
    }

    /// Whether another try may end otherwise though nothing is changed.
    pub(crate) const fn is_retried(self) -> bool {
        matches!(self, Self::Infrastructure)
    }
}

/// How long a part took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseTime {
    /// The part: a [`Phase`], or a phase of starting that the engine's log told, such as `launch/weights`.
    pub phase: String,
    /// Seconds it took.
    pub seconds: f64,
}

/// What is known of the engine that answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineFacts {
    /// The version that the engine itself reports.
    pub version: Option<String>,
    /// The models that it says it serves.
    pub models: Vec<String>,
    /// What its list tells of the model that was asked for, such as `max_model_len`; absent in older runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub served: BTreeMap<String, String>,
    /// Whether it says that it is simulated, as the simulated engine does wherever it was started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated: bool,
    /// The image's digest, for a container.
    pub image_digest: Option<String>,
    /// The image's size on disk, for a container, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_bytes: Option<u64>,
    /// Its live configuration as it reports it.
    pub info: Option<serde_json::Value>,
    /// Whether the tokenizer that made the prompts is known by a digest.
    pub tokenizer_digest: Option<String>,
    /// The command that started it, as `plan` prints it.
    pub command: Option<String>,
    /// That command as it ran, with the port and the devices of its start, where it differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact_command: Option<String>,
    /// Devices it was given.
    pub devices: Vec<u32>,
}

/// A beginning of prompts that no measurement before on the same start had. It is no part of what `prompts_hash` tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UniquePrefix {
    /// Its letters; of a short prompt only the first of them.
    pub letters: String,
    /// How many tokens they are, in the place of as many of each prompt.
    pub tokens: u32,
    /// Prompts that kept their own beginning, as none of the same length could be put there.
    pub kept: u32,
}

/// What emptying the caches came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResetProof {
    /// Whether nothing was measured on this start before, so that there was nothing to empty.
    #[serde(default)]
    pub is_fresh_start: bool,
    /// Whether the recipe knows a way at all.
    pub possible: bool,
    /// The HTTP status of the answer.
    pub status: Option<u16>,
    /// Whether the engine says that it worked.
    pub success: Option<bool>,
    /// What the engine said, shortened.
    pub answer: Option<String>,
    /// What the prompts began with in the place of some of their own tokens, where the recipe asks for unique prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_prefix: Option<UniquePrefix>,
    /// Prefix-cache hits, in tokens or queries as the engine counts them, over the measured window.
    pub hits_in_window: Option<f64>,
    /// Prefix-cache queries, in the same unit.
    pub queries_in_window: Option<f64>,
}
