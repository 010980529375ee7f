//! Flags of `matrix sim`.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;

use crate::base::units::{Bytes, HumanDuration};
use crate::cli::named::variant_parser;
use crate::sim::{
    ApiKey, Dialect, DieAfter, FalseHealth, Faults, HugeLine, Loading, Options, PRESETS, Preset, Schedule,
    Timing,
};

/// Serve a simulated engine: a real HTTP server without a model or GPU, to try, test and calibrate `matrix`.
///
/// Example: `matrix sim --dialect sglang --preset h100-qwen3-8b --port 30000`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Generation requests are numbered 1, 2, 3 ... in the order in which their bodies are complete; \
                        probes, warm-ups and rejected requests count, health checks do not. \"Every N\" means the \
                        numbers divisible by N. The costs of the presets are rough, invented to be plausible."
)]
pub(crate) struct SimArgs {
    /// The engine whose endpoints, responses and metric names are imitated.
    #[arg(long, value_parser = variant_parser::<Dialect>(), default_value = "vllm")]
    dialect: Dialect,
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    host: IpAddr,
    /// The port to listen on; 0 chooses a free port, which the log names.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The served model name; may be repeated. The preset's model by default.
    #[arg(long, value_name = "NAME")]
    model: Vec<String>,
    /// The version that the engine reports.
    #[arg(long, value_name = "VERSION", default_value = "0.0.0-sim")]
    version_string: String,
    /// Leaves out `cached_tokens` (prompt tokens from the prefix cache) in OpenAI responses, like engines that do not report them.
    #[arg(long)]
    hide_cached_tokens: bool,
    /// The quantization that SGLang's server info reports, such as `fp8`; none by default.
    #[arg(long, value_name = "KIND")]
    quantization: Option<String>,
    /// The number of GPUs (tensor-parallel size): makes the preset faster and its KV cache larger.
    #[arg(long, visible_alias = "gpus", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    tp: u32,
    /// The largest sum of prompt and output tokens of a request. By default the preset's, but at most the size of the KV cache.
    #[arg(long, value_name = "TOKENS")]
    max_model_len: Option<usize>,
    /// A key that requests to `/v1/...` and `/generate` must carry as `Authorization: Bearer KEY`.
    #[arg(long, value_name = "KEY", env = "MATRIX_SIM_API_KEY", hide_env_values = true)]
    api_key: Option<ApiKey>,
    /// Seed of all random draws.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Turns on `/metrics` of SGLang, which is off by default; the other dialects always serve their metrics.
    #[arg(long)]
    enable_metrics: bool,
    /// Serves the server's own timestamps of every finished request at `GET /sim/truth`, as JSON lines; `DELETE` removes
    /// them.
    #[arg(long)]
    truth: bool,
    /// The probability, from 0 to 1, that a token ends the output, if the request does not set `ignore_eos`.
    #[arg(long, value_name = "CHANCE", default_value_t = 0.0)]
    eos_rate: f64,
    /// The average number of tokens per event while another request is in flight; 1 merges no tokens.
    #[arg(long, value_name = "TOKENS", default_value_t = 1)]
    merge_chunks: u32,

    #[command(flatten)]
    batching: BatchingArgs,
    #[command(flatten)]
    timing: TimingArgs,
    #[command(flatten)]
    faults: FaultArgs,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cost model")]
struct BatchingArgs {
    /// The GPU and model whose costs are imitated; the flags below override single costs.
    #[arg(long, default_value = "fast", value_parser = parse_preset)]
    preset: &'static Preset,
    /// Base time of a step, such as `6ms`; the preset's by default.
    #[arg(long, value_name = "TIME")]
    step: Option<HumanDuration>,
    /// Time that each decoding request adds to a step, such as `20us`; the preset's by default.
    #[arg(long, value_name = "TIME")]
    step_per_sequence: Option<HumanDuration>,
    /// Time that each thousand tokens of context add to a step, such as `45us`; the preset's by default.
    #[arg(long, value_name = "TIME")]
    step_per_thousand_context: Option<HumanDuration>,
    /// Prompt tokens computed per second; the preset's by default.
    #[arg(long, value_name = "TOKENS_PER_S")]
    prefill_rate: Option<f64>,
    /// The largest number of prompt and output tokens in one step (chunked prefill); the preset's by default.
    #[arg(long, value_name = "TOKENS")]
    step_tokens: Option<usize>,
    /// The size of the KV cache in tokens; the preset's by default.
    #[arg(long, value_name = "TOKENS")]
    kv_tokens: Option<usize>,
    /// The number of tokens in one block of the KV cache; the preset's by default.
    #[arg(long, value_name = "TOKENS")]
    block_tokens: Option<usize>,
    /// The largest number of concurrent requests; others wait. The preset's by default.
    #[arg(long, value_name = "REQUESTS")]
    max_running: Option<usize>,
    /// Turns the prefix cache off.
    #[arg(long)]
    no_prefix_cache: bool,
    /// Random variation of each step's time in both directions, as a share such as `5%`.
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = parse_share)]
    jitter: f64,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Exact timing instead of the cost model")]
