//! The stable names of reasons for a validity.

use serde::{Deserialize, Serialize};

/// The stable name of a reason. `matrix explain --codes` describes all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ReasonCode {
    /// Requests were sent or answers read late because of the client.
    ClientLate,
    /// A thread of the client used nearly all of a processor.
    ClientSaturated,
    /// Client and engine may have run on the same processors.
    ClientSharesCpus,
    /// Requests were not sent at the rate at which they fell due.
    RateNotReached,
    /// The drawn arrivals have another rate than requested.
    RateDrawn,
    /// More requests failed than the scenario allows.
    Errors,
    /// Answers ended before the requested length.
    OutputShort,
    /// Answers exceeded the requested length.
    OutputLong,
    /// The server reports another number of prompt tokens than was sent.
    PromptTokensDisagree,
    /// The server reports another length of the recordings than was sent.
    AudioSecondsDisagree,
    /// The server reports no output tokens.
    TokensUncounted,
    /// Answers repeat a few tokens, repeat the prompt, or are the same for all prompts.
    AnswersDegenerate,
    /// Graded answers were wrong under load and right alone.
    AnswersWrongUnderLoad,
    /// Fewer graded answers were correct than the matrix demands.
    AnswersBelowMinimum,
    /// Graded answers are worse than those of the reference.
    AnswersWorseThanReference,
    /// Graded answers cannot be compared with those of the reference.
    AnswersNotCompared,
    /// Graded answers were compared with those of the reference, and no loss was found.
    AnswersCompared,
    /// The engine's count of output tokens differs from the client's.
    TokensDisagree,
    /// The engine went on generating for requests that the client had cancelled.
    CancelIgnored,
    /// Chunks have several tokens: times between tokens are times between chunks.
    ChunkedTokens,
    /// Answers begin with an event that is not from the model, and TTFT is the time of that event.
    FirstEventAhead,
    /// Prompts that should be new to the engine were in its prefix cache.
    CacheWarm,
    /// The prefix cache found fewer tokens than the prompts share by design.
    CacheMissed,
    /// It is unknown whether the caches were empty.
    ResetUnproven,
    /// A GPU slowed down because of heat.
    ThrottledThermal,
    /// A GPU slowed down at its power limit.
    ThrottledPower,
    /// A GPU's hardware slowed it down: power brake or a fault of the power supply.
    ThrottledHardware,
    /// A GPU's clock varied while it was busy.
    ClocksSpread,
    /// A process that does not belong to the engine was on a GPU of the launch.
    GpuShared,
    /// A GPU's memory was in use before the engine was started.
    GpuNotAtRest,
    /// The engine preempted running requests and repeated their work.
    Preempted,
    /// The engine's KV cache was full.
    KvCacheFull,
    /// Other processes kept this host's processors busy.
    HostBusy,
    /// The hypervisor gave processor time to other machines.
    CpuStolen,
    /// This host's memory went to and from swap.
    Swapping,
    /// Memory of a GPU belonged to no process of the engine.
    GpuMemoryUnexplained,
    /// A GPU reported errors.
    GpuErrors,
    /// A GPU's PCIe link was slower than device and slot allow.
    PcieDowntrained,
    /// The engine ran on processors far from its GPUs.
    NumaRemote,
    /// The engine restarted within the window.
    EngineRestarted,
    /// Counters of the engine's metrics page fell, but not to the values of a restarted engine.
    MetricsMixed,
    /// The engine reports other facts about itself than earlier in the run.
    EngineChanged,
    /// The engine reports that it serves another model.
    WrongModel,
    /// The engine reports that it computes in another precision.
    WrongPrecision,
    /// A telemetry source returned no values for a part of the window.
    TelemetryGap,
    /// There are too few requests for the printed percentiles.
    FewSamples,
    /// The measurement was too short.
    WindowShort,
    /// Throughput never became steady.
    NeverSteady,
    /// Requests arrived faster than they were answered until the end.
    QueueGrowing,
    /// The wall clock was set during the measurement.
    ClockJump,
    /// Energy counter and integrated power differ.
    EnergyDisagrees,
    /// It could not be verified that the responding socket belongs to the engine.
    ListenerUnverified,
    /// Something else ran on this host during the measurement.
    Neighbour,
    /// The matrix sets looser bounds than the defaults.
    BoundsLoosened,
    /// The GPUs are simulated.
    PretendedGpus,
    /// Another tool measured it; facts that this tool did not write are unknown.
    Imported,
    /// The engine is simulated.
    Simulated,
}

impl ReasonCode {
    /// Whether something outside the engine disturbed the measurement, so that a loss may be caused by the
    /// host.
    pub(crate) const fn is_disturbance(self) -> bool {
        matches!(
            self,
            Self::ClientLate
                | Self::ClientSaturated
                | Self::ClientSharesCpus
                | Self::ThrottledThermal
                | Self::ThrottledPower
                | Self::ThrottledHardware
                | Self::ClocksSpread
                | Self::GpuShared
                | Self::GpuNotAtRest
                | Self::HostBusy
                | Self::CpuStolen
                | Self::Swapping
                | Self::GpuMemoryUnexplained
                | Self::GpuErrors
                | Self::PcieDowntrained
                | Self::NumaRemote
                | Self::ClockJump
                | Self::Neighbour
        )
    }

