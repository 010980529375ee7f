//! Answers of a candidate that are wrong by themselves.

use crate::analysis::graded::sides::{GradedCell, SidePair};
use crate::base::ids::CellKey;
use crate::results::record::validity::{Reason, ReasonCode, Verdict};

/// Reasons for which the answers of a cell are wrong by themselves, without a reference.
const WRONG_ANSWERS: [ReasonCode; 3] = [
    ReasonCode::AnswersWrongUnderLoad,
    ReasonCode::AnswersBelowMinimum,
    ReasonCode::AnswersDegenerate,
];

/// Returns why answers of candidates are wrong by themselves where those of their baselines are not, by cell. A baseline whose
/// answers are unknown has no such reasons.
pub(super) fn wrong_answers(pairs: &[SidePair<'_>]) -> Vec<(CellKey, String)> {
    let mut wrong = Vec::new();
    for pair in pairs {
        let known = pair.baseline.iter().flat_map(reasons);
        let known: Vec<ReasonCode> = known.map(|reason| reason.code).collect();
        let of_candidate = reasons(&pair.candidate);
        let new = of_candidate
            .into_iter()
            .find(|reason| !known.contains(&reason.code));
        wrong.extend(new.map(|reason| {
            let text = format!("{}: {}", reason.code.name(), reason.measured);
            (pair.candidate.key().clone(), text)
        }));
    }
    wrong
}

fn reasons<'a>(cell: &GradedCell<'a>) -> Vec<&'a Reason> {
    let validities = cell
        .measurements()
        .into_iter()
        .filter_map(|summary| summary.validity.as_ref());
    let reasons = validities.flat_map(|validity| &validity.reasons);
    reasons
        .filter(|reason| reason.weight == Verdict::Invalid && WRONG_ANSWERS.contains(&reason.code))
        .collect()
}
