//! The decision function: turns the starts of two sides into better, same, worse or unclear, for a whole
//! family of metrics at once.
//!
//! Every claim that one side is better comes from [`decide`]: `compare`, nightly runs, `bisect`, `[best]`,
//! wins and headlines. The function is pure. A [`Question`] holds one gating metric of one pair of cells. An
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
//! - *unclear*: neither. [`Answer::visible_loss`] is the smallest loss that these starts can show,
//!   [`Answer::starts_to_decide`] the number of starts that would decide.
//! - *not judged*: a side lacks the metric, has too few starts, or the two sides are not comparable
//!   ([`Gap`]). That is no verdict.
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
mod moderation;
mod noise;

pub(crate) use moderation::Variance;
use moderation::{CellVariance, PriorVariance};
pub(crate) use noise::KnownNoise;

use std::collections::BTreeMap;

use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::multiple_testing;
use super::t_test::{self, Interval};
use super::verdict::{Verdict, relative_change};
use crate::analysis::metrics::Direction;
use crate::base::text::pluralize;

/// Probability of any false *better* or *worse* in a family.
pub(crate) const ALPHA: f64 = 0.05;
/// Probability that a loss of [`Answer::visible_loss`] is found.
pub(crate) const POWER: f64 = 0.9;
/// Default floor: the smallest change that matters, as a share.
pub(crate) const DEFAULT_BOUND: f64 = 0.02;
/// Confidence of the interval that tables show.
pub(crate) const CONFIDENCE: f64 = 0.95;
/// Confidence of the interval that must be within the floor for *same*.
pub(crate) const EQUIVALENCE_CONFIDENCE: f64 = 0.9;
/// Fewest starts per side if the noise of the metric is known.
pub(crate) const MIN_STARTS_NOISE_KNOWN: usize = 3;
/// Fewest starts per side if the noise is not known.
pub(crate) const MIN_STARTS_NOISE_UNKNOWN: usize = 5;
/// Highest recommended number of starts per side.
pub(crate) const MAX_RECOMMENDED_STARTS: usize = 100;
/// Smallest standard deviation that is assumed for an engine. Starts with a smaller one are equal by chance
/// or by rounding.
const MIN_SIGMA: f64 = 0.001;
/// Probability at which a variance as low as that of the starts is ruled out (see `most_variance`).
const MIN_LUCK_CHANCE: f64 = 1e-5;
/// Smallest reported p-value. A few starts cannot support a smaller one.
const MIN_P: f64 = 1e-12;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// One value per start, as a logarithm.
    pub logs: Vec<f64>,
    /// Name of the launch that was started, within its run. Values with the same name were measured on the
    /// same starts. All samples without a name are assumed to share starts.
    pub launch: Option<String>,
    /// Number of values, from the first on, that were measured before a stopping rule looked at them. The
    /// variance is estimated from these alone (Stein's two stages). `None` if there was no stopping rule.
    pub first_stage: Option<usize>,
    /// Largest relative error of the value in either direction: half a printed digit, or half a step of a
    /// search.
    pub resolution: f64,
    /// The metric is a percentile at a jump of the distribution of requests. Equal percentiles then do not
    /// mean that the sides are the same.
    pub is_at_jump: bool,
    /// For a count of requests, such as goodput: the variance, of logarithms, that half a request per start
    /// makes. `None` for metrics that are no counts. A count can collapse when no other metric does, so its
    /// variance says nothing about theirs.
    pub counting_variance: Option<f64>,
}

impl Sample {
    /// Builds a sample from the repeats of each start. `None` if a repeat is not above zero. A start without
    /// repeats is left out.
    pub(crate) fn from_starts(starts: &[Vec<f64>]) -> Option<Self> {
        let has_log = |value: &f64| value.is_finite() && *value > 0.0;
        if !starts.iter().flatten().all(has_log) {
            return None;
        }
        let measured = starts.iter().filter(|repeats| !repeats.is_empty());
        let logs = measured.map(|repeats| {
            let sum: f64 = repeats.iter().map(|value| value.ln()).sum();
            sum / repeats.len() as f64
        });
        Some(Self {
            logs: logs.collect(),
            ..Self::default()
        })
    }

    /// Returns the geometric mean of the starts. `None` if there are none.
    pub(crate) fn value(&self) -> Option<f64> {
        (!self.logs.is_empty()).then(|| t_test::mean(&self.logs).exp())
    }

    /// Returns the values from which the variance is estimated.
    fn first_stage_logs(&self) -> &[f64] {
        let stage = self.first_stage.unwrap_or(self.logs.len());
        &self.logs[..stage.min(self.logs.len())]
    }
}

