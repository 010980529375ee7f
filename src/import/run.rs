//! Makes a run of imported files: a plan whose launches cannot be started, and a summary for each set of
//! figures.

mod figures;
mod launch;
mod scenario;
mod validity;

use std::collections::{BTreeMap, BTreeSet};

use figures::figures;
pub(crate) use launch::ImportContent;
use launch::{gpu, launch};
use scenario::scenario;
use validity::validity;

use super::declared::DeclaredFacts;
use super::imported_file::ImportedFile;
use super::result_block::{ResultBlock, Warning, WarningSubject};
use super::{names, twins};
use crate::base::ids::{CellKey, ContentHash, LaunchId};
use crate::config::builtin_scenarios;
use crate::config::scenario::Scenario;
use crate::config::select::{AXES, AxisValues};
use crate::plan::{Cell, ExecutorSpec, Launch, Measurement, Plan, Start};
use crate::results::record::cell::{EngineFacts, MeasurementSummary, Origin};
use crate::results::record::provenance::{Provenance, UnknownFact};

#[derive(Clone, Debug)]
pub(crate) struct ImportedRun {
    pub(crate) plan: Plan,
    pub(crate) summaries: Vec<MeasurementSummary>,
    /// Every warning once, with file and line, in the order of files.
    pub(crate) warnings: Vec<String>,
}

/// Makes a run of everything that was read.
pub(crate) fn build_run(name: &str, readings: &[ImportedFile], import_content: ImportContent) -> ImportedRun {
    let mut imports = ImportedRun {
        plan: Plan::empty(name),
        summaries: Vec::new(),
        warnings: Vec::new(),
    };
    let mut merged_files = twins::merge_files(readings);
    name_gpus(readings, &mut merged_files);
    for (reading, (file, merged_results)) in readings.iter().zip(merged_files) {
        for (at, result) in merged_results.iter().enumerate() {
            // Warnings about a whole file go to its first cell.
            let whole = if at == 0 { &reading.warnings[..] } else { &[] };
            let warnings: Vec<&Warning> = whole.iter().chain(&result.warnings).collect();
            imports.add_result(file, result, &warnings, (import_content, &reading.declared));
        }
    }
    imports.plan.reference = imports
        .plan
        .launches
        .first()
        .map(|launch| launch.engine.name.clone());
    imports
}

/// Adds the kind of GPU to the variant of each result that names it, if the results were measured on several
/// kinds, because reports name rows by variant and not by kind of GPU.
fn name_gpus(readings: &[ImportedFile], merged_files: &mut [(&str, Vec<ResultBlock>)]) {
    let kinds: BTreeSet<String> = readings
        .iter()
        .zip(merged_files.iter())
        .flat_map(|(reading, (_, results))| {
            results
                .iter()
                .filter_map(|result| Some(names::to_slug(&gpu(result, &reading.declared)?)))
        })
        .collect();
    if kinds.len() < 2 {
        return;
    }
    for (reading, (_, results)) in readings.iter().zip(merged_files) {
        for result in results {
            if let Some(kind) = gpu(result, &reading.declared) {
                result.append_to_variant(&kind);
            }
        }
    }
}

impl ImportedRun {
    fn add_result(
        &mut self,
        file: &str,
        result: &ResultBlock,
        warnings: &[&Warning],
        (import_content, declared): (ImportContent, &DeclaredFacts),
    ) {
        let mut unknown = Vec::new();
        let scenario = scenario(result, &mut unknown);
        let mut launch = launch(result, import_content, declared, &mut unknown);
        let axes = axes(&launch, &scenario, &unknown);
        let cell = self.distinct_cell(file, result, &launch.id, axes, scenario);
        launch.id = cell.launch.clone();
        let measurement = self.next_measurement(&cell, result.start.unwrap_or(1));
        let lines: Vec<String> = warnings
            .iter()
            .map(|warning| warning.with_location(file))
            .collect();
        for line in &lines {
            if !self.warnings.contains(line) {
                self.warnings.push(line.clone());
            }
        }
        self.summaries.push(MeasurementSummary {
            start: measurement.start,
            repeat: measurement.repeat,
            engine: EngineFacts {
                command: command(&launch),
                ..EngineFacts::default()
            },
            prompts: result
                .options
                .prompts
                .and_then(|prompts| u32::try_from(prompts).ok()),
            figures: figures(result, &launch, &unknown),
            imported: Some(Provenance {
                tool: result.tool,
                tool_version: result.tool_version.clone(),
                workload: result.workload.clone(),
                file: file.to_owned(),
                line: result.line,
                unknown,
                vision_line: result.has_vision_line,
                client: client_settings(result),
            }),
            validity: Some(validity(result, file, warnings)),
            // The other warnings are reasons of its validity.
            warnings: warnings
                .iter()
                .filter(|warning| warning.subject == WarningSubject::Nothing)
                .map(|warning| warning.with_location(file))
                .collect(),
            ..MeasurementSummary::new(
                cell.key.clone(),
                cell.content.clone(),
                cell.launch.clone(),
                Origin::Imported,
            )
        });
        if self.plan.cells.iter().all(|known| known.key != cell.key) {
            self.plan.cells.push(cell);
        }
        if self.plan.launches.iter().all(|known| known.id != launch.id) {
            self.plan.launches.push(launch);
        }
    }

