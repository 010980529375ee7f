//! The decision function: from the starts of two sides to better, same, worse or unclear, for a whole family of figures at once.
//!
//! Everything that says of two sides which one is better asks [`decide`]: `compare`, nightly runs, `bisect`, `[best]`, wins and headlines. It
//! is pure: a [`Question`] holds one gating metric of one pair of cells, an [`Answer`] the verdict (or why there is none) with everything that
//! a table shows beside it.
//!
//! # The rules
//!
//! - The unit is the start of an engine: a [`Sample`] has one value per start, the mean of the logarithms of its repeats
//!   ([`Sample::of_starts`]). The estimate is the difference of the means of these values, and nothing else: value, change and interval never
//!   contradict each other.
//! - *worse*, *better*: the p-value, adjusted by Holm over all questions that are tested, is at most [`ALPHA`], and the estimate lies
//!   beyond the practical bound of the user.
//! - *same*: the interval of 90 % lies within the bound: two one-sided tests at 5 % each (D. J. Schuirmann, "A comparison of the two
//!   one-sided tests procedure and the power approach", 1987).
//! - *unclear*: neither. [`Answer::visible_loss`] is the smallest loss that these starts show, [`Answer::starts_to_decide`] how many would
//!   decide.
//! - *not judged*: a side lacks the figure, has too few starts, or the two sides are not comparable ([`Gap`]). That is no verdict.
//!
//! Measured noise is knowledge about the variance and nothing more: it never widens the bound. The variance of a question is that of
//! its own starts, of stored noise, and of the other questions of its kind (`moderation`); it is never below that of its own starts, and never so
//! far above that these rule it out. So noise can
//! turn a verdict into *unclear*, never a loss into *same*.
//!
//! # How to ask
//!
//! Ask all questions of a report in one call: the family is what corrects for many looks. Where only some of a larger family are asked
//! (confirmations of suspects), [`Terms::family`] says how many it has. Samples of the same starts carry the same [`Sample::launch`].
//! Figures of one start on each side are *not judged* but described: [`Answer::estimate`] is there from one start on.

mod answer;
mod groups;
mod moderation;
mod noise;

pub(crate) use moderation::Variance;
use moderation::{Others, Spread};
pub(crate) use noise::KnownNoise;

use std::collections::BTreeMap;

use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::multiple_testing;
use super::t_test::{self, Interval};
use super::verdict::{Verdict, relative};
use crate::analysis::metrics::Better;
use crate::base::text::counted;

/// The chance of any false *better* or *worse* in a family.
pub(crate) const ALPHA: f64 = 0.05;
/// The chance with which [`Answer::visible_loss`] is found.
pub(crate) const POWER: f64 = 0.9;
/// The smallest change that counts, as a share, unless the user states another.
pub(crate) const USUAL_BOUND: f64 = 0.02;
/// The confidence of the interval that tables show.
pub(crate) const LEVEL: f64 = 0.95;
/// The confidence of the interval that must lie within the bound for *same*.
pub(crate) const EQUIVALENCE_LEVEL: f64 = 0.9;
/// The fewest starts per side where the noise of the figure is known.
pub(crate) const STARTS_NOISE_KNOWN: usize = 3;
/// The fewest starts per side where it is not.
pub(crate) const STARTS_NOISE_UNKNOWN: usize = 5;
/// The most starts per side that are ever recommended.
pub(crate) const MOST_STARTS: usize = 100;
/// No engine repeats itself better than this: starts that seem to are equal by luck or by rounding.
const LEAST_SIGMA: f64 = 0.001;
/// Starts are not luckier than this in how alike they are.
const LEAST_QUIET: f64 = 1e-5;
/// No handful of starts makes anything more certain than this.
const LEAST_P: f64 = 1e-12;

/// The starts of one side.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sample {
    /// One value for each start, as a logarithm.
    pub logs: Vec<f64>,
    /// Names the launch whose starts these are, within its run: values of one name were measured on the same starts. Without a name they
    /// are taken to share starts with all others that have none.
    pub launch: Option<String>,
    /// How many values, from the first on, were measured before a stopping rule looked at them; the variance is estimated from these alone
    /// (Stein's two stages). `None` where no rule looked.
    pub first_stage: Option<usize>,
    /// How far the value that was meant may lie from the value that is given, to either side, as a share: half a printed digit, half a step of
    /// the grid of a search.
    pub resolution: f64,
    /// Whether the figure is a percentile at a jump of the distribution of requests: equal percentiles then do not make the sides the same.
    pub is_at_jump: bool,
    /// Of a count of requests, such as goodput: the variance of one start, of logarithms, that half a request more or less is. `None` of figures that
    /// are no counts. Counts can collapse where nothing else does, so their variances say nothing of those of other figures.
    pub counting: Option<f64>,
}

