//! Judges many cells of a nightly run against a pinned baseline: screening finds suspected losses, fresh
//! starts confirm them, and only confirmed losses are reported.
//!
//! Screening compares the nightly run with the baseline, which was measured on another night. The variance
//! between nights, from the history, is part of its error. It selects suspected losses generously. Only later
//! starts decide: baseline and candidate alternate in the same night and are compared round by round, so
//! effects of the night cancel. Every gating metric counts in the family, suspected or not. So the
//! probability of any false alarm in a night is at most that of the decision function, however losses are
//! selected.

use super::between::{self, NightVariance, PastNight};
use super::change_point;
use super::decision::{
    self, ALPHA, Answer, DecisionOptions, EQUIVALENCE_CONFIDENCE, KnownNoise, MetricQuestion, NoVerdict,
    Outcome, POWER,
};
use super::t_test;
use super::verdict::{Verdict, relative_change};
use crate::analysis::metrics::Direction;

/// Part of the false-positive rate that each test gets if two similar tests run.
const SHARE_PER_TEST: f64 = 0.65;
/// Fewest earlier nights whose mean a night is compared with.
const MIN_NIGHTS: usize = 5;

/// Rules by which a nightly run decides. Shares are between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Policy {
    /// Probability that an unchanged metric becomes a suspected loss.
    pub(crate) suspicion: f64,
    /// Floor: the smallest loss that matters.
    pub(crate) bound: f64,
    /// Loss that confirmation is planned to find.
    pub(crate) loss: f64,
    /// Probability of finding it.
    pub(crate) power: f64,
    /// Fewest fresh starts per side of a confirmation.
    pub(crate) min_starts: usize,
    pub(crate) max_starts: usize,
}

impl Policy {
    pub(crate) fn with_bound(bound: f64) -> Self {
        Self {
            suspicion: 0.045,
            bound,
            loss: f64::max(0.05, 2.5 * bound),
            power: 0.98,
            min_starts: decision::MIN_STARTS_NOISE_KNOWN,
            max_starts: 16,
        }
    }
}

/// One metric of one cell: its starts on both sides, and its values in earlier nightly runs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NightlyMetric {
    /// The starts of this night and of the baseline.
    pub(crate) question: MetricQuestion,
    /// The metric on earlier nights, the oldest first.
    pub(crate) past_nights: Vec<PastNight>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScreenedMetric {
    pub(crate) answer: Answer,
    /// Variance between nights, if the history is long enough.
    pub(crate) night_variance: Option<NightVariance>,
    /// Why the metric is a suspected loss, if it is one.
    pub(crate) suspicion: Option<Suspicion>,
}

/// Why a metric is a suspected loss, and how it is decided.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Suspicion {
    /// Loss in this night, as a difference of logarithms above zero. 0 if only the series raised the
    /// suspicion.
    pub(crate) loss: f64,
    pub(crate) reasons: String,
    /// Fresh starts per side that decide.
    pub(crate) starts: usize,
    /// Known noise for the confirmation.
    pub(crate) noise: Option<KnownNoise>,
}

impl ScreenedMetric {
    /// Returns whether the metric belongs to the family of tests. Too few starts in the night do not exclude
    /// it, because fresh starts decide.
    pub(crate) fn is_tested(&self) -> bool {
        is_tested(&self.answer)
    }
}

const fn is_tested(answer: &Answer) -> bool {
    !matches!(
        &answer.outcome,
        Outcome::NotJudged(NoVerdict::Missing(_) | NoVerdict::NotComparable(_))
    )
}

pub(crate) fn screen(metrics: &[NightlyMetric], policy: &Policy) -> Vec<ScreenedMetric> {
    let between: Vec<Option<NightVariance>> = metrics
        .iter()
        .map(|nightly_metric| NightVariance::from_nights(&nightly_metric.past_nights))
        .collect();
    let questions: Vec<MetricQuestion> = metrics
        .iter()
        .zip(&between)
        .map(|(nightly_metric, between)| MetricQuestion {
            night_variance: between
                .and_then(|between| between::variance_of_difference(between.between_neighbours)),
            ..nightly_metric.question.clone()
        })
        .collect();
    let terms = DecisionOptions {
        bound: policy.bound,
        family: 0,
    };
    let answers = decision::decide(&questions, &terms);
    let family = answers.iter().filter(|answer| is_tested(answer)).count();
    let looked = answers.into_iter().zip(metrics).zip(between);
    looked
        .map(|((answer, nightly_metric), between)| {
            let why = match is_tested(&answer) {
                true => loss_evidence(&answer, nightly_metric, between, policy),
                false => Vec::new(),
            };
            let suspicion =
                (!why.is_empty()).then(|| new_suspicion(&answer, nightly_metric, policy, family, &why));
            ScreenedMetric {
                answer,
                night_variance: between,
                suspicion,
            }
        })
        .collect()
}

