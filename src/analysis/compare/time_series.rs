//! Figures night after night, cut where the environment or the load changed, with the changes of level in between.

use std::collections::{BTreeMap, BTreeSet};

use super::change_point::{self, Change};
use super::environment_diff::{self, Difference, Kind};
use super::machines::{self, Identity};
use super::t_test;
use super::verdict::{self, relative};
use crate::analysis::metrics::Metric;
use crate::base::ids::{CellKey, RunId};
use crate::config::select;
use crate::results::record::cell::Origin;
use crate::results::record::night::{FindingKind, Night, NightCell};

/// One gating figure of one cell, night after night.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    /// The cell; without its version where nights have different ones.
    pub cell: CellKey,
    pub metric: Metric,
    /// Where the figure of the last night comes from, where that is known.
    pub origin: Option<Origin>,
    /// The nights that have it.
    pub nights: Vec<Point>,
    /// Nights after the first of them that have not.
    pub gaps: Vec<Gap>,
    /// Where something else changed.
    pub turns: Vec<Turn>,
    /// Where the level changed although neither machine nor prompts did.
    pub changes: Vec<Step>,
}

/// A figure on one night.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    /// When the night ended.
    pub at: String,
    pub run: RunId,
    /// The geometric mean of its starts.
    pub value: f64,
    pub starts: usize,
    /// The figure on the night that was the baseline by then; absent where history does not hold it.
    pub baseline: Option<f64>,
}

/// A night without the figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gap {
    /// How many nights before it have the figure.
    pub before: usize,
    /// When the night ended.
    pub at: String,
    pub why: String,
}

/// Something else than the figure that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// The first night with it, a position in [`Series::nights`].
    pub at: usize,
    /// What it is, in words.
    pub what: String,
    pub kind: TurnKind,
}

/// What changed besides a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnKind {
    /// Machine or prompts: figures on both sides are of different things, and the series is cut.
    Cut,
    /// The host, in what makes no figures of another thing: its name, a kernel patch.
    Host,
    /// The engine: what may explain a change.
    Engine,
    /// The baseline was moved.
    Baseline,
}

/// A change of level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Step {
    /// The first night of the new level, a position in [`Series::nights`].
    pub at: usize,
    /// The change, as a share.
    pub change: f64,
    /// The chance of it where there is none.
    pub p: f64,
}

impl Series {
    /// Every night from the first that has the figure on, in order: when, and the figure.
    pub(crate) fn course(&self) -> Vec<(&str, Option<f64>)> {
        let mut course = Vec::with_capacity(self.nights.len() + self.gaps.len());
        let mut gaps = self.gaps.iter().peekable();
        for at in 0..=self.nights.len() {
            while let Some(gap) = gaps.next_if(|gap| gap.before <= at) {
                course.push((gap.at.as_str(), None));
            }
            course.extend(
                self.nights
                    .get(at)
                    .map(|night| (night.at.as_str(), Some(night.value))),
            );
        }
        course
    }

    /// The stretches between cuts and changes: from which night to before which, positions in [`Series::nights`].
    pub(crate) fn levels(&self) -> Vec<[usize; 2]> {
        let mut ends: Vec<usize> = self
            .cuts()
            .chain(self.changes.iter().map(|step| step.at))
            .chain([0, self.nights.len()])
            .collect();
        ends.sort_unstable();
        ends.dedup();
        ends.windows(2).map(|pair| [pair[0], pair[1]]).collect()
    }

    fn cuts(&self) -> impl Iterator<Item = usize> {
        let cuts = self.turns.iter().filter(|turn| turn.kind == TurnKind::Cut);
        cuts.map(|turn| turn.at)
    }
}

/// Something besides figures that changed from one night to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    /// The first night with it.
    pub at: String,
    /// What it is, in words.
    pub what: String,
    /// The cells that it is about; none where it is about all.
    pub cells: Vec<CellKey>,
}

/// By what name cells go from night to night: their key, without the version where every night has one version of them.
struct Names(BTreeSet<String>);

impl Names {
    fn of(nights: &[Night]) -> Self {
        let mut several = BTreeSet::new();
        for night in nights {
            let mut seen = BTreeSet::new();
            for key in night.cells.keys() {
                let name = loose(key);
                if !seen.insert(name.clone()) {
                    several.insert(name);
                }
            }
        }
        Self(several)
    }