impl Sample {
    /// The sample of a figure whose repeats are given for each start; `None` if one of them is not above zero. A start without repeats counts
    /// as none.
    pub(crate) fn of_starts(starts: &[Vec<f64>]) -> Option<Self> {
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

    /// The value that stands for the side: the geometric mean of its starts; `None` without any.
    pub(crate) fn value(&self) -> Option<f64> {
        (!self.logs.is_empty()).then(|| t_test::mean(&self.logs).exp())
    }

    /// The values that tell the variance.
    fn staged(&self) -> &[f64] {
        let stage = self.first_stage.unwrap_or(self.logs.len());
        &self.logs[..stage.min(self.logs.len())]
    }
}

/// How the starts of both sides lay in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Design {
    /// Each side by itself.
    #[default]
    Separate,
    /// The sides alternated within one run: values at the same place belong to the same round, and are compared round by round.
    Rounds,
}

/// Why a question has no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gap {
    /// A side holds nothing that counts.
    Missing(String),
    /// There are too few starts.
    TooFewStarts(String),
    /// Something besides the engine differs.
    NotComparable(String),
}

impl Gap {
    /// The gap as it is written.
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
    /// Which way is better.
    pub better: Better,
    /// What is compared against.
    pub baseline: Sample,
    pub candidate: Sample,
    /// How their starts lay in time.
    pub design: Design,
    /// The noise of this figure, where it was measured.
    pub noise: Option<KnownNoise>,
    /// A variance of the difference of both sides that their starts do not show, such as that between two nights.
    pub between: Option<Variance>,
    /// Why this is not to be judged, whatever the starts say.
    pub gap: Option<Gap>,
}

/// What holds for a whole family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Terms {
    /// The smallest change that counts, as a share.
    pub bound: f64,
    /// How many questions the family has, where these are only some of them; otherwise 0.
    pub family: usize,
}

/// What is said of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Judged(Verdict),
    /// None, for this reason.
    NotJudged(Gap),
}

/// How well a difference is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Precision {
    /// The standard deviation of one start, of logarithms, that the test uses.
    pub sigma: f64,
    /// The standard error of the difference.
    pub error: f64,
    /// Degrees of freedom of the error.
    pub df: f64,
    /// The chance of such a difference where there is none, to either side, taken alone.
    pub p: f64,
    /// The same among all questions that were tested; `None` where this one was not.
    pub adjusted_p: Option<f64>,
    /// The degrees of freedom that starts of other questions and stored noise add.
    borrowed_df: f64,
}

/// How the sides differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    /// The mean of the candidate's logarithms less that of the baseline's.
    pub log_change: f64,
    /// How far resolution alone lets it lie from the truth.
    pub resolution: f64,
    /// How well it is known, where anything tells.
    pub precision: Option<Precision>,
}

impl Estimate {
    /// The candidate relative to the baseline, less one: -0.05 is five percent less.
    pub(crate) fn change(&self) -> f64 {
        relative(self.log_change)
    }

    /// Where the change lies with this confidence, as shares.
    pub(crate) fn interval(&self, level: f64) -> Option<Interval> {
        let reach = self.reach(level)?;
        Some(Interval {
            low: relative(self.log_change - reach),
            high: relative(self.log_change + reach),
        })
    }

    /// How far that interval reaches to either side, of logarithms.
    fn reach(&self, level: f64) -> Option<f64> {
        let precision = self.precision?;
        Some(self.resolution + precision.error * t_test::quantile(precision.df, f64::midpoint(1.0, level)))
    }
}

/// What is said of one question, and why.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    /// The verdict, or why there is none.
    pub outcome: Outcome,
    /// Starts of the baseline and of the candidate.
    pub starts: [usize; 2],
    /// How they differ, where both have a start.
    pub estimate: Option<Estimate>,
    /// How many questions were tested together.
    pub family: usize,
    /// The bound that it was judged against.
    pub bound: f64,
    better: Better,
    design: Design,
    between: Option<Variance>,
    is_at_jump: bool,
}

