//! Result of the screening of a nightly run: suspected losses, and metrics that may hide a loss.

use super::findings::new_finding;
use crate::analysis::compare::between::{self, NightVariance};
use crate::analysis::compare::decision::{
    Answer, EQUIVALENCE_CONFIDENCE, KnownNoise, MetricQuestion, NoVerdict,
};
use crate::analysis::compare::gate_policy::Policy;
use crate::analysis::compare::pairwise::row::Row;
use crate::analysis::compare::question;
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::results::record::cell_stats::{CellStats, Facts};
use crate::results::record::nightly::{Finding, FindingKind, JudgedCounts};

/// Result of the screening of a nightly run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ScreenResult {
    /// Size of the family of tests: gating metrics that could be judged or were suspected.
    pub(crate) family: usize,
    pub(crate) suspects: Vec<SuspectedLoss>,
    /// Findings that need no fresh starts.
    pub(crate) findings: Vec<Finding>,
    /// Number of gating metrics of the baseline and of the night.
    pub(crate) metrics: usize,
    /// Number of metrics with a verdict without fresh starts.
    pub(crate) judged_metrics: usize,
    /// Judged metrics that may hide a loss.
    pub(crate) unclear: UnclearMetrics,
    /// Every gating metric of every pair, as this screening answers it.
    pub(crate) rows: Vec<Row>,
}

/// What a nightly run decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NightVerdicts {
    pub(crate) findings: Vec<Finding>,
    pub(crate) judged: JudgedCounts,
    /// Every gating metric of every pair.
    pub(crate) rows: Vec<Row>,
}

/// Number of metrics that may hide a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct UnclearMetrics {
    pub(super) metrics: usize,
    /// The largest of their smallest visible losses, as a share.
    pub(super) smallest_detectable_loss: Option<f64>,
}

