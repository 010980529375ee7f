//! Output per GPU against interactivity (1 / mean TPOT), at each load of a scenario.

use std::collections::BTreeMap;

use serde::Serialize;

use super::conclusions::{Conclusion, ConclusionOutcome};
use super::interpolation::{Interpolation, interpolations};
use crate::analysis::compare::comparable::Comparability;
use crate::analysis::metrics::{self, Metric, Quantity};
use crate::base::ids::LaunchId;
use crate::report::tables::{
    Group, ReportCell, comparability, group_by_name, is_unknown, means_of_starts, metric_value,
};
use crate::results::record::provenance::UnknownFact;
use crate::results::record::validity::Verdict;

/// Output per GPU against interactivity, for one model and scenario name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Tradeoff {
    /// Model and name of the scenario.
    pub(crate) title: String,
    /// Whether `output_tok_s` is per GPU. It is the total if no engine has GPUs, as with simulated engines.
    pub(crate) is_per_gpu: bool,
    /// Whether each comparison of these cells has a winner.
    pub(crate) has_winners: bool,
    /// All points, by engine in the order of first appearance, then by load, the lightest first.
    pub(crate) points: Vec<OperatingPoint>,
    /// Output tokens per second that the SLO demands for each answer, as far as it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slo_tok_s: Option<f64>,
    /// Engines that cannot be compared with the first one at any load.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) not_comparable: Vec<String>,
    /// Outputs between the points, at speeds that all engines reach and at that of the SLO.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) interpolated: Vec<Interpolation>,
}

/// One engine at one load.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct OperatingPoint {
    /// Engine with version, precision and tensor-parallel size, and with the run if the report has several.
    pub(crate) engine: String,
    /// The load, such as `4 req/s` or `all at once`.
    pub(crate) load: String,
    /// Output tokens per second for one user while an answer streams: 1 / mean TPOT, which is what `slo_tok_s` limits.
    pub(crate) interactivity_tok_s: f64,
    /// Output tokens per second per GPU, or in total (`is_per_gpu`).
    pub(crate) output_tok_s: f64,
    /// Both values of each start; empty unless every start has both.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) starts: Vec<[f64; 2]>,
    /// Whether a search tried this load on some of its starts alone, which `starts` has; nothing is interpolated from it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_partial: bool,
    /// Validity verdict of the cell.
    pub(crate) validity: Verdict,
    /// Whether it is not invalid, and no other point that is not invalid is at least as high in both values and
    /// higher in one.
    pub(crate) is_on_frontier: bool,
}

