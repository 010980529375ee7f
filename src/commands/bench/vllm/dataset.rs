//! The workload of a bench like vLLM's.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::base::clock;
use crate::base::ids::ContentHash;
use crate::cli::bench::{REFUSED_DATASETS, VllmArgs, VllmSourceArgs};
use crate::config::api::{EmbeddingsForm, Feature};
use crate::config::dataset::vllm_serve::{
    PromptField, Questions, RandomTokens, RerankTokens, TimedTrace, VllmRows, VllmServe, VllmSource,
    memory_error,
};
use crate::config::dataset::{DatasetName, PromptForm};
use crate::config::workload::{Profile, Workload};
use crate::plan::Protocol;

/// The data sets, in the order in which an error lists them.
const NAMES: [&str; 10] = [
    "random",
    "random-rerank",
    "sharegpt",
    "custom",
    "custom_audio",
    "prefix_repetition",
    "burstgpt",
    "spec_bench",
    "speed_bench",
    "timed_trace",
];

/// Returns the workload, or all errors in its flags.
pub(super) fn workload(args: &VllmArgs) -> Result<Workload, Vec<String>> {
    let name = args.dataset.dataset_name.as_str();
    if let Some((_, why)) = REFUSED_DATASETS.iter().find(|(refused, _)| *refused == name) {
        return Err(vec![format!("`--dataset-name {name}` is not supported: {why}")]);
    }
    let source = source(args).map_err(|error| vec![error])?;
    let mut errors = flag_errors(args, &source);
    let has_rows = matches!(source, VllmSource::Custom(_) | VllmSource::CustomAudio { .. });
    let prompts = match u32::try_from(args.dataset.num_prompts) {
        Ok(prompts) => prompts,
        // vLLM takes every number below 1 for all rows of a file of prompts.
        Err(_) if has_rows && args.dataset.num_prompts < 0 => 0,
        Err(_) => {
            errors.push(format!(
                "`--num-prompts` is {}; write at least 1",
                args.dataset.num_prompts
            ));
            1
        }
    };
    let prompts = match &source {
        // As many as vLLM makes: the same number for each prefix.
        VllmSource::PrefixRepetition { prefixes, .. } if *prefixes > 0 => {
            if prompts < *prefixes {
                errors.push(format!(
                    "`--num-prompts` is {prompts}, but `--prefix-repetition-num-prefixes` is {prefixes}; raise `--num-prompts`"
                ));
            }
            prompts / prefixes * prefixes
        }
        _ => prompts,
    };
    errors.extend(memory_error(&source, prompts));
    let dataset = VllmServe {
        vllm_serve: VllmRows {
            source,
            request_id_prefix: args
                .requests
                .request_id_prefix
                .clone()
                .unwrap_or_else(random_prefix),
            keeps_order: args.dataset.disable_shuffle,
            repeats_rows: !args.dataset.no_oversample,
        },
    };
    let mut workload = Workload::with(dataset);
    workload.prompts = prompts;
    workload.path = file(args, &workload);
    errors.extend(workload.find_errors(Profile::Current).into_iter().map(
        |error| match error.field.as_str() {
            "prompts" => "`--num-prompts` is 0; write at least 1".to_owned(),
            _ => error.message,
        },
    ));
    errors.dedup();
    match errors.is_empty() {
        true => Ok(workload),
        false => Err(errors),
    }
}

/// A prefix that differs between loads.
fn random_prefix() -> String {
    let unique = ContentHash::from_value(&json!([clock::unix_seconds(), std::process::id()])).to_string();
    let digits: String = unique.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    format!("bench-{digits}-")
}

