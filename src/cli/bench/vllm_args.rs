//! Flags of `matrix bench --like vllm`: those of `vllm bench serve` 0.32, with its names and defaults.
//!
//! Every flag of that tool is declared, here or among those that are refused (`vllm_refused`).

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};
use serde_json::{Map, Value};

use super::vllm_refused::RefusedArgs;

/// Benchmark a running server, with the flags and the output of `vllm bench serve` 0.32.
///
/// Example: `matrix bench --like vllm --model Qwen/Qwen3-8B --dataset-name random --input-len 1024 --output-len 128`.
#[derive(Args, Clone, Debug)]
#[command(
    infer_long_args = true,
    args_override_self = true,
    override_usage = "matrix bench --like vllm [OPTIONS]",
    after_help = "Names of flags may have underscores instead of hyphens, and may be shortened to a unique prefix. A flag that is not \
                  supported is an error, never ignored. The variable OPENAI_API_KEY is sent as a bearer token."
)]
pub(crate) struct VllmArgs {
    #[command(flatten)]
    pub(crate) server: VllmServerArgs,
    #[command(flatten)]
    pub(crate) dataset: VllmDatasetArgs,
    #[command(flatten)]
    pub(crate) sources: VllmSourceArgs,
    #[command(flatten)]
    pub(crate) requests: VllmRequestArgs,
    #[command(flatten)]
    pub(crate) load: VllmLoadArgs,
    #[command(flatten)]
    pub(crate) output: VllmOutputArgs,
    #[command(flatten)]
    pub(crate) refused: RefusedArgs,
    /// Hugging Face's cache folder; `~/.cache/huggingface` by default.
    #[arg(
        long,
        env = "HF_HOME",
        value_name = "DIR",
        help_heading = "Extensions of matrix"
    )]
    pub(crate) hf_home: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub(crate) struct VllmServerArgs {
    /// The protocol of the server: `vllm` and `openai` both use the completions API.
    #[arg(long, default_value = "openai")]
    pub(crate) backend: String,
    /// The base URL of the server, instead of `--host` and `--port`.
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// The host of the server.
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) host: String,
    /// The port of the server.
    #[arg(long, default_value_t = 8000)]
    pub(crate) port: u16,
    /// The path of requests.
    #[arg(long, value_name = "PATH", default_value = "/v1/completions")]
    pub(crate) endpoint: String,
    /// Accept every certificate of the server.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Headers of every request; they override the header from OPENAI_API_KEY.
    #[arg(long, num_args = 0.., action = ArgAction::Set, value_name = "KEY=VALUE")]
    pub(crate) header: Option<Vec<String>>,
    /// For how many seconds the first request is repeated until the server answers it; with 0, this request is not
    /// sent.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0,
        allow_negative_numbers = true
    )]
    pub(crate) ready_check_timeout_sec: i64,
    /// The model; by default the first one that the server lists.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// The model name in requests; `--model` by default.
    #[arg(long, value_name = "NAME")]
    pub(crate) served_model_name: Option<String>,
    /// The tokenizer: a file, a folder or a model in Hugging Face's cache; by default that of the model.
    #[arg(long, value_name = "NAME")]
    pub(crate) tokenizer: Option<String>,
    /// The kind of tokenizer: `auto` or `hf`.
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub(crate) tokenizer_mode: String,
    /// No effect: `matrix` runs no code of a model.
    #[arg(long)]
    pub(crate) trust_remote_code: bool,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Data set")]
