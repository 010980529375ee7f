//! The validity of an imported result.

use super::figures::failed_requests;
use crate::analysis::metrics::Metric;
use crate::analysis::validity::code_entry;
use crate::config::scenario::LoadLimits;
use crate::import::result_block::{ResultBlock, Warning, WarningSubject};
use crate::results::record::validity::{Reason, ReasonCode, Validity, Verdict};

/// The validity of imported figures: a note that they are imported, suspect for contradictions, and the
/// reasons that `matrix` found when it measured.
pub(super) fn validity(result: &ResultBlock, file: &str, warnings: &[&Warning]) -> Validity {
    let warnings_about = |about: WarningSubject| {
        let texts: Vec<String> = warnings
            .iter()
            .filter(|warning| warning.subject == about)
            .map(|warning| warning.with_location(file))
            .collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    };
    let reason = |code, weight, measured: String, advice: &str| Reason {
        code,
        weight,
        only: code_entry(code).families.to_vec(),
        measured,
        bound: None,
        advice: advice.to_owned(),
    };
    let mut reasons = result.reasons.clone();
    let share = failed_requests(result).map(|failed| {
        let completed = result.figure(Metric::Completed).unwrap_or(0.0);
        (failed, failed / (completed + failed))
    });
    if let Some((failed, share)) = share.filter(|(_, share)| *share > LoadLimits::default().error_share) {
        let measured = format!("{failed} requests failed, {:.1} % of all", share * 100.0);
        reasons.push(reason(
            ReasonCode::Errors,
            Verdict::Invalid,
            measured,
            code_entry(ReasonCode::Errors).fix,
        ));
    }
    if let Some(what) = warnings_about(WarningSubject::Figures) {
        let advice = "the published figures contradict each other; ask the authors, or measure again";
        reasons.push(reason(ReasonCode::Imported, Verdict::Suspect, what, advice));
    }
    if let Some(what) = warnings_about(WarningSubject::Identity) {
        let advice = "the file gives contradictory values for the model, the version or the workload; the values \
            in the client's arguments were used";
        reasons.push(reason(ReasonCode::Imported, Verdict::Suspect, what, advice));
    }
    if let Some(what) = warnings_about(WarningSubject::Declared) {
        let advice = "a declared value contradicts the file, so the value in the file was used; correct the \
            declared value, or remove it";
        reasons.push(reason(ReasonCode::Imported, Verdict::Suspect, what, advice));
    }
    if let Some(what) = warnings_about(WarningSubject::Chunks) {
        let advice = "compare throughput, TTFT and E2E; do not compare ITL with that of an engine that sends each \
             token separately";
        reasons.push(reason(ReasonCode::ChunkedTokens, Verdict::Suspect, what, advice));
    }
    reasons.push(reason(
        ReasonCode::Imported,
        Verdict::Valid,
        "the result was imported from the output of another tool".to_owned(),
        "these facts are unknown: the measurement error of the other tool's client, the machine, and whether \
         caches were empty",
    ));
    Validity::from_reasons(reasons)
}
