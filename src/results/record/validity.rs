//! Validity of a measurement, with reasons. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The judgement that everything downstream obeys, from good to bad.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing speaks against it.
    #[default]
    Valid,
    /// Its figures stand, and something beside them is to be known before they are believed.
    Suspect,
    /// Its figures are no measurement of what was asked: no ratio, no win, no baseline, no alarm.
    Invalid,
}

impl Verdict {
    /// The name on disk.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Suspect => "suspect",
            Self::Invalid => "invalid",
        }
    }

    /// The weight of a finding that leads to this verdict: what leaves a measurement valid is a note.
    pub(crate) const fn weight_name(self) -> &'static str {
        match self {
            Self::Valid => "note",
            weight => weight.name(),
        }
    }
}

/// A verdict with all its reasons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredValidity")]
pub struct Validity {
    /// The worst weight of the reasons that concern the whole measurement.
    pub verdict: Verdict,
    /// The reasons, worst first.
    pub reasons: Vec<Reason>,
}

/// The form on disk. Reading takes the worse of the stored verdict and the one that the reasons give.
#[derive(Deserialize)]
struct StoredValidity {
    verdict: Verdict,
    reasons: Vec<Reason>,
}

impl From<StoredValidity> for Validity {
    fn from(stored: StoredValidity) -> Self {
        let judged = Self::from_reasons(stored.reasons);
        Self {
            verdict: judged.verdict.max(stored.verdict),
            ..judged
        }
    }
}

impl Validity {
    /// Sorts the reasons and derives the verdict.
    pub fn from_reasons(mut reasons: Vec<Reason>) -> Self {
        reasons.sort_by(|a, b| b.weight.cmp(&a.weight).then(a.code.cmp(&b.code)));
        let whole = reasons.iter().find(|reason| reason.only.is_empty());
        Self {
            verdict: whole.map_or(Verdict::Valid, |reason| reason.weight),
            reasons,
        }
    }

    /// The verdict on one metric family: that of the whole measurement, or a worse one that concerns only
    /// this family.
    pub fn verdict_for(&self, family: MetricFamily) -> Verdict {
        let reasons = self.reasons.iter().filter(|reason| reason.only.contains(&family));
        reasons
            .map(|reason| reason.weight)
            .fold(self.verdict, Verdict::max)
    }
}

/// A family of figures that a reason may concern alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MetricFamily {
    /// Times to the first token.
    Ttft,
    /// Times between tokens.
    Itl,
    /// Times per token of an answer, and what is derived from them.
    Tpot,
    /// Goodput and SLO attainment.
    Goodput,
    /// Energy, power and what is derived from them.
    Energy,
}

impl MetricFamily {
    pub(crate) const ALL: [Self; 5] = [Self::Ttft, Self::Itl, Self::Tpot, Self::Goodput, Self::Energy];

    /// The name in tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ttft => "TTFT",
            Self::Itl => "ITL",
            Self::Tpot => "TPOT",
            Self::Goodput => "goodput",
            Self::Energy => "energy",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reason {
    /// Its stable name.
    pub code: ReasonCode,
    /// What it makes of the measurement; what leaves it valid is written as a note.
    #[serde(with = "weight")]
    #[schemars(with = "weight::Weight")]
    pub weight: Verdict,
    /// The families of figures that it concerns; empty if it concerns the whole measurement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<MetricFamily>,
    /// What was measured, with its unit.
    pub measured: String,
    /// What it was held against; none where there is nothing to hold it against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// What happened and what to do about it.
    pub advice: String,
}

/// How the weight of a reason is written.
mod weight {
    use schemars::JsonSchema;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Verdict;

