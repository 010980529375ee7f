//! What failed of the candidate and not of the baseline: starts that crashed, requests that failed. Failures are findings of their own,
//! whatever the starts that are left say.

use std::collections::BTreeSet;

use statrs::distribution::{DiscreteCDF, Hypergeometric};

use super::decision::ALPHA;
use super::multiplicity;
use crate::base::ids::CellKey;
use crate::results::record::side::{Cause, SideCell, Tried};

/// A share of failed requests may rise by this much before it counts.
pub const REQUEST_BOUND: f64 = 0.001;

/// A loss of reliability of one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The candidate's cell.
    pub cell: CellKey,
    /// What failed, as a sentence for people.
    pub text: String,
}

/// Losses of reliability: starts that crashed where none of the baseline's did, or beyond chance more of them; failed requests whose share rose by
/// more than [`REQUEST_BOUND`] and beyond chance among all cells.
pub fn failures(pairs: &[(&CellKey, &SideCell, &SideCell)]) -> Vec<Failure> {
    let mut found: Vec<Failure> = Vec::new();
    let mut tests = Vec::new();
    // What the client gave up at is no failure of the engine: with other timeouts other requests fail.
    let alike = pairs.iter().filter(|(_, one, two)| {
        let is_known = !one.limits.is_empty() && !two.limits.is_empty();
        let differing = super::comparable::differing(&one.limits, &two.limits);
        !is_known
            || differing
                .filter(|(what, ..)| *what != super::comparable::SLO)
                .count()
                == 0
    });
    for (key, one, two) in alike {
        let (before, after) = (tried(one), tried(two));
        let failure = |text| Failure {
            cell: (*key).clone(),
            text,
        };
        found.extend(crashes(before, after).map(|what| failure(format!("{what}{}", reason(two)))));
        if before.requests > 0 && after.requests > 0 {
            let share = |tried: Tried| tried.failed as f64 / tried.requests as f64;
            let p = exact([before.failed, before.requests], [after.failed, after.requests]);
            tests.push((
                p,
                share(after) - share(before) > REQUEST_BOUND,
                before,
                after,
                *key,
            ));
        }
    }
    let p: Vec<f64> = tests.iter().map(|(p, ..)| *p).collect();
    let adjusted = multiplicity::holm_adjusted(&p, p.len());
    for ((_, is_beyond, before, after, key), p) in tests.into_iter().zip(adjusted) {
        if is_beyond && p <= ALPHA {
            found.push(Failure {
                cell: key.clone(),
                text: format!(
                    "{} of {} requests failed, baseline {} of {}",
                    after.failed, after.requests, before.failed, before.requests
                ),
            });
        }
    }
    found
}

/// What is said of crashed starts, where they are a loss.
fn crashes(before: Tried, after: Tried) -> Option<String> {
    let is_new = before.crashed == 0;
    let p = exact(
        [before.crashed.into(), before.starts.into()],
        [after.crashed.into(), after.starts.into()],
    );
    (after.crashed > 0 && before.starts > 0 && (is_new || p <= ALPHA)).then(|| {
        format!(
            "{} of {} starts crashed, baseline {} of {}",
            after.crashed, after.starts, before.crashed, before.starts
        )
    })
}

/// The reason of the first failure.
fn reason(cell: &SideCell) -> String {
    let mut failed = cell.excluded.iter();
    let first = failed.find(|excluded| excluded.cause == Cause::Failed);
    first.map_or_else(String::new, |first| format!(" ({})", first.reason))
}

/// How often a cell was tried; of files from before that was kept, by the starts that count and those that failed.
fn tried(cell: &SideCell) -> Tried {
    cell.tried.unwrap_or_else(|| {
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

/// The chance of as many failures on the second side where both fail as often; each side is failures and tries.
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
    use super::*;

    fn starts(crashed: u32, starts: u32) -> Tried {
        Tried {
            starts,
            crashed,
            ..Tried::default()
        }
    }

    #[test]
    fn a_crash_where_none_was_is_a_loss_and_one_among_many_is_none() {
        let told = |before, after| crashes(before, after);
        assert_eq!(
            told(starts(0, 5), starts(3, 5)).as_deref(),
            Some("3 of 5 starts crashed, baseline 0 of 5")
        );
        assert!(told(starts(0, 5), starts(1, 5)).is_some());
        assert!(told(starts(1, 5), starts(2, 5)).is_none());
        assert!(told(starts(1, 20), starts(9, 20)).is_some());
        assert!(told(starts(0, 5), starts(0, 5)).is_none());
        assert!(told(starts(0, 0), starts(5, 5)).is_none());
    }

    #[test]
    fn the_test_is_fishers() {
        // R: fisher.test(matrix(c(3, 2, 0, 5), 2), alternative = "greater")$p.value
        assert!((exact([0, 5], [3, 5]) - 1.0 / 12.0).abs() < 1e-9);
        assert_eq!(exact([0, 1000], [0, 1000]), 1.0);
        assert!(exact([0, 10_000], [40, 10_000]) < 1e-10);
        assert!(exact([5, 10_000], [8, 10_000]) > 0.2);
    }
}
