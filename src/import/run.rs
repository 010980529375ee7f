//! Makes a run of imported files: a plan whose launches cannot be started, and a summary for each set of
//! figures.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde_json::json;

use super::{About, Declared, Found, Reading, Title, Warning, names, twins};
use crate::analysis::metrics::{Count, Flow, Metric, Sample, Statistic};
use crate::analysis::validity::entry;
use crate::base::ids::{CellKey, ContentHash, LaunchId};
use crate::base::units::RequestRate;
use crate::config::arrival::{Arrival, Burstiness, Spacing};
use crate::config::builtin_scenarios;
use crate::config::dataset::DatasetName;
use crate::config::scenario::{Limits, Scenario};
use crate::config::select::{AXES, AxisValues};
use crate::config::workload::{Profile, Workload};
use crate::plan::{
    Cell, Contact, Engine, Imported as Told, Launch, Measurement, Parallel, Place, Plan, Port, Protocol,
    Start,
};
use crate::results::record::cell::{self, Definitions, EngineFacts, Origin, Summary};
use crate::results::record::provenance::{Imported, Unknown};
use crate::results::record::validity::{Code, Reason, Validity, Verdict};

/// An imported run.
#[derive(Clone, Debug)]
pub(crate) struct Imports {
    pub plan: Plan,
    pub summaries: Vec<Summary>,
    /// Every warning once, with file and line, in the order of files.
    pub warnings: Vec<String>,
}

/// How much of the files is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Commands,
    /// Figures, names and sizes only.
    FiguresAlone,
}

/// Makes a run of everything that was read.
pub(crate) fn run(name: &str, readings: &[Reading], keep: Keep) -> Imports {
    let mut imports = Imports {
        plan: Plan::empty(name),
        summaries: Vec::new(),
        warnings: Vec::new(),
    };
    for (reading, (file, all)) in readings.iter().zip(twins::merged(readings)) {
        for (at, found) in all.iter().enumerate() {
            // Warnings about a whole file go to its first cell.
            let whole = if at == 0 { &reading.warnings[..] } else { &[] };
            let warnings: Vec<&Warning> = whole.iter().chain(&found.warnings).collect();
            imports.add(file, found, &warnings, (keep, &reading.declared));
        }
    }
    imports.plan.reference = imports
        .plan
        .launches
        .first()
        .map(|launch| launch.engine.name.clone());
    imports
}

impl Imports {
    fn add(&mut self, file: &str, found: &Found, warnings: &[&Warning], (keep, declared): (Keep, &Declared)) {
        let mut unknown = Vec::new();
        let scenario = scenario(found, &mut unknown);
        let mut launch = launch(found, keep, declared, &mut unknown);
        let mut axes = axes(&launch, &scenario, &unknown);
        let mut key = key(&axes);
        // In one file, the same cell is a repeat. In another file, day or engine may differ, so it becomes a
        // cell of its own.
        let plain = launch.id.clone();
        let marks = [
            found.cell.clone(),
            Some(file.to_owned()),
            Some(format!("{file}:{}", found.line)),
        ];
        let client = client(found);
        let content_of = |launch: &LaunchId| match client.is_empty() {
            true => ContentHash::of(&(launch, &scenario)),
            false => ContentHash::of(&(launch, &scenario, &client)),
        };
        let mut content = content_of(&launch.id);
        for apart in marks {
            if let Some(apart) = apart {
                launch.id = LaunchId::new(format!("{plain}-{}", names::slug(&apart)));
                axes.insert("args".to_owned(), apart);
                key = self::key(&axes);
                content = content_of(&launch.id);
            }
            let known = self.summaries.iter().find(|summary| summary.cell == key);
            let is_repeat = |known: &Summary| {
                let place = known.imported.as_ref();
                known.content == content && place.is_some_and(|place| place.file == file)
            };
            if known.is_none_or(is_repeat) {
                break;
            }
        }
        let measurement = self.measurement(&launch, &key, found.start.unwrap_or(1));
        let lines: Vec<String> = warnings.iter().map(|warning| warning.at(file)).collect();
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
            prompts: found
                .asked
                .prompts
                .and_then(|prompts| u32::try_from(prompts).ok()),
            figures: figures(found, &launch, &unknown),
            imported: Some(Imported {
                tool: found.tool,
                file: file.to_owned(),
                line: found.line,
                unknown,
                vision_line: found.vision_line,
                client,
            }),
            validity: Some(validity(found, file, warnings)),
            // The other warnings are reasons of its validity.
            warnings: warnings
                .iter()
                .filter(|warning| warning.about == About::Rest)
                .map(|warning| warning.at(file))
                .collect(),
            ..Summary::new(key.clone(), content.clone(), launch.id.clone(), Origin::Imported)
        });
        let is_new = self.plan.cells.iter().all(|cell| cell.key != key);
        if is_new {
            self.plan.cells.push(Cell {
                key,
                axes,
                content,
                launch: launch.id.clone(),
                scenario,
                why: None,
            });
        }
        if self.plan.launches.iter().all(|known| known.id != launch.id) {
            self.plan.launches.push(launch);
        }
    }

    /// Adds a set of figures to the plan; it is a repeat if its cell exists already.
    fn measurement(&mut self, launch: &Launch, key: &CellKey, number: u32) -> Measurement {
        let start = match self
            .plan
            .starts
            .iter()
            .position(|start| start.launch == launch.id && start.start == number)
        {
            Some(at) => &mut self.plan.starts[at],
            None => {
                self.plan.starts.push(Start {
                    launch: launch.id.clone(),
                    start: number,
                    cells: Vec::new(),
                    confirms: false,
                });
                self.plan.starts.last_mut().expect("one was put there")
            }
        };
        let before = start.cells.iter().filter(|other| other.cell == *key).count();
        let measurement = Measurement {
            cell: key.clone(),
            start: number,
            repeat: u32::try_from(before).unwrap_or(u32::MAX).saturating_add(1),
        };
        start.cells.push(measurement.clone());
        measurement
    }
}

