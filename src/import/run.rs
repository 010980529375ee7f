//! Makes a run of imported files: a plan whose launches cannot be started, and a summary for each set of
//! figures.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde_json::json;

use super::declared::DeclaredFacts;
use super::imported_file::ImportedFile;
use super::result_block::{EngineTitle, ResultBlock, Warning, WarningSubject};
use super::{names, twins};
use crate::analysis::metrics::{LatencyKind, Metric, Quantity, Statistic, TokenCount};
use crate::analysis::validity::code_entry;
use crate::base::ids::{CellKey, ContentHash, LaunchId};
use crate::base::units::RequestRate;
use crate::config::arrival::{Arrival, ArrivalProcess, Burstiness};
use crate::config::builtin_scenarios;
use crate::config::dataset::DatasetName;
use crate::config::scenario::{Limits, Scenario};
use crate::config::select::{AXES, AxisValues};
use crate::config::workload::{Profile, Workload};
use crate::plan::{
    Api, Cell, Engine, ExecutorSpec, ImportedLaunch as Told, Launch, Measurement, Parallel, Plan, Port,
    Protocol, Start,
};
use crate::results::record::cell::{self, Definitions, EngineFacts, Origin, Summary};
use crate::results::record::provenance::{Provenance, UnknownFact};
use crate::results::record::validity::{Reason, ReasonCode, Validity, Verdict};

/// An imported run.
#[derive(Clone, Debug)]
pub(crate) struct ImportedRun {
    pub plan: Plan,
    pub summaries: Vec<Summary>,
    /// Every warning once, with file and line, in the order of files.
    pub warnings: Vec<String>,
}

/// Which parts of the files are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImportContent {
    WithCommands,
    /// Figures, names and sizes only.
    FiguresOnly,
}