impl UnclearMetrics {
    /// Adds an answer and returns a finding if it may hide a loss of the size that must be found. `visible`
    /// is its smallest visible loss.
    pub(super) fn take(
        &mut self,
        cell: &CellKey,
        metric: Metric,
        answer: &Answer,
        policy: &Policy,
        visible: Option<f64>,
    ) -> Option<Finding> {
        if !answer.may_hide(policy.loss) {
            return None;
        }
        self.metrics += 1;
        self.smallest_detectable_loss = [self.smallest_detectable_loss, visible]
            .into_iter()
            .flatten()
            .reduce(f64::max);
        let estimate = answer.estimate?;
        let interval = estimate.interval(EQUIVALENCE_CONFIDENCE)?;
        let share = |share: f64| format!("{:+.1} %", share * 100.0);
        let visible_note = visible.map_or_else(String::new, |loss| {
            format!(
                "; this nightly run would have detected a loss of {:.1} % or more",
                loss * 100.0
            )
        });
        let text = format!(
            "{} changed by {} (90 % interval {} to {}), which may hide a loss of {:.1} %{visible_note}",
            metric.label(),
            share(estimate.change()),
            share(interval.low),
            share(interval.high),
            policy.loss * 100.0,
        );
        Some(new_finding(FindingKind::Unclear, Some(cell), Some(metric), text))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SuspectedLoss {
    pub(crate) cell: CellKey,
    pub(crate) baseline: CellKey,
    pub(crate) metric: Metric,
    /// The hosts that measured the candidate in this night.
    pub(crate) hosts: Vec<Facts>,
    /// Fresh starts per side that decide.
    pub(crate) starts: u32,
    /// Loss in this night, as a difference of logarithms above zero. 0 if only the series raised the
    /// suspicion.
    pub(crate) loss: f64,
    pub(crate) reasons: String,
    /// Remarks for the finding, as the end of a sentence.
    pub(crate) remarks: String,
    pub(crate) noise: Option<KnownNoise>,
    /// The question of the night's own starts, for a candidate whose baseline cannot be started.
    pub(super) question: MetricQuestion,
    pub(super) night_variance: Option<NightVariance>,
}

#[cfg(test)]
impl SuspectedLoss {
    /// Returns a suspected loss of this size, which needs this number of starts.
    pub(crate) fn for_tests(cell: &str, starts: u32, loss: f64) -> Self {
        use crate::analysis::compare::decision;

        let sample = |logs: &[f64]| decision::Sample {
            logs: logs.to_vec(),
            ..decision::Sample::default()
        };
        Self {
            cell: CellKey::new(cell),
            baseline: CellKey::new(cell),
            metric: Metric::Throughput(crate::analysis::metrics::Quantity::Output),
            hosts: Vec::new(),
            starts,
            loss,
            reasons: "-6.0 % against the baseline".to_owned(),
            remarks: String::new(),
            noise: None,
            question: MetricQuestion {
                better: crate::analysis::metrics::Direction::Higher,
                baseline: sample(&[0.0, 0.005, -0.005]),
                candidate: sample(&[-loss; 3]),
                design: decision::Design::Separate,
                noise: None,
                night_variance: None,
                no_verdict: None,
            },
            night_variance: None,
        }
    }
}

impl SuspectedLoss {
    /// Builds the question that compares the candidate's fresh starts with the starts of the baseline, which
    /// was measured on another night.
    pub(super) fn candidate_question(&self, fresh: &MetricQuestion) -> MetricQuestion {
        let between = self
            .night_variance
            .and_then(|between| between::variance_of_difference(between.upper_bound));
        let gap = match self.night_variance {
            Some(_) => fresh.no_verdict.clone(),
            None => Some(NoVerdict::Missing(
                "five earlier nightly runs are needed to know how much nightly runs differ from each other"
                    .to_owned(),
            )),
        };
        MetricQuestion {
            night_variance: between,
            no_verdict: gap,
            ..fresh.clone()
        }
    }

    /// Returns the question with these fresh starts of the candidate.
    pub(crate) fn compare_to(&self, fresh: &CellStats) -> MetricQuestion {
        match question::cell_sample(fresh, self.metric) {
            Ok(candidate) => MetricQuestion {
                candidate,
                noise: self.noise,
                ..self.question.clone()
            },
            Err(why) => MetricQuestion {
                no_verdict: Some(NoVerdict::Missing(why)),
                ..self.question.clone()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::compare::between::PastNight;
    use crate::analysis::compare::decision::{Design, Sample};
    use crate::analysis::compare::gate_policy::{self, NightlyMetric};

    #[test]
    fn what_a_night_cannot_show_is_told_with_the_loss_that_it_could() {
        let policy = Policy::with_bound(0.02);
        let screen_unclear = |night_sigma: f64| {
            let night = |at: usize| PastNight {
                logs: vec![[0.0, 1.0, -1.0, 0.5, -0.5][at % 5] * night_sigma; 5],
                series: 0,
            };
            let sample = |log: f64| Sample {
                logs: vec![log - 0.005, log, log + 0.005, log - 0.003, log + 0.003],
                ..Sample::default()
            };
            let nightly_metric = NightlyMetric {
                question: MetricQuestion {
                    baseline: sample(0.0),
                    candidate: sample(-0.03),
                    design: Design::Separate,
                    noise: None,
                    ..SuspectedLoss::for_tests("a", 3, 0.06).question
                },
                past_nights: (0..20).map(night).collect(),
            };
            let screened = gate_policy::screen(&[nightly_metric], &policy).remove(0);
            assert!(screened.suspicion.is_none(), "{screened:?}");
            let mut unclear = UnclearMetrics::default();
            let visible = policy.smallest_detectable_loss(&screened.answer);
            let output = Metric::Throughput(crate::analysis::metrics::Quantity::Output);
            let finding = unclear.take(&CellKey::new("a"), output, &screened.answer, &policy, visible);
            (finding, unclear)
        };
        let (finding, unclear) = screen_unclear(0.03);
        let finding = finding.expect("a loss of 5 % may hide");
        assert_eq!((finding.kind, unclear.metrics), (FindingKind::Unclear, 1));
        assert!(
            finding
                .text
                .contains("may hide a loss of 5.0 %; this nightly run would have detected a loss of 1"),
            "{}",
            finding.text
        );
        assert!(
            unclear.smallest_detectable_loss.is_some_and(|loss| loss > 0.1),
            "{unclear:?}"
        );
    }
}
