//! What two arms of one run need besides speed: the time until the engine is ready, memory and energy.

use std::collections::BTreeMap;

use super::decision::{self, Answer, DecisionOptions, Design, MetricQuestion, NoVerdict, Sample};
use super::exclusion::is_counted;
use super::from_run;
use crate::analysis::metrics::{Direction, Metric, Quantity};
use crate::base::ids::{CellKey, LaunchId};
use crate::config::select::{self, AxisValues};
use crate::plan::{Cell, Plan};
use crate::results::record::cell::{MeasurementStatus, MeasurementSummary, Phase};
use crate::results::record::telemetry::Telemetry;

/// Smallest change of the time to ready that matters, as a share: it depends on disks and caches more than other figures do.
pub(crate) const READY_BOUND: f64 = 0.1;

/// Smallest difference of the time to ready that matters, in seconds.
pub(crate) const READY_DIFFERENCE: f64 = 0.1;

/// The sampled value of a GPU's memory in use.
const MEMORY_USED: &str = "memory_used_bytes";

/// Something that an engine needs besides the time of its answers; less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    /// Seconds from the start command until the first token.
    ReadyTime,
    /// Most memory in use during the load on all GPUs of the engine together, without what was in use before it.
    GpuMemory,
    /// Joules per token.
    Energy,
}

impl Resource {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::ReadyTime => "time to ready",
            Self::GpuMemory => "GPU memory",
            Self::Energy => "energy per token",
        }
    }

    /// The unit of [`ResourceRow::values`].
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::ReadyTime => "s",
            Self::GpuMemory => "GiB",
            Self::Energy => "J",
        }
    }

    const fn divisor(self) -> f64 {
        match self {
            Self::GpuMemory => (1_u64 << 30) as f64,
            Self::ReadyTime | Self::Energy => 1.0,
        }
    }

    fn bound(self, bound: f64, baseline: &Sample) -> f64 {
        let least = || baseline.value().map_or(0.0, |seconds| READY_DIFFERENCE / seconds);
        match self {
            Self::ReadyTime => bound.max(READY_BOUND).max(least()),
            Self::GpuMemory | Self::Energy => bound,
        }
    }
}

/// A resource of one pair of launches or cells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ResourceRow {
    pub(crate) resource: Resource,
    /// The candidate's cell; without the axes of the load if the row is about the launch.
    pub(crate) cell: CellKey,
    /// Of the baseline and of the candidate, in the unit of the resource.
    pub(crate) values: [Option<f64>; 2],
    /// The value of each start of both.
    pub(crate) starts: [Vec<f64>; 2],
    pub(crate) answer: Answer,
}

/// Questions about resources that were measured on both sides.
pub(crate) struct ResourceQuestions {
    asked: Vec<(Resource, CellKey, MetricQuestion)>,
}

impl ResourceQuestions {
    pub(crate) fn new(plan: &Plan, summaries: &[MeasurementSummary], pairs: &[(CellKey, CellKey)]) -> Self {
        let mut asked = Vec::new();
        let mut known: Vec<[&LaunchId; 2]> = Vec::new();
        for (baseline, candidate) in pairs {
            let cells = [plan.cell(baseline), plan.cell(candidate)];
            let launches = cells.map(|cell| &cell.launch);
            let mut add = |resource, key: CellKey, values: [BTreeMap<u32, f64>; 2]| {
                let question = question(plan, launches, values);
                asked.extend(question.map(|question| (resource, key, question)));
            };
            if !known.contains(&launches) {
                known.push(launches);
                let key = CellKey::new(select::cell_key(&launch_axes(cells[1])));
                let of_launch = |value: fn(&MeasurementSummary) -> Option<f64>| {
                    launches.map(|launch| largest_by_start(summaries, launch, value))
                };
                add(Resource::ReadyTime, key.clone(), of_launch(ready_time));
                add(Resource::GpuMemory, key, of_launch(gpu_memory));
            }
            let energy = cells.map(|cell| energy_by_start(summaries, cell));
            add(Resource::Energy, candidate.clone(), energy);
        }
        Self { asked }
    }

    pub(crate) fn len(&self) -> usize {
        self.asked.len()
    }

    /// Judges all of them, as part of a family of so many questions. `forbidden` says why the two sides must not be compared.
    pub(crate) fn judge(mut self, bound: f64, family: usize, forbidden: Option<&str>) -> Vec<ResourceRow> {
        if let Some(why) = forbidden {
            for (.., question) in &mut self.asked {
                question.no_verdict = Some(NoVerdict::NotComparable(why.to_owned()));
            }
        }
        let mut rows = Vec::new();
        for resource in [Resource::ReadyTime, Resource::GpuMemory, Resource::Energy] {
            let of_kind = || self.asked.iter().filter(|(kind, ..)| *kind == resource);
            let questions: Vec<MetricQuestion> = of_kind().map(|(.., question)| question.clone()).collect();
            let options = DecisionOptions { bound, family };
            let answers = decision::decide(&questions, &options);
            let value = |sample: &Sample| Some(sample.value()? / resource.divisor());
            let starts = |sample: &Sample| -> Vec<f64> {
                let values = sample.logs.iter();
                values.map(|log| log.exp() / resource.divisor()).collect()
            };
            rows.extend(
                of_kind()
                    .zip(answers)
                    .map(|((_, cell, question), answer)| ResourceRow {
                        resource,
                        cell: cell.clone(),
                        values: [value(&question.baseline), value(&question.candidate)],
                        starts: [starts(&question.baseline), starts(&question.candidate)],
                        answer: answer.with_bound(resource.bound(bound, &question.baseline)),
                    }),
            );
        }
        rows
    }
}

