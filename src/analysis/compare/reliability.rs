//! Finds losses of reliability: crashed starts, starts without a good request, and failed requests that the
//! baseline did not have. They are findings of their own, whatever the remaining starts show.

mod permutation;

use std::collections::BTreeSet;

use statrs::distribution::{DiscreteCDF, Hypergeometric};

use super::cell_facts::{SLO, differing_facts};
use super::decision::ALPHA;
use super::{multiple_testing, resolution};
use crate::analysis::metrics::{Metric, Quantity};
use crate::base::ids::CellKey;
use crate::results::record::cell_stats::{CellStats, ExclusionCause, ReliabilityCounts};
use permutation::{PermutationDistribution, adjusted_p_values};

/// The share of failed requests may rise by this much before it counts.
pub(crate) const REQUEST_BOUND: f64 = 0.001;
/// Fewest starts per side that show how much starts differ in failed requests.
const MIN_STARTS: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) cell: CellKey,
    /// What failed, as a sentence for users.
    pub(crate) text: String,
    /// Whether it is a regression. Otherwise it is shown, but may be due to single starts.
    pub(crate) is_regression: bool,
}

/// Starts of a pair of cells that crashed without being a loss of reliability, and results that others replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartHistory {
    pub(crate) cell: CellKey,
    /// Crashes of the candidate, which are no more than those of the baseline, as a sentence for users.
    pub(crate) crashes: Option<String>,
    /// Crashes of the baseline alone, as a sentence for users.
    pub(crate) baseline_crashes: Option<String>,
    /// Results of the baseline and of the candidate that others replaced, in words.
    pub(crate) replaced: [Vec<String>; 2],
}

/// Returns the pairs with such starts or results.
pub(crate) fn start_histories(pairs: &[(&CellKey, &CellStats, &CellStats)]) -> Vec<StartHistory> {
    let history = |(key, baseline, candidate): &(&CellKey, &CellStats, &CellStats)| {
        let (before, after) = (attempts(baseline), attempts(candidate));
        let is_loss = crashed_starts(&before, &after).is_some();
        let in_words = |cell: &CellStats| {
            format!(
                "{} of {} starts crashed, compared with {} of {} on the baseline{}",
                after.crashed,
                after.starts,
                before.crashed,
                before.starts,
                first_failure_reason(cell)
            )
        };
        let replaced = [&baseline.replaced, &candidate.replaced].map(Clone::clone);
        StartHistory {
            cell: (*key).clone(),
            crashes: (after.crashed > 0 && !is_loss).then(|| in_words(candidate)),
            baseline_crashes: (before.crashed > 0 && after.crashed == 0).then(|| in_words(baseline)),
            replaced,
        }
    };
    let is_eventful = |history: &StartHistory| {
        history.crashes.is_some()
            || history.baseline_crashes.is_some()
            || history.replaced.iter().any(|side| !side.is_empty())
    };
    pairs.iter().map(history).filter(is_eventful).collect()
}

/// Returns losses of reliability. Crashed starts count if the baseline had none, or if the increase is beyond
/// chance. Starts without a good request count in the same way. Failed requests count if their share rose by
/// more than [`REQUEST_BOUND`] and beyond chance among all cells.
///
/// Requests of one start are correlated. So an increase must be rare when starts are assigned to sides at
/// random, in any of the cells (`chances_of_starts`). An increase that is only beyond chance for independent
/// requests is shown, but is no regression.
pub(crate) fn failures(pairs: &[(&CellKey, &CellStats, &CellStats)]) -> Vec<Failure> {
    let mut failures: Vec<Failure> = Vec::new();
    let mut rises = Vec::new();
    // A request that the client gives up is no failure of the engine. Other timeouts make other requests
    // fail.
    let alike = pairs.iter().filter(|(_, baseline, candidate)| {
        let is_known = !baseline.limits.is_empty() && !candidate.limits.is_empty();
        let differing = differing_facts(&baseline.limits, &candidate.limits);
        !is_known || differing.filter(|(what, ..)| *what != SLO).count() == 0
    });
    for (key, baseline, candidate) in alike {
        let (before, after) = (attempts(baseline), attempts(candidate));
        let lost = [
            crashed_starts(&before, &after).map(|lost| LostStarts {
                text: format!("{}{}", lost.text, first_failure_reason(candidate)),
                ..lost
            }),
            lost_goodput_starts(baseline, candidate, pairs.len()),
        ];
        for LostStarts { text, is_regression } in lost.into_iter().flatten() {
            let why = if is_regression { "" } else { CHANCE_NOTE };
            failures.push(Failure {
                cell: (*key).clone(),
                text: format!("{text}{why}"),
                is_regression,
            });
        }
        if before.requests > 0 && after.requests > 0 {
            rises.push((*key, FailureRise { before, after }));
        }
    }
    let (keys, rises): (Vec<_>, Vec<FailureRise>) = rises.into_iter().unzip();
    for ((key, rise), is_regression) in keys.into_iter().zip(&rises).zip(judge_rises(&rises)) {
        failures.extend(is_regression.map(|is_regression| Failure {
            cell: key.clone(),
            text: rise.in_words(is_regression),
            is_regression,
        }));
    }
    failures
}

