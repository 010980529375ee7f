//! The decision function: turns the starts of two sides into better, same, worse or unclear, for a whole
//! family of metrics at once.
//!
//! Every claim that one side is better comes from [`decide`]: `compare`, nightly runs, `bisect`, `[best]`,
//! wins and headlines. The function is pure. A [`MetricQuestion`] holds one gating metric of one pair of cells. An
//! [`Answer`] holds the verdict (or the reason that there is none) and all values that a table shows with it.
//!
//! # The rules
//!
//! - The unit is the start of an engine. A [`Sample`] has one value per start, the mean of the logarithms of
//!   its repeats ([`Sample::from_starts`]). The estimate is the difference of the means of these values. So
//!   value, change and interval never contradict each other.
//! - *worse*, *better*: the p-value, adjusted by Holm over all tested questions, is at most [`ALPHA`], and
//!   the estimate is beyond the floor ([`DecisionOptions::bound`]).
//! - *same*: the 90 % interval is within the floor. These are two one-sided tests at 5 % each (D. J.
//!   Schuirmann, "A comparison of the two one-sided tests procedure and the power approach", 1987).
//! - *unclear*: neither. [`Answer::smallest_detectable_loss`] is the smallest loss that these starts can show,
//!   [`Answer::starts_to_decide`] the number of starts that would decide.
//! - *not judged*: a side lacks the metric, has too few starts, or the two sides are not comparable
//!   ([`NoVerdict`]). That is no verdict.
//!
//! Measured noise is used as an estimate of the variance. It never widens the floor. The variance of a
//! question combines that of its own starts, stored noise, and the variances of the other questions of its
//! kind (`moderation`). It is never below that of its own starts, and never higher than its own starts allow.
//! So noise can turn a verdict into *unclear*, but never a loss into *same*.
//!
//! # How to ask
//!
//! Ask all questions of a report in one call, because the correction for multiple tests needs the whole
//! family. If only some questions of a larger family are asked (confirmations of suspected losses),
//! [`DecisionOptions::family`] gives its size. Samples of the same starts have the same [`Sample::launch`]. One start
//! on each side is *not judged*, but still has an [`Answer::estimate`].

mod answer;
mod groups;
mod known_noise;
mod limits;
mod moderation;
mod noise;
mod question;
#[cfg(test)]
mod rates;
#[cfg(test)]
pub(super) mod synthetic;
#[cfg(test)]
mod tests;
mod variance;

pub(crate) use answer::{Answer, Estimate, Outcome};
pub(crate) use known_noise::KnownNoise;
pub(crate) use limits::{
    ALPHA, CONFIDENCE, DEFAULT_BOUND, EQUIVALENCE_CONFIDENCE, MIN_STARTS_NOISE_KNOWN,
    MIN_STARTS_NOISE_UNKNOWN, POWER,
};
pub(crate) use moderation::Variance;
pub(crate) use question::{Design, MetricQuestion, NoVerdict, Sample};

use std::collections::BTreeMap;

use answer::Precision;
use limits::MIN_P;
use moderation::CellVariance;
use variance::{add_night_variance, first_stage_variance_with_counting, moderated_variance, pool};

use super::verdict::Verdict;
use super::{multiple_testing, t_test};
use crate::analysis::metrics::Direction;

/// Settings of a whole family of questions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DecisionOptions {
    /// Floor: the smallest change that matters, as a share.
    pub(crate) bound: f64,
    /// Size of the family if these questions are only some of it, otherwise 0.
    pub(crate) family: usize,
}

/// Answers all questions of a family, in their order.
pub(crate) fn decide(questions: &[MetricQuestion], options: &DecisionOptions) -> Vec<Answer> {
    let mut answers = describe(questions, options);
    let tested: Vec<usize> = (0..answers.len())
        .filter(|at| answers[*at].no_verdict_reason(&questions[*at]).is_none())
        .collect();
    let p: Vec<f64> = tested
        .iter()
        .filter_map(|at| Some(answers[*at].estimate?.precision?.p))
        .collect();
    let family = options.family.max(tested.len());
    let adjusted = multiple_testing::holm_adjusted(&p, family);
    for (at, answer) in answers.iter_mut().enumerate() {
        answer.family = family;
        let gap = answer.no_verdict_reason(&questions[at]);
        answer.outcome = match (gap, &mut answer.estimate) {
            (Some(gap), _) => Outcome::NotJudged(gap),
            (None, Some(estimate)) => {
                let rank = tested.binary_search(&at).ok();
                let adjusted = rank.and_then(|rank| adjusted.get(rank).copied());
                if let Some(precision) = &mut estimate.precision {
                    precision.adjusted_p = adjusted;
                }
                Outcome::Judged(verdict(
                    estimate,
                    options.bound,
                    questions[at].better,
                    answer.is_at_jump,
                ))
            }
            (None, None) => Outcome::NotJudged(NoVerdict::Missing("there are no starts".to_owned())),
        };
    }
    answers
}

/// Answers questions of several pairs of sides, in their order. `pairs` names the pair of each question. The
/// correction for multiple tests covers all questions. Variances are shared only among the questions of a
/// pair, so each pair has the same estimate as alone. But *better* and *worse* must also hold with variances
/// that all questions share, because the few starts of one pair may be alike by chance.
pub(crate) fn decide_by_pairs<P: Ord>(
    questions: &[MetricQuestion],
    pairs: &[P],
    options: &DecisionOptions,
) -> Vec<Answer> {
    let among_all = decide(questions, options);
    let family = among_all.first().map_or(0, |answer| answer.family);
    let mut places: BTreeMap<&P, Vec<usize>> = BTreeMap::new();
    for (at, pair) in pairs.iter().enumerate() {
        places.entry(pair).or_default().push(at);
    }
    let mut indexed_answers: Vec<(usize, Answer)> = Vec::new();
    for places in places.into_values() {
        let own: Vec<MetricQuestion> = places.iter().map(|at| questions[*at].clone()).collect();
        let answers = decide(&own, &DecisionOptions { family, ..*options });
        indexed_answers.extend(places.into_iter().zip(answers));
    }
    indexed_answers.sort_by_key(|(at, _)| *at);
    let of_pairs = indexed_answers.into_iter().map(|(_, answer)| answer);
    of_pairs
        .zip(among_all)
        .map(|(own, across_pairs)| own.unclear_unless_confirmed(&across_pairs))
        .collect()
}

