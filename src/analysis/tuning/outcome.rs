//! What a measurement says about the configuration that it tried.

use crate::analysis::graded::reference::pair;
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, Statistic, metric_value};
use crate::analysis::tune::TrialOutcome;
use crate::config::scenario::Scenario;
use crate::config::search::Tier;
use crate::config::tune::Objective;
use crate::results::record::cell::{
    AnswerStats, Definitions, FailureClass, MeasurementStatus, MeasurementSummary,
};
use crate::results::record::graded::GradedAnswers;
use crate::results::record::search::SearchStopReason;
use crate::results::record::validity::{ReasonCode, Verdict};

/// Share of requests that must meet the SLO of a load without a search.
const SLO_TARGET: f64 = 0.99;

/// How much the reported share of tokens may differ between two configurations.
const COUNT_TOLERANCE: f64 = 0.2;

/// The largest change of the logarithm of a figure between trials and fresh starts of one configuration.
const MOVED: f64 = 0.25;

/// A probability below which a single start's answers are worse than the default's: dozens of trials are compared.
const WORSE_ANSWERS: f64 = 0.002;

/// What a search maximises in the measurements of one scenario.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal<'a> {
    pub(crate) objective: Objective,
    pub(crate) scenario: &'a Scenario,
    /// Whether the engine has GPUs.
    pub(crate) has_gpus: bool,
}

/// A measured trial.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TrialFinding {
    pub(crate) outcome: TrialOutcome,
    /// Why it cannot win, or why nothing is known of it.
    pub(crate) reason: Option<String>,
}

impl TrialFinding {
    fn infeasible(reason: impl Into<String>) -> Self {
        Self {
            outcome: TrialOutcome::Infeasible,
            reason: Some(reason.into()),
        }
    }

    pub(crate) fn unknown(reason: impl Into<String>) -> Self {
        Self {
            outcome: TrialOutcome::Unknown,
            reason: Some(reason.into()),
        }
    }
}

/// Figures of a trial that the frontier shows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FrontierFigures {
    /// Output tokens per second and GPU; without GPUs for the engine as a whole.
    pub(crate) throughput_per_gpu: Option<f64>,
    /// Output tokens per second for one user while an answer streams.
    pub(crate) interactivity: Option<f64>,
    /// Median time to the first token in milliseconds.
    pub(crate) ttft_ms: Option<f64>,
}