/// Says for each increase whether it is a regression, corrected for all of them. `None` if it may be chance
/// even for independent requests.
fn judge_rises(rises: &[FailureRise]) -> Vec<Option<bool>> {
    let of_requests: Vec<f64> = rises.iter().map(FailureRise::chance_of_requests).collect();
    let of_requests = multiple_testing::holm_adjusted(&of_requests, of_requests.len());
    let of_starts = adjusted_p_values(
        &rises
            .iter()
            .map(FailureRise::permutation_distribution)
            .collect::<Vec<_>>(),
    );
    let chances = of_requests.into_iter().zip(of_starts);
    let judge = |(rise, (of_requests, of_starts)): (&FailureRise, (f64, f64))| {
        // Starts may vary less than independent requests do, so both tests must pass.
        (rise.size() > REQUEST_BOUND && of_requests <= ALPHA).then_some(of_starts <= ALPHA)
    };
    rises.iter().zip(chances).map(judge).collect()
}

/// Remark on a loss that may be chance.
const CHANCE_NOTE: &str = "; not counted as a regression: a difference between so few starts may be chance";

/// Starts that were lost more often than on the baseline.
#[derive(Debug)]
struct LostStarts {
    text: String,
    is_regression: bool,
}

struct FailureRise {
    before: ReliabilityCounts,
    after: ReliabilityCounts,
}

impl FailureRise {
    /// Returns the increase of the share of failed requests.
    fn size(&self) -> f64 {
        let share = |tried: &ReliabilityCounts| tried.failed as f64 / tried.requests as f64;
        share(&self.after) - share(&self.before)
    }

    /// Returns the p-value of the increase for independent requests.
    fn chance_of_requests(&self) -> f64 {
        let Self { before, after } = self;
        fisher_exact([before.failed, before.requests], [after.failed, after.requests])
    }

    /// Returns the failed requests and all requests of each start. `None` if too few starts are known.
    fn failures_by_start_of_sides(&self) -> Option<[Vec<[u64; 2]>; 2]> {
        let sides = [failures_by_start(&self.before)?, failures_by_start(&self.after)?];
        sides.iter().all(|side| side.len() >= MIN_STARTS).then_some(sides)
    }

    fn permutation_distribution(&self) -> Option<PermutationDistribution> {
        self.failures_by_start_of_sides()
            .map(|sides| PermutationDistribution::from_sides(&sides))
    }

    fn in_words(&self, is_regression: bool) -> String {
        let failed_requests = |tried: &ReliabilityCounts, what: &str| {
            let starts = failures_by_start(tried).map(|starts| {
                let failing = starts.iter().filter(|[failed, _]| *failed > 0).count();
                format!(" in {failing} of {} starts", starts.len())
            });
            format!(
                "{} of {} {what}{}",
                tried.failed,
                tried.requests,
                starts.unwrap_or_default()
            )
        };
        let why = match (is_regression, self.failures_by_start_of_sides()) {
            (true, _) => "",
            (false, None) => "; not judged: a verdict needs the requests of three starts on each side",
            (false, Some(_)) => CHANCE_NOTE,
        };
        format!(
            "{}, baseline {}{why}",
            failed_requests(&self.after, "requests failed"),
            failed_requests(&self.before, "requests")
        )
    }
}