    fn name(&self, key: &CellKey) -> String {
        let loose = loose(key);
        match self.0.contains(&loose) {
            true => key.to_string(),
            false => loose,
        }
    }

    /// The cells of each night by name.
    fn told<'a>(&self, nights: &'a [Night]) -> Vec<BTreeMap<String, (&'a CellKey, &'a NightCell)>> {
        let of_night = |night: &'a Night| {
            let cells = night.cells.iter();
            cells.map(|(key, cell)| (self.name(key), (key, cell))).collect()
        };
        nights.iter().map(of_night).collect()
    }
}

fn loose(key: &CellKey) -> String {
    let mut values = select::values(key.as_str());
    match values.remove("version") {
        Some(_) => select::key(&values),
        None => key.to_string(),
    }
}

/// Every series of these nights, with changes of at least `floor` as a share.
pub(crate) fn all(nights: &[Night], floor: f64) -> Vec<Series> {
    let cells = Names::of(nights).told(nights);
    let mut wanted: BTreeSet<(&String, &String)> = BTreeSet::new();
    for night in &cells {
        for (name, (_, cell)) in night {
            wanted.extend(cell.figures.keys().map(|figure| (name, figure)));
        }
    }
    wanted
        .into_iter()
        .filter_map(|(name, figure)| {
            let of_cell: Vec<_> = cells.iter().map(|night| night.get(name).copied()).collect();
            one(nights, &of_cell, figure, Metric::of_name(figure)?, floor)
        })
        .collect()
}

fn one(
    nights: &[Night],
    cells: &[Option<(&CellKey, &NightCell)>],
    figure: &str,
    metric: Metric,
    floor: f64,
) -> Option<Series> {
    let mut keys: Vec<&CellKey> = cells.iter().flatten().map(|(key, _)| *key).collect();
    keys.dedup();
    let mut series = Series {
        cell: match keys[..] {
            [key] => key.clone(),
            _ => CellKey::new(loose(keys.first()?)),
        },
        metric,
        origin: None,
        nights: Vec::new(),
        gaps: Vec::new(),
        turns: Vec::new(),
        changes: Vec::new(),
    };
    // What the matrix dropped, or does not gate by any more, has ended; it is not missing.
    let is_wanted = |found: &Option<(&CellKey, &NightCell)>| {
        found.is_some_and(|(_, cell)| cell.figures.contains_key(figure))
    };
    let planned = cells.iter().rposition(is_wanted)?;
    let mut logs: Vec<f64> = Vec::new();
    let mut runs: BTreeMap<&RunId, f64> = BTreeMap::new();
    let mut last: Option<(&Night, &NightCell)> = None;
    for (night, found) in nights.iter().zip(cells).take(planned + 1) {
        let level = found
            .and_then(|(_, cell)| verdict::logs(cell.figures.get(figure)?))
            .map(|starts| (t_test::mean(&starts), starts.len()));
        let (Some((_, cell)), Some((level, starts))) = (found, level) else {
            series.gaps.extend((!logs.is_empty()).then(|| Gap {
                before: logs.len(),
                at: night.at.clone(),
                why: missing(night, *found, figure),
            }));
            continue;
        };
        if let Some(before) = last {
            series.turns.extend(turns(before, (night, cell), logs.len()));
        }
        last = Some((night, cell));
        logs.push(level);
        runs.insert(&night.run, level.exp());
        series.origin = cell.origin;
        series.nights.push(Point {
            at: night.at.clone(),
            run: night.run.clone(),
            value: level.exp(),
            starts,
            baseline: night.baseline.as_ref().and_then(|run| runs.get(run).copied()),
        });
    }
    let mut ends: Vec<usize> = [0, logs.len()].into_iter().chain(series.cuts()).collect();
    ends.sort_unstable();
    ends.dedup();
    for pair in ends.windows(2) {
        let steps = change_point::changes(&logs[pair[0]..pair[1]], floor);
        series
            .changes
            .extend(steps.into_iter().map(|Change { at, before, after, p }| Step {
                at: pair[0] + at,
                change: relative(after - before),
                p,
            }));
    }
    (!logs.is_empty()).then_some(series)
}

/// Why a night has no figure of a cell.
fn missing(night: &Night, found: Option<(&CellKey, &NightCell)>, figure: &str) -> String {
    let Some((key, cell)) = found else {
        return "the matrix did not have it".to_owned();
    };
    if !cell.figures.contains_key(figure) {
        return "it was no gating figure".to_owned();
    }
    let is_reason = |kind| matches!(kind, FindingKind::Failed | FindingKind::Invalid);
    let mut told = night.findings.iter();
    told.find(|finding| is_reason(finding.kind) && finding.cell.as_ref() == Some(key))
        .map_or_else(
            || "it was not measured".to_owned(),
            |finding| format!("{}: {}", finding.kind.name(), finding.text),
        )
}