impl Goal<'_> {
    /// The metric of a trial, of which more is better.
    ///
    /// # Errors
    /// The scenario does not have it.
    pub(crate) fn metric(&self) -> Result<Metric, String> {
        match (self.objective, &self.scenario.search) {
            (Objective::Capacity, Some(search)) => Ok(Metric::Found(search.by, Tier::FIRST)),
            (Objective::Capacity, None) => Err(format!(
                "`objective: capacity` needs a scenario with `search`, but the scenario `{}` has no `search`",
                self.scenario.name
            )),
            (Objective::Throughput, Some(_)) => Err(format!(
                "`objective: throughput` is not possible: the throughput of the scenario `{}` depends on the load that its `search` finds",
                self.scenario.name
            )),
            (Objective::Throughput, None) => Ok(Metric::Throughput(Quantity::Output)),
            (Objective::Energy, _) => Ok(Metric::PerEnergy(Quantity::Output)),
            (Objective::Cost, _) if self.has_gpus => Ok(Metric::PerDevice(Quantity::Output)),
            (Objective::Cost, _) => Ok(Metric::Throughput(Quantity::Output)),
        }
    }

    /// What a measurement found, given one of the default configuration: a figure counts only if tokens are counted alike, and the graded
    /// answers are no worse.
    pub(crate) fn finding(
        &self,
        summary: &MeasurementSummary,
        default: Option<&MeasurementSummary>,
    ) -> TrialFinding {
        let finding = self.own_finding(summary);
        match (&finding.outcome, default) {
            (TrialOutcome::Measured(_), Some(default)) => {
                why_unlike(summary, default).map_or(finding, TrialFinding::infeasible)
            }
            _ => finding,
        }
    }

    fn own_finding(&self, summary: &MeasurementSummary) -> TrialFinding {
        match &summary.status {
            MeasurementStatus::Done => self.finding_of_done(summary),
            MeasurementStatus::Failed {
                phase,
                class,
                reason,
                tail,
            } => {
                let reason = format!("failed in {}: {reason}{}", phase.name(), last_words(tail));
                match class {
                    FailureClass::Infrastructure | FailureClass::Client | FailureClass::Image => {
                        TrialFinding::unknown(reason)
                    }
                    FailureClass::Engine
                    | FailureClass::Capacity
                    | FailureClass::Spec
                    | FailureClass::Validity => TrialFinding::infeasible(reason),
                }
            }
            MeasurementStatus::Skipped { reason } => TrialFinding::unknown(format!("skipped: {reason}")),
            MeasurementStatus::Interrupted => TrialFinding::unknown("interrupted"),
        }
    }

    fn finding_of_done(&self, summary: &MeasurementSummary) -> TrialFinding {
        let reasons = summary.validity.iter().flat_map(|validity| &validity.reasons);
        let invalid: Vec<_> = reasons
            .filter(|reason| reason.weight == Verdict::Invalid)
            .collect();
        if !invalid.is_empty() {
            let mut codes: Vec<&str> = invalid.iter().map(|reason| reason.code.name()).collect();
            codes.dedup();
            let text = format!("invalid: {}", codes.join(", "));
            // What something else on the host caused says nothing about the configuration.
            return match invalid.iter().all(|reason| reason.code.is_disturbance()) {
                true => TrialFinding::unknown(text),
                false => TrialFinding::infeasible(text),
            };
        }
        if let Some(finding) = self.missed_slo(summary) {
            return finding;
        }
        let metric = match self.metric() {
            Ok(metric) => metric,
            Err(why) => return TrialFinding::unknown(why),
        };
        match figure(summary, metric).filter(|value| *value > 0.0) {
            Some(value) => TrialFinding {
                outcome: TrialOutcome::Measured(value),
                reason: None,
            },
            None => TrialFinding::unknown(format!("{} is not known", metric.label())),
        }
    }

    /// Why a measurement misses the SLO that the objective needs; `None` if it does not, or if that is not shown.
    pub(crate) fn why_slo_missed(&self, summary: &MeasurementSummary) -> Option<String> {
        let finding = self.missed_slo(summary)?;
        finding
            .reason
            .filter(|_| finding.outcome == TrialOutcome::Infeasible)
    }

    /// What it says that no load was found to meet the SLO, or that too few requests of the load met it.
    fn missed_slo(&self, summary: &MeasurementSummary) -> Option<TrialFinding> {
        if self.scenario.search.is_some() {
            return match &summary.search {
                Some(search) if search.found.is_some() => None,
                Some(search) if search.ending == SearchStopReason::NoneHeld => {
                    Some(TrialFinding::infeasible("no load met the SLO"))
                }
                _ => Some(TrialFinding::unknown(
                    "it is unknown whether any load meets the SLO; more `prompts` may decide this",
                )),
            };
        }
        let is_under_slo = matches!(self.objective, Objective::Energy | Objective::Cost);
        let attainment = figure(summary, Metric::Attainment).filter(|_| is_under_slo)?;
        (self.scenario.slo.is_some() && attainment < SLO_TARGET).then(|| {
            TrialFinding::infeasible(format!(
                "only {:.1} % of the requests met the SLO, but {:.0} % are required",
                100.0 * attainment,
                100.0 * SLO_TARGET
            ))
        })
    }

    pub(crate) fn frontier_figures(&self, summary: &MeasurementSummary) -> FrontierFigures {
        let throughput = match self.has_gpus {
            true => Metric::PerDevice(Quantity::Output),
            false => Metric::Throughput(Quantity::Output),
        };
        FrontierFigures {
            throughput_per_gpu: figure(summary, throughput),
            interactivity: figure(summary, Metric::Interactivity),
            ttft_ms: figure(summary, Metric::Time(Statistic::Median, LatencyKind::Ttft)),
        }
    }
}