/// The tradeoffs of these cells, whose groups have these conclusions, in the same order.
pub(super) fn tradeoffs(
    cells: &[ReportCell<'_>],
    compared: &[Group<'_, '_>],
    conclusions: &[Conclusion],
) -> Vec<Tradeoff> {
    let groups = group_by_name(cells.iter().map(|cell| (title(cell), cell)));
    let tradeoff = |(title, group): (String, Vec<&ReportCell<'_>>)| {
        let is_per_gpu = group
            .iter()
            .any(|cell| cell.launch.gpus().is_some_and(|gpus| gpus > 0));
        let metric = match is_per_gpu {
            true => Metric::PerDevice(Quantity::Output),
            false => Metric::Throughput(Quantity::Output),
        };
        let lines = line_names(&group);
        let mut points: Vec<OperatingPoint> = group
            .iter()
            .zip(&lines)
            .flat_map(|(cell, line)| operating_points(cell, line, metric))
            .collect();
        sort_by_engine(&mut points);
        mark_frontier(&mut points);
        let slo_tok_s = slo_speed(&group);
        let has_winners = compared
            .iter()
            .zip(conclusions)
            .filter(|(group, _)| group.rows.iter().any(|row| self::title(row) == title))
            .all(|(_, conclusion)| conclusion.outcome == ConclusionOutcome::Winner);
        (!points.is_empty()).then(|| Tradeoff {
            title,
            is_per_gpu,
            has_winners,
            interpolated: interpolations(&points, slo_tok_s),
            slo_tok_s,
            not_comparable: not_comparable(&group, &lines),
            points,
        })
    };
    groups.into_iter().filter_map(tradeoff).collect()
}

/// Model and name of the scenario, without its load.
fn title(cell: &ReportCell<'_>) -> String {
    format!("{} · {}", cell.launch.model, cell.cell.scenario.name)
}

/// The name of an engine's line in charts over loads.
fn line_name(cell: &ReportCell<'_>) -> String {
    let launch = cell.launch;
    let mut engine = cell.engine();
    if let Some(precision) = &launch.precision {
        engine.push_str(&format!(" {precision}"));
    }
    if !is_unknown(cell, UnknownFact::Tp) {
        engine.push_str(&format!(" tp{}", launch.parallel.tp));
    }
    if !cell.run.is_empty() {
        engine.push_str(&format!(" run={}", cell.run));
    }
    engine
}

/// The names of the lines of these cells. Launches that differ have lines of their own, also where their names are equal.
pub(super) fn line_names(group: &[&ReportCell<'_>]) -> Vec<String> {
    let named = group.iter().map(|cell| {
        let short = line_name(cell);
        (short.clone(), short + &setup(cell), &cell.launch.id)
    });
    let named: Vec<_> = named.collect();
    let line = |(short, long, id): &(String, String, &LaunchId)| {
        let mut same: Vec<&(String, String, &LaunchId)> =
            named.iter().filter(|other| other.0 == *short).collect();
        if same.iter().all(|other| other.2 == *id) {
            return short.clone();
        }
        same.retain(|other| other.1 == *long);
        let mut launches: Vec<&LaunchId> = Vec::new();
        for other in same {
            if !launches.contains(&other.2) {
                launches.push(other.2);
            }
        }
        match launches.iter().position(|other| other == id) {
            None | Some(0) => long.clone(),
            Some(place) => format!("{long} ({})", place + 1),
        }
    };
    named.iter().map(line).collect()
}

/// What a name leaves out of a launch: further parallel sizes, the variant and a declared GPU, each with a space before it.
fn setup(cell: &ReportCell<'_>) -> String {
    let launch = cell.launch;
    let sizes = launch.parallel.sizes().into_iter().skip(1);
    let sizes = sizes
        .filter(|(_, size)| *size > 1)
        .map(|(axis, size)| format!("{axis}{size}"));
    let variant = launch.engine.variant.iter().map(ToString::to_string);
    let mut words: Vec<String> = sizes.chain(variant).collect();
    let declared = launch.place.settings().declared_gpu();
    let is_named = |gpu: &&str| words.iter().any(|word| word.contains(gpu));
    words.extend(declared.filter(|gpu| !is_named(gpu)).map(str::to_owned));
    words.into_iter().map(|word| format!(" {word}")).collect()
}

/// The lines that cannot be compared with the first line, at the same load.
fn not_comparable(group: &[&ReportCell<'_>], lines: &[String]) -> Vec<String> {
    let first = lines.first();
    let of_line = |line: &String| {
        let own = lines.iter().zip(group).filter(move |(name, _)| **name == *line);
        own.map(|(_, cell)| *cell).collect::<Vec<_>>()
    };
    let mut found: Vec<String> = Vec::new();
    for line in lines.iter().filter(|line| Some(*line) != first) {
        let own = of_line(line);
        let references = first.map(of_line).unwrap_or_default();
        let pairs = own.iter().flat_map(|cell| {
            let same_load = references
                .iter()
                .filter(|reference| load(cell) == load(reference));
            same_load.map(|reference| (*cell, *reference))
        });
        let mut apart =
            pairs.map(|(cell, reference)| matches!(comparability(cell, reference), Comparability::Not(_)));
        if apart.any(|is_apart| is_apart) && !found.contains(line) {
            found.push(line.clone());
        }
    }
    found
}

/// The points of a cell: one, or one for each load of its search.
fn operating_points(cell: &ReportCell<'_>, line: &str, output: Metric) -> Vec<OperatingPoint> {
    let point = |load: String, user: f64, gpu: f64| OperatingPoint {
        engine: line.to_owned(),
        load,
        interactivity_tok_s: user,
        output_tok_s: gpu,
        starts: Vec::new(),
        is_partial: false,
        validity: cell.validity(),
        is_on_frontier: false,
    };
    let searched = searched_loads(cell, output);
    if !searched.is_empty() {
        let mean = |starts: &[[f64; 2]], at: usize| {
            starts.iter().map(|start| start[at]).sum::<f64>() / starts.len() as f64
        };
        let all_starts = searched.iter().map(|(_, starts)| starts.len()).max().unwrap_or(0);
        let points = searched.into_iter().map(|(load, starts)| OperatingPoint {
            starts: starts.clone(),
            is_partial: starts.len() < all_starts,
            ..point(load, mean(&starts, 0), mean(&starts, 1))
        });
        return points.collect();
    }
    let own = cell.value(Metric::Interactivity).zip(cell.value(output));
    own.map(|(user, gpu)| OperatingPoint {
        starts: values_of_starts(cell, output),
        ..point(load(cell), user, gpu)
    })
    .into_iter()
    .collect()
}

/// A load that searches tried.
struct TriedLoad {
    value: f64,
    name: String,
    /// Output per user and output of each measurement, by start.
    by_start: BTreeMap<u32, Vec<[f64; 2]>>,
}

/// The loads that the searches of a cell tried, each with output per user and output of each start that tried it: the means of its
/// measurements on that start, as a search measures the ends of its bracket twice.
fn searched_loads(cell: &ReportCell<'_>, output: Metric) -> Vec<(String, Vec<[f64; 2]>)> {
    let mut loads: Vec<TriedLoad> = Vec::new();
    for summary in cell.counted_summaries() {
        let Some(record) = summary.search.as_ref() else {
            continue;
        };
        for search_point in &record.points {
            let figure = |metric| metrics::metric_value(&search_point.figures, metric);
            let Some((user, output)) = figure(Metric::Interactivity).zip(figure(output)) else {
                continue;
            };
            let known = loads.iter().position(|load| load.value == search_point.value);
            let at = known.unwrap_or_else(|| {
                loads.push(TriedLoad {
                    value: search_point.value,
                    name: format!("{} {}", search_point.value, record.by.unit()),
                    by_start: BTreeMap::new(),
                });
                loads.len() - 1
            });
            // An attached server has one start.
            let start = if cell.launch.is_attached() {
                1
            } else {
                summary.start
            };
            loads[at].by_start.entry(start).or_default().push([user, output]);
        }
    }
    let mean = |measured: Vec<[f64; 2]>| {
        let count = measured.len() as f64;
        [0, 1].map(|at: usize| measured.iter().map(|values| values[at]).sum::<f64>() / count)
    };
    let of_starts = |load: TriedLoad| (load.name, load.by_start.into_values().map(mean).collect());
    loads.into_iter().map(of_starts).collect()
}

/// Output per user and output of each start; empty unless every start has both.
fn values_of_starts(cell: &ReportCell<'_>, output: Metric) -> Vec<[f64; 2]> {
    let of_starts = |metric| means_of_starts(&cell.read_by_start(|summary| metric_value(summary, metric)));
    let (users, outputs) = (of_starts(Metric::Interactivity), of_starts(output));
    match users.len() == outputs.len() {
        true => users
            .into_iter()
            .zip(outputs)
            .map(|(user, output)| [user, output])
            .collect(),
        false => Vec::new(),
    }
}

/// The speed that the SLO demands for each answer, if all cells of the group have the same.
fn slo_speed(group: &[&ReportCell<'_>]) -> Option<f64> {
    let speed = |cell: &ReportCell<'_>| {
        let slo = cell.cell.scenario.slo.as_ref()?;
        Some(1.0 / slo.max_tpot()?.as_secs_f64())
    };
    let first = speed(group.first()?);
    first.filter(|_| group.iter().all(|cell| speed(cell) == first))
}

fn load(cell: &ReportCell<'_>) -> String {
    let full = cell.scenario();
    let load = full.strip_prefix(&cell.cell.scenario.name).unwrap_or(&full);
    match load.trim_start_matches([',', ' ']) {
        "" => "all at once".to_owned(),
        load => load.to_owned(),
    }
}

/// Groups points by engine, the lighter load (higher interactivity) first.
fn sort_by_engine(points: &mut [OperatingPoint]) {
    let mut order: Vec<String> = Vec::new();
    for point in points.iter() {
        if !order.contains(&point.engine) {
            order.push(point.engine.clone());
        }
    }
    let place = |point: &OperatingPoint| order.iter().position(|engine| *engine == point.engine);
    points.sort_by(|a, b| {
        place(a)
            .cmp(&place(b))
            .then(b.interactivity_tok_s.total_cmp(&a.interactivity_tok_s))
    });
}

fn mark_frontier(points: &mut [OperatingPoint]) {
    let beats = |a: &OperatingPoint, b: &OperatingPoint| {
        let (user, gpu) = (
            a.interactivity_tok_s.total_cmp(&b.interactivity_tok_s),
            a.output_tok_s.total_cmp(&b.output_tok_s),
        );
        user.is_ge() && gpu.is_ge() && (user.is_gt() || gpu.is_gt())
    };
    let copies = points.to_vec();
    for point in points {
        let is_beaten = copies
            .iter()
            .any(|other| other.validity != Verdict::Invalid && beats(other, point));
        point.is_on_frontier = point.validity != Verdict::Invalid && !is_beaten;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::ContentHash;
    use crate::config::search::SearchVariable;
    use crate::report::testing::Case;
    use crate::results::record::search::{Point, PointJudgement, SearchRecord, SearchStopReason};

    fn judged() -> PointJudgement {
        let met = serde_json::json!({
            "requests": 9, "good": 9, "attainment": 1.0, "interval": [0.9, 1.0], "holds": true
        });
        serde_json::from_value(met).expect("it is a judgement")
    }

    fn record(points: &[(f64, f64, f64)]) -> SearchRecord {
        let point = |(value, user, output): &(f64, f64, f64)| Point {
            value: *value,
            judged: judged(),
            schedule_hash: ContentHash::from_bytes(b""),
            figures: [
                (Metric::Interactivity.name(), Some(*user)),
                (Metric::Throughput(Quantity::Output).name(), Some(*output)),
            ]
            .into(),
            failures: BTreeMap::new(),
            caches: Vec::new(),
        };
        SearchRecord {
            by: SearchVariable::Concurrency,
            target: 0.95,
            resolution: None,
            points: points.iter().map(point).collect(),
            found: None,
            attainment: None,
            fails_at: None,
            capacity: None,
            ending: SearchStopReason::Stopped,
            further_tiers: Vec::new(),
            reported: None,
        }
    }

    /// Ends of a bracket are measured twice, and all starts try the same loads: one point each, with the values of the starts.
    #[test]
    fn a_load_of_a_search_is_one_point_with_the_mean_of_each_start() {
        let mut case = Case::new("a", "bf16", 1, 1000.0).measured_again(1000.0);
        let searches = [
            record(&[(8.0, 100.0, 800.0), (8.0, 102.0, 820.0), (4.0, 150.0, 600.0)]),
            record(&[(8.0, 103.0, 830.0), (6.0, 120.0, 700.0), (4.0, 152.0, 608.0)]),
        ];
        for ((summary, search), start) in case.summaries.iter_mut().zip(searches).zip(1..) {
            (summary.start, summary.repeat, summary.search) = (start, 1, Some(search));
        }
        let points = operating_points(&case.report_cell(), "a", Metric::Throughput(Quantity::Output));
        let drawn: Vec<_> = points
            .iter()
            .map(|point| (point.load.as_str(), point.starts.clone(), point.is_partial))
            .collect();
        let unit = SearchVariable::Concurrency.unit();
        assert_eq!(
            drawn,
            [
                (
                    format!("8 {unit}").as_str(),
                    vec![[101.0, 810.0], [103.0, 830.0]],
                    false
                ),
                (
                    format!("4 {unit}").as_str(),
                    vec![[150.0, 600.0], [152.0, 608.0]],
                    false
                ),
                (format!("6 {unit}").as_str(), vec![[120.0, 700.0]], true),
            ]
        );
        assert_eq!(
            (points[0].interactivity_tok_s, points[0].output_tok_s),
            (102.0, 820.0)
        );
    }

    /// Two launches with one name, such as those of a file of another tool, are two lines.
    #[test]
    fn launches_with_the_same_name_have_lines_of_their_own() {
        let [one, mut other] = [1000.0, 2000.0].map(|tok_s| Case::new("a@1", "bf16", 1, tok_s));
        other.launch.id = LaunchId::new("other");
        let cells = [one.report_cell(), other.report_cell(), one.report_cell()];
        let group: Vec<&ReportCell<'_>> = cells.iter().collect();
        assert_eq!(
            line_names(&group),
            ["a@1 bf16 tp1", "a@1 bf16 tp1 (2)", "a@1 bf16 tp1"]
        );
        assert_eq!(line_names(&group[..1]), ["a@1 bf16 tp1"]);
    }
}
