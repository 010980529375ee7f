//! The workload of a bench: the data set, its rows, and the LoRA adapters of requests.

use serde_json::{Map, Value, json};

use crate::cli::bench::{
    AudioArgs, BenchArgs, GroupDistributionArg, ImageArgs, LengthArgs, LoraDistribution, RerankArgs,
    SessionArgs, SharedPrefixArgs, SpeedBenchArgs, StructuredArgs, TraceArgs,
};
use crate::config::api::{Feature, ServerTemplate};
use crate::config::dataset::agentic_sessions;
use crate::config::dataset::agentic_trace::Conversations;
use crate::config::dataset::common_prefix::CommonPrefix;
use crate::config::dataset::generated_shared_prefix::{GroupDistribution, SharedPrefix};
use crate::config::dataset::image::Pictures;
use crate::config::dataset::length_distribution::{Lengths, PairOrder};
use crate::config::dataset::mooncake::Replay;
use crate::config::dataset::random_audio::Recordings;
use crate::config::dataset::random_rerank::Documents;
use crate::config::dataset::speed_bench::Rows;
use crate::config::dataset::structured::{Demands, UnsupportedDemand};
use crate::config::dataset::{Dataset, DatasetName, PromptForm};
use crate::config::lora::{AdapterDistribution, Lora};
use crate::config::pacing::Pacing;
use crate::config::workload::{CHECKABLE_ANSWERS, Profile, Workload};
use crate::plan::Protocol;

/// Exponent of the distribution `skewed` by default.
const DEFAULT_SKEW: f64 = 1.5;

/// Returns the workload, or all errors in its flags.
pub(super) fn workload(args: &BenchArgs, profile: Profile) -> Result<Workload, Vec<String>> {
    let options = &args.dataset;
    let name = options.dataset_name;
    let mut errors = foreign_flags(args, name);
    errors.extend(ineffective_lengths(args));
    let own = own_options(args, name).map_err(|why| errors.push(why)).ok();
    let given = given(args, profile, name).chain(own.flatten()).collect();
    let mut workload = match Workload::given(name, given, options.num_prompts) {
        Ok(workload) => workload,
        Err(error) => {
            errors.push(format!("the data set `{}`: {error}", name.bench_serving_name()));
            return Err(errors);
        }
    };
    workload.path = Some(options.dataset_path.clone()).filter(|path| !path.is_empty());
    if let Dataset::GeneratedSharedPrefix(shared) = &workload.dataset {
        workload.prompts = shared.prefix().prompts();
    }
    errors.extend(unsupported_by_backend(args, &workload.dataset));
    errors.extend(pacing_errors(args, &workload));
    let workload_errors = workload.find_errors(profile).into_iter();
    errors.extend(workload_errors.map(|error| {
        let flag = rerank_length_flag(args, &error.field, name);
        match flag.or_else(|| python_flag(&error.field, name)) {
            Some(flag) => format!("`--{flag}`: {}", error.message),
            None => error.message,
        }
    }));
    match errors.is_empty() {
        true => Ok(workload),
        false => Err(errors),
    }
}

