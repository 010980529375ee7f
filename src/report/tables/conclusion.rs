//! What the comparison of one model and load supports: a winner and its lead, or why there is none.

use super::family::{Answers, Group};
use super::ratio::{self, Ratio, RatioVerdict, ratio_direction};
use super::report_cell::ReportCell;
use super::suspicion::{contradiction, no_win_reason};
use crate::analysis::compare::comparable::Comparability;
use crate::analysis::compare::decision::{Answer, Outcome};
use crate::analysis::compare::verdict;
use crate::analysis::metrics::Direction;
use crate::results::record::validity::Verdict;

/// What the comparison of one model and load supports. Rows are named by their index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Conclusion {
    /// One row is better than every other one.
    Winner {
        best: usize,
        /// The best of the others.
        next: usize,
        /// The lead over it.
        lead: Lead,
    },
    /// Every pair of these rows is judged, and none is better than all others.
    NoWinner {
        leaders: Vec<usize>,
        why: String,
        beaten: Vec<Beaten>,
    },
    /// These rows are not all judged against each other, for this reason.
    NotJudged {
        leaders: Vec<usize>,
        why: String,
        beaten: Vec<Beaten>,
    },
    /// Fewer than two rows have valid figures.
    NoComparison,
}

/// A row that is no leader, because another row is better beyond doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beaten {
    pub(crate) row: usize,
    pub(crate) by: usize,
}

/// A ratio of two rows that is above 1 if the first is better, also where less is better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lead {
    pub(crate) value: f64,
    /// 95 % confidence interval; `None` if a side has a single start.
    pub(crate) interval: Option<[f64; 2]>,
}

/// Draws the conclusion of a group from the answers on its pairs. `best` is the row that beats every other one.
pub(super) fn conclude(group: &Group<'_, '_>, answers: &Answers, best: Option<usize>) -> Conclusion {
    let counts = |at: &usize| group.rows[*at].is_done() && group.rows[*at].validity() != Verdict::Invalid;
    let rivals: Vec<usize> = (0..group.rows.len()).filter(counts).collect();
    if rivals.len() < 2 {
        return Conclusion::NoComparison;
    }
    if let Some(best) = best {
        let others = rivals.iter().copied().filter(|other| *other != best);
        let leads = others.filter_map(|next| Some((next, lead(group, answers, best, next)?)));
        let closest = leads.min_by(|(_, a), (_, b)| a.value.total_cmp(&b.value));
        if let Some((next, lead)) = closest {
            return Conclusion::Winner { best, next, lead };
        }
    }
    let beaten_by = |at: &usize| {
        let mut others = rivals.iter().copied().filter(|other| other != at);
        others.find(|other| standing(answers, *other, *at) == Some(RatioVerdict::Better))
    };
    let mut leaders: Vec<usize> = rivals
        .iter()
        .copied()
        .filter(|at| beaten_by(at).is_none())
        .collect();
    // A row that may not win is not said to be better, either.
    let has_verdict = |beaten: &Beaten| {
        let [by, row] = [beaten.by, beaten.row].map(|at| group.rows[at]);
        !by.launch.is_attached() && no_win_reason(by, row).is_none()
    };
    let mut beaten: Vec<Beaten> = rivals
        .iter()
        .filter_map(|at| {
            let by = beaten_by(at)?;
            Some(Beaten { row: *at, by })
        })
        .filter(has_verdict)
        .collect();
    if leaders.len() < 2 {
        // The row that beats all others may not win.
        leaders = rivals;
        beaten.clear();
    }
    let pairs = || {
        leaders
            .iter()
            .enumerate()
            .flat_map(|(place, one)| leaders[place + 1..].iter().map(move |other| (*one, *other)))
    };
    let misses_slo = |(one, other): (usize, usize)| match standing(answers, one, other)? {
        RatioVerdict::Better => contradiction(group.rows[one], group.rows[other]),
        RatioVerdict::Worse => contradiction(group.rows[other], group.rows[one]),
        _ => None,
    };
    if let Some(why) = pairs().find_map(misses_slo) {
        return Conclusion::NoWinner { leaders, why, beaten };
    }
    let unjudged = |(one, other): (usize, usize)| {
        let why = missing(group, answers, one, other)?;
        // Of several rows, it must be clear which two are meant.
        Some(match leaders.len() {
            2 => why,
            _ => format!("{} and {}: {why}", group.names[one], group.names[other]),
        })
    };
    match pairs().find_map(unjudged) {
        Some(why) => Conclusion::NotJudged { leaders, why, beaten },
        None => Conclusion::NoWinner {
            why: undecided(group, answers, pairs()),
            leaders,
            beaten,
        },
    }
}

/// The standing of `one` against `other`; `None` if they cannot be compared.
pub(super) fn standing(answers: &Answers, one: usize, other: usize) -> Option<RatioVerdict> {
    let straight = answers
        .get(&(other, one))
        .map(|answers| RatioVerdict::from_answers(answers));
    let reversed = || {
        let answers = answers.get(&(one, other))?;
        Some(RatioVerdict::from_answers(answers).reversed())
    };
    straight.or_else(reversed)
}