struct TimingArgs {
    /// The time from the first byte of a request to its first token, such as `200ms`, at any load.
    #[arg(long, value_name = "TIME", requires = "itl", conflicts_with = "flood")]
    ttft: Option<HumanDuration>,
    /// The time from each token to the next, such as `20ms`.
    #[arg(long, value_name = "TIME", requires = "ttft")]
    itl: Option<HumanDuration>,
    /// Variation of each of these times in both directions, as a share such as `30%`; seed and prompt determine it.
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = parse_share)]
    spread: f64,
    /// Writes all tokens of a request as fast as the socket accepts them.
    #[arg(long)]
    flood: bool,
    /// Collects events of a flood until a write has this many bytes; 0 writes each event separately.
    #[arg(long, value_name = "BYTES", default_value_t = 0, requires = "flood")]
    burst_bytes: usize,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Injected faults")]
struct FaultArgs {
    /// Duration of loading, such as `3s`; connections are refused until it ends.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    start_delay: HumanDuration,
    /// Accepts connections while loading and responds with status 503.
    #[arg(long)]
    listen_while_loading: bool,
    /// Exits with status 1 and resets all connections: at a time since the start (`200ms`), once that many tokens were
    /// written (`40tokens`), or once that many generation requests have ended (`3requests`).
    #[arg(long, value_name = "WHEN")]
    die_after: Option<DieAfter>,
    /// Exits with status 1 while loading, after this time; loading does not end before.
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "0s", conflicts_with = "hang_while_loading")]
    die_while_loading: Option<HumanDuration>,
    /// Never ends loading the model.
    #[arg(long)]
    hang_while_loading: bool,
    /// Responds to nothing after N generation requests; connections are still accepted, and streams in progress end.
    #[arg(long, value_name = "N")]
    hang_after: Option<u64>,
    /// Stops listening once N generation requests have arrived; open connections end with their response.
    #[arg(long, value_name = "N")]
    refuse: Option<u64>,
    /// Ends every N-th stream halfway with an error event.
    #[arg(long, value_name = "N")]
    error_event_every: Option<u64>,
    /// Cuts every N-th response inside a chunk and closes the connection.
    #[arg(long, value_name = "N")]
    half_stream_every: Option<u64>,
    /// Writes invalid data in the middle of every N-th stream.
    #[arg(long, value_name = "N")]
    garbage_every: Option<u64>,
    /// Writes one huge line in the middle of every N-th stream; `--huge-line-bytes` is its size.
    #[arg(long, value_name = "N")]
    huge_line_every: Option<u64>,
    /// The size of the line of `--huge-line-every`, such as `32MiB`.
    #[arg(long, value_name = "SIZE", default_value = "32MiB")]
    huge_line_bytes: Bytes,
    /// Never ends every N-th stream: tokens continue beyond the requested number.
    #[arg(long, value_name = "N")]
    endless_stream_every: Option<u64>,
    /// Responds to every N-th generation request with status 500.
    #[arg(long, value_name = "N")]
    http_error_every: Option<u64>,
    /// Reports good health although generation requests get no response (`hang`) or a response without a token (`empty`).
    #[arg(long, value_parser = variant_parser::<FalseHealth>(), value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "hang")]
    lying_health: Option<FalseHealth>,
    /// Reports success for a cache reset but resets nothing.
    #[arg(long)]
    fake_reset: bool,
    /// Ends every output after this share of the requested tokens, such as `50%`, although `ignore_eos` is set.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    early_end: Option<f64>,
    /// Writes additional tokens, as a share of the requested number, such as `100%`.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    extra_output: Option<f64>,
    /// Reads and reports only the first N tokens of each prompt.
    #[arg(long, value_name = "N")]
    truncate_prompts: Option<usize>,
    /// Repeats the same token in every output.
    #[arg(long)]
    same_token: bool,
    /// Generates requests to their end although their clients disconnected.
    #[arg(long)]
    ignore_disconnects: bool,
    /// Makes this share of the JSON answers and tool calls wrong, such as `10%`: text before the JSON, a missing end, or another type or tool.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    wrong_answers: Option<f64>,
    /// Reports no token counts.
    #[arg(long)]
    hide_usage: bool,
    /// Reports the requested number of output tokens, whatever number was written.
    #[arg(long)]
    claim_full_length: bool,
    /// Serves the model under another name than that of `--model`.
    #[arg(long)]
    wrong_model: bool,
    /// Lists another model name at `/v1/models` after N generation requests.
    #[arg(long, value_name = "N")]
    rename_after: Option<u64>,
    /// Resets all metrics to 0 after N generation requests, like an engine that was restarted.
    #[arg(long, value_name = "N")]
    forget_metrics_after: Option<u64>,
    /// Does not respond to `/metrics` after N generation requests.
    #[arg(long, value_name = "N")]
    hang_metrics_after: Option<u64>,
    /// Keeps running after a SIGTERM.
    #[arg(long)]
    ignore_sigterm: bool,
    /// Leaves a child process in the same process group, which runs for ten minutes.
    #[arg(long)]
    leak_child: bool,
    /// Writes this much to the log when the engine is ready, such as `1GB`, as fast as possible.
    #[arg(long, value_name = "SIZE")]
    log_flood: Option<Bytes>,
    /// Leaves a file of this size in `/dev/shm`, like engines with shared memory that are killed.
    #[arg(long, value_name = "SIZE")]
    leave_shm: Option<Bytes>,
}

