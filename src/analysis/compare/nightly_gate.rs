//! Compares a nightly run with the baseline: suspected losses, confirmations and other findings.

use std::collections::{BTreeMap, BTreeSet};

use super::between::{self, NightVariance, PastNight};
use super::confirmation_budget::Allotment;
use super::decision::{Answer, EQUIVALENCE_CONFIDENCE, KnownNoise, NoVerdict, Question};
use super::environment_diff::{self, Difference, DifferenceKind};
use super::gate_policy::{self, ConfirmationOutcome, NightlyMetric, Policy, ScreenedMetric};
use super::verdict::Verdict;
use super::{gates, machines, pairwise, question, reliability, stored, verdict};
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::results::record::cell_stats::{CellStats, ExcludedMeasurement, ExclusionCause, Noise, RunStats};
use crate::results::record::nightly::{Finding, FindingKind, JudgedCounts, NightlyCell, NightlyRun};

/// Result of the screening of a nightly run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ScreenResult {
    /// Size of the family of tests: gating metrics that could be judged or were suspected.
    pub family: usize,
    pub suspects: Vec<SuspectedLoss>,
    /// Findings that need no fresh starts.
    pub findings: Vec<Finding>,
    /// Number of gating metrics of the baseline and of the night.
    pub metrics: usize,
    /// Number of metrics with a verdict without fresh starts.
    pub judged_metrics: usize,
    /// Judged metrics that may hide a loss.
    pub unclear: UnclearMetrics,
}

impl ScreenResult {
    fn add_metric(
        &mut self,
        pair: &CellPair<'_>,
        metric: Metric,
        question: Question,
        screened: ScreenedMetric,
        policy: &Policy,
    ) {
        let verdict = screened.answer.verdict();
        match (screened.suspicion, screened.answer.outcome.no_verdict()) {
            (Some(suspicion), _) => self.suspects.push(SuspectedLoss {
                cell: pair.key.clone(),
                baseline: pair.baseline.clone(),
                metric,
                starts: u32::try_from(suspicion.starts).unwrap_or(u32::MAX),
                loss: suspicion.loss,
                reasons: suspicion.reasons,
                remarks: remarks(pair.baseline_cell, pair.candidate_cell, metric),
                noise: suspicion.noise,
                question,
                night_variance: screened.night_variance,
            }),
            // Failures are reported separately.
            (None, Some(_)) if pair.candidate_cell.exclusion().is_some() => {}
            (None, Some(gap)) => self.findings.push(new_finding(
                FindingKind::NotJudged,
                Some(pair.key),
                Some(metric),
                gap.reason(),
            )),
            (None, None) => {
                self.judged_metrics += 1;
                let visible = policy.visible_loss(&screened.answer);
                let unclear = self
                    .unclear
                    .take(pair.key, metric, &screened.answer, policy, visible);
                self.findings.extend(unclear);
                if verdict == Some(Verdict::Better) && screened.night_variance.is_some() {
                    let text = format!("{}: {}", metric.label(), screened.answer.reason());
                    self.findings.push(new_finding(
                        FindingKind::Better,
                        Some(pair.key),
                        Some(metric),
                        text,
                    ));
                }
            }
        }
    }
}

/// Number of metrics that may hide a loss.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct UnclearMetrics {
    metrics: usize,
    /// The largest of their smallest visible losses, as a share.
    visible_loss: Option<f64>,
}

