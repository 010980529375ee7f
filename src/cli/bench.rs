//! Flags of `matrix bench`: those of `sglang.bench_serving`, with its names and defaults, and extensions.
//!
//! Every flag of the Python tool is declared. Unsupported flags are errors with a reason; none is ignored. A
//! flag is an `Option` if an error must distinguish absence from the default.

mod arrivals;
mod cancel;
mod connections;
mod dataset_options;
pub(super) mod foreign;
mod images;
mod lengths;
pub(super) mod like;
mod limits;
mod profiler;
mod vllm_args;
mod vllm_refused;

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

pub(crate) use self::arrivals::{ArrivalArgs, GapDistribution, SearchArgs, SteadyStateArgs};
pub(crate) use self::cancel::CancelArgs;
pub(crate) use self::connections::{BalanceArg, ConnectionArgs, ConnectionsArg};
pub(crate) use self::dataset_options::{
    AudioArgs, GroupDistributionArg, RerankArgs, SessionArgs, SharedPrefixArgs, StructuredArgs, TraceArgs,
};
pub(crate) use self::images::{ImageArgs, SpeedBenchArgs};
pub(crate) use self::lengths::LengthArgs;
pub(crate) use self::like::LikeTool;
pub(crate) use self::limits::LimitArgs;
pub(crate) use self::profiler::{Activity, ProfilerArgs};
pub(crate) use self::vllm_args::{LoraAssignment, RampStrategy, VllmArgs, VllmSourceArgs};
pub(crate) use self::vllm_refused::{REFUSED_BACKENDS, REFUSED_DATASETS};
use crate::base::units::{HumanDuration, RequestRate};
use crate::cli::named::{backend, dataset, variant_parser};
use crate::config::backend::Backend;
use crate::config::dataset::DatasetName;
use crate::config::pacing::ThinkTime;
use crate::config::workload::Profile;

/// Benchmark a running server, with the flags and the output of `sglang.bench_serving`.
///
/// Example: `matrix bench --backend vllm --port 8000 --dataset-name random --random-input-len 1024 --random-output-len 128`.
#[derive(Args, Clone, Debug)]
#[command(
    infer_long_args = true,
    args_override_self = true,
    after_help = "Flags of the Python tool may be shortened to a unique prefix, such as `--num-prompt 10`. A flag that is not \
                  supported is an error, never ignored. The variable OPENAI_API_KEY is sent as a bearer token; if it is not set, \
                  API_KEY is sent unchanged as the `Authorization` header. With the backend `anthropic`, ANTHROPIC_API_KEY is sent \
                  as `x-api-key` instead."
)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) extensions: ExtensionArgs,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    #[command(flatten)]
    pub(crate) connections: ConnectionArgs,
    #[command(flatten)]
    pub(crate) dataset: DatasetArgs,
    #[command(flatten)]
    pub(crate) shared_prefix: SharedPrefixArgs,
    #[command(flatten)]
    pub(crate) rerank: RerankArgs,
    #[command(flatten)]
    pub(crate) audio: AudioArgs,
    #[command(flatten)]
    pub(crate) structured: StructuredArgs,
    #[command(flatten)]
    pub(crate) lengths: LengthArgs,
    #[command(flatten)]
    pub(crate) trace: TraceArgs,
    #[command(flatten)]
    pub(crate) sessions: SessionArgs,
    #[command(flatten)]
    pub(crate) pictures: ImageArgs,
    #[command(flatten)]
    pub(crate) speed_bench: SpeedBenchArgs,
    #[command(flatten)]
    pub(crate) sampling: SamplingArgs,
    #[command(flatten)]
    pub(crate) execution: ExecutionArgs,
    #[command(flatten)]
    pub(crate) arrival: ArrivalArgs,
    #[command(flatten)]
    pub(crate) search: SearchArgs,
    #[command(flatten)]
    pub(crate) steady: SteadyStateArgs,
    #[command(flatten)]
    pub(crate) limits: LimitArgs,
    #[command(flatten)]
    pub(crate) cancel: CancelArgs,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
    #[command(flatten)]
    pub(crate) profiler: ProfilerArgs,
    #[command(flatten)]
    pub(crate) unsupported: UnsupportedArgs,
}

impl BenchArgs {
    /// Whether rows are sent at their own timestamps.
    pub(crate) fn is_replayed(&self) -> bool {
        self.dataset.dataset_name == DatasetName::Mooncake || self.trace.use_trace_timestamps
    }
}

