//! What the measurements of a confirmation leave in doubt, by side.

use std::collections::BTreeMap;

use crate::base::text::pluralize;
use crate::results::record::cell::{FailureClass, MeasurementSummary, ReplacedResult};
use crate::results::record::validity::{ReasonCode, Verdict};

/// Largest number of reasons that are named.
const MAX_REASONS: usize = 3;

/// The findings about the measurements of one side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SideDoubts {
    /// Number of finished measurements.
    measured: usize,
    /// Failed requests, and all.
    requests: (u64, u64),
    /// Measurements by reason, the worst first.
    reasons: BTreeMap<(std::cmp::Reverse<Verdict>, ReasonCode), usize>,
    /// Starts that failed, were invalid because of the configuration, missed the SLO or answered otherwise, also if they were measured again.
    faults: usize,
    /// How they failed, each reason once.
    fault_reasons: Vec<String>,
}

impl SideDoubts {
    /// `why_faulty` gives a further reason why a measurement says that its configuration fails.
    pub(crate) fn new<'s>(
        summaries: impl Iterator<Item = &'s MeasurementSummary>,
        why_faulty: impl Fn(&MeasurementSummary) -> Option<String>,
    ) -> Self {
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
            if let Some(fault) = fault(summary).or_else(|| why_faulty(summary)) {
                doubts.faults += 1;
                if !doubts.fault_reasons.contains(&fault) {
                    doubts.fault_reasons.push(fault);
                }
            }
        }
        doubts
    }

    /// Number of starts that failed, missed the SLO or measured something else.
    pub(crate) const fn faults(&self) -> usize {
        self.faults
    }

    /// The starts that failed, missed the SLO or measured something else, in words; `None` if there are none.
    pub(crate) fn faults_in_words(&self) -> Option<String> {
        if self.fault_reasons.is_empty() {
            return None;
        }
        let named = self.fault_reasons.len().min(MAX_REASONS);
        let more = match self.fault_reasons.len() - named {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let reasons = self.fault_reasons[..named].join("; ");
        let starts = pluralize(self.measured, "fresh start", "fresh starts");
        Some(format!(
            "{} of {starts} failed or gave no usable result ({reasons}{more})",
            self.faults
        ))
    }

    /// The findings in words; `None` if there are none.
    pub(crate) fn in_words(&self) -> Option<String> {
        let of_all = |count: &usize| format!("{count} of {}", pluralize(self.measured, "start", "starts"));
        let mut parts: Vec<String> = self.faults_in_words().into_iter().collect();
        let findings = self.reasons.iter();
        parts.extend(findings.map(|((weight, code), count)| {
            format!("{}: {} in {}", weight.0.name(), code.name(), of_all(count))
        }));
        let (failed, all) = self.requests;
        if failed > 0 {
            parts.push(format!("{failed} of {all} requests failed"));
        }
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// How a start failed or was invalid because of the configuration, also if it was measured again; `None` if it did not.
fn fault(summary: &MeasurementSummary) -> Option<String> {
    let is_own = |result: &&ReplacedResult| result.has_crashed || !is_disturbed(&result.reason);
    // A result that would replace this one keeps what counts against the engine.
    let results = summary.replaced_by_another();
    let own = results.iter().find(is_own).map(|result| result.reason.clone());
    let repeated = || {
        let mut retries = summary.retries.iter().filter(|retry| match retry.class {
            FailureClass::Validity => !is_disturbed(&retry.reason),
            class => class.is_of_engine(),
        });
        retries.next().map(|retry| retry.reason.clone())
    };
    own.or_else(repeated)
}

/// Whether everything that made a result invalid came from outside.
fn is_disturbed(invalid: &str) -> bool {
    let reasons = invalid.strip_prefix("invalid: ").unwrap_or(invalid);
    // A repeated measurement gives what was measured after its code.
    let codes = reasons.split([',', ';']).map(|reason| {
        let code = reason.split(':').next().unwrap_or_default();
        ReasonCode::from_name(code.trim())
    });
    let known: Vec<ReasonCode> = codes.flatten().collect();
    !known.is_empty() && known.into_iter().all(ReasonCode::is_disturbance)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::validity::new_reason;
    use crate::results::record::cell::{MeasurementStatus, Phase};
    use crate::results::record::post_mortem::Retry;
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
        let doubts = SideDoubts::new(starts.iter(), |_| None);
        assert_eq!(
            doubts.in_words().as_deref(),
            Some(
                "1 of 3 fresh starts failed or gave no usable result (invalid: answers-wrong-under-load); invalid: answers-wrong-under-load in 1 of 3 starts; suspect: host-busy in 1 of 3 starts; 3 of 150 requests failed"
            )
        );
        assert_eq!(
            SideDoubts::new([summary(Verdict::Valid, &[])].iter(), |_| None).in_words(),
            None
        );
    }

    #[test]
    fn a_start_that_failed_counts_also_after_it_was_measured_again_and_a_disturbed_one_does_not() {
        let mut crashed = summary(Verdict::Valid, &[]);
        crashed.status = MeasurementStatus::Failed {
            phase: Phase::Launch,
            class: FailureClass::Engine,
            reason: "it ended".to_owned(),
            tail: Vec::new(),
        };
        let again = |earlier: &MeasurementSummary| {
            let mut summary = summary(Verdict::Valid, &[]);
            summary.replaced = earlier.replaced_by_another();
            summary
        };
        let disturbed = summary(Verdict::Invalid, &[ReasonCode::ClientLate]);
        let errors = summary(Verdict::Invalid, &[ReasonCode::Errors]);
        let faults =
            |starts: &[MeasurementSummary]| SideDoubts::new(starts.iter(), |_| None).faults_in_words();
        assert_eq!(faults(&[disturbed.clone(), again(&disturbed)]), None);
        assert_eq!(
            faults(&[again(&errors), again(&crashed), summary(Verdict::Valid, &[])]).as_deref(),
            Some(
                "2 of 3 fresh starts failed or gave no usable result (invalid: errors; failed in launch: it ended)"
            )
        );
        let retried = |reason: &str| {
            let mut summary = summary(Verdict::Valid, &[]);
            summary.retries.push(Retry {
                phase: Phase::Measure,
                class: FailureClass::Validity,
                reason: reason.to_owned(),
                pause_s: 0.0,
            });
            summary
        };
        assert_eq!(faults(&[retried("invalid: client-late: 9 ms, too late")]), None);
        assert!(faults(&[retried("invalid: errors: 1 of 24 requests failed (4.2 %)")]).is_some());
        assert_eq!(
            faults(&[crashed]).as_deref(),
            Some("1 of 1 fresh start failed or gave no usable result (failed in launch: it ended)")
        );
    }
}