impl UnclearMetrics {
    /// Adds an answer and returns a finding if it may hide a loss of the size that must be found. `visible`
    /// is its smallest visible loss.
    fn take(
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
        self.visible_loss = [self.visible_loss, visible]
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
            "{} {}, 90 % interval {} to {}, may hide a loss of {:.1} %{visible_note}",
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
    pub cell: CellKey,
    pub baseline: CellKey,
    pub metric: Metric,
    /// Fresh starts per side that decide.
    pub starts: u32,
    /// Loss in this night, as a difference of logarithms above zero. 0 if only the series raised the
    /// suspicion.
    pub loss: f64,
    pub reasons: String,
    /// Remarks for the finding, as the end of a sentence.
    pub remarks: String,
    pub noise: Option<KnownNoise>,
    /// The question of the night's own starts, for a candidate whose baseline cannot be started.
    question: Question,
    night_variance: Option<NightVariance>,
}

#[cfg(test)]
impl SuspectedLoss {
    /// Returns a suspected loss of this size, which needs this number of starts.
    pub(super) fn for_tests(cell: &str, starts: u32, loss: f64) -> Self {
        let sample = |logs: &[f64]| super::decision::Sample {
            logs: logs.to_vec(),
            ..super::decision::Sample::default()
        };
        Self {
            cell: CellKey::new(cell),
            baseline: CellKey::new(cell),
            metric: Metric::Throughput(crate::analysis::metrics::Quantity::Output),
            starts,
            loss,
            reasons: "-6.0 % against the baseline".to_owned(),
            remarks: String::new(),
            noise: None,
            question: Question {
                better: crate::analysis::metrics::Direction::Higher,
                baseline: sample(&[0.0, 0.005, -0.005]),
                candidate: sample(&[-loss; 3]),
                design: super::decision::Design::Separate,
                noise: None,
                night_variance: None,
                no_verdict: None,
            },
            night_variance: None,
        }
    }
}

pub(super) fn new_finding(
    kind: FindingKind,
    cell: Option<&CellKey>,
    metric: Option<Metric>,
    text: impl Into<String>,
) -> Finding {
    Finding {
        kind,
        cell: cell.cloned(),
        figure: metric.map(Metric::name),
        text: text.into(),
    }
}

/// Two cells that form a pair, and the reason that they cannot be judged, if any.
pub(super) struct CellPair<'a> {
    pub(super) key: &'a CellKey,
    pub(super) baseline: &'a CellKey,
    pub(super) baseline_cell: &'a CellStats,
    pub(super) candidate_cell: &'a CellStats,
    pub(super) no_verdict: Option<NoVerdict>,
}

/// Computes what is known before any metric is compared: findings, pairs of cells, and the number of gating
/// metrics.
pub(super) fn pair_cells<'a>(
    baseline: &'a RunStats,
    candidate_run: &'a RunStats,
) -> (ScreenResult, Vec<CellPair<'a>>) {
    let mut screen_result = ScreenResult::default();
    let events = environment_diff::side_differences(baseline, candidate_run);
    let events: Vec<&Difference> = events
        .iter()
        .filter(|event| event.kind == DifferenceKind::Environment)
        .collect();
    for event in &events {
        let text = format!("{}; no verdicts until `matrix baseline accept`", event.in_words());
        screen_result
            .findings
            .push(new_finding(FindingKind::Environment, None, None, text));
    }
    screen_result.findings.extend(failure_findings(candidate_run));
    let matched = pairwise::match_cells(baseline, candidate_run);
    screen_result
        .findings
        .extend(reliability::failures(&matched).into_iter().map(|failure| {
            let kind = match failure.is_regression {
                true => FindingKind::Worse,
                false => FindingKind::Unclear,
            };
            new_finding(kind, Some(&failure.cell), None, failure.text)
        }));
    let is_new = |key: &CellKey| !matched.iter().any(|(paired, ..)| *paired == key);
    for (key, cell) in candidate_run.cells.iter().filter(|(key, _)| is_new(key)) {
        screen_result.metrics += cell.gates.len();
        if cell.exclusion().is_none() {
            let text = "the cell is not in the baseline; `matrix baseline accept` adds it";
            screen_result
                .findings
                .push(new_finding(FindingKind::NotJudged, Some(key), None, text));
        }
    }
    let is_lost = |cell: &CellStats| !matched.iter().any(|(_, paired, _)| std::ptr::eq(*paired, cell));
    for (key, cell) in baseline.cells.iter().filter(|(_, cell)| is_lost(cell)) {
        screen_result.metrics += cell.gates.len();
        let text = "the cell is in the baseline, but was not measured; `matrix baseline accept` removes it";
        screen_result
            .findings
            .push(new_finding(FindingKind::Missing, Some(key), None, text));
    }
    let of_baseline = |baseline_cell: &CellStats| {
        let entry = baseline
            .cells
            .iter()
            .find(|(_, cell)| std::ptr::eq(*cell, baseline_cell));
        entry.map(|(key, _)| key)
    };
    let pairs: Vec<CellPair<'a>> = matched
        .iter()
        .map(|(key, baseline_cell, candidate_cell)| CellPair {
            key,
            baseline: of_baseline(baseline_cell).unwrap_or(key),
            baseline_cell,
            candidate_cell,
            no_verdict: forbidden_reason(baseline_cell, candidate_cell, &events),
        })
        .collect();
    screen_result.metrics += pairs
        .iter()
        .map(|pair| pair.candidate_cell.gates.len())
        .sum::<usize>();
    (screen_result, pairs)
}

