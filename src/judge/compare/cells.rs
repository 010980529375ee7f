//! Two sides, cell by cell: pairs, what differs, verdicts.

use std::collections::BTreeMap;

use super::fingerprint::{self, Difference, Kind};
use super::gates;
use super::multiplicity;
use super::night::Policy;
use super::side::too_few;
use super::spread::{self, Components};
use super::verdict::{self, Effect, Said, Verdict};
use crate::base::ids::CellKey;
use crate::judge::metrics::{Better, Metric, Statistics};
use crate::matrix::spec::select::AxisValues;
use crate::results::record::side::{Cause, Noise, Side, SideCell, Varies};

/// What a comparison is told besides the two sides.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The smallest change that counts, as a share.
    pub floor: f64,
    /// What this machine's figures vary by though nothing changes, where it was measured.
    pub noise: Option<&'a Noise>,
    /// Whether verdicts are given though the environment changed.
    pub across: bool,
}

/// Two sides held against each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// What differs besides figures; without cells: of the whole sides.
    pub differences: Vec<(Difference, Vec<CellKey>)>,
    /// Every gating figure of every pair, in the order of the baseline's cells.
    pub rows: Vec<Row>,
    /// Cells of one side that the other lacks.
    pub unpaired: Vec<(CellKey, &'static str)>,
}

/// One gating figure of one pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The candidate's cell.
    pub cell: CellKey,
    /// The figure.
    pub metric: Metric,
    /// The baseline's starts.
    pub first: Vec<f64>,
    /// The candidate's.
    pub second: Vec<f64>,
    /// Of a percentile: where the requests of one start alone let it lie with 95 % confidence, on the baseline's side and on the
    /// candidate's; the median of both bounds over the starts.
    pub known: [Option<[f64; 2]>; 2],
    /// The candidate's spread as variances of logarithms.
    pub spread: Components,
    /// The smallest change that counts here, as a share: the floor, or what noise demands.
    pub floor: f64,
    /// Whether noise was measured on this machine.
    pub is_noise_known: bool,
    /// The effect, where there are starts enough to tell.
    pub effect: Option<Effect>,
    /// What is said.
    pub outcome: Outcome,
    /// Measurements of either side that were left out.
    pub left_out: Vec<String>,
}

/// What is said of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A verdict with its reason.
    Judged(Verdict, String),
    /// None: a side holds nothing that counts.
    Refused(Cause, String),
}

impl Outcome {
    /// The word for people.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Judged(verdict, _) => verdict.name(),
            Self::Refused(cause, _) => cause.name(),
        }
    }

    /// The reason.
    pub fn reason(&self) -> &str {
        match self {
            Self::Judged(_, reason) | Self::Refused(_, reason) => reason,
        }
    }

    /// The verdict, where there is one.
    pub const fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Judged(verdict, _) => Some(*verdict),
            Self::Refused(..) => None,
        }
    }
}

impl Comparison {
    /// How many rows have that verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows
            .iter()
            .filter(|row| row.outcome.verdict() == Some(verdict))
            .count()
    }
}

