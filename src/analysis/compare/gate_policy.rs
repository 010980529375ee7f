//! Judges many cells of a nightly run against a pinned baseline: screening finds suspected losses, fresh
//! starts confirm them, and only confirmed losses are reported.
//!
//! Screening compares the nightly run with the baseline, which was measured on another night. The variance
//! between nights, from the history, is part of its error. It selects suspected losses generously. Only later
//! starts decide: baseline and candidate alternate in the same night and are compared round by round, so
//! effects of the night cancel. Every gating metric counts in the family, suspected or not. So the
//! probability of any false alarm in a night is at most that of the decision function, however losses are
//! selected.

use super::between::{self, Between, Past};
use super::change_point;
use super::decision::{
    self, ALPHA, Answer, EQUIVALENCE_LEVEL, Gap, KnownNoise, Outcome, POWER, Question, Terms,
};
use super::t_test;
use super::verdict::{Verdict, relative};
use crate::analysis::metrics::Better;

/// Part of the false-positive rate that each test gets if two similar tests run.
const OF_TWO: f64 = 0.65;
/// Fewest earlier nights whose mean a night is compared with.
const ENOUGH: usize = 5;

/// Rules by which a nightly run decides. Shares are between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Policy {
    /// Probability that an unchanged metric becomes a suspected loss.
    pub suspicion: f64,
    /// Floor: the smallest loss that matters.
    pub bound: f64,
    /// Loss that confirmation is planned to find.
    pub loss: f64,
    /// Probability of finding it.
    pub power: f64,
    /// Fewest fresh starts per side of a confirmation.
    pub least: usize,
    pub most: usize,
}

