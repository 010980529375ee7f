//! Computes how precise the metrics of a run are, and which cells need another start. The number of starts of
//! a cell depends only on the standard deviation of its first stage. So the stopping rule favours no result
//! and the interval keeps its confidence.

use std::collections::BTreeMap;

use super::power;
use super::t_test;
use super::verdict::{logs, relative};
use crate::analysis::metrics::Metric;
use crate::base::ids::{CellKey, LaunchId};
use crate::config::repeats::Until;
use crate::results::record::cell_stats::{Cause, SideCell};

/// Precision of the least precise gating metric of a cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Known {
    /// Name of the metric, for users.
    pub figure: String,
    /// Upper half of its 95 % interval (Student's t of the logarithms), as a share. The lower half is
    /// slightly smaller.
    pub half_width: f64,
    /// Valid starts.
    pub starts: usize,
    /// Starts of the first stage, which alone determine `sigma`.
    pub stage: usize,
    /// Standard deviation of the first stage, of logarithms.
    pub sigma: f64,
}

/// Precision of a cell, and whether it gets another start.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Certainty {
    pub until: Until,
    pub known: Option<Known>,
    pub outlook: Outlook,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// No: it is as precise as required.
    Enough,
    Wants(u32),
    /// No: it has the highest number of starts.
    Most,
    /// No: another start would exceed the budget.
    Budget,
    /// No: another start would not help, for this reason.
    Hopeless(String),
}

impl Outlook {
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Enough => "enough",
            Self::Wants(_) => "wants-more",
            Self::Most => "most-starts",
            Self::Budget => "budget-spent",
            Self::Hopeless(_) => "hopeless",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Candidate<'a> {
    pub cell: &'a SideCell,
    pub launch: &'a LaunchId,
    /// Starts that are planned for it, measured or not.
    pub planned: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Cost {
    pub starts: u32,
    /// Total time of these starts, in seconds of one device.
    pub device_s: f64,
}

impl Cost {
    /// Returns the expected cost of another start, in seconds of one device.
    fn of_one(self) -> f64 {
        self.device_s / f64::from(self.starts.max(1))
    }
}

/// Computes the precision of each cell and the starts that it still needs. The budget is given to the
/// launches in turn, one start each. The cost of a start is estimated from those of the launch so far.
pub(crate) fn certainties(
    until: &Until,
    candidates: &BTreeMap<CellKey, Candidate<'_>>,
    costs: &BTreeMap<LaunchId, Cost>,
) -> BTreeMap<CellKey, Certainty> {
    let mut wanted: BTreeMap<&LaunchId, u32> = BTreeMap::new();
    let mut found = BTreeMap::new();
    for (key, candidate) in candidates {
        let certainty = alone(until, candidate);
        if let Outlook::Wants(more) = certainty.outlook {
            let of_launch = wanted.entry(candidate.launch).or_default();
            *of_launch = more.max(*of_launch);
        }
        found.insert(key.clone(), certainty);
    }
    let Some(budget) = until.budget else { return found };
    let granted = affordable(budget.duration().as_secs_f64(), &wanted, costs);
    for (key, certainty) in &mut found {
        if let Outlook::Wants(more) = certainty.outlook {
            let granted = granted.get(candidates[key].launch).copied().unwrap_or(0);
            certainty.outlook = match more.min(granted) {
                0 => Outlook::Budget,
                more => Outlook::Wants(more),
            };
        }
    }
    found
}

/// Returns the result for a cell without a budget.
fn alone(until: &Until, candidate: &Candidate<'_>) -> Certainty {
    let known = known(candidate.cell);
    let mut failed = candidate.cell.excluded.iter();
    let failed = failed.find(|excluded| excluded.cause == Cause::Failed);
    let outlook = match (&known, failed) {
        (_, Some(failed)) => Outlook::Hopeless(format!("start {}: {}", failed.start, failed.reason)),
        (Err(why), None) => Outlook::Hopeless(why.clone()),
        (Ok(known), None) => {
            let left = until.most.saturating_sub(candidate.planned);
            let wanted = power::two_stage(known.sigma, known.stage, until.half_width.share().ln_1p());
            match wanted.saturating_sub(known.starts) {
                0 => Outlook::Enough,
                _ if left == 0 => Outlook::Most,
                more => Outlook::Wants(u32::try_from(more).unwrap_or(left).min(left)),
            }
        }
    };
    Certainty {
        until: *until,
        known: known.ok(),
        outlook,
    }
}

/// Computes the precision of a cell, or says why it has none.
fn known(cell: &SideCell) -> Result<Known, String> {
    let mut worst: Option<Known> = None;
    for gate in &cell.gates {
        let figure = Metric::of_name(gate).map_or_else(|| gate.clone(), Metric::label);
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
            return Err(format!("{figure} is nothing on one of the starts"));
        };
        let stage = cell
            .first_stage
            .map_or(means.len(), |stage| means.len().min(stage as usize));
        if stage < 2 {
            return Err(format!("{stage} of its starts count, and two are needed"));
        }
        let sigma = t_test::variance(&means[..stage]).sqrt();
        // Later starts may widen the interval, but request no further starts.
        let shown = t_test::variance(&means).sqrt().max(sigma);
        let half_width = relative(power::half_width(shown, stage, means.len()));
        if worst.as_ref().is_none_or(|worst| worst.half_width < half_width) {
            worst = Some(Known {
                figure,
                half_width,
                starts: means.len(),
                stage,
                sigma,
            });
        }
    }
    worst.ok_or_else(|| "no figure gates it".to_owned())
}

