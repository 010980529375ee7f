//! Compares all cells of a report in one call of the decision function, so that the family of its questions
//! is the whole report.
//!
//! Ratios, wins, losses and `[best]` all come from these answers.

use std::collections::{BTreeMap, BTreeSet};

use super::conclusion::{Conclusion, conclude, standing};
use super::grouping::{group_cells, names};
use super::ratio::{self, Ratio, RatioOrReason, RatioVerdict};
use super::report_cell::ReportCell;
use super::suspicion::{no_win_reason, one_sided_suspicion, suspect_metric_reason};
use crate::analysis::compare::comparable::Comparability;
use crate::analysis::compare::decision::{self, Answer, NoVerdict, Outcome};
use crate::analysis::compare::verdict;
use crate::analysis::metrics::{Metric, Quantity};
use crate::results::record::validity::Verdict;

/// The cells of one model and scenario, each compared with the reference.
#[derive(Clone, Debug)]
pub(crate) struct Group<'s, 'a> {
    pub(crate) title: String,
    pub(crate) rows: Vec<&'s ReportCell<'a>>,
    /// Names of the rows, each different from the others.
    pub(crate) names: Vec<String>,
    /// The gating metrics for the load; ratios are of the first.
    pub(crate) metrics: Vec<Metric>,
    /// Name of the engine that ratios refer to.
    pub(crate) reference: String,
    /// The relation of each row to the reference.
    pub(crate) ratios: Vec<RatioOrReason>,
    /// Index of the row that is better than every other one.
    pub(crate) best: Option<usize>,
    /// What the comparison supports.
    pub(crate) conclusion: Conclusion,
}

impl Group<'_, '_> {
    pub(crate) fn metric(&self) -> Metric {
        self.metrics
            .first()
            .copied()
            .unwrap_or(Metric::Throughput(Quantity::Output))
    }
}

/// The answers of one group by pair: index of the baseline row, index of the candidate row.
pub(super) type Answers = BTreeMap<(usize, usize), Vec<Answer>>;

/// Groups the cells of a report by model and scenario, in the order of first appearance, and compares each
/// with the rows of the reference engine.
///
/// `reference` names that engine; without it, it is the engine of the first cell, and in a group that lacks
/// that engine the one of the group's first row. `bound` is the smallest change that counts, as a share.
pub(crate) fn compare_groups<'s, 'a>(
    report_cells: &'s [ReportCell<'a>],
    reference: Option<&str>,
    bound: f64,
) -> Vec<Group<'s, 'a>> {
    let usual = report_cells.first().map_or("", |first| &first.launch.engine.name);
    let mut groups: Vec<Group<'s, 'a>> = group_cells(report_cells)
        .into_iter()
        .map(|(title, rows)| {
            let has_usual = rows.iter().any(|row| row.launch.engine.name == usual);
            let own = match has_usual {
                true => usual,
                false => &rows[0].launch.engine.name,
            };
            Group {
                title,
                names: names(&rows),
                metrics: ratio::gating_metrics(&rows),
                reference: reference.unwrap_or(own).to_owned(),
                ratios: Vec::new(),
                best: None,
                conclusion: Conclusion::NoComparison,
                rows,
            }
        })
        .collect();
    let answers_by_group = answer_pairs(&groups, bound);
    for (group, answers) in groups.iter_mut().zip(&answers_by_group) {
        group.ratios = (0..group.rows.len())
            .map(|at| ratio_to_reference(group, at, answers))
            .collect();
        group.best = best_row(group, answers);
        group.conclusion = conclude(group, answers, group.best);
    }
    groups
}