/// The question about values by start; `None` if a side has none.
fn question(
    plan: &Plan,
    launches: [&LaunchId; 2],
    values: [BTreeMap<u32, f64>; 2],
) -> Option<MetricQuestion> {
    if values.iter().any(BTreeMap::is_empty) {
        return None;
    }
    let rounds = plan.rounds(launches[0], launches[1]);
    let pairs: Vec<[f64; 2]> = rounds
        .iter()
        .filter_map(|[first, second]| Some([*values[0].get(first)?, *values[1].get(second)?]))
        .collect();
    let is_paired = !pairs.is_empty();
    let sample = |side: usize| {
        let starts: Vec<Vec<f64>> = match is_paired {
            true => pairs.iter().map(|pair| vec![pair[side]]).collect(),
            false => values[side].values().map(|value| vec![*value]).collect(),
        };
        Sample::from_starts(&starts).map(|sample| Sample {
            launch: Some(launches[side].to_string()),
            ..sample
        })
    };
    let (baseline, candidate) = (sample(0), sample(1));
    let no_verdict = (baseline.is_none() || candidate.is_none())
        .then(|| NoVerdict::Missing("a value is zero, so no ratio can be computed".to_owned()));
    Some(MetricQuestion {
        better: Direction::Lower,
        baseline: baseline.unwrap_or_default(),
        candidate: candidate.unwrap_or_default(),
        design: if is_paired {
            Design::Rounds
        } else {
            Design::Separate
        },
        noise: None,
        night_variance: None,
        no_verdict,
    })
}

/// The axes of a cell's launch.
fn launch_axes(cell: &Cell) -> AxisValues {
    let mut axes = cell.axes.clone();
    for axis in ["scenario", "rate", "concurrency"] {
        axes.remove(axis);
    }
    axes
}

fn largest_by_start(
    summaries: &[MeasurementSummary],
    launch: &LaunchId,
    value: fn(&MeasurementSummary) -> Option<f64>,
) -> BTreeMap<u32, f64> {
    let mut starts: BTreeMap<u32, f64> = BTreeMap::new();
    let done = summaries
        .iter()
        .filter(|summary| summary.launch == *launch && summary.status == MeasurementStatus::Done);
    for (start, value) in done.filter_map(|summary| Some((summary.start, value(summary)?))) {
        let largest = starts.entry(start).or_insert(value);
        *largest = largest.max(value);
    }
    starts
}

/// Seconds until the engine was ready; only the first measurement on a start has them.
fn ready_time(summary: &MeasurementSummary) -> Option<f64> {
    let mut phases = summary.phases.iter();
    phases
        .find(|phase| phase.phase == Phase::Launch.name())
        .map(|phase| phase.seconds)
}

fn gpu_memory(summary: &MeasurementSummary) -> Option<f64> {
    let Telemetry { gpus, .. } = summary.telemetry.as_ref()?;
    if gpus.is_empty() {
        return None;
    }
    let used = gpus.iter().map(|gpu| {
        let most = gpu.ranges.get(MEMORY_USED)?.max;
        Some((most - gpu.rest_memory_bytes.unwrap_or(0) as f64).max(0.0))
    });
    used.sum()
}

fn energy_by_start(summaries: &[MeasurementSummary], cell: &Cell) -> BTreeMap<u32, f64> {
    let counted: Vec<&MeasurementSummary> = summaries
        .iter()
        .filter(|summary| summary.cell == cell.key && is_counted(summary))
        .collect();
    let starts = from_run::values_by_start(&counted, Metric::EnergyPer(Quantity::Total)).into_iter();
    starts
        .filter(|(_, repeats)| !repeats.is_empty())
        .map(|(start, repeats)| (start, repeats.iter().sum::<f64>() / repeats.len() as f64))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The word for a resource of two sides with five starts each, which have about these values.
    fn verdict(resource: Resource, values: [f64; 2], forbidden: Option<&str>) -> Option<&'static str> {
        let starts = |value: f64| -> Sample {
            let starts: Vec<Vec<f64>> = (0..5)
                .map(|start| vec![value * (1.0 + f64::from(start) / 1000.0)])
                .collect();
            Sample::from_starts(&starts).unwrap()
        };
        let question = MetricQuestion {
            better: Direction::Lower,
            baseline: starts(values[0]),
            candidate: starts(values[1]),
            design: Design::Rounds,
            noise: None,
            night_variance: None,
            no_verdict: None,
        };
        let questions = ResourceQuestions {
            asked: vec![(resource, CellKey::new("engine=a".to_owned()), question)],
        };
        let rows = questions.judge(0.02, 1, forbidden);
        rows[0].answer.verdict().map(|verdict| verdict.name())
    }

    #[test]
    fn what_forbids_a_verdict_on_speed_forbids_one_on_resources() {
        let words = |forbidden| verdict(Resource::Energy, [1.0, 2.0], forbidden);
        assert_eq!(words(None), Some("worse"));
        assert_eq!(words(Some("environment CPU: A → B")), None);
    }

    #[test]
    fn a_small_difference_of_the_time_to_ready_is_none_however_large_its_share_is() {
        let words = |from: f64, to: f64| verdict(Resource::ReadyTime, [from, to], None);
        assert_eq!(words(0.136, 0.157), Some("same"));
        assert_eq!(words(1.36, 1.57), Some("worse"));
        assert_eq!(words(0.05, 0.12), Some("same"));
        assert_eq!(words(0.05, 0.25), Some("worse"));
        assert_eq!(words(0.157, 0.136), Some("same"));
        assert_eq!(words(20.0, 21.0), Some("same"));
        // Other resources have no such difference.
        assert_eq!(verdict(Resource::Energy, [0.136, 0.157], None), Some("worse"));
    }
}
