//! Texts about a measurement that are shown beside its metrics.

use crate::results::record::cell::{MeasurementStatus, MeasurementSummary};
use crate::results::record::validity::Verdict;

/// Number of the engine's last log lines that are reported with a failure.
const REPORTED_LINES: usize = 10;

/// The last non-empty lines of an engine's log.
pub(super) fn last_lines(tail: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = tail
        .iter()
        .rev()
        .filter(|line| !line.trim().is_empty())
        .take(REPORTED_LINES)
        .cloned()
        .collect();
    lines.reverse();
    lines
}

/// Why a measurement is invalid; `None` if it is not.
pub(super) fn invalid_reason(summary: &MeasurementSummary) -> Option<String> {
    let validity = summary.validity.as_ref()?;
    let reasons: Vec<String> = validity
        .reasons
        .iter()
        .filter(|reason| reason.weight == Verdict::Invalid)
        .map(|reason| format!("{}: {}", reason.code.name(), reason.measured))
        .collect();
    (!reasons.is_empty()).then(|| format!("invalid: {}", reasons.join("; ")))
}

/// Why a measurement is not `done` and valid, otherwise its first warning.
pub(super) fn failure_reason(summary: &MeasurementSummary) -> Option<String> {
    match &summary.status {
        MeasurementStatus::Done => invalid_reason(summary).or_else(|| summary.warnings.first().cloned()),
        MeasurementStatus::Failed { phase, reason, .. } => Some(format!("{}: {reason}", phase.name())),
        MeasurementStatus::Skipped { reason } => Some(reason.clone()),
        MeasurementStatus::Interrupted => Some("the run was interrupted".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_that_say_something_are_told() {
        let tail: Vec<String> = (0..30)
            .map(|line| {
                if line % 2 == 0 {
                    String::new()
                } else {
                    line.to_string()
                }
            })
            .collect();
        let actual = last_lines(&tail);
        assert_eq!(
            (actual.len(), actual[0].as_str(), actual[9].as_str()),
            (10, "11", "29")
        );
    }
}
