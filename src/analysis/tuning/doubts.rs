//! What the measurements of a confirmation leave in doubt, by side.

use std::collections::BTreeMap;

use crate::base::text::pluralize;
use crate::results::record::cell::MeasurementSummary;
use crate::results::record::validity::{ReasonCode, Verdict};

/// The findings about the measurements of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SideDoubts {
    /// Number of finished measurements.
    measured: usize,
    /// Failed requests, and all.
    requests: (u64, u64),
    /// Measurements by reason, the worst first.
    reasons: BTreeMap<(std::cmp::Reverse<Verdict>, ReasonCode), usize>,
    /// Measurements that are invalid because of the configuration.
    invalid: usize,
}

impl SideDoubts {
    pub(crate) fn new<'s>(summaries: impl Iterator<Item = &'s MeasurementSummary>) -> Self {
        let mut doubts = Self::default();
        for summary in summaries {
            doubts.measured += 1;
            doubts.requests.0 += summary
                .failures
                .values()
                .map(|count| u64::from(*count))
                .sum::<u64>();
            doubts.requests.1 += u64::from(summary.prompts.unwrap_or(0));
            let reasons = || summary.validity.iter().flat_map(|validity| &validity.reasons);
            let mut codes: Vec<_> = reasons()
                .filter(|reason| reason.weight != Verdict::Valid)
                .map(|reason| (std::cmp::Reverse(reason.weight), reason.code))
                .collect();
            codes.sort_unstable();
            codes.dedup();
            for code in codes {
                *doubts.reasons.entry(code).or_default() += 1;
            }
            let is_own =
                |(weight, code): (Verdict, ReasonCode)| weight == Verdict::Invalid && !code.is_disturbance();
            doubts.invalid += usize::from(reasons().any(|reason| is_own((reason.weight, reason.code))));
        }
        doubts
    }

    /// Whether no measurement is valid, because of what the configuration does.
    pub(crate) fn is_invalid(&self) -> bool {
        self.measured > 0 && self.invalid == self.measured
    }

    /// The findings in words; `None` if there are none.
    pub(crate) fn in_words(&self) -> Option<String> {
        let of_all = |count: &usize| format!("{count} of {}", pluralize(self.measured, "start", "starts"));
        let mut parts: Vec<String> = self
            .reasons
            .iter()
            .map(|((weight, code), count)| {
                format!("{}: {} in {}", weight.0.name(), code.name(), of_all(count))
            })
            .collect();
        let (failed, all) = self.requests;
        if failed > 0 {
            parts.push(format!("{failed} of {all} requests failed"));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::validity::new_reason;
    use crate::results::record::request::RequestFailureClass;
    use crate::results::record::validity::{Reason, Validity};
    use crate::results::store::testing;

    fn summary(weight: Verdict, codes: &[ReasonCode]) -> MeasurementSummary {
        let mut summary = testing::summary(&testing::plan().cells[0]);
        let reason = |code: &ReasonCode| Reason {
            weight,
            ..new_reason(*code, String::new(), None)
        };
        summary.failures = BTreeMap::new();
        summary.prompts = Some(50);
        summary.validity = Some(Validity::from_reasons(codes.iter().map(reason).collect()));
        summary
    }

    #[test]
    fn findings_are_counted_by_start_and_the_worst_is_first() {
        let mut failing = summary(Verdict::Valid, &[]);
        failing.failures = [(RequestFailureClass::Connect, 3)].into_iter().collect();
        let starts = [
            summary(Verdict::Suspect, &[ReasonCode::HostBusy, ReasonCode::HostBusy]),
            summary(Verdict::Invalid, &[ReasonCode::AnswersWrongUnderLoad]),
            failing,
        ];
        let doubts = SideDoubts::new(starts.iter());
        assert_eq!(
            doubts.in_words().as_deref(),
            Some(
                "invalid: answers-wrong-under-load in 1 of 3 starts; suspect: host-busy in 1 of 3 starts; 3 of 150 requests failed"
            )
        );
        assert!(!doubts.is_invalid());
        assert_eq!(
            SideDoubts::new([summary(Verdict::Valid, &[])].iter()).in_words(),
            None
        );
    }

    #[test]
    fn a_side_is_invalid_if_all_its_starts_are_by_their_own_fault() {
        let is_invalid = |codes: [ReasonCode; 2]| {
            let starts = codes.map(|code| summary(Verdict::Invalid, &[code]));
            SideDoubts::new(starts.iter()).is_invalid()
        };
        assert!(is_invalid([ReasonCode::AnswersWrongUnderLoad; 2]));
        assert!(!is_invalid([
            ReasonCode::AnswersWrongUnderLoad,
            ReasonCode::HostBusy
        ]));
        assert!(!SideDoubts::new([].iter()).is_invalid());
    }
}