/// Asks the decision function about every pair of cells that may be compared. The correction for multiple
/// tests spans all pairs. Variances are pooled only between cells of the same two sides, as in `compare`, so
/// that both give the same interval for a ratio.
fn answer_pairs(groups: &[Group<'_, '_>], bound: f64) -> Vec<Answers> {
    let mut questions = Vec::new();
    let mut pair_questions = Vec::new();
    let mut of_sides = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        for pair in comparable_pairs(group) {
            let (baseline, candidate) = (group.rows[pair.0], group.rows[pair.1]);
            let comparability = ratio::comparability(candidate, baseline);
            if !comparability.allows_ratio() {
                continue;
            }
            for metric in &group.metrics {
                of_sides.push(side_names(baseline, candidate));
                questions.push(ratio::question(baseline, candidate, *metric, &comparability));
                pair_questions.push((number, pair, *metric));
            }
        }
    }
    let decided = decision::decide_by_pairs(
        &questions,
        &of_sides,
        &decision::DecisionOptions { bound, family: 0 },
    );
    let mut answers_by_group = vec![Answers::new(); groups.len()];
    for ((number, pair, metric), mut answer) in pair_questions.into_iter().zip(decided) {
        let [baseline, candidate] = [pair.0, pair.1].map(|at| groups[number].rows[at]);
        let why = match answer.outcome {
            Outcome::Judged(verdict::Verdict::Better) => suspect_metric_reason(candidate, baseline, metric),
            Outcome::Judged(verdict::Verdict::Worse) => suspect_metric_reason(baseline, candidate, metric),
            _ => None,
        };
        if let Some(why) = why {
            answer.outcome = Outcome::NotJudged(NoVerdict::NotComparable(why));
        }
        answers_by_group[number].entry(pair).or_default().push(answer);
    }
    answers_by_group
}

/// The two sides as `compare` names them: two engines, or two runs of one engine.
fn side_names(baseline: &ReportCell<'_>, candidate: &ReportCell<'_>) -> [String; 2] {
    let is_one_engine = baseline.engine() == candidate.engine();
    [baseline, candidate].map(|cell| match is_one_engine {
        true => cell.run.to_owned(),
        false => format!("{} {}", cell.run, cell.engine()),
    })
}

/// Every pair of finished cells as (baseline, candidate). A row of the reference engine is the baseline,
/// otherwise the earlier row.
fn comparable_pairs(group: &Group<'_, '_>) -> Vec<(usize, usize)> {
    let is_reference = |at: usize| group.rows[at].launch.engine.name == group.reference;
    let done: Vec<usize> = (0..group.rows.len())
        .filter(|at| group.rows[*at].is_done())
        .collect();
    let later = |place: usize| done[place + 1..].iter().copied();
    let ordered = |one: usize, other: usize| match is_reference(other) && !is_reference(one) {
        true => (other, one),
        false => (one, other),
    };
    (0..done.len())
        .flat_map(|place| later(place).map(move |other| (place, other)))
        .map(|(place, other)| ordered(done[place], other))
        .collect()
}

/// Relates a row to the first row of the reference engine that it can be compared with. A row of that engine
/// that is comparable with no earlier one is a reference of its own; the result says why.
fn ratio_to_reference(group: &Group<'_, '_>, at: usize, answers: &Answers) -> RatioOrReason {
    let references: Vec<usize> = (0..group.rows.len())
        .filter(|other| group.rows[*other].launch.engine.name == group.reference)
        .collect();
    if references.is_empty() {
        return RatioOrReason::Refused(vec!["the reference is not in this table".to_owned()], None);
    }
    let mut refused = Vec::new();
    for other in references {
        let best_match = match other == at {
            true => ratio_to_itself(group, at),
            false => ratio_to(group, at, other, answers),
        };
        match best_match {
            RatioOrReason::Ratio(ratio, _) if other == at => {
                return RatioOrReason::Ratio(ratio, incomparable_reasons(&refused));
            }
            RatioOrReason::Ratio(..) => return best_match,
            RatioOrReason::Refused(..) => refused.push(best_match),
        }
    }
    let has_per_gpu =
        |ratio_or_reason: &RatioOrReason| matches!(ratio_or_reason, RatioOrReason::Refused(_, Some(_)));
    let chosen = refused.iter().position(has_per_gpu).unwrap_or(0);
    refused.swap_remove(chosen)
}

/// Why a row cannot be compared with earlier rows of its engine, each reason once.
fn incomparable_reasons(refused: &[RatioOrReason]) -> Vec<String> {
    let mut reasons: Vec<String> = Vec::new();
    for ratio_or_reason in refused {
        if let RatioOrReason::Refused(why, _) = ratio_or_reason {
            reasons.extend(
                why.iter()
                    .filter(|why| !reasons.contains(why))
                    .cloned()
                    .collect::<Vec<_>>(),
            );
        }
    }
    reasons
}

/// The relation of a reference row to itself: the ratio 1.
fn ratio_to_itself(group: &Group<'_, '_>, at: usize) -> RatioOrReason {
    let cell = group.rows[at];
    if let Comparability::Not(why) = ratio::comparability(cell, cell) {
        return RatioOrReason::Refused(self_comparison_reasons(why), None);
    }
    let [sample, _] = ratio::comparison_samples(cell, cell, group.metric());
    match sample.logs.len() {
        0 => RatioOrReason::Refused(vec![format!("{} is not known", group.metric().label())], None),
        starts => RatioOrReason::Ratio(
            Ratio {
                value: 1.0,
                interval: None,
                starts: [starts; 2],
                is_reference: true,
                verdict: RatioVerdict::NotJudged,
                reason: "it is the reference".to_owned(),
            },
            Vec::new(),
        ),
    }
}