    /// The cell of a result. In one file, the same cell is a repeat. In another file, day or engine may differ,
    /// so it becomes a cell of its own.
    fn distinct_cell(
        &self,
        file: &str,
        result: &ResultBlock,
        launch: &LaunchId,
        axes: AxisValues,
        scenario: Scenario,
    ) -> Cell {
        let client = client_settings(result);
        let content_of = |launch: &LaunchId, scenario: &Scenario| match client.is_empty() {
            true => ContentHash::from_value(&(launch, scenario)),
            false => ContentHash::from_value(&(launch, scenario, &client)),
        };
        let mut cell = Cell {
            key: cell_key(&axes),
            axes,
            content: content_of(launch, &scenario),
            launch: launch.clone(),
            scenario,
            why: None,
        };
        // `matrix` wrote the arguments of a cell into its own files. The name of a file is no argument.
        let variant = cell.axes.get("variant").cloned();
        let with_variant = |place: String| match &variant {
            Some(variant) => format!("{variant} file {place}"),
            None => format!("file {place}"),
        };
        let marks = [
            result.cell.clone().map(|args| ("args", args.clone(), args)),
            Some(("variant", with_variant(file.to_owned()), file.to_owned())),
            Some({
                let place = format!("{file}:{}", result.line);
                ("variant", with_variant(place.clone()), place)
            }),
        ];
        let mut base = launch.to_string();
        for mark in marks {
            if let Some((axis, value, suffix)) = mark {
                cell.launch = LaunchId::new(format!("{base}-{}", names::to_slug(&suffix)));
                if axis == "args" {
                    base = cell.launch.to_string();
                }
                cell.axes.insert(axis.to_owned(), value);
                cell.key = cell_key(&cell.axes);
                cell.content = content_of(&cell.launch, &cell.scenario);
            }
            let known = self.summaries.iter().find(|summary| summary.cell == cell.key);
            let is_repeat = |known: &MeasurementSummary| {
                let place = known.imported.as_ref();
                known.content == cell.content && place.is_some_and(|place| place.file == file)
            };
            if known.is_none_or(is_repeat) {
                break;
            }
        }
        cell
    }

    /// Adds a set of figures to the plan; it is a repeat if its cell exists already.
    fn next_measurement(&mut self, cell: &Cell, number: u32) -> Measurement {
        let start = match self
            .plan
            .starts
            .iter()
            .position(|start| start.launch == cell.launch && start.start == number)
        {
            Some(at) => &mut self.plan.starts[at],
            None => {
                self.plan.starts.push(Start {
                    launch: cell.launch.clone(),
                    start: number,
                    cells: Vec::new(),
                    confirms: false,
                });
                self.plan.starts.last_mut().expect("one was put there")
            }
        };
        let before = start.cells.iter().filter(|other| other.cell == cell.key).count();
        let measurement = Measurement {
            cell: cell.key.clone(),
            start: number,
            repeat: u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1),
        };
        start.cells.push(measurement.clone());
        measurement
    }
}

/// Client settings that change the load and have no field in the plan.
fn client_settings(result: &ResultBlock) -> BTreeMap<String, String> {
    let options = &result.options;
    [
        ("caches emptied before the load", options.flush_cache),
        ("profile of the server", options.profile),
    ]
    .into_iter()
    .filter(|(_, is_set)| *is_set)
    .map(|(name, _)| (name.to_owned(), "on".to_owned()))
    .collect()
}

fn command(launch: &Launch) -> Option<String> {
    match &launch.place {
        ExecutorSpec::Imported(provenance) if !provenance.command.is_empty() => {
            Some(crate::plan::command::command_line(launch).to_line())
        }
        _ => None,
    }
}

fn axes(launch: &Launch, scenario: &Scenario, unknown: &[UnknownFact]) -> AxisValues {
    let knows = |what| !unknown.contains(&what);
    let mut axes = AxisValues::new();
    let mut say = |axis: &str, value: Option<String>| {
        if let Some(value) = value {
            axes.insert(axis.to_owned(), value);
        }
    };
    let parallel = launch.parallel;
    let beyond_one = |size: u32| (size > 1).then(|| size.to_string());
    say("engine", Some(launch.engine.name.clone()));
    say("version", launch.engine.version.clone());
    say("variant", launch.engine.variant.clone());
    say("model", Some(launch.model.clone()));
    say("precision", launch.precision.clone());
    say("tp", knows(UnknownFact::Tp).then(|| parallel.tp.to_string()));
    say("pp", beyond_one(parallel.pp));
    say("dp", beyond_one(parallel.dp));
    say("ep", beyond_one(parallel.ep));
    // An unusual number of prompts becomes part of the scenario's name, so that measurements with different
    // numbers are different cells.
    let prompts = scenario.workload.prompts;
    let is_usual = builtin_scenarios::by_name(&scenario.name)
        .and_then(|entry| entry.prompts)
        .is_some_and(|usual| usual.value == prompts);
    let scenario_text = match is_usual || prompts == 0 {
        true => scenario.name.clone(),
        false => format!("{} × {prompts}", scenario.name),
    };
    say("scenario", Some(scenario_text));
    let rate = scenario.arrival.rate;
    say("rate", (!rate.is_infinite()).then(|| rate.to_string()));
    let limit = scenario.arrival.concurrency;
    say("concurrency", limit.map(|limit| limit.to_string()));
    axes
}

fn cell_key(axes: &AxisValues) -> CellKey {
    let parts: Vec<String> = AXES
        .iter()
        .filter_map(|axis| axes.get(*axis).map(|value| format!("{axis}={value}")))
        .collect();
    CellKey::new(parts.join(","))
}
