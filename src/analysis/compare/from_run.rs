//! Turns a run into one side of a comparison.

use std::collections::{BTreeMap, BTreeSet};

use super::compared_cell::ComparedCell;
use super::conditions::Conditions;
use super::exclusion::{exclusion, suspect_reasons};
use super::machine_facts::{facts_of_hosts, facts_of_run};
use super::response_length::mean_response_tokens;
use super::search_bracket::unreliable_search_reason;
use super::{cell_facts, gates, percentile, resolution, settings};
use crate::analysis::metrics::{self, LatencyKind, Metric, Quantity, Statistic, Target};
use crate::plan::{Cell, Plan};
use crate::results::record::cell::{
    Definitions, FailureClass, MeasurementStatus, MeasurementSummary, Origin,
};
use crate::results::record::cell_stats::{
    CellStats, ExcludedMeasurement, Facts, ReliabilityCounts, RunStats,
};
use crate::results::record::machine::Machine;
use crate::results::record::run::RunInfo;
use crate::results::record::search::SearchRecord;
use crate::results::record::validity::MetricFamily;

/// Returns the metrics that a side stores.
fn stored_metrics() -> Vec<Metric> {
    let times = [
        LatencyKind::Ttft,
        LatencyKind::Tpot,
        LatencyKind::Itl,
        LatencyKind::E2e,
    ]
    .into_iter();
    let times = times.flat_map(|sample| {
        [Statistic::Mean, Statistic::Median, Statistic::P99].map(|statistic| Metric::Time(statistic, sample))
    });
    let flows = [
        Metric::Throughput(Quantity::Output),
        Metric::Throughput(Quantity::Requests),
        Metric::Throughput(Quantity::Total),
        Metric::SteadyOutput,
        Metric::AudioThroughput,
        Metric::PerUser,
        Metric::Goodput,
        Metric::CorrectShare,
    ];
    let search_metrics = Metric::all().filter(|metric| matches!(metric, Metric::Found(..)));
    flows.into_iter().chain(search_metrics).chain(times).collect()
}

/// Builds a side from a run. `gates` are the gating metrics of every cell; if it is empty, they follow from
/// the scenario.
pub(crate) fn run_stats(
    about: &RunInfo,
    plan: &Plan,
    machine: &Machine,
    summaries: &[MeasurementSummary],
    gates: &[Metric],
) -> RunStats {
    let mut of_cells = MeasurementSummary::by_cell(summaries);
    RunStats {
        run: about.run.clone(),
        matrix: about.matrix.clone(),
        began: about.began.clone(),
        tool: about.tool.clone(),
        machine: facts_of_run(machine, summaries),
        cells: plan
            .cells
            .iter()
            .map(|cell| {
                let of_cell = of_cells.remove(&cell.key).unwrap_or_default();
                (cell.key.clone(), cell_stats(plan, machine, cell, &of_cell, gates))
            })
            .collect(),
    }
}

