//! The scenario of an imported result, made of the client's options.

use std::num::NonZeroU32;

use serde_json::json;

use crate::analysis::metrics::Metric;
use crate::base::units::RequestRate;
use crate::config::arrival::{Arrival, ArrivalProcess, Burstiness};
use crate::config::builtin_scenarios;
use crate::config::dataset::DatasetName;
use crate::config::scenario::{LoadLimits, Scenario};
use crate::config::workload::{Profile, Workload};
use crate::import::result_block::ResultBlock;
use crate::results::record::provenance::UnknownFact;

pub(super) fn scenario(result: &ResultBlock, unknown: &mut Vec<UnknownFact>) -> Scenario {
    let import_args = &result.options;
    let named = import_args.dataset.as_deref().and_then(dataset_by_name);
    let is_known = named.is_some() || result.workload.is_some();
    unknown.extend((!is_known).then_some(UnknownFact::Dataset));
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
        _ if import_args.evenly_spaced => ArrivalProcess::Constant,
        _ => ArrivalProcess::Poisson,
    };
    Scenario {
        name: result
            .workload
            .clone()
            .unwrap_or_else(|| scenario_name(named, &workload)),
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
        limits: LoadLimits {
            warmup: import_args.warmup.unwrap_or(LoadLimits::default().warmup),
            ..LoadLimits::default()
        },
        slo: import_args.slo.clone(),
        further_tiers: Vec::new(),
        search: None,
        body: import_args.body.clone(),
        stop_at_eos: import_args.stop_at_eos,
        keep_text: false,
        lora: None,
        pacing: Default::default(),
        connections: Default::default(),
        cancel: None,
        check_answers: false,
        quality: None,
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