fn pair_ratio(answers: &Answers, one: usize, other: usize) -> Option<Ratio> {
    match answers.get(&(other, one)) {
        Some(answers) => ratio::ratio(answers, false),
        None => ratio::ratio(answers.get(&(one, other))?, true),
    }
}

fn lead(group: &Group<'_, '_>, answers: &Answers, best: usize, next: usize) -> Option<Lead> {
    let ratio = pair_ratio(answers, best, next)?;
    Some(match ratio_direction(group.metric()) {
        Direction::Higher => Lead {
            value: ratio.value,
            interval: ratio.interval,
        },
        Direction::Lower => Lead {
            value: 1.0 / ratio.value,
            interval: ratio.interval.map(|[low, high]| [1.0 / high, 1.0 / low]),
        },
    })
}

/// Why two rows are not judged against each other; `None` if they are.
fn missing(group: &Group<'_, '_>, answers: &Answers, one: usize, other: usize) -> Option<String> {
    let rows = [one, other].map(|at| group.rows[at]);
    let Some(standing) = standing(answers, one, other) else {
        return Some(match ratio::comparability(rows[1], rows[0]) {
            Comparability::PerGpuOnly(why) | Comparability::Not(why) => {
                let named = why
                    .iter()
                    .map(|why| with_names(why, &group.names[other], &group.names[one]));
                named.collect::<Vec<_>>().join(", ")
            }
            _ => format!("{} is not known", group.metric().label()),
        });
    };
    let doubt = |winner: &ReportCell<'_>, loser: &ReportCell<'_>| no_win_reason(winner, loser);
    match standing {
        RatioVerdict::NotJudged => pair_ratio(answers, one, other).map(|ratio| ratio.reason),
        RatioVerdict::Better => doubt(rows[0], rows[1]),
        RatioVerdict::Worse => doubt(rows[1], rows[0]),
        RatioVerdict::Same | RatioVerdict::Unclear => None,
    }
}

/// A reason that begins with the place of a row in a table, such as `this row: …`, with the name of the row instead.
fn with_names(why: &str, row: &str, reference: &str) -> String {
    let named = |place: &str, name: &str| Some(format!("{name}{}", why.strip_prefix(place)?));
    named("this row", row)
        .or_else(|| named("the reference", reference))
        .unwrap_or_else(|| why.to_owned())
}

/// Why no row of judged pairs wins.
fn undecided(
    group: &Group<'_, '_>,
    answers: &Answers,
    pairs: impl Iterator<Item = (usize, usize)>,
) -> String {
    let mut all: Vec<&Answer> = Vec::new();
    for (one, other) in pairs {
        let Some(of_pair) = answers.get(&(one, other)).or_else(|| answers.get(&(other, one))) else {
            continue;
        };
        let is_baseline_first = answers.contains_key(&(one, other));
        let found = |wanted| {
            let judged = group.metrics.iter().zip(of_pair);
            judged
                .filter(|(_, answer)| answer.verdict() == Some(wanted))
                .map(|(metric, _)| metric.label())
                .collect::<Vec<_>>()
        };
        let (better, worse) = (found(verdict::Verdict::Better), found(verdict::Verdict::Worse));
        if !better.is_empty() && !worse.is_empty() {
            let [candidate, baseline] = match is_baseline_first {
                true => [other, one],
                false => [one, other],
            };
            return format!(
                "{} is better than {} in {} and worse in {}",
                group.names[candidate],
                group.names[baseline],
                better.join(", "),
                worse.join(", ")
            );
        }
        all.extend(of_pair);
    }
    let is_same = |answer: &&Answer| answer.outcome == Outcome::Judged(verdict::Verdict::Same);
    if all.iter().all(is_same) {
        let bound = all.iter().map(|answer| answer.bound).fold(0.0, f64::max);
        return format!(
            "the values of {} differ by less than {}, the smallest difference that counts",
            group.metric().label(),
            percent(bound)
        );
    }
    let hidden = all.iter().filter(|answer| !is_same(answer));
    let resolution = hidden
        .map(|answer| answer.smallest_detectable_loss())
        .try_fold(0.0, |most, loss| Some(f64::max(most, loss?)));
    match resolution {
        Some(share) => format!(
            "the values of {} differ by less than this run can resolve ({}); more starts (`repeats: {{ starts: N }}`) resolve smaller differences",
            group.metric().label(),
            percent(share)
        ),
        None => "the starts of this run do not show which side is better; more starts (`repeats: { starts: N }`) may show it".to_owned(),
    }
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        tenth if tenth < 1.0 => format!("{tenth:.1} %"),
        whole => format!("{whole:.0} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_name_the_rows_instead_of_their_places_in_a_table() {
        let named = |why: &str| with_names(why, "b@2", "a@1");
        assert_eq!(
            named("this row: the search found nothing"),
            "b@2: the search found nothing"
        );
        assert_eq!(
            named("the reference: the search found nothing"),
            "a@1: the search found nothing"
        );
        assert_eq!(named("prompts differ"), "prompts differ");
    }
}