pub(crate) struct VllmDatasetArgs {
    /// The data set: random, sharegpt, custom, custom_audio, prefix_repetition, burstgpt, spec_bench, speed_bench or timed_trace.
    #[arg(long, value_name = "NAME", default_value = "random")]
    pub(crate) dataset_name: String,
    /// The file of the data set.
    #[arg(long, value_name = "FILE")]
    pub(crate) dataset_path: Option<String>,
    /// The number of requests. For `custom` and `custom_audio`, 0 means all rows of the file.
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 1000,
        allow_negative_numbers = true
    )]
    pub(crate) num_prompts: i64,
    /// Seed of all random draws.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u32,
    /// The number of prompt tokens, instead of `--random-input-len`.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) input_len: Option<u32>,
    /// The number of output tokens to request; overrides the flag of the data set, such as `--random-output-len`.
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true)]
    pub(crate) output_len: Option<i64>,
    /// Keep the order of the rows in the file.
    #[arg(long)]
    pub(crate) disable_shuffle: bool,
    /// Send fewer requests if the file has fewer rows, instead of drawing rows again.
    #[arg(long)]
    pub(crate) no_oversample: bool,
    /// Do not apply the tokenizer's chat template to prompts of `custom` and `speed_bench`.
    #[arg(long)]
    pub(crate) skip_chat_template: bool,
    /// Further variables of the chat template, as a JSON object.
    #[arg(long, value_name = "JSON", value_parser = parse_object)]
    pub(crate) chat_template_kwargs: Option<Map<String, Value>>,
    /// Send prompts of `sharegpt` as chat messages.
    #[arg(long)]
    pub(crate) enable_multimodal_chat: bool,
    /// No effect: the flag is only for data sets that are streamed from Hugging Face's hub.
    #[arg(long)]
    pub(crate) no_stream: bool,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Options of data sets")]
pub(crate) struct VllmSourceArgs {
    /// The number of prompt tokens of `random`.
    #[arg(long, value_name = "TOKENS", default_value_t = 1024)]
    pub(crate) random_input_len: u32,
    /// The number of output tokens of `random`.
    #[arg(long, value_name = "TOKENS", default_value_t = 128)]
    pub(crate) random_output_len: u32,
    /// Lengths of `random` are drawn from length × (1 − ratio) to length × (1 + ratio); a number, or JSON such as
    /// `{"input": 0.3, "output": 0.5}`.
    #[arg(long, value_name = "RATIO", default_value = "0.0")]
    pub(crate) random_range_ratio: String,
    /// The number of tokens of the prefix with which every prompt of `random` begins, in addition to
    /// `--random-input-len`.
    #[arg(long, value_name = "TOKENS", default_value_t = 0)]
    pub(crate) random_prefix_len: u32,
    /// The number of prompts in each request for embeddings, or of documents in each request of `random-rerank`.
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) random_batch_size: u32,
    /// The model of `random-rerank` is not a reranker: it embeds the query and each document separately, instead of
    /// reading the query together with each document.
    #[arg(long)]
    pub(crate) no_reranker: bool,
    /// The number of output tokens of `sharegpt`; by default the length of the answer in the data set.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) sharegpt_output_len: Option<u32>,
    /// The number of output tokens of `custom` and `custom_audio`; with -1, the field `output_tokens` of each row.
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = 256,
        allow_negative_numbers = true
    )]
    pub(crate) custom_output_len: i64,
    /// The number of output tokens of `spec_bench`.
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = 256,
        allow_negative_numbers = true
    )]
    pub(crate) spec_bench_output_len: i64,
    /// Use only the rows of `spec_bench` that have this category.
    #[arg(long, value_name = "NAME")]
    pub(crate) spec_bench_category: Option<String>,
    /// The file of `speed_bench` in the folder `--dataset-path`.
    #[arg(long, value_name = "NAME", default_value = "qualitative",
          value_parser = ["qualitative", "throughput_1k", "throughput_2k", "throughput_8k", "throughput_16k", "throughput_32k"])]
    pub(crate) speed_bench_dataset_subset: String,
    /// The number of output tokens of `speed_bench`.
    #[arg(
        long,
        value_name = "TOKENS",
        default_value_t = 4096,
        allow_negative_numbers = true
    )]
    pub(crate) speed_bench_output_len: i64,
    /// Use only the rows of `speed_bench` that have this category.
    #[arg(long, value_name = "NAME")]
    pub(crate) speed_bench_category: Option<String>,
    /// The number of tokens of a prefix of `prefix_repetition`.
    #[arg(long, value_name = "TOKENS", default_value_t = 256)]
    pub(crate) prefix_repetition_prefix_len: u32,
    /// The number of tokens after the prefix.
    #[arg(long, value_name = "TOKENS", default_value_t = 256)]
    pub(crate) prefix_repetition_suffix_len: u32,
    /// The number of prefixes.
    #[arg(long, value_name = "COUNT", default_value_t = 10)]
    pub(crate) prefix_repetition_num_prefixes: u32,
    /// The number of output tokens of `prefix_repetition`.
    #[arg(long, value_name = "TOKENS", default_value_t = 128)]
    pub(crate) prefix_repetition_output_len: u32,
    /// The number of tokens that each block (hash id) of `timed_trace` stands for.
    #[arg(long, value_name = "TOKENS", default_value_t = 16)]
    pub(crate) timed_trace_chunk_hash_size: u32,
    /// The length of one unit of the timestamps in seconds, such as 0.001 for milliseconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) timed_trace_sec_multiplier: f64,
    /// The field with the timestamp.
    #[arg(long, value_name = "FIELD", default_value = "timestamp")]
    pub(crate) timed_trace_label_timestamp: String,
    /// The field with the number of prompt tokens.
    #[arg(long, value_name = "FIELD", default_value = "input_length")]
    pub(crate) timed_trace_label_input_length: String,
    /// The field with the number of output tokens.
    #[arg(long, value_name = "FIELD", default_value = "output_length")]
    pub(crate) timed_trace_label_output_length: String,
    /// The field with the list of block ids of the prompt.
    #[arg(long, value_name = "FIELD", default_value = "hash_ids")]
    pub(crate) timed_trace_label_hash_ids: String,
    /// Send requests of `timed_trace` at their timestamps, which is the default.
    #[arg(long, overrides_with = "no_self_timed")]
    pub(crate) self_timed: bool,
    /// Send requests of `timed_trace` at `--request-rate`.
    #[arg(long)]
    pub(crate) no_self_timed: bool,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Requests")]
