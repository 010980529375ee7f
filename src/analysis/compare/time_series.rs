//! Series of metrics over nights, cut at changes of environment or load, with the level changes between cuts.

use std::collections::{BTreeMap, BTreeSet};

use super::change_point::{self, Change};
use super::difference::{Difference, DifferenceKind};
use super::environment_diff;
use super::machines::{self, Identity};
use super::t_test;
use super::verdict::{self, relative_change};
use crate::analysis::metrics::Metric;
use crate::base::ids::{CellKey, RunId};
use crate::config::select;
use crate::results::record::cell::Origin;
use crate::results::record::nightly::{FindingKind, NightlyCell, NightlyRun};

/// One gating metric of one cell over nights.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    /// The cell, without its version if nights have different ones.
    pub(crate) cell: CellKey,
    pub(crate) metric: Metric,
    /// Origin of the metric on the last night, if known.
    pub(crate) origin: Option<Origin>,
    /// Nights with a value.
    pub(crate) nights: Vec<Point>,
    /// Later nights without a value.
    pub(crate) gaps: Vec<MissingValue>,
    pub(crate) context_changes: Vec<ContextChange>,
    /// Level changes without a change of machine or prompts.
    pub(crate) changes: Vec<LevelChange>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) at: String,
    pub(crate) run: RunId,
    /// Geometric mean of the starts.
    pub value: f64,
    pub(crate) starts: usize,
    /// Value on the baseline's night. `None` if the history does not have it.
    pub(crate) baseline: Option<f64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingValue {
    /// Number of earlier nights with a value.
    pub(crate) index: usize,
    pub(crate) at: String,
    pub(crate) reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContextChange {
    /// First night after the change, an index into [`Series::nights`].
    pub(crate) index: usize,
    pub(crate) text: String,
    pub(crate) kind: ContextChangeKind,
}

/// What changed besides a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContextChangeKind {
    /// Machine or prompts. Values before and after describe different things, so the series is cut.
    SeriesBreak,
    /// The host, in something that does not affect the metric: its name, a kernel patch.
    Host,
    /// The engine. This may explain a level change.
    Engine,
    Baseline,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LevelChange {
    /// First night of the new level, an index into [`Series::nights`].
    pub(crate) index: usize,
    /// Relative change, as a share.
    pub(crate) change: f64,
    /// Probability of such a change by chance.
    pub(crate) p: f64,
}

impl Series {
    /// Returns the times and values of every night from the first one with a value, in order.
    pub(crate) fn values_by_night(&self) -> Vec<(&str, Option<f64>)> {
        let mut course = Vec::with_capacity(self.nights.len() + self.gaps.len());
        let mut gaps = self.gaps.iter().peekable();
        for at in 0..=self.nights.len() {
            while let Some(gap) = gaps.next_if(|gap| gap.index <= at) {
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

    /// Returns the ranges between cuts and level changes: start and end (excluded), indices into
    /// [`Series::nights`].
    pub(crate) fn level_ranges(&self) -> Vec<[usize; 2]> {
        let mut ends: Vec<usize> = self
            .break_indices()
            .chain(self.changes.iter().map(|step| step.index))
            .chain([0, self.nights.len()])
            .collect();
        ends.sort_unstable();
        ends.dedup();
        ends.windows(2).map(|pair| [pair[0], pair[1]]).collect()
    }

    fn break_indices(&self) -> impl Iterator<Item = usize> {
        let cuts = self
            .context_changes
            .iter()
            .filter(|change| change.kind == ContextChangeKind::SeriesBreak);
        cuts.map(|change| change.index)
    }
}

/// Something besides metrics that changed from one night to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContextEvent {
    /// Time of the first night after the change.
    pub(crate) at: String,
    pub(crate) text: String,
    /// Cells that it concerns. Empty if it concerns all.
    pub(crate) cells: Vec<CellKey>,
}

/// Names of cells across nights: their key, without the version if every night has only one version of them.
struct SeriesNames(BTreeSet<String>);

impl SeriesNames {
    fn from_nights(nights: &[NightlyRun]) -> Self {
        let mut several = BTreeSet::new();
        for night in nights {
            let mut seen = BTreeSet::new();
            for key in night.cells.keys() {
                let name = key_without_version(key);
                if !seen.insert(name.clone()) {
                    several.insert(name);
                }
            }
        }
        Self(several)
    }

    fn name(&self, key: &CellKey) -> String {
        let loose = key_without_version(key);
        match self.0.contains(&loose) {
            true => key.to_string(),
            false => loose,
        }
    }

    /// Returns the cells of each night by name.
    fn cells_by_name<'a>(
        &self,
        nights: &'a [NightlyRun],
    ) -> Vec<BTreeMap<String, (&'a CellKey, &'a NightlyCell)>> {
        let of_night = |night: &'a NightlyRun| {
            let cells = night.cells.iter();
            cells.map(|(key, cell)| (self.name(key), (key, cell))).collect()
        };
        nights.iter().map(of_night).collect()
    }
}

fn key_without_version(key: &CellKey) -> String {
    let mut values = select::parse_key(key.as_str());
    match values.remove("version") {
        Some(_) => select::cell_key(&values),
        None => key.to_string(),
    }
}

/// Returns every series of these nights, with level changes of at least `floor` as a share.
pub(crate) fn build_series(nights: &[NightlyRun], floor: f64) -> Vec<Series> {
    let cells = SeriesNames::from_nights(nights).cells_by_name(nights);
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
            build_one_series(nights, &of_cell, figure, Metric::from_name(figure)?, floor)
        })
        .collect()
}