/// How the starts of both sides were ordered in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Design {
    /// Each side was measured separately.
    #[default]
    Separate,
    /// The sides alternated within one run. Values at the same index belong to the same round and are
    /// compared in pairs.
    Rounds,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoVerdict {
    /// A side has no usable value.
    Missing(String),
    TooFewStarts(String),
    /// Something besides the engine differs.
    NotComparable(String),
}

impl NoVerdict {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Missing(_) => "missing",
            Self::TooFewStarts(_) => "too-few-starts",
            Self::NotComparable(_) => "not-comparable",
        }
    }

    pub(crate) fn reason(&self) -> &str {
        match self {
            Self::Missing(why) | Self::TooFewStarts(why) | Self::NotComparable(why) => why,
        }
    }
}

/// One gating metric of one pair of cells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    pub better: Direction,
    pub baseline: Sample,
    pub candidate: Sample,
    pub design: Design,
    pub noise: Option<KnownNoise>,
    /// Variance of the difference that the starts do not show, such as that between two nightly runs.
    pub night_variance: Option<Variance>,
    /// Reason not to judge the question, whatever the starts show.
    pub no_verdict: Option<NoVerdict>,
}

/// Settings of a whole family of questions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DecisionOptions {
    /// Floor: the smallest change that matters, as a share.
    pub bound: f64,
    /// Size of the family if these questions are only some of it, otherwise 0.
    pub family: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Judged(Verdict),
    /// There is no verdict, for this reason.
    NotJudged(NoVerdict),
}

/// How precise a difference is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Precision {
    /// Standard deviation of one start, of logarithms, that the test uses.
    pub sigma: f64,
    pub error: f64,
    pub df: f64,
    /// Two-sided p-value of this question alone.
    pub p: f64,
    /// p-value adjusted for all tested questions. `None` if this one was not tested.
    pub adjusted_p: Option<f64>,
    /// Degrees of freedom that come from other questions and stored noise.
    borrowed_df: f64,
}

/// The difference of the sides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// Mean logarithm of the candidate minus that of the baseline.
    pub log_change: f64,
    /// Largest error that the resolution of both sides causes, of logarithms.
    pub resolution: f64,
    /// `None` if the variance is unknown.
    pub precision: Option<Precision>,
}

impl Estimate {
    /// Returns the relative change from baseline to candidate: -0.05 is five percent less.
    pub(crate) fn change(&self) -> f64 {
        relative_change(self.log_change)
    }

    /// Returns the confidence interval of the change, as shares.
    pub(crate) fn interval(&self, level: f64) -> Option<Interval> {
        let reach = self.half_width(level)?;
        Some(Interval {
            low: relative_change(self.log_change - reach),
            high: relative_change(self.log_change + reach),
        })
    }

    /// Returns half the width of that interval, of logarithms.
    fn half_width(&self, level: f64) -> Option<f64> {
        let precision = self.precision?;
        Some(self.resolution + precision.error * t_test::quantile(precision.df, f64::midpoint(1.0, level)))
    }
}

/// The result of one question, and the values behind it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub outcome: Outcome,
    /// Number of starts of the baseline and of the candidate.
    pub starts: [usize; 2],
    pub estimate: Option<Estimate>,
    pub family: usize,
    /// The floor that was applied.
    pub bound: f64,
    better: Direction,
    design: Design,
    night_variance: Option<Variance>,
    is_at_jump: bool,
}