/// Screens every gating metric of `tonight` against the baseline and earlier nights.
pub(crate) fn screen(
    baseline: &RunStats,
    candidate_run: &RunStats,
    nights: &[NightlyRun],
    noise: Option<&Noise>,
    policy: &Policy,
) -> ScreenResult {
    let (mut screen_result, pairs) = pair_cells(baseline, candidate_run);
    let mut metric_questions = Vec::new();
    for pair in &pairs {
        for metric in pair
            .candidate_cell
            .gates
            .iter()
            .filter_map(|name| Metric::from_name(name))
        {
            let metric = gates::pair_metric(metric, pair.baseline_cell, pair.candidate_cell);
            let known_noise = noise.and_then(|noise| stored::known_noise(noise, pair.key, &metric.name()));
            let mut question =
                question::cell_question(pair.baseline_cell, pair.candidate_cell, metric, known_noise);
            question.no_verdict = question.no_verdict.or_else(|| pair.no_verdict.clone());
            let nights_before = past_nights(nights, baseline, candidate_run, pair.key, metric);
            metric_questions.push((
                pair,
                metric,
                NightlyMetric {
                    question,
                    past_nights: nights_before,
                },
            ));
        }
    }
    let questions: Vec<NightlyMetric> = metric_questions
        .iter()
        .map(|(.., metric_questions)| metric_questions.clone())
        .collect();
    let screened = gate_policy::screen(&questions, policy);
    screen_result.family = screened
        .iter()
        .filter(|screened_metric| screened_metric.is_tested())
        .count();
    for ((pair, metric, metric_questions), screened) in metric_questions.into_iter().zip(screened) {
        screen_result.add_metric(pair, metric, metric_questions.question, screened, policy);
    }
    screen_result
}

/// Returns the findings about failed and invalid cells, whatever they are compared with. Cells with some
/// valid starts are included.
pub(crate) fn failure_findings(candidate_run: &RunStats) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (key, cell) in &candidate_run.cells {
        if let Some((cause, reason)) = cell.exclusion() {
            let kind = match cause {
                ExclusionCause::NotMeasured => FindingKind::Missing,
                ExclusionCause::Failed => FindingKind::Failed,
                ExclusionCause::Invalid => FindingKind::Invalid,
            };
            findings.push(new_finding(kind, Some(key), None, reason));
            continue;
        }
        for (cause, kind) in [
            (ExclusionCause::NotMeasured, FindingKind::Missing),
            (ExclusionCause::Failed, FindingKind::Failed),
            (ExclusionCause::Invalid, FindingKind::Invalid),
        ] {
            let of_cause: Vec<&ExcludedMeasurement> = cell
                .excluded
                .iter()
                .filter(|excluded| excluded.cause == cause)
                .collect();
            let starts: BTreeSet<u32> = of_cause.iter().map(|excluded| excluded.start).collect();
            if let Some(first) = of_cause.first() {
                let text = format!("{} of its starts, the first: {}", starts.len(), first.reason);
                findings.push(new_finding(kind, Some(key), None, text));
            }
        }
    }
    findings
}

/// Says why a pair cannot be judged, whatever its metrics are.
fn forbidden_reason(
    baseline_cell: &CellStats,
    candidate_cell: &CellStats,
    events: &[&Difference],
) -> Option<NoVerdict> {
    if let Some((cause, reason)) = baseline_cell.exclusion() {
        let why = format!(
            "the baseline has no valid measurement of this cell: {}: {reason}",
            cause.name()
        );
        return Some(NoVerdict::Missing(why));
    }
    let own = environment_diff::cell_differences(baseline_cell, candidate_cell);
    let of_cell = own.iter().filter(|difference| difference.kind.forbids_verdict());
    let events_in_words: Vec<String> = events
        .iter()
        .copied()
        .chain(of_cell)
        .map(Difference::in_words)
        .collect();
    match events_in_words.is_empty() {
        false => Some(NoVerdict::NotComparable(events_in_words.join("; "))),
        true => {
            environment_diff::unknown_difference(baseline_cell, candidate_cell).map(NoVerdict::NotComparable)
        }
    }
}