/// Why a reference cannot be compared with itself. Both sides are the same row, so reasons that appear for
/// both are kept once.
fn self_comparison_reasons(why: Vec<String>) -> Vec<String> {
    let of_reference = |why: &str| why.strip_prefix("the reference").map(str::to_owned);
    let twins: Vec<String> = why.iter().filter_map(|why| of_reference(why)).collect();
    let is_twin = |why: &String| {
        let of_row = why.strip_prefix("this row");
        of_row.is_some_and(|of_row| twins.iter().any(|twin| twin == of_row))
    };
    why.into_iter().filter(|why| !is_twin(why)).collect()
}

/// Compares one row with a row of the reference engine.
fn ratio_to(group: &Group<'_, '_>, at: usize, reference_index: usize, answers: &Answers) -> RatioOrReason {
    let (cell, reference) = (group.rows[at], group.rows[reference_index]);
    if !reference.is_done() {
        return RatioOrReason::Refused(vec![format!("{} is not done", reference.engine())], None);
    }
    let comparability = ratio::comparability(cell, reference);
    let is_described = matches!(comparability, Comparability::DescribedOnly(_));
    let ratio = || {
        let straight = answers
            .get(&(reference_index, at))
            .map(|answers| (answers, false));
        let (answers, is_reversed) =
            straight.or_else(|| Some((answers.get(&(at, reference_index))?, true)))?;
        let mut ratio = ratio::ratio(answers, is_reversed)?;
        let doubt = match ratio.verdict {
            RatioVerdict::Better => no_win_reason(cell, reference),
            RatioVerdict::Worse => no_win_reason(reference, cell),
            RatioVerdict::Same | RatioVerdict::Unclear | RatioVerdict::NotJudged => None,
        };
        if let Some(why) = doubt {
            (ratio.verdict, ratio.reason) = (RatioVerdict::NotJudged, why);
        } else if is_described && let Some(why) = one_sided_suspicion(cell, reference) {
            // The difference may be what the reason is about, so both are printed.
            ratio.reason = format!("{why}; {}", ratio.reason);
        }
        Some(ratio)
    };
    let with = |mut reasons: Vec<String>| match ratio() {
        Some(ratio) => {
            reasons.extend(common_rounds_note(&ratio, reference, cell));
            RatioOrReason::Ratio(ratio, reasons)
        }
        None => RatioOrReason::Refused(vec![format!("{} is not known", group.metric().label())], None),
    };
    match comparability {
        Comparability::Comparable => with(Vec::new()),
        Comparability::WithDifferences(reasons) | Comparability::DescribedOnly(reasons) => with(reasons),
        Comparability::PerGpuOnly(reasons) => {
            RatioOrReason::Refused(reasons, ratio_per_gpu(cell, reference, group.metric()))
        }
        Comparability::Not(reasons) => RatioOrReason::Refused(reasons, None),
    }
}

/// The note that a ratio uses fewer starts than the values beside it. If two engines alternated, only rounds
/// in which both starts count enter the ratio.
fn common_rounds_note(ratio: &Ratio, reference: &ReportCell<'_>, cell: &ReportCell<'_>) -> Option<String> {
    if reference.launch.is_attached() || cell.launch.is_attached() {
        return None;
    }
    let starts = [reference, cell].map(|report_cell| {
        let starts: BTreeSet<u32> = report_cell
            .counted_summaries()
            .map(|summary| summary.start)
            .collect();
        starts.len()
    });
    let common = ratio.starts[0].min(ratio.starts[1]);
    (common < starts[0].max(starts[1]) && ratio.starts[0] == ratio.starts[1]).then(|| {
        format!(
            "the ratio uses only the {common} rounds in which both sides have a valid start; the values use all {} and {} starts of the two sides",
            starts[0], starts[1]
        )
    })
}