/// Returns the options that several data sets share. Like the Python tool, it ignores lengths, limits and
/// suffixes that a data set does not read.
fn given(args: &BenchArgs, profile: Profile, name: DatasetName) -> impl Iterator<Item = (String, Value)> {
    let options = &args.dataset;
    let dataset = name.default_dataset();
    let facts = dataset.facts();
    let drawn = facts.drawn;
    let length = |given: Option<u32>| given.or_else(|| drawn.and_then(|_| default_length(profile)));
    let output_len = match facts.output_flag {
        Some("random-output-len") => length(options.random_output_len),
        Some("gsp-output-len") => args.shared_prefix.gsp_output_len,
        Some("audio-output-len") => args.audio.audio_output_len,
        Some("speed-bench-output-len") => args.speed_bench.speed_bench_output_len,
        _ => options.sharegpt_output_len,
    };
    let context_len = options.sharegpt_context_len.filter(|tokens| *tokens > 0);
    let suffix = Some(&options.prompt_suffix).filter(|suffix| !suffix.is_empty());
    // The Python tool always applies the chat template to prompts with images.
    let is_templated = options.apply_chat_template && facts.prompts != PromptForm::Pictures;
    let passed_over = [
        ("input_len", length(options.random_input_len).map(Value::from)),
        ("output_len", output_len.map(Value::from)),
        ("range_ratio", Some(options.random_range_ratio.into())),
        ("context_len", context_len.map(Value::from)),
        ("prompt_suffix", suffix.map(|suffix| suffix.as_str().into())),
        (
            "trace_timestamps",
            args.trace.use_trace_timestamps.then(|| true.into()),
        ),
    ];
    let refused = [
        ("tokenize_prompt", options.tokenize_prompt.then(|| true.into())),
        ("apply_chat_template", is_templated.then(|| true.into())),
        ("lengths", lengths(&args.lengths).map(|lengths| json!(lengths))),
        (
            "common_prefix",
            common_prefix(&args.lengths).map(|prefix| json!(prefix)),
        ),
    ];
    let read = passed_over.into_iter().filter(move |(key, _)| name.reads(key));
    let all = read.chain(refused);
    all.filter_map(|(key, value)| Some((key.to_owned(), value?)))
}

/// Returns the distributions of lengths, or the file with pairs, if one is given.
fn lengths(args: &LengthArgs) -> Option<Lengths> {
    let lengths = Lengths {
        input: args.lengths_input,
        output: args.lengths_output,
        file: args.lengths_file.clone(),
        order: args.lengths_in_order.then_some(PairOrder::InOrder),
    };
    (lengths != Lengths::default()).then_some(lengths)
}

/// Returns the tokens that prompts have in common, if they have any.
fn common_prefix(args: &LengthArgs) -> Option<CommonPrefix> {
    Some(CommonPrefix {
        share: args.prefix_share?,
        groups: args.prefix_groups,
        block_tokens: args.prefix_block_tokens,
    })
}

/// Returns errors for flags of lengths and common tokens that have no effect.
fn ineffective_lengths(args: &BenchArgs) -> Vec<String> {
    let flags = &args.lengths;
    let sets_both = lengths(flags).is_some_and(|lengths| lengths.sets_both());
    let has_groups = flags.prefix_groups.is_some() || flags.prefix_block_tokens.is_some();
    let conflicts = [
        (
            sets_both && args.dataset.random_range_ratio != 0.0,
            "`--random-range-ratio` has no effect, because the input and output lengths come from distributions or a file; leave it out",
        ),
        (
            has_groups && flags.prefix_share.is_none(),
            "`--prefix-groups` and `--prefix-block-tokens` have no effect without `--prefix-share`; give the share of common tokens",
        ),
    ];
    let conflicts = conflicts.into_iter().filter(|(is_wrong, _)| *is_wrong);
    conflicts.map(|(_, why)| why.to_owned()).collect()
}

/// Returns the option that only this data set has.
fn own_options(args: &BenchArgs, name: DatasetName) -> Result<Option<(String, Value)>, String> {
    let (key, value) = match name {
        DatasetName::GeneratedSharedPrefix => ("shared_prefix", json!(shared_prefix(&args.shared_prefix)?)),
        DatasetName::AgenticTrace => {
            let trace = Conversations {
                offset: args.trace.dataset_offset.unwrap_or(0),
                max_turns: args.trace.agentic_max_turns,
            };
            ("agentic_trace", json!(trace))
        }
        DatasetName::AgenticSessions => ("agentic_sessions", json!(sessions(&args.sessions))),
        DatasetName::Mooncake => ("mooncake", json!(mooncake(&args.trace))),
        DatasetName::RandomRerank => ("rerank", json!(rerank(&args.rerank))),
        DatasetName::RandomAudio => ("audio", json!(recordings(&args.audio))),
        DatasetName::Structured => ("structured", json!(structured(&args.structured))),
        DatasetName::Image => ("pictures", json!(image_options(&args.pictures))),
        DatasetName::SpeedBench => {
            let category = args.speed_bench.speed_bench_category;
            ("speed_bench", json!(Rows { category }))
        }
        _ => return Ok(None),
    };
    Ok(Some((key.to_owned(), value)))
}

