//! One cell held against the reference: the ratio, its interval where repeats allow one, and what that makes of it.
//!
//! Every ratio of every report passes through [`ratio`]: what is not comparable or not valid gets none.

use super::comparison::{compared, differences};
use super::{Shown, value_of};
use crate::judge::metrics::Metric;
use crate::results::record::cell::Summary;
use crate::results::record::validity::Verdict;

/// Starts that a side needs for an interval: below three nobody knows how starts differ.
const STARTS: usize = 3;

/// A figure of a cell as a share of the reference's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The ratio of the medians.
    pub value: f64,
    /// The interval that holds the ratio in 95 of 100 such comparisons; `None` where a side has fewer than three starts.
    pub interval: Option<[f64; 2]>,
    /// Whether the cell is the reference itself.
    pub is_reference: bool,
}

/// What a ratio says. More is better in everything that ratios are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// The whole interval lies above 1.
    Better,
    /// The whole interval lies below 1.
    Worse,
    /// Neither, or nobody knows the noise.
    Unclear,
}

impl Ratio {
    /// What it says.
    pub fn standing(&self) -> Standing {
        match self.interval {
            Some([least, _]) if least > 1.0 => Standing::Better,
            Some([_, most]) if most < 1.0 => Standing::Worse,
            _ => Standing::Unclear,
        }
    }
}

/// Output throughput, or what was found, relative to the row of the reference engine that this one can be held against.
///
/// # Errors
/// Why there is no ratio.
pub fn ratio(one: &Shown<'_>, group: &[&Shown<'_>], reference: &str) -> Result<Ratio, String> {
    let references: Vec<&&Shown<'_>> = group
        .iter()
        .filter(|other| other.launch.engine.name == reference)
        .collect();
    if references.is_empty() {
        return Err("it is not in this table".to_owned());
    }
    let differing: Vec<Vec<String>> = references.iter().map(|other| hindrances(one, other)).collect();
    // A row of the reference engine is its own measure, whatever other rows that engine has.
    let own = references.iter().position(|other| std::ptr::eq(**other, one));
    let fit = own
        .filter(|&at| differing[at].is_empty())
        .or_else(|| differing.iter().position(Vec::is_empty));
    let Some(fit) = fit else {
        return Err(differing[0].join(", "));
    };
    let found = of(one, references[fit]).ok_or_else(|| format!("{} is not known", compared(one).label()))?;
    Ok(Ratio {
        is_reference: own == Some(fit),
        ..found
    })
}