fn source(args: &VllmArgs) -> Result<VllmSource, String> {
    let (sources, dataset) = (&args.sources, &args.dataset);
    let output = |own: u32| match dataset.output_len {
        None => Ok(own),
        Some(tokens) => {
            u32::try_from(tokens).map_err(|_| format!("`--output-len` is {tokens}; write at least 1"))
        }
    };
    Ok(match dataset.dataset_name.as_str() {
        "random" => VllmSource::Random(random(args, output(sources.random_output_len)?)?),
        "random-rerank" => {
            let random = random(args, 0)?;
            VllmSource::RandomRerank(RerankTokens {
                input_len: random.input_len,
                range_ratio: random.input_ratio,
                batch_size: random.batch_size,
                is_reranker: !sources.no_reranker,
                has_documents: args.server.backend == "vllm-rerank",
            })
        }
        "sharegpt" => VllmSource::Sharegpt {
            output_len: match (dataset.output_len, sources.sharegpt_output_len) {
                (None, own) => own,
                (Some(_), _) => Some(output(0)?),
            },
            as_messages: dataset.enable_multimodal_chat,
        },
        "custom" => VllmSource::Custom(Questions {
            category: None,
            ..questions(args, PromptField::Prompt, sources.custom_output_len)?
        }),
        "custom_audio" => VllmSource::CustomAudio {
            output_len: output_len(dataset.output_len.unwrap_or(sources.custom_output_len))?,
        },
        "spec_bench" => VllmSource::Custom(Questions {
            category: sources.spec_bench_category.clone(),
            applies_template: true,
            template_variables: Map::new(),
            fixed_seed: true,
            ..questions(args, PromptField::Turns, sources.spec_bench_output_len)?
        }),
        // `--output-len` does not reach it.
        "speed_bench" => VllmSource::Custom(Questions {
            category: sources.speed_bench_category.clone(),
            fixed_seed: true,
            output_len: output_len(sources.speed_bench_output_len)?,
            ..questions(args, PromptField::Messages, sources.speed_bench_output_len)?
        }),
        "prefix_repetition" => VllmSource::PrefixRepetition {
            prefix_len: sources.prefix_repetition_prefix_len,
            suffix_len: sources.prefix_repetition_suffix_len,
            prefixes: sources.prefix_repetition_num_prefixes,
            output_len: output(sources.prefix_repetition_output_len)?,
        },
        "burstgpt" => VllmSource::Burstgpt,
        "timed_trace" => VllmSource::TimedTrace(timed_trace(sources)),
        name => {
            let names: Vec<String> = NAMES.iter().map(|name| format!("`{name}`")).collect();
            return Err(format!("there is no data set `{name}`; use {}", names.join(", ")));
        }
    })
}

fn random(args: &VllmArgs, output_len: u32) -> Result<RandomTokens, String> {
    let sources = &args.sources;
    let text = &sources.random_range_ratio;
    let wrong = || {
        format!(
            "`--random-range-ratio {text}` is no ratio; write a number from 0 to below 1, or `{{\"input\": 0.3, \"output\": 0.5}}`"
        )
    };
    let [input_ratio, output_ratio] = match text.trim().parse::<f64>() {
        Ok(ratio) => [ratio; 2],
        Err(_) => {
            let ratios: Value = serde_json::from_str(text).map_err(|_| wrong())?;
            let ratio = |key: &str| ratios.get(key).and_then(Value::as_f64).ok_or_else(wrong);
            [ratio("input")?, ratio("output")?]
        }
    };
    Ok(RandomTokens {
        input_len: args.dataset.input_len.unwrap_or(sources.random_input_len),
        output_len,
        input_ratio,
        output_ratio,
        prefix_len: sources.random_prefix_len,
        batch_size: sources.random_batch_size,
    })
}

/// The number of output tokens of rows; -1 is that of each row.
fn output_len(tokens: i64) -> Result<Option<u32>, String> {
    match tokens {
        -1 => Ok(None),
        tokens => u32::try_from(tokens).map(Some).map_err(|_| {
            format!("the number of output tokens is {tokens}; write at least 0, or -1 to use the number that each row has")
        }),
    }
}

fn questions(args: &VllmArgs, field: PromptField, own_output_len: i64) -> Result<Questions, String> {
    Ok(Questions {
        field,
        output_len: output_len(args.dataset.output_len.unwrap_or(own_output_len))?,
        category: None,
        applies_template: !args.dataset.skip_chat_template,
        template_variables: args.dataset.chat_template_kwargs.clone().unwrap_or_default(),
        fixed_seed: false,
    })
}

fn timed_trace(sources: &VllmSourceArgs) -> TimedTrace {
    TimedTrace {
        block_tokens: sources.timed_trace_chunk_hash_size,
        unit_s: sources.timed_trace_sec_multiplier,
        timestamp: sources.timed_trace_label_timestamp.clone(),
        input_length: sources.timed_trace_label_input_length.clone(),
        output_length: sources.timed_trace_label_output_length.clone(),
        hash_ids: sources.timed_trace_label_hash_ids.clone(),
        is_replayed: !sources.no_self_timed,
    }
}