/// Why the backend cannot carry the requests of `structured`, and the fix.
const fn unsupported_demand(demand: UnsupportedDemand) -> [&'static str; 2] {
    match demand {
        UnsupportedDemand::Tools => [
            "`--structured-tools-share` needs a backend that can offer tools",
            "use a backend such as `vllm-chat`, `sglang-oai-chat`, `vllm-messages` or `vllm-responses`, or leave the flag out",
        ],
        UnsupportedDemand::Schemas => [
            "the data set `structured` needs a backend that can send a JSON schema for answers",
            "use a backend such as `vllm`, `vllm-chat`, `sglang-oai-chat` or `vllm-responses`; with a Messages backend such as \
             `vllm-messages`, add `--structured-tools-share 1`",
        ],
    }
}

/// Returns the flag for the lengths of `random-rerank`: the first one that was given.
fn rerank_length_flag(args: &BenchArgs, field: &str, dataset: DatasetName) -> Option<&'static str> {
    let given = [
        (args.rerank.rerank_documents.is_some(), "rerank-documents"),
        (args.rerank.rerank_document_len.is_some(), "rerank-document-len"),
        (args.rerank.rerank_query_len.is_some(), "rerank-query-len"),
    ];
    let given = given.into_iter().find(|(is_given, _)| *is_given);
    (dataset == DatasetName::RandomRerank && field == "input_len")
        .then(|| given.map_or("num-prompts", |(_, flag)| flag))
}

/// Returns the Python tool's flag for a field of the workload.
fn python_flag(field: &str, dataset: DatasetName) -> Option<&'static str> {
    Some(match field {
        "prompts" if dataset == DatasetName::GeneratedSharedPrefix => "gsp-num-groups",
        "prompts" => "num-prompts",
        "input_len" => "random-input-len",
        "output_len" => {
            let own = dataset.default_dataset().facts().output_flag;
            own.unwrap_or("sharegpt-output-len")
        }
        "range_ratio" => "random-range-ratio",
        "context_len" => "sharegpt-context-len",
        "prompt_suffix" => "prompt-suffix",
        "tokenize_prompt" => "tokenize-prompt",
        "apply_chat_template" => "apply-chat-template",
        "dataset" => "dataset-name",
        "lengths" => "lengths-*",
        "common_prefix" => "prefix-share",
        "shared_prefix" => "gsp-*",
        "rerank" => "rerank-*",
        "structured" => "structured-*",
        "agentic_trace" => "agentic-max-turns",
        "agentic_sessions" => "session-*",
        "mooncake" => "mooncake-*",
        "audio" => "audio-*",
        "pictures" => "image-count",
        "speed_bench" => "speed-bench-category",
        _ => return None,
    })
}

/// Source: docs/bench-serving.md 10 and 12.4.
pub(super) const fn default_length(profile: Profile) -> Option<u32> {
    match profile {
        Profile::Classic => None,
        Profile::Current => Some(1024),
    }
}

