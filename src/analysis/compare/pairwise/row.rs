//! One gating metric of one pair of cells.

use super::suspect_starts::SuspectStarts;
use crate::analysis::compare::decision::{Answer, Estimate, KnownNoise, Sample};
use crate::analysis::compare::power::VarianceComponents;
use crate::analysis::compare::verdict::Verdict;
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::results::record::cell_stats::ExclusionCause;

/// One gating metric of one pair.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) cell: CellKey,
    pub(crate) metric: Metric,
    /// Starts of the baseline and of the candidate.
    pub(crate) samples: [Sample; 2],
    /// Whether the metric is zero on every start of that side, such as a goodput that no request met.
    pub(crate) is_zero: [bool; 2],
    /// For a percentile: its 95 % confidence interval from the requests of single starts, for baseline and
    /// candidate. Each bound is the median over the starts.
    pub(crate) percentile_bounds: [Option<[f64; 2]>; 2],
    /// Variance of the candidate, of logarithms.
    pub(crate) variance_components: VarianceComponents,
    /// Noise of this metric on this host, if it was measured.
    pub(crate) noise: Option<KnownNoise>,
    pub(crate) answer: Answer,
    /// Why a side that was measured has no usable value.
    pub(crate) refusal_cause: Option<ExclusionCause>,
    /// Measurements of both sides that are excluded.
    pub(crate) excluded_measurements: Vec<String>,
    /// Measurements of both sides that are included but suspect in this metric.
    pub(crate) suspect_starts: Vec<SuspectStarts>,
    /// Whether baseline and candidate are attached servers. The verdict then applies to these servers and to
    /// no other start.
    pub(crate) are_attached: [bool; 2],
}

impl Row {
    pub(crate) fn reason(&self) -> String {
        let change = self
            .change_from_zero()
            .map(|change| format!("the change {change}"));
        let reason = self.answer.reason_for_change(change.as_deref());
        let of_whom = match self.are_attached {
            _ if self.verdict().is_none() => return reason,
            [false, false] => return reason,
            [true, true] => "these two running servers",
            [true, false] => "the running server of the baseline",
            [false, true] => "the running server of the candidate",
        };
        format!("{reason}; this verdict applies only to {of_whom} and may differ after a restart")
    }

    /// Returns the text for a change of a metric that is zero on one side. The estimate would only show the
    /// value of half a request.
    pub(crate) const fn change_from_zero(&self) -> Option<&'static str> {
        match self.is_zero {
            [false, true] => Some("to zero"),
            [true, false] => Some("from zero"),
            [false, false] | [true, true] => None,
        }
    }

    /// Returns the estimate, unless both sides are zero.
    pub(crate) fn estimate(&self) -> Option<Estimate> {
        self.answer.estimate.filter(|_| self.is_zero != [true, true])
    }

    /// Returns the value of the baseline (0) or of the candidate (1).
    pub(crate) fn value(&self, side: usize) -> Option<f64> {
        self.samples[side]
            .value()
            .map(|value| if self.is_zero[side] { 0.0 } else { value })
    }

    pub(crate) const fn verdict(&self) -> Option<Verdict> {
        self.answer.verdict()
    }

    pub(crate) fn verdict_word(&self) -> &'static str {
        self.refusal_cause
            .map_or_else(|| self.answer.verdict_word(), ExclusionCause::name)
    }
}