/// Why the figure of a configuration is another one than that of the default; `None` if it is the same.
pub(crate) fn why_unlike(summary: &MeasurementSummary, default: &MeasurementSummary) -> Option<String> {
    counted_otherwise(summary, default)
        .or_else(|| worse_answers(summary.graded.as_ref()?, default.graded.as_ref()?))
}

/// Whether the figure of fresh starts is so far from that of the trials of the same configuration that something else changed.
pub(crate) fn has_moved(trials: f64, fresh: f64) -> bool {
    (fresh / trials).ln().abs() > MOVED
}

/// How tokens are counted otherwise than with the default; `None` if they are counted alike.
fn counted_otherwise(summary: &MeasurementSummary, default: &MeasurementSummary) -> Option<String> {
    if has_uncounted_tokens(summary) != has_uncounted_tokens(default) {
        return Some("with this configuration, output tokens are not counted in the same way as with the default (`tokens-uncounted` or `tokens-disagree` on one side)".to_owned());
    }
    let prompts = |answers: &AnswerStats| (answers.reported_prompt_tokens, answers.prompt_tokens);
    let outputs = |answers: &AnswerStats| (answers.reported_tokens, answers.counted_tokens);
    let unlike = |what: &str, tokens: &dyn Fn(&AnswerStats) -> (u64, u64)| {
        let [own, of_default] = [summary, default].map(|side| reported_share(side, tokens));
        let is_alike = match (own, of_default) {
            (Some(own), Some(of_default)) => (own / of_default - 1.0).abs() <= COUNT_TOLERANCE,
            _ => own.is_some() == of_default.is_some(),
        };
        let [own, of_default] = [own, of_default].map(|share| match share {
            Some(share) => format!("{:.0} %", 100.0 * share),
            None => "none".to_owned(),
        });
        (!is_alike).then(|| {
            format!(
                "with this configuration, the engine counts {what} tokens differently than with the default: its count is {own} of our own count, but {of_default} of it with the default"
            )
        })
    };
    unlike("prompt", &prompts).or_else(|| unlike("output", &outputs))
}

/// The tokens that the server reported as a share of our own count; `None` if it reported none.
fn reported_share(summary: &MeasurementSummary, tokens: &dyn Fn(&AnswerStats) -> (u64, u64)) -> Option<f64> {
    let (reported, own) = tokens(&summary.answers?);
    (own > 0 && reported > 0).then(|| reported as f64 / own as f64)
}

/// The task whose answers are worse than those of the default, with the counts.
fn worse_answers(own: &GradedAnswers, of_default: &GradedAnswers) -> Option<String> {
    own.tasks.iter().find_map(|score| {
        let paired = pair(&[own], &[of_default], &score.task).ok()?;
        (paired.p_worse() <= WORSE_ANSWERS).then(|| {
            format!(
                "with this configuration, answers to {} are worse than with the default: of {} items, {} are answered worse and {} better",
                score.task,
                paired.items,
                paired.lost(),
                paired.gained()
            )
        })
    })
}

/// Whether the server's count of output tokens is missing or wrong, so that tokens are counted in another way.
fn has_uncounted_tokens(summary: &MeasurementSummary) -> bool {
    let mut reasons = summary.validity.iter().flat_map(|validity| &validity.reasons);
    reasons.any(|reason| {
        matches!(
            reason.code,
            ReasonCode::TokensUncounted | ReasonCode::TokensDisagree
        )
    })
}

/// The line of the engine's log that names an error, otherwise the last one.
fn last_words(tail: &[String]) -> String {
    let is_error = |line: &&String| line.to_ascii_lowercase().contains("error");
    let line = tail.iter().rev().find(is_error);
    let line = line.or_else(|| tail.iter().rev().find(|line| !line.trim().is_empty()));
    line.map_or_else(String::new, |line| format!(" (its log: {})", line.trim()))
}