/// Returns the metric on earlier nights with the same machine and prompts. Nights on which it was found worse
/// are left out. Series 0 is that of the present baseline.
fn past_nights(
    nights: &[NightlyRun],
    baseline: &RunStats,
    candidate_run: &RunStats,
    key: &CellKey,
    metric: Metric,
) -> Vec<PastNight> {
    let Some(cell) = candidate_run.cells.get(key) else {
        return Vec::new();
    };
    let name = metric.name();
    let is_loss = |finding: &Finding| {
        finding.kind == FindingKind::Worse
            && finding.cell.as_ref() == Some(key)
            && finding.figure.as_ref().is_none_or(|figure| *figure == name)
    };
    let alike = nights.iter().filter(|night| {
        night.matrix == candidate_run.matrix
            && machines::are_noise_compatible(&night.machine, &candidate_run.machine)
            && !night.findings.iter().any(is_loss)
    });
    let mut baselines = vec![Some(&baseline.run)];
    let of_night = |night: &&NightlyRun| {
        let night_cell = night.cells.get(key)?;
        let logs = verdict::logs(night_cell.figures.get(&name)?)?;
        (night_cell.prompts == cell.prompts).then_some(logs)
    };
    let mut nights_before = Vec::new();
    for (night, logs) in alike.filter_map(|night| Some((night, of_night(&night)?))) {
        let baseline_of_night = night.baseline.as_ref();
        let series = baselines
            .iter()
            .position(|known_baseline| *known_baseline == baseline_of_night)
            .unwrap_or_else(|| {
                baselines.push(baseline_of_night);
                baselines.len() - 1
            });
        nights_before.push(PastNight { logs, series });
    }
    nights_before
}

/// The fresh starts of a suspected loss.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FreshStarts {
    /// Baseline and candidate alternated.
    Alternating(Question),
    /// Only the candidate could be started. Holds its fresh starts, and the reason.
    CandidateOnly(Question, String),
    NotStarted,
}

