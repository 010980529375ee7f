//! Flags of `matrix sim`.

use std::net::{IpAddr, ToSocketAddrs};
use std::time::Duration;

use clap::Args;

use crate::base::units::HumanDuration;
use crate::cli::named::variant_parser;
use crate::sim::{
    ApiKey, CostModel, Dialect, DieAfter, DisaggregationMode, Faults, MemoryUse, Options, OutOfMemory,
    PRESETS, Preset, Role, Schedule, Timing,
};

mod faults;
mod processes;

use faults::{ProcessFaultArgs, ResponseFaultArgs};
use processes::{RankArgs, RouterArgs};

/// Serve a simulated engine: a real HTTP server without a model or GPU, to try, test and calibrate `matrix`.
///
/// Example: `matrix sim --dialect sglang --preset h100-qwen3-8b --port 30000`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Generation requests are numbered 1, 2, 3 ... in the order in which their bodies are complete; \
                        probes, warm-ups and rejected requests count, health checks do not. \"Every N\" means the \
                        numbers divisible by N. The costs of the presets are invented, rough values."
)]
pub(crate) struct SimArgs {
    /// The engine whose endpoints, responses and metric names are imitated.
    #[arg(long, value_parser = variant_parser::<Dialect>(), default_value = "vllm")]
    dialect: Dialect,
    /// The IP address to listen on, or a host name that resolves to one.
    #[arg(long, default_value = "127.0.0.1", value_parser = parse_host)]
    host: IpAddr,
    /// The port to listen on; 0 chooses a free port, which the log names.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The served model name; may be repeated. The preset's model by default.
    #[arg(long, value_name = "NAME")]
    model: Vec<String>,
    /// The number of GPUs (tensor-parallel size). With more GPUs, the preset is faster and its KV cache is larger.
    #[arg(long, visible_alias = "gpus", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    tp: u32,
    /// A key that requests to `/v1/...` and `/generate` must carry as `Authorization: Bearer KEY`.
    #[arg(long, value_name = "KEY", env = "MATRIX_SIM_API_KEY", hide_env_values = true)]
    api_key: Option<ApiKey>,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    ranks: RankArgs,
    #[command(flatten)]
    router: RouterArgs,
    #[command(flatten)]
    batching: BatchingArgs,
    #[command(flatten)]
    timing: TimingArgs,
    #[command(flatten)]
    faults: ProcessFaultArgs,
    #[command(flatten)]
    response_faults: ResponseFaultArgs,
}