/// Which of the rows of a table is clearly the best: every other one that can be compared at all lies below it with its whole
/// interval.
pub fn best(group: &[&Shown<'_>]) -> Option<usize> {
    let beats = |one: &Shown<'_>, other: &Shown<'_>| {
        hindrances(other, one).is_empty()
            && of(one, other).is_some_and(|ratio| ratio.standing() == Standing::Better)
    };
    let may_win = |shown: &Shown<'_>| shown.is_done() && shown.verdict() != Verdict::Invalid;
    let rivals: Vec<usize> = (0..group.len()).filter(|&at| may_win(group[at])).collect();
    if rivals.len() < 2 {
        return None;
    }
    let wins_all = |&at: &usize| {
        let others = rivals.iter().filter(|&&other| other != at);
        others.into_iter().all(|&other| beats(group[at], group[other]))
    };
    rivals.iter().copied().find(wins_all)
}

/// What keeps two cells from being compared: doubts about either, then differences between them.
fn hindrances(one: &Shown<'_>, reference: &Shown<'_>) -> Vec<String> {
    for shown in [one, reference] {
        if shown.is_done() && shown.verdict() == Verdict::Invalid {
            return vec![format!("{} is invalid", shown.engine())];
        }
    }
    differences(one, reference)
}

fn of(one: &Shown<'_>, reference: &Shown<'_>) -> Option<Ratio> {
    let metric = compared(one);
    let (ours, theirs) = (one.median(metric)?, reference.median(metric)?);
    (theirs > 0.0).then(|| Ratio {
        value: ours / theirs,
        interval: interval(&starts(one, metric), &starts(reference, metric)),
        is_reference: false,
    })
}

/// The logarithm of a figure for each start: repeats on one start share its luck, so they count as one.
fn starts(shown: &Shown<'_>, metric: Metric) -> Vec<f64> {
    let counted: Vec<&Summary> = shown.counted().collect();
    let mut which: Vec<u32> = counted.iter().map(|summary| summary.start).collect();
    which.sort_unstable();
    which.dedup();
    let of_start = |start: &u32| {
        let logs: Vec<f64> = counted
            .iter()
            .filter(|summary| summary.start == *start)
            .filter_map(|summary| value_of(summary, metric))
            .filter(|value| *value > 0.0)
            .map(f64::ln)
            .collect();
        (!logs.is_empty()).then(|| logs.iter().sum::<f64>() / logs.len() as f64)
    };
    which.iter().filter_map(of_start).collect()
}

/// Welch's interval of 95 % for the ratio of two geometric means, from their logarithms.
///
/// Source: B. L. Welch, "The generalization of 'Student's' problem when several different population variances are involved",
/// Biometrika 34 (1947).
fn interval(ours: &[f64], theirs: &[f64]) -> Option<[f64; 2]> {
    if ours.len() < STARTS || theirs.len() < STARTS {
        return None;
    }
    let moments = |logs: &[f64]| {
        let n = logs.len() as f64;
        let mean = logs.iter().sum::<f64>() / n;
        let squares = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>();
        (mean, squares / (n - 1.0) / n, n)
    };
    let ((a, a_error, a_n), (b, b_error, b_n)) = (moments(ours), moments(theirs));
    let error = a_error + b_error;
    if error == 0.0 {
        return Some([(a - b).exp(); 2]);
    }
    let freedom = error * error / (a_error * a_error / (a_n - 1.0) + b_error * b_error / (b_n - 1.0));
    let reach = student(freedom) * error.sqrt();
    Some([(a - b - reach).exp(), (a - b + reach).exp()])
}

/// The 97.5th percentile of Student's distribution: the first terms of its expansion around the normal one, which is within 2 % from
/// three degrees of freedom on, and the exact values below.
///
/// Source: Abramowitz and Stegun, "Handbook of Mathematical Functions", 26.7.5.
fn student(freedom: f64) -> f64 {
    const EXACT: [f64; 4] = [12.706, 4.303, 3.182, 2.776];
    if freedom < 4.0 {
        // Between whole degrees the larger value: the interval is never too narrow.
        return EXACT[(freedom.floor() as usize).clamp(1, 4) - 1];
    }
    let z: f64 = 1.959_964;
    let terms = [
        (z.powi(3) + z) / 4.0,
        (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0,
        (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0,
    ];
    let sum = |(order, term): (usize, &f64)| term / freedom.powi(i32::try_from(order).unwrap_or(0) + 1);
    z + terms.iter().enumerate().map(sum).sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{Case, shown};

    #[test]
    fn percentiles_of_student_are_those_of_the_books() {
        for (freedom, exact) in [(2.0, 4.303), (4.0, 2.776), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042)] {
            assert!((student(freedom) - exact).abs() < 0.01 * exact, "{freedom}");
        }
        assert!((student(2.9) - 4.303).abs() < 1e-9, "never too narrow");
    }

    /// A cell measured on as many starts as there are values.
    fn starts_of(engine: &str, values: &[f64]) -> Case {
        let mut case = Case::new(engine, "bf16", 1, values[0]);
        for value in &values[1..] {
            case = case.again(*value);
        }
        for (at, summary) in case.summaries.iter_mut().enumerate() {
            (summary.start, summary.repeat) = (u32::try_from(at).unwrap() + 1, 1);
        }
        case
    }

    #[test]
    fn only_an_interval_beside_one_is_a_win() {
        let standing = |ours: &[f64], theirs: &[f64]| {
            let cases = [starts_of("a", theirs), starts_of("b", ours)];
            let shown = shown(&cases);
            let group: Vec<&Shown<'_>> = shown.iter().collect();
            let found = ratio(group[1], &group, "a").unwrap();
            (found.standing(), best(&group))
        };
        assert_eq!(standing(&[200.0], &[100.0]), (Standing::Unclear, None));
        assert_eq!(
            standing(&[200.0, 202.0, 198.0], &[100.0, 101.0, 99.0]),
            (Standing::Better, Some(1))
        );
        assert_eq!(
            standing(&[50.0, 51.0, 49.0], &[100.0, 101.0, 99.0]),
            (Standing::Worse, Some(0))
        );
        assert_eq!(
            standing(&[90.0, 140.0, 100.0], &[100.0, 101.0, 99.0]),
            (Standing::Unclear, None)
        );
    }

    #[test]
    fn repeats_on_one_start_are_no_starts() {
        let cases = [
            Case::new("a", "bf16", 1, 100.0).again(100.0).again(100.0),
            Case::new("b", "bf16", 1, 200.0).again(200.0).again(200.0),
        ];
        let shown = shown(&cases);
        let group: Vec<&Shown<'_>> = shown.iter().collect();
        assert_eq!(ratio(group[1], &group, "a").unwrap().interval, None);
    }

    #[test]
    fn an_invalid_cell_has_no_ratio_gives_none_and_wins_nothing() {
        let mut cases = [
            starts_of("a", &[100.0, 101.0, 99.0]),
            starts_of("b", &[200.0, 202.0, 198.0]),
        ];
        for summary in &mut cases[1].summaries {
            summary.validity = Some(crate::results::record::validity::Validity {
                verdict: Verdict::Invalid,
                reasons: Vec::new(),
            });
        }
        let shown = shown(&cases);
        let group: Vec<&Shown<'_>> = shown.iter().collect();
        assert_eq!(ratio(group[1], &group, "a"), Err("b@1.0 is invalid".to_owned()));
        assert_eq!(ratio(group[0], &group, "b"), Err("b@1.0 is invalid".to_owned()));
        assert_eq!(best(&group), None);
    }
}