/// The path of the data set's file.
fn file(args: &VllmArgs, workload: &Workload) -> Option<String> {
    let path = args.dataset.dataset_path.clone().filter(|path| !path.is_empty());
    workload.facts().file.as_ref()?;
    match args.dataset.dataset_name.as_str() {
        "speed_bench" => path.map(|folder| {
            let file = format!("{}.jsonl", args.sources.speed_bench_dataset_subset);
            Path::new(&folder).join(file).display().to_string()
        }),
        _ => path,
    }
}

/// Errors in flags that do not fit the data set.
fn flag_errors(args: &VllmArgs, source: &VllmSource) -> Vec<String> {
    let (name, dataset) = (source.name(), &args.dataset);
    let has_path = dataset.dataset_path.as_ref().is_some_and(|path| !path.is_empty());
    let is_timed = args.sources.self_timed || args.sources.no_self_timed;
    let errors = [
        (
            has_path && !source.has_file(),
            format!(
                "the data set `{name}` is not read from a file; leave `--dataset-path` out, or choose another data set with `--dataset-name`"
            ),
        ),
        (
            !has_path && source.has_file(),
            format!("the data set `{name}` is read from a file; name the file with `--dataset-path`"),
        ),
        (
            name.starts_with("custom")
                && has_path
                && !dataset
                    .dataset_path
                    .as_deref()
                    .unwrap_or_default()
                    .ends_with(".jsonl"),
            format!("the file of `{name}` must be JSON lines, with a name that ends in `.jsonl`"),
        ),
        (
            is_timed && name != "timed_trace",
            format!(
                "`--self-timed` and `--no-self-timed` have no effect on `{name}`, which has no timestamps; leave them out"
            ),
        ),
    ];
    errors
        .into_iter()
        .filter_map(|(is_wrong, why)| is_wrong.then_some(why))
        .collect()
}

/// Why the protocol cannot send the data set.
pub(super) fn protocol_error(
    args: &VllmArgs,
    (protocol, form): (Protocol, EmbeddingsForm),
    workload: &Workload,
) -> Option<String> {
    let backend = &args.server.backend;
    let crate::config::dataset::Dataset::VllmServe(dataset) = &workload.dataset else {
        return None;
    };
    debug_assert_eq!(workload.dataset.name(), DatasetName::VllmServe);
    let takes_several = protocol == Protocol::Embeddings && form != EmbeddingsForm::Messages;
    let has_audio = workload.facts().prompts == PromptForm::Audio;
    if has_audio != protocol.carries(Feature::Audio) {
        return Some(format!(
            "the backend `{backend}` cannot be used with the data set `{}`: only `custom_audio` has recordings, and only `openai-audio` sends them",
            dataset.vllm_serve.source.name()
        ));
    }
    match &dataset.vllm_serve.source {
        VllmSource::RandomRerank(_) if protocol != Protocol::Rerank && !takes_several => Some(format!(
            "`random-rerank` puts a query and documents into a request, which the backend `{backend}` does not accept; use `vllm-rerank`"
        )),
        VllmSource::RandomRerank(_) => None,
        _ if protocol == Protocol::Rerank => Some(
            "the backend `vllm-rerank` needs documents to rank; use `--dataset-name random-rerank`"
                .to_owned(),
        ),
        VllmSource::TimedTrace(_) if protocol != Protocol::Completions => Some(format!(
            "`timed_trace` consists of token ids, which the backend `{backend}` does not accept; use `openai`"
        )),
        VllmSource::Sharegpt {
            as_messages: true, ..
        } if !protocol.carries(Feature::Messages) => Some(format!(
            "`--enable-multimodal-chat` makes chat messages, which the backend `{backend}` does not accept; use `openai-chat`"
        )),
        VllmSource::Random(random) if random.batch_size > 1 && !takes_several => Some(format!(
            "`--random-batch-size` puts several prompts into a request, which only `openai-embeddings` accepts, not `{backend}`; leave \
             it out"
        )),
        _ => None,
    }
}