/// Returns errors for flags of other data sets.
fn foreign_flags(args: &BenchArgs, dataset: DatasetName) -> Vec<String> {
    let mut errors = Vec::new();
    let name = dataset.bench_serving_name();
    let mut no = |is_given: bool, flags: &str, owner: DatasetName| {
        if is_given && dataset != owner {
            let owner = owner.bench_serving_name();
            errors.push(format!(
                "{flags} belong to the data set `{owner}` and have no effect on `{name}`; leave them out"
            ));
        }
    };
    let trace = &args.trace;
    no(
        args.shared_prefix != SharedPrefixArgs::default(),
        "the flags `--gsp-…`",
        DatasetName::GeneratedSharedPrefix,
    );
    no(
        trace.dataset_offset.is_some() || trace.agentic_max_turns.is_some(),
        "`--dataset-offset` and `--agentic-max-turns`",
        DatasetName::AgenticTrace,
    );
    no(
        args.sessions != SessionArgs::default(),
        "the flags `--session-…`",
        DatasetName::AgenticSessions,
    );
    let is_of_mooncake = trace.mooncake_slowdown_factor.is_some()
        || trace.mooncake_num_rounds.is_some()
        || trace.mooncake_workload.is_some();
    no(is_of_mooncake, "the flags `--mooncake-…`", DatasetName::Mooncake);
    no(
        args.pictures != ImageArgs::default(),
        "the flags `--image-…` and `--random-image-count`",
        DatasetName::Image,
    );
    no(
        args.rerank != RerankArgs::default(),
        "the flags `--rerank-…`",
        DatasetName::RandomRerank,
    );
    let draws_recordings = AudioArgs {
        audio_output_len: None,
        ..args.audio.clone()
    } != AudioArgs::default();
    no(
        draws_recordings,
        "the flags `--audio-seconds`, `--audio-range-ratio`, `--audio-sample-rate` and `--audio-content`",
        DatasetName::RandomAudio,
    );
    no(
        args.structured != StructuredArgs::default(),
        "the flags `--structured-…`",
        DatasetName::Structured,
    );
    no(
        args.speed_bench != SpeedBenchArgs::default(),
        "the flags `--speed-bench-…`",
        DatasetName::SpeedBench,
    );
    let is_drawn = matches!(dataset, DatasetName::Structured | DatasetName::RandomAudio);
    if is_drawn && !args.dataset.dataset_path.is_empty() {
        errors.push(format!(
            "`--dataset-path` has no effect on `{name}`, which reads no file; leave it out"
        ));
    }
    let has_recordings = dataset.default_dataset().facts().prompts == PromptForm::Audio;
    if args.audio.audio_output_len.is_some() && !has_recordings {
        errors.push(format!(
            "`--audio-output-len` belongs to the data sets `audio` and `random-audio` and has no effect on `{name}`; leave it out"
        ));
    }
    let has_moments = dataset == DatasetName::Mooncake || dataset.reads("trace_timestamps");
    if trace.use_trace_timestamps && !has_moments {
        errors.push(format!(
            "`--use-trace-timestamps` has no effect on `{name}`, whose rows have no timestamps; leave it out"
        ));
    }
    errors
}

/// Returns the pacing of sessions and conversations.
pub(super) const fn pacing(args: &BenchArgs) -> Pacing {
    Pacing {
        sessions: args.execution.max_sessions,
        think_time: args.execution.think_time,
        max_idle: args.execution.max_idle,
    }
}

fn pacing_errors(args: &BenchArgs, workload: &Workload) -> impl Iterator<Item = String> {
    let flag = |key: &str| match key {
        "sessions" => "max-sessions",
        "think_time" => "think-time",
        _ => "max-idle",
    };
    let errors = pacing(args).find_errors(workload).into_iter();
    errors.map(move |(key, why)| format!("`--{}`: {why}", flag(key)))
}

