//! Computes how precise the metrics of a run are, and which cells need another start. The number of starts of
//! a cell depends only on the standard deviation of its first stage. So the stopping rule favours no result
//! and the interval keeps its confidence.

use std::collections::BTreeMap;

use super::power;
use super::t_test;
use super::verdict::{logs, relative_change};
use crate::analysis::metrics::Metric;
use crate::base::ids::{CellKey, LaunchId};
use crate::config::repeats::StopRule;
use crate::results::record::cell_stats::{CellStats, ExclusionCause};

/// Precision of the least precise gating metric of a cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FigurePrecision {
    /// Name of the metric, for users.
    pub(crate) figure: String,
    /// Upper half of its 95 % interval (Student's t of the logarithms), as a share. The lower half is
    /// slightly smaller.
    pub(crate) half_width: f64,
    pub(crate) starts: usize,
    /// Starts of the first stage, which alone determine `sigma`.
    pub(crate) stage: usize,
    /// Standard deviation of the first stage, of logarithms.
    pub(crate) sigma: f64,
}

/// Precision of a cell, and whether it gets another start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CellPrecision {
    pub(crate) stop_rule: StopRule,
    pub(crate) figure: Option<FigurePrecision>,
    pub(crate) next_step: NextStep,
}

/// Whether a cell gets another start, and why not.
/// Whether a cell gets another start, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// No more starts: it is as precise as required.
    TargetReached,
    MoreStarts(u32),
    /// No more starts: the cell has the maximum number.
    MaxStartsReached,
    /// No more starts: another one would exceed the budget.
    BudgetSpent,
    /// No more starts: another one would not help, for this reason.
    NotPossible(String),
}

impl NextStep {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::TargetReached => "enough",
            Self::MoreStarts(_) => "wants-more",
            Self::MaxStartsReached => "most-starts",
            Self::BudgetSpent => "budget-spent",
            Self::NotPossible(_) => "hopeless",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a> {
    pub(crate) cell: &'a CellStats,
    pub(crate) launch: &'a LaunchId,
    /// Starts that are planned for it, measured or not.
    pub(crate) planned_starts: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) starts: u32,
    /// Total time of these starts, in seconds of one device.
    pub(crate) device_s: f64,
}

impl Cost {
    /// Returns the expected cost of another start, in seconds of one device.
    pub(super) fn per_start(self) -> f64 {
        self.device_s / f64::from(self.starts.max(1))
    }
}

/// Computes the precision of each cell and the starts that it still needs. The budget is given to the
/// launches in turn, one start each. The cost of a start is estimated from those of the launch so far.
pub(crate) fn cell_precisions(
    rule: &StopRule,
    candidates: &BTreeMap<CellKey, Candidate<'_>>,
    costs: &BTreeMap<LaunchId, Cost>,
) -> BTreeMap<CellKey, CellPrecision> {
    let mut wanted: BTreeMap<&LaunchId, u32> = BTreeMap::new();
    let mut precisions = BTreeMap::new();
    for (key, candidate) in candidates {
        let precision = unbudgeted_precision(rule, candidate);
        if let NextStep::MoreStarts(more) = precision.next_step {
            let of_launch = wanted.entry(candidate.launch).or_default();
            *of_launch = more.max(*of_launch);
        }
        precisions.insert(key.clone(), precision);
    }
    let Some(budget) = rule.budget else {
        return precisions;
    };
    let affordable_starts = affordable_starts(budget.duration().as_secs_f64(), &wanted, costs);
    for (key, precision) in &mut precisions {
        if let NextStep::MoreStarts(more) = precision.next_step {
            let affordable_starts = affordable_starts
                .get(candidates[key].launch)
                .copied()
                .unwrap_or(0);
            precision.next_step = match more.min(affordable_starts) {
                0 => NextStep::BudgetSpent,
                more => NextStep::MoreStarts(more),
            };
        }
    }
    precisions
}

/// Returns the result for a cell without a budget.
fn unbudgeted_precision(rule: &StopRule, candidate: &Candidate<'_>) -> CellPrecision {
    let figure = figure_precision(candidate.cell);
    let mut failed = candidate.cell.excluded.iter();
    let failed = failed.find(|excluded| excluded.cause == ExclusionCause::Failed);
    let outlook = match (&figure, failed) {
        (_, Some(failed)) => NextStep::NotPossible(format!("start {}: {}", failed.start, failed.reason)),
        (Err(why), None) => NextStep::NotPossible(why.clone()),
        (Ok(figure), None) => {
            let remaining = rule.most.saturating_sub(candidate.planned_starts);
            let needed = power::two_stage_starts(figure.sigma, figure.stage, rule.half_width.share().ln_1p());
            match needed.saturating_sub(figure.starts) {
                0 => NextStep::TargetReached,
                _ if remaining == 0 => NextStep::MaxStartsReached,
                more => NextStep::MoreStarts(u32::try_from(more).unwrap_or(remaining).min(remaining)),
            }
        }
    };
    CellPrecision {
        stop_rule: *rule,
        figure: figure.ok(),
        next_step: outlook,
    }
}