/// Flags that the Python tool does not have.
///
/// A unique prefix of a flag of the Python tool must stay unique. If a name here makes one ambiguous, the prefix becomes an alias
/// of the Python tool's flag.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Extensions of matrix")]
pub(crate) struct ExtensionArgs {
    /// The tool whose flags and output `matrix bench` imitates; `--like vllm --help` prints the flags of
    /// `vllm bench serve`.
    #[arg(long, value_enum, default_value = "sglang", value_name = "TOOL")]
    pub(crate) like: LikeTool,
    /// The version of bench_serving whose rules apply: `current` is the version of sglang 0.5.23. `classic` is the fork
    /// in lmdeploy, with which the published reports of August 2025 were made.
    #[arg(long, value_parser = variant_parser::<Profile>(), default_value = "current")]
    pub(crate) rules: Profile,
    /// Compute every figure as bench_serving does, including the known errors of bench_serving.
    #[arg(long)]
    pub(crate) compat_figures: bool,
    /// Write an infinite rate in the result line as `Infinity`, like Python, although this is not valid JSON.
    #[arg(long)]
    pub(crate) compat_json: bool,
    /// Compare each answer with what its request demands: a JSON schema, the offered tools, or the `expected_answer` of a row of
    /// `openai`. Then goodput counts only correct answers. By default, answers are checked only with the data set
    /// `structured`; `--check-answers=false` turns the check off.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    pub(crate) check_answers: Option<bool>,
    /// Write the result in the format of `vllm bench serve --save-result` into this file, which is overwritten.
    #[arg(long, value_name = "FILE")]
    pub(crate) vllm_json: Option<PathBuf>,
    /// Hugging Face's cache folder; `~/.cache/huggingface` by default.
    #[arg(long, env = "HF_HOME", value_name = "DIR")]
    pub(crate) hf_home: Option<PathBuf>,
    /// The cache folder for prepared prompts; `~/.cache/matrix` by default.
    #[arg(long, env = "MATRIX_CACHE", value_name = "DIR")]
    pub(crate) keep_prompts_in: Option<PathBuf>,
    /// Prepare all prompts again: neither read nor write prepared prompts in the cache.
    #[arg(long)]
    pub(crate) fresh_prompts: bool,
}

