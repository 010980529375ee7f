//! One cell held against the reference: the ratio, its interval where repeats allow one, and what that makes of it.
//!
//! Every ratio of every report passes through [`held`]: what may not stand side by side ([`comparable`]) gets none.

use super::Shown;
use crate::judge::compare::comparable::{self, Comparability, Side};
use crate::judge::compare::student;
use crate::judge::metrics::{self, Flow, Metric};
use crate::results::record::cell::{Definitions, Summary};
use crate::results::record::validity::Verdict;

/// What cells are compared by where they do not search.
pub(super) const COMPARED: Metric = Metric::Throughput(Flow::Output);

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

/// What a row is beside a row of the reference engine.
#[derive(Clone, Debug, PartialEq)]
pub enum Held {
    /// The ratio, with the differences that belong beside it.
    Ratio(Ratio, Vec<String>),
    /// None, and why; where only the numbers of GPUs are unequal, the ratio per GPU.
    Refused(Vec<String>, Option<f64>),
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

/// What a ratio is of: output throughput, or what was found where the cell searches, as the points that were found differ in
/// their load.
pub(crate) fn compared(shown: &Shown<'_>) -> Metric {
    let search = shown.cell.scenario.search.as_ref();
    search.map_or(COMPARED, |search| Metric::Found(search.by))
}

/// Output throughput, or what was found, relative to the row of the reference engine that this one can be held against.
pub fn held(one: &Shown<'_>, group: &[&Shown<'_>], reference: &str) -> Held {
    let references: Vec<&Shown<'_>> = group
        .iter()
        .copied()
        .filter(|other| other.launch.engine.name == reference)
        .collect();
    if references.is_empty() {
        return Held::Refused(vec!["it is not in this table".to_owned()], None);
    }
    // A row of the reference engine is its own measure, whatever other rows that engine has.
    let own = references.iter().find(|other| std::ptr::eq(**other, one));
    let tried: Vec<Held> = own
        .into_iter()
        .chain(&references)
        .map(|other| against(one, other))
        .collect();
    let fit = tried.iter().position(|held| matches!(held, Held::Ratio(..)));
    let per_gpu = || {
        tried
            .iter()
            .position(|held| matches!(held, Held::Refused(_, Some(_))))
    };
    let chosen = fit.or_else(per_gpu).unwrap_or(0);
    tried.into_iter().nth(chosen).expect("there is a reference")
}

/// Which of the rows of a table is clearly the best: every other one that can be compared at all lies below it with its whole
/// interval.
pub fn best(group: &[&Shown<'_>]) -> Option<usize> {
    let beats = |one: &Shown<'_>, other: &Shown<'_>| match against(one, other) {
        Held::Ratio(ratio, _) => ratio.standing() == Standing::Better,
        Held::Refused(..) => false,
    };
    let may_win = |shown: &Shown<'_>| shown.is_done() && shown.verdict() != Verdict::Invalid;
    if group.iter().any(|shown| shown.launch.is_attached()) {
        return None;
    }
    let rivals: Vec<usize> = (0..group.len()).filter(|&at| may_win(group[at])).collect();
    if rivals.len() < 2 {
        return None;
    }
    let wins_all = |&at: &usize| {
        let mut others = rivals.iter().filter(|&&other| other != at);
        others.all(|&other| beats(group[at], group[other]))
    };
    rivals.iter().copied().find(wins_all)
}

/// One row held against another.
fn against(one: &Shown<'_>, reference: &Shown<'_>) -> Held {
    if !reference.is_done() {
        return Held::Refused(vec![format!("{} is not done", reference.engine())], None);
    }
    let (our_part, their_part) = (part(one), part(reference));
    let (ours, theirs) = (side(one, &our_part), side(reference, &their_part));
    let ratio = |metric| of(one, reference, comparable::shared(&ours, &theirs)?, metric);
    let compared = compared(one);
    let with = |said: Vec<String>| match ratio(compared) {
        // A row is not held against itself.
        Some(ratio) if ratio.is_reference => Held::Ratio(ratio, Vec::new()),
        Some(ratio) => Held::Ratio(ratio, said),
        None => Held::Refused(vec![format!("{} is not known", compared.label())], None),
    };
    match comparable::comparable(&ours, &theirs) {
        Comparability::Comparable => with(Vec::new()),
        Comparability::WithDifferences(said) => with(said),
        Comparability::PerGpuOnly(said) => {
            let gpus = |shown: &Shown<'_>| shown.launch.gpus().unwrap_or(0);
            let devices = f64::from(gpus(reference)) / f64::from(gpus(one).max(1));
            let is_known = gpus(one) > 0 && gpus(reference) > 0;
            let per_gpu = ratio(COMPARED).filter(|_| is_known && compared == COMPARED);
            Held::Refused(said, per_gpu.map(|ratio| ratio.value * devices))
        }
        Comparability::Not(said) => Held::Refused(said, None),
    }
}

/// The measurements that a comparison knows of: an invalid one beside sound ones is left out of the cell's figures, so it keeps
/// nothing apart either.
fn part<'a>(shown: &Shown<'a>) -> Vec<&'a Summary> {
    let verdict = shown.verdict();
    let is_known = |summary: &&Summary| super::verdict_of(summary) <= verdict;
    shown.summaries.iter().copied().filter(is_known).collect()
}