/// Decides the suspected losses by fresh starts and counts the judged metrics. `fresh` and `granted` say what
/// was started.
pub(crate) fn decide_suspects(
    screen_result: &ScreenResult,
    fresh: &[FreshStarts],
    policy: &Policy,
    allotments: &BTreeMap<CellKey, Allotment>,
) -> (Vec<Finding>, JudgedCounts) {
    let questions: Vec<Question> = screen_result
        .suspects
        .iter()
        .zip(fresh)
        .map(|(suspect, fresh)| match fresh {
            FreshStarts::Alternating(question) => question.clone(),
            FreshStarts::CandidateOnly(question, _) => suspect.candidate_question(question),
            FreshStarts::NotStarted => Question {
                no_verdict: Some(NoVerdict::Missing("no fresh start was made".to_owned())),
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
        visible_loss_share: screen_result.unclear.visible_loss,
    };
    let answered = screen_result.suspects.iter().zip(fresh).zip(answers);
    let findings = answered.map(|((suspect, fresh), answer)| {
        let kind = match ConfirmationOutcome::from_answer(&answer) {
            ConfirmationOutcome::Worse => FindingKind::Worse,
            ConfirmationOutcome::Refuted => FindingKind::Unconfirmed,
            ConfirmationOutcome::Undecided => FindingKind::Undecided,
        };
        match kind {
            FindingKind::Undecided => judged.undecided += 1,
            _ => judged.judged += 1,
        }
        let text = suspect.in_words(fresh, &answer, allotments.get(&suspect.cell));
        new_finding(kind, Some(&suspect.cell), Some(suspect.metric), text)
    });
    let findings = findings.collect();
    (findings, judged)
}

impl SuspectedLoss {
    /// Builds the question that compares the candidate's fresh starts with the starts of the baseline, which
    /// was measured on another night.
    fn candidate_question(&self, fresh: &Question) -> Question {
        let between = self
            .night_variance
            .and_then(|between| between::variance_of_difference(between.upper_bound));
        let gap = match self.night_variance {
            Some(_) => fresh.no_verdict.clone(),
            None => Some(NoVerdict::Missing(
                "five nightly runs of history are needed to know how much nightly runs differ".to_owned(),
            )),
        };
        Question {
            night_variance: between,
            no_verdict: gap,
            ..fresh.clone()
        }
    }

    /// Returns the question with these fresh starts of the candidate.
    pub(crate) fn compare_to(&self, fresh: &CellStats) -> Question {
        match question::cell_sample(fresh, self.metric) {
            Ok(candidate) => Question {
                candidate,
                noise: self.noise,
                ..self.question.clone()
            },
            Err(why) => Question {
                no_verdict: Some(NoVerdict::Missing(why)),
                ..self.question.clone()
            },
        }
    }

    fn in_words(&self, fresh: &FreshStarts, answer: &Answer, allotment: Option<&Allotment>) -> String {
        let label = self.metric.label();
        let short = allotment.and_then(|allotment| allotment.shortfall_reason());
        let short = short.map_or(String::new(), |why| format!(" ({why})"));
        if *fresh == FreshStarts::NotStarted {
            return format!(
                "{label}: {}; neither confirmed nor refuted: {} fresh starts are needed, and there are none{short}",
                self.reasons, self.starts
            );
        }
        let how = match fresh {
            FreshStarts::CandidateOnly(_, why) => format!(", of the candidate only, because {why}"),
            _ => String::new(),
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
            "{values} {}{undecided}; suspected because of {}{}",
            answer.reason(),
            self.reasons,
            self.remarks
        )
    }
}

/// Returns the remarks for a finding: differences of the engines, and suspect measurements.
fn remarks(baseline_cell: &CellStats, candidate_cell: &CellStats, metric: Metric) -> String {
    let mut words = String::new();
    let differs = environment_diff::engine_differences_in_words(baseline_cell, candidate_cell);
    if !differs.is_empty() {
        words.push_str(&format!("; engine differences: {differs}"));
    }
    let sides = [("baseline", baseline_cell), ("candidate", candidate_cell)];
    let doubts = sides
        .map(|(side, cell)| pairwise::suspect_starts(side, cell, metric))
        .concat();
    let doubts: Vec<String> = doubts.iter().map(ToString::to_string).collect();
    if !doubts.is_empty() {
        words.push_str(&format!("; suspect: {}", doubts.join("; ")));
    }
    words
}

/// A metric of a cell that was measured in turn with its baseline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairedMetric<'a> {
    pub cell: &'a CellKey,
    pub baseline: &'a CellKey,
    pub metric: Metric,
    pub noise: Option<KnownNoise>,
}

/// Judges a nightly run in which the baseline was started in turn with every cell. `ask` returns the question
/// for a metric, or the reason that there is none.
pub(crate) fn judge_paired(
    baseline: &RunStats,
    candidate_run: &RunStats,
    noise: Option<&Noise>,
    policy: &Policy,
    ask: &dyn Fn(&PairedMetric<'_>) -> Result<Question, String>,
) -> (Vec<Finding>, JudgedCounts) {
    let (screen_result, pairs) = pair_cells(baseline, candidate_run);
    let mut findings = screen_result.findings;
    let mut pair_questions = Vec::new();
    for pair in pairs
        .iter()
        .filter(|pair| pair.candidate_cell.exclusion().is_none())
    {
        for metric in pair
            .candidate_cell
            .gates
            .iter()
            .filter_map(|name| Metric::from_name(name))
        {
            let metric = gates::pair_metric(metric, pair.baseline_cell, pair.candidate_cell);
            let pairing = PairedMetric {
                cell: pair.key,
                baseline: pair.baseline,
                metric,
                noise: noise.and_then(|noise| stored::known_noise(noise, pair.key, &metric.name())),
            };
            match ask(&pairing) {
                Ok(question) => pair_questions.push((
                    pairing,
                    question,
                    remarks(pair.baseline_cell, pair.candidate_cell, metric),
                )),
                Err(why) => findings.push(new_finding(
                    FindingKind::NotJudged,
                    Some(pair.key),
                    Some(metric),
                    why,
                )),
            }
        }
    }
    let questions: Vec<Question> = pair_questions
        .iter()
        .map(|(_, question, _)| question.clone())
        .collect();
    let mut judged = JudgedCounts {
        metrics: screen_result.metrics,
        ..JudgedCounts::default()
    };
    let mut unclear = UnclearMetrics::default();
    for ((pairing, _, remarks), answer) in pair_questions
        .iter()
        .zip(gate_policy::confirm(&questions, 0, policy))
    {
        judged.judged += usize::from(answer.verdict().is_some());
        let visible = answer.visible_loss();
        findings.extend(unclear.take(pairing.cell, pairing.metric, &answer, policy, visible));
        let kind = match answer.verdict() {
            None => FindingKind::NotJudged,
            Some(Verdict::Worse) => FindingKind::Worse,
            Some(Verdict::Better) => FindingKind::Better,
            Some(Verdict::Same | Verdict::Unclear) => continue,
        };
        let text = match kind {
            FindingKind::NotJudged => answer.reason(),
            _ => format!("{}: {}{remarks}", pairing.metric.label(), answer.reason()),
        };
        findings.push(new_finding(kind, Some(pairing.cell), Some(pairing.metric), text));
    }
    judged.unclear = unclear.metrics;
    judged.visible_loss_share = unclear.visible_loss;
    (findings, judged)
}

/// Returns the values of each cell that the history stores.
pub(crate) fn night_cells(candidate_run: &RunStats) -> BTreeMap<CellKey, NightlyCell> {
    let of_cell = |cell: &CellStats| NightlyCell {
        prompts: cell.prompts.clone(),
        origin: Some(cell.origin),
        engine: cell.engine.clone(),
        figures: cell
            .gates
            .iter()
            .map(|name| (name.clone(), cell.start_values(name)))
            .collect(),
    };
    candidate_run
        .cells
        .iter()
        .map(|(key, cell)| (key.clone(), of_cell(cell)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::decision::{Design, Sample};
    use super::*;

    const GRANTED: Allotment = Allotment {
        wanted: 3,
        starts: 0,
        is_limited_by_time: true,
    };

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
                question: Question {
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
            let visible = policy.visible_loss(&screened.answer);
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
        assert!(unclear.visible_loss.is_some_and(|loss| loss > 0.1), "{unclear:?}");
    }

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
        let (mut findings, judged) =
            decide_suspects(&screen_result, &[fresh], &Policy::with_bound(0.02), &allotments);
        let finding = findings.remove(0);
        (finding.kind, finding.text, judged)
    }

    fn question(baseline: [f64; 3], candidate: [f64; 3]) -> Question {
        let sample = |logs: [f64; 3]| Sample {
            logs: logs.to_vec(),
            ..Sample::default()
        };
        Question {
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
            "output throughput: -6.0 % against the baseline; neither confirmed nor refuted: 3 fresh starts are needed, and there are none \
             (`--budget` does not allow more)"
        );
        assert_eq!((judged.judged, judged.undecided), (0, 1));
    }

    #[test]
    fn only_a_loss_against_the_baseline_of_the_same_night_is_confirmed() {
        let low = [-0.06, -0.061, -0.059];
        let (kind, text, judged) = decide_one(FreshStarts::Alternating(question([0.0, 0.001, -0.001], low)));
        assert_eq!(kind, FindingKind::Worse, "{text}");
        assert_eq!((judged.judged, judged.undecided), (1, 0));
        let (kind, text, _) = decide_one(FreshStarts::Alternating(question([-0.06, -0.06, -0.06], low)));
        assert_eq!(kind, FindingKind::Unconfirmed, "{text}");
        // The baseline of another night, without history of nights.
        let (kind, text, _) = decide_one(FreshStarts::CandidateOnly(
            question([0.0, 0.001, -0.001], low),
            "it is gone".to_owned(),
        ));
        assert_eq!(kind, FindingKind::Undecided, "{text}");
        assert!(
            text.contains("because it is gone") && text.contains("five nightly runs"),
            "{text}"
        );
    }
}
