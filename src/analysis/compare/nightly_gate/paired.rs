//! Judges a nightly run in which the baseline was started in turn with every cell.

use super::findings::{new_finding, remarks};
use super::pairs::{BaselineStarts, CellPair, pair_cells};
use super::screen_result::{NightVerdicts, UnclearMetrics};
use crate::analysis::compare::decision::{KnownNoise, MetricQuestion};
use crate::analysis::compare::gate_policy::{self, Policy};
use crate::analysis::compare::pairwise::row::Row;
use crate::analysis::compare::verdict::Verdict;
use crate::analysis::compare::{gates, pairwise, question, stored};
use crate::analysis::metrics::Metric;
use crate::base::ids::CellKey;
use crate::results::record::cell_stats::{Noise, RunStats};
use crate::results::record::nightly::{FindingKind, JudgedCounts};

/// A metric of a cell that was measured in turn with its baseline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairedMetric<'a> {
    pub(crate) cell: &'a CellKey,
    pub(crate) baseline: &'a CellKey,
    pub(crate) metric: Metric,
    pub(crate) noise: Option<KnownNoise>,
}

/// Judges a nightly run in which the baseline was started in turn with every cell. `ask` returns the question
/// for a metric, or the reason that there is none.
pub(crate) fn judge_paired(
    baseline: &RunStats,
    candidate_run: &RunStats,
    noise: Option<&Noise>,
    policy: &Policy,
    ask: &dyn Fn(&PairedMetric<'_>) -> Result<MetricQuestion, String>,
) -> NightVerdicts {
    let (screen_result, pairs) = pair_cells(baseline, candidate_run, BaselineStarts::Fresh);
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
                Ok(question) => pair_questions.push((pairing, question, pair)),
                Err(why) => findings.push(new_finding(
                    FindingKind::NotJudged,
                    Some(pair.key),
                    Some(metric),
                    why,
                )),
            }
        }
    }
    let questions: Vec<MetricQuestion> = pair_questions
        .iter()
        .map(|(_, question, _)| question.clone())
        .collect();
    let mut judged = JudgedCounts {
        metrics: screen_result.metrics,
        ..JudgedCounts::default()
    };
    let mut unclear = UnclearMetrics::default();
    let mut rows = excluded_rows(&pairs, policy);
    let answers = gate_policy::confirm(&questions, 0, policy);
    for ((pairing, question, pair), answer) in pair_questions.into_iter().zip(answers) {
        let cells = [pair.baseline_cell, pair.candidate_cell];
        rows.push(pairwise::new_row(
            pair.key,
            cells,
            pairing.metric,
            question,
            answer.clone(),
        ));
        judged.judged += usize::from(answer.verdict().is_some());
        let visible = answer.smallest_detectable_loss();
        findings.extend(unclear.take(pairing.cell, pairing.metric, &answer, policy, visible));
        let kind = match answer.verdict() {
            None => FindingKind::NotJudged,
            Some(Verdict::Worse) => FindingKind::Worse,
            Some(Verdict::Better) => FindingKind::Better,
            Some(Verdict::Same | Verdict::Unclear) => continue,
        };
        let text = match kind {
            FindingKind::NotJudged => answer.reason(),
            _ => format!(
                "{}: {}{}",
                pairing.metric.label(),
                answer.reason(),
                remarks(cells[0], cells[1], pairing.metric)
            ),
        };
        findings.push(new_finding(kind, Some(pairing.cell), Some(pairing.metric), text));
    }
    judged.unclear = unclear.metrics;
    judged.visible_loss_share = unclear.smallest_detectable_loss;
    NightVerdicts {
        findings,
        judged,
        rows,
    }
}

/// Rows of cells of which no measurement counts, which say why; the findings name the cells.
fn excluded_rows(pairs: &[CellPair<'_>], policy: &Policy) -> Vec<Row> {
    let mut rows = Vec::new();
    for pair in pairs
        .iter()
        .filter(|pair| pair.candidate_cell.exclusion().is_some())
    {
        let cells = [pair.baseline_cell, pair.candidate_cell];
        let metrics = pair.candidate_cell.gates.iter();
        for metric in metrics.filter_map(|name| Metric::from_name(name)) {
            let metric = gates::pair_metric(metric, cells[0], cells[1]);
            let question = question::cell_question(cells[0], cells[1], metric, None);
            let answers = gate_policy::confirm(std::slice::from_ref(&question), 0, policy);
            let row = |answer| pairwise::new_row(pair.key, cells, metric, question.clone(), answer);
            rows.extend(answers.into_iter().map(row));
        }
    }
    rows
}