impl Policy {
    pub(crate) fn of_bound(bound: f64) -> Self {
        Self {
            suspicion: 0.045,
            bound,
            loss: f64::max(0.05, 2.5 * bound),
            power: 0.98,
            least: decision::STARTS_NOISE_KNOWN,
            most: 16,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Asked {
    /// The starts of this night and of the baseline.
    pub question: Question,
    /// The metric on earlier nights, the oldest first.
    pub past: Vec<Past>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Screened {
    pub answer: Answer,
    /// Variance between nights, if the history is long enough.
    pub between: Option<Between>,
    /// Why the metric is a suspected loss, if it is one.
    pub suspicion: Option<Suspicion>,
}

/// Why a metric is a suspected loss, and how it is decided.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Suspicion {
    /// Loss in this night, as a difference of logarithms above zero. 0 if only the series raised the
    /// suspicion.
    pub loss: f64,
    pub why: String,
    /// Fresh starts per side that decide.
    pub starts: usize,
    /// Known noise for the confirmation.
    pub noise: Option<KnownNoise>,
}

impl Screened {
    /// Returns whether the metric belongs to the family of tests. Too few starts in the night do not exclude
    /// it, because fresh starts decide.
    pub(crate) fn is_tested(&self) -> bool {
        is_tested(&self.answer)
    }
}

const fn is_tested(answer: &Answer) -> bool {
    !matches!(
        &answer.outcome,
        Outcome::NotJudged(Gap::Missing(_) | Gap::NotComparable(_))
    )
}

pub(crate) fn screen(asked: &[Asked], policy: &Policy) -> Vec<Screened> {
    let between: Vec<Option<Between>> = asked.iter().map(|one| Between::of(&one.past)).collect();
    let questions: Vec<Question> = asked
        .iter()
        .zip(&between)
        .map(|(one, between)| Question {
            between: between.and_then(|between| between::of_two(between.neighbours)),
            ..one.question.clone()
        })
        .collect();
    let terms = Terms {
        bound: policy.bound,
        family: 0,
    };
    let answers = decision::decide(&questions, &terms);
    let family = answers.iter().filter(|answer| is_tested(answer)).count();
    let looked = answers.into_iter().zip(asked).zip(between);
    looked
        .map(|((answer, one), between)| {
            let why = match is_tested(&answer) {
                true => suspicions(&answer, one, between, policy),
                false => Vec::new(),
            };
            let suspicion = (!why.is_empty()).then(|| suspicion(&answer, one, policy, family, &why));
            Screened {
                answer,
                between,
                suspicion,
            }
        })
        .collect()
}

/// Collects the evidence for a loss: against the baseline, against all nights since, and in the series.
fn suspicions(answer: &Answer, asked: &Asked, between: Option<Between>, policy: &Policy) -> Vec<String> {
    let mut why = Vec::new();
    let better = asked.question.better;
    let since = between.and_then(|between| since(answer, asked, between));
    let level = policy.suspicion * if since.is_some() { OF_TWO } else { 1.0 };
    let is_beyond = |change: f64| is_loss(change, better) && relative(change).abs() > policy.bound;
    if let Some(estimate) = answer.estimate
        && let Some(precision) = estimate.precision
        && is_beyond(estimate.log_change)
        && precision.p / 2.0 <= level
    {
        why.push(format!("{} against the baseline", percent(estimate.log_change)));
    }
    if let Some((change, p)) = since
        && is_beyond(change)
        && p / 2.0 <= level
    {
        why.push(format!(
            "{} against the nights since the baseline",
            percent(change)
        ));
    }
    let series = series(asked);
    if let Some(found) = change_point::recent(&series, policy.bound)
        && is_loss(found.after - found.before, better)
    {
        let nights = series.len() - found.at;
        why.push(format!(
            "{} for {nights} nights",
            percent(found.after - found.before)
        ));
    }
    why
}

/// Compares the night with the mean of the baseline and of all nights since. Returns the difference of
/// logarithms and the two-sided p-value. The single night of the baseline may have been unusual.
fn since(answer: &Answer, asked: &Asked, between: Between) -> Option<(f64, f64)> {
    let Question {
        baseline, candidate, ..
    } = &asked.question;
    let precision = answer.estimate?.precision?;
    let past = between::usual(&asked.past)
        .into_iter()
        .filter(|night| night.series == 0);
    let nights: Vec<&[f64]> = [baseline.logs.as_slice()]
        .into_iter()
        .chain(past.map(|night| night.logs.as_slice()))
        .filter(|logs| !logs.is_empty())
        .collect();
    let n = nights.len() as f64;
    let levels: Vec<f64> = nights.iter().map(|logs| t_test::mean(logs)).collect();
    let change = t_test::mean(&candidate.logs) - t_test::mean(&levels);
    let of_nights = nights.iter().map(|logs| 1.0 / logs.len() as f64).sum::<f64>() / n / n;
    let of_starts = precision.sigma.powi(2) * (1.0 / candidate.logs.len() as f64 + of_nights);
    let error = (of_starts + between.neighbours.value * (1.0 + 1.0 / n)).sqrt();
    let is_enough = nights.len() > ENOUGH && error > 0.0;
    is_enough.then(|| (change, t_test::two_sided(change.abs() / error, precision.df)))
}

/// Returns the levels of the nights that were compared against the present baseline, with this night at the
/// end.
fn series(asked: &Asked) -> Vec<f64> {
    let past = asked.past.iter().filter(|night| night.series == 0);
    let tonight = &asked.question.candidate.logs;
    past.map(|night| night.logs.as_slice())
        .chain([tonight.as_slice()])
        .filter(|logs| !logs.is_empty())
        .map(t_test::mean)
        .collect()
}

fn suspicion(answer: &Answer, asked: &Asked, policy: &Policy, family: usize, why: &[String]) -> Suspicion {
    let change = answer.estimate.map_or(0.0, |estimate| estimate.log_change);
    let sigma = answer
        .estimate
        .and_then(|estimate| estimate.precision)
        .map_or(0.0, |precision| precision.sigma);
    let starts = [&asked.question.baseline, &asked.question.candidate];
    let df: usize = starts.iter().map(|side| side.logs.len().saturating_sub(1)).sum();
    // Without stored noise, the starts of this night give the noise.
    let measured = (df > 0).then(|| KnownNoise::measured(sigma, df as f64));
    let noise = asked.question.noise.or(measured);
    Suspicion {
        loss: if is_loss(change, asked.question.better) {
            change.abs()
        } else {
            0.0
        },
        why: why.join("; "),
        starts: policy.fresh_starts(noise, family),
        noise,
    }
}

impl Policy {
    /// Returns the loss that screening would have suspected with probability [`POWER`].
    pub(crate) fn visible_loss(&self, answer: &Answer) -> Option<f64> {
        answer.visible_loss_at(self.suspicion * OF_TWO)
    }

    /// Returns the number of fresh starts per side that decide among `family` metrics, for a known noise.
    /// They confirm a real loss and refute an unchanged metric.
    pub(crate) fn fresh_starts(&self, noise: Option<KnownNoise>, family: usize) -> usize {
        let least = match noise {
            Some(noise) if noise.is_enough() => self.least,
            _ => decision::STARTS_NOISE_UNKNOWN.max(self.least),
        };
        let Some(noise) = noise else {
            return least;
        };
        let tail = ALPHA / family.max(1) as f64 / 2.0;
        let (loss, bound) = (-(-self.loss).ln_1p(), -(-self.bound).ln_1p());
        let is_enough = |starts: &usize| {
            let n = *starts as f64;
            let error = noise.sigma * (2.0 / n).sqrt();
            let df = n - 1.0 + noise.df;
            let certain = (error * t_test::quantile(df, 1.0 - tail)).max(bound);
            let confirms = certain + error * t_test::quantile(df, self.power) <= loss;
            // An unchanged metric is `same` if its interval is within the floor on both sides.
            let within = t_test::quantile(df, f64::midpoint(1.0, EQUIVALENCE_LEVEL));
            let lucky = t_test::quantile(df, f64::midpoint(1.0, POWER));
            confirms && error * (within + lucky) <= bound
        };
        (least..self.most).find(is_enough).unwrap_or(self.most.max(least))
    }
}

/// Judges the fresh starts of the suspected losses, among `family` metrics, in their order.
pub(crate) fn confirm(questions: &[Question], family: usize, policy: &Policy) -> Vec<Answer> {
    let terms = Terms {
        bound: policy.bound,
        family,
    };
    decision::decide(questions, &terms)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Confirmed {
    Worse,
    Refuted,
    Undecided,
}

impl Confirmed {
    pub(crate) const fn of(answer: &Answer) -> Self {
        match answer.verdict() {
            Some(Verdict::Worse) => Self::Worse,
            Some(Verdict::Same | Verdict::Better) => Self::Refuted,
            Some(Verdict::Unclear) | None => Self::Undecided,
        }
    }
}

/// Returns whether a difference of logarithms is for the worse.
fn is_loss(change: f64, better: Better) -> bool {
    match better {
        Better::Higher => change < 0.0,
        Better::Lower => change > 0.0,
    }
}

pub(crate) fn percent(difference: f64) -> String {
    format!("{:+.1} %", relative(difference) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::decision::{Design, Sample};
    use super::*;

    const FIRST: [f64; 5] = [0.0, 0.01, -0.01, 0.005, -0.005];

    fn asked(second: &[f64], better: Better) -> Asked {
        let sample = |logs: &[f64]| Sample {
            logs: logs.to_vec(),
            ..Sample::default()
        };
        Asked {
            question: Question {
                better,
                baseline: sample(&FIRST),
                candidate: sample(second),
                design: Design::Separate,
                noise: None,
                between: None,
                gap: None,
            },
            past: Vec::new(),
        }
    }

    fn is_suspect(asked: Asked) -> bool {
        screen(&[asked], &Policy::of_bound(0.02))[0].suspicion.is_some()
    }

    #[test]
    fn a_suspect_is_a_loss_beyond_bound_and_chance() {
        let moved = |by: f64| FIRST.map(|log| log + by);
        assert!(is_suspect(asked(&moved(-0.05), Better::Higher)));
        assert!(!is_suspect(asked(&moved(0.05), Better::Higher)));
        assert!(is_suspect(asked(&moved(0.05), Better::Lower)));
        assert!(
            !is_suspect(asked(&moved(-0.015), Better::Higher)),
            "within the bound"
        );
        assert!(
            is_suspect(asked(&[-0.05], Better::Higher)),
            "one start is enough to suspect"
        );
    }

    #[test]
    fn what_nights_differ_by_is_no_suspicion() {
        let loss = FIRST.map(|log| log - 0.05);
        let night = |at: usize| Past {
            logs: FIRST
                .map(|log| log + [0.0, 0.03, -0.02, 0.04, -0.03][at % 5])
                .to_vec(),
            series: 0,
        };
        let restless = Asked {
            past: (0..20).map(night).collect(),
            ..asked(&loss, Better::Higher)
        };
        assert!(!is_suspect(restless));
    }

    #[test]
    fn noisier_metrics_need_more_starts_to_decide() {
        let policy = Policy::of_bound(0.02);
        let starts = |sigma| policy.fresh_starts(Some(KnownNoise { sigma, df: 9.0 }), 24);
        assert_eq!(starts(0.0001), policy.least);
        assert!(
            starts(0.005) < starts(0.01) && starts(0.01) < starts(0.02),
            "{} {} {}",
            starts(0.005),
            starts(0.01),
            starts(0.02)
        );
        // Enough to refute as well: (1.73 + 1.73) · 0.01 · √(2/n) within ln 1.02.
        assert!((6..=8).contains(&starts(0.01)), "{}", starts(0.01));
        assert_eq!(starts(0.5), policy.most);
        assert_eq!(policy.fresh_starts(None, 24), decision::STARTS_NOISE_UNKNOWN);
    }
}