/// Returns errors if the backend cannot send the data set's prompts.
fn unsupported_by_backend(args: &BenchArgs, dataset: &Dataset) -> Vec<String> {
    let mut errors = Vec::new();
    let (backend, protocol) = (args.server.backend.name(), args.server.backend.protocol());
    let name = dataset.bench_serving_name();
    let lacks = |feature| !protocol.carries(feature);
    match dataset.facts().prompts {
        PromptForm::Messages | PromptForm::Conversations { turns: None } if lacks(Feature::Messages) => errors.push(format!(
            "the data set `{name}` consists of chat messages, which the backend `{backend}` does not accept; use a chat \
             backend, such as `sglang-oai-chat`, `vllm-chat`, `vllm-messages` or `vllm-responses`"
        )),
        PromptForm::Conversations { .. } if lacks(Feature::Messages) => errors.push(format!(
            "`--gsp-num-turns` above 1 makes conversations, which the backend `{backend}` does not support; use a chat \
             backend, such as `sglang-oai-chat`, `vllm-chat`, `vllm-messages` or `vllm-responses`"
        )),
        PromptForm::Templated if protocol.facts().template != ServerTemplate::NotApplied => errors.push(format!(
            "the data set `{name}` consists of prompts with an applied chat template, but the backend `{backend}` may \
             apply a template again; use `sglang`, or a backend for completions, such as `vllm`"
        )),
        // The Python tool sends no images to completions.
        PromptForm::Pictures if lacks(Feature::Images) || protocol == Protocol::Completions => errors.push(format!(
            "the data set `{name}` has images, which the backend `{backend}` does not accept; use `sglang`, or a chat backend \
             such as `sglang-oai-chat` or `vllm-chat`"
        )),
        _ => {}
    }
    let has_documents = dataset.facts().prompts == PromptForm::Documents;
    if has_documents != protocol.carries(Feature::Documents) {
        errors.push(format!(
            "the backend `{backend}` cannot be used with the data set `{name}`: only `random-rerank` has documents to rank, \
             and only `vllm-rerank` and `sglang-rerank` rank them"
        ));
    }
    if (dataset.facts().prompts == PromptForm::Audio) != protocol.carries(Feature::Audio) {
        errors.push(format!(
            "the backend `{backend}` cannot be used with the data set `{name}`: only `audio` and `random-audio` have recordings, and \
             only `vllm-transcription` and `sglang-transcription` transcribe them"
        ));
    }
    if let Dataset::Structured(structured) = dataset
        && let Some([what, help]) = structured.unsupported(protocol).map(unsupported_demand)
    {
        errors.push(format!("the backend `{backend}` cannot be used: {what}; {help}"));
    }
    if args.extensions.check_answers == Some(true) && !protocol.facts().generates_text {
        errors.push(format!(
            "`--check-answers` has no effect with the backend `{backend}`, whose answers have no text; leave it out"
        ));
    }
    if args.is_replayed() && args.execution.request_rate.iter().any(|rate| !rate.is_infinite()) {
        let instead = match dataset {
            Dataset::Mooncake(_) => "use `--mooncake-slowdown-factor`",
            _ => "leave out `--request-rate` or `--use-trace-timestamps`",
        };
        errors.push(format!(
            "`--request-rate` has no effect on `{name}`, whose rows have their own timestamps; {instead}"
        ));
    }
    if args.shared_prefix.gsp_send_routing_key && lacks(Feature::RoutingKey) {
        errors.push(format!(
            "`--gsp-send-routing-key` has no effect with the backend `{backend}`; leave it out"
        ));
    }
    errors
}

/// Returns the error if answers are to be checked of which no request demands anything.
pub(super) fn answer_check_error(
    args: &BenchArgs,
    workload: &Workload,
    body: &Map<String, Value>,
) -> Option<String> {
    let is_asked = args.extensions.check_answers == Some(true);
    (is_asked && !workload.may_demand_answers(body)).then(|| {
        format!(
            "`--check-answers` has no effect, because no request sets a condition for its answer; {CHECKABLE_ANSWERS} \
             (`--extra-request-body`), or leave out `--check-answers`"
        )
    })
}

fn sessions(args: &SessionArgs) -> agentic_sessions::Replay {
    agentic_sessions::Replay {
        format: args.session_format,
        start: args.session_start.unwrap_or_default(),
        cache_block: args.session_cache_block,
        trace_block: args.session_trace_block,
    }
}

fn recordings(args: &AudioArgs) -> Recordings {
    let defaults = Recordings::default();
    Recordings {
        seconds: args.audio_seconds.unwrap_or(defaults.seconds),
        range_ratio: args.audio_range_ratio.unwrap_or(defaults.range_ratio),
        sample_rate: args.audio_sample_rate.unwrap_or(defaults.sample_rate),
        content: args.audio_content.unwrap_or(defaults.content),
    }
}

fn structured(args: &StructuredArgs) -> Demands {
    let defaults = Demands::default();
    Demands {
        tools_share: args.structured_tools_share.unwrap_or(defaults.tools_share),
        plain_share: args.structured_plain_share.unwrap_or(defaults.plain_share),
        schemas: args.structured_schemas.unwrap_or(defaults.schemas),
        properties: args.structured_properties.unwrap_or(defaults.properties),
        tools: args.structured_tools.unwrap_or(defaults.tools),
        tool_choice: args.structured_tool_choice.unwrap_or_default(),
    }
}