/// Answers all questions of a family, in their order.
pub(crate) fn decide(questions: &[Question], options: &DecisionOptions) -> Vec<Answer> {
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
                Outcome::Judged(match verdict(estimate, options.bound, questions[at].better) {
                    Verdict::Same if answer.is_at_jump => Verdict::Unclear,
                    verdict => verdict,
                })
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
    questions: &[Question],
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
        let own: Vec<Question> = places.iter().map(|at| questions[*at].clone()).collect();
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
fn describe(questions: &[Question], options: &DecisionOptions) -> Vec<Answer> {
    let (counts, others): (Vec<usize>, Vec<usize>) =
        (0..questions.len()).partition(|at| questions[*at].is_count());
    let mut described: Vec<(usize, Answer)> = Vec::new();
    for places in [counts, others] {
        let alike: Vec<Question> = places.iter().map(|at| questions[*at].clone()).collect();
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
fn describe_with_shared_variance(questions: &[Question], options: &DecisionOptions) -> Vec<Answer> {
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

fn pool(first: Option<Variance>, second: Option<Variance>) -> Option<Variance> {
    match (first, second) {
        (Some(first), Some(second)) => Some(first.pool(second)),
        (first, second) => first.or(second),
    }
}

/// Combines the variance of a question's own starts, its noise and the other questions into the variance of
/// one start. The result is never below that of its own starts. The more these exceed the borrowed variance,
/// the fewer degrees of freedom are borrowed. `None` if nothing is borrowed.
///
/// If one side has more starts than the other (`is_uneven`), the error comes mostly from the side with fewer.
/// Its starts then count more against the borrowed variance.
fn moderated_variance(
    own: Option<Variance>,
    noise: Option<Variance>,
    others: Option<PriorVariance>,
    is_uneven: bool,
) -> Option<Variance> {
    let max = own.map_or(f64::INFINITY, max_variance);
    let weighed = others.map(|others| Variance {
        value: others.value.min(max),
        df: others.weight,
    });
    let borrowed = pool(noise, weighed)?;
    let df = noise.map_or(0.0, |noise| noise.df) + others.map_or(0.0, |others| others.df);
    let Some(own) = own else {
        return (df > 0.0).then_some(Variance {
            value: borrowed.value,
            df,
        });
    };
    Some(if own.value > borrowed.value {
        Variance {
            value: own.value,
            df: own.df + df * (borrowed.value / own.value).powi(if is_uneven { 2 } else { 1 }),
        }
    } else {
        Variance {
            value: own.pool(borrowed).value,
            df: own.df + df,
        }
    })
}

/// Returns the largest variance that other questions may contribute. The starts themselves rule out a larger
/// one, except with a probability of [`MIN_LUCK_CHANCE`]. So one question with a very high variance cannot hide a
/// clear result of another.
///
/// Source: (n − 1)s² / σ² has a χ² distribution with n − 1 degrees of freedom. It follows the robust prior of
/// B. Phipson and others, "Robust hyperparameter estimation protects against hypervariable genes and improves
/// power to detect differential expression", 2016.
fn max_variance(own: Variance) -> f64 {
    let chi_squared = ChiSquared::new(own.df).expect("degrees of freedom are above zero");
    own.value * own.df / chi_squared.inverse_cdf(MIN_LUCK_CHANCE)
}

/// Returns the variance of one start, from the starts of the first stage, because the stopping rule is exact
/// with these alone. If all starts vary more, for example by a slow start that the first stage did not have,
/// their variance is used.
fn own_variance(question: &Question) -> Option<Variance> {
    let staged = first_stage_variance(question)?;
    let has_stage = |sample: &Sample| sample.first_stage.is_some();
    if !has_stage(&question.baseline) && !has_stage(&question.candidate) {
        return Some(staged);
    }
    let whole = |sample: &Sample| Sample {
        first_stage: None,
        ..sample.clone()
    };
    let all_starts = first_stage_variance(&Question {
        baseline: whole(&question.baseline),
        candidate: whole(&question.candidate),
        ..question.clone()
    });
    Some(Variance {
        value: all_starts.map_or(staged.value, |all_starts| all_starts.value.max(staged.value)),
        ..staged
    })
}

/// Returns the variance of one start, from the starts of the first stage alone.
fn first_stage_variance(question: &Question) -> Option<Variance> {
    let (first, second) = (&question.baseline, &question.candidate);
    let (squares, df) = match question.design() {
        Design::Rounds => {
            let rounds = first.first_stage_logs().iter().zip(second.first_stage_logs());
            let differences: Vec<f64> = rounds.map(|(a, b)| b - a).collect();
            if differences.is_empty() {
                return None;
            }
            let squares = t_test::squares(&differences, t_test::mean(&differences)) / 2.0;
            (squares, differences.len() - 1)
        }
        Design::Separate => {
            let sides = [first, second].map(|side| {
                let staged = side.first_stage_logs();
                let df = staged.len().saturating_sub(1);
                let squares = if df > 0 {
                    t_test::squares(staged, t_test::mean(staged))
                } else {
                    0.0
                };
                (squares, df)
            });
            let starts = [first, second].map(|side| side.logs.len());
            let (pooled, df) = (sides[0].0 + sides[1].0, sides[0].1 + sides[1].1);
            let are_staged = first.first_stage.is_some() && second.first_stage.is_some();
            if are_staged && starts[0] != starts[1] && question.noise.is_none() {
                // First starts that are alike by chance stop early, and often far from their mean. If one side
                // stopped before the other and the noise is unknown, the larger variance is used for both.
                let varied = sides.iter().filter(|(_, df)| *df > 0);
                let larger = varied.map(|(squares, own)| squares / *own as f64 * df as f64);
                (larger.fold(pooled, f64::max), df)
            } else if let Some(variance) = unequal_sides_variance(sides, starts) {
                return Some(variance);
            } else {
                (pooled, df)
            }
        }
    };
    (df > 0).then(|| Variance {
        value: (squares / df as f64).max(MIN_SIGMA * MIN_SIGMA),
        df: df as f64,
    })
}

/// Returns the variance of one start. A count of requests has at least the variance that whole requests
/// cause: five starts with one request each look equal only by counting.
fn first_stage_variance_with_counting(question: &Question) -> Option<Variance> {
    let own = own_variance(question)?;
    let counting =
        [&question.baseline, &question.candidate].map(|side| side.counting_variance.unwrap_or(0.0));
    Some(Variance {
        value: own.value.max(f64::midpoint(counting[0], counting[1])),
        ..own
    })
}

/// Returns the variance of one start if the sides have different numbers of starts, from the sum of squares
/// and the degrees of freedom of each side. The value makes the error of the difference equal to that of both
/// means, whichever side varies more. `None` if the numbers are equal, because pooling then gives the same
/// error.
///
/// Source: B. L. Welch, "The generalization of Student's problem when several different population variances
/// are involved", 1947.
fn unequal_sides_variance(sides: [(f64, usize); 2], starts: [usize; 2]) -> Option<Variance> {
    let [first, second] = sides;
    if starts[0] == starts[1] || first.1 == 0 || second.1 == 0 {
        return None;
    }
    let of_mean = |(squares, df): (f64, usize), starts: usize| {
        (squares / df as f64).max(MIN_SIGMA * MIN_SIGMA) / starts as f64
    };
    let sum = of_mean(first, starts[0]) + of_mean(second, starts[1]);
    Some(Variance {
        value: sum / (1.0 / starts[0] as f64 + 1.0 / starts[1] as f64),
        // A lower bound, whichever side the error comes from. Welch's own value is largest if the few starts
        // are alike by chance.
        df: first.1.min(second.1) as f64,
    })
}

fn estimate(question: &Question, variance: Option<Variance>, own: Option<Variance>) -> Option<Estimate> {
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

/// Adds a further variance to a squared error, and combines their degrees of freedom.
///
/// Source: F. E. Satterthwaite, "An approximate distribution of estimates of variance components", 1946.
fn add_night_variance(squared: f64, df: f64, between: Option<Variance>) -> (f64, f64) {
    match between.filter(|between| between.value > 0.0) {
        None => (squared, df),
        Some(between) => {
            let sum = squared + between.value;
            let df = sum * sum / (squared * squared / df + between.value * between.value / between.df);
            (sum, df)
        }
    }
}

fn verdict(estimate: &Estimate, bound: f64, better: Direction) -> Verdict {
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
        Some(within) if within.low >= -bound && within.high <= bound => Verdict::Same,
        _ => Verdict::Unclear,
    }
}

impl Question {
    const fn is_count(&self) -> bool {
        self.baseline.counting_variance.is_some() || self.candidate.counting_variance.is_some()
    }

    fn is_uneven(&self) -> bool {
        self.baseline.logs.len() != self.candidate.logs.len()
    }

    fn design(&self) -> Design {
        let is_paired = self.baseline.logs.len() == self.candidate.logs.len() && self.baseline.logs.len() > 1;
        match self.design {
            Design::Rounds if is_paired => Design::Rounds,
            _ => Design::Separate,
        }
    }

    /// Returns the fewest starts per side that allow a verdict.
    fn min_starts(&self) -> usize {
        match self.noise {
            Some(noise) if noise.is_sufficient() => MIN_STARTS_NOISE_KNOWN,
            _ => MIN_STARTS_NOISE_UNKNOWN,
        }
    }
}

impl Answer {
    /// Returns the reason not to judge the question, checked before the test.
    fn no_verdict_reason(&self, question: &Question) -> Option<NoVerdict> {
        if let Some(gap) = &question.no_verdict {
            return Some(gap.clone());
        }
        let (min_starts, [first, second]) = (question.min_starts(), self.starts);
        if first == 0 || second == 0 {
            let side = if first == 0 { "baseline" } else { "candidate" };
            return Some(NoVerdict::Missing(format!("the {side} has no usable start")));
        }
        if first.min(second) < min_starts || self.estimate.and_then(|estimate| estimate.precision).is_none() {
            let noise = match min_starts {
                MIN_STARTS_NOISE_KNOWN => "",
                _ => {
                    ", or three if the noise of this host is known (`matrix noise`), which applies to starts and not to running servers"
                }
            };
            return Some(NoVerdict::TooFewStarts(format!(
                "n = {first} and {}; a verdict needs {} on each side{noise}",
                pluralize(second, "start", "starts"),
                if min_starts == MIN_STARTS_NOISE_KNOWN {
                    "three"
                } else {
                    "five"
                }
            )));
        }
        None
    }
}

#[cfg(test)]
mod rates;
#[cfg(test)]
pub(super) mod synthetic;
#[cfg(test)]
mod tests;