/// Collects the evidence for a loss: against the baseline, against all nights since, and in the series.
fn loss_evidence(
    answer: &Answer,
    metric: &NightlyMetric,
    between: Option<NightVariance>,
    policy: &Policy,
) -> Vec<String> {
    let mut why = Vec::new();
    let better = metric.question.better;
    let since = between.and_then(|between| compare_to_nights_since(answer, metric, between));
    let level = policy.suspicion * if since.is_some() { SHARE_PER_TEST } else { 1.0 };
    let is_beyond = |change: f64| is_loss(change, better) && relative_change(change).abs() > policy.bound;
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
            "a change of {} compared with the nightly runs since the baseline",
            percent(change)
        ));
    }
    let series = night_levels(metric);
    if let Some(level_change) = change_point::recent_change(&series, policy.bound)
        && is_loss(level_change.after - level_change.before, better)
    {
        let nights = series.len() - level_change.at;
        why.push(format!(
            "{} for {nights} nightly runs",
            percent(level_change.after - level_change.before)
        ));
    }
    why
}

/// Compares the night with the mean of the baseline and of all nights since. Returns the difference of
/// logarithms and the two-sided p-value. The single night of the baseline may have been unusual.
fn compare_to_nights_since(
    answer: &Answer,
    metric: &NightlyMetric,
    between: NightVariance,
) -> Option<(f64, f64)> {
    let MetricQuestion {
        baseline, candidate, ..
    } = &metric.question;
    let precision = answer.estimate?.precision?;
    let past_nights = between::without_outliers(&metric.past_nights)
        .into_iter()
        .filter(|night| night.series == 0);
    let nights: Vec<&[f64]> = [baseline.logs.as_slice()]
        .into_iter()
        .chain(past_nights.map(|night| night.logs.as_slice()))
        .filter(|logs| !logs.is_empty())
        .collect();
    let n = nights.len() as f64;
    let levels: Vec<f64> = nights.iter().map(|logs| t_test::mean(logs)).collect();
    let change = t_test::mean(&candidate.logs) - t_test::mean(&levels);
    let of_nights = nights.iter().map(|logs| 1.0 / logs.len() as f64).sum::<f64>() / n / n;
    let of_starts = precision.sigma.powi(2) * (1.0 / candidate.logs.len() as f64 + of_nights);
    let error = (of_starts + between.between_neighbours.value * (1.0 + 1.0 / n)).sqrt();
    let is_enough = nights.len() > MIN_NIGHTS && error > 0.0;
    is_enough.then(|| (change, t_test::two_sided_p(change.abs() / error, precision.df)))
}

/// Returns the levels of the nights that were compared against the present baseline, with this night at the
/// end.
fn night_levels(metric: &NightlyMetric) -> Vec<f64> {
    let past_nights = metric.past_nights.iter().filter(|night| night.series == 0);
    let candidate_logs = &metric.question.candidate.logs;
    past_nights
        .map(|night| night.logs.as_slice())
        .chain([candidate_logs.as_slice()])
        .filter(|logs| !logs.is_empty())
        .map(t_test::mean)
        .collect()
}

fn new_suspicion(
    answer: &Answer,
    metric: &NightlyMetric,
    policy: &Policy,
    family: usize,
    why: &[String],
) -> Suspicion {
    let change = answer.estimate.map_or(0.0, |estimate| estimate.log_change);
    let sigma = answer
        .estimate
        .and_then(|estimate| estimate.precision)
        .map_or(0.0, |precision| precision.sigma);
    let starts = [&metric.question.baseline, &metric.question.candidate];
    let df: usize = starts.iter().map(|side| side.logs.len().saturating_sub(1)).sum();
    // Without stored noise, the starts of this night give the noise.
    let measured = (df > 0).then(|| KnownNoise::from_sigma(sigma, df as f64));
    let noise = metric.question.noise.or(measured);
    Suspicion {
        loss: if is_loss(change, metric.question.better) {
            change.abs()
        } else {
            0.0
        },
        reasons: why.join("; "),
        starts: policy.fresh_starts(noise, family),
        noise,
    }
}

impl Policy {
    /// Returns the loss that screening would have suspected with probability [`POWER`].
    pub(crate) fn smallest_detectable_loss(&self, answer: &Answer) -> Option<f64> {
        answer.visible_loss_at_tail(self.suspicion * SHARE_PER_TEST)
    }