/// Returns the failed requests and all requests of each start. Older files have only the sums, which suffice
/// if no request failed.
fn failures_by_start(tried: &ReliabilityCounts) -> Option<Vec<[u64; 2]>> {
    let measured = u64::from(tried.starts.saturating_sub(tried.crashed));
    match tried.by_start.as_slice() {
        [] if tried.failed == 0 && measured > 0 => {
            Some(vec![[0, tried.requests / measured]; measured as usize])
        }
        [] => None,
        starts => Some(
            starts
                .iter()
                .copied()
                .filter(|[_, requests]| *requests > 0)
                .collect(),
        ),
    }
}

/// Reports starts without a good request if the baseline had none, or if the increase is beyond chance.
/// `None` if so few requests are good that a start may have none by chance, among `cells`.
fn lost_goodput_starts(
    baseline_cell: &CellStats,
    candidate_cell: &CellStats,
    cells: usize,
) -> Option<LostStarts> {
    // Whatever decides the comparison: more tokens of which none is in time are no gain.
    let is_known = |metric: &Metric| {
        let name = metric.name();
        [baseline_cell, candidate_cell]
            .iter()
            .all(|cell| !cell.start_values(&name).is_empty())
    };
    let metric = [Metric::Goodput, Metric::Attainment].into_iter().find(is_known)?;
    if baseline_cell.limits.get(SLO) != candidate_cell.limits.get(SLO) {
        return None;
    }
    let name = metric.name();
    let (before, after) = (
        baseline_cell.start_values(&name),
        candidate_cell.start_values(&name),
    );
    let none = |starts: &[f64]| starts.iter().filter(|goodput| **goodput == 0.0).count();
    let lost = [none(&before), none(&after)];
    let lost = lost.map(|lost| lost as u64);
    let tries = [before.len() as u64, after.len() as u64];
    if lost[0] == tries[0] {
        return None;
    }
    let is_regression = is_regression([lost[0], tries[0]], [lost[1], tries[1]])?;
    // Compares the start of the baseline with the fewest good requests with a start that has none.
    let throughput = baseline_cell.start_values(&Metric::Throughput(Quantity::Requests).name());
    let half = resolution::half_request_value(metric, &throughput, baseline_cell.requests.map(f64::from))?;
    let fewest = before
        .iter()
        .copied()
        .filter(|goodput| *goodput > 0.0)
        .fold(f64::INFINITY, f64::min);
    let (requests, of_start) = (
        u64::from(baseline_cell.requests?),
        u64::from(candidate_cell.requests?),
    );
    let good = ((fewest / half / 2.0).round() as u64).min(requests);
    let by_chance = fisher_exact([requests - good, requests], [of_start, of_start]);
    let looks = (cells * after.len()) as f64;
    (by_chance * looks <= ALPHA).then(|| LostStarts {
        text: format!(
            "{} is 0 on {} of {} starts, compared with {} of {} on the baseline",
            metric.label(),
            lost[1],
            tries[1],
            lost[0],
            tries[0]
        ),
        is_regression,
    })
}

/// Returns whether more lost starts are a regression: the baseline had none, or the increase is beyond
/// chance. Each side is lost starts and all starts. `None` if the share did not rise.
fn is_regression(before: [u64; 2], after: [u64; 2]) -> Option<bool> {
    let is_more = after[0] * before[1] > before[0] * after[1];
    is_more.then(|| before[0] == 0 || fisher_exact(before, after) <= ALPHA)
}

/// Reports crashed starts if their share rose.
fn crashed_starts(before: &ReliabilityCounts, after: &ReliabilityCounts) -> Option<LostStarts> {
    let crashes_and_starts = |tried: &ReliabilityCounts| [tried.crashed.into(), tried.starts.into()];
    let is_regression = is_regression(crashes_and_starts(before), crashes_and_starts(after))?;
    let text = format!(
        "{} of {} starts crashed, compared with {} of {} on the baseline",
        after.crashed, after.starts, before.crashed, before.starts
    );
    Some(LostStarts { text, is_regression })
}

/// Returns the reason of the first failure, in brackets.
fn first_failure_reason(cell: &CellStats) -> String {
    let mut failed = cell.excluded.iter();
    let first = failed.find(|excluded| excluded.cause == ExclusionCause::Failed);
    first.map_or_else(String::new, |first| format!(" ({})", first.reason))
}