fn parse_preset(name: &str) -> Result<&'static Preset, String> {
    Preset::by_name(name).ok_or_else(|| {
        let names: Vec<_> = PRESETS.iter().map(|preset| preset.name).collect();
        format!(
            "there is no preset of this name; choose one of {}",
            names.join(", ")
        )
    })
}

/// Parses a share: `30%` or `0.3`.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let number = |text: &str| {
        text.trim()
            .parse::<f64>()
            .ok()
            .filter(|number| number.is_finite())
    };
    let share = match text.trim().strip_suffix('%') {
        Some(percent) => number(percent).map(|percent| percent / 100.0),
        None => number(text),
    };
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("`{text}` is not a share; write `30%` or `0.3`, from 0% to 100%"))
}

impl SimArgs {
    /// The options of these flags, or a message for users if the flags contradict each other.
    pub(crate) fn into_options(self) -> Result<Options, String> {
        let preset = self.batching.preset;
        let cost = self.batching.cost_model(self.tp)?;
        let kv_tokens = cost.kv_tokens / cost.block_tokens.max(1) * cost.block_tokens;
        let exact = self.timing.into_timing();
        let fits = if exact.is_some() { usize::MAX } else { kv_tokens };
        let options = Options {
            host: self.host,
            port: self.port,
            dialect: self.dialect,
            models: if self.model.is_empty() {
                vec![preset.model.to_owned()]
            } else {
                self.model
            },
            version: self.version_string,
            quantization: self.quantization,
            hides_cached: self.hide_cached_tokens,
            tp: self.tp,
            max_model_len: self.max_model_len.unwrap_or(preset.max_model_len.min(fits)),
            api_key: self.api_key,
            seed: self.seed,
            timing: exact.unwrap_or(Timing::Batched(cost)),
            eos_rate: self.eos_rate,
            merge_chunks: self.merge_chunks,
            metrics: self.enable_metrics,
            truth: self.truth,
            start_delay: self.faults.start_delay.duration(),
            listen_while_loading: self.faults.listen_while_loading,
            faults: self.faults.into_faults(),
        };
        options.check().map_err(|fault| fault.to_string())?;
        Ok(options)
    }
}

impl BatchingArgs {
    fn cost_model(&self, gpus: u32) -> Result<crate::sim::CostModel, String> {
        let mut cost = self.preset.cost_model(gpus).map_err(|fault| fault.to_string())?;
        let set_time = |time: &mut Duration, flag: Option<HumanDuration>| {
            *time = flag.map_or(*time, HumanDuration::duration)
        };
        let set = |count: &mut usize, flag: Option<usize>| *count = flag.unwrap_or(*count);
        set_time(&mut cost.step, self.step);
        set_time(&mut cost.per_sequence, self.step_per_sequence);
        set_time(&mut cost.per_thousand_context, self.step_per_thousand_context);
        set(&mut cost.step_tokens, self.step_tokens);
        set(&mut cost.kv_tokens, self.kv_tokens);
        set(&mut cost.block_tokens, self.block_tokens);
        set(&mut cost.max_running, self.max_running);
        cost.prefill_rate = self.prefill_rate.unwrap_or(cost.prefill_rate);
        cost.prefix_cache = !self.no_prefix_cache;
        cost.jitter = self.jitter;
        Ok(cost)
    }
}

impl TimingArgs {
    fn into_timing(self) -> Option<Timing> {
        if self.flood {
            return Some(Timing::Flood {
                burst_bytes: self.burst_bytes,
            });
        }
        let (ttft, itl) = (self.ttft?.duration(), self.itl?.duration());
        Some(Timing::Exact(Schedule {
            ttft,
            itl,
            spread: self.spread,
        }))
    }
}

