//! The rank-sum test with its exact distribution, and the shift that belongs to it.

use super::student::Interval;

/// Above this many values of both sides the counts of subsets are no longer exact in an `f64`.
const LARGEST: usize = 50;

/// The p-values of the rank-sum test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankSum {
    /// For any difference.
    pub two_sided: f64,
    /// For the second side lying below the first.
    pub below: f64,
    /// For the second side lying above the first.
    pub above: f64,
}

/// The smallest two-sided p-value that values of these numbers can have; `None` where they are too many to count exactly.
///
/// Source: of the C(n+m, n) equally likely orders one lies at each end, so 2 / C(n+m, n): 3 against 3 give 0.1, 5 against 5 0.008.
pub fn smallest_p(first: usize, second: usize) -> Option<f64> {
    let all = first + second;
    (first > 0 && second > 0 && all <= LARGEST).then(|| (2.0 / choose(all, first)).min(1.0))
}

fn choose(n: usize, k: usize) -> f64 {
    (0..k.min(n - k)).fold(1.0, |ways, at| ways * (n - at) as f64 / (at + 1) as f64)
}

/// The exact test that both sides come from one distribution. Ties share their mean rank, and the distribution is that of the ranks as
/// they are. `None` where a side is empty or there are too many values.
///
/// Source: F. Wilcoxon 1945, H. B. Mann and D. R. Whitney 1947; counting by the shift algorithm of B. Streitberg and J. Röhmel, "Exact
/// distributions for permutation and rank tests", 1986, with ranks doubled so that mean ranks are whole. Two-sided: twice the smaller
/// tail, as scipy does.
pub fn rank_sum(first: &[f64], second: &[f64]) -> Option<RankSum> {
    smallest_p(first.len(), second.len())?;
    let ranks = doubled_ranks(first, second);
    let observed: usize = ranks[first.len()..].iter().sum();
    let ways = ways(&ranks, second.len());
    let all: f64 = ways.iter().sum();
    let below = ways[..=observed].iter().sum::<f64>() / all;
    let above = ways[observed..].iter().sum::<f64>() / all;
    Some(RankSum {
        two_sided: (2.0 * below.min(above)).min(1.0),
        below,
        above,
    })
}

/// Twice the rank of every value of both sides, ties at their mean.
fn doubled_ranks(first: &[f64], second: &[f64]) -> Vec<usize> {
    let all: Vec<f64> = first.iter().chain(second).copied().collect();
    all.iter()
        .map(|value| {
            let less = all.iter().filter(|other| *other < value).count();
            let same = all.iter().filter(|other| *other == value).count();
            2 * less + same + 1
        })
        .collect()
}

/// In how many ways `chosen` of the ranks have each sum.
fn ways(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let most: usize = ranks.iter().sum();
    let mut ways = vec![vec![0.0; most + 1]; chosen + 1];
    ways[0][0] = 1.0;
    for &rank in ranks {
        for taken in (1..=chosen).rev() {
            let (fewer, more) = ways.split_at_mut(taken);
            let (from, to) = (&fewer[taken - 1], &mut more[0]);
            for (to, from) in to[rank..].iter_mut().zip(from) {
                *to += from;
            }
        }
    }
    ways.swap_remove(chosen)
}

/// By how much the second side lies above the first: the median of all differences. `None` where a side is empty.
///
/// Source: J. L. Hodges and E. L. Lehmann, "Estimates of location based on rank tests", 1963.
pub fn shift(first: &[f64], second: &[f64]) -> Option<f64> {
    let differences = differences(first, second);
    let middle = differences.len() / 2;
    match differences.len() {
        0 => None,
        n if n % 2 == 1 => Some(differences[middle]),
        _ => Some(f64::midpoint(differences[middle - 1], differences[middle])),
    }
}

/// The interval of the shift that the exact test does not reject at 1 − `level`; `None` where these numbers of values cannot reach the
/// level.
///
/// Source: E. L. Lehmann, "Nonparametrics", section 2.6: with C the largest number for which P(U < C) ≤ α/2, the C-th of the sorted
/// differences from either end.
pub fn shift_interval(first: &[f64], second: &[f64], level: f64) -> Option<Interval> {
    let tail = (1.0 - level) / 2.0;
    if smallest_p(first.len(), second.len())? / 2.0 > tail {
        return None;
    }
    let untied: Vec<usize> = (1..=first.len() + second.len()).collect();
    let ways = ways(&untied, second.len());
    let all: f64 = ways.iter().sum();
    let least = second.len() * (second.len() + 1) / 2;
    let (mut cut, mut sum) = (0, 0.0);
    for way in &ways[least..] {
        sum += way;
        if sum / all > tail {
            break;
        }
        cut += 1;
    }
    let differences = differences(first, second);
    Some(Interval {
        low: differences[cut - 1],
        high: differences[differences.len() - cut],
    })
}

fn differences(first: &[f64], second: &[f64]) -> Vec<f64> {
    let mut all: Vec<f64> = second
        .iter()
        .flat_map(|second| first.iter().map(move |first| second - first))
        .collect();
    all.sort_unstable_by(f64::total_cmp);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_against_three_can_show_nothing_and_five_against_five_can() {
        let p = |n, m| smallest_p(n, m).unwrap();
        assert!((p(3, 3) - 0.1).abs() < 1e-12);
        assert!((p(4, 4) - 2.0 / 70.0).abs() < 1e-12);
        assert!((p(5, 5) - 2.0 / 252.0).abs() < 1e-12);
        assert_eq!(smallest_p(0, 5), None);
        assert_eq!(smallest_p(26, 25), None);
    }

    #[test]
    fn sides_that_lie_apart_have_the_smallest_p() {
        let test = rank_sum(&[5.0, 6.0, 7.0, 8.0, 9.0], &[1.0, 2.0, 3.0, 4.0, 4.5]).unwrap();
        assert!((test.two_sided - 2.0 / 252.0).abs() < 1e-12);
        assert!((test.below - 1.0 / 252.0).abs() < 1e-12);
        assert!((test.above - 1.0).abs() < 1e-12);
        assert_eq!(rank_sum(&[], &[1.0]), None);
    }

    #[test]
    fn equal_values_say_nothing() {
        let test = rank_sum(&[1.0; 4], &[1.0; 4]).unwrap();
        assert_eq!((test.two_sided, test.below, test.above), (1.0, 1.0, 1.0));
    }

    #[test]
    fn the_shift_is_found_and_lies_in_its_interval() {
        let (first, second) = ([1.0, 2.0, 3.0, 4.0, 5.0], [3.1, 4.1, 5.1, 6.1, 7.1]);
        assert!((shift(&first, &second).unwrap() - 2.1).abs() < 1e-12);
        let interval = shift_interval(&first, &second, 0.95).unwrap();
        // P(U < 3) = 4/252 ≤ 0.025 < 7/252 = P(U < 4): the third from either end.
        assert!(
            (interval.low - -0.9).abs() < 1e-9 && (interval.high - 5.1).abs() < 1e-9,
            "{interval:?}"
        );
        assert_eq!(shift_interval(&first[..3], &second[..3], 0.95), None);
    }
}