fn cell_stats(
    plan: &Plan,
    machine: &Machine,
    cell: &Cell,
    summaries: &[&MeasurementSummary],
    gates: &[Metric],
) -> CellStats {
    let launch = plan.launch(&cell.launch);
    let excluded: Vec<ExcludedMeasurement> = summaries
        .iter()
        .filter_map(|summary| exclusion(summary))
        .collect();
    let counted: Vec<&MeasurementSummary> = summaries
        .iter()
        .copied()
        .filter(|summary| exclusion(summary).is_none())
        .collect();
    let gates = match gates {
        [] => measured_gates(cell, &counted),
        chosen => chosen.to_vec(),
    };
    let completed =
        |summary: &&MeasurementSummary| figure(summary, Metric::Completed).map(|count| count as u32);
    let figures: BTreeMap<String, Vec<Vec<f64>>> = stored_metrics()
        .into_iter()
        .chain(gates.iter().copied())
        .map(|metric| (metric.name(), values_by_start(&counted, metric)))
        .filter(|(_, starts)| !starts.is_empty())
        .map(|(name, starts)| (name, starts.into_values().collect()))
        .collect();
    let conditions = Conditions::from_cell(cell, &counted);
    CellStats {
        axes: cell.axes.clone(),
        content: cell.content.clone(),
        asked: cell_facts::question_facts(&ComparedCell {
            launch,
            cell,
            summaries,
            machine: None,
        }),
        limits: cell_facts::limit_facts(&cell.scenario),
        engine: engine_facts(summaries),
        hosts: facts_of_hosts(Some(machine), counted.iter().copied()),
        settings: settings::launch_settings(launch, summaries),
        load: Some(cell_facts::load_in_words(&cell.scenario)),
        prompts: common_value(counted.iter().map(|summary| summary.prompts_hash.clone())),
        clock_mhz: conditions.clock_mhz,
        capped_share: conditions.capped_share,
        one_token_share: conditions.one_token_share,
        loop_share: conditions.loop_share,
        canned_share: conditions.canned_share,
        tokens_per_counted: conditions.tokens_per_counted,
        tokens_per_event: conditions.tokens_per_event,
        vision_tokens: conditions.vision_tokens,
        prompt_tokens: conditions.prompt_tokens,
        devices: launch.gpus().unwrap_or(0),
        attached: launch.is_attached(),
        requests: counted.iter().filter_map(completed).min(),
        origin: summaries
            .first()
            .map_or(Origin::Measured, |summary| summary.origin),
        gates: gates.iter().map(|metric| metric.name()).collect(),
        intervals: intervals(&counted, &figures),
        figures,
        excluded,
        replaced: replaced_in_words(summaries),
        launch: Some(cell.launch.clone()),
        first_stage: plan
            .until
            .as_ref()
            .map(|stop_rule| first_stage_starts(&counted, stop_rule.stage)),
        resolutions: resolutions(&counted, &gates),
        no_ratio: searches_without_ratio(&counted)
            .into_iter()
            .chain(gates_without_verdict(&counted, &gates))
            .collect(),
        no_verdict: drained_gates(cell, &counted),
        answer_tokens: mean_response_tokens(&cell.scenario, &counted),
        suspect: counted
            .iter()
            .flat_map(|summary| suspect_reasons(summary))
            .collect(),
        tried: Some(count_attempts(summaries)),
    }
}

/// Returns the gating metrics of a cell. A metric that was not measured is replaced by that of the full run.
fn measured_gates(cell: &Cell, counted: &[&MeasurementSummary]) -> Vec<Metric> {
    let has = |metric: Metric| {
        let all = || {
            counted
                .iter()
                .filter_map(|summary| summary.figures.get(&Definitions::Matrix))
        };
        match metric {
            Metric::SteadyOutput => {
                all().next().is_some() && all().all(|figures| gates::has_metric(figures, metric))
            }
            _ => all().any(|figures| gates::has_metric(figures, metric)),
        }
    };
    gates::gates(&cell.scenario)
        .into_iter()
        .map(|metric| {
            if has(metric) {
                metric
            } else {
                gates::full_run_metric(metric)
            }
        })
        .collect()
}

/// Returns the number of valid starts that were planned before the stopping rule of `target_ci` ran.
pub(crate) fn first_stage_starts(counted: &[&MeasurementSummary], stage: u32) -> u32 {
    let starts: BTreeSet<u32> = counted.iter().map(|summary| summary.start).collect();
    starts.range(..=stage).count() as u32
}

/// Returns the resolution of the metrics that have one.
fn resolutions(summaries: &[&MeasurementSummary], gates: &[Metric]) -> BTreeMap<String, f64> {
    stored_metrics()
        .into_iter()
        .chain(gates.iter().copied())
        .map(|metric| {
            let share = resolution::resolution(summaries.iter().copied(), Definitions::Matrix, metric);
            (metric.name(), share)
        })
        .filter(|(_, share)| *share > 0.0)
        .collect()
}

