//! Counts answers by what their check found.

use super::metric::Metric;
use super::metric_set::MetricSet;
use crate::results::record::request::{AnswerCheck, Request};

/// Adds the counts of checked answers, and the share of correct ones among those that are known to be correct or not. Loads
/// without checks have none of these metrics.
pub(super) fn add_answer_checks(metrics: &mut MetricSet, requests: &[Request]) {
    let [mut correct, mut incorrect, mut unchecked] = [0u32; 3];
    for check in requests
        .iter()
        .filter_map(|request| request.answer_check.as_ref())
    {
        *match check {
            AnswerCheck::Correct => &mut correct,
            AnswerCheck::Incorrect { .. } => &mut incorrect,
            AnswerCheck::Unchecked { .. } => &mut unchecked,
        } += 1;
    }
    let known = correct + incorrect;
    if known + unchecked == 0 {
        return;
    }
    metrics.insert(Metric::Correct, Some(correct.into()));
    metrics.insert(Metric::Incorrect, Some(incorrect.into()));
    metrics.insert(Metric::Unchecked, Some(unchecked.into()));
    let share = (known > 0).then(|| f64::from(correct) / f64::from(known));
    metrics.insert(Metric::CorrectShare, share);
}

/// Whether the check of an answer, if there is one, lets its request count as good.
pub(super) fn may_be_good(request: &Request) -> bool {
    request.answer_check.as_ref().is_none_or(AnswerCheck::is_correct)
}
