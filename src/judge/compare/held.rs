//! A night's run held against the baseline: what is suspected, what is confirmed, what else is to be told.

use std::collections::{BTreeMap, BTreeSet};

use super::cells;
use super::change;
use super::fingerprint::{self, Difference, Kind};
use super::fresh::Granted;
use super::machines;
use super::night::{Policy, Suspect};
use super::side::too_few;
use super::student;
use super::verdict::{self, LEVEL, chance, relative};
use crate::base::ids::CellKey;
use crate::judge::metrics::{Better, Metric};
use crate::results::record::night::{Finding, FindingKind, Night, NightCell};
use crate::results::record::side::{Cause, Excluded, Noise, Side, SideCell};

/// What a first look at a night found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// Gating figures that could be judged: the family of tests.
    pub family: usize,
    /// Figures that fresh starts must decide on.
    pub suspects: Vec<Suspected>,
    /// What is known without any.
    pub findings: Vec<Finding>,
    /// Gating metrics of the baseline and of the night.
    pub metrics: usize,
}

/// A figure under suspicion.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspected {
    /// The cell.
    pub cell: CellKey,
    /// The figure.
    pub metric: Metric,
    /// Fresh starts that decide.
    pub starts: u32,
    /// The loss that was seen, as a difference of logarithms above zero; 0 where the nights alone raised the suspicion.
    pub loss: f64,
    /// What raised the suspicion.
    pub why: String,
    first: Vec<f64>,
    floor: f64,
}

fn finding(
    kind: FindingKind,
    cell: Option<&CellKey>,
    metric: Option<Metric>,
    text: impl Into<String>,
) -> Finding {
    Finding {
        kind,
        cell: cell.cloned(),
        figure: metric.map(Metric::name),
        text: text.into(),
    }
}

#[cfg(test)]
impl Suspected {
    /// A suspect of that loss, which so many starts decide; two starts of the baseline gave about 100.
    pub(super) fn of(cell: &str, starts: u32, loss: f64) -> Self {
        Self {
            cell: CellKey::new(cell),
            metric: Metric::Throughput(crate::judge::metrics::Flow::Output),
            starts,
            loss,
            why: "-6.0 % against the baseline".to_owned(),
            first: vec![100f64.ln(), 100.5f64.ln(), 99.5f64.ln()],
            floor: 0.02,
        }
    }
}

/// The first look: every gating figure of `tonight` against the baseline, and against what earlier nights tell.
pub fn look(
    baseline: &Side,
    tonight: &Side,
    nights: &[Night],
    noise: Option<&Noise>,
    policy: &Policy,
) -> Look {
    let mut look = Look::default();
    let events = fingerprint::of_sides(baseline, tonight);
    let events: Vec<&Difference> = events
        .iter()
        .filter(|event| event.kind == Kind::Environment)
        .collect();
    for event in &events {
        let text = format!("{}; no verdicts until `matrix baseline accept`", event.told());
        look.findings
            .push(finding(FindingKind::Environment, None, None, text));
    }
    look.findings.extend(failures(tonight));
    let pairs = cells::pairs(baseline, tonight);
    let mut open = Vec::new();
    for (key, one, two) in &pairs {
        look.metrics += two.gates.len();
        match standing(one, two, &events) {
            Err(Some(why)) => look
                .findings
                .push(finding(FindingKind::NotJudged, Some(key), None, why)),
            Err(None) => {}
            Ok(()) => open.extend(
                two.gates
                    .iter()
                    .filter_map(|name| Metric::of_name(name))
                    .map(|metric| (*key, *one, *two, metric)),
            ),
        }
    }
    let is_new = |key: &CellKey| !pairs.iter().any(|(paired, ..)| *paired == key);
    for (key, cell) in tonight.cells.iter().filter(|(key, _)| is_new(key)) {
        look.metrics += cell.gates.len();
        if cell.refused().is_none() {
            let text = "it is not in the baseline; `matrix baseline accept` takes it up";
            look.findings
                .push(finding(FindingKind::NotJudged, Some(key), None, text));
        }
    }
    let is_lost = |cell: &SideCell| !pairs.iter().any(|(_, paired, _)| std::ptr::eq(*paired, cell));
    for (key, cell) in baseline.cells.iter().filter(|(_, cell)| is_lost(cell)) {
        look.metrics += cell.gates.len();
        let text = "the baseline has it, and it was not measured; `matrix baseline accept` drops it";
        look.findings
            .push(finding(FindingKind::Missing, Some(key), None, text));
    }
    // Every figure counts in the family, suspected or not, so it must be known before any is judged.
    let (fit, unfit): (Vec<_>, Vec<_>) = open
        .into_iter()
        .map(|(key, one, two, metric)| (key, metric, figures(one, two, metric)))
        .partition(|(_, _, figures)| figures.is_ok());
    for (key, metric, why) in unfit {
        let why = why.err().unwrap_or_default();
        look.findings
            .push(finding(FindingKind::NotJudged, Some(key), Some(metric), why));
    }
    look.family = fit.len();
    for (key, metric, figures) in fit {
        let Ok((first, second)) = figures else { continue };
        let series = series(nights, baseline, tonight, key, metric);
        judge(&mut look, policy, noise, key, metric, (first, second), &series);
    }
    look
}