fn build_one_series(
    nights: &[NightlyRun],
    cells: &[Option<(&CellKey, &NightlyCell)>],
    figure: &str,
    metric: Metric,
    floor: f64,
) -> Option<Series> {
    let mut keys: Vec<&CellKey> = cells.iter().flatten().map(|(key, _)| *key).collect();
    keys.dedup();
    let mut series = Series {
        cell: match keys[..] {
            [key] => key.clone(),
            _ => CellKey::new(key_without_version(keys.first()?)),
        },
        metric,
        origin: None,
        nights: Vec::new(),
        gaps: Vec::new(),
        context_changes: Vec::new(),
        changes: Vec::new(),
    };
    // A cell or metric that the matrix no longer has is ended, not missing.
    let is_wanted = |night_cell: &Option<(&CellKey, &NightlyCell)>| {
        night_cell.is_some_and(|(_, cell)| cell.figures.contains_key(figure))
    };
    let planned = cells.iter().rposition(is_wanted)?;
    let mut logs: Vec<f64> = Vec::new();
    let mut runs: BTreeMap<&RunId, f64> = BTreeMap::new();
    let mut last: Option<(&NightlyRun, &NightlyCell)> = None;
    for (night, night_cell) in nights.iter().zip(cells).take(planned + 1) {
        let level = night_cell
            .and_then(|(_, cell)| verdict::logs(cell.figures.get(figure)?))
            .map(|starts| (t_test::mean(&starts), starts.len()));
        let (Some((_, cell)), Some((level, starts))) = (night_cell, level) else {
            series.gaps.extend((!logs.is_empty()).then(|| MissingValue {
                index: logs.len(),
                at: night.at.clone(),
                reason: missing_reason(night, *night_cell, figure),
            }));
            continue;
        };
        if let Some(before) = last {
            series
                .context_changes
                .extend(context_changes(before, (night, cell), logs.len()));
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
    let mut ends: Vec<usize> = [0, logs.len()]
        .into_iter()
        .chain(series.break_indices())
        .collect();
    ends.sort_unstable();
    ends.dedup();
    for pair in ends.windows(2) {
        let steps = change_point::find_changes(&logs[pair[0]..pair[1]], floor);
        series.changes.extend(
            steps
                .into_iter()
                .map(|Change { at, before, after, p }| LevelChange {
                    index: pair[0] + at,
                    change: relative_change(after - before),
                    p,
                }),
        );
    }
    (!logs.is_empty()).then_some(series)
}

/// Says why a night has no value of a cell.
fn missing_reason(night: &NightlyRun, night_cell: Option<(&CellKey, &NightlyCell)>, figure: &str) -> String {
    let Some((key, cell)) = night_cell else {
        return "the matrix of this nightly run did not contain the cell".to_owned();
    };
    if !cell.figures.contains_key(figure) {
        return "the metric was not a gating metric in this nightly run".to_owned();
    }
    let is_reason = |kind| matches!(kind, FindingKind::Failed | FindingKind::Invalid);
    let mut findings = night.findings.iter();
    findings
        .find(|finding| is_reason(finding.kind) && finding.cell.as_ref() == Some(key))
        .map_or_else(
            || "it was not measured".to_owned(),
            |finding| format!("{}: {}", finding.kind.name(), finding.text),
        )
}

/// Returns the changes besides the metric between two nights with a value.
fn context_changes(
    before: (&NightlyRun, &NightlyCell),
    after: (&NightlyRun, &NightlyCell),
    at: usize,
) -> Vec<ContextChange> {
    let change = |kind| {
        move |what: String| ContextChange {
            index: at,
            text: what,
            kind,
        }
    };
    let in_words =
        |differences: Vec<Difference>| differences.into_iter().map(|difference| difference.in_words());
    // Another machine has another level, even if it is of the same class.
    let is_same = machines::host_identity(&before.0.machine, &after.0.machine) == Identity::Same;
    let (cuts, notes): (Vec<Difference>, Vec<Difference>) =
        environment_diff::machine_differences(&before.0.machine, &after.0.machine)
            .into_iter()
            .partition(|difference| difference.kind.forbids_verdict() || !is_same);
    let (environment, host) = (in_words(cuts), in_words(notes));
    let load = in_words(prompt_difference(before.1, after.1).into_iter().collect());
    let engine = in_words(environment_diff::engine_differences(
        &before.1.engine,
        &after.1.engine,
    ));
    let moved = baseline_change(before.0, after.0);
    environment
        .chain(load)
        .map(change(ContextChangeKind::SeriesBreak))
        .chain(host.map(change(ContextChangeKind::Host)))
        .chain(engine.map(change(ContextChangeKind::Engine)))
        .chain(moved.into_iter().map(change(ContextChangeKind::Baseline)))
        .collect()
}

fn prompt_difference(before: &NightlyCell, after: &NightlyCell) -> Option<Difference> {
    let facts_of = |cell: &NightlyCell| {
        cell.prompts
            .as_ref()
            .map_or_else(|| "unknown".to_owned(), ToString::to_string)
    };
    (before.prompts != after.prompts).then(|| Difference {
        kind: DifferenceKind::Load,
        what: "prompts".to_owned(),
        before: facts_of(before),
        after: facts_of(after),
    })
}

fn baseline_change(before: &NightlyRun, after: &NightlyRun) -> Option<String> {
    let run = |night: &NightlyRun| {
        let run = night.baseline.as_ref();
        run.map_or_else(|| "none".to_owned(), ToString::to_string)
    };
    (before.baseline != after.baseline).then(|| format!("baseline: {} → {}", run(before), run(after)))
}

/// Returns the changes besides metrics from night to night, in order. A cell is compared with the last night
/// that measured it.
pub(crate) fn context_events(nights: &[NightlyRun]) -> Vec<ContextEvent> {
    let mut events = Vec::new();
    let cells = SeriesNames::from_nights(nights).cells_by_name(nights);
    let mut last: BTreeMap<&String, &NightlyCell> = BTreeMap::new();
    for (at, night) in nights.iter().enumerate() {
        let mut grouped: Vec<(String, Vec<CellKey>)> = Vec::new();
        if let Some(before) = at.checked_sub(1).map(|at| &nights[at]) {
            let machine = environment_diff::machine_differences(&before.machine, &night.machine);
            grouped.extend(
                machine
                    .iter()
                    .map(|difference| (difference.in_words(), Vec::new())),
            );
            grouped.extend(baseline_change(before, night).map(|what| (what, Vec::new())));
        }
        let mut own = Vec::new();
        for (name, (key, cell)) in &cells[at] {
            // A failed cell has neither facts of its engine nor prompts.
            if cell.figures.values().all(Vec::is_empty) {
                continue;
            }
            if let Some(before) = last.insert(name, cell) {
                let mut differences = environment_diff::engine_differences(&before.engine, &cell.engine);
                differences.extend(prompt_difference(before, cell));
                own.push((*key, differences));
            }
        }
        let own = environment_diff::group_by_difference(own).into_iter();
        grouped.extend(
            own.map(|(difference, keys)| (difference.in_words(), keys.into_iter().cloned().collect())),
        );
        events.extend(grouped.into_iter().map(|(what, cells)| ContextEvent {
            at: night.at.clone(),
            text: what,
            cells,
        }));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::ContentHash;
    use crate::results::record::nightly::Finding;

    const FIGURE: &str = "output_throughput_tok_s";

    /// Returns a night with one cell. No value is a night on which it was invalid.
    fn night(at: u32, version: &str, driver: &str, value: Option<f64>) -> NightlyRun {
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
        let cell = NightlyCell {
            prompts: Some(ContentHash::new("p")),
            origin: None,
            engine: [("version".to_owned(), version.to_owned())].into(),
            figures: [(FIGURE.to_owned(), value.into_iter().collect())].into(),
        };
        NightlyRun {
            format: 1,
            at: format!("2026-01-{:02}T03:00:00Z", at + 1),
            run: RunId::new(format!("m-{at}")),
            matrix: "m".to_owned(),
            baseline: (at > 0).then(|| RunId::new("m-0")),
            machine: [("driver".to_owned(), driver.to_owned())].into(),
            cells: [(key, cell)].into(),
            judged: None,
            upgrade: None,
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
        let all = build_series(&nights, 0.02);
        assert_eq!(all.len(), 1, "{all:?}");
        let series = &all[0];
        assert_eq!(series.cell.as_str(), "engine=vllm,model=m");
        let course: Vec<Option<f64>> = series
            .values_by_night()
            .into_iter()
            .map(|(_, value)| Some(value?.round()))
            .collect();
        assert_eq!(course, [Some(100.0), None, Some(101.0), Some(90.0), None]);
        let at: Vec<&str> = series
            .values_by_night()
            .into_iter()
            .map(|(at, _)| &at[8..10])
            .collect();
        assert_eq!(at, ["01", "02", "03", "04", "05"]);
        assert_eq!(series.gaps[0].reason, "invalid: client-late");
        let turns: Vec<(usize, ContextChangeKind, &str)> = series
            .context_changes
            .iter()
            .map(|change| (change.index, change.kind, change.text.as_str()))
            .collect();
        assert_eq!(
            turns,
            [
                (1, ContextChangeKind::Engine, "engine version: 1 → 2"),
                (1, ContextChangeKind::Baseline, "baseline: none → m-0"),
                (2, ContextChangeKind::SeriesBreak, "environment driver: a → b"),
            ]
        );
        assert_eq!(series.level_ranges(), [[0, 2], [2, 3]]);
        let baselines: Vec<Option<f64>> = series
            .nights
            .iter()
            .map(|night| Some(night.baseline?.round()))
            .collect();
        assert_eq!(baselines, [None, Some(100.0), Some(100.0)]);
    }

    #[test]
    fn two_versions_of_one_night_are_two_series() {
        let mut both = night(0, "1", "a", Some(100.0));
        both.cells.extend(night(0, "2", "a", Some(120.0)).cells);
        let nights = [both, night(1, "2", "a", Some(121.0))];
        let lengths: Vec<usize> = build_series(&nights, 0.02)
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
        let summaries: Vec<(String, String, usize)> = context_events(&nights)
            .into_iter()
            .map(|event| (event.at[8..10].to_owned(), event.text, event.cells.len()))
            .collect();
        let expected = [
            ("02", "baseline: none → m-0", 0),
            ("03", "environment driver: a → b", 0),
            ("03", "engine version: 1 → 2", 1),
        ]
        .map(|(at, what, cells)| (at.to_owned(), what.to_owned(), cells));
        assert_eq!(summaries, expected);
    }

    #[test]
    fn changes_are_looked_for_between_cuts() {
        let wobble = |at: u32| f64::from(at * 7 % 5) * 0.1;
        let nights: Vec<NightlyRun> = (0..28)
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
        let series = &build_series(&nights, 0.02)[0];
        let steps: Vec<usize> = series.changes.iter().map(|step| step.index).collect();
        assert_eq!(steps, [18]);
        assert_eq!(series.level_ranges(), [[0, 8], [8, 18], [18, 28]]);
    }
}