/// Client settings that change the load and have no field in the plan.
fn client(found: &Found) -> BTreeMap<String, String> {
    let asked = &found.asked;
    [
        ("caches emptied before the load", asked.flush_cache),
        ("profile of the server", asked.profile),
    ]
    .into_iter()
    .filter(|(_, is_set)| *is_set)
    .map(|(name, _)| (name.to_owned(), "on".to_owned()))
    .collect()
}

fn command(launch: &Launch) -> Option<String> {
    match &launch.place {
        Place::Imported(told) if !told.command.is_empty() => {
            Some(crate::plan::command::line(launch).joined())
        }
        _ => None,
    }
}

fn launch(found: &Found, keep: Keep, declared: &Declared, unknown: &mut Vec<Unknown>) -> Launch {
    let (asked, started) = (&found.asked, &found.started);
    let backend = asked.backend.clone();
    let title = found.engine.clone().unwrap_or_else(|| {
        unknown.extend([Unknown::Engine, Unknown::Version]);
        Title {
            name: backend.clone().unwrap_or_else(|| "unknown".to_owned()),
            version: None,
        }
    });
    if found.engine.is_some() && title.version.is_none() {
        unknown.push(Unknown::Version);
    }
    let told = asked.model.clone().or_else(|| started.model.clone());
    let told = told.or_else(|| Some(found.heading.as_ref()?.1.clone()));
    let checkpoint = told.unwrap_or_else(|| {
        unknown.push(Unknown::Model);
        "unknown model".to_owned()
    });
    // `FiguresAlone` keeps the last part of a local path only, since the rest is private.
    let checkpoint = match keep == Keep::FiguresAlone && names::is_path(&checkpoint) {
        true => names::file_name(&checkpoint),
        false => checkpoint,
    };
    let served =
        asked.served.as_ref().map(
            |served| match keep == Keep::FiguresAlone && names::is_path(served) {
                true => names::file_name(served),
                false => served.clone(),
            },
        );
    let (model, stored) = names::model(&checkpoint);
    let parallel = Parallel {
        tp: started.tp.unwrap_or(1),
        pp: started.pp.unwrap_or(1),
        dp: started.dp.unwrap_or(1),
        ep: started.ep.unwrap_or(1),
    };
    // Engines differ in whether data-parallel ranks have their own GPUs.
    let devices = match (started.tp, started.dp) {
        (Some(tp), None | Some(1)) => tp * parallel.pp,
        _ => declared.gpus.unwrap_or(0),
    };
    unknown.extend(started.tp.is_none().then_some(Unknown::Tp));
    unknown.extend((devices == 0).then_some(Unknown::Gpus));
    let name = names::slug(&title.name);
    let backend = backend.unwrap_or_else(|| name.clone());
    let version = title
        .version
        .as_deref()
        .map(|version| version_of(version, started.package.as_deref()));
    let engine = Engine {
        title: title.name,
        version,
        variant: found.variant.as_deref().map(names::slug),
        backend: backend.clone(),
        simulated: found.is_simulated,
        ..Engine::new(&name)
    };
    let place = Told {
        image: started.image.clone(),
        package: started.package.clone(),
        gpu: declared.gpu.clone(),
        command: match keep {
            Keep::Commands => started.command.iter().map(|line| joint(line)).collect(),
            Keep::FiguresAlone => Vec::new(),
        },
    };
    let mut launch = Launch {
        served: served.unwrap_or_else(|| checkpoint.clone()),
        tokenizer: asked.tokenizer.clone().unwrap_or_else(|| checkpoint.clone()),
        checkpoint,
        precision: started.precision.clone().or(stored),
        parallel,
        devices,
        ..Launch::new(
            engine,
            &model,
            Place::Imported(place),
            contact(&backend, asked.port),
        )
    };
    launch.id = id(&launch);
    launch
}

