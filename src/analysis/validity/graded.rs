//! Judges graded answers: a task below its smallest share, and answers that are wrong only under load.

use super::evidence::Evidence;
use super::reason::{new_reason, percent};
use crate::analysis::graded;
use crate::results::record::validity::{Reason, ReasonCode};

pub(super) fn judge(evidence: &Evidence<'_>, reasons: &mut Vec<Reason>) {
    let Some(answers) = &evidence.summary.graded else {
        return;
    };
    let below = answers.tasks.iter().filter_map(|score| {
        let least = score.min_correct.filter(|least| score.share() < *least)?;
        Some((
            format!("{} {} of {}", score.task, score.correct, score.items),
            format!("{} {}", score.task, percent(least)),
        ))
    });
    let (measured, bounds): (Vec<String>, Vec<String>) = below.unzip();
    if !measured.is_empty() {
        reasons.push(new_reason(
            ReasonCode::AnswersBelowMinimum,
            format!("correct answers: {}", measured.join(", ")),
            Some(bounds.join(", ")),
        ));
    }
    let level = graded::ALPHA / answers.tasks.len().max(1) as f64;
    let wrong: Vec<String> = answers
        .tasks
        .iter()
        .filter_map(|score| {
            let p = graded::load_effect_p(score).filter(|p| *p < level)?;
            Some(format!(
                "{}: {} of {} items were answered wrong under load, but right when sent alone; {} of {} control items were answered right under load, but wrong when sent alone (p = {p:.1e})",
                score.task,
                score.correct_alone,
                score.items,
                score.controls - score.controls_correct,
                score.controls
            ))
        })
        .collect();
    if !wrong.is_empty() {
        reasons.push(new_reason(
            ReasonCode::AnswersWrongUnderLoad,
            wrong.join("; "),
            Some(format!("p < {level:.1e}")),
        ));
    }
}