/// Makes a run of everything that was read.
pub(crate) fn build_run(name: &str, readings: &[ImportedFile], import_content: ImportContent) -> ImportedRun {
    let mut imports = ImportedRun {
        plan: Plan::empty(name),
        summaries: Vec::new(),
        warnings: Vec::new(),
    };
    for (reading, (file, merged_results)) in readings.iter().zip(twins::merge_files(readings)) {
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
        self.summaries.push(Summary {
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
            ..Summary::new(
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
        let marks = [
            result.cell.clone(),
            Some(file.to_owned()),
            Some(format!("{file}:{}", result.line)),
        ];
        for apart in marks {
            if let Some(apart) = apart {
                cell.launch = LaunchId::new(format!("{launch}-{}", names::to_slug(&apart)));
                cell.axes.insert("args".to_owned(), apart);
                cell.key = cell_key(&cell.axes);
                cell.content = content_of(&cell.launch, &cell.scenario);
            }
            let known = self.summaries.iter().find(|summary| summary.cell == cell.key);
            let is_repeat = |known: &Summary| {
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

fn launch(
    result: &ResultBlock,
    import_content: ImportContent,
    declared: &DeclaredFacts,
    unknown: &mut Vec<UnknownFact>,
) -> Launch {
    let (options, launch_info) = (&result.options, &result.launch_info);
    let title = engine_title(result, unknown);
    let model_name = options.model.clone().or_else(|| launch_info.model.clone());
    let model_name = model_name.or_else(|| Some(result.heading.as_ref()?.1.clone()));
    let checkpoint = model_name.unwrap_or_else(|| {
        unknown.push(UnknownFact::Model);
        "unknown model".to_owned()
    });
    // `FiguresOnly` keeps the last part of a local path only, since the rest is private.
    let public = |name: String| match import_content == ImportContent::FiguresOnly && names::is_path(&name) {
        true => names::file_name(&name),
        false => name,
    };
    let checkpoint = public(checkpoint);
    let served = options.served_model_name.clone().map(public);
    let (model, stored) = names::model_and_precision(&checkpoint);
    let parallel = Parallel {
        tp: launch_info.tp.unwrap_or(1),
        pp: launch_info.pp.unwrap_or(1),
        dp: launch_info.dp.unwrap_or(1),
        ep: launch_info.ep.unwrap_or(1),
    };
    // Engines differ in whether data-parallel ranks have their own GPUs.
    let devices = match (launch_info.tp, launch_info.dp) {
        (Some(tp), None | Some(1)) => tp * parallel.pp,
        _ => declared.gpus.unwrap_or(0),
    };
    unknown.extend(launch_info.tp.is_none().then_some(UnknownFact::Tp));
    unknown.extend((devices == 0).then_some(UnknownFact::Gpus));
    let name = names::to_slug(&title.name);
    let backend = options.backend.clone().unwrap_or_else(|| name.clone());
    let version = title
        .version
        .as_deref()
        .map(|version| version_of(version, launch_info.package.as_deref()));
    let engine = Engine {
        title: title.name,
        version,
        variant: result.variant.as_deref().map(names::to_slug),
        backend: backend.clone(),
        simulated: result.is_simulated,
        ..Engine::new(&name)
    };
    let place = Told {
        image: launch_info.image.clone(),
        package: launch_info.package.clone(),
        gpu: declared.gpu.clone(),
        command: match import_content {
            ImportContent::WithCommands => launch_info
                .command
                .iter()
                .map(|line| without_continuation(line))
                .collect(),
            ImportContent::FiguresOnly => Vec::new(),
        },
    };
    let mut launch = Launch {
        served_model_name: served.unwrap_or_else(|| checkpoint.clone()),
        tokenizer: options.tokenizer.clone().unwrap_or_else(|| checkpoint.clone()),
        checkpoint,
        precision: launch_info.precision.clone().or(stored),
        parallel,
        devices,
        ..Launch::new(
            engine,
            &model,
            ExecutorSpec::Imported(place),
            api(&backend, options.port),
        )
    };
    launch.id = launch_id(&launch);
    launch
}

/// The engine of a title above the result, or else the client's backend.
fn engine_title(result: &ResultBlock, unknown: &mut Vec<UnknownFact>) -> EngineTitle {
    let Some(title) = result.engine.clone() else {
        unknown.extend([UnknownFact::Engine, UnknownFact::Version]);
        let backend = result.options.backend.clone();
        return EngineTitle {
            name: backend.unwrap_or_else(|| "unknown".to_owned()),
            version: None,
        };
    };
    if title.version.is_none() {
        unknown.push(UnknownFact::Version);
    }
    title
}

/// A line of a command without the backslash that continues it.
fn without_continuation(line: &str) -> String {
    line.trim().trim_end_matches('\\').trim().to_owned()
}

/// The version as its package names it, if both are the same.
fn version_of(version: &str, package: Option<&str>) -> String {
    let pinned = package.and_then(|package| package.split_once("=="));
    match pinned {
        Some((_, pinned)) if names::without_v(pinned) == names::without_v(version) => pinned.to_owned(),
        _ => version.to_owned(),
    }
}

fn launch_id(launch: &Launch) -> LaunchId {
    let digest = ContentHash::from_value(&(
        &launch.engine,
        &launch.checkpoint,
        &launch.place,
        launch.parallel,
        launch.devices,
    ));
    // Usually, the served model name and the tokenizer are those of the checkpoint.
    let digest = match launch.served_model_name == launch.checkpoint && launch.tokenizer == launch.checkpoint
    {
        true => digest,
        false => ContentHash::from_value(&(digest, &launch.served_model_name, &launch.tokenizer)),
    };
    let model = launch.model.rsplit('/').next().unwrap_or(&launch.model);
    let version = launch
        .engine
        .version
        .as_deref()
        .map_or_else(String::new, |version| format!("-{}", names::to_slug(version)));
    let readable = format!(
        "{}{version}-{}-tp{}",
        launch.engine.name,
        names::to_slug(model),
        launch.parallel.tp
    );
    LaunchId::new(format!("{readable}-{}", &digest.as_str()[..6]))
}

/// The protocol and port of a backend.
fn api(backend: &str, port: Option<u16>) -> Api {
    let protocol = match backend {
        "sglang" | "sglang-native" => Protocol::SglangNative,
        "trt" | "gserver" => Protocol::Trt,
        "truss" => Protocol::Truss,
        name if name.ends_with("chat") => Protocol::Chat,
        name if name.ends_with("embedding") || name.ends_with("embeddings") => Protocol::Embeddings,
        _ => Protocol::Completions,
    };
    Api {
        port: Port {
            default: port.unwrap_or(0),
            fixed: port,
            flag: Vec::new(),
        },
        health: String::new(),
        ..Api::new(protocol)
    }
}

fn scenario(result: &ResultBlock, unknown: &mut Vec<UnknownFact>) -> Scenario {
    let import_args = &result.options;
    let named = import_args.dataset.as_deref().and_then(dataset_by_name);
    unknown.extend(named.is_none().then_some(UnknownFact::Dataset));
    let completed = result.figure(Metric::Completed).map(|completed| completed as u64);
    unknown.extend(import_args.prompts.is_none().then_some(UnknownFact::Prompts));
    let prompts = import_args.prompts.or(completed).unwrap_or(0);
    let name = named.unwrap_or(DatasetName::Custom);
    let is_trace = import_args.traffic.as_deref() == Some("trace") && name != DatasetName::Mooncake;
    let mut options = vec![
        ("prompt_suffix", json!(import_args.prompt_suffix)),
        ("tokenize_prompt", json!(import_args.tokenize_prompt)),
        ("apply_chat_template", json!(import_args.apply_chat_template)),
        ("trace_timestamps", json!(is_trace)),
    ];
    if import_args.is_random() || name == DatasetName::Image {
        options.extend([
            ("input_len", json!(import_args.input_len)),
            ("output_len", json!(import_args.output_len)),
            ("range_ratio", json!(import_args.range_ratio.unwrap_or(0.0))),
        ]);
        let is_told = import_args.input_len.is_some()
            && import_args.output_len.is_some()
            && import_args.range_ratio.is_some();
        unknown.extend((!is_told).then_some(UnknownFact::Lengths));
    } else {
        options.extend([
            ("output_len", json!(import_args.sharegpt_output_len)),
            ("context_len", json!(import_args.context_len)),
        ]);
    }
    let given = options.into_iter().filter(|(_, value)| !value.is_null());
    let given = given.map(|(key, value)| (key.to_owned(), value)).collect();
    let prompts = u32::try_from(prompts).unwrap_or(u32::MAX);
    let workload = Workload::given(name, given, prompts).expect("these options have their types");
    unknown
        .extend((import_args.rate.is_none() && import_args.traffic.is_none()).then_some(UnknownFact::Rate));
    unknown.extend(import_args.seed.is_none().then_some(UnknownFact::Seed));
    let spacing = match import_args.burstiness.and_then(Burstiness::new) {
        Some(burstiness) if burstiness.shape() != 1.0 => ArrivalProcess::Gamma { burstiness },
        _ => ArrivalProcess::Poisson,
    };
    Scenario {
        name: scenario_name(named, &workload),
        profile: result.profile,
        seed: import_args.seed.unwrap_or(match result.profile {
            Profile::Classic => 1,
            Profile::Current => 42,
        }),
        workload,
        arrival: Arrival {
            rate: import_args
                .rate
                .and_then(RequestRate::new)
                .unwrap_or(RequestRate::INFINITE),
            pace: None,
            spacing,
            concurrency: import_args.concurrency.and_then(NonZeroU32::new),
        },
        limits: Limits {
            warmup: import_args.warmup.unwrap_or(Limits::default().warmup),
            ..Limits::default()
        },
        slo: import_args.slo.clone(),
        search: None,
        body: import_args.body.clone(),
        stop_at_eos: import_args.stop_at_eos,
        keep_text: false,
        lora: None,
    }
}

/// The data set that bench_serving calls so.
fn dataset_by_name(name: &str) -> Option<DatasetName> {
    let name = serde_json::Value::String(name.replace('_', "-"));
    serde_json::from_value(name).ok()
}

/// Returns the name of the built-in scenario with these settings, for any number of prompts, or else a name
/// made of data set and lengths.
fn scenario_name(named: Option<DatasetName>, workload: &Workload) -> String {
    let Some(dataset) = named else {
        return "unknown workload".to_owned();
    };
    let facts = workload.facts();
    let drawn = facts.drawn;
    let is_standard = |name: &&&str| {
        builtin_scenarios::by_name(name).is_some_and(|entry| {
            entry.dataset == Some(dataset)
                && entry.input_len == facts.input_len()
                && entry.output_len == facts.output_len
                && entry.range_ratio.map(|ratio| ratio.value) == drawn.map(|drawn| drawn.range_ratio)
        })
    };
    if let Some(name) = builtin_scenarios::NAMES.iter().find(is_standard) {
        return (*name).to_owned();
    }
    let mut name = dataset.bench_serving_name().to_owned();
    let lengths = [facts.input_len(), facts.output_len];
    for length in lengths.into_iter().flatten() {
        name.push_str(&format!("-{length}"));
    }
    if let Some(drawn) = drawn.filter(|drawn| drawn.input_len.is_some() && drawn.range_ratio != 1.0) {
        name.push_str(&format!("-ratio-{}", drawn.range_ratio));
    }
    name
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
    // Different numbers of prompts give different cells of one scenario.
    let prompts = scenario.workload.prompts;
    let is_usual = builtin_scenarios::by_name(&scenario.name)
        .and_then(|entry| entry.prompts)
        .is_some_and(|usual| usual.value == prompts);
    let scenario_text = match is_usual {
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

/// The figures under the profile of the file, and those with the same meaning under `matrix`.
fn figures(
    result: &ResultBlock,
    launch: &Launch,
    unknown: &[UnknownFact],
) -> BTreeMap<Definitions, cell::MetricValues> {
    let own: cell::MetricValues = result
        .figures
        .iter()
        .map(|(metric, printed)| (metric.name(), printed.value))
        .collect();
    let definitions = match result.profile {
        Profile::Classic => Definitions::Classic,
        Profile::Current => Definitions::Current,
    };
    // Figures measured by `matrix` use counted tokens; those under bench_serving's keys use requested tokens.
    let matrix = result.matrix_figures.clone();
    BTreeMap::from([
        (definitions, own),
        (
            Definitions::Matrix,
            matrix.unwrap_or_else(|| matrix_figures(result, launch, unknown)),
        ),
    ])
}

/// Figures that `matrix` defines as the other tools do, under the names of `matrix`. E2E and ITL are not
/// among them: other tools end E2E with the last line, and their ITL may be a chunk gap.
fn matrix_figures(result: &ResultBlock, launch: &Launch, unknown: &[UnknownFact]) -> cell::MetricValues {
    let mut figures = cell::MetricValues::new();
    let mut put = |metric: Metric, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            figures.insert(metric.name(), Some(value));
        }
    };
    let figure = |metric| result.figure(metric);
    for metric in [
        Metric::Duration,
        Metric::Completed,
        Metric::Tokens(TokenCount::Input),
        Metric::Tokens(TokenCount::InputVision),
        Metric::Tokens(TokenCount::Output),
        Metric::Tokens(TokenCount::OutputCounted),
        Metric::Throughput(Quantity::Requests),
        Metric::Throughput(Quantity::Input),
        Metric::Throughput(Quantity::Output),
        Metric::AcceptLength,
    ] {
        put(metric, figure(metric));
    }
    let flow = |flow| figure(Metric::Throughput(flow));
    let total = flow(Quantity::Total).or_else(|| Some(flow(Quantity::Input)? + flow(Quantity::Output)?));
    put(Metric::Throughput(Quantity::Total), total);
    let requested_tokens = result.options.output_tokens.map(|(_, tokens)| tokens as f64);
    put(Metric::Tokens(TokenCount::OutputRequested), requested_tokens);
    if let Some(failed) = failed_requests(result) {
        let completed = figure(Metric::Completed).unwrap_or(0.0);
        put(Metric::Failed, Some(failed));
        put(Metric::Due, Some(completed + failed));
        put(Metric::ErrorShare, Some(failed / (completed + failed)));
    }
    if !unknown.contains(&UnknownFact::Gpus) && launch.devices > 0 {
        for each in Quantity::ALL {
            let total_rate = match each {
                Quantity::Total => total,
                other => flow(other),
            };
            put(
                Metric::PerDevice(each),
                total_rate.map(|total_rate| total_rate / f64::from(launch.devices)),
            );
        }
    }
    let is_divided = result.profile == Profile::Current
        && launch.api.dialect.protocol == Protocol::SglangNative
        || figure(Metric::AcceptLength).is_some();
    for statistic in Statistic::ALL {
        let value_of = |sample| figure(Metric::Time(statistic, sample));
        put(
            Metric::Time(statistic, LatencyKind::Ttft),
            value_of(LatencyKind::Ttft),
        );
        put(
            Metric::Time(statistic, LatencyKind::E2eLine),
            value_of(LatencyKind::E2e),
        );
        let gap = value_of(LatencyKind::Itl).filter(|_| !is_divided);
        put(Metric::Time(statistic, LatencyKind::ChunkGap), gap);
    }
    figures
}

/// The number of failed requests, if known. Fewer successes than prompts may also mean that the data set gave
/// fewer prompts.
fn failed_requests(result: &ResultBlock) -> Option<f64> {
    if let Some(failed) = result.figure(Metric::Failed) {
        return Some(failed);
    }
    let completed = result.figure(Metric::Completed)?;
    let prompts = result.options.prompts.map(|prompts| prompts as f64);
    let all_sent =
        |(_, tokens): (u32, u64)| result.figure(Metric::Tokens(TokenCount::Input)) == Some(tokens as f64);
    if prompts == Some(completed) || result.options.input_tokens.is_some_and(all_sent) {
        return Some(0.0);
    }
    prompts
        .filter(|prompts| result.options.is_random() && *prompts >= completed)
        .map(|prompts| prompts - completed)
}

/// The validity of imported figures: a note that they are imported, suspect for contradictions, and the
/// reasons that `matrix` found when it measured.
fn validity(result: &ResultBlock, file: &str, warnings: &[&Warning]) -> Validity {
    let warnings_about = |about: WarningSubject| {
        let texts: Vec<String> = warnings
            .iter()
            .filter(|warning| warning.subject == about)
            .map(|warning| warning.with_location(file))
            .collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    };
    let reason = |code, weight, measured: String, advice: &str| Reason {
        code,
        weight,
        only: code_entry(code).families.to_vec(),
        measured,
        bound: None,
        advice: advice.to_owned(),
    };
    let mut reasons = result.reasons.clone();
    let share = failed_requests(result).map(|failed| {
        let completed = result.figure(Metric::Completed).unwrap_or(0.0);
        (failed, failed / (completed + failed))
    });
    if let Some((failed, share)) = share.filter(|(_, share)| *share > Limits::default().error_share) {
        let measured = format!("{failed} requests failed, {:.1} % of all", share * 100.0);
        reasons.push(reason(
            ReasonCode::Errors,
            Verdict::Invalid,
            measured,
            code_entry(ReasonCode::Errors).fix,
        ));
    }
    if let Some(what) = warnings_about(WarningSubject::Figures) {
        let advice = "the published figures contradict each other; ask the authors, or measure again";
        reasons.push(reason(ReasonCode::Imported, Verdict::Suspect, what, advice));
    }
    if let Some(what) = warnings_about(WarningSubject::Identity) {
        let advice = "the file contradicts itself about model, version or workload; the client's arguments \
            were used";
        reasons.push(reason(ReasonCode::Imported, Verdict::Suspect, what, advice));
    }
    if let Some(what) = warnings_about(WarningSubject::Declared) {
        let advice = "the value in the file was used; correct the declaration, or remove it";
        reasons.push(reason(ReasonCode::Imported, Verdict::Suspect, what, advice));
    }
    if let Some(what) = warnings_about(WarningSubject::Chunks) {
        let advice = "compare throughput, TTFT and E2E; do not compare ITL with that of an engine that sends each \
             token separately";
        reasons.push(reason(ReasonCode::ChunkedTokens, Verdict::Suspect, what, advice));
    }
    reasons.push(reason(
        ReasonCode::Imported,
        Verdict::Valid,
        "imported from the output of another tool".to_owned(),
        "facts that the tool did not write are unknown: the client's own error, the machine, whether caches \
         were empty",
    ));
    Validity::from_reasons(reasons)
}