/// What changed besides the figure between two nights that have it.
fn turns(before: (&Night, &NightCell), after: (&Night, &NightCell), at: usize) -> Vec<Turn> {
    let turn = |kind| move |what: String| Turn { at, what, kind };
    let told = |differences: Vec<Difference>| differences.into_iter().map(|difference| difference.told());
    // The level of another machine is another level, of whatever class it is.
    let is_same = machines::identity(&before.0.machine, &after.0.machine) == Identity::Same;
    let (cuts, notes): (Vec<Difference>, Vec<Difference>) =
        environment_diff::of_machines(&before.0.machine, &after.0.machine)
            .into_iter()
            .partition(|difference| difference.kind.forbids() || !is_same);
    let (environment, host) = (told(cuts), told(notes));
    let load = told(prompts(before.1, after.1).into_iter().collect());
    let engine = told(environment_diff::of_engines(&before.1.engine, &after.1.engine));
    let moved = moved(before.0, after.0);
    environment
        .chain(load)
        .map(turn(TurnKind::Cut))
        .chain(host.map(turn(TurnKind::Host)))
        .chain(engine.map(turn(TurnKind::Engine)))
        .chain(moved.into_iter().map(turn(TurnKind::Baseline)))
        .collect()
}

fn prompts(before: &NightCell, after: &NightCell) -> Option<Difference> {
    let told = |cell: &NightCell| {
        cell.prompts
            .as_ref()
            .map_or_else(|| "unknown".to_owned(), ToString::to_string)
    };
    (before.prompts != after.prompts).then(|| Difference {
        kind: Kind::Load,
        what: "prompts".to_owned(),
        before: told(before),
        after: told(after),
    })
}

fn moved(before: &Night, after: &Night) -> Option<String> {
    let run = |night: &Night| {
        let run = night.baseline.as_ref();
        run.map_or_else(|| "none".to_owned(), ToString::to_string)
    };
    (before.baseline != after.baseline).then(|| format!("baseline: {} → {}", run(before), run(after)))
}

