//! A question to decide: the starts of two sides, and what is known about them.

use super::known_noise::KnownNoise;
use super::limits::{MIN_STARTS_NOISE_KNOWN, MIN_STARTS_NOISE_UNKNOWN};
use super::moderation::Variance;
use crate::analysis::compare::t_test;
use crate::analysis::metrics::Direction;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// One value per start, as a logarithm.
    pub(crate) logs: Vec<f64>,
    /// Name of the launch that was started, within its run. Values with the same name were measured on the
    /// same starts. All samples without a name are assumed to share starts.
    pub(crate) launch: Option<String>,
    /// Number of values, from the first on, that were measured before a stopping rule looked at them. The
    /// variance is estimated from these alone (Stein's two stages). `None` if there was no stopping rule.
    pub(crate) first_stage: Option<usize>,
    /// Largest relative error of the value in either direction: half a printed digit, or half a step of a
    /// search.
    pub(crate) resolution: f64,
    /// The metric is a percentile at a jump of the distribution of requests. Equal percentiles then do not
    /// mean that the sides are the same.
    pub(crate) is_at_jump: bool,
    /// For a count of requests, such as goodput: the variance, of logarithms, that half a request per start
    /// makes. `None` for metrics that are no counts. A count can collapse when no other metric does, so its
    /// variance says nothing about theirs.
    pub(crate) counting_variance: Option<f64>,
}

impl Sample {
    /// Builds a sample from the repeats of each start. `None` if a repeat is not above zero. A start without
    /// repeats is left out.
    pub(crate) fn from_starts(starts: &[Vec<f64>]) -> Option<Self> {
        let has_log = |value: &f64| value.is_finite() && *value > 0.0;
        if !starts.iter().flatten().all(has_log) {
            return None;
        }
        let measured = starts.iter().filter(|repeats| !repeats.is_empty());
        let logs = measured.map(|repeats| {
            let sum: f64 = repeats.iter().map(|value| value.ln()).sum();
            sum / repeats.len() as f64
        });
        Some(Self {
            logs: logs.collect(),
            ..Self::default()
        })
    }

    /// Returns the geometric mean of the starts. `None` if there are none.
    pub(crate) fn value(&self) -> Option<f64> {
        (!self.logs.is_empty()).then(|| t_test::mean(&self.logs).exp())
    }

    /// Returns the values from which the variance is estimated.
    pub(crate) fn first_stage_logs(&self) -> &[f64] {
        let stage = self.first_stage.unwrap_or(self.logs.len());
        &self.logs[..stage.min(self.logs.len())]
    }
}

/// How the starts of both sides were ordered in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Design {
    /// Each side was measured separately.
    #[default]
    Separate,
    /// The sides alternated within one run. Values at the same index belong to the same round and are
    /// compared in pairs.
    Rounds,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoVerdict {
    /// A side has no usable value.
    Missing(String),
    TooFewStarts(String),
    /// Something besides the engine differs.
    NotComparable(String),
}

impl NoVerdict {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Missing(_) => "missing",
            Self::TooFewStarts(_) => "too-few-starts",
            Self::NotComparable(_) => "not-comparable",
        }
    }

    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Missing(why) | Self::TooFewStarts(why) | Self::NotComparable(why) => why,
        }
    }
}

/// Whether the candidate is worse or better than the baseline in one gating metric of one pair of cells. The
/// floor and the confidence are in `DecisionOptions`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MetricQuestion {
    pub(crate) better: Direction,
    pub(crate) baseline: Sample,
    pub(crate) candidate: Sample,
    pub(crate) design: Design,
    pub(crate) noise: Option<KnownNoise>,
    /// Variance of the difference that the starts do not show, such as that between two nightly runs.
    pub(crate) night_variance: Option<Variance>,
    /// Reason not to judge the question, whatever the starts show.
    pub(crate) no_verdict: Option<NoVerdict>,
}

impl MetricQuestion {
    pub(crate) const fn is_count(&self) -> bool {
        self.baseline.counting_variance.is_some() || self.candidate.counting_variance.is_some()
    }

    pub(crate) fn is_uneven(&self) -> bool {
        self.baseline.logs.len() != self.candidate.logs.len()
    }

    pub(crate) fn design(&self) -> Design {
        let is_paired = self.baseline.logs.len() == self.candidate.logs.len() && self.baseline.logs.len() > 1;
        match self.design {
            Design::Rounds if is_paired => Design::Rounds,
            _ => Design::Separate,
        }
    }

    /// Returns the fewest starts per side that allow a verdict.
    pub(crate) fn min_starts(&self) -> usize {
        match self.noise {
            Some(noise) if noise.is_sufficient() => MIN_STARTS_NOISE_KNOWN,
            _ => MIN_STARTS_NOISE_UNKNOWN,
        }
    }
}