fn rerank(args: &RerankArgs) -> Documents {
    let defaults = Documents::default();
    Documents {
        query_len: args.rerank_query_len.unwrap_or(defaults.query_len),
        documents: args.rerank_documents.unwrap_or(defaults.documents),
        document_len: args.rerank_document_len.unwrap_or(defaults.document_len),
        range_ratio: args.rerank_range_ratio.unwrap_or(defaults.range_ratio),
    }
}

pub(super) fn image_options(args: &ImageArgs) -> Pictures {
    let defaults = Pictures::default();
    Pictures {
        count: args.image_count.unwrap_or(defaults.count),
        is_count_drawn: args.random_image_count,
        resolution: args.image_resolution.unwrap_or(defaults.resolution),
        format: args.image_format.unwrap_or(defaults.format),
        content: args.image_content.unwrap_or(defaults.content),
    }
}

fn shared_prefix(args: &SharedPrefixArgs) -> Result<SharedPrefix, String> {
    let defaults = SharedPrefix::default();
    let popularity = match (args.gsp_group_distribution, args.gsp_zipf_alpha) {
        (Some(GroupDistributionArg::Zipf), Some(alpha)) => GroupDistribution::Zipf { alpha },
        (Some(GroupDistributionArg::Zipf), None) => {
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
        (_, None) => GroupDistribution::Uniform,
    };
    Ok(SharedPrefix {
        groups: args.gsp_num_groups.unwrap_or(defaults.groups),
        prompts_per_group: args.gsp_prompts_per_group.unwrap_or(defaults.prompts_per_group),
        system_len: args.gsp_system_prompt_len.unwrap_or(defaults.system_len),
        question_len: args.gsp_question_len.unwrap_or(defaults.question_len),
        range_ratio: args.gsp_range_ratio.unwrap_or(defaults.range_ratio),
        turns: args.gsp_num_turns.unwrap_or(defaults.turns),
        popularity,
        ordered: args.gsp_ordered,
        uncounted: args.gsp_fast_prepare,
        routing_key: args.gsp_send_routing_key,
    })
}

fn mooncake(args: &TraceArgs) -> Replay {
    let defaults = Replay::default();
    Replay {
        trace: args.mooncake_workload.unwrap_or(defaults.trace),
        slowdown: args.mooncake_slowdown_factor.unwrap_or(defaults.slowdown),
        rounds: args.mooncake_num_rounds.unwrap_or(defaults.rounds),
    }
}

/// Returns the LoRA adapters of requests, if any.
pub(super) fn lora(args: &BenchArgs) -> Result<Option<Lora>, Vec<String>> {
    let options = &args.sampling;
    let alpha = options.lora_zipf_alpha.unwrap_or(DEFAULT_SKEW);
    // Checked for every distribution, as in the Python tool.
    if !(alpha.is_finite() && alpha > 1.0) {
        return Err(vec![format!(
            "`--lora-zipf-alpha` is {alpha}; write a number above 1"
        )]);
    }
    let Some(names) = &options.lora_name else {
        return match options.lora_request_distribution {
            None | Some(LoraDistribution::Uniform) => Ok(None),
            Some(_) => Err(vec![
                "`--lora-request-distribution` has no effect without `--lora-name`; add the names of adapters".to_owned(),
            ]),
        };
    };
    if !args.server.backend.protocol().carries(Feature::LoraName) {
        let backend = args.server.backend.name();
        return Err(vec![format!(
            "`--lora-name` has no effect with the backend `{backend}`; leave it out"
        )]);
    }
    let lora = Lora {
        names: names.clone(),
        distribution: match options.lora_request_distribution {
            None | Some(LoraDistribution::Uniform) => AdapterDistribution::Uniform,
            Some(LoraDistribution::Distinct) => AdapterDistribution::Distinct,
            Some(LoraDistribution::Skewed) => AdapterDistribution::Skewed { alpha },
        },
    };
    match lora.find_error() {
        Some(why) => Err(vec![format!("`--lora-name`: {why}")]),
        None => Ok(Some(lora)),
    }
}