    /// Returns the number of fresh starts per side that decide among `family` metrics, for a known noise.
    /// They confirm a real loss and refute an unchanged metric.
    pub(crate) fn fresh_starts(&self, noise: Option<KnownNoise>, family: usize) -> usize {
        let min_starts = match noise {
            Some(noise) if noise.is_sufficient() => self.min_starts,
            _ => decision::MIN_STARTS_NOISE_UNKNOWN.max(self.min_starts),
        };
        let Some(noise) = noise else {
            return min_starts;
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
            let within = t_test::quantile(df, f64::midpoint(1.0, EQUIVALENCE_CONFIDENCE));
            let lucky = t_test::quantile(df, f64::midpoint(1.0, POWER));
            confirms && error * (within + lucky) <= bound
        };
        (min_starts..self.max_starts)
            .find(is_enough)
            .unwrap_or(self.max_starts.max(min_starts))
    }
}

/// Judges the fresh starts of the suspected losses, among `family` metrics, in their order.
pub(crate) fn confirm(questions: &[MetricQuestion], family: usize, policy: &Policy) -> Vec<Answer> {
    let options = DecisionOptions {
        bound: policy.bound,
        family,
    };
    decision::decide(questions, &options)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfirmationOutcome {
    Worse,
    Refuted,
    Undecided,
}

impl ConfirmationOutcome {
    pub(crate) const fn from_answer(answer: &Answer) -> Self {
        match answer.verdict() {
            Some(Verdict::Worse) => Self::Worse,
            Some(Verdict::Same | Verdict::Better) => Self::Refuted,
            Some(Verdict::Unclear) | None => Self::Undecided,
        }
    }
}

/// Returns whether a difference of logarithms is for the worse.
fn is_loss(change: f64, better: Direction) -> bool {
    match better {
        Direction::Higher => change < 0.0,
        Direction::Lower => change > 0.0,
    }
}

pub(crate) fn percent(difference: f64) -> String {
    format!("{:+.1} %", relative_change(difference) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::super::decision::{Design, Sample};
    use super::*;

    const FIRST: [f64; 5] = [0.0, 0.01, -0.01, 0.005, -0.005];

    fn nightly_metric(second: &[f64], better: Direction) -> NightlyMetric {
        let sample = |logs: &[f64]| Sample {
            logs: logs.to_vec(),
            ..Sample::default()
        };
        NightlyMetric {
            question: MetricQuestion {
                better,
                baseline: sample(&FIRST),
                candidate: sample(second),
                design: Design::Separate,
                noise: None,
                night_variance: None,
                no_verdict: None,
            },
            past_nights: Vec::new(),
        }
    }

    fn is_suspect(metric: NightlyMetric) -> bool {
        screen(&[metric], &Policy::with_bound(0.02))[0]
            .suspicion
            .is_some()
    }

    #[test]
    fn a_suspect_is_a_loss_beyond_bound_and_chance() {
        let moved = |by: f64| FIRST.map(|log| log + by);
        assert!(is_suspect(nightly_metric(&moved(-0.05), Direction::Higher)));
        assert!(!is_suspect(nightly_metric(&moved(0.05), Direction::Higher)));
        assert!(is_suspect(nightly_metric(&moved(0.05), Direction::Lower)));
        assert!(
            !is_suspect(nightly_metric(&moved(-0.015), Direction::Higher)),
            "within the bound"
        );
        assert!(
            is_suspect(nightly_metric(&[-0.05], Direction::Higher)),
            "one start is enough to suspect"
        );
    }

    #[test]
    fn what_nights_differ_by_is_no_suspicion() {
        let loss = FIRST.map(|log| log - 0.05);
        let night = |at: usize| PastNight {
            logs: FIRST
                .map(|log| log + [0.0, 0.03, -0.02, 0.04, -0.03][at % 5])
                .to_vec(),
            series: 0,
        };
        let restless = NightlyMetric {
            past_nights: (0..20).map(night).collect(),
            ..nightly_metric(&loss, Direction::Higher)
        };
        assert!(!is_suspect(restless));
    }

    #[test]
    fn noisier_metrics_need_more_starts_to_decide() {
        let policy = Policy::with_bound(0.02);
        let starts = |sigma| policy.fresh_starts(Some(KnownNoise { sigma, df: 9.0 }), 24);
        assert_eq!(starts(0.0001), policy.min_starts);
        assert!(
            starts(0.005) < starts(0.01) && starts(0.01) < starts(0.02),
            "{} {} {}",
            starts(0.005),
            starts(0.01),
            starts(0.02)
        );
        // Enough to refute as well: (1.73 + 1.73) · 0.01 · √(2/n) within ln 1.02.
        assert!((6..=8).contains(&starts(0.01)), "{}", starts(0.01));
        assert_eq!(starts(0.5), policy.max_starts);
        assert_eq!(policy.fresh_starts(None, 24), decision::MIN_STARTS_NOISE_UNKNOWN);
    }
}
