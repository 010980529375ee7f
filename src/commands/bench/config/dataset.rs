//! What is sent: the data set, its rows, and the adapters they ask for.

use crate::cli::bench::{
    BenchArgs, DatasetName, GroupDistribution, LoraDistribution, PictureArgs, SharedPrefixArgs,
    SpeedBenchArgs, TraceArgs,
};
use crate::config::dataset_options::{AgenticTrace, Mooncake, Popularity, SharedPrefix};
use crate::config::images::{Pictures, SpeedBench};
use crate::config::lora::{Dealt, Lora};
use crate::config::workload::{Dataset, Profile, Workload};
use crate::plan::Protocol;

/// How unevenly `skewed` deals where nobody says so.
const SKEW: f64 = 1.5;

/// The data set of that name.
const fn dataset(name: DatasetName) -> Dataset {
    match name {
        DatasetName::Sharegpt => Dataset::Sharegpt,
        DatasetName::Random => Dataset::Random,
        DatasetName::RandomIds => Dataset::RandomIds,
        DatasetName::GeneratedSharedPrefix => Dataset::GeneratedSharedPrefix,
        DatasetName::Custom => Dataset::Custom,
        DatasetName::Openai => Dataset::Openai,
        DatasetName::AgenticTrace => Dataset::AgenticTrace,
        DatasetName::Mooncake => Dataset::Mooncake,
        DatasetName::Image => Dataset::Image,
        DatasetName::Mmmu => Dataset::Mmmu,
        DatasetName::LongbenchV2 => Dataset::LongbenchV2,
        DatasetName::SpeedBench => Dataset::SpeedBench,
    }
}

/// The workload, if all that is said about it can be.
pub(super) fn workload(args: &BenchArgs, profile: Profile) -> Result<Workload, Vec<String>> {
    let options = &args.dataset;
    let dataset = dataset(options.dataset_name);
    let mut mistakes = strangers(args, dataset);
    mistakes.extend(unfit_backend(args, dataset));
    let is_random = matches!(dataset, Dataset::Random | Dataset::RandomIds);
    let is_drawn = is_random || dataset == Dataset::Image;
    let is_paired = matches!(dataset, Dataset::Sharegpt | Dataset::Custom);
    let is_limited = is_paired || dataset == Dataset::LongbenchV2;
    let length = |given: Option<u32>| given.or_else(|| usual_length(profile));
    let mut workload = Workload {
        path: Some(options.dataset_path.clone()).filter(|path| !path.is_empty()),
        prompts: options.num_prompts,
        input_len: length(options.random_input_len).filter(|_| is_drawn),
        output_len: match dataset {
            Dataset::Random | Dataset::RandomIds | Dataset::Image | Dataset::Mmmu => {
                length(options.random_output_len)
            }
            Dataset::GeneratedSharedPrefix => args.shared_prefix.gsp_output_len,
            Dataset::SpeedBench => args.speed_bench.speed_bench_output_len,
            Dataset::Mooncake => None,
            _ => options.sharegpt_output_len,
        },
        range_ratio: if is_drawn { options.random_range_ratio } else { 0.0 },
        context_len: options
            .sharegpt_context_len
            .filter(|tokens| *tokens > 0 && is_limited),
        prompt_suffix: Some(options.prompt_suffix.clone()).filter(|suffix| !suffix.is_empty() && is_paired),
        tokenize_prompt: options.tokenize_prompt,
        // The Python tool applies it to these whatever is said.
        apply_chat_template: options.apply_chat_template
            && !matches!(dataset, Dataset::Image | Dataset::Mmmu),
        trace_timestamps: args.trace.use_trace_timestamps && dataset != Dataset::Mooncake,
        ..Workload::of(dataset)
    };
    match dataset {
        Dataset::GeneratedSharedPrefix => match shared_prefix(&args.shared_prefix) {
            Ok(prefix) => {
                workload.prompts = prefix.prompts();
                workload.shared_prefix = Some(prefix);
            }
            Err(why) => mistakes.push(why),
        },
        Dataset::AgenticTrace => {
            workload.agentic_trace = Some(AgenticTrace {
                offset: args.trace.dataset_offset.unwrap_or(0),
                max_turns: args.trace.agentic_max_turns,
            });
        }
        Dataset::Mooncake => workload.mooncake = Some(mooncake(&args.trace)),
        Dataset::Image => workload.pictures = Some(pictures(&args.pictures)),
        Dataset::SpeedBench => {
            workload.speed_bench = Some(SpeedBench {
                category: args.speed_bench.speed_bench_category,
            });
        }
        _ => {}
    }
    let objections = workload.objections(profile);
    mistakes.extend(
        objections
            .into_iter()
            .map(|objection| match flag(objection.field, dataset) {
                Some(flag) => format!("`--{flag}`: {}", objection.says),
                None => objection.says,
            }),
    );
    match mistakes.is_empty() {
        true => Ok(workload),
        false => Err(mistakes),
    }
}

