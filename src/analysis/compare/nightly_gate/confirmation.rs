//! Decides suspected losses by fresh starts.

use std::collections::BTreeMap;

use super::findings::new_finding;
use super::screen_result::{NightVerdicts, ScreenResult, SuspectedLoss};
use crate::analysis::compare::confirmation_budget::Allotment;
use crate::analysis::compare::decision::{Answer, MetricQuestion, NoVerdict};
use crate::analysis::compare::gate_policy::{self, ConfirmationOutcome, Policy};
use crate::analysis::compare::pairwise::row::Row;
use crate::base::ids::CellKey;
use crate::results::record::nightly::{FindingKind, JudgedCounts};

/// The fresh starts of a suspected loss.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FreshStarts {
    /// Baseline and candidate alternated, perhaps on other hosts than those of the night, which the text names.
    Alternating(MetricQuestion, Option<String>),
    /// Only the candidate could be started. Holds its fresh starts, and the reason.
    CandidateOnly(MetricQuestion, String),
    NotStarted,
}

/// Decides the suspected losses by fresh starts and counts the judged metrics. `fresh` and `allotments` say what
/// was started.
pub(crate) fn decide_suspects(
    screen_result: &ScreenResult,
    fresh: &[FreshStarts],
    policy: &Policy,
    allotments: &BTreeMap<CellKey, Allotment>,
) -> NightVerdicts {
    let questions: Vec<MetricQuestion> = screen_result
        .suspects
        .iter()
        .zip(fresh)
        .map(|(suspect, fresh)| match fresh {
            FreshStarts::Alternating(question, _) => question.clone(),
            FreshStarts::CandidateOnly(question, _) => suspect.candidate_question(question),
            FreshStarts::NotStarted => MetricQuestion {
                no_verdict: Some(NoVerdict::Missing(
                    "no engine was started again to confirm the suspected loss".to_owned(),
                )),
                ..suspect.question.clone()
            },
        })
        .collect();
    let answers = gate_policy::confirm(&questions, screen_result.family, policy);
    let mut judged = JudgedCounts {
        metrics: screen_result.metrics,
        judged: screen_result.judged_metrics,
        undecided: 0,
        unclear: screen_result.unclear.metrics,
        visible_loss_share: screen_result.unclear.smallest_detectable_loss,
    };
    let mut rows = screen_result.rows.clone();
    let answered = screen_result
        .suspects
        .iter()
        .zip(fresh)
        .zip(questions.iter().zip(answers));
    let decided = answered.map(|((suspect, fresh), (question, answer))| {
        let kind = match ConfirmationOutcome::from_answer(&answer) {
            ConfirmationOutcome::Worse => FindingKind::Worse,
            ConfirmationOutcome::Refuted => FindingKind::Unconfirmed,
            ConfirmationOutcome::Undecided => FindingKind::Undecided,
        };
        match kind {
            FindingKind::Undecided => judged.undecided += 1,
            _ => judged.judged += 1,
        }
        let text = suspect_in_words(suspect, fresh, &answer, allotments.get(&suspect.cell));
        let of_suspect = |row: &&mut Row| row.cell == suspect.cell && row.metric == suspect.metric;
        if let Some(row) = rows.iter_mut().find(of_suspect) {
            row.samples = [question.baseline.clone(), question.candidate.clone()];
            row.noise = question.noise;
            row.answer = answer;
        }
        new_finding(kind, Some(&suspect.cell), Some(suspect.metric), text)
    });
    let mut findings = screen_result.findings.clone();
    findings.extend(decided);
    NightVerdicts {
        findings,
        judged,
        rows,
    }
}