pub(crate) struct VllmRequestArgs {
    /// Request outputs of the full length. With the data set `random`, this is always so.
    #[arg(long)]
    pub(crate) ignore_eos: bool,
    /// The number of log probabilities of each token.
    #[arg(long, value_name = "COUNT")]
    pub(crate) logprobs: Option<i64>,
    /// Sample from the most likely tokens with this total probability.
    #[arg(long)]
    pub(crate) top_p: Option<f64>,
    /// Sample from this number of the most likely tokens.
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) top_k: Option<i64>,
    /// Sample from tokens with at least this share of the probability of the most likely one.
    #[arg(long)]
    pub(crate) min_p: Option<f64>,
    /// The sampling temperature; that of the server by default.
    #[arg(long)]
    pub(crate) temperature: Option<f64>,
    /// The penalty for each earlier occurrence of a token.
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) frequency_penalty: Option<f64>,
    /// The penalty for tokens that have already occurred, however often.
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) presence_penalty: Option<f64>,
    /// The factor by which tokens that have already occurred become less likely; 1 by default.
    #[arg(long)]
    pub(crate) repetition_penalty: Option<f64>,
    /// A JSON object whose fields are added to every request body.
    #[arg(long, value_name = "JSON", value_parser = parse_object)]
    pub(crate) extra_body: Option<Map<String, Value>>,
    /// The prefix of the header `x-request-id`; by default a random one.
    #[arg(long, value_name = "TEXT")]
    pub(crate) request_id_prefix: Option<String>,
    /// The LoRA adapters that requests use.
    #[arg(long, num_args = 1.., action = ArgAction::Set, value_name = "NAME")]
    pub(crate) lora_modules: Option<Vec<String>>,
    /// How adapters are assigned to requests.
    #[arg(long, value_enum, default_value = "random")]
    pub(crate) lora_assignment: LoraAssignment,
}