/// The host of the server if none is given, as in the Python tool.
pub(crate) const DEFAULT_HOST: &str = "0.0.0.0";

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Server")]
pub(crate) struct ServerArgs {
    /// The protocol of the server, written as the name of a backend of bench_serving.
    #[arg(long, value_parser = backend(), default_value = "sglang")]
    pub(crate) backend: Backend,
    /// The base URL of the server, instead of `--host` and `--port`. For a Unix socket, write
    /// `unix:///run/engine.sock`, or `unix:///run/engine.sock:/prefix` to put `/prefix` before every path. If several
    /// URLs are given, requests are distributed over them (`--balance`), and the model and the server's information
    /// are those of the first URL.
    #[arg(long, num_args = 1.., action = ArgAction::Append, value_name = "URL")]
    pub(crate) base_url: Vec<String>,
    /// The host of the server.
    #[arg(long, default_value = DEFAULT_HOST)]
    pub(crate) host: String,
    /// The port of the server; by default the usual port of the backend's engine.
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// The longest wait for the server, in seconds; with 0, the server is not checked. 60 by default, 0 with
    /// `--rules classic`.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) ready_check_timeout_sec: Option<u64>,
    /// The model; by default the first one that the server lists.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// The model name in requests; `--model` by default.
    #[arg(long, value_name = "NAME")]
    pub(crate) served_model_name: Option<String>,
    /// The tokenizer: a file, a folder or a model in Hugging Face's cache; by default the one that the server reports,
    /// or that of the model.
    #[arg(long, value_name = "NAME")]
    pub(crate) tokenizer: Option<String>,
    /// Headers of every request, also of those for readiness, models, server information and cache reset; they override the headers
    /// from OPENAI_API_KEY, API_KEY and ANTHROPIC_API_KEY.
    #[arg(long, num_args = 1.., action = ArgAction::Set, value_name = "KEY=VALUE")]
    pub(crate) header: Vec<String>,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Data set")]
pub(crate) struct DatasetArgs {
    /// The data set from which prompts are taken.
    #[arg(long, value_parser = dataset(), default_value = "sharegpt")]
    pub(crate) dataset_name: DatasetName,
    /// The file of the data set; by default the file in Hugging Face's cache.
    #[arg(long, value_name = "FILE", default_value = "", hide_default_value = true)]
    pub(crate) dataset_path: String,
    /// The number of requests. With the data set `openai`, 0 means all its rows. The data set `generated-shared-prefix` has its
    /// own flags for this number.
    #[arg(long, default_value_t = 1000, value_name = "COUNT")]
    pub(crate) num_prompts: u32,
    /// Seed of all random draws; 42 by default, 1 with `--rules classic`.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// The number of output tokens to request; by default the length of the answer in the data set.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) sharegpt_output_len: Option<u32>,
    /// Leave out rows with more tokens than this, prompt and output together; for `sharegpt`, `custom` and `longbench_v2`.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) sharegpt_context_len: Option<u32>,
    /// The largest number of tokens of a prompt; 1024 by default. For `structured`, the approximate number of tokens of
    /// a prompt, without a default.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) random_input_len: Option<u32>,
    /// The largest number of output tokens to request; 1024 by default, 512 for `structured`.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) random_output_len: Option<u32>,
    /// The smallest drawn length, as a share of `--random-input-len` and `--random-output-len`; with 1, all requests
    /// have these lengths.
    #[arg(long, value_parser = dataset_options::parse_finite, default_value_t = 0.0, value_name = "RATIO")]
    pub(crate) random_range_ratio: f64,
    /// Text appended to every prompt of `sharegpt` and `custom`, followed by `Assistant:`.
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    pub(crate) prompt_suffix: String,
    /// Send token ids instead of text; only for the backend `sglang`.
    #[arg(long)]
    pub(crate) tokenize_prompt: bool,
    /// Apply the tokenizer's chat template to prompts of `sharegpt` and `custom`.
    #[arg(long)]
    pub(crate) apply_chat_template: bool,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Requests")]
pub(crate) struct SamplingArgs {
    /// Request complete responses instead of streams.
    #[arg(long)]
    pub(crate) disable_stream: bool,
    /// Send `ignore_eos: false`, so that the model may end outputs before the requested length.
    #[arg(long)]
    pub(crate) disable_ignore_eos: bool,
    /// The sampling temperature; 0 by default.
    #[arg(long, value_parser = dataset_options::parse_finite)]
    pub(crate) temperature: Option<f64>,
    /// Sample from the most likely tokens with this total probability (nucleus sampling); 1 by default.
    #[arg(long, value_parser = dataset_options::parse_finite)]
    pub(crate) top_p: Option<f64>,
    /// A JSON object whose fields are added to every request body; `null` removes a field.
    #[arg(long, value_name = "JSON", aliases = ["e", "ex"])]
    pub(crate) extra_request_body: Option<String>,
    /// Request log probabilities of tokens.
    #[arg(long)]
    pub(crate) return_logprob: bool,
    /// The number of alternative tokens with log probabilities at each position.
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub(crate) top_logprobs_num: u32,
    /// Request log probabilities of these token ids.
    #[arg(long, num_args = 1.., action = ArgAction::Set, value_name = "ID")]
    pub(crate) token_ids_logprob: Option<Vec<u32>>,
    /// The position in the prompt from which log probabilities are requested; -1 for output tokens only.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true, value_name = "PLACE")]
    pub(crate) logprob_start_len: i64,
    /// Request the experts that each token was routed to.
    #[arg(long)]
    pub(crate) return_routed_experts: bool,
    /// The LoRA adapters that requests use; the warm-up uses the first.
    #[arg(long, num_args = 1.., action = ArgAction::Set, value_name = "NAME")]
    pub(crate) lora_name: Option<Vec<String>>,
    /// How adapters are assigned to requests; `uniform` by default.
    #[arg(long, value_enum)]
    pub(crate) lora_request_distribution: Option<LoraDistribution>,
    /// With `skewed`: the probability of an adapter divided by that of the next adapter. It must be above 1;
    /// 1.5 by default.
    #[arg(long, value_name = "ALPHA")]
    pub(crate) lora_zipf_alpha: Option<f64>,
    /// Send the fields with which a decode server runs without a prefill server (`bootstrap_host`, `bootstrap_room`).
    #[arg(long)]
    pub(crate) fake_prefill: bool,
}

/// How adapters are assigned to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoraDistribution {
    Uniform,
    Distinct,
    Skewed,
}

/// Prefixes of `--request-rate` that the fork's `--request-rate-range` would make ambiguous.
const REQUEST_RATE_PREFIXES: [&str; 9] = [
    "req",
    "requ",
    "reque",
    "reques",
    "request",
    "request-",
    "request-r",
    "request-ra",
    "request-rat",
];

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Execution")]
pub(crate) struct ExecutionArgs {
    /// Requests per second; `inf` sends all requests at once. Several rates are measured one after another.
    #[arg(long, num_args = 1.., action = ArgAction::Set, default_value = "inf", value_name = "RATE", aliases = REQUEST_RATE_PREFIXES)]
    pub(crate) request_rate: Vec<RequestRate>,
    /// With `--rules classic`: measure each rate of `--request-rate-range`, one after another.
    #[arg(long)]
    pub(crate) multi: bool,
    /// The rates of `--multi`. Three numbers are the first rate, the end (excluded) and the step. Fewer or more numbers
    /// are a list of rates. 2,34,2 by default.
    #[arg(long, value_name = "RATES")]
    pub(crate) request_rate_range: Option<String>,
    /// The largest number of requests in flight; 0 for no limit. Several values are measured one after another.
    #[arg(long, num_args = 1.., action = ArgAction::Set, value_name = "COUNT", aliases = ["ma", "max", "max-"])]
    pub(crate) max_concurrency: Option<Vec<u32>>,
    /// The largest number of sessions or conversations in progress at the same time, pauses included; no limit by
    /// default.
    #[arg(long, value_name = "COUNT", value_parser = dataset_options::parse_count)]
    pub(crate) max_sessions: Option<NonZeroU32>,
    /// The pause between the turns of a session or conversation: `recorded`, `2s`, `exponential:2s` (mean) or
    /// `lognormal:2s:0.6` (median, sigma). By default, sessions of the data set `agentic-sessions` have
    /// their recorded pauses, and conversations of other data sets have no pauses.
    #[arg(long, value_name = "PAUSE")]
    pub(crate) think_time: Option<ThinkTime>,
    /// The longest pause within sessions and conversations; longer pauses are shortened to it. No limit by default.
    #[arg(long, value_name = "TIME")]
    pub(crate) max_idle: Option<HumanDuration>,
    /// The number of requests before the measurement; 1 by default.
    #[arg(long, value_name = "COUNT")]
    pub(crate) warmup_requests: Option<u32>,
    /// Send no request before the measurement.
    #[arg(long)]
    pub(crate) disable_warmup: bool,
    /// Reset the prefix cache after the warm-up.
    #[arg(long)]
    pub(crate) flush_cache: bool,
    /// Timeout of the cache reset, in seconds. If the reset takes longer, the bench ends with an error.
    #[arg(long, default_value_t = 60.0, value_name = "SECONDS")]
    pub(crate) flush_cache_timeout: f64,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputArgs {
    /// The file to which the result line is appended; by default a file in the current folder, named after backend, date and load.
    #[arg(long, value_name = "FILE")]
    pub(crate) output_file: Option<PathBuf>,
    /// Add lists with the values of every request to the result line.
    #[arg(long)]
    pub(crate) output_details: bool,
    /// The SLO of a good request, in milliseconds, such as `ttft:500 tpot:50 e2el:3000`.
    #[arg(long, num_args = 1.., action = ArgAction::Set, value_name = "KEY:MS")]
    pub(crate) goodput: Option<Vec<String>>,
    /// With the backend `sglang-oai-chat`: print a line for the start and the end of each request, after all requests have ended.
    #[arg(long)]
    pub(crate) print_requests: bool,
    /// Plot, for each second of the measurement, the number of output tokens and the number of concurrent requests.
    #[arg(long)]
    pub(crate) plot_throughput: bool,
    /// Report how many prompt tokens were in the prefix cache.
    #[arg(long, aliases = ["c", "ca"])]
    pub(crate) cache_report: bool,
    /// Do not draw a progress bar.
    #[arg(long)]
    pub(crate) disable_tqdm: bool,
    /// A text that is copied into the result line.
    #[arg(long)]
    pub(crate) tag: Option<String>,
}

/// Flags of the Python tool that are not supported.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Unsupported flags of the Python tool")]
pub(crate) struct UnsupportedArgs {
    #[arg(long, hide = true)]
    pub(crate) rust_client: bool,
    #[arg(long, hide = true)]
    pub(crate) rust_worker_threads: Option<String>,
}

/// The name of a value on the command line.
pub(crate) fn arg_name(value: &impl ValueEnum) -> String {
    let value = value.to_possible_value().expect("no value is skipped");
    value.get_name().to_owned()
}

impl UnsupportedArgs {
    /// An error with the reason for each of these flags that was given.
    pub(crate) fn refusals(&self) -> Vec<String> {
        let rust = "`matrix bench` is always a client written in Rust, and it draws the same random values as the Python tool";
        let known = [
            (self.rust_client, "rust-client", rust),
            (self.rust_worker_threads.is_some(), "rust-worker-threads", rust),
        ];
        let given = known.into_iter().filter(|(is_given, ..)| *is_given);
        given
            .map(|(_, flag, why)| format!("`--{flag}` is not supported: {why}"))
            .collect()
    }
}

#[cfg(test)]
mod python_flags;

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(args: &[&str]) -> Result<BenchArgs, clap::Error> {
        let all = ["matrix", "bench"].iter().chain(args);
        match Cli::try_parse_from(all)?.command {
            Command::Bench(args) => Ok(*args),
            _ => panic!("`bench` is a command"),
        }
    }

