//! Output per GPU against interactivity (1 / mean TPOT), at each load of a scenario.

use serde::Serialize;

use super::conclusions::{Conclusion, ConclusionOutcome};
use super::interpolation::{Interpolation, interpolations};
use crate::analysis::metrics::{self, Metric, Quantity};
use crate::report::tables::{Group, ReportCell, group_by_name, is_unknown, means_of_starts, metric_value};
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
    /// Both values of each start; empty for the points of a search.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) starts: Vec<[f64; 2]>,
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
        let mut points: Vec<OperatingPoint> = group
            .iter()
            .flat_map(|cell| operating_points(cell, metric))
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
pub(super) fn line_name(cell: &ReportCell<'_>) -> String {
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

/// The points of a cell: one, or those of its search.
fn operating_points(cell: &ReportCell<'_>, output: Metric) -> Vec<OperatingPoint> {
    let engine = line_name(cell);
    let point = |load: String, user: Option<f64>, gpu: Option<f64>| {
        Some(OperatingPoint {
            engine: engine.clone(),
            load,
            interactivity_tok_s: user?,
            output_tok_s: gpu?,
            starts: Vec::new(),
            validity: cell.validity(),
            is_on_frontier: false,
        })
    };
    let searched = cell
        .counted_summaries()
        .filter_map(|summary| summary.search.as_ref());
    let searched: Vec<OperatingPoint> = searched
        .flat_map(|record| {
            record.points.iter().filter_map(|search_point| {
                let figure = |metric| metrics::metric_value(&search_point.figures, metric);
                let load = format!("{} {}", search_point.value, record.by.unit());
                point(load, figure(Metric::Interactivity), figure(output))
            })
        })
        .collect();
    if !searched.is_empty() {
        return searched;
    }
    let own = point(load(cell), cell.value(Metric::Interactivity), cell.value(output));
    own.map(|own| OperatingPoint {
        starts: values_of_starts(cell, output),
        ..own
    })
    .into_iter()
    .collect()
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