/// Returns the results of searches without a reliable bracket, with the reason.
fn searches_without_ratio(summaries: &[&MeasurementSummary]) -> Facts {
    let searches = summaries.iter().filter_map(|summary| summary.search.as_ref());
    let doubts = searches
        .flat_map(SearchRecord::tiers)
        .filter_map(|(tier, search)| {
            let why = unreliable_search_reason(search)?;
            Some((Metric::Found(search.by, tier).name(), why))
        });
    doubts.collect()
}

/// Returns the gating metrics of imports that are only known in the definitions of their tool, which give no
/// verdict.
fn gates_without_verdict(counted: &[&MeasurementSummary], gates: &[Metric]) -> Facts {
    let knows = |definitions: Definitions, metric: Metric| {
        let mut summaries = counted
            .iter()
            .filter_map(|summary| summary.figures.get(&definitions));
        summaries.any(|figures| metrics::metric_value(figures, metric).is_some())
    };
    let reasons = gates.iter().filter_map(|metric| {
        if knows(Definitions::Matrix, *metric) {
            return None;
        }
        let own = [Definitions::Current, Definitions::Classic]
            .into_iter()
            .find(|definitions| knows(*definitions, *metric))?;
        let why = format!(
            "{} was measured only by the definition `{}` of another tool, but a verdict needs the definition of `matrix`",
            metric.label(),
            own.name()
        );
        Some((metric.name(), why))
    });
    reasons.collect()
}

/// Returns the throughput of a whole run that is dominated by the drain at its end.
fn drained_gates(cell: &Cell, counted: &[&MeasurementSummary]) -> Facts {
    let full = Metric::Throughput(Quantity::Output);
    let figures = counted
        .iter()
        .filter_map(|summary| summary.figures.get(&Definitions::Matrix));
    let why = gates::drain_reason(&cell.scenario, full, figures);
    why.map(|why| (full.name(), why)).into_iter().collect()
}

/// Says which results of a cell others replaced, and why they did not count. Results with the same words are one.
fn replaced_in_words(summaries: &[&MeasurementSummary]) -> Vec<String> {
    let mut places: Vec<(String, Vec<[u32; 2]>)> = Vec::new();
    for summary in summaries {
        for words in summary.replaced_in_words() {
            let place = [summary.start, summary.repeat];
            match places.iter_mut().find(|(known, _)| *known == words) {
                Some((_, places)) => places.push(place),
                None => places.push((words, vec![place])),
            }
        }
    }
    let in_words = |(words, places): (String, Vec<[u32; 2]>)| match places[..] {
        [[start, repeat]] => format!("start {start}, repeat {repeat}: {words}"),
        _ => {
            let starts: BTreeSet<u32> = places.iter().map(|[start, _]| *start).collect();
            let starts: Vec<String> = starts.iter().map(u32::to_string).collect();
            format!(
                "{} measurements (starts {}): {words}",
                places.len(),
                starts.join(", ")
            )
        }
    };
    places.into_iter().map(in_words).collect()
}

/// Counts how often a cell was tried. A failure of the host, the client or the matrix says nothing about the
/// engine. Crashes that another measurement replaced count as starts of their own.
fn count_attempts(summaries: &[&MeasurementSummary]) -> ReliabilityCounts {
    let mut starts: BTreeMap<u32, bool> = BTreeMap::new();
    let mut by_start: BTreeMap<u32, [u64; 2]> = BTreeMap::new();
    let mut replaced: BTreeMap<u32, usize> = BTreeMap::new();
    for summary in summaries {
        let crashes = summary.replaced_crashes();
        let of_start = replaced.entry(summary.start).or_default();
        *of_start = crashes.max(*of_start);
        let has_crashed = match &summary.status {
            MeasurementStatus::Done => false,
            MeasurementStatus::Failed { class, .. } if class.is_of_engine() => true,
            MeasurementStatus::Failed {
                class: FailureClass::Validity,
                ..
            } => false,
            MeasurementStatus::Failed { .. } => continue,
            MeasurementStatus::Skipped { .. } | MeasurementStatus::Interrupted => continue,
        };
        *starts.entry(summary.start).or_default() |= has_crashed;
        if !has_crashed {
            let count = |metric| figure(summary, metric).map_or(0, |count| count as u64);
            let lost = count(Metric::Failed);
            let [failed, requests] = by_start.entry(summary.start).or_default();
            *failed += lost;
            *requests += lost + count(Metric::Completed);
        }
    }
    let replaced = replaced.values().sum::<usize>();
    let crashed = starts.values().filter(|crashed| **crashed).count();
    ReliabilityCounts {
        starts: (starts.len() + replaced) as u32,
        crashed: (crashed + replaced) as u32,
        requests: by_start.values().map(|[_, requests]| requests).sum(),
        failed: by_start.values().map(|[failed, _]| failed).sum(),
        by_start: by_start.into_values().collect(),
    }
}