/// What the Python tool calls a field of the workload.
fn flag(field: &str, dataset: Dataset) -> Option<&'static str> {
    let is_random = matches!(
        dataset,
        Dataset::Random | Dataset::RandomIds | Dataset::Image | Dataset::Mmmu
    );
    Some(match field {
        "prompts" if dataset == Dataset::GeneratedSharedPrefix => "gsp-num-groups",
        "prompts" => "num-prompts",
        "input_len" => "random-input-len",
        "output_len" if is_random => "random-output-len",
        "output_len" if dataset == Dataset::SpeedBench => "speed-bench-output-len",
        "output_len" => "sharegpt-output-len",
        "range_ratio" => "random-range-ratio",
        "context_len" => "sharegpt-context-len",
        "prompt_suffix" => "prompt-suffix",
        "tokenize_prompt" => "tokenize-prompt",
        "apply_chat_template" => "apply-chat-template",
        "dataset" => "dataset-name",
        "shared_prefix" => "gsp-*",
        "agentic_trace" => "agentic-max-turns",
        "mooncake" => "mooncake-*",
        "pictures" => "image-count",
        "speed_bench" => "speed-bench-category",
        _ => return None,
    })
}

/// Source: docs/bench-serving.md 10 and 12.4.
pub(super) const fn usual_length(profile: Profile) -> Option<u32> {
    match profile {
        Profile::Classic => None,
        Profile::Current => Some(1024),
    }
}

/// Flags of data sets that are not sent.
fn strangers(args: &BenchArgs, dataset: Dataset) -> Vec<String> {
    let mut found = Vec::new();
    let name = dataset.bench_serving_name();
    let mut no = |is_given: bool, flags: &str, owner: Dataset| {
        if is_given && dataset != owner {
            let owner = owner.bench_serving_name();
            found.push(format!(
                "{flags} belong to the data set `{owner}` and have no effect on `{name}`; leave them out"
            ));
        }
    };
    let trace = &args.trace;
    no(
        args.shared_prefix != SharedPrefixArgs::default(),
        "the flags `--gsp-…`",
        Dataset::GeneratedSharedPrefix,
    );
    no(
        trace.dataset_offset.is_some() || trace.agentic_max_turns.is_some(),
        "`--dataset-offset` and `--agentic-max-turns`",
        Dataset::AgenticTrace,
    );
    let is_of_mooncake = trace.mooncake_slowdown_factor.is_some()
        || trace.mooncake_num_rounds.is_some()
        || trace.mooncake_workload.is_some();
    no(is_of_mooncake, "the flags `--mooncake-…`", Dataset::Mooncake);
    no(
        args.pictures != PictureArgs::default(),
        "the flags `--image-…` and `--random-image-count`",
        Dataset::Image,
    );
    no(
        args.speed_bench != SpeedBenchArgs::default(),
        "the flags `--speed-bench-…`",
        Dataset::SpeedBench,
    );
    let has_moments = [
        Dataset::Mooncake,
        Dataset::Custom,
        Dataset::Openai,
        Dataset::AgenticTrace,
    ];
    if trace.use_trace_timestamps && !has_moments.contains(&dataset) {
        found.push(format!(
            "`--use-trace-timestamps` has no effect on `{name}`, whose rows have no moments; leave it out"
        ));
    }
    found
}

/// What the backend cannot carry of a data set, told before anything is asked of a server.
fn unfit_backend(args: &BenchArgs, dataset: Dataset) -> Vec<String> {
    let mut found = Vec::new();
    let (backend, protocol) = (args.server.backend.name(), args.server.backend.protocol());
    let name = dataset.bench_serving_name();
    let is_chat = protocol == Protocol::Chat;
    let has_turns = args.shared_prefix.gsp_num_turns.is_some_and(|turns| turns > 1);
    if matches!(dataset, Dataset::Openai | Dataset::AgenticTrace) && !is_chat {
        found.push(format!(
            "the data set `{name}` consists of chat messages, which the backend `{backend}` does not take; use a chat \
             backend, such as `sglang-oai-chat` or `vllm-chat`"
        ));
    }
    if dataset == Dataset::GeneratedSharedPrefix && has_turns && !is_chat {
        found.push(format!(
            "`--gsp-num-turns` above 1 makes conversations, which the backend `{backend}` does not hold; use a chat \
             backend, such as `sglang-oai-chat` or `vllm-chat`"
        ));
    }
    let takes_text = matches!(protocol, Protocol::SglangNative | Protocol::Completions);
    if dataset == Dataset::Mooncake && !takes_text {
        found.push(format!(
                "the data set `mooncake` consists of prompts that a chat template was applied to, which the backend `{backend}` \
                 does not take as they are; use `sglang`, or a backend of completions"
        ));
    }
    if args.is_replayed() && args.course.request_rate.iter().any(|rate| !rate.is_infinite()) {
        let instead = match dataset {
            Dataset::Mooncake => "use `--mooncake-slowdown-factor`",
            _ => "leave it or `--use-trace-timestamps` out",
        };
        found.push(format!(
            "`--request-rate` has no effect on `{name}`, whose rows have moments of their own; {instead}"
        ));
    }
    let has_pictures = matches!(dataset, Dataset::Image | Dataset::Mmmu);
    if has_pictures && !(is_chat || protocol == Protocol::SglangNative) {
        found.push(format!(
            "the data set `{name}` has pictures, which the backend `{backend}` does not take; use `sglang`, or a chat backend \
             such as `sglang-oai-chat` or `vllm-chat`"
        ));
    }
    if args.shared_prefix.gsp_send_routing_key && matches!(protocol, Protocol::Trt | Protocol::Truss) {
        found.push(format!(
            "`--gsp-send-routing-key` has no effect with the backend `{backend}`; leave it out"
        ));
    }
    found
}