/// What failed or is invalid, cell by cell, whatever it is compared against. A cell some of whose starts count is found too.
pub fn failures(tonight: &Side) -> Vec<Finding> {
    let mut found = Vec::new();
    for (key, cell) in &tonight.cells {
        if let Some((cause, reason)) = cell.refused() {
            let kind = match cause {
                Cause::Failed => FindingKind::Failed,
                Cause::Invalid => FindingKind::Invalid,
            };
            found.push(finding(kind, Some(key), None, reason));
            continue;
        }
        for (cause, kind) in [
            (Cause::Failed, FindingKind::Failed),
            (Cause::Invalid, FindingKind::Invalid),
        ] {
            let of_cause: Vec<&Excluded> = cell
                .excluded
                .iter()
                .filter(|excluded| excluded.cause == cause)
                .collect();
            let starts: BTreeSet<u32> = of_cause.iter().map(|excluded| excluded.start).collect();
            if let Some(first) = of_cause.first() {
                let text = format!("{} of its starts, the first: {}", starts.len(), first.reason);
                found.push(finding(kind, Some(key), None, text));
            }
        }
    }
    found
}

/// Whether a pair can be judged at all; if not, why, where that is not told elsewhere.
fn standing(one: &SideCell, two: &SideCell, events: &[&Difference]) -> Result<(), Option<String>> {
    if two.refused().is_some() {
        return Err(None);
    }
    if let Some((cause, reason)) = one.refused() {
        return Err(Some(format!(
            "the baseline holds nothing of it: {}: {reason}",
            cause.name()
        )));
    }
    let own = fingerprint::of_cells(one, two);
    let of_cell = own.iter().filter(|difference| difference.kind.forbids());
    let told: Vec<String> = events
        .iter()
        .copied()
        .chain(of_cell)
        .map(Difference::told)
        .collect();
    match told.as_slice() {
        [] => Ok(()),
        told => Err(Some(told.join("; "))),
    }
}

type Logs = (Vec<f64>, Vec<f64>);

/// The logarithms of both sides, or why they tell nothing.
fn figures(one: &SideCell, two: &SideCell, metric: Metric) -> Result<Logs, String> {
    for (side, cell) in [("baseline", one), ("tonight", two)] {
        if let Some(why) = too_few(cell, metric) {
            return Err(format!("{side}: {why}"));
        }
    }
    let name = metric.name();
    let (first, second) = (one.starts(&name), two.starts(&name));
    if first.len() < 2 {
        return Err(format!(
            "n = {} start in the baseline: nothing tells how much starts differ; measure it with `repeats: {{ starts: 5 }}`",
            first.len()
        ));
    }
    let (Some(first), Some(second)) = (verdict::logs(&first), verdict::logs(&second)) else {
        return Err(format!("there is no {} above zero", metric.label()));
    };
    Ok((first, second))
}

/// The figure night after night, as logarithms, with tonight at its end: those nights that were held against this baseline, on this machine, with
/// these prompts.
fn series(nights: &[Night], baseline: &Side, tonight: &Side, key: &CellKey, metric: Metric) -> Vec<f64> {
    let Some(cell) = tonight.cells.get(key) else {
        return Vec::new();
    };
    let name = metric.name();
    let alike = nights.iter().filter(|night| {
        night.matrix == tonight.matrix
            && night.baseline.as_ref() == Some(&baseline.run)
            && machines::shares_noise(&night.machine, &tonight.machine)
    });
    let of_cell = alike
        .filter_map(|night| night.cells.get(key))
        .filter(|past| past.prompts == cell.prompts);
    let level = |starts: &[f64]| verdict::logs(starts).map(|logs| student::mean(&logs));
    of_cell
        .filter_map(|past| level(past.figures.get(&name)?))
        .chain(level(&cell.starts(&name)))
        .collect()
}