fn figure(summary: &MeasurementSummary, metric: Metric) -> Option<f64> {
    metrics::metric_value(summary.figures.get(&Definitions::Matrix)?, metric)
}

/// Returns the repeats of a metric by the number of the start.
pub(super) fn values_by_start(summaries: &[&MeasurementSummary], metric: Metric) -> BTreeMap<u32, Vec<f64>> {
    let mut starts: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for summary in summaries {
        starts
            .entry(summary.start)
            .or_default()
            .extend(figure(summary, metric));
    }
    starts.retain(|_, repeats| !repeats.is_empty());
    starts
}

fn intervals(
    summaries: &[&MeasurementSummary],
    values: &BTreeMap<String, Vec<Vec<f64>>>,
) -> BTreeMap<String, Vec<[f64; 2]>> {
    let mut intervals: BTreeMap<String, Vec<[f64; 2]>> = BTreeMap::new();
    let all = summaries.iter().flat_map(|summary| &summary.intervals);
    for (name, between) in all.filter(|(name, _)| values.contains_key(*name)) {
        intervals.entry(name.clone()).or_default().push(*between);
    }
    intervals
}

fn common_value<T: PartialEq>(mut values: impl Iterator<Item = Option<T>>) -> Option<T> {
    let first = values.next()??;
    values
        .all(|other| other.as_ref() == Some(&first))
        .then_some(first)
}

fn engine_facts(summaries: &[&MeasurementSummary]) -> Facts {
    let mut facts = Facts::new();
    for summary in summaries {
        let engine = &summary.engine;
        let entries = [
            ("version", &engine.version),
            ("image", &engine.image_digest),
            ("tokenizer", &engine.tokenizer_digest),
        ];
        for (name, value) in entries {
            if let Some(value) = value {
                facts.entry(name.to_owned()).or_insert_with(|| value.clone());
            }
        }
    }
    facts
}

/// Returns the family of metrics that a metric belongs to. `None` if no reason concerns it alone.
pub(crate) fn metric_family(metric: Metric) -> Option<MetricFamily> {
    match metric {
        Metric::Time(
            _,
            LatencyKind::Ttft | LatencyKind::TtftAnswer | LatencyKind::TtftConnected | LatencyKind::TtftDue,
        )
        | Metric::AttainmentOf(Target::Ttft) => Some(MetricFamily::Ttft),
        Metric::Time(_, LatencyKind::Itl) => Some(MetricFamily::Itl),
        Metric::Time(_, LatencyKind::Tpot) | Metric::Interactivity => Some(MetricFamily::Tpot),
        Metric::Goodput | Metric::Attainment | Metric::AttainmentOf(Target::Tpot) | Metric::Found(..) => {
            Some(MetricFamily::Goodput)
        }
        Metric::Energy
        | Metric::EnergyAboveIdle
        | Metric::EnergyPer(_)
        | Metric::PerEnergy(_)
        | Metric::MeanPower
        | Metric::PeakPower => Some(MetricFamily::Energy),
        _ => None,
    }
}

/// Says why a metric of a cell gets no verdict. `None` if it may get one.
pub(crate) fn too_few(cell: &CellStats, metric: Metric) -> Option<String> {
    percentile::too_few_requests(metric, cell.requests?)
}