/// How adapters are assigned to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoraAssignment {
    Random,
    RoundRobin,
}

/// The curve of a ramp.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RampStrategy {
    Linear,
    Exponential,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Load")]
pub(crate) struct VllmLoadArgs {
    /// Requests per second; `inf` sends all requests at once.
    #[arg(long, value_name = "RATE", default_value_t = f64::INFINITY)]
    pub(crate) request_rate: f64,
    /// The shape of the gamma distribution of the gaps between requests: 1 is Poisson, below 1 is burstier, above 1 is
    /// more even, `inf` is constant.
    #[arg(long, value_name = "SHAPE", default_value_t = 1.0)]
    pub(crate) burstiness: f64,
    /// The largest number of requests in flight.
    #[arg(long, value_name = "COUNT", allow_negative_numbers = true)]
    pub(crate) max_concurrency: Option<i64>,
    /// Increase the rate from the first to the last request along this curve, instead of `--request-rate`.
    #[arg(long, value_enum, value_name = "CURVE")]
    pub(crate) ramp_up_strategy: Option<RampStrategy>,
    /// Requests per second at the beginning of the ramp.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub(crate) ramp_up_start_rps: Option<i64>,
    /// Requests per second at the end of the ramp.
    #[arg(long, value_name = "RATE", allow_negative_numbers = true)]
    pub(crate) ramp_up_end_rps: Option<i64>,
    /// The number of requests before the measurement.
    #[arg(long, value_name = "COUNT", default_value_t = 0)]
    pub(crate) num_warmups: u32,
    /// Start and stop the server's profiler around the measurement.
    #[arg(long)]
    pub(crate) profile: bool,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct VllmOutputArgs {
    /// The times whose statistics are printed, separated by commas: ttft, tpot, itl, e2el, client_queue_time,
    /// e2el_including_client_queue; `ttft,tpot,itl` by default, `e2el` for embeddings.
    #[arg(long, value_name = "NAMES")]
    pub(crate) percentile_metrics: Option<String>,
    /// The percentiles that are printed, separated by commas.
    #[arg(long, value_name = "PERCENTS", default_value = "99")]
    pub(crate) metric_percentiles: String,
    /// The targets of a good request, in milliseconds, such as `ttft:500 tpot:50 e2el:3000`.
    #[arg(long, num_args = 1.., action = ArgAction::Set, value_name = "KEY:MS")]
    pub(crate) goodput: Option<Vec<String>>,
    /// Write the result file.
    #[arg(long)]
    pub(crate) save_result: bool,
    /// Add lists with the values of every request to the result file.
    #[arg(long)]
    pub(crate) save_detailed: bool,
    /// Append the result to the result file.
    #[arg(long)]
    pub(crate) append_result: bool,
    /// Fields that are added to the result file.
    #[arg(long, num_args = 0.., action = ArgAction::Set, value_name = "KEY=VALUE")]
    pub(crate) metadata: Option<Vec<String>>,
    /// The folder of the result file; the current one by default.
    #[arg(long, value_name = "DIR")]
    pub(crate) result_dir: Option<PathBuf>,
    /// The name of the result file; by default made of label, load, model and date.
    #[arg(long, value_name = "FILE")]
    pub(crate) result_filename: Option<String>,
    /// The label in the result file. The default name of this file begins with the label, or with the backend if there
    /// is no label.
    #[arg(long, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// Do not draw a progress bar.
    #[arg(long)]
    pub(crate) disable_tqdm: bool,
}

fn parse_object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err("write a JSON object, such as `{\"top_k\": 3}`".to_owned()),
        Err(error) => Err(format!("this is not valid JSON: {error}")),
    }
}
