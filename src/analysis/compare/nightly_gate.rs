//! Screens a nightly run: compares it with the baseline and finds suspected losses.

pub(crate) mod confirmation;
pub(crate) mod findings;
pub(crate) mod paired;
pub(crate) mod screen_result;

use std::collections::BTreeMap;

use super::between::PastNight;
use super::decision::{NoVerdict, Question};
use super::difference::{Difference, DifferenceKind};
use super::environment_diff;
use super::gate_policy::{self, NightlyMetric, Policy, ScreenedMetric};
use super::verdict::Verdict;
use super::{gates, machines, pairwise, question, reliability, stored, verdict};
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::results::record::cell_stats::{CellStats, Noise, RunStats};
use crate::results::record::nightly::{Finding, FindingKind, NightlyCell, NightlyRun};
use findings::{failure_findings, new_finding, remarks};
use screen_result::{ScreenResult, SuspectedLoss};

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
                let visible = policy.smallest_detectable_loss(&screened.answer);
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