/// Computes the precision of a cell, or says why it has none.
fn figure_precision(cell: &CellStats) -> Result<FigurePrecision, String> {
    let mut worst: Option<FigurePrecision> = None;
    for gate in &cell.gates {
        let figure = Metric::from_name(gate).map_or_else(|| gate.clone(), Metric::label);
        let starts = cell.figures.get(gate).map_or(&[][..], Vec::as_slice);
        let means: Option<Vec<f64>> = starts
            .iter()
            .map(|repeats| logs(repeats).map(|logs| t_test::mean(&logs)))
            .collect();
        let Some(means) = means else {
            // If no request meets the SLO, there is no goodput, and more starts would not change that.
            if *gate == Metric::Goodput.name() {
                continue;
            }
            return Err(format!("{figure} is zero or missing on one of the starts"));
        };
        let stage = cell
            .first_stage
            .map_or(means.len(), |stage| means.len().min(stage as usize));
        if stage < 2 {
            return Err(format!(
                "only {stage} of the cell's starts can be used, but two are needed"
            ));
        }
        let sigma = t_test::variance(&means[..stage]).sqrt();
        // Later starts may widen the interval, but request no further starts.
        let shown = t_test::variance(&means).sqrt().max(sigma);
        let half_width = relative_change(power::half_width(shown, stage, means.len()));
        if worst.as_ref().is_none_or(|worst| worst.half_width < half_width) {
            worst = Some(FigurePrecision {
                figure,
                half_width,
                starts: means.len(),
                stage,
                sigma,
            });
        }
    }
    worst.ok_or_else(|| "the cell has no gating metric".to_owned())
}

