//! How a measurement ended, and its phases.

use serde::{Deserialize, Serialize};

/// How a measurement ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasurementStatus {
    /// The measurement ended as planned.
    Done,
    /// Could not be measured, or not completely; recorded requests are kept.
    Failed {
        /// The phase in which it failed.
        phase: Phase,
        /// Who is presumed at fault.
        class: FailureClass,
        /// What happened, in one sentence.
        reason: String,
        /// Last lines of the engine's log.
        tail: Vec<String>,
    },
    /// The measurement was not attempted.
    Skipped {
        /// The reason for skipping.
        reason: String,
    },
    /// The run was stopped during the measurement.
    Interrupted,
}

impl MeasurementStatus {
    /// One word for tables.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed { .. } => "failed",
            Self::Skipped { .. } => "skipped",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The phases of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The environment of the engine is installed.
    Install,
    /// The engine starts, until its first real token.
    Launch,
    /// Reading prompts and encoding requests.
    Prepare,
    /// Warm-up requests are sent.
    Warmup,
    /// Emptying the caches of the engine.
    Reset,
    /// Requests are sent and recorded.
    Measure,
    /// Answers are graded, under the same load and alone.
    Grade,
    /// The engine is stopped.
    Stop,
}

impl Phase {
    /// The name on disk.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Launch => "launch",
            Self::Prepare => "prepare",
            Self::Warmup => "warmup",
            Self::Reset => "reset",
            Self::Measure => "measure",
            Self::Grade => "grade",
            Self::Stop => "stop",
        }
    }
}

/// The presumed fault of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FailureClass {
    /// The matrix asks for something impossible: unknown flag, missing model, port in use.
    Spec,
    /// The image or environment could not be made.
    Image,
    /// Too little memory or too few GPUs.
    Capacity,
    /// The engine crashed, hung or gave wrong answers.
    Engine,
    /// The host or its container runtime failed.
    Infrastructure,
    /// `matrix` itself failed.
    Client,
    /// The measurement completed, but is invalid.
    Validity,
}

impl FailureClass {
    /// The name on disk.
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

    /// The meaning in a few words, for users.
    pub(crate) const fn description(self) -> &'static str {
        match self {
            Self::Spec => "the matrix cannot work: for example, a flag is unknown or a model is missing",
            Self::Image => "the image or environment could not be prepared",
            Self::Capacity => "too little memory or too few devices",
            Self::Engine => "the engine crashed, hung or gave wrong answers",
            Self::Infrastructure => "the host or its container runtime failed; such cells are retried",
            Self::Client => "`matrix` itself failed",
            Self::Validity => "the measurement completed, but is invalid",
        }
    }

    /// Whether the failure counts against the engine.
    pub(crate) const fn is_of_engine(self) -> bool {
        matches!(self, Self::Engine | Self::Capacity)
    }

    /// Whether another try may end otherwise though nothing is changed.
    pub(crate) const fn is_retryable(self) -> bool {
        matches!(self, Self::Infrastructure)
    }
}

/// Duration of one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseTime {
    /// A [`Phase`], or a phase of starting that was found in the engine's log, such as `launch/weights`.
    pub phase: String,
    /// Duration in seconds.
    pub seconds: f64,
}