/// Returns how often a cell was tried. Older files do not have it, so it is counted from valid and failed
/// starts.
fn attempts(cell: &CellStats) -> ReliabilityCounts {
    cell.tried.clone().unwrap_or_else(|| {
        let failed = cell
            .excluded
            .iter()
            .filter(|excluded| excluded.cause == ExclusionCause::Failed);
        let crashed = failed
            .map(|excluded| excluded.start)
            .collect::<BTreeSet<u32>>()
            .len();
        let counted = cell.figures.values().map(Vec::len).max().unwrap_or(0);
        ReliabilityCounts {
            starts: (crashed + counted) as u32,
            crashed: crashed as u32,
            ..ReliabilityCounts::default()
        }
    })
}

/// Returns the p-value of this many failures on the second side if both fail equally often. Each side is
/// failures and tries.
///
/// Source: R. A. Fisher's exact test, one-sided: "The design of experiments", 1935.
fn fisher_exact([failed, tries]: [u64; 2], [also_failed, also_tries]: [u64; 2]) -> f64 {
    let Ok(drawn) = Hypergeometric::new(tries + also_tries, failed + also_failed, also_tries) else {
        return 1.0;
    };
    also_failed.checked_sub(1).map_or(1.0, |fewer| drawn.sf(fewer))
}

#[cfg(test)]
mod tests {
    use super::super::decision::synthetic::SeededRng;
    use super::*;

    fn starts(crashed: u32, starts: u32) -> ReliabilityCounts {
        ReliabilityCounts {
            starts,
            crashed,
            ..ReliabilityCounts::default()
        }
    }

    #[test]
    fn a_crash_where_none_was_is_a_loss_and_more_of_some_may_be_chance() {
        let lost = |before, after| crashed_starts(&before, &after).map(|lost| lost.is_regression);
        let loss = crashed_starts(&starts(0, 5), &starts(3, 5)).expect("more crashed");
        assert_eq!(
            loss.text,
            "3 of 5 starts crashed, compared with 0 of 5 on the baseline"
        );
        assert_eq!(lost(starts(0, 5), starts(1, 5)), Some(true));
        assert_eq!(
            lost(starts(1, 5), starts(4, 5)),
            Some(false),
            "shown: it may be chance"
        );
        assert_eq!(lost(starts(1, 20), starts(9, 20)), Some(true));
        for (before, after) in [
            ((0, 5), (0, 5)),
            ((2, 5), (2, 5)),
            ((2, 5), (1, 5)),
            ((0, 0), (5, 5)),
        ] {
            assert_eq!(lost(starts(before.0, before.1), starts(after.0, after.1)), None);
        }
    }

    #[test]
    fn the_test_is_fishers() {
        // R: fisher.test(matrix(c(3, 2, 0, 5), 2), alternative = "greater")$p.value
        assert!((fisher_exact([0, 5], [3, 5]) - 1.0 / 12.0).abs() < 1e-9);
        assert_eq!(fisher_exact([0, 1000], [0, 1000]), 1.0);
        assert!(fisher_exact([0, 10_000], [40, 10_000]) < 1e-10);
        assert!(fisher_exact([5, 10_000], [8, 10_000]) > 0.2);
    }

    /// Returns the failed requests of starts with a thousand requests each.
    fn rise(before: &[u64], after: &[u64]) -> FailureRise {
        rise_of(before, after, 1000)
    }

    fn rise_of(before: &[u64], after: &[u64], requests: u64) -> FailureRise {
        let tried = |failed: &[u64]| ReliabilityCounts {
            starts: failed.len() as u32,
            crashed: 0,
            requests: requests * failed.len() as u64,
            failed: failed.iter().sum(),
            by_start: failed.iter().map(|failed| [*failed, requests]).collect(),
        };
        FailureRise {
            before: tried(before),
            after: tried(after),
        }
    }