fn judge(
    look: &mut Look,
    policy: &Policy,
    noise: Option<&Noise>,
    key: &CellKey,
    metric: Metric,
    (first, second): Logs,
    series: &[f64],
) {
    let better = metric.better().unwrap_or(Better::Higher);
    let varies = noise.and_then(|noise| noise.cells.get(key)?.get(&metric.name()));
    let floor = cells::floor(policy.floor, varies, first.len(), second.len());
    let difference = student::difference(&first, &second);
    let change = student::mean(&second) - student::mean(&first);
    let is_worse = |change: f64| (change < 0.0) == (better == Better::Higher);
    let mut why = Vec::new();
    if policy.suspects(&first, &second, better, floor) {
        why.push(format!("{} against the baseline", percent(change)));
    }
    if let Some(found) =
        change::recent(series, policy.floor).filter(|found| is_worse(found.after - found.before))
    {
        let nights = series.len() - found.at;
        why.push(format!(
            "{} for {nights} nights",
            percent(found.after - found.before)
        ));
    }
    if !why.is_empty() {
        let spread = difference.map_or(0.0, |difference| {
            let (n, m) = (first.len() as f64, second.len() as f64);
            difference.error / (1.0 / n + 1.0 / m).sqrt()
        });
        let sigma = varies.map_or(spread, |varies| varies.start_share);
        let starts = policy.fresh_starts(sigma, first.len(), look.family);
        look.suspects.push(Suspected {
            cell: key.clone(),
            metric,
            starts: u32::try_from(starts).unwrap_or(u32::MAX),
            loss: if is_worse(change) { change.abs() } else { 0.0 },
            why: why.join("; "),
            first,
            floor,
        });
    } else if !is_worse(change)
        && change.abs() > floor.ln_1p()
        && difference.is_some_and(|difference| difference.two_sided() <= (1.0 - LEVEL) / look.family as f64)
    {
        let text = format!("{} against the baseline: {}", metric.label(), percent(change));
        look.findings
            .push(finding(FindingKind::Better, Some(key), Some(metric), text));
    }
}

fn percent(difference: f64) -> String {
    format!("{:+.1} %", relative(difference) * 100.0)
}

/// What fresh starts decide of the suspects. `fresh` holds nothing but them, `granted` says how many there were to be.
pub fn decide(
    look: &Look,
    fresh: &Side,
    policy: &Policy,
    granted: &BTreeMap<CellKey, Granted>,
) -> Vec<Finding> {
    let starts: Vec<Vec<f64>> = look
        .suspects
        .iter()
        .map(|suspect| {
            let cell = fresh.cells.get(&suspect.cell);
            let starts = cell.map(|cell| cell.starts(&suspect.metric.name()));
            starts
                .and_then(|starts| verdict::logs(&starts))
                .unwrap_or_default()
        })
        .collect();
    let asked: Vec<Suspect<'_>> = look
        .suspects
        .iter()
        .zip(&starts)
        .map(|(suspect, fresh)| Suspect {
            first: &suspect.first,
            fresh,
            better: suspect.metric.better().unwrap_or(Better::Higher),
            floor: suspect.floor,
        })
        .collect();
    let confirmed = policy.confirm(&asked, look.family);
    let told = look.suspects.iter().zip(&starts).zip(confirmed);
    told.map(|((suspect, fresh), is_confirmed)| {
        let kind = if is_confirmed {
            FindingKind::Worse
        } else if is_settled(suspect, fresh) {
            FindingKind::Unconfirmed
        } else {
            FindingKind::Undecided
        };
        let mut text = decided(suspect, fresh, look.family);
        if kind == FindingKind::Undecided {
            text = format!(
                "{text}; {}",
                undecided(suspect, fresh, granted.get(&suspect.cell))
            );
        }
        finding(kind, Some(&suspect.cell), Some(suspect.metric), text)
    })
    .collect()
}

/// Whether a suspicion that is not confirmed is dispelled: there were as many fresh starts as decide, or those that there were leave no room for a
/// loss that counts.
fn is_settled(suspect: &Suspected, fresh: &[f64]) -> bool {
    if fresh.len() >= suspect.starts as usize {
        return true;
    }
    let difference = student::difference(&suspect.first, fresh).filter(|_| fresh.len() > 1);
    difference.is_some_and(|difference| {
        let interval = difference.interval(LEVEL);
        let loss = match suspect.metric.better().unwrap_or(Better::Higher) {
            Better::Higher => -interval.low,
            Better::Lower => interval.high,
        };
        loss < suspect.floor.ln_1p()
    })
}

/// Why nothing was decided.
fn undecided(suspect: &Suspected, fresh: &[f64], granted: Option<&Granted>) -> String {
    let (wanted, made) = (
        suspect.starts,
        granted.map_or(0, |granted| granted.starts.min(suspect.starts)),
    );
    let mut why = Vec::new();
    if let Some(short) = granted
        .and_then(|granted| granted.short())
        .filter(|_| made < wanted)
    {
        why.push(short.to_owned());
    }
    if fresh.len() < made as usize {
        why.push(format!("{} failed or are invalid", made as usize - fresh.len()));
    }
    let why = match why.is_empty() {
        true => String::new(),
        false => format!(" ({})", why.join("; ")),
    };
    format!(
        "neither confirmed nor refuted: it takes {wanted} fresh starts, and {} count{why}",
        fresh.len()
    )
}