fn figure(summary: &MeasurementSummary, metric: Metric) -> Option<f64> {
    metric_value(summary.figures.get(&Definitions::Matrix)?, metric)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::validity::new_reason;
    use crate::base::ids::ContentHash;
    use crate::config::scenario::Slo;
    use crate::results::record::cell::Phase;
    use crate::results::record::graded::TaskScore;
    use crate::results::record::validity::{Reason, ReasonCode, Validity};
    use crate::results::store::testing;

    fn goal(objective: Objective, scenario: &Scenario) -> Goal<'_> {
        Goal {
            objective,
            scenario,
            has_gpus: false,
        }
    }

    fn summary(throughput: Option<f64>) -> MeasurementSummary {
        let mut summary = testing::summary(&testing::plan().cells[0]);
        let name = Metric::Throughput(Quantity::Output).name();
        summary.validity = None;
        let figures = [(name, throughput)].into_iter().collect();
        summary.figures = [(Definitions::Matrix, figures)].into_iter().collect();
        summary
    }

    #[test]
    fn a_crash_counts_against_the_configuration_and_a_fault_of_the_host_does_not() {
        let plan = testing::plan();
        let goal = goal(Objective::Throughput, &plan.cells[0].scenario);
        let failed = |class| {
            let mut summary = summary(None);
            summary.status = MeasurementStatus::Failed {
                phase: Phase::Launch,
                class,
                reason: "it ended".to_owned(),
                tail: Vec::new(),
            };
            goal.finding(&summary, None).outcome
        };
        for class in [FailureClass::Engine, FailureClass::Capacity, FailureClass::Spec] {
            assert_eq!(failed(class), TrialOutcome::Infeasible);
        }
        for class in [
            FailureClass::Infrastructure,
            FailureClass::Client,
            FailureClass::Image,
        ] {
            assert_eq!(failed(class), TrialOutcome::Unknown);
        }
    }

    #[test]
    fn a_figure_is_measured_and_one_that_is_missing_or_zero_is_unknown() {
        let plan = testing::plan();
        let goal = goal(Objective::Throughput, &plan.cells[0].scenario);
        assert_eq!(
            goal.finding(&summary(Some(7.0)), None).outcome,
            TrialOutcome::Measured(7.0)
        );
        for value in [None, Some(0.0)] {
            assert_eq!(goal.finding(&summary(value), None).outcome, TrialOutcome::Unknown);
        }
    }

    #[test]
    fn wrong_answers_cannot_win_and_a_disturbed_measurement_says_nothing() {
        let plan = testing::plan();
        let goal = goal(Objective::Throughput, &plan.cells[0].scenario);
        let invalid = |codes: &[ReasonCode]| {
            let mut summary = summary(Some(7.0));
            let reason = |code: &ReasonCode| Reason {
                weight: Verdict::Invalid,
                ..new_reason(*code, String::new(), None)
            };
            summary.validity = Some(Validity::from_reasons(codes.iter().map(reason).collect()));
            goal.finding(&summary, None).outcome
        };
        assert_eq!(
            invalid(&[ReasonCode::AnswersWrongUnderLoad]),
            TrialOutcome::Infeasible
        );
        assert_eq!(invalid(&[ReasonCode::HostBusy]), TrialOutcome::Unknown);
        let both = [ReasonCode::HostBusy, ReasonCode::AnswersWrongUnderLoad];
        assert_eq!(invalid(&both), TrialOutcome::Infeasible);
    }

    #[test]
    fn energy_and_cost_count_only_within_the_slo() {
        let plan = testing::plan();
        let mut scenario = plan.cells[0].scenario.clone();
        let with_attainment = |share: f64| {
            let mut summary = summary(Some(7.0));
            let figures = summary.figures.get_mut(&Definitions::Matrix).unwrap();
            figures.insert(Metric::Attainment.name(), Some(share));
            summary
        };
        scenario.slo = None;
        let finding = goal(Objective::Cost, &scenario).finding(&with_attainment(0.5), None);
        assert_eq!(finding.outcome, TrialOutcome::Measured(7.0));
        scenario.slo = Some(Slo::default());
        for (share, outcome) in [
            (0.98, TrialOutcome::Infeasible),
            (0.99, TrialOutcome::Measured(7.0)),
        ] {
            let finding = goal(Objective::Cost, &scenario).finding(&with_attainment(share), None);
            assert_eq!(finding.outcome, outcome, "{share}");
            let missed = goal(Objective::Cost, &scenario).why_slo_missed(&with_attainment(share));
            assert_eq!(missed.is_some(), outcome == TrialOutcome::Infeasible, "{share}");
        }
    }

    /// Graded answers of one task, of which the first ones are right.
    fn graded_answers(right: usize, items: usize) -> GradedAnswers {
        let score = TaskScore {
            task: "copy".to_owned(),
            items: items as u32,
            correct: right as u32,
            outcomes: "1".repeat(right) + &"0".repeat(items - right),
            items_hash: Some(ContentHash::from_bytes(b"items")),
            ..TaskScore::default()
        };
        GradedAnswers {
            tasks: vec![score],
            probes: None,
            concurrency: None,
            load_s: 1.0,
            alone_s: 1.0,
        }
    }

    #[test]
    fn a_figure_with_other_prompt_tokens_than_the_default_cannot_win() {
        let plan = testing::plan();
        let goal = goal(Objective::Throughput, &plan.cells[0].scenario);
        let counted = |reported: Option<u64>| {
            let mut summary = summary(Some(7.0));
            summary.answers = reported.map(|reported| AnswerStats {
                prompts: 10,
                prompt_tokens: 1000,
                reported_prompt_tokens: reported,
                ..AnswerStats::default()
            });
            summary
        };
        for (own, of_default, is_alike) in [
            (Some(1000), Some(1000), true),
            (Some(1050), Some(1000), true),
            (Some(500), Some(1000), false),
            (None, Some(1000), false),
            (Some(1000), None, false),
            (None, None, true),
        ] {
            let finding = goal.finding(&counted(own), Some(&counted(of_default)));
            let expected = match is_alike {
                true => TrialOutcome::Measured(7.0),
                false => TrialOutcome::Infeasible,
            };
            assert_eq!(finding.outcome, expected, "{own:?} {of_default:?} {finding:?}");
        }
    }

    #[test]
    fn worse_answers_than_those_of_the_default_cannot_win_whatever_the_number_of_starts() {
        let plan = testing::plan();
        let goal = goal(Objective::Throughput, &plan.cells[0].scenario);
        let graded = |right: usize| {
            let mut summary = summary(Some(7.0));
            summary.graded = Some(graded_answers(right, 40));
            summary
        };
        let outcome = |own| goal.finding(&graded(own), Some(&graded(40))).outcome;
        assert_eq!(outcome(39), TrialOutcome::Measured(7.0));
        assert_eq!(outcome(20), TrialOutcome::Infeasible);
    }

    #[test]
    fn a_figure_that_halves_after_the_trials_has_moved_and_one_that_varies_has_not() {
        assert!(has_moved(1739.5, 701.0));
        assert!(has_moved(701.0, 1739.5));
        assert!(!has_moved(100.0, 85.0));
        assert!(!has_moved(100.0, 115.0));
    }

    #[test]
    fn an_objective_that_the_scenario_lacks_is_refused() {
        let plan = testing::plan();
        let scenario = &plan.cells[0].scenario;
        let error = goal(Objective::Capacity, scenario).metric().unwrap_err();
        assert!(error.contains("has no `search`"), "{error}");
        assert!(goal(Objective::Cost, scenario).metric().is_ok());
    }
}