/// The answers to a family of questions, in their order.
pub(crate) fn decide(questions: &[Question], terms: &Terms) -> Vec<Answer> {
    let mut answers = described(questions, terms);
    let tested: Vec<usize> = (0..answers.len())
        .filter(|at| answers[*at].gap(&questions[*at]).is_none())
        .collect();
    let p: Vec<f64> = tested
        .iter()
        .filter_map(|at| Some(answers[*at].estimate?.precision?.p))
        .collect();
    let family = terms.family.max(tested.len());
    let adjusted = multiple_testing::holm_adjusted(&p, family);
    for (at, answer) in answers.iter_mut().enumerate() {
        answer.family = family;
        let gap = answer.gap(&questions[at]);
        answer.outcome = match (gap, &mut answer.estimate) {
            (Some(gap), _) => Outcome::NotJudged(gap),
            (None, Some(estimate)) => {
                let rank = tested.binary_search(&at).ok();
                let adjusted = rank.and_then(|rank| adjusted.get(rank).copied());
                if let Some(precision) = &mut estimate.precision {
                    precision.adjusted_p = adjusted;
                }
                Outcome::Judged(match verdict(estimate, terms.bound, questions[at].better) {
                    Verdict::Same if answer.is_at_jump => Verdict::Unclear,
                    verdict => verdict,
                })
            }
            (None, None) => Outcome::NotJudged(Gap::Missing("there are no starts".to_owned())),
        };
    }
    answers
}

/// The answers to the questions of several pairs of sides, in their order: chance is corrected for among all of them. Variances are shared among the
/// questions of the same pair, so that each pair has the estimate that it has alone; but a difference is found only where it is found with variances that
/// all questions share, too, as few starts of one pair may be alike by luck. `pairs` names the pair of each question.
pub(crate) fn decide_by_pairs<P: Ord>(questions: &[Question], pairs: &[P], terms: &Terms) -> Vec<Answer> {
    let among_all = decide(questions, terms);
    let family = among_all.first().map_or(0, |answer| answer.family);
    let mut places: BTreeMap<&P, Vec<usize>> = BTreeMap::new();
    for (at, pair) in pairs.iter().enumerate() {
        places.entry(pair).or_default().push(at);
    }
    let mut told: Vec<(usize, Answer)> = Vec::new();
    for places in places.into_values() {
        let own: Vec<Question> = places.iter().map(|at| questions[*at].clone()).collect();
        let answers = decide(&own, &Terms { family, ..*terms });
        told.extend(places.into_iter().zip(answers));
    }
    told.sort_by_key(|(at, _)| *at);
    let of_pairs = told.into_iter().map(|(_, answer)| answer);
    of_pairs
        .zip(among_all)
        .map(|(own, all)| own.unless_by_chance(&all))
        .collect()
}

/// The estimates, without any verdict.
fn described(questions: &[Question], terms: &Terms) -> Vec<Answer> {
    let (counts, others): (Vec<usize>, Vec<usize>) =
        (0..questions.len()).partition(|at| questions[*at].is_count());
    let mut described: Vec<(usize, Answer)> = Vec::new();
    for places in [counts, others] {
        let alike: Vec<Question> = places.iter().map(|at| questions[*at].clone()).collect();
        described.extend(places.into_iter().zip(described_alike(&alike, terms)));
    }
    described.sort_by_key(|(at, _)| *at);
    described.into_iter().map(|(_, answer)| answer).collect()
}

/// The estimates of questions whose variances tell something of each other.
fn described_alike(questions: &[Question], terms: &Terms) -> Vec<Answer> {
    let groups = groups::of_launches(questions);
    let own: Vec<Option<Variance>> = questions.iter().map(told_variance).collect();
    let noise = noise::of_today(questions, &own, &groups);
    let spreads = (0..questions.len()).filter_map(|at| {
        Some(Spread {
            variance: pooled(own[at], noise[at])?,
            group: groups[at],
        })
    });
    let mut others = moderation::of_others(&spreads.collect::<Vec<_>>()).into_iter();
    let described = questions.iter().enumerate().map(|(at, question)| {
        let variance = pooled(own[at], noise[at]).and_then(|known| {
            Some(steadied(own[at], noise[at], others.next()?, question.is_uneven()).unwrap_or(known))
        });
        Answer {
            outcome: Outcome::NotJudged(Gap::Missing(String::new())),
            starts: [question.baseline.logs.len(), question.candidate.logs.len()],
            estimate: estimate(question, variance, own[at]),
            family: 0,
            bound: terms.bound,
            better: question.better,
            design: question.design(),
            between: question.between,
            is_at_jump: question.baseline.is_at_jump || question.candidate.is_at_jump,
        }
    });
    described.collect()
}