/// What only servers that compute responses have.
#[derive(Args, Clone, Debug)]
struct EngineArgs {
    /// The version that the engine reports.
    #[arg(long, value_name = "VERSION", default_value = "0.0.0-sim")]
    version_string: String,
    /// Leaves out `cached_tokens` (prompt tokens from the prefix cache) in OpenAI responses, like engines that do not report them.
    #[arg(long)]
    hide_cached_tokens: bool,
    /// The quantization that SGLang's server info reports, such as `fp8`; none by default.
    #[arg(long, value_name = "KIND")]
    quantization: Option<String>,
    /// The largest sum of prompt and output tokens of a request. By default the value of the preset, but
    /// at most the size of the KV cache.
    #[arg(long, value_name = "TOKENS")]
    max_model_len: Option<usize>,
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
    /// Serves one part of an engine that computes prompts and outputs on different servers. `prefill` computes prompts.
    /// `decode` receives their KV cache and computes outputs, so that its first token takes one decode step.
    #[arg(long, value_name = "PART", value_parser = variant_parser::<DisaggregationMode>())]
    disaggregation_mode: Option<DisaggregationMode>,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Cost model")]
struct BatchingArgs {
    /// The GPU and model whose speed and memory are imitated; the flags below override single values.
    #[arg(long, default_value = "fast", value_parser = parse_preset)]
    preset: &'static Preset,
    /// Base time of a step, such as `6ms`; the value of the preset by default.
    #[arg(long, value_name = "TIME")]
    step: Option<HumanDuration>,
    /// Time that each decoding request adds to a step, such as `20us`; the value of the preset by default.
    #[arg(long, value_name = "TIME")]
    step_per_sequence: Option<HumanDuration>,
    /// Time that each thousand tokens of context add to a step, such as `45us`; the value of the preset by default.
    #[arg(long, value_name = "TIME")]
    step_per_thousand_context: Option<HumanDuration>,
    /// Prompt tokens computed per second; the value of the preset by default.
    #[arg(long, value_name = "TOKENS_PER_S")]
    prefill_rate: Option<f64>,
    /// The largest number of prompt and output tokens in one step (chunked prefill); the value of the preset by
    /// default.
    #[arg(long, value_name = "TOKENS")]
    step_tokens: Option<usize>,
    /// The size of the KV cache in tokens; the value of the preset by default.
    #[arg(long, value_name = "TOKENS")]
    kv_tokens: Option<usize>,
    /// The number of tokens in one block of the KV cache; the value of the preset by default.
    #[arg(long, value_name = "TOKENS")]
    block_tokens: Option<usize>,
    /// The largest number of concurrent requests; others wait. The value of the preset by default.
    #[arg(long, value_name = "REQUESTS")]
    max_running: Option<usize>,
    /// Turns the prefix cache off.
    #[arg(long)]
    no_prefix_cache: bool,
    /// Computes each prompt in one step. Running requests wait for this step before they get their next tokens: prompts
    /// are computed sooner, and outputs stall. A step must allow at least `--max-model-len` tokens; if the preset
    /// allows fewer, its limit is raised to this number.
    #[arg(long)]
    no_chunked_prefill: bool,
    /// Launches every step operation by operation, without graphs. Each step then takes longer, by 60 % of the preset's
    /// base time, and the memory of the graphs (0.5 GiB by default) is free.
    #[arg(long, conflicts_with = "graph_sequences")]
    no_graphs: bool,
    /// Captures graphs for steps of up to N requests. Steps with more requests run without graphs, and take longer by
    /// 60 % of the preset's base time. For each of the N requests, graphs take 2 MiB of each GPU's memory. By default
    /// all steps use graphs, which take 0.5 GiB.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    graph_sequences: Option<u32>,
    /// The share of each GPU's memory that weights, activations, graphs and the KV cache use: a larger share makes the KV
    /// cache larger. The rest of the memory must have room for 1 GiB and once more the size of the graphs; without it
    /// the engine fails to start.
    #[arg(long, value_name = "SHARE", default_value = "0.9", value_parser = parse_share)]
    memory_share: f64,
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
    /// Random variation of the times of `--ttft` and `--itl` in both directions, as a share such as `30%`. The seed and
    /// the prompt determine this variation.
    #[arg(long, value_name = "SHARE", default_value = "0%", value_parser = parse_share)]
    spread: f64,
    /// Writes all tokens of a request as fast as the socket accepts them.
    #[arg(long)]
    flood: bool,
    /// Collects events of a flood until a write has this many bytes; 0 writes each event separately.
    #[arg(long, value_name = "BYTES", default_value_t = 0, requires = "flood")]
    burst_bytes: usize,
}

/// The address of a host, by itself or by its name.
fn parse_host(text: &str) -> Result<IpAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let mut found = (text, 0).to_socket_addrs().map_err(|error| error.to_string())?;
    found
        .next()
        .map(|socket| socket.ip())
        .ok_or_else(|| "it has no address".to_owned())
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
        let engine = self.engine;
        let is_faulty = self.ranks.has_faults();
        let ranks = self.ranks.into_ranks()?;
        let role = match self.router.into_targets() {
            Some(_) if ranks.is_some() => {
                return Err("a router is a single process; leave out `--nodes`".to_owned());
            }
            Some(_) if !matches!(self.faults.die_after, None | Some(DieAfter::Time(_))) => {
                return Err(
                    "a router counts neither tokens nor requests; write `--die-after` as a time".to_owned(),
                );
            }
            Some(targets) => Role::Router(targets),
            None => engine
                .disaggregation_mode
                .map_or(Role::Engine, Role::Disaggregated),
        };
        let preset = self.batching.preset;
        let out_of_memory = self.batching.out_of_memory();
        let max_model_len = engine.max_model_len;
        let cost = self.batching.cost_model(self.tp, max_model_len)?;
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
            version: engine.version_string,
            quantization: engine.quantization,
            hides_cached: engine.hide_cached_tokens,
            tp: self.tp,
            max_model_len: max_model_len.unwrap_or(preset.max_model_len.min(fits)),
            api_key: self.api_key,
            seed: engine.seed,
            out_of_memory: out_of_memory.filter(|_| exact.is_none()),
            timing: exact.unwrap_or(Timing::Batched(cost)),
            eos_rate: engine.eos_rate,
            merge_chunks: engine.merge_chunks,
            metrics: engine.enable_metrics,
            truth: engine.truth,
            start_delay: self.faults.start_delay.duration(),
            listen_while_loading: self.faults.listen_while_loading,
            role,
            ranks,
            faults: match is_faulty {
                true => self.faults.into_faults(self.response_faults),
                false => Faults::default(),
            },
        };
        options.check().map_err(|fault| fault.to_string())?;
        Ok(options)
    }
}

