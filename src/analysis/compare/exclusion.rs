//! Which measurements a comparison excludes or marks as suspect.

use crate::results::record::cell::{MeasurementStatus, MeasurementSummary};
use crate::results::record::cell_stats::{ExcludedMeasurement, ExclusionCause, SuspectMeasurement};
use crate::results::record::validity::{Reason, Verdict};

/// Says why a measurement is excluded. `None` if it is not.
pub(super) fn exclusion(summary: &MeasurementSummary) -> Option<ExcludedMeasurement> {
    let because = |cause, reason| {
        Some(ExcludedMeasurement {
            start: summary.start,
            repeat: summary.repeat,
            cause,
            reason,
        })
    };
    match &summary.status {
        MeasurementStatus::Done => {}
        MeasurementStatus::Failed { phase, reason, .. } => {
            return because(
                ExclusionCause::Failed,
                format!("failed in {}: {reason}", phase.name()),
            );
        }
        MeasurementStatus::Interrupted => {
            return because(ExclusionCause::NotMeasured, "the run was interrupted".to_owned());
        }
        MeasurementStatus::Skipped { .. } => {
            return because(ExclusionCause::Failed, summary.status.name().to_owned());
        }
    }
    let validity = summary.validity.as_ref()?;
    if validity.verdict != Verdict::Invalid {
        return None;
    }
    let reasons = validity
        .reasons
        .iter()
        .filter(|reason| reason.weight == Verdict::Invalid);
    let reasons_in_words: Vec<String> = reasons.map(reason_in_words).collect();
    because(ExclusionCause::Invalid, reasons_in_words.join(", "))
}

pub(super) fn is_counted(summary: &MeasurementSummary) -> bool {
    exclusion(summary).is_none()
}

/// Returns the reasons why a valid measurement is suspect, with the metrics that each concerns.
pub(super) fn suspect_reasons(summary: &MeasurementSummary) -> impl Iterator<Item = SuspectMeasurement> {
    let reasons = summary.validity.iter().flat_map(|validity| &validity.reasons);
    reasons
        .filter(|reason| reason.weight != Verdict::Valid)
        .map(|reason| SuspectMeasurement {
            start: summary.start,
            repeat: summary.repeat,
            only: reason.only.clone(),
            reason: reason_in_words(reason),
        })
}

/// Formats a reason with its measured value and its bound.
fn reason_in_words(reason: &Reason) -> String {
    match &reason.bound {
        Some(bound) => format!("{} ({}; bound: {bound})", reason.code.name(), reason.measured),
        None => format!("{} ({})", reason.code.name(), reason.measured),
    }
}