fn pooled(one: Option<Variance>, other: Option<Variance>) -> Option<Variance> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.pooled(other)),
        (one, other) => one.or(other),
    }
}

/// The variance of one start: of its own starts, of its noise, and of the others. It is never below that of its own starts, and the more
/// these vary beyond all else, the less is borrowed. `None` where nothing is borrowed.
/// Where one side has more starts than the other (`is_uneven`), the error is mostly that of the side with fewer, and starts that vary more than
/// is known say more against what is known.
fn steadied(
    own: Option<Variance>,
    noise: Option<Variance>,
    others: Option<Others>,
    is_uneven: bool,
) -> Option<Variance> {
    let most = own.map_or(f64::INFINITY, most_variance);
    let weighed = others.map(|others| Variance {
        value: others.value.min(most),
        df: others.weight,
    });
    let borrowed = pooled(noise, weighed)?;
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
            value: own.pooled(borrowed).value,
            df: own.df + df,
        }
    })
}

/// The most that a variance may be by what other questions say: more is ruled out by the starts themselves, but for a chance of [`LEAST_QUIET`]. So
/// one question whose starts lie far apart hides nothing that is certain in another.
///
/// Source: (n − 1)s² / σ² is distributed as χ² with n − 1 degrees of freedom. After the robust prior of B. Phipson and others, "Robust hyperparameter
/// estimation protects against hypervariable genes and improves power to detect differential expression", 2016.
fn most_variance(own: Variance) -> f64 {
    let chi_squared = ChiSquared::new(own.df).expect("degrees of freedom are above zero");
    own.value * own.df / chi_squared.inverse_cdf(LEAST_QUIET)
}

/// The variance of one start that the starts of a question show: those of before a stopping rule looked, as the rule keeps its promise with these.
/// Where the later ones vary more, such as by a slow start that the first did not have, no less than all show.
fn own_variance(question: &Question) -> Option<Variance> {
    let staged = shown_variance(question)?;
    let has_stage = |sample: &Sample| sample.first_stage.is_some();
    if !has_stage(&question.baseline) && !has_stage(&question.candidate) {
        return Some(staged);
    }
    let whole = |sample: &Sample| Sample {
        first_stage: None,
        ..sample.clone()
    };
    let all = shown_variance(&Question {
        baseline: whole(&question.baseline),
        candidate: whole(&question.candidate),
        ..question.clone()
    });
    Some(Variance {
        value: all.map_or(staged.value, |all| all.value.max(staged.value)),
        ..staged
    })
}