/// A line of a command without the backslash that continues it.
fn joint(line: &str) -> String {
    line.trim().trim_end_matches('\\').trim().to_owned()
}

/// The version as its package names it, if both are the same.
fn version_of(version: &str, package: Option<&str>) -> String {
    let pinned = package.and_then(|package| package.split_once("=="));
    match pinned {
        Some((_, pinned)) if names::bare(pinned) == names::bare(version) => pinned.to_owned(),
        _ => version.to_owned(),
    }
}

fn id(launch: &Launch) -> LaunchId {
    let digest = ContentHash::of(&(
        &launch.engine,
        &launch.checkpoint,
        &launch.place,
        launch.parallel,
        launch.devices,
    ));
    // Usually, the served model name and the tokenizer are those of the checkpoint.
    let digest = match launch.served == launch.checkpoint && launch.tokenizer == launch.checkpoint {
        true => digest,
        false => ContentHash::of(&(digest, &launch.served, &launch.tokenizer)),
    };
    let model = launch.model.rsplit('/').next().unwrap_or(&launch.model);
    let version = launch
        .engine
        .version
        .as_deref()
        .map_or_else(String::new, |version| format!("-{}", names::slug(version)));
    let readable = format!(
        "{}{version}-{}-tp{}",
        launch.engine.name,
        names::slug(model),
        launch.parallel.tp
    );
    LaunchId::new(format!("{readable}-{}", &digest.as_str()[..6]))
}

/// The protocol and port of a backend.
fn contact(backend: &str, port: Option<u16>) -> Contact {
    let protocol = match backend {
        "sglang" | "sglang-native" => Protocol::SglangNative,
        "trt" | "gserver" => Protocol::Trt,
        "truss" => Protocol::Truss,
        name if name.ends_with("chat") => Protocol::Chat,
        name if name.ends_with("embedding") || name.ends_with("embeddings") => Protocol::Embeddings,
        _ => Protocol::Completions,
    };
    Contact {
        port: Port {
            default: port.unwrap_or(0),
            fixed: port,
            flag: Vec::new(),
        },
        health: String::new(),
        ..Contact::new(protocol)
    }
}

fn scenario(found: &Found, unknown: &mut Vec<Unknown>) -> Scenario {
    let asked = &found.asked;
    let named = asked.dataset.as_deref().and_then(dataset);
    unknown.extend(named.is_none().then_some(Unknown::Dataset));
    let completed = found.figure(Metric::Completed).map(|completed| completed as u64);
    unknown.extend(asked.prompts.is_none().then_some(Unknown::Prompts));
    let prompts = asked.prompts.or(completed).unwrap_or(0);
    let name = named.unwrap_or(DatasetName::Custom);
    let is_trace = asked.traffic.as_deref() == Some("trace") && name != DatasetName::Mooncake;
    let mut options = vec![
        ("prompt_suffix", json!(asked.prompt_suffix)),
        ("tokenize_prompt", json!(asked.tokenize_prompt)),
        ("apply_chat_template", json!(asked.apply_chat_template)),
        ("trace_timestamps", json!(is_trace)),
    ];
    if asked.is_random() || name == DatasetName::Image {
        options.extend([
            ("input_len", json!(asked.input_len)),
            ("output_len", json!(asked.output_len)),
            ("range_ratio", json!(asked.range_ratio.unwrap_or(0.0))),
        ]);
        let is_told = asked.input_len.is_some() && asked.output_len.is_some() && asked.range_ratio.is_some();
        unknown.extend((!is_told).then_some(Unknown::Lengths));
    } else {
        options.extend([
            ("output_len", json!(asked.sharegpt_output_len)),
            ("context_len", json!(asked.context_len)),
        ]);
    }
    let given = options.into_iter().filter(|(_, value)| !value.is_null());
    let given = given.map(|(key, value)| (key.to_owned(), value)).collect();
    let prompts = u32::try_from(prompts).unwrap_or(u32::MAX);
    let workload = Workload::given(name, given, prompts).expect("these options have their types");
    unknown.extend((asked.rate.is_none() && asked.traffic.is_none()).then_some(Unknown::Rate));
    unknown.extend(asked.seed.is_none().then_some(Unknown::Seed));
    let spacing = match asked.burstiness.and_then(Burstiness::new) {
        Some(burstiness) if burstiness.shape() != 1.0 => Spacing::Gamma { burstiness },
        _ => Spacing::Poisson,
    };
    Scenario {
        name: scenario_name(named, &workload),
        profile: found.profile,
        seed: asked.seed.unwrap_or(match found.profile {
            Profile::Classic => 1,
            Profile::Current => 42,
        }),
        workload,
        arrival: Arrival {
            rate: asked
                .rate
                .and_then(RequestRate::new)
                .unwrap_or(RequestRate::INFINITE),
            pace: None,
            spacing,
            concurrency: asked.concurrency.and_then(NonZeroU32::new),
        },
        limits: Limits {
            warmup: asked.warmup.unwrap_or(Limits::default().warmup),
            ..Limits::default()
        },
        slo: asked.slo.clone(),
        search: None,
        body: asked.body.clone(),
        stop_at_eos: asked.stop_at_eos,
        keep_text: false,
        lora: None,
    }
}