    /// Bursts that hit single starts are rarely a regression among 18 cells, and an increase in every start
    /// is found. `MATRIX_RUNS` sets the number of runs.
    #[test]
    fn bursts_are_seldom_regressions_and_a_rise_in_every_start_is_found() {
        #[expect(
            clippy::disallowed_methods,
            reason = "an environment variable sets the length of a test"
        )]
        let regressions = std::env::var("MATRIX_RUNS").ok();
        let runs = regressions.map_or(60, |text| text.parse().expect("MATRIX_RUNS is a number"));
        let seed = 20_261_123;
        let mut dice = SeededRng::new(seed);
        let mut start = |share: f64| {
            // A fifth of the starts loses a tenth of its 200 requests more.
            let share = share + if dice.uniform() < 0.2 { 0.1 } else { 0.0 };
            (0..200).filter(|_| dice.uniform() < share).count() as u64
        };
        let mut cell = |after: f64, starts: usize| {
            let mut side = |share: f64| (0..starts).map(|_| start(share)).collect::<Vec<u64>>();
            rise_of(&side(0.005), &side(after), 200)
        };
        for (starts, found_at_least) in [(3, 0.3), (5, 0.9), (8, 0.9)] {
            let (mut alarms, mut found_rises) = (0, 0);
            for _ in 0..runs {
                let mut rises: Vec<FailureRise> = (0..17).map(|_| cell(0.005, starts)).collect();
                rises.push(cell(0.2, starts));
                let regressions = judge_rises(&rises);
                found_rises += usize::from(regressions[17] == Some(true));
                alarms += usize::from(regressions[..17].contains(&Some(true)));
            }
            println!(
                "{starts} starts: {alarms} of {runs} runs with a false regression, {found_rises} true ones found; seed {seed}"
            );
            assert!(
                alarms as f64 <= 0.05 * runs as f64 + 2.34 * (0.0475 * runs as f64).sqrt(),
                "{starts}: {alarms}"
            );
            assert!(
                found_rises as f64 >= found_at_least * runs as f64,
                "{starts}: {found_rises}"
            );
        }
    }

    #[test]
    fn failed_requests_are_judged_by_starts() {
        let chance = |before: &[u64], after: &[u64]| {
            adjusted_p_values(&[rise(before, after).permutation_distribution()])[0]
        };
        // All failures are in one start, which is as likely on the other side.
        assert!(rise(&[0; 5], &[0, 0, 45, 0, 0]).chance_of_requests() < 1e-9);
        assert!((chance(&[0; 5], &[0, 0, 45, 0, 0]) - 0.5).abs() < 1e-9);
        // Failures in every start: one choice of 252, or one of 20 for three starts.
        assert!((chance(&[0; 5], &[9, 12, 10, 8, 11]) - 1.0 / 252.0).abs() < 1e-9);
        assert!(chance(&[1, 0, 2], &[9, 12, 10]) <= ALPHA, "1 in 20 is enough");
        // As many as before, and too few to be beyond chance.
        assert!(chance(&[10; 5], &[10; 5]) >= 0.5);
        assert!(chance(&[0; 5], &[1, 0, 1, 0, 1]) > ALPHA);
        assert_eq!(chance(&[0, 0], &[50, 50]), 1.0);
        // More choices than are tried.
        assert!(chance(&[0; 20], &[10; 20]) < 1e-9);
        assert!(chance(&[0; 20], &[0; 20]) > 0.4);
    }

    #[test]
    fn bursts_in_many_cells_make_a_rise_in_one_of_them_likely_and_quiet_cells_do_not() {
        let risen = || rise(&[0; 5], &[31, 28, 33, 29, 0]).permutation_distribution();
        let family = |others: fn() -> Option<PermutationDistribution>| {
            let cells: Vec<Option<PermutationDistribution>> = std::iter::once(risen())
                .chain((0..17).map(|_| others()))
                .collect();
            adjusted_p_values(&cells)[0]
        };
        assert!(family(|| rise(&[0; 5], &[0; 5]).permutation_distribution()) <= ALPHA);
        let bursts = || rise(&[30, 29, 0, 0, 0], &[0, 31, 0, 28, 0]).permutation_distribution();
        assert!(family(bursts) > ALPHA);
        // If failures rise in all cells, all are found.
        let all: Vec<Option<PermutationDistribution>> = (0..24)
            .map(|cell| rise(&[0; 5], &[9, 12, 10 + cell, 8, 11]).permutation_distribution())
            .collect();
        assert!(adjusted_p_values(&all).iter().all(|chance| *chance <= ALPHA));
    }

    #[test]
    fn a_rise_in_one_start_is_told_with_the_number_of_starts() {
        assert_eq!(
            rise(&[0; 5], &[0, 0, 9, 0, 0]).in_words(false),
            "9 of 5000 requests failed in 1 of 5 starts, baseline 0 of 5000 requests in 0 of 5 starts; not counted as a regression: a difference between so few \
             starts may be chance"
        );
    }
}