    /// What a finding makes of a measurement.
    #[derive(Clone, Copy, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub(super) enum Weight {
        /// Nothing: it is a remark. Older records call it `valid`.
        #[serde(alias = "valid")]
        Note,
        /// Its figures stand, and this is to be known before they are believed.
        Suspect,
        /// Its figures are no measurement of what was asked.
        Invalid,
    }

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
    pub(super) fn serialize<S: Serializer>(weight: &Verdict, serializer: S) -> Result<S::Ok, S::Error> {
        let weight = match weight {
            Verdict::Valid => Weight::Note,
            Verdict::Suspect => Weight::Suspect,
            Verdict::Invalid => Weight::Invalid,
        };
        weight.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Verdict, D::Error> {
        Ok(match Weight::deserialize(deserializer)? {
            Weight::Note => Verdict::Valid,
            Weight::Suspect => Verdict::Suspect,
            Weight::Invalid => Verdict::Invalid,
        })
    }
}

impl Reason {
    /// The weight in words; names the affected metric families, if it is not a note.
    pub fn describe_weight(&self) -> String {
        let weight = self.weight.weight_name();
        let families: Vec<&str> = self.only.iter().map(|family| family.name()).collect();
        match families.is_empty() || self.weight == Verdict::Valid {
            true => weight.to_owned(),
            false => format!("{weight} for {}", families.join(", ")),
        }
    }
}

/// The stable name of a finding. What each means and does is told in the table of `analysis::validity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReasonCode {
    /// Requests were sent later than they fell due, by the client's own fault.
    ClientLate,
    /// A thread of the client had nearly no processor time left.
    ClientSaturated,
    /// Client and engine ran on the same processors.
    ClientSharesCpus,
    /// Requests were not sent at the rate that was asked for.
    RateNotReached,
    /// The arrivals that were drawn came at another rate than was asked for.
    RateDrawn,
    /// More requests failed than the scenario allows.
    Errors,
    /// Answers ended before the length that was asked for.
    OutputShort,
    /// Answers went on beyond the length that was asked for.
    OutputLong,
    /// The server counts other prompt tokens than were sent.
    PromptTokensDisagree,
    /// The server reports no output tokens.
    TokensUncounted,
    /// Answers are one token over and over.
    AnswersDegenerate,
    /// The engine's count of output tokens and ours differ.
    TokensDisagree,
    /// Several tokens come in one chunk: times between tokens are those between chunks.
    ChunkedTokens,
    /// Answers begin with an event that is none of the model's: TTFT is its moment.
    FirstEventAhead,
    /// Prompts that should be new to the engine were found in its prefix cache.
    CacheWarm,
    /// Nobody can tell whether the caches were empty.
    ResetUnproven,
    /// A GPU slowed down for heat.
    ThrottledThermal,
    /// A GPU slowed down at its power limit.
    ThrottledPower,
    /// A GPU's hardware slowed it down: power brake or a fault of its supply.
    ThrottledHardware,
    /// A GPU's clock wandered while it was busy.
    ClocksSpread,
    /// Somebody else's process was on a GPU of the launch.
    GpuShared,
    /// A GPU's memory was taken before the engine was started.
    GpuNotAtRest,
    /// The engine stopped requests that ran, and did their work again.
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
    /// A GPU's bus was slower than it can be.
    PcieDowntrained,
    /// The engine ran on processors far from its GPUs.
    NumaRemote,
    /// The engine began anew within the window.
    EngineRestarted,
    /// The counters of the engine's page of metrics fell, and not to where one begins.
    MetricsMixed,
    /// The engine tells of itself otherwise than earlier in the run.
    EngineChanged,
    /// The engine says that it serves another model.
    WrongModel,
    /// The engine says that it computes in another precision.
    WrongPrecision,
    /// A source of telemetry was silent for a part of the window.
    TelemetryGap,
    /// Too few requests for the percentiles that are printed.
    FewSamples,
    /// The measurement was too short.
    WindowShort,
    /// Throughput never became steady.
    NeverSteady,
    /// Requests came faster than they were answered, to the end.
    QueueGrowing,
    /// The wall clock was set meanwhile.
    ClockJump,
    /// Energy counter and integrated power differ.
    EnergyDisagrees,
    /// It could not be verified that the socket that answered was the engine's.
    ListenerUnverified,
    /// Something else ran on this host meanwhile.
    Neighbour,
    /// The matrix allows more than usual before a measurement is doubted.
    BoundsLoosened,
    /// The GPUs are only pretended.
    PretendedGpus,
    /// Another tool measured it; what that tool did not write is unknown.
    Imported,
    /// The engine is simulated.
    Simulated,
}

impl ReasonCode {
    /// Whether something from outside disturbed the measurement, for which the engine is not to blame: a loss that goes with it may be that
    /// of the host.
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
        Self::TokensUncounted,
        Self::AnswersDegenerate,
        Self::TokensDisagree,
        Self::ChunkedTokens,
        Self::FirstEventAhead,
        Self::CacheWarm,
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
            Self::TokensUncounted => "tokens-uncounted",
            Self::AnswersDegenerate => "answers-degenerate",
            Self::TokensDisagree => "tokens-disagree",
            Self::ChunkedTokens => "chunked-tokens",
            Self::FirstEventAhead => "first-event-ahead",
            Self::CacheWarm => "cache-warm",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_a_measurement_valid_is_written_as_a_note_and_older_words_are_read() {
        let read = |weight: &str| -> Reason {
            let reason =
                serde_json::json!({"code": "simulated", "weight": weight, "measured": "", "advice": ""});
            serde_json::from_value(reason).unwrap()
        };
        assert_eq!(read("valid").weight, Verdict::Valid);
        assert_eq!(serde_json::to_value(read("valid")).unwrap()["weight"], "note");
        assert_eq!(read("note"), read("valid"));
        assert_eq!(
            serde_json::to_value(read("invalid")).unwrap()["weight"],
            "invalid"
        );
    }

    #[test]
    fn a_verdict_is_never_better_than_its_reasons() {
        let read = |verdict: &str, weight: &str, only: &[&str]| -> Verdict {
            let reason = serde_json::json!({
                "code": "errors", "weight": weight, "only": only, "measured": "", "advice": "",
            });
            let validity = serde_json::json!({"verdict": verdict, "reasons": [reason]});
            serde_json::from_value::<Validity>(validity).unwrap().verdict
        };
        assert_eq!(read("valid", "invalid", &[]), Verdict::Invalid);
        assert_eq!(read("valid", "suspect", &[]), Verdict::Suspect);
        assert_eq!(read("valid", "suspect", &["itl"]), Verdict::Valid);
        assert_eq!(read("invalid", "note", &[]), Verdict::Invalid);
    }
}
