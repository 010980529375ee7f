//! Output per user against output per GPU, over the loads of a workload.

use schemars::JsonSchema;
use serde::Serialize;

use crate::analysis::metrics::{self, Flow, Metric};
use crate::report::tables::{Shown, grouped, lacks};
use crate::results::record::provenance::Unknown;
use crate::results::record::validity::Verdict;

/// The points of one model and workload.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Tradeoff {
    /// Model and workload.
    pub title: String,
    /// Whether `output_tok_s` is of each GPU. Where no engine has GPUs, as simulated ones, it is of all together.
    pub is_per_gpu: bool,
    /// Every point, by engine in the order of first appearance, then by load.
    pub points: Vec<Operating>,
}

/// An engine at one load.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Operating {
    /// The engine with its version, precision and GPUs, and the run where there are several.
    pub engine: String,
    /// The load, in words.
    pub load: String,
    /// Output tokens per second that one user saw while waiting for answers.
    pub per_user_tok_s: f64,
    /// Output tokens per second of each GPU, or of all together.
    pub output_tok_s: f64,
    /// Whether it can be believed.
    pub validity: Verdict,
    /// Whether no other point that can be believed gives at least as much to users and GPUs, and more to one of them.
    pub is_on_frontier: bool,
}

pub(super) fn tradeoffs(shown: &[Shown<'_>]) -> Vec<Tradeoff> {
    let title = |one: &Shown<'_>| format!("{} · {}", one.launch.model, one.cell.scenario.name);
    let groups = grouped(shown.iter().map(|one| (title(one), one)));
    let tradeoff = |(title, group): (String, Vec<&Shown<'_>>)| {
        let is_per_gpu = group
            .iter()
            .any(|one| one.launch.gpus().is_some_and(|gpus| gpus > 0));
        let metric = match is_per_gpu {
            true => Metric::PerDevice(Flow::Output),
            false => Metric::Throughput(Flow::Output),
        };
        let mut points: Vec<Operating> = group.iter().flat_map(|one| points(one, metric)).collect();
        by_engine(&mut points);
        mark_frontier(&mut points);
        (!points.is_empty()).then_some(Tradeoff {
            title,
            is_per_gpu,
            points,
        })
    };
    groups.into_iter().filter_map(tradeoff).collect()
}

/// The points of a cell: one, or those of its search.
fn points(shown: &Shown<'_>, output: Metric) -> Vec<Operating> {
    let launch = shown.launch;
    let mut engine = shown.engine();
    if let Some(precision) = &launch.precision {
        engine.push_str(&format!(" {precision}"));
    }
    if !lacks(shown, Unknown::Tp) {
        engine.push_str(&format!(" tp{}", launch.parallel.tp));
    }
    if !shown.run.is_empty() {
        engine.push_str(&format!(" run={}", shown.run));
    }
    let point = |load: String, user: Option<f64>, gpu: Option<f64>| {
        Some(Operating {
            engine: engine.clone(),
            load,
            per_user_tok_s: user?,
            output_tok_s: gpu?,
            validity: shown.verdict(),
            is_on_frontier: false,
        })
    };
    let searched = shown.counted().filter_map(|summary| summary.search.as_ref());
    let searched: Vec<Operating> = searched
        .flat_map(|record| {
            record.points.iter().filter_map(|found| {
                let figure = |metric| metrics::figure(&found.figures, metric);
                let load = format!("{} {}", found.value, record.by.unit());
                point(load, figure(Metric::PerUser), figure(output))
            })
        })
        .collect();
    if !searched.is_empty() {
        return searched;
    }
    let own = point(load(shown), shown.value(Metric::PerUser), shown.value(output));
    own.into_iter().collect()
}

fn load(shown: &Shown<'_>) -> String {
    let full = shown.scenario();
    let load = full.strip_prefix(&shown.cell.scenario.name).unwrap_or(&full);
    match load.trim_start_matches([',', ' ']) {
        "" => "all at once".to_owned(),
        load => load.to_owned(),
    }
}

/// Groups points by engine, the lighter load (more output for each user) first.
fn by_engine(points: &mut [Operating]) {
    let mut order: Vec<String> = Vec::new();
    for point in points.iter() {
        if !order.contains(&point.engine) {
            order.push(point.engine.clone());
        }
    }
    let place = |point: &Operating| order.iter().position(|engine| *engine == point.engine);
    points.sort_by(|a, b| {
        place(a)
            .cmp(&place(b))
            .then(b.per_user_tok_s.total_cmp(&a.per_user_tok_s))
    });
}

fn mark_frontier(points: &mut [Operating]) {
    let beats = |a: &Operating, b: &Operating| {
        let (user, gpu) = (
            a.per_user_tok_s.total_cmp(&b.per_user_tok_s),
            a.output_tok_s.total_cmp(&b.output_tok_s),
        );
        user.is_ge() && gpu.is_ge() && (user.is_gt() || gpu.is_gt())
    };
    let all = points.to_vec();
    for point in points {
        let is_beaten = all
            .iter()
            .any(|other| other.validity != Verdict::Invalid && beats(other, point));
        point.is_on_frontier = point.validity != Verdict::Invalid && !is_beaten;
    }
}