/// The data set that bench_serving calls so.
fn dataset(name: &str) -> Option<DatasetName> {
    let name = serde_json::Value::String(name.replace('_', "-"));
    serde_json::from_value(name).ok()
}

/// The name of the standard workload that it is, whatever the number of prompts, or one that says what it is.
fn scenario_name(named: Option<DatasetName>, workload: &Workload) -> String {
    let Some(dataset) = named else {
        return "unknown workload".to_owned();
    };
    let facts = workload.facts();
    let drawn = facts.drawn;
    let is_standard = |name: &&&str| {
        builtin_scenarios::named(name).is_some_and(|entry| {
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

fn axes(launch: &Launch, scenario: &Scenario, unknown: &[Unknown]) -> AxisValues {
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
    say("tp", knows(Unknown::Tp).then(|| parallel.tp.to_string()));
    say("pp", beyond_one(parallel.pp));
    say("dp", beyond_one(parallel.dp));
    say("ep", beyond_one(parallel.ep));
    // Different numbers of prompts give different cells of one scenario.
    let prompts = scenario.workload.prompts;
    let is_usual = builtin_scenarios::named(&scenario.name)
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

fn key(axes: &AxisValues) -> CellKey {
    let parts: Vec<String> = AXES
        .iter()
        .filter_map(|axis| axes.get(*axis).map(|value| format!("{axis}={value}")))
        .collect();
    CellKey::new(parts.join(","))
}

/// The figures under the profile of the file, and those with the same meaning under `matrix`.
fn figures(found: &Found, launch: &Launch, unknown: &[Unknown]) -> BTreeMap<Definitions, cell::Figures> {
    let own: cell::Figures = found
        .figures
        .iter()
        .map(|(metric, printed)| (metric.name(), printed.value))
        .collect();
    let definitions = match found.profile {
        Profile::Classic => Definitions::Classic,
        Profile::Current => Definitions::Current,
    };
    // Figures measured by `matrix` use counted tokens; those under bench_serving's keys use requested tokens.
    let matrix = found.measured.clone();
    BTreeMap::from([
        (definitions, own),
        (
            Definitions::Matrix,
            matrix.unwrap_or_else(|| shared(found, launch, unknown)),
        ),
    ])
}

/// Figures that `matrix` defines as the other tools do, under the names of `matrix`. E2E and ITL are not
/// among them: other tools end E2E with the last line, and their ITL may be a chunk gap.
fn shared(found: &Found, launch: &Launch, unknown: &[Unknown]) -> cell::Figures {
    let mut figures = cell::Figures::new();
    let mut put = |metric: Metric, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            figures.insert(metric.name(), Some(value));
        }
    };
    let figure = |metric| found.figure(metric);
    for metric in [
        Metric::Duration,
        Metric::Completed,
        Metric::Tokens(Count::Input),
        Metric::Tokens(Count::InputVision),
        Metric::Tokens(Count::Output),
        Metric::Tokens(Count::OutputCounted),
        Metric::Throughput(Flow::Requests),
        Metric::Throughput(Flow::Input),
        Metric::Throughput(Flow::Output),
        Metric::AcceptLength,
    ] {
        put(metric, figure(metric));
    }
    let flow = |flow| figure(Metric::Throughput(flow));
    let total = flow(Flow::Total).or_else(|| Some(flow(Flow::Input)? + flow(Flow::Output)?));
    put(Metric::Throughput(Flow::Total), total);
    let asked = found.asked.output_tokens.map(|(_, tokens)| tokens as f64);
    put(Metric::Tokens(Count::OutputAsked), asked);
    if let Some(failed) = failed(found) {
        let completed = figure(Metric::Completed).unwrap_or(0.0);
        put(Metric::Failed, Some(failed));
        put(Metric::Due, Some(completed + failed));
        put(Metric::ErrorShare, Some(failed / (completed + failed)));
    }
    if !unknown.contains(&Unknown::Gpus) && launch.devices > 0 {
        for each in Flow::ALL {
            let all = match each {
                Flow::Total => total,
                other => flow(other),
            };
            put(
                Metric::PerDevice(each),
                all.map(|all| all / f64::from(launch.devices)),
            );
        }
    }
    let is_divided = found.profile == Profile::Current
        && launch.contact.dialect.protocol == Protocol::SglangNative
        || figure(Metric::AcceptLength).is_some();
    for statistic in Statistic::ALL {
        let of = |sample| figure(Metric::Time(statistic, sample));
        put(Metric::Time(statistic, Sample::Ttft), of(Sample::Ttft));
        put(Metric::Time(statistic, Sample::E2eLine), of(Sample::E2e));
        let gap = of(Sample::Itl).filter(|_| !is_divided);
        put(Metric::Time(statistic, Sample::ChunkGap), gap);
    }
    figures
}

/// The number of failed requests, if known. Fewer successes than prompts may also mean that the data set gave
/// fewer prompts.
fn failed(found: &Found) -> Option<f64> {
    if let Some(failed) = found.figure(Metric::Failed) {
        return Some(failed);
    }
    let completed = found.figure(Metric::Completed)?;
    let prompts = found.asked.prompts.map(|prompts| prompts as f64);
    let all_sent =
        |(_, tokens): (u32, u64)| found.figure(Metric::Tokens(Count::Input)) == Some(tokens as f64);
    if prompts == Some(completed) || found.asked.input_tokens.is_some_and(all_sent) {
        return Some(0.0);
    }
    prompts
        .filter(|prompts| found.asked.is_random() && *prompts >= completed)
        .map(|prompts| prompts - completed)
}

/// The validity of imported figures: a note that they are imported, suspect for contradictions, and the
/// reasons that `matrix` found when it measured.
fn validity(found: &Found, file: &str, warnings: &[&Warning]) -> Validity {
    let said = |about: About| {
        let texts: Vec<String> = warnings
            .iter()
            .filter(|warning| warning.about == about)
            .map(|warning| warning.at(file))
            .collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    };
    let reason = |code, weight, measured: String, advice: &str| Reason {
        code,
        weight,
        only: entry(code).only.to_vec(),
        measured,
        bound: None,
        advice: advice.to_owned(),
    };
    let mut reasons = found.reasons.clone();
    let share = failed(found).map(|failed| {
        let completed = found.figure(Metric::Completed).unwrap_or(0.0);
        (failed, failed / (completed + failed))
    });
    if let Some((failed, share)) = share.filter(|(_, share)| *share > Limits::default().error_share) {
        let measured = format!("{failed} requests failed, {:.1} % of all", share * 100.0);
        reasons.push(reason(
            Code::Errors,
            Verdict::Invalid,
            measured,
            entry(Code::Errors).mend,
        ));
    }
    if let Some(what) = said(About::Figures) {
        let advice =
            "the figures contradict each other as they were published; ask who measured, or measure again";
        reasons.push(reason(Code::Imported, Verdict::Suspect, what, advice));
    }
    if let Some(what) = said(About::Identity) {
        let advice = "what was published names two things for one; the client's arguments were believed";
        reasons.push(reason(Code::Imported, Verdict::Suspect, what, advice));
    }
    if let Some(what) = said(About::Declared) {
        let advice = "the file was believed; declare what it tells, or leave that away";
        reasons.push(reason(Code::Imported, Verdict::Suspect, what, advice));
    }
    if let Some(what) = said(About::Chunks) {
        let advice =
            "compare throughput, TTFT and E2E; not ITL with that of an engine that sends each token apart";
        reasons.push(reason(Code::ChunkedTokens, Verdict::Suspect, what, advice));
    }
    reasons.push(reason(
        Code::Imported,
        Verdict::Valid,
        "read from what another tool wrote".to_owned(),
        "what that tool did not write is unknown: the client's own error, the machine, whether caches were empty",
    ));
    Validity::of(reasons)
}