/// What changed from night to night besides figures, in order. A cell is held against the last night that measured it.
pub(crate) fn events(nights: &[Night]) -> Vec<Event> {
    let mut events = Vec::new();
    let cells = Names::of(nights).told(nights);
    let mut last: BTreeMap<&String, &NightCell> = BTreeMap::new();
    for (at, night) in nights.iter().enumerate() {
        let mut told: Vec<(String, Vec<CellKey>)> = Vec::new();
        if let Some(before) = at.checked_sub(1).map(|at| &nights[at]) {
            let machine = environment_diff::of_machines(&before.machine, &night.machine);
            told.extend(machine.iter().map(|difference| (difference.told(), Vec::new())));
            told.extend(moved(before, night).map(|what| (what, Vec::new())));
        }
        let mut own = Vec::new();
        for (name, (key, cell)) in &cells[at] {
            // A cell that failed tells neither its engine nor its prompts.
            if cell.figures.values().all(Vec::is_empty) {
                continue;
            }
            if let Some(before) = last.insert(name, cell) {
                let mut differences = environment_diff::of_engines(&before.engine, &cell.engine);
                differences.extend(prompts(before, cell));
                own.push((*key, differences));
            }
        }
        let own = environment_diff::gathered(own).into_iter();
        told.extend(own.map(|(difference, keys)| (difference.told(), keys.into_iter().cloned().collect())));
        events.extend(told.into_iter().map(|(what, cells)| Event {
            at: night.at.clone(),
            what,
            cells,
        }));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::ContentHash;
    use crate::results::record::night::Finding;

    const FIGURE: &str = "output_throughput_tok_s";

    /// A night with one cell; no value is a night on which it was invalid.
    fn night(at: u32, version: &str, driver: &str, value: Option<f64>) -> Night {
        let key = CellKey::new(format!("engine=vllm,version={version},model=m"));
        let findings = match value {
            Some(_) => Vec::new(),
            None => vec![Finding {
                kind: FindingKind::Invalid,
                cell: Some(key.clone()),
                figure: None,
                text: "client-late".to_owned(),
            }],
        };
        let cell = NightCell {
            prompts: Some(ContentHash::new("p")),
            origin: None,
            engine: [("version".to_owned(), version.to_owned())].into(),
            figures: [(FIGURE.to_owned(), value.into_iter().collect())].into(),
        };
        Night {
            format: 1,
            at: format!("2026-01-{:02}T03:00:00Z", at + 1),
            run: RunId::new(format!("m-{at}")),
            matrix: "m".to_owned(),
            baseline: (at > 0).then(|| RunId::new("m-0")),
            machine: [("driver".to_owned(), driver.to_owned())].into(),
            cells: [(key, cell)].into(),
            judged: None,
            findings,
        }
    }

    #[test]
    fn a_series_goes_on_over_versions_and_knows_its_gaps_and_turns() {
        let nights = [
            night(0, "1", "a", Some(100.0)),
            night(1, "1", "a", None),
            night(2, "2", "a", Some(101.0)),
            night(3, "2", "b", Some(90.0)),
            night(4, "2", "b", None),
        ];
        let all = all(&nights, 0.02);
        assert_eq!(all.len(), 1, "{all:?}");
        let series = &all[0];
        assert_eq!(series.cell.as_str(), "engine=vllm,model=m");
        let course: Vec<Option<f64>> = series
            .course()
            .into_iter()
            .map(|(_, value)| Some(value?.round()))
            .collect();
        assert_eq!(course, [Some(100.0), None, Some(101.0), Some(90.0), None]);
        let at: Vec<&str> = series.course().into_iter().map(|(at, _)| &at[8..10]).collect();
        assert_eq!(at, ["01", "02", "03", "04", "05"]);
        assert_eq!(series.gaps[0].why, "invalid: client-late");
        let turns: Vec<(usize, TurnKind, &str)> = series
            .turns
            .iter()
            .map(|turn| (turn.at, turn.kind, turn.what.as_str()))
            .collect();
        assert_eq!(
            turns,
            [
                (1, TurnKind::Engine, "engine version: 1 → 2"),
                (1, TurnKind::Baseline, "baseline: none → m-0"),
                (2, TurnKind::Cut, "environment driver: a → b"),
            ]
        );
        assert_eq!(series.levels(), [[0, 2], [2, 3]]);
        let against: Vec<Option<f64>> = series
            .nights
            .iter()
            .map(|night| Some(night.baseline?.round()))
            .collect();
        assert_eq!(against, [None, Some(100.0), Some(100.0)]);
    }

    #[test]
    fn two_versions_of_one_night_are_two_series() {
        let mut both = night(0, "1", "a", Some(100.0));
        both.cells.extend(night(0, "2", "a", Some(120.0)).cells);
        let nights = [both, night(1, "2", "a", Some(121.0))];
        let lengths: Vec<usize> = all(&nights, 0.02)
            .iter()
            .map(|series| series.nights.len())
            .collect();
        assert_eq!(lengths, [1, 2]);
    }

    #[test]
    fn an_event_is_told_once_with_its_cells() {
        let nights = [
            night(0, "1", "a", Some(100.0)),
            night(1, "2", "a", None),
            night(2, "2", "b", Some(101.0)),
        ];
        let told: Vec<(String, String, usize)> = events(&nights)
            .into_iter()
            .map(|event| (event.at[8..10].to_owned(), event.what, event.cells.len()))
            .collect();
        let expected = [
            ("02", "baseline: none → m-0", 0),
            ("03", "environment driver: a → b", 0),
            ("03", "engine version: 1 → 2", 1),
        ]
        .map(|(at, what, cells)| (at.to_owned(), what.to_owned(), cells));
        assert_eq!(told, expected);
    }

    #[test]
    fn changes_are_looked_for_between_cuts() {
        let wobble = |at: u32| f64::from(at * 7 % 5) * 0.1;
        let nights: Vec<Night> = (0..28)
            .map(|at| {
                let loss = if at >= 18 { 8.0 } else { 0.0 };
                night(
                    at,
                    "1",
                    if at < 8 { "a" } else { "b" },
                    Some(100.0 + wobble(at) - loss),
                )
            })
            .collect();
        let series = &all(&nights, 0.02)[0];
        let steps: Vec<usize> = series.changes.iter().map(|step| step.at).collect();
        assert_eq!(steps, [18]);
        assert_eq!(series.levels(), [[0, 8], [8, 18], [18, 28]]);
    }
}
