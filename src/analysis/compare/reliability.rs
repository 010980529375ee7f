//! Finds losses of reliability: crashed starts, starts without a good request, and failed requests that the
//! baseline did not have. They are findings of their own, whatever the remaining starts show.

use std::collections::BTreeSet;

use statrs::distribution::{DiscreteCDF, Hypergeometric};

use super::comparable::SLO;
use super::decision::ALPHA;
use super::{multiple_testing, resolution, t_test};
use crate::analysis::metrics::{Flow, Metric};
use crate::base::ids::CellKey;
use crate::results::record::cell_stats::{Cause, SideCell, Tried};

/// The share of failed requests may rise by this much before it counts.
pub(crate) const REQUEST_BOUND: f64 = 0.001;
/// Fewest starts per side that show how much starts differ in failed requests.
const LEAST_STARTS: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub cell: CellKey,
    /// What failed, as a sentence for users.
    pub text: String,
    /// Whether it is a regression. Otherwise it is shown, but may be due to single starts.
    pub is_regression: bool,
}

/// Returns losses of reliability. Crashed starts count if the baseline had none, or if the increase is beyond
/// chance. Starts without a good request count in the same way. Failed requests count if their share rose by
/// more than [`REQUEST_BOUND`] and beyond chance among all cells.
///
/// Requests of one start are correlated. So an increase must be rare when starts are assigned to sides at
/// random, in any of the cells (`chances_of_starts`). An increase that is only beyond chance for independent
/// requests is shown, but is no regression.
pub(crate) fn failures(pairs: &[(&CellKey, &SideCell, &SideCell)]) -> Vec<Failure> {
    let mut found: Vec<Failure> = Vec::new();
    let mut rises = Vec::new();
    // A request that the client gives up is no failure of the engine. Other timeouts make other requests
    // fail.
    let alike = pairs.iter().filter(|(_, one, two)| {
        let is_known = !one.limits.is_empty() && !two.limits.is_empty();
        let differing = super::comparable::differing(&one.limits, &two.limits);
        !is_known || differing.filter(|(what, ..)| *what != SLO).count() == 0
    });
    for (key, one, two) in alike {
        let (before, after) = (tried(one), tried(two));
        let lost = [
            crashes(&before, &after).map(|lost| Lost {
                text: format!("{}{}", lost.text, reason(two)),
                ..lost
            }),
            without_goodput(one, two, pairs.len()),
        ];
        for Lost { text, is_regression } in lost.into_iter().flatten() {
            let why = if is_regression { "" } else { LUCK };
            found.push(Failure {
                cell: (*key).clone(),
                text: format!("{text}{why}"),
                is_regression,
            });
        }
        if before.requests > 0 && after.requests > 0 {
            rises.push((*key, Rise { before, after }));
        }
    }
    let (keys, rises): (Vec<_>, Vec<Rise>) = rises.into_iter().unzip();
    for ((key, rise), is_regression) in keys.into_iter().zip(&rises).zip(judged(&rises)) {
        found.extend(is_regression.map(|is_regression| Failure {
            cell: key.clone(),
            text: rise.told(is_regression),
            is_regression,
        }));
    }
    found
}

/// Says for each increase whether it is a regression, corrected for all of them. `None` if it may be chance
/// even for independent requests.
fn judged(rises: &[Rise]) -> Vec<Option<bool>> {
    let of_requests: Vec<f64> = rises.iter().map(Rise::chance_of_requests).collect();
    let of_requests = multiple_testing::holm_adjusted(&of_requests, of_requests.len());
    let of_starts = chances_of_starts(&rises.iter().map(Rise::shifts).collect::<Vec<_>>());
    let chances = of_requests.into_iter().zip(of_starts);
    let judge = |(rise, (of_requests, of_starts)): (&Rise, (f64, f64))| {
        // Starts may vary less than independent requests do, so both tests must pass.
        (rise.size() > REQUEST_BOUND && of_requests <= ALPHA).then_some(of_starts <= ALPHA)
    };
    rises.iter().zip(chances).map(judge).collect()
}