/// The cells of two sides that belong together, by the candidate's key: those of one key, and where a key has no partner, those that differ in
/// the version alone.
pub fn pairs<'a>(first: &'a Side, second: &'a Side) -> Vec<(&'a CellKey, &'a SideCell, &'a SideCell)> {
    let same = |key: &CellKey| second.cells.get_key_value(key);
    let loose = |axes: &AxisValues| -> AxisValues {
        axes.iter()
            .filter(|(name, _)| *name != "version")
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    let mut partners: BTreeMap<AxisValues, Vec<(&CellKey, &SideCell)>> = BTreeMap::new();
    for (key, cell) in second
        .cells
        .iter()
        .filter(|(key, _)| !first.cells.contains_key(key))
    {
        partners.entry(loose(&cell.axes)).or_default().push((key, cell));
    }
    let is_alone = |axes: &AxisValues| {
        let rivals = first
            .cells
            .iter()
            .filter(|(key, cell)| !second.cells.contains_key(key) && loose(&cell.axes) == *axes);
        rivals.count() == 1
    };
    first
        .cells
        .iter()
        .filter_map(|(key, cell)| {
            if let Some((key, partner)) = same(key) {
                return Some((key, cell, partner));
            }
            let axes = loose(&cell.axes);
            match partners.get(&axes)?.as_slice() {
                [(key, partner)] if is_alone(&axes) => Some((*key, cell, *partner)),
                _ => None,
            }
        })
        .collect()
}

/// The two sides held against each other: the first is the baseline.
pub fn compare(first: &Side, second: &Side, terms: &Terms<'_>) -> Comparison {
    let pairs = pairs(first, second);
    let of_sides = fingerprint::of_sides(first, second);
    let of_pairs: Vec<(&CellKey, Vec<Difference>)> = pairs
        .iter()
        .map(|(key, one, two)| (*key, fingerprint::of_cells(one, two)))
        .collect();
    let family = pairs.iter().map(|(_, _, two)| two.gates.len()).sum::<usize>();
    let mut rows = Vec::new();
    for ((key, one, two), (_, own)) in pairs.iter().zip(&of_pairs) {
        let differing: Vec<&Difference> = of_sides.iter().chain(own).collect();
        for metric in two.gates.iter().filter_map(|name| Metric::of_name(name)) {
            let metric = gates::of_pair(metric, one, two);
            let row = row(key, one, two, metric, family, terms);
            rows.push((row, forbidden(&differing, terms.across)));
        }
    }
    let p: Vec<f64> = rows
        .iter()
        .filter_map(|(row, _)| row.effect.map(|effect| effect.p))
        .collect();
    let mut q = multiplicity::false_discovery(&p).into_iter();
    let rows = rows
        .into_iter()
        .map(|(mut row, forbidden)| {
            let q = row.effect.and_then(|_| q.next());
            if let (Outcome::Judged(..), Some(effect), Some(q)) = (&row.outcome, row.effect, q) {
                let better = row.metric.better().unwrap_or(Better::Higher);
                let (verdict, why) = held(
                    verdict::verdict(&effect, q, row.floor, better),
                    forbidden.as_deref(),
                );
                row.outcome = Outcome::Judged(verdict, why);
            }
            row
        })
        .collect();
    let paired = |key: &CellKey| pairs.iter().any(|(second, ..)| *second == key);
    let has_partner = |cell: &SideCell| pairs.iter().any(|(_, first, _)| std::ptr::eq(*first, cell));
    let lost = first
        .cells
        .iter()
        .filter(|(_, cell)| !has_partner(cell))
        .map(|(key, _)| (key.clone(), "baseline"));
    let new = second
        .cells
        .keys()
        .filter(|key| !paired(key))
        .map(|key| (key.clone(), "candidate"));
    Comparison {
        differences: of_sides
            .iter()
            .map(|difference| (difference.clone(), Vec::new()))
            .chain(
                fingerprint::gathered(of_pairs)
                    .into_iter()
                    .map(|(difference, cells)| (difference, cells.into_iter().cloned().collect())),
            )
            .collect(),
        rows,
        unpaired: lost.chain(new).collect(),
    }
}

/// What keeps a difference of figures from being the engine's doing.
pub fn forbidden(differences: &[&Difference], across: bool) -> Option<String> {
    let told: Vec<String> = differences
        .iter()
        .filter(|difference| difference.kind.forbids() && !(across && difference.kind == Kind::Environment))
        .map(|difference| difference.told())
        .collect();
    (!told.is_empty()).then(|| told.join("; "))
}

fn held((verdict, why): Said, forbidden: Option<&str>) -> Said {
    match forbidden {
        Some(event) if verdict != Verdict::Unclear => (
            Verdict::Unclear,
            format!(
                "{why}, which would be {}; but it is not the engine alone that changed: {event}",
                verdict.name()
            ),
        ),
        Some(event) => (
            verdict,
            format!("{why}; and it is not the engine alone that may have changed: {event}"),
        ),
        None => (verdict, why),
    }
}

fn row(
    key: &CellKey,
    one: &SideCell,
    two: &SideCell,
    metric: Metric,
    family: usize,
    terms: &Terms<'_>,
) -> Row {
    let name = metric.name();
    let (first, second) = (one.starts(&name), two.starts(&name));
    let varies = terms.noise.and_then(|noise| noise.cells.get(key)?.get(&name));
    let repeats = two.figures.get(&name).cloned().unwrap_or_default();
    let logs: Vec<Vec<f64>> = repeats
        .iter()
        .filter_map(|repeats| verdict::logs(repeats))
        .collect();
    let mut row = Row {
        cell: key.clone(),
        metric,
        known: [one, two].map(|cell| known(cell, &name)),
        spread: spread::components(&logs),
        floor: floor(terms.floor, varies, first.len(), second.len()),
        is_noise_known: varies.is_some(),
        effect: None,
        outcome: Outcome::Judged(Verdict::Unclear, String::new()),
        left_out: left_out("baseline", one)
            .chain(left_out("candidate", two))
            .collect(),
        first,
        second,
    };
    for (side, cell) in [("baseline", one), ("candidate", two)] {
        if let Some((cause, reason)) = cell.refused() {
            row.outcome = Outcome::Refused(cause, format!("{side}: {reason}"));
            return row;
        }
    }
    match told(&row, one, two, family) {
        Ok(effect) => row.effect = Some(effect),
        Err(why) => row.outcome = Outcome::Judged(Verdict::Unclear, why),
    }
    row
}

/// The effect of a row, or why none can be told.
fn told(row: &Row, one: &SideCell, two: &SideCell, family: usize) -> Result<Effect, String> {
    let label = row.metric.label();
    for (side, cell, starts) in [("baseline", one, &row.first), ("candidate", two, &row.second)] {
        if starts.is_empty() {
            return Err(format!("the {side} has no {label}"));
        }
        if let Some(why) = too_few(cell, row.metric) {
            return Err(format!("{side}: {why}"));
        }
    }
    let (n, m) = (row.first.len(), row.second.len());
    if n < 2 || m < 2 {
        return Err(format!(
            "n = {n} against {m} starts: nothing tells how much starts differ; measure both with `repeats: {{ starts: 5 }}`"
        ));
    }
    let (Some(first), Some(second)) = (verdict::logs(&row.first), verdict::logs(&row.second)) else {
        return Err(format!("a {label} of zero has no ratio"));
    };
    verdict::effect(&first, &second, family).ok_or_else(|| "the starts cannot tell".to_owned())
}

/// The median of both bounds of a percentile over the measurements of a cell.
fn known(cell: &SideCell, figure: &str) -> Option<[f64; 2]> {
    let all = cell.intervals.get(figure)?;
    let middle = |at: usize| {
        let bounds: Vec<f64> = all.iter().map(|between| between[at]).collect();
        Statistics::of(&bounds).map(|statistics| statistics.median)
    };
    Some([middle(0)?, middle(1)?])
}

fn left_out<'a>(side: &'a str, cell: &'a SideCell) -> impl Iterator<Item = String> + 'a {
    cell.excluded.iter().map(move |excluded| {
        format!(
            "{side}, start {}, repeat {}: {}: {}",
            excluded.start,
            excluded.repeat,
            excluded.cause.name(),
            excluded.reason
        )
    })
}

/// The smallest change that counts: the practical floor, or what starts of this noise can show at all.
pub fn floor(practical: f64, varies: Option<&Varies>, first: usize, second: usize) -> f64 {
    let noise = varies.map(|varies| Policy::default().noise_floor(varies.start_share, first, second));
    practical.max(noise.filter(|floor| floor.is_finite()).unwrap_or(0.0))
}