/// The pictures that are asked for.
pub(super) fn pictures(args: &PictureArgs) -> Pictures {
    let usual = Pictures::default();
    Pictures {
        count: args.image_count.unwrap_or(usual.count),
        is_count_drawn: args.random_image_count,
        resolution: args.image_resolution.unwrap_or(usual.resolution),
        format: args.image_format.unwrap_or(usual.format),
        content: args.image_content.unwrap_or(usual.content),
    }
}

fn shared_prefix(args: &SharedPrefixArgs) -> Result<SharedPrefix, String> {
    let usual = SharedPrefix::default();
    let popularity = match (args.gsp_group_distribution, args.gsp_zipf_alpha) {
        (Some(GroupDistribution::Zipf), Some(alpha)) => Popularity::Zipf { alpha },
        (Some(GroupDistribution::Zipf), None) => {
            return Err(
                "`--gsp-group-distribution zipf` needs `--gsp-zipf-alpha`; give a number above 0".to_owned(),
            );
        }
        (_, Some(_)) => {
            return Err(
                "`--gsp-zipf-alpha` has no effect on uniform groups; add `--gsp-group-distribution zipf`, or leave it out"
                    .to_owned(),
            );
        }
        (_, None) => Popularity::Uniform,
    };
    Ok(SharedPrefix {
        groups: args.gsp_num_groups.unwrap_or(usual.groups),
        prompts_per_group: args.gsp_prompts_per_group.unwrap_or(usual.prompts_per_group),
        system_len: args.gsp_system_prompt_len.unwrap_or(usual.system_len),
        question_len: args.gsp_question_len.unwrap_or(usual.question_len),
        range_ratio: args.gsp_range_ratio.unwrap_or(usual.range_ratio),
        turns: args.gsp_num_turns.unwrap_or(usual.turns),
        popularity,
        ordered: args.gsp_ordered,
        uncounted: args.gsp_fast_prepare,
        routing_key: args.gsp_send_routing_key,
    })
}

fn mooncake(args: &TraceArgs) -> Mooncake {
    let usual = Mooncake::default();
    Mooncake {
        trace: args.mooncake_workload.unwrap_or(usual.trace),
        slowdown: args.mooncake_slowdown_factor.unwrap_or(usual.slowdown),
        rounds: args.mooncake_num_rounds.unwrap_or(usual.rounds),
    }
}

/// The adapters that requests ask for, if any.
pub(super) fn lora(args: &BenchArgs) -> Result<Option<Lora>, Vec<String>> {
    let options = &args.sampling;
    let alpha = options.lora_zipf_alpha.unwrap_or(SKEW);
    // As in Python, even where nothing is skewed.
    if !(alpha.is_finite() && alpha > 1.0) {
        return Err(vec![format!(
            "`--lora-zipf-alpha` is {alpha}; write a number above 1"
        )]);
    }
    let Some(names) = &options.lora_name else {
        return match options.lora_request_distribution {
            None | Some(LoraDistribution::Uniform) => Ok(None),
            Some(_) => Err(vec![
                "`--lora-request-distribution` has no effect without `--lora-name`; name adapters".to_owned(),
            ]),
        };
    };
    if matches!(args.server.backend.protocol(), Protocol::Trt | Protocol::Truss) {
        let backend = args.server.backend.name();
        return Err(vec![format!(
            "`--lora-name` has no effect with the backend `{backend}`; leave it out"
        )]);
    }
    let lora = Lora {
        names: names.clone(),
        dealt: match options.lora_request_distribution {
            None | Some(LoraDistribution::Uniform) => Dealt::Uniform,
            Some(LoraDistribution::Distinct) => Dealt::Distinct,
            Some(LoraDistribution::Skewed) => Dealt::Skewed { alpha },
        },
    };
    match lora.objection() {
        Some(why) => Err(vec![format!("`--lora-name`: {why}")]),
        None => Ok(Some(lora)),
    }
}