impl BatchingArgs {
    fn memory(&self) -> MemoryUse {
        let graph_sequences = self.graph_sequences.map(|count| count as usize);
        MemoryUse {
            share: self.memory_share,
            graph_sequences: if self.no_graphs { Some(0) } else { graph_sequences },
        }
    }

    /// The allocation that fails while the engine starts. A KV cache whose size is given does not depend on the memory.
    fn out_of_memory(&self) -> Option<OutOfMemory> {
        let failure = self.preset.out_of_memory(self.memory());
        failure.filter(|_| self.kv_tokens.is_none())
    }

    fn cost_model(&self, gpus: u32, max_model_len: Option<usize>) -> Result<CostModel, String> {
        let cost = self.preset.cost_model_with(gpus, self.memory());
        let mut cost = cost.map_err(|fault| fault.to_string())?;
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
        cost.chunked_prefill = !self.no_chunked_prefill;
        if self.no_chunked_prefill && self.step_tokens.is_none() {
            let longest = max_model_len.unwrap_or(self.preset.max_model_len);
            cost.step_tokens = cost.step_tokens.max(longest);
        }
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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::sim::{FalseHealth, HugeLine, Loading, RankLoss};

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
    fn memory_graphs_and_prefill_can_be_set_like_those_of_engines() {
        let cost = |flags: &str| match options(flags).unwrap().timing {
            Timing::Batched(cost) => cost,
            other => panic!("{other:?}"),
        };
        let usual = cost("--preset h100-qwen3-8b");
        assert!(usual.chunked_prefill && usual.graph_sequences == usize::MAX);
        assert!(cost("--preset h100-qwen3-8b --memory-share 0.95").kv_tokens > usual.kv_tokens);
        assert_eq!(cost("--no-graphs").graph_sequences, 0);
        assert_eq!(cost("--graph-sequences 64").graph_sequences, 64);
        assert!(options("--graph-sequences 64 --no-graphs").is_err());
        let whole = cost("--no-chunked-prefill");
        assert_eq!((whole.chunked_prefill, whole.step_tokens), (false, 32_768));
        assert_eq!(
            cost("--no-chunked-prefill --max-model-len 4096").step_tokens,
            8192
        );
        let error = options("--no-chunked-prefill --step-tokens 2048").unwrap_err();
        assert!(
            error.contains("`--step-tokens` is 2048") && error.contains("`--max-model-len`"),
            "{error}"
        );
    }

    #[test]
    fn too_large_a_share_of_the_memory_fails_at_the_start() {
        let fails = |flags: &str| options(flags).unwrap().out_of_memory.is_some();
        assert!(!fails("") && !fails("--memory-share 93%") && fails("--memory-share 0.95"));
        assert!(!fails("--memory-share 0.95 --no-graphs") && fails("--memory-share 0.97 --no-graphs"));
        assert!(fails("--graph-sequences 1024"), "graphs of 2 GiB");
        assert!(!fails("--memory-share 0.95 --kv-tokens 40000"));
        let error = options("--preset h100-qwen3-32b --memory-share 70%").unwrap_err();
        assert!(error.contains("`--memory-share`"), "{error}");
    }

    #[test]
    fn a_key_does_not_show_in_debug_output() {
        assert!(!format!("{:?}", options("--api-key topsecret")).contains("topsecret"));
    }

    #[test]
    fn ranks_need_the_address_of_their_head() {
        let head = "--head-host node1 --head-port 29500";
        assert_eq!(options("--nodes 1").unwrap().ranks, None);
        assert_eq!(options(head).unwrap().ranks, None);
        let ranks = options(&format!("--nodes 2 --node-rank 1 {head} --rank-loss hang")).unwrap();
        let ranks = ranks.ranks.unwrap();
        assert_eq!((ranks.nodes, ranks.node_rank), (2, 1));
        assert_eq!((ranks.head_host.as_str(), ranks.head_port), ("node1", 29500));
        assert_eq!(ranks.rank_loss, RankLoss::Hang);
        assert_eq!(ranks.join_timeout, Duration::from_secs(600));
        for (flags, part) in [
            ("--nodes 2", "`--nodes 2` needs `--head-host`"),
            ("--nodes 2 --head-host h", "`--nodes 2` needs `--head-port`"),
            ("--node-rank 1", "`--node-rank` is 1, but `--nodes` is 1"),
            ("--nodes 2 --node-rank 2", "use at most 1"),
            ("--nodes 2 --fault-rank 2", "`--fault-rank` is 2"),
            ("--nodes 0", "0 is not in"),
            ("--head-port 0", "0 is not in"),
        ] {
            let error = options(flags).unwrap_err();
            assert!(error.contains(part), "{flags}: {error}");
        }
    }

    #[test]
    fn faults_can_be_those_of_one_rank() {
        let flags =
            "--nodes 2 --head-host h --head-port 1 --fault-rank 1 --die-after 1s --http-error-every 2";
        assert_eq!(options(flags).unwrap().faults, Faults::default());
        let faults = options(&format!("{flags} --node-rank 1")).unwrap().faults;
        assert_eq!(faults.die_after, Some(DieAfter::Time(Duration::from_secs(1))));
        assert_eq!(faults.http_error_every, Some(2));
    }

    #[test]
    fn a_router_takes_servers_and_refuses_what_it_does_not_compute() {
        let servers = "--router --prefill http://a:1 --decode http://b:2 --decode http://c:3";
        let Role::Router(targets) = options(&format!("{servers} --model m --tp 2 --die-after 1s"))
            .unwrap()
            .role
        else {
            panic!("it is a router");
        };
        let names =
            |urls: &[crate::sim::UpstreamUrl]| urls.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(&targets.prefill), ["http://a:1"]);
        assert_eq!(names(&targets.decode), ["http://b:2", "http://c:3"]);
        for flag in [
            "--step 1ms",
            "--flood",
            "--http-error-every 1",
            "--eos-rate 0.5",
            "--disaggregation-mode decode",
        ] {
            let error = options(&format!("{servers} {flag}")).unwrap_err();
            let name = flag.split(' ').next().unwrap();
            assert!(
                error.contains("'--router' cannot be used with") && error.contains(name),
                "{error}"
            );
        }
        for (flags, part) in [
            ("--router --prefill http://a:1", "--decode"),
            ("--router --decode http://a:1", "--prefill"),
            ("--prefill http://a:1", "--router"),
            (
                "--router --prefill a:1 --decode http://b:2",
                "did you mean `http://a:1`?",
            ),
            (&format!("{servers} --die-after 3requests"), "as a time"),
            (
                &format!("{servers} --nodes 2 --head-host h --head-port 1"),
                "a router is a single process",
            ),
        ] {
            let error = options(flags).unwrap_err();
            assert!(error.contains(part), "{flags}: {error}");
        }
    }

    #[test]
    fn parts_of_an_engine_have_the_names_of_sglang() {
        let role = |flags: &str| options(flags).unwrap().role;
        assert_eq!(role(""), Role::Engine);
        let decode = role("--disaggregation-mode decode");
        assert_eq!(decode, Role::Disaggregated(DisaggregationMode::Decode));
        let prefill = role("--disaggregation-mode prefill --nodes 2 --head-host h --head-port 1");
        assert_eq!(prefill, Role::Disaggregated(DisaggregationMode::Prefill));
    }
}