/// The variance of one start that the starts of the first stage of a question show.
fn shown_variance(question: &Question) -> Option<Variance> {
    let (first, second) = (&question.baseline, &question.candidate);
    let (squares, df) = match question.design() {
        Design::Rounds => {
            let rounds = first.staged().iter().zip(second.staged());
            let differences: Vec<f64> = rounds.map(|(a, b)| b - a).collect();
            if differences.is_empty() {
                return None;
            }
            // The difference of two starts has twice the variance of one.
            let squares = t_test::squares(&differences, t_test::mean(&differences)) / 2.0;
            (squares, differences.len() - 1)
        }
        Design::Separate => {
            let sides = [first, second].map(|side| {
                let staged = side.staged();
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
                // First starts that are alike by luck stop early, and often far from their mean. Where one side stopped before the other and
                // no noise is known, the one that varies more speaks for both.
                let varied = sides.iter().filter(|(_, df)| *df > 0);
                let larger = varied.map(|(squares, own)| squares / *own as f64 * df as f64);
                (larger.fold(pooled, f64::max), df)
            } else if let Some(variance) = of_unequal_sides(sides, starts) {
                return Some(variance);
            } else {
                (pooled, df)
            }
        }
    };
    (df > 0).then(|| Variance {
        value: (squares / df as f64).max(LEAST_SIGMA * LEAST_SIGMA),
        df: df as f64,
    })
}

/// The same, but for counts of requests no less than whole requests can tell: five starts of one request each are alike by counting.
fn told_variance(question: &Question) -> Option<Variance> {
    let own = own_variance(question)?;
    let counting = [&question.baseline, &question.candidate].map(|side| side.counting.unwrap_or(0.0));
    Some(Variance {
        value: own.value.max(f64::midpoint(counting[0], counting[1])),
        ..own
    })
}

/// The variance of one start where one side has more starts than the other, from squares and degrees of freedom of either: such that the
/// error of the difference is that of both means, whichever side varies more. With as many starts on either side pooling gives the same error.
///
/// Source: B. L. Welch, "The generalization of Student's problem when several different population variances are involved", 1947.
fn of_unequal_sides(sides: [(f64, usize); 2], starts: [usize; 2]) -> Option<Variance> {
    let [first, second] = sides;
    if starts[0] == starts[1] || first.1 == 0 || second.1 == 0 {
        return None;
    }
    let of_mean = |(squares, df): (f64, usize), starts: usize| {
        (squares / df as f64).max(LEAST_SIGMA * LEAST_SIGMA) / starts as f64
    };
    let sum = of_mean(first, starts[0]) + of_mean(second, starts[1]);
    Some(Variance {
        value: sum / (1.0 / starts[0] as f64 + 1.0 / starts[1] as f64),
        // At least so many, whichever side the error is of. Welch's own number is largest where the few starts are alike by luck.
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
        let [one, other] = [&question.baseline, &question.candidate].map(|side| side.resolution.ln_1p());
        [one.max(other), one.min(other)]
    };
    // The steps of a search grow with what was found, so that neighbours on its grid are as far apart as the coarser side's whole step.
    let resolution = if fine > 0.0 { 2.0 * coarse } else { coarse };
    let precision = variance.map(|variance| {
        let squared = variance.value * (1.0 / first.len() as f64 + 1.0 / second.len() as f64);
        let (squared, df) = with_between(squared, variance.df, question.between);
        let error = squared.sqrt();
        let beyond = (log_change.abs() - resolution).max(0.0);
        Precision {
            sigma: variance.value.sqrt(),
            error,
            df,
            p: t_test::two_sided(beyond / error, df).clamp(LEAST_P, 1.0),
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

/// A squared error with a further variance, and its degrees of freedom.
///
/// Source: F. E. Satterthwaite, "An approximate distribution of estimates of variance components", 1946.
fn with_between(squared: f64, df: f64, between: Option<Variance>) -> (f64, f64) {
    match between.filter(|between| between.value > 0.0) {
        None => (squared, df),
        Some(between) => {
            let sum = squared + between.value;
            let df = sum * sum / (squared * squared / df + between.value * between.value / between.df);
            (sum, df)
        }
    }
}

fn verdict(estimate: &Estimate, bound: f64, better: Better) -> Verdict {
    let Some(precision) = estimate.precision else {
        return Verdict::Unclear;
    };
    let is_found = precision.adjusted_p.is_some_and(|p| p <= ALPHA);
    if is_found && estimate.change().abs() > bound {
        let is_good = (estimate.log_change > 0.0) == (better == Better::Higher);
        return if is_good { Verdict::Better } else { Verdict::Worse };
    }
    if estimate.change().abs() > bound {
        return Verdict::Unclear;
    }
    match estimate.interval(EQUIVALENCE_LEVEL) {
        Some(within) if within.low >= -bound && within.high <= bound => Verdict::Same,
        _ => Verdict::Unclear,
    }
}

impl Question {
    /// Whether the figure is a count of requests.
    const fn is_count(&self) -> bool {
        self.baseline.counting.is_some() || self.candidate.counting.is_some()
    }

    /// Whether one side has more starts than the other.
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

    /// The fewest starts per side that allow a verdict.
    fn least_starts(&self) -> usize {
        match self.noise {
            Some(noise) if noise.is_enough() => STARTS_NOISE_KNOWN,
            _ => STARTS_NOISE_UNKNOWN,
        }
    }
}

impl Answer {
    /// Why the question has no verdict, before any is sought.
    fn gap(&self, question: &Question) -> Option<Gap> {
        if let Some(gap) = &question.gap {
            return Some(gap.clone());
        }
        let (least, [first, second]) = (question.least_starts(), self.starts);
        if first == 0 || second == 0 {
            let side = if first == 0 { "baseline" } else { "candidate" };
            return Some(Gap::Missing(format!("the {side} has no start that counts")));
        }
        if first.min(second) < least || self.estimate.and_then(|estimate| estimate.precision).is_none() {
            let noise = match least {
                STARTS_NOISE_KNOWN => "",
                _ => {
                    ", or three where the noise of this host is known (`matrix noise`), which is of starts and not of running servers"
                }
            };
            return Some(Gap::TooFewStarts(format!(
                "n = {first} and {}; a verdict needs {} on each side{noise}",
                counted(second, "start", "starts"),
                if least == STARTS_NOISE_KNOWN {
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