/// Computes the estimates, without verdicts.
fn describe(questions: &[MetricQuestion], options: &DecisionOptions) -> Vec<Answer> {
    let (counts, others): (Vec<usize>, Vec<usize>) =
        (0..questions.len()).partition(|at| questions[*at].is_count());
    let mut described: Vec<(usize, Answer)> = Vec::new();
    for places in [counts, others] {
        let alike: Vec<MetricQuestion> = places.iter().map(|at| questions[*at].clone()).collect();
        described.extend(
            places
                .into_iter()
                .zip(describe_with_shared_variance(&alike, options)),
        );
    }
    described.sort_by_key(|(at, _)| *at);
    described.into_iter().map(|(_, answer)| answer).collect()
}

/// Computes the estimates of questions whose variances inform each other.
fn describe_with_shared_variance(questions: &[MetricQuestion], options: &DecisionOptions) -> Vec<Answer> {
    let groups = groups::group_by_launch(questions);
    let own: Vec<Option<Variance>> = questions.iter().map(first_stage_variance_with_counting).collect();
    let noise = noise::noise_variances(questions, &own, &groups);
    let spreads = (0..questions.len()).filter_map(|at| {
        Some(CellVariance {
            variance: pool(own[at], noise[at])?,
            group: groups[at],
        })
    });
    let mut others = moderation::prior_variances(&spreads.collect::<Vec<_>>()).into_iter();
    let described = questions.iter().enumerate().map(|(at, question)| {
        let variance = pool(own[at], noise[at]).and_then(|known| {
            Some(
                moderated_variance(own[at], noise[at], others.next()?, question.is_uneven()).unwrap_or(known),
            )
        });
        Answer {
            outcome: Outcome::NotJudged(NoVerdict::Missing(String::new())),
            starts: [question.baseline.logs.len(), question.candidate.logs.len()],
            estimate: estimate(question, variance, own[at]),
            family: 0,
            bound: options.bound,
            better: question.better,
            design: question.design(),
            night_variance: question.night_variance,
            is_at_jump: question.baseline.is_at_jump || question.candidate.is_at_jump,
        }
    });
    described.collect()
}

fn estimate(
    question: &MetricQuestion,
    variance: Option<Variance>,
    own: Option<Variance>,
) -> Option<Estimate> {
    let (first, second) = (&question.baseline.logs, &question.candidate.logs);
    if first.is_empty() || second.is_empty() {
        return None;
    }
    let log_change = t_test::mean(second) - t_test::mean(first);
    let [coarse, fine] = {
        let [baseline_resolution, candidate_resolution] =
            [&question.baseline, &question.candidate].map(|side| side.resolution.ln_1p());
        [
            baseline_resolution.max(candidate_resolution),
            baseline_resolution.min(candidate_resolution),
        ]
    };
    // The step of a search grows with the value found, so neighbouring results differ by a whole step of the
    // coarser side.
    let resolution = if fine > 0.0 { 2.0 * coarse } else { coarse };
    let precision = variance.map(|variance| {
        let squared = variance.value * (1.0 / first.len() as f64 + 1.0 / second.len() as f64);
        let (squared, df) = add_night_variance(squared, variance.df, question.night_variance);
        let error = squared.sqrt();
        let beyond = (log_change.abs() - resolution).max(0.0);
        Precision {
            sigma: variance.value.sqrt(),
            error,
            df,
            p: t_test::two_sided_p(beyond / error, df).clamp(MIN_P, 1.0),
            adjusted_p: None,
            borrowed_df: variance.df - own.map_or(0.0, |own| own.df),
        }
    });
    Some(Estimate {
        log_change,
        resolution,
        precision,
    })
}

impl Answer {
    /// Returns the answer to the same question with another floor. The p-values do not depend on it.
    pub(crate) fn with_bound(mut self, bound: f64) -> Self {
        self.bound = bound;
        if let (Outcome::Judged(_), Some(estimate)) = (&self.outcome, &self.estimate) {
            let verdict = verdict(estimate, bound, self.better, self.is_at_jump);
            self.outcome = Outcome::Judged(verdict);
        }
        self
    }
}

/// `is_at_jump` says that equal figures do not mean that the sides are the same.
fn verdict(estimate: &Estimate, bound: f64, better: Direction, is_at_jump: bool) -> Verdict {
    let Some(precision) = estimate.precision else {
        return Verdict::Unclear;
    };
    let is_found = precision.adjusted_p.is_some_and(|p| p <= ALPHA);
    if is_found && estimate.change().abs() > bound {
        let is_good = (estimate.log_change > 0.0) == (better == Direction::Higher);
        return if is_good { Verdict::Better } else { Verdict::Worse };
    }
    if estimate.change().abs() > bound {
        return Verdict::Unclear;
    }
    match estimate.interval(EQUIVALENCE_CONFIDENCE) {
        Some(within) if within.low >= -bound && within.high <= bound && !is_at_jump => Verdict::Same,
        _ => Verdict::Unclear,
    }
}
