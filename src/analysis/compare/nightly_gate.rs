//! Screens a nightly run: compares it with the baseline and finds suspected losses.

pub(crate) mod confirmation;
pub(crate) mod findings;
pub(crate) mod paired;
mod pairs;
pub(crate) mod screen_result;

use std::collections::BTreeMap;

use super::between::PastNight;
use super::decision::MetricQuestion;
use super::gate_policy::{self, NightlyMetric, Policy, ScreenedMetric};
use super::verdict::Verdict;
use super::{gates, machines, pairwise, question, stored, verdict};
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::results::record::cell_stats::{CellStats, Noise, RunStats};
use crate::results::record::nightly::{Finding, FindingKind, NightlyCell, NightlyRun};
use findings::{new_finding, remarks};
use pairs::{BaselineStarts, CellPair, pair_cells};
use screen_result::{ScreenResult, SuspectedLoss};

impl ScreenResult {
    fn add_metric(
        &mut self,
        pair: &CellPair<'_>,
        metric: Metric,
        question: MetricQuestion,
        screened: ScreenedMetric,
        policy: &Policy,
    ) {
        let verdict = screened.answer.verdict();
        match (screened.suspicion, screened.answer.outcome.no_verdict()) {
            (Some(suspicion), _) => self.suspects.push(SuspectedLoss {
                cell: pair.key.clone(),
                baseline: pair.baseline.clone(),
                metric,
                hosts: pair.hosts.to_vec(),
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

/// Screens every gating metric of the candidate against the baseline and earlier nights.
pub(crate) fn screen(
    baseline: &RunStats,
    candidate_run: &RunStats,
    nights: &[NightlyRun],
    noise: Option<&Noise>,
    policy: &Policy,
) -> ScreenResult {
    let (mut screen_result, pairs) = pair_cells(baseline, candidate_run, BaselineStarts::Stored);
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
        screen_result.rows.push(pairwise::new_row(
            pair.key,
            [pair.baseline_cell, pair.candidate_cell],
            metric,
            metric_questions.question.clone(),
            screened.answer.clone(),
        ));
        screen_result.add_metric(pair, metric, metric_questions.question, screened, policy);
    }
    screen_result
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