fn side<'s>(shown: &Shown<'s>, part: &'s [&'s Summary]) -> Side<'s> {
    Side {
        launch: shown.launch,
        cell: shown.cell,
        summaries: part,
        machine: shown.machine,
    }
}

fn of(one: &Shown<'_>, reference: &Shown<'_>, definitions: Definitions, metric: Metric) -> Option<Ratio> {
    let median = |shown: &Shown<'_>| {
        let values: Vec<f64> = shown
            .counted()
            .filter_map(|summary| metrics::figure(summary.figures.get(&definitions)?, metric))
            .collect();
        Some(metrics::Statistics::of(&values)?.median)
    };
    let (ours, theirs) = (median(one)?, median(reference)?);
    (theirs > 0.0).then(|| Ratio {
        value: ours / theirs,
        interval: interval(
            &starts(one, definitions, metric),
            &starts(reference, definitions, metric),
        ),
        is_reference: std::ptr::eq(one, reference),
    })
}

/// The logarithm of a figure for each start: repeats on one start share its luck, so they count as one.
fn starts(shown: &Shown<'_>, definitions: Definitions, metric: Metric) -> Vec<f64> {
    // Of a server that someone else started there is one start, however often it is measured.
    let counted: Vec<&Summary> = shown.counted().collect();
    let number = |summary: &Summary| match shown.launch.is_attached() {
        true => 1,
        false => summary.start,
    };
    let mut which: Vec<u32> = counted.iter().map(|summary| number(summary)).collect();
    which.sort_unstable();
    which.dedup();
    let of_start = |start: &u32| {
        let logs: Vec<f64> = counted
            .iter()
            .filter(|summary| number(summary) == *start)
            .filter_map(|summary| metrics::figure(summary.figures.get(&definitions)?, metric))
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
    let reach = student::quantile(freedom, 0.975) * error.sqrt();
    Some([(a - b - reach).exp(), (a - b + reach).exp()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testing::{Case, shown};

    fn ratio(one: &Shown<'_>, group: &[&Shown<'_>], reference: &str) -> Ratio {
        match held(one, group, reference) {
            Held::Ratio(ratio, _) => ratio,
            Held::Refused(why, _) => panic!("{why:?}"),
        }
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
            (ratio(group[1], &group, "a").standing(), best(&group))
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
        assert_eq!(ratio(group[1], &group, "a").interval, None);
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
        for (one, reference) in [(1, "a"), (0, "b"), (1, "b")] {
            let held = held(group[one], &group, reference);
            assert!(
                matches!(&held, Held::Refused(why, None) if why[0].contains("invalid")),
                "{held:?}"
            );
        }
        assert_eq!(best(&group), None);
    }
}