impl FaultArgs {
    fn into_faults(self) -> Faults {
        let bytes = usize::try_from(self.huge_line_bytes.0).unwrap_or(usize::MAX);
        Faults {
            die_after: self.die_after,
            loading: match (self.die_while_loading, self.hang_while_loading) {
                (Some(after), _) => Loading::Dies(after.duration()),
                (None, true) => Loading::Hangs,
                (None, false) => Loading::Ends,
            },
            hang_after: self.hang_after,
            refuse_after: self.refuse,
            error_event_every: self.error_event_every,
            half_stream_every: self.half_stream_every,
            garbage_every: self.garbage_every,
            huge_line: self.huge_line_every.map(|every| HugeLine { every, bytes }),
            endless_stream_every: self.endless_stream_every,
            http_error_every: self.http_error_every,
            false_health: self.lying_health,
            fake_reset: self.fake_reset,
            early_end: self.early_end,
            extra_output: self.extra_output,
            truncate_prompts: self.truncate_prompts,
            same_token: self.same_token,
            ignore_disconnects: self.ignore_disconnects,
            wrong_answers: self.wrong_answers,
            hide_usage: self.hide_usage,
            claim_full_length: self.claim_full_length,
            wrong_model: self.wrong_model,
            rename_after: self.rename_after,
            forget_metrics_after: self.forget_metrics_after,
            hang_metrics_after: self.hang_metrics_after,
            ignore_sigterm: self.ignore_sigterm,
            leak_child: self.leak_child,
            log_flood: self.log_flood.map(|bytes| bytes.0),
            leave_shm: self.leave_shm.map(|size| size.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Sim {
        #[command(flatten)]
        args: SimArgs,
    }

    fn options(flags: &str) -> Result<Options, String> {
        let words = std::iter::once("sim").chain(flags.split_whitespace());
        Sim::try_parse_from(words)
            .map_err(|error| error.to_string())?
            .args
            .into_options()
    }

    #[test]
    fn no_flags_serve_the_fast_preset_as_vllm() {
        let options = options("").unwrap();
        assert_eq!(
            options,
            Options {
                dialect: Dialect::Vllm,
                ..Options::default()
            }
        );
    }

    #[test]
    fn every_preset_can_be_served_on_its_gpu() {
        for preset in &PRESETS {
            options(&format!("--preset {}", preset.name)).unwrap();
        }
        assert!(
            options("--preset h900")
                .unwrap_err()
                .contains("choose one of fast, h100-qwen3-8b")
        );
    }

    #[test]
    fn exact_timing_needs_both_times_and_bears_no_flood() {
        let exact = options("--ttft 200ms --itl 20ms --spread 30%").unwrap().timing;
        let (ttft, itl) = (Duration::from_millis(200), Duration::from_millis(20));
        assert_eq!(
            exact,
            Timing::Exact(Schedule {
                ttft,
                itl,
                spread: 0.3
            })
        );
        assert!(options("--ttft 200ms").is_err());
        assert!(options("--ttft 200ms --itl 20ms --flood").is_err());
        assert_eq!(
            options("--flood --burst-bytes 64").unwrap().timing,
            Timing::Flood { burst_bytes: 64 }
        );
    }

    #[test]
    fn faults_are_read_as_they_are_written() {
        let faults = options("--die-after 40tokens --lying-health=empty --early-end 50% --die-while-loading")
            .unwrap()
            .faults;
        assert_eq!(faults.die_after, Some(DieAfter::Tokens(40)));
        assert_eq!(faults.false_health, Some(FalseHealth::Empty));
        assert_eq!(
            (faults.early_end, faults.loading),
            (Some(0.5), Loading::Dies(Duration::ZERO))
        );
        assert_eq!(
            options("--lying-health").unwrap().faults.false_health,
            Some(FalseHealth::Hang)
        );
        assert!(options("--early-end 150%").is_err());
        let huge = options("--huge-line-every 3").unwrap().faults.huge_line;
        assert_eq!(
            huge,
            Some(HugeLine {
                every: 3,
                bytes: 32 << 20
            })
        );
    }

    #[test]
    fn more_gpus_make_steps_shorter() {
        let step = |flags: &str| match options(flags).unwrap().timing {
            Timing::Batched(cost) => cost.step,
            other => panic!("{other:?}"),
        };
        assert!(step("--preset h100-qwen3-8b --gpus 2") < step("--preset h100-qwen3-8b"));
        assert_eq!(
            step("--preset h100-qwen3-8b --step 3ms"),
            Duration::from_millis(3)
        );
    }

    #[test]
    fn a_key_does_not_show_in_debug_output() {
        assert!(!format!("{:?}", options("--api-key topsecret")).contains("topsecret"));
    }
}