/// Returns the number of starts of each launch that fit into the budget, in seconds of one device.
fn affordable<'a>(
    budget: f64,
    wanted: &BTreeMap<&'a LaunchId, u32>,
    costs: &BTreeMap<LaunchId, Cost>,
) -> BTreeMap<&'a LaunchId, u32> {
    let mut left = budget - costs.values().map(|cost| cost.device_s).sum::<f64>();
    let mut granted = BTreeMap::new();
    let most = wanted.values().copied().max().unwrap_or(0);
    for round in 1..=most {
        for (launch, _) in wanted.iter().filter(|(_, starts)| **starts >= round) {
            let cost = costs.get(*launch).copied().unwrap_or_default().of_one();
            // A launch whose start did not fit once gets no more starts. So it neither blocks the others nor
            // gets a start after a cheaper one.
            if cost <= left && granted.get(launch).copied().unwrap_or(0) == round - 1 {
                left -= cost;
                granted.insert(*launch, round);
            }
        }
    }
    granted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::ContentHash;
    use crate::base::units::Span;
    use crate::config::repeats::HalfWidth;
    use crate::results::record::cell::Origin;
    use crate::results::record::cell_stats::Excluded;

    const FIGURE: &str = "output_throughput_tok_s";

    fn until(most: u32, budget: Option<u64>) -> Until {
        Until {
            half_width: HalfWidth::new(0.02).unwrap(),
            most,
            stage: 3,
            raised_from: None,
            budget: budget.map(Span::seconds),
        }
    }

    fn cell(starts: &[f64]) -> SideCell {
        SideCell {
            axes: BTreeMap::new(),
            content: ContentHash::of_bytes(b"content"),
            asked: BTreeMap::new(),
            limits: BTreeMap::new(),
            engine: BTreeMap::new(),
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

    fn excluded(cause: Cause) -> Excluded {
        Excluded {
            start: 2,
            repeat: 1,
            cause,
            reason: "failed in launch: no memory".to_owned(),
        }
    }

    /// Returns the outlooks of cells on separate launches, each started three times for a minute.
    fn outlooks(until: &Until, cells: &[SideCell]) -> Vec<Outlook> {
        let launches: Vec<LaunchId> = (0..cells.len())
            .map(|at| LaunchId::new(format!("l{at}")))
            .collect();
        let candidates = cells.iter().zip(&launches).map(|(cell, launch)| {
            let candidate = Candidate {
                cell,
                launch,
                planned: 3,
            };
            (CellKey::new(format!("engine={launch}")), candidate)
        });
        let cost = Cost {
            starts: 3,
            device_s: 180.0,
        };
        let costs = launches.iter().map(|launch| (launch.clone(), cost)).collect();
        let found = certainties(until, &candidates.collect(), &costs);
        found.into_values().map(|certainty| certainty.outlook).collect()
    }

    #[test]
    fn a_narrow_cell_is_left_alone_and_a_wide_one_started_again() {
        let (quiet, noisy) = (cell(&[100.0, 100.1, 99.9]), cell(&[100.0, 102.0, 98.0]));
        // 2 % standard deviation between three starts: (4.303 · 0.02 / ln 1.02)² = 18.9.
        assert_eq!(
            outlooks(&until(20, None), &[quiet.clone(), noisy.clone()]),
            [Outlook::Enough, Outlook::Wants(16)]
        );
        // Later starts do not change the outlook.
        let later = [&[100.0, 102.0, 98.0][..], &[150.0; 16]].concat();
        assert_eq!(outlooks(&until(20, None), &[cell(&later)]), [Outlook::Enough]);
        assert_eq!(
            outlooks(&until(5, None), std::slice::from_ref(&noisy)),
            [Outlook::Wants(2)]
        );
        assert_eq!(
            outlooks(&until(3, None), &[quiet, noisy]),
            [Outlook::Enough, Outlook::Most]
        );
    }

    #[test]
    fn the_interval_is_that_of_the_tables() {
        let known = known(&cell(&[100.0, 102.0, 98.0])).unwrap();
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
            known(&two).unwrap().figure,
            Metric::of_name("median_e2e_ms").unwrap().label()
        );
    }

    #[test]
    fn a_budget_goes_to_launches_in_turn_and_ends_what_it_cannot_pay() {
        let noisy = || cell(&[100.0, 102.0, 98.0]);
        let both = [noisy(), noisy()];
        // Six minutes are spent; a start takes one.
        assert_eq!(
            outlooks(&until(20, Some(360)), &both),
            [Outlook::Budget, Outlook::Budget]
        );
        assert_eq!(
            outlooks(&until(20, Some(430)), &both),
            [Outlook::Wants(1), Outlook::Budget]
        );
        assert_eq!(
            outlooks(&until(20, Some(540)), &both),
            [Outlook::Wants(2), Outlook::Wants(1)]
        );
        assert_eq!(
            outlooks(&until(20, Some(6000)), &both),
            [Outlook::Wants(16), Outlook::Wants(16)]
        );
        // The budget is less than the planned starts took.
        assert_eq!(outlooks(&until(20, Some(1)), &both[..1]), [Outlook::Budget]);
    }

    #[test]
    fn cells_that_failed_or_cannot_tell_ask_for_no_more() {
        let mut failed = cell(&[100.0, 102.0]);
        failed.excluded.push(excluded(Cause::Failed));
        let mut doubted = cell(&[100.0, 102.0]);
        doubted.excluded.push(excluded(Cause::Invalid));
        let outlooks = outlooks(
            &until(20, None),
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
            (1, "1 of its starts count"),
            (2, "0 of its starts count"),
            (3, "is nothing on one of the starts"),
        ] {
            assert!(
                matches!(&outlooks[at], Outlook::Hopeless(told) if told.contains(why)),
                "{why}: {:?}",
                outlooks[at]
            );
        }
        // Two valid starts are left when the invalid one is excluded.
        assert!(matches!(outlooks[4], Outlook::Wants(_)), "{:?}", outlooks[4]);
    }
}