    pub(crate) const ALL: &[Self] = &[
        Self::ClientLate,
        Self::ClientSaturated,
        Self::ClientSharesCpus,
        Self::RateNotReached,
        Self::RateDrawn,
        Self::Errors,
        Self::OutputShort,
        Self::OutputLong,
        Self::PromptTokensDisagree,
        Self::AudioSecondsDisagree,
        Self::TokensUncounted,
        Self::AnswersDegenerate,
        Self::AnswersWrongUnderLoad,
        Self::AnswersBelowMinimum,
        Self::AnswersWorseThanReference,
        Self::AnswersNotCompared,
        Self::AnswersCompared,
        Self::TokensDisagree,
        Self::CancelIgnored,
        Self::ChunkedTokens,
        Self::FirstEventAhead,
        Self::CacheWarm,
        Self::CacheMissed,
        Self::ResetUnproven,
        Self::ThrottledThermal,
        Self::ThrottledPower,
        Self::ThrottledHardware,
        Self::ClocksSpread,
        Self::GpuShared,
        Self::GpuNotAtRest,
        Self::Preempted,
        Self::KvCacheFull,
        Self::HostBusy,
        Self::CpuStolen,
        Self::Swapping,
        Self::GpuMemoryUnexplained,
        Self::GpuErrors,
        Self::PcieDowntrained,
        Self::NumaRemote,
        Self::EngineRestarted,
        Self::MetricsMixed,
        Self::EngineChanged,
        Self::WrongModel,
        Self::WrongPrecision,
        Self::TelemetryGap,
        Self::FewSamples,
        Self::WindowShort,
        Self::NeverSteady,
        Self::QueueGrowing,
        Self::ClockJump,
        Self::EnergyDisagrees,
        Self::ListenerUnverified,
        Self::Neighbour,
        Self::BoundsLoosened,
        Self::PretendedGpus,
        Self::Imported,
        Self::Simulated,
    ];

    /// The code with this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }

    /// The name on disk.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClientLate => "client-late",
            Self::ClientSaturated => "client-saturated",
            Self::ClientSharesCpus => "client-shares-cpus",
            Self::RateNotReached => "rate-not-reached",
            Self::RateDrawn => "rate-drawn",
            Self::Errors => "errors",
            Self::OutputShort => "output-short",
            Self::OutputLong => "output-long",
            Self::PromptTokensDisagree => "prompt-tokens-disagree",
            Self::AudioSecondsDisagree => "audio-seconds-disagree",
            Self::TokensUncounted => "tokens-uncounted",
            Self::AnswersDegenerate => "answers-degenerate",
            Self::AnswersWrongUnderLoad => "answers-wrong-under-load",
            Self::AnswersBelowMinimum => "answers-below-minimum",
            Self::AnswersWorseThanReference => "answers-worse-than-reference",
            Self::AnswersNotCompared => "answers-not-compared",
            Self::AnswersCompared => "answers-compared",
            Self::TokensDisagree => "tokens-disagree",
            Self::CancelIgnored => "cancel-ignored",
            Self::ChunkedTokens => "chunked-tokens",
            Self::FirstEventAhead => "first-event-ahead",
            Self::CacheWarm => "cache-warm",
            Self::CacheMissed => "cache-missed",
            Self::ResetUnproven => "reset-unproven",
            Self::ThrottledThermal => "throttled-thermal",
            Self::ThrottledPower => "throttled-power",
            Self::ThrottledHardware => "throttled-hardware",
            Self::ClocksSpread => "clocks-spread",
            Self::GpuShared => "gpu-shared",
            Self::GpuNotAtRest => "gpu-not-at-rest",
            Self::Preempted => "preempted",
            Self::KvCacheFull => "kv-cache-full",
            Self::HostBusy => "host-busy",
            Self::CpuStolen => "cpu-stolen",
            Self::Swapping => "swapping",
            Self::GpuMemoryUnexplained => "gpu-memory-unexplained",
            Self::GpuErrors => "gpu-errors",
            Self::PcieDowntrained => "pcie-downtrained",
            Self::NumaRemote => "numa-remote",
            Self::EngineRestarted => "engine-restarted",
            Self::MetricsMixed => "metrics-mixed",
            Self::EngineChanged => "engine-changed",
            Self::WrongModel => "wrong-model",
            Self::WrongPrecision => "wrong-precision",
            Self::TelemetryGap => "telemetry-gap",
            Self::FewSamples => "few-samples",
            Self::WindowShort => "window-short",
            Self::NeverSteady => "never-steady",
            Self::QueueGrowing => "queue-growing",
            Self::ClockJump => "clock-jump",
            Self::EnergyDisagrees => "energy-disagrees",
            Self::ListenerUnverified => "listener-unverified",
            Self::Neighbour => "neighbour",
            Self::BoundsLoosened => "bounds-loosened",
            Self::PretendedGpus => "pretended-gpus",
            Self::Imported => "imported",
            Self::Simulated => "simulated",
        }
    }
}