fn decided(suspect: &Suspected, fresh: &[f64], family: usize) -> String {
    let label = suspect.metric.label();
    let Some(difference) = student::difference(&suspect.first, fresh).filter(|_| !fresh.is_empty()) else {
        return format!("{label}: {}", suspect.why);
    };
    let interval = difference.interval(LEVEL);
    let unit = suspect.metric.unit().symbol();
    format!(
        "{label} {} by {} fresh starts: {:.2} → {:.2} {unit}, 95 % interval {} … {}, floor {:.1} %, p = {} in a family of {family}; suspected for {}",
        percent(difference.value),
        fresh.len(),
        student::mean(&suspect.first).exp(),
        student::mean(fresh).exp(),
        percent(interval.low),
        percent(interval.high),
        suspect.floor * 100.0,
        chance(difference.below().min(difference.above())),
        suspect.why,
    )
}

/// What history keeps of each cell.
pub fn kept(tonight: &Side) -> BTreeMap<CellKey, NightCell> {
    let of_cell = |cell: &SideCell| NightCell {
        prompts: cell.prompts.clone(),
        origin: Some(cell.origin),
        engine: cell.engine.clone(),
        figures: cell
            .gates
            .iter()
            .map(|name| (name.clone(), cell.starts(name)))
            .collect(),
    };
    tonight
        .cells
        .iter()
        .map(|(key, cell)| (key.clone(), of_cell(cell)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::{ContentHash, RunId};
    use crate::results::record::cell::Origin;

    /// What fresh starts with these figures say of a suspect that three decide.
    fn said(fresh: &[f64], granted: Granted) -> (FindingKind, String) {
        let cell = SideCell {
            axes: BTreeMap::new(),
            content: ContentHash::of_bytes(b"content"),
            engine: BTreeMap::new(),
            asked: BTreeMap::new(),
            settings: BTreeMap::new(),
            load: None,
            prompts: None,
            clock_mhz: None,
            devices: 1,
            requests: None,
            origin: Origin::Measured,
            gates: Vec::new(),
            figures: [(
                "output_throughput_tok_s".to_owned(),
                fresh.iter().map(|value| vec![*value]).collect(),
            )]
            .into(),
            intervals: BTreeMap::new(),
            excluded: Vec::new(),
            launch: None,
            first_stage: None,
            resolutions: BTreeMap::new(),
            suspect: Vec::new(),
            tried: None,
        };
        let side = Side {
            run: RunId::new("r"),
            matrix: "m".to_owned(),
            began: String::new(),
            tool: String::new(),
            machine: BTreeMap::new(),
            cells: [(CellKey::new("a"), cell)].into(),
        };
        let look = Look {
            family: 1,
            suspects: vec![Suspected::of("a", 3, 0.06)],
            ..Look::default()
        };
        let granted = [(CellKey::new("a"), granted)].into();
        let mut findings = decide(&look, &side, &Policy::default(), &granted);
        let found = findings.remove(0);
        (found.kind, found.text)
    }

    fn granted(starts: u32) -> Granted {
        Granted {
            wanted: 3,
            starts,
            is_time: true,
        }
    }

    #[test]
    fn a_suspicion_without_fresh_starts_is_neither_confirmed_nor_refuted() {
        let (kind, text) = said(&[], granted(0));
        assert_eq!(kind, FindingKind::Undecided);
        assert_eq!(
            text,
            "output throughput: -6.0 % against the baseline; neither confirmed nor refuted: it takes 3 fresh starts, and 0 count \
             (`--budget` has no room for more)"
        );
        let (kind, text) = said(&[], granted(3));
        assert_eq!(kind, FindingKind::Undecided);
        assert!(text.ends_with("and 0 count (3 failed or are invalid)"), "{text}");
    }

    #[test]
    fn fewer_fresh_starts_than_decide_dispel_a_suspicion_only_where_they_leave_no_room_for_it() {
        assert_eq!(said(&[100.1, 99.9], granted(2)).0, FindingKind::Unconfirmed);
        assert_eq!(said(&[99.0, 93.0], granted(2)).0, FindingKind::Undecided);
        assert_eq!(said(&[99.0], granted(1)).0, FindingKind::Undecided);
        assert_eq!(said(&[94.0, 94.1], granted(2)).0, FindingKind::Worse);
        assert_eq!(said(&[99.0, 93.0, 99.0], granted(3)).0, FindingKind::Unconfirmed);
    }
}