    #[test]
    fn defaults_are_those_of_the_python_tool() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.server.backend, Backend::Sglang);
        assert_eq!(args.server.host, "0.0.0.0");
        assert_eq!(args.dataset.dataset_name, DatasetName::Sharegpt);
        assert_eq!(args.dataset.num_prompts, 1000);
        assert_eq!(args.execution.request_rate, [RequestRate::INFINITE]);
        assert_eq!(args.profiler.profile_activities, [Activity::Cpu, Activity::Gpu]);
        assert!(args.unsupported.refusals().is_empty());
    }

    #[test]
    fn unique_prefixes_equal_signs_and_lists_are_taken_as_in_python() {
        let args = parse(&[
            "--backend=vllm-chat",
            "--dataset-name",
            "longbench_v2",
            "--random-input",
            "1024",
            "--random-output=128",
            "--num-prompt",
            "10",
            "--logprob-start-len",
            "-1",
            "--goodput",
            "ttft:500",
            "tpot:50",
            "--header",
            "A=1",
            "B=2",
            "--lora-name",
            "a",
            "--profile",
            "--profile-activities",
            "CUDA_PROFILER",
            "--request-rate",
            "4",
        ])
        .unwrap();
        assert_eq!(args.server.backend, Backend::VllmChat);
        assert_eq!(args.dataset.dataset_name, DatasetName::LongbenchV2);
        assert_eq!(
            (args.dataset.random_input_len, args.dataset.random_output_len),
            (Some(1024), Some(128))
        );
        assert_eq!(args.dataset.num_prompts, 10);
        assert_eq!(args.output.goodput.unwrap(), ["ttft:500", "tpot:50"]);
        assert_eq!(args.server.header, ["A=1", "B=2"]);
        assert!(args.profiler.profile);
        assert_eq!(args.profiler.profile_activities, [Activity::CudaProfiler]);
        assert_eq!(args.execution.request_rate[0].per_second(), 4.0);
    }

    #[test]
    fn the_last_of_two_wins_as_in_python() {
        let args = parse(&[
            "--num-prompts",
            "1",
            "--num-prompts",
            "2",
            "--lora-name",
            "a",
            "b",
            "--lora-name",
            "c",
        ]);
        let args = args.unwrap();
        assert_eq!(args.dataset.num_prompts, 2);
        assert_eq!(args.sampling.lora_name.unwrap(), ["c"]);
    }

    #[test]
    fn an_ambiguous_prefix_and_an_unknown_flag_are_refused() {
        assert!(parse(&["--random", "1"]).is_err());
        assert!(parse(&["--no-such-flag"]).is_err());
        assert!(parse(&["--request-rate", "0"]).is_err());
    }

    #[test]
    fn what_is_known_and_not_supported_is_refused_with_its_reason() {
        let args = parse(&["--rust-client", "--rust-worker-threads", "4"]).unwrap();
        let refusals = args.unsupported.refusals();
        assert_eq!(refusals.len(), 2);
        assert!(refusals[0].contains("written in Rust"), "{refusals:?}");
    }
}
