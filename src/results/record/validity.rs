//! Validity of a measurement, with reasons. Pure.

use serde::{Deserialize, Serialize};

pub use super::reason_code::ReasonCode;

/// How far a measurement or metric can be trusted, from best to worst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// There is no reason to doubt it.
    #[default]
    Valid,
    /// Its metrics are kept and marked: read the reasons before you use them.
    Suspect,
    /// Its metrics do not measure what was requested: they enter no ratio, comparison, baseline or alarm.
    Invalid,
}

impl Verdict {
    /// The name on disk.
    pub(crate) const fn name(self) -> &'static str {
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
    pub(crate) fn from_reasons(mut reasons: Vec<Reason>) -> Self {
        reasons.sort_by(|a, b| b.weight.cmp(&a.weight).then(a.code.cmp(&b.code)));
        let whole = reasons.iter().find(|reason| reason.only.is_empty());
        Self {
            verdict: whole.map_or(Verdict::Valid, |reason| reason.weight),
            reasons,
        }
    }

    /// The verdict on one metric family: that of the whole measurement, or a worse one that concerns only
    /// this family.
    pub(crate) fn verdict_for(&self, family: MetricFamily) -> Verdict {
        let reasons = self.reasons.iter().filter(|reason| reason.only.contains(&family));
        reasons
            .map(|reason| reason.weight)
            .fold(self.verdict, Verdict::max)
    }
}

/// A family of metrics; a reason may concern only some families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MetricFamily {
    /// Time to first token.
    Ttft,
    /// Time between tokens.
    Itl,
    /// Time per output token, and metrics derived from it.
    Tpot,
    /// Goodput and SLO attainment.
    Goodput,
    /// Energy, power and metrics derived from them.
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

/// One reason for the validity of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Reason {
    /// The stable name of the reason.
    pub code: ReasonCode,
    /// Effect on the measurement: `note`, `suspect` or `invalid`.
    #[serde(with = "weight")]
    #[cfg_attr(test, schemars(with = "weight::Weight"))]
    pub weight: Verdict,
    /// Metric families that the reason concerns; empty if it concerns the whole measurement.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only: Vec<MetricFamily>,
    /// The measured value, with its unit.
    pub measured: String,
    /// The threshold for the measured value; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<String>,
    /// What happened and how to fix it.
    pub advice: String,
}

/// How the weight of a reason is written.
mod weight {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Verdict;

    /// Effect of a reason on a measurement.
    #[derive(Clone, Copy, Serialize, Deserialize)]
    #[cfg_attr(test, derive(schemars::JsonSchema))]
    #[serde(rename_all = "kebab-case")]
    pub(super) enum Weight {
        /// A remark without effect. Older records call it `valid`.
        #[serde(alias = "valid")]
        Note,
        /// The metrics are kept and marked: read the reason before you use them.
        Suspect,
        /// The metrics do not measure what was requested.
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