/// Remark on a loss that may be chance.
const LUCK: &str = "; shown and no regression: it may be the luck of single starts";

/// Starts that were lost more often than on the baseline.
#[derive(Debug)]
struct Lost {
    text: String,
    is_regression: bool,
}

struct Rise {
    before: Tried,
    after: Tried,
}

impl Rise {
    /// Returns the increase of the share of failed requests.
    fn size(&self) -> f64 {
        let share = |tried: &Tried| tried.failed as f64 / tried.requests as f64;
        share(&self.after) - share(&self.before)
    }

    /// Returns the p-value of the increase for independent requests.
    fn chance_of_requests(&self) -> f64 {
        let Self { before, after } = self;
        exact([before.failed, before.requests], [after.failed, after.requests])
    }

    /// Returns the failed requests and all requests of each start. `None` if too few starts are known.
    fn by_start(&self) -> Option<[Vec<[u64; 2]>; 2]> {
        let sides = [by_start(&self.before)?, by_start(&self.after)?];
        sides
            .iter()
            .all(|side| side.len() >= LEAST_STARTS)
            .then_some(sides)
    }

    fn shifts(&self) -> Option<Shifts> {
        self.by_start().map(|sides| Shifts::of(&sides))
    }

    fn told(&self, is_regression: bool) -> String {
        let told = |tried: &Tried, what: &str| {
            let starts = by_start(tried).map(|starts| {
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
        let why = match (is_regression, self.by_start()) {
            (true, _) => "",
            (false, None) => "; shown and not judged: that takes the requests of three starts on each side",
            (false, Some(_)) => LUCK,
        };
        format!(
            "{}, baseline {}{why}",
            told(&self.after, "requests failed"),
            told(&self.before, "requests")
        )
    }
}

/// Returns the failed requests and all requests of each start. Older files have only the sums, which suffice
/// if no request failed.
fn by_start(tried: &Tried) -> Option<Vec<[u64; 2]>> {
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

/// Up to this many choices are all tried. Above it Student's t is used instead.
const MOST_CHOICES: f64 = 60_000.0;

/// Increase of the failed requests of a cell, observed and for other assignments of its starts to sides.
struct Shifts {
    /// The observed increase in units of its error.
    seen: f64,
    /// The same value for each choice of candidate starts. Empty if there are too many choices.
    choices: Vec<f64>,
    df: f64,
}

impl Shifts {
    /// Computes Student's t of the angles of shares. Their variance is that between starts, but at least that
    /// of independent requests.
    ///
    /// Source: F. J. Anscombe, "The transformation of Poisson, binomial and negative-binomial data", 1948:
    /// arcsin √((k + 3/8) / (n + 3/4)) has the variance 1 / (4n + 2).
    fn of(sides: &[Vec<[u64; 2]>; 2]) -> Self {
        let angle = |[failed, requests]: &[u64; 2]| {
            ((*failed as f64 + 0.375) / (*requests as f64 + 0.75))
                .sqrt()
                .asin()
        };
        let angles: Vec<f64> = sides.iter().flatten().map(angle).collect();
        let [before, after] = [0, 1].map(|side: usize| sides[side].len() as f64);
        let all = before + after;
        let df = all - 2.0;
        let (sum, squares) = (
            angles.iter().sum::<f64>(),
            angles.iter().map(|angle| angle * angle).sum::<f64>(),
        );
        let of_requests = sides
            .iter()
            .flatten()
            .map(|[_, requests]| 1.0 / (4.0 * *requests as f64 + 2.0))
            .sum::<f64>()
            / all;
        // From the sum of the candidate's angles.
        let shift = |own: f64| {
            let means = [(sum - own) / before, own / after];
            let within = squares - before * means[0] * means[0] - after * means[1] * means[1];
            let error = ((within.max(0.0) / df).max(of_requests) * (1.0 / before + 1.0 / after)).sqrt();
            (means[1] - means[0]) / error
        };
        let own = angles[sides[0].len()..].iter().sum();
        let mut choices = Vec::new();
        let chosen = sides[1].len();
        if ways(angles.len(), chosen) <= MOST_CHOICES {
            sums(&angles, chosen, 0.0, &mut |own| choices.push(shift(own)));
        }
        Self {
            seen: shift(own),
            choices,
            df,
        }
    }

    /// Returns the probability of an increase of this size.
    fn chance(&self, size: f64) -> f64 {
        // Sums in another order differ in their last digits.
        let least = size - 1e-9 * size.abs();
        match self.choices.len() {
            0 => t_test::two_sided(least.max(0.0), self.df) / 2.0,
            all => self.choices.iter().filter(|shift| **shift >= least).count() as f64 / all as f64,
        }
    }
}

/// Returns the number of ways to choose `chosen` of `all`.
fn ways(all: usize, chosen: usize) -> f64 {
    (1..=chosen)
        .map(|nth| (all - chosen + nth) as f64 / nth as f64)
        .product()
}

/// Calls `each` with the sum of every choice of `chosen` values.
fn sums(values: &[f64], chosen: usize, sum: f64, each: &mut impl FnMut(f64)) {
    match (chosen, values) {
        (0, _) => each(sum),
        (_, [first, rest @ ..]) if values.len() >= chosen => {
            sums(rest, chosen - 1, sum + first, each);
            sums(rest, chosen, sum, each);
        }
        _ => {}
    }
}

/// Returns for each cell the probability that it, or any cell with a smaller increase, shows an increase of
/// this size when starts are assigned to sides at random. 1 if too few starts are known.
///
/// Source: P. H. Westfall and S. S. Young, "Resampling-based multiple testing", 1993, section 2.6 (step-down,
/// of the largest of all), for independent cells. Cells that share starts have a smaller probability.
fn chances_of_starts(cells: &[Option<Shifts>]) -> Vec<f64> {
    let mut chances = vec![1.0; cells.len()];
    let mut known: Vec<(usize, &Shifts)> = cells
        .iter()
        .enumerate()
        .filter_map(|(at, cell)| Some((at, cell.as_ref()?)))
        .collect();
    known.sort_by(|one, other| other.1.seen.total_cmp(&one.1.seen));
    let mut last: f64 = 0.0;
    for (nth, (at, cell)) in known.iter().enumerate() {
        // Not as 1 − ∏(1 − p), so that a single probability of 1 in 20 stays exact.
        let any = known[nth..].iter().fold(0.0, |any, (_, other)| {
            let one = other.chance(cell.seen);
            any + one - any * one
        });
        last = last.max(any);
        chances[*at] = last;
    }
    chances
}

/// Reports starts without a good request if the baseline had none, or if the increase is beyond chance.
/// `None` if so few requests are good that a start may have none by chance, among `cells`.
fn without_goodput(one: &SideCell, two: &SideCell, cells: usize) -> Option<Lost> {
    let is_gating = |metric: &Metric| {
        let name = metric.name();
        one.gates.contains(&name) && two.gates.contains(&name)
    };
    let metric = [Metric::Goodput, Metric::Attainment]
        .into_iter()
        .find(is_gating)?;
    if one.limits.get(SLO) != two.limits.get(SLO) {
        return None;
    }
    let name = metric.name();
    let (before, after) = (one.starts(&name), two.starts(&name));
    let none = |starts: &[f64]| starts.iter().filter(|goodput| **goodput == 0.0).count();
    let lost = [none(&before), none(&after)];
    let lost = lost.map(|lost| lost as u64);
    let tries = [before.len() as u64, after.len() as u64];
    if lost[0] == tries[0] {
        return None;
    }
    let is_regression = is_loss([lost[0], tries[0]], [lost[1], tries[1]])?;
    // Compares the start of the baseline with the fewest good requests with a start that has none.
    let throughput = one.starts(&Metric::Throughput(Flow::Requests).name());
    let half = resolution::least(metric, &throughput, one.requests.map(f64::from))?;
    let fewest = before
        .iter()
        .copied()
        .filter(|goodput| *goodput > 0.0)
        .fold(f64::INFINITY, f64::min);
    let (requests, of_start) = (u64::from(one.requests?), u64::from(two.requests?));
    let good = ((fewest / half / 2.0).round() as u64).min(requests);
    let by_chance = exact([requests - good, requests], [of_start, of_start]);
    let looks = (cells * after.len()) as f64;
    (by_chance * looks <= ALPHA).then(|| Lost {
        text: format!(
            "{} 0 on {} of {} starts, baseline {} of {}",
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
fn is_loss(before: [u64; 2], after: [u64; 2]) -> Option<bool> {
    let is_more = after[0] * before[1] > before[0] * after[1];
    is_more.then(|| before[0] == 0 || exact(before, after) <= ALPHA)
}

/// Reports crashed starts if their share rose.
fn crashes(before: &Tried, after: &Tried) -> Option<Lost> {
    let of = |tried: &Tried| [tried.crashed.into(), tried.starts.into()];
    let is_regression = is_loss(of(before), of(after))?;
    let text = format!(
        "{} of {} starts crashed, baseline {} of {}",
        after.crashed, after.starts, before.crashed, before.starts
    );
    Some(Lost { text, is_regression })
}

/// Returns the reason of the first failure, in brackets.
fn reason(cell: &SideCell) -> String {
    let mut failed = cell.excluded.iter();
    let first = failed.find(|excluded| excluded.cause == Cause::Failed);
    first.map_or_else(String::new, |first| format!(" ({})", first.reason))
}

/// Returns how often a cell was tried. Older files do not have it, so it is counted from valid and failed
/// starts.
fn tried(cell: &SideCell) -> Tried {
    cell.tried.clone().unwrap_or_else(|| {
        let failed = cell
            .excluded
            .iter()
            .filter(|excluded| excluded.cause == Cause::Failed);
        let crashed = failed
            .map(|excluded| excluded.start)
            .collect::<BTreeSet<u32>>()
            .len();
        let counted = cell.figures.values().map(Vec::len).max().unwrap_or(0);
        Tried {
            starts: (crashed + counted) as u32,
            crashed: crashed as u32,
            ..Tried::default()
        }
    })
}

/// Returns the p-value of this many failures on the second side if both fail equally often. Each side is
/// failures and tries.
///
/// Source: R. A. Fisher's exact test, one-sided: "The design of experiments", 1935.
fn exact([failed, tries]: [u64; 2], [also_failed, also_tries]: [u64; 2]) -> f64 {
    let Ok(drawn) = Hypergeometric::new(tries + also_tries, failed + also_failed, also_tries) else {
        return 1.0;
    };
    also_failed.checked_sub(1).map_or(1.0, |fewer| drawn.sf(fewer))
}

#[cfg(test)]
mod tests {
    use super::super::decision::synthetic::Dice;
    use super::*;

    fn starts(crashed: u32, starts: u32) -> Tried {
        Tried {
            starts,
            crashed,
            ..Tried::default()
        }
    }

    #[test]
    fn a_crash_where_none_was_is_a_loss_and_more_of_some_may_be_chance() {
        let lost = |before, after| crashes(&before, &after).map(|lost| lost.is_regression);
        let told = crashes(&starts(0, 5), &starts(3, 5)).expect("more crashed");
        assert_eq!(told.text, "3 of 5 starts crashed, baseline 0 of 5");
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
        assert!((exact([0, 5], [3, 5]) - 1.0 / 12.0).abs() < 1e-9);
        assert_eq!(exact([0, 1000], [0, 1000]), 1.0);
        assert!(exact([0, 10_000], [40, 10_000]) < 1e-10);
        assert!(exact([5, 10_000], [8, 10_000]) > 0.2);
    }

    /// Returns the failed requests of starts with a thousand requests each.
    fn rise(before: &[u64], after: &[u64]) -> Rise {
        rise_of(before, after, 1000)
    }

    fn rise_of(before: &[u64], after: &[u64], requests: u64) -> Rise {
        let tried = |failed: &[u64]| Tried {
            starts: failed.len() as u32,
            crashed: 0,
            requests: requests * failed.len() as u64,
            failed: failed.iter().sum(),
            by_start: failed.iter().map(|failed| [*failed, requests]).collect(),
        };
        Rise {
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
            reason = "a test is told its length by its surroundings"
        )]
        let told = std::env::var("MATRIX_RUNS").ok();
        let runs = told.map_or(60, |text| text.parse().expect("MATRIX_RUNS is a number"));
        let seed = 20_261_123;
        let mut dice = Dice::new(seed);
        let mut start = |share: f64| {
            // A fifth of the starts loses a tenth of its 200 requests more.
            let share = share + if dice.even() < 0.2 { 0.1 } else { 0.0 };
            (0..200).filter(|_| dice.even() < share).count() as u64
        };
        let mut cell = |after: f64, starts: usize| {
            let mut side = |share: f64| (0..starts).map(|_| start(share)).collect::<Vec<u64>>();
            rise_of(&side(0.005), &side(after), 200)
        };
        for (starts, found_at_least) in [(3, 0.3), (5, 0.9), (8, 0.9)] {
            let (mut alarms, mut found) = (0, 0);
            for _ in 0..runs {
                let mut rises: Vec<Rise> = (0..17).map(|_| cell(0.005, starts)).collect();
                rises.push(cell(0.2, starts));
                let told = judged(&rises);
                found += usize::from(told[17] == Some(true));
                alarms += usize::from(told[..17].contains(&Some(true)));
            }
            println!(
                "{starts} starts: {alarms} of {runs} runs with a false regression, {found} true ones found; seed {seed}"
            );
            assert!(
                alarms as f64 <= 0.05 * runs as f64 + 2.34 * (0.0475 * runs as f64).sqrt(),
                "{starts}: {alarms}"
            );
            assert!(found as f64 >= found_at_least * runs as f64, "{starts}: {found}");
        }
    }

    #[test]
    fn failed_requests_are_judged_by_starts() {
        let chance = |before: &[u64], after: &[u64]| chances_of_starts(&[rise(before, after).shifts()])[0];
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
        let risen = || rise(&[0; 5], &[31, 28, 33, 29, 0]).shifts();
        let family = |others: fn() -> Option<Shifts>| {
            let cells: Vec<Option<Shifts>> = std::iter::once(risen())
                .chain((0..17).map(|_| others()))
                .collect();
            chances_of_starts(&cells)[0]
        };
        assert!(family(|| rise(&[0; 5], &[0; 5]).shifts()) <= ALPHA);
        let bursts = || rise(&[30, 29, 0, 0, 0], &[0, 31, 0, 28, 0]).shifts();
        assert!(family(bursts) > ALPHA);
        // If failures rise in all cells, all are found.
        let all: Vec<Option<Shifts>> = (0..24)
            .map(|cell| rise(&[0; 5], &[9, 12, 10 + cell, 8, 11]).shifts())
            .collect();
        assert!(chances_of_starts(&all).iter().all(|chance| *chance <= ALPHA));
    }

    #[test]
    fn a_rise_in_one_start_is_told_with_the_number_of_starts() {
        assert_eq!(
            rise(&[0; 5], &[0, 0, 9, 0, 0]).told(false),
            "9 of 5000 requests failed in 1 of 5 starts, baseline 0 of 5000 requests in 0 of 5 starts; shown and no regression: it may be the luck of single \
             starts"
        );
    }
}