fn suspect_in_words(
    suspect: &SuspectedLoss,
    fresh: &FreshStarts,
    answer: &Answer,
    allotment: Option<&Allotment>,
) -> String {
    let label = suspect.metric.label();
    let short = allotment.and_then(|allotment| allotment.shortfall_reason());
    let short = short.map_or(String::new(), |why| format!(" ({why})"));
    if *fresh == FreshStarts::NotStarted {
        return format!(
            "{label}: {}; the loss is neither confirmed nor refuted, because the {} fresh starts that this needs were not made{short}",
            suspect.reasons, suspect.starts
        );
    }
    let how = match fresh {
        FreshStarts::CandidateOnly(_, why) => format!(" (only the candidate was started, because {why})"),
        FreshStarts::Alternating(_, Some(elsewhere)) => format!(" ({elsewhere})"),
        FreshStarts::Alternating(_, None) | FreshStarts::NotStarted => String::new(),
    };
    let values = match answer.estimate {
        None => format!("{label}:"),
        Some(estimate) => format!(
            "{label} {} by {} fresh starts{how}:",
            gate_policy::percent(estimate.log_change),
            answer.starts[1]
        ),
    };
    let undecided = match ConfirmationOutcome::from_answer(answer) {
        ConfirmationOutcome::Undecided => format!("; neither confirmed nor refuted{short}"),
        _ => String::new(),
    };
    format!(
        "{values} {}{undecided}; the loss was suspected because of {}{}",
        answer.reason(),
        suspect.reasons,
        suspect.remarks
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::compare::decision::{Design, KnownNoise, Sample};

    const GRANTED: Allotment = Allotment {
        wanted: 3,
        starts: 0,
        is_limited_by_time: true,
    };

    /// Returns the finding about a suspected loss with these fresh starts.
    fn decide_one(fresh: FreshStarts) -> (FindingKind, String, JudgedCounts) {
        let screen_result = ScreenResult {
            family: 1,
            metrics: 1,
            suspects: vec![SuspectedLoss {
                noise: Some(KnownNoise::from_sigma(0.005, 9.0)),
                ..SuspectedLoss::for_tests("a", 3, 0.06)
            }],
            ..ScreenResult::default()
        };
        let allotments = [(CellKey::new("a"), GRANTED)].into();
        let mut decided = decide_suspects(&screen_result, &[fresh], &Policy::with_bound(0.02), &allotments);
        let finding = decided.findings.remove(0);
        (finding.kind, finding.text, decided.judged)
    }

    fn question(baseline: [f64; 3], candidate: [f64; 3]) -> MetricQuestion {
        let sample = |logs: [f64; 3]| Sample {
            logs: logs.to_vec(),
            ..Sample::default()
        };
        MetricQuestion {
            baseline: sample(baseline),
            candidate: sample(candidate),
            design: Design::Rounds,
            noise: Some(KnownNoise::from_sigma(0.005, 9.0)),
            ..SuspectedLoss::for_tests("a", 3, 0.06).question
        }
    }

    #[test]
    fn a_suspicion_without_fresh_starts_is_neither_confirmed_nor_refuted() {
        let (kind, text, judged) = decide_one(FreshStarts::NotStarted);
        assert_eq!(kind, FindingKind::Undecided);
        assert_eq!(
            text,
            "output throughput: -6.0 % against the baseline; the loss is neither confirmed nor refuted, because the 3 fresh starts that this needs were not made \
             (`--budget` does not allow more fresh starts)"
        );
        assert_eq!((judged.judged, judged.undecided), (0, 1));
    }

    #[test]
    fn only_a_loss_against_the_baseline_of_the_same_night_is_confirmed() {
        let low = [-0.06, -0.061, -0.059];
        let (kind, text, judged) = decide_one(FreshStarts::Alternating(
            question([0.0, 0.001, -0.001], low),
            Some("the fresh starts were measured on n2, and the nightly run on n1".to_owned()),
        ));
        assert_eq!(kind, FindingKind::Worse, "{text}");
        assert!(
            text.contains("fresh starts (the fresh starts were measured on n2, and the nightly run on n1):"),
            "{text}"
        );
        assert_eq!((judged.judged, judged.undecided), (1, 0));
        let (kind, text, _) = decide_one(FreshStarts::Alternating(
            question([-0.06, -0.06, -0.06], low),
            None,
        ));
        assert_eq!(kind, FindingKind::Unconfirmed, "{text}");
        // The baseline of another night, without history of nights.
        let (kind, text, _) = decide_one(FreshStarts::CandidateOnly(
            question([0.0, 0.001, -0.001], low),
            "it is gone".to_owned(),
        ));
        assert_eq!(kind, FindingKind::Undecided, "{text}");
        assert!(
            text.contains("because it is gone") && text.contains("five earlier nightly runs"),
            "{text}"
        );
    }
}