/// The ratio of throughput per GPU; `None` for metrics that are no throughput.
fn ratio_per_gpu(cell: &ReportCell<'_>, reference: &ReportCell<'_>, metric: Metric) -> Option<f64> {
    let is_throughput = matches!(metric, Metric::Throughput(_) | Metric::SteadyOutput);
    let devices = [reference, cell].map(|report_cell| f64::from(report_cell.launch.gpus().unwrap_or(0)));
    let [theirs, ours] = ratio::comparison_samples(reference, cell, metric).map(|sample| sample.value());
    (is_throughput && devices.iter().all(|count| *count > 0.0))
        .then(|| Some(ours? / devices[1] / (theirs? / devices[0])))
        .flatten()
}

/// The row that is better than every other row that is done and not invalid. Suspect rows and attached
/// servers cannot be best.
fn best_row(group: &Group<'_, '_>, answers: &Answers) -> Option<usize> {
    let counts = |at: &usize| group.rows[*at].is_done() && group.rows[*at].validity() != Verdict::Invalid;
    let rivals: Vec<usize> = (0..group.rows.len()).filter(counts).collect();
    if rivals.len() < 2 {
        return None;
    }
    let may_win = |at: &usize| {
        let row = group.rows[*at];
        row.validity() == Verdict::Valid && !row.launch.is_attached()
    };
    let beats = |one: usize, other: usize| {
        let is_better = standing(answers, one, other) == Some(RatioVerdict::Better);
        is_better && no_win_reason(group.rows[one], group.rows[other]).is_none()
    };
    let wins_all = |at: &usize| rivals.iter().all(|other| other == at || beats(*at, *other));
    rivals.iter().copied().filter(may_win).find(wins_all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::compare::decision::DEFAULT_BOUND;
    use crate::analysis::metrics::{LatencyKind, Statistic};
    use crate::base::units::RequestRate;
    use crate::report::testing::{Case, report_cells};
    use crate::results::record::cell::Definitions;
    use crate::results::record::machine::Machine;
    use crate::results::record::telemetry::Gpu;
    use crate::results::record::validity::{MetricFamily, Reason, ReasonCode, Validity};

    /// A cell with one start for each value.
    fn cell_with_starts(engine: &str, values: &[f64]) -> Case {
        let mut case = Case::new(engine, "bf16", 1, values[0]);
        for value in &values[1..] {
            case = case.measured_again(*value);
        }
        for (at, summary) in case.summaries.iter_mut().enumerate() {
            (summary.start, summary.repeat) = (u32::try_from(at).unwrap() + 1, 1);
        }
        case
    }

    fn cell_around(engine: &str, value: f64) -> Case {
        cell_with_starts(
            engine,
            &[1.0, 1.004, 0.996, 1.002, 0.998].map(|factor| factor * value),
        )
    }

    fn ratio_of(ratio_or_reason: &RatioOrReason) -> &Ratio {
        match ratio_or_reason {
            RatioOrReason::Ratio(ratio, _) => ratio,
            RatioOrReason::Refused(why, _) => panic!("{why:?}"),
        }
    }

    /// The standing of the second cell against the first, and the index of the best one.
    fn judge_second(first: Case, second: Case) -> (RatioVerdict, Option<usize>) {
        let cases = [first, second];
        let cells = report_cells(&cases);
        let groups = compare_groups(&cells, None, DEFAULT_BOUND);
        assert_eq!(groups.len(), 1);
        (ratio_of(&groups[0].ratios[1]).verdict, groups[0].best)
    }

    #[test]
    fn only_what_the_decision_function_calls_better_is_a_win() {
        let base = || cell_around("a", 100.0);
        assert_eq!(
            judge_second(base(), cell_around("b", 150.0)),
            (RatioVerdict::Better, Some(1))
        );
        assert_eq!(
            judge_second(base(), cell_around("b", 70.0)),
            (RatioVerdict::Worse, Some(0))
        );
        // A single start decides nothing, and neither do repeats on it.
        assert_eq!(
            judge_second(Case::new("a", "bf16", 1, 100.0), Case::new("b", "bf16", 1, 200.0)),
            (RatioVerdict::NotJudged, None)
        );
        let repeated = |engine| {
            Case::new(engine, "bf16", 1, 100.0)
                .measured_again(100.0)
                .measured_again(100.0)
        };
        assert_eq!(
            judge_second(repeated("a"), repeated("b")),
            (RatioVerdict::NotJudged, None)
        );
    }

    #[test]
    fn a_thousandth_of_a_percent_is_no_win() {
        let steady = |engine, value| cell_with_starts(engine, &[value; 5]);
        assert_eq!(
            judge_second(steady("a", 100.0), steady("b", 100.001)),
            (RatioVerdict::Same, None)
        );
        // The difference is certain, but below the bound.
        assert_eq!(
            judge_second(cell_around("a", 100.0), cell_around("b", 101.0)).1,
            None
        );
        assert_eq!(
            judge_second(
                cell_around("a", 100.0),
                cell_with_starts("b", &[90.0, 160.0, 100.0, 120.0, 140.0])
            )
            .1,
            None
        );
    }

    #[test]
    fn value_and_interval_come_from_the_same_starts() {
        let cases = [
            cell_with_starts("a", &[100.0, 101.0, 99.0, 100.0, 100.0]),
            cell_with_starts("b", &[50.0, 101.0, 102.0, 101.0, 100.0]),
        ];
        let cells = report_cells(&cases);
        let groups = compare_groups(&cells, None, DEFAULT_BOUND);
        let ratio = ratio_of(&groups[0].ratios[1]);
        let expected = (0.5f64 * 1.01 * 1.02 * 1.01).powf(0.2) / (1.01f64 * 0.99).powf(0.2);
        assert!((ratio.value - expected).abs() < 1e-9, "{ratio:?}");
        let [low, high] = ratio.interval.unwrap();
        assert!(low < ratio.value && ratio.value < high);
    }

    #[test]
    fn a_slower_engine_at_a_fixed_rate_loses_although_its_throughput_is_the_same() {
        let paced = |engine: &str, e2e_ms: f64| {
            let mut case = cell_around(engine, 100.0);
            case.cell.scenario.arrival.rate = RequestRate::new(12.0).unwrap();
            for (at, summary) in case.summaries.iter_mut().enumerate() {
                let figures = summary.figures.get_mut(&Definitions::Matrix).unwrap();
                let name = Metric::Time(Statistic::Median, LatencyKind::E2e).name();
                figures.insert(name, Some(e2e_ms * (1.0 + 0.002 * at as f64)));
            }
            case
        };
        let cases = [paced("quick", 300.0), paced("slow", 900.0)];
        let cells = report_cells(&cases);
        let groups = compare_groups(&cells, None, DEFAULT_BOUND);
        assert_eq!(
            groups[0].metric(),
            Metric::Time(Statistic::Median, LatencyKind::E2e)
        );
        let ratio = ratio_of(&groups[0].ratios[1]);
        assert!((ratio.value - 3.0).abs() < 1e-9, "{ratio:?}");
        assert_eq!((ratio.verdict, groups[0].best), (RatioVerdict::Worse, Some(0)));
    }

    #[test]
    fn a_metric_that_is_suspect_wins_nothing_and_may_lose() {
        let good = |engine: &str, goodput: f64, is_suspect: bool| {
            let mut case = cell_around(engine, 100.0);
            case.cell.scenario.arrival.rate = RequestRate::new(12.0).unwrap();
            case.cell.scenario.slo = serde_json::from_value(serde_json::json!({"ttft": "60ms"})).unwrap();
            for (at, summary) in case.summaries.iter_mut().enumerate() {
                let figures = summary.figures.get_mut(&Definitions::Matrix).unwrap();
                let e2e = Metric::Time(Statistic::Median, LatencyKind::E2e).name();
                figures.insert(e2e, Some(300.0 + 0.1 * at as f64));
                let goodput = goodput * (1.0 + 0.002 * at as f64);
                figures.insert(Metric::Goodput.name(), Some(goodput));
                if is_suspect {
                    let reason = Reason {
                        code: ReasonCode::FirstEventAhead,
                        weight: Verdict::Suspect,
                        only: vec![MetricFamily::Ttft, MetricFamily::Goodput],
                        measured: String::new(),
                        bound: None,
                        advice: String::new(),
                    };
                    summary.validity = Some(Validity::from_reasons(vec![reason]));
                }
            }
            case
        };
        let plain = || good("a", 5.0, false);
        assert_eq!(
            judge_second(plain(), good("b", 10.0, false)).0,
            RatioVerdict::Better
        );
        assert_eq!(
            judge_second(plain(), good("b", 10.0, true)),
            (RatioVerdict::NotJudged, None)
        );
        assert_eq!(judge_second(plain(), good("b", 2.5, true)).0, RatioVerdict::Worse);
    }

    #[test]
    fn machines_that_differ_leave_a_ratio_and_no_verdict_and_the_first_run_is_the_reference() {
        let cases = [cell_around("a", 100.0), cell_around("a", 80.0)];
        let machine = |watts: f64| Machine {
            devices: vec![Gpu {
                device: 0,
                name: "H100".to_owned(),
                power_limit_w: Some(watts),
                ..Gpu::default()
            }],
            gpus: vec!["H100".to_owned()],
            driver: Some("570".to_owned()),
            ..Machine::default()
        };
        let machines = [machine(700.0), machine(350.0)];
        let mut rows = report_cells(&cases);
        for ((row, machine), run) in rows.iter_mut().zip(&machines).zip(["one", "two"]) {
            (row.machine, row.run) = (Some(machine), run);
        }
        let groups = compare_groups(&rows, None, DEFAULT_BOUND);
        assert!(ratio_of(&groups[0].ratios[0]).is_reference);
        let RatioOrReason::Ratio(ratio, differences) = &groups[0].ratios[1] else {
            panic!("{:?}", groups[0].ratios)
        };
        assert!((ratio.value - 0.8).abs() < 1e-9);
        assert_eq!((ratio.verdict, groups[0].best), (RatioVerdict::NotJudged, None));
        assert_eq!(differences, &["GPU power limit 350 W against 700 W"]);
        for row in &mut rows {
            row.machine = Some(&machines[0]);
        }
        let groups = compare_groups(&rows, None, DEFAULT_BOUND);
        assert_eq!(
            (ratio_of(&groups[0].ratios[1]).verdict, groups[0].best),
            (RatioVerdict::Worse, Some(0))
        );
    }

    #[test]
    fn an_invalid_cell_has_no_ratio_gives_none_and_wins_nothing() {
        let mut cases = [cell_around("a", 100.0), cell_around("b", 200.0)];
        for summary in &mut cases[1].summaries {
            summary.validity = Some(Validity {
                verdict: Verdict::Invalid,
                reasons: Vec::new(),
            });
        }
        let cells = report_cells(&cases);
        for reference in ["a", "b"] {
            let groups = compare_groups(&cells, Some(reference), DEFAULT_BOUND);
            let ratio_or_reason = &groups[0].ratios[1];
            assert!(
                matches!(ratio_or_reason, RatioOrReason::Refused(why, None) if why[0].contains("invalid")),
                "{ratio_or_reason:?}"
            );
            assert_eq!(groups[0].best, None);
        }
    }

    /// The case with this code in all of its starts.
    fn with_code(mut case: Case, code: ReasonCode) -> Case {
        for summary in &mut case.summaries {
            let reason = Reason {
                code,
                weight: Verdict::Suspect,
                only: Vec::new(),
                measured: String::new(),
                bound: None,
                advice: String::new(),
            };
            summary.validity = Some(Validity::from_reasons(vec![reason]));
        }
        case
    }

    #[test]
    fn who_is_suspect_does_not_win_and_who_alone_was_disturbed_does_not_lose() {
        let (slow, quick) = (|| cell_around("a", 100.0), || cell_around("b", 150.0));
        let verdict_for = |slow, quick| judge_second(slow, quick);
        assert_eq!(
            verdict_for(slow(), with_code(quick(), ReasonCode::TokensDisagree)),
            (RatioVerdict::NotJudged, None)
        );
        assert_eq!(
            verdict_for(with_code(slow(), ReasonCode::HostBusy), quick()),
            (RatioVerdict::NotJudged, None)
        );
        // A growing queue is caused by the slower engine itself.
        assert_eq!(
            verdict_for(with_code(slow(), ReasonCode::QueueGrowing), quick()),
            (RatioVerdict::Better, Some(1))
        );
        // A row that is suspect for the same reason as the other one does not win.
        assert_eq!(
            verdict_for(
                with_code(slow(), ReasonCode::WindowShort),
                with_code(quick(), ReasonCode::WindowShort)
            ),
            (RatioVerdict::NotJudged, None)
        );
        // The first one is the reference. It loses because its token counts disagree.
        assert_eq!(
            verdict_for(with_code(quick(), ReasonCode::TokensDisagree), slow()).0,
            RatioVerdict::NotJudged
        );
        // One suspect start of five prevents a win. One disturbed start of the slower row does not.
        let once = |mut case: Case| {
            for summary in &mut case.summaries[1..] {
                summary.validity = None;
            }
            case
        };
        assert_eq!(
            verdict_for(slow(), once(with_code(quick(), ReasonCode::TokensDisagree))),
            (RatioVerdict::NotJudged, None)
        );
        assert_eq!(
            verdict_for(once(with_code(slow(), ReasonCode::HostBusy)), quick()),
            (RatioVerdict::Better, Some(1))
        );
    }
}