/// Returns the number of starts of each launch that fit into the budget, in seconds of one device.
fn affordable_starts<'a>(
    budget: f64,
    wanted: &BTreeMap<&'a LaunchId, u32>,
    costs: &BTreeMap<LaunchId, Cost>,
) -> BTreeMap<&'a LaunchId, u32> {
    let mut remaining_s = budget - costs.values().map(|cost| cost.device_s).sum::<f64>();
    let mut affordable_starts = BTreeMap::new();
    let max_wanted = wanted.values().copied().max().unwrap_or(0);
    for round in 1..=max_wanted {
        for (launch, _) in wanted.iter().filter(|(_, starts)| **starts >= round) {
            let cost = costs.get(*launch).copied().unwrap_or_default().per_start();
            // A launch whose start did not fit once gets no more starts. So it neither blocks the others nor
            // gets a start after a cheaper one.
            if cost <= remaining_s && affordable_starts.get(launch).copied().unwrap_or(0) == round - 1 {
                remaining_s -= cost;
                affordable_starts.insert(*launch, round);
            }
        }
    }
    affordable_starts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::ContentHash;
    use crate::base::units::HumanDuration;
    use crate::config::repeats::HalfWidth;
    use crate::results::record::cell::Origin;
    use crate::results::record::cell_stats::ExcludedMeasurement;

    const FIGURE: &str = "output_throughput_tok_s";

    fn stop_rule(max_starts: u32, budget: Option<u64>) -> StopRule {
        StopRule {
            half_width: HalfWidth::new(0.02).unwrap(),
            most: max_starts,
            stage: 3,
            raised_from: None,
            budget: budget.map(HumanDuration::from_secs),
        }
    }

    fn cell(starts: &[f64]) -> CellStats {
        CellStats {
            axes: BTreeMap::new(),
            content: ContentHash::from_bytes(b"content"),
            asked: BTreeMap::new(),
            limits: BTreeMap::new(),
            engine: BTreeMap::new(),
            hosts: Vec::new(),
            settings: BTreeMap::new(),
            load: None,
            prompts: None,
            clock_mhz: None,
            capped_share: None,
            one_token_share: None,
            loop_share: None,
            canned_share: None,
            tokens_per_counted: None,
            tokens_per_event: None,
            vision_tokens: None,
            prompt_tokens: None,
            attached: false,
            devices: 1,
            requests: Some(100),
            origin: Origin::Measured,
            gates: vec![FIGURE.to_owned()],
            figures: BTreeMap::from([(
                FIGURE.to_owned(),
                starts.iter().map(|value| vec![*value]).collect(),
            )]),
            intervals: BTreeMap::new(),
            excluded: Vec::new(),
            replaced: Vec::new(),
            launch: None,
            first_stage: Some(3),
            resolutions: BTreeMap::new(),
            no_ratio: BTreeMap::new(),
            no_verdict: BTreeMap::new(),
            answer_tokens: None,
            suspect: Vec::new(),
            tried: None,
        }
    }

    fn excluded(cause: ExclusionCause) -> ExcludedMeasurement {
        ExcludedMeasurement {
            start: 2,
            repeat: 1,
            cause,
            reason: "failed in launch: no memory".to_owned(),
        }
    }

    /// Returns the outlooks of cells on separate launches, each started three times for a minute.
    fn next_steps(until: &StopRule, cells: &[CellStats]) -> Vec<NextStep> {
        let launches: Vec<LaunchId> = (0..cells.len())
            .map(|at| LaunchId::new(format!("l{at}")))
            .collect();
        let candidates = cells.iter().zip(&launches).map(|(cell, launch)| {
            let candidate = Candidate {
                cell,
                launch,
                planned_starts: 3,
            };
            (CellKey::new(format!("engine={launch}")), candidate)
        });
        let cost = Cost {
            starts: 3,
            device_s: 180.0,
        };
        let costs = launches.iter().map(|launch| (launch.clone(), cost)).collect();
        let precisions = cell_precisions(until, &candidates.collect(), &costs);
        precisions
            .into_values()
            .map(|precision| precision.next_step)
            .collect()
    }

    #[test]
    fn a_narrow_cell_is_left_alone_and_a_wide_one_started_again() {
        let (quiet, noisy) = (cell(&[100.0, 100.1, 99.9]), cell(&[100.0, 102.0, 98.0]));
        // 2 % standard deviation between three starts: (4.303 · 0.02 / ln 1.02)² = 18.9.
        assert_eq!(
            next_steps(&stop_rule(20, None), &[quiet.clone(), noisy.clone()]),
            [NextStep::TargetReached, NextStep::MoreStarts(16)]
        );
        // Later starts do not change the outlook.
        let later = [&[100.0, 102.0, 98.0][..], &[150.0; 16]].concat();
        assert_eq!(
            next_steps(&stop_rule(20, None), &[cell(&later)]),
            [NextStep::TargetReached]
        );
        assert_eq!(
            next_steps(&stop_rule(5, None), std::slice::from_ref(&noisy)),
            [NextStep::MoreStarts(2)]
        );
        assert_eq!(
            next_steps(&stop_rule(3, None), &[quiet, noisy]),
            [NextStep::TargetReached, NextStep::MaxStartsReached]
        );
    }

    #[test]
    fn the_interval_is_that_of_the_tables() {
        let known = figure_precision(&cell(&[100.0, 102.0, 98.0])).unwrap();
        // The logarithms have a standard deviation of 0.020003. t with two degrees of freedom is 4.30265.
        assert!((known.half_width - 0.050_944).abs() < 1e-5, "{known:?}");
        assert_eq!((known.starts, known.figure.as_str()), (3, "output throughput"));
    }

    #[test]
    fn the_figure_known_worst_decides() {
        let mut two = cell(&[100.0, 100.1, 99.9]);
        two.gates.push("median_e2e_ms".to_owned());
        two.figures.insert(
            "median_e2e_ms".to_owned(),
            vec![vec![10.0], vec![14.0], vec![12.0, 12.2]],
        );
        assert_eq!(
            figure_precision(&two).unwrap().figure,
            Metric::from_name("median_e2e_ms").unwrap().label()
        );
    }

    #[test]
    fn a_budget_goes_to_launches_in_turn_and_ends_what_it_cannot_pay() {
        let noisy = || cell(&[100.0, 102.0, 98.0]);
        let both = [noisy(), noisy()];
        // Six minutes are spent; a start takes one.
        assert_eq!(
            next_steps(&stop_rule(20, Some(360)), &both),
            [NextStep::BudgetSpent, NextStep::BudgetSpent]
        );
        assert_eq!(
            next_steps(&stop_rule(20, Some(430)), &both),
            [NextStep::MoreStarts(1), NextStep::BudgetSpent]
        );
        assert_eq!(
            next_steps(&stop_rule(20, Some(540)), &both),
            [NextStep::MoreStarts(2), NextStep::MoreStarts(1)]
        );
        assert_eq!(
            next_steps(&stop_rule(20, Some(6000)), &both),
            [NextStep::MoreStarts(16), NextStep::MoreStarts(16)]
        );
        // The budget is less than the planned starts took.
        assert_eq!(
            next_steps(&stop_rule(20, Some(1)), &both[..1]),
            [NextStep::BudgetSpent]
        );
    }

    #[test]
    fn cells_that_failed_or_cannot_tell_ask_for_no_more() {
        let mut failed = cell(&[100.0, 102.0]);
        failed.excluded.push(excluded(ExclusionCause::Failed));
        let mut doubted = cell(&[100.0, 102.0]);
        doubted.excluded.push(excluded(ExclusionCause::Invalid));
        let outlooks = next_steps(
            &stop_rule(20, None),
            &[
                failed,
                cell(&[100.0]),
                cell(&[]),
                cell(&[100.0, 0.0, 98.0]),
                doubted,
            ],
        );
        for (at, why) in [
            (0, "start 2: failed in launch"),
            (1, "only 1 of the cell's starts can be used"),
            (2, "only 0 of the cell's starts can be used"),
            (3, "is zero or missing on one of the starts"),
        ] {
            assert!(
                matches!(&outlooks[at], NextStep::NotPossible(actual) if actual.contains(why)),
                "{why}: {:?}",
                outlooks[at]
            );
        }
        // Two valid starts are left when the invalid one is excluded.
        assert!(
            matches!(outlooks[4], NextStep::MoreStarts(_)),
            "{:?}",
            outlooks[4]
        );
    }
}
