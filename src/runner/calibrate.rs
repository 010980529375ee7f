//! Measures the client's error against the simulated engine, which runs in a separate process and records the
//! true times.

use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::analysis::calibration::{self, Truth};
use crate::base::clock;
use crate::base::units::HumanDuration;
use crate::config::scenario::Limits;
use crate::config::template::Template;
use crate::engine::{self, Logs, RunningEngine, StartContext};
use crate::loadgen::{self, Address, Content, Headers, LoadResult, LoadSpec, PlannedRequest, Target};
use crate::plan::{Api, Engine, ExecutorSpec, Launch, Measurement, Plan, Process, Protocol, Start, Timeouts};
use crate::results::record::client::{ArrivalUncertainty, Calibration, ClientFacts, Flood, Point, SendLag};
use crate::results::record::machine::Machine;
use crate::results::store::{self, Store};
use crate::runner::context::HostEnv;
use crate::runner::shutdown::Shutdown;

/// Start index of the flood's launch; it gives that launch a log of its own.
const FLOOD_START: u32 = 1000;
/// Name of the launch, which is also the folder of its logs.
const LAUNCH_NAME: &str = "calibration";
/// TTFT of the simulated engine, in ms.
const TTFT_MS: u32 = 200;
/// Flag of the simulated engine that makes it record the times of its answers.
const TRUTH_FLAG: &str = "--truth";
/// Times between tokens that are measured before a run, in ms.
pub(crate) const GAPS_MS: [u32; 3] = [20, 5, 1];
/// Event rate per second that a simulated engine on the same host can hold.
const MAX_EVENTS_PER_S: u32 = 20_000;
/// Tokens of one flood, over all streams. Test builds are ten times slower, and one pass over as many tokens
/// would count as a pause.
const FLOOD_TOKENS: u32 = if cfg!(debug_assertions) { 40_000 } else { 400_000 };
/// Timeout for the simulated engine to report the times of answered requests.
const TRUTH_TIMEOUT: Duration = Duration::from_secs(2);
/// Largest number of streams that is measured before a run.
const MAX_STREAMS: u32 = 1024;
/// Attempts at a load in which the client was paused, because a host is often busy for only a second or two.
const MAX_TRIES: u32 = 8;
/// Streams of a flood.
const FLOOD_STREAMS: u32 = 64;

/// What a calibration measures.
#[derive(Clone, Debug)]
pub(crate) struct CalibrationRequest {
    /// Numbers of streams, in any order.
    pub streams: Vec<u32>,
    /// Times between tokens in any order, in ms. The longest is measured with every number of streams, the
    /// others with the largest number that a simulated engine can serve.
    pub gaps_ms: Vec<u32>,
    /// Tokens of each stream, at least 2.
    pub tokens: u32,
    /// Whether to measure the highest token rate of the client.
    pub flood: bool,
}

/// Measures the client on this host; `None` if the run was asked to stop. The simulated engine's log goes to
/// `store`.
pub(crate) async fn calibrate(
    host: &HostEnv,
    store: &Store,
    request: &CalibrationRequest,
    shutdown: &Shutdown,
) -> Result<Option<Calibration>, String> {
    let mut streams = request.streams.clone();
    streams.sort_unstable();
    streams.dedup();
    let max_streams = streams.last().copied().unwrap_or(1);
    let mut gaps = request.gaps_ms.clone();
    gaps.sort_unstable_by(|one, other| other.cmp(one));
    gaps.dedup();
    let longest = gaps.first().copied();
    let tries = gaps.into_iter().map(|gap_ms| match longest == Some(gap_ms) {
        true => (gap_ms, streams.clone()),
        false => (gap_ms, vec![max_streams.min(MAX_EVENTS_PER_S * gap_ms / 1000)]),
    });
    let mut stamps = None;
    let mut points = Vec::new();
    for (start, (itl_ms, streams)) in (1..).zip(tries) {
        let exact = ReferenceEngine::start_exact(host, store, start, itl_ms).await?;
        let measured = exact
            .measure_points(&streams, request.tokens.max(2), itl_ms, shutdown)
            .await;
        exact.stop().await;
        match measured {
            Ok(measured) => {
                stamps = measured.last().map(|(_, stamp)| *stamp).or(stamps);
                points.extend(measured.into_iter().map(|(point, _)| point));
            }
            Err(_) if shutdown.is_requested() => break,
            Err(error) => return Err(error),
        }
    }
    let mut flood = None;
    if request.flood && !shutdown.is_requested() {
        let server = ReferenceEngine::start(host, store, FLOOD_START, &["--flood".to_owned()]).await?;
        let measured = server.measure_flood(shutdown).await;
        server.stop().await;
        flood = Some(measured?);
    }
    if shutdown.is_requested() {
        return Ok(None);
    }
    Ok(Some(Calibration {
        tool: host.machine.tool.clone(),
        machine: machine_identity(&host.machine),
        at: clock::timestamp(),
        timestamp_source: stamps.unwrap_or("user").to_owned(),
        points,
        flood,
    }))
}

/// The numbers of concurrent streams to calibrate for a plan: the smallest, the middle and the largest of its
/// cells.
pub(crate) fn stream_counts(plan: &Plan, todo: &[Start]) -> Vec<u32> {
    let stream_count = |measurement: &Measurement| {
        let scenario = &plan.cell(&measurement.cell).scenario;
        let bound = scenario.arrival.concurrency.map_or(MAX_STREAMS, NonZeroU32::get);
        bound.min(scenario.workload.prompts).clamp(1, MAX_STREAMS)
    };
    let counts: BTreeSet<u32> = todo
        .iter()
        .flat_map(|start| start.cells.iter().map(stream_count))
        .collect();
    let counts: Vec<u32> = counts.into_iter().collect();
    let picked: BTreeSet<u32> = [counts.first(), counts.get(counts.len() / 2), counts.last()]
        .into_iter()
        .flatten()
        .copied()
        .collect();
    picked.into_iter().collect()
}

/// The calibration in the cache folder, if it was made on this host with this version of `matrix`, as given
/// by `machine`.
pub(crate) fn load_saved(cache: &Path, machine: impl FnOnce() -> Machine) -> Option<Calibration> {
    let saved = store::calibration::load(cache)?;
    let machine = machine();
    (saved.tool == machine.tool && saved.machine == machine_identity(&machine)).then_some(saved)
}

/// Text that identifies a host.
fn machine_identity(machine: &Machine) -> String {
    let cpus = machine.cpus.map(|count| format!("{count} CPUs"));
    [
        machine.host.clone(),
        machine.kernel.clone(),
        machine.cpu.clone(),
        cpus,
    ]
    .into_iter()
    .flatten()
    .collect::<Vec<_>>()
    .join(", ")
}

/// A running simulated engine with known timing.
struct ReferenceEngine<'a> {
    running: RunningEngine,
    target: Target,
    host: &'a HostEnv,
    /// Whether it records the times of its answers.
    has_truth: bool,
}

impl<'a> ReferenceEngine<'a> {
    async fn start(host: &'a HostEnv, store: &Store, start: u32, flags: &[String]) -> Result<Self, String> {
        let launch = simulated_launch(flags);
        let port = engine::free_port().map_err(|error| format!("no free port: {error}"))?;
        let context = StartContext {
            run: store.run().clone(),
            start,
            devices: Vec::new(),
            device_names: Vec::new(),
            cpus: None,
            redactor: host.redactor.clone(),
            secrets: Arc::new(|_| None),
            matrix_binary: host.matrix.clone(),
            shim_binary: Some(host.matrix.clone()),
            path: host.path.clone(),
            variable_names: host.environment.clone(),
            hf_home: None,
            cache_dir: host.cache.clone(),
            docker_env: engine::DockerEnv::default(),
            images: Arc::default(),
            unremoved: Arc::default(),
            folder: host.folder.clone(),
            port,
        };
        let logs = || -> Result<Logs, store::StoreError> {
            Ok(Logs {
                engine: store.engine_log(&launch.id, start)?,
                install: store.install_log(&launch.id, start)?,
            })
        };
        let logs = logs().map_err(|error| error.to_string())?;
        let running = engine::start(&launch, &context, logs, &|_| {})
            .await
            .map_err(|error| error.to_string())?;
        let mut this = Self {
            target: Target {
                address: Address::local(port),
                headers: Headers::default(),
                dialect: launch.api.dialect.clone(),
                model: launch.served_model_name.clone(),
            },
            running,
            host,
            has_truth: flags.iter().any(|flag| flag == TRUTH_FLAG),
        };
        let ready = async || Ok(());
        let readiness =
            engine::wait_until_ready(&mut this.running, &launch, &host.http, ready, || None, |_| {}).await;
        match readiness {
            Ok(_) => Ok(this),
            Err(error) => {
                this.stop().await;
                Err(format!("the simulated engine did not become ready: {error}"))
            }
        }
    }

    async fn stop(self) {
        self.running.stop().await;
    }

    /// Starts an engine with this time between tokens that records its times.
    async fn start_exact(host: &'a HostEnv, store: &Store, start: u32, itl_ms: u32) -> Result<Self, String> {
        let timing = [
            format!("--ttft={TTFT_MS}ms"),
            format!("--itl={itl_ms}ms"),
            TRUTH_FLAG.to_owned(),
        ];
        Self::start(host, store, start, &timing).await
    }

    /// Measures a point for each number of streams.
    async fn measure_points(
        &self,
        streams: &[u32],
        tokens: u32,
        itl_ms: u32,
        shutdown: &Shutdown,
    ) -> Result<Vec<(Point, &'static str)>, String> {
        let mut points = Vec::with_capacity(streams.len());
        for streams in streams {
            points.push(self.measure_point(*streams, tokens, itl_ms, shutdown).await?);
        }
        Ok(points)
    }

    /// Measures one point against the engine's times; also returns the source of the timestamps.
    async fn measure_point(
        &self,
        streams: u32,
        tokens: u32,
        itl_ms: u32,
        shutdown: &Shutdown,
    ) -> Result<(Point, &'static str), String> {
        let driven = self.drive_undisturbed(streams, tokens, shutdown).await?;
        let truths = self.fetch_truths(driven.records.len()).await?;
        let deviations = calibration::deviations(&driven.records, &truths);
        let (ttft, itl) =
            deviations.ok_or("the records do not match the times that the simulated engine recorded")?;
        let point = Point {
            streams,
            events_per_s: f64::from(streams) * 1000.0 / f64::from(itl_ms),
            ttft_ms: ttft,
            itl_ms: itl,
            cpu_share: busiest_cpu_share(&driven).unwrap_or(0.0),
            send_lag_p99_ms: driven.lag.map_or(0.0, |lag| lag.p99.as_secs_f64() * 1e3),
        };
        Ok((point, driven.timestamp_source.name()))
    }

    /// Reads the engine's times of `requests` requests, which are complete a moment after its last answer.
    async fn fetch_truths(&self, requests: usize) -> Result<Vec<Truth>, String> {
        let deadline = clock::now().plus(TRUTH_TIMEOUT);
        loop {
            let body = self.fetch_truth(reqwest::Method::GET).await?;
            if body.lines().count() < requests && clock::now() < deadline {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            return body
                .lines()
                .map(serde_json::from_str)
                .collect::<Result<_, _>>()
                .map_err(|error| {
                    format!("the times that the simulated engine recorded cannot be parsed: {error}")
                });
        }
    }

    async fn measure_flood(&self, shutdown: &Shutdown) -> Result<Flood, String> {
        let driven = self
            .drive_undisturbed(FLOOD_STREAMS, FLOOD_TOKENS / FLOOD_STREAMS, shutdown)
            .await?;
        let moments = || {
            driven
                .records
                .iter()
                .flat_map(|request| &request.chunks)
                .map(|chunk| chunk.at_ns)
        };
        let (Some(first), Some(last)) = (moments().min(), moments().max()) else {
            return Err("the flood measurement returned no token".to_owned());
        };
        let rate = moments().count() as f64 * 1e9 / last.saturating_sub(first).max(1) as f64;
        Ok(calibration::judge_flood(
            FLOOD_STREAMS,
            rate,
            busiest_cpu_share(&driven).unwrap_or(0.0),
        ))
    }

    /// Drives a load in which the client was never paused; a pause would not be an error of the client.
    async fn drive_undisturbed(
        &self,
        streams: u32,
        tokens: u32,
        shutdown: &Shutdown,
    ) -> Result<LoadResult, String> {
        let mut longest = Duration::ZERO;
        for _ in 0..MAX_TRIES {
            if self.has_truth {
                self.fetch_truth(reqwest::Method::DELETE).await?;
            }
            let driven = self.drive(streams, tokens, shutdown).await?;
            if driven.lateness.pauses == 0 {
                return Ok(driven);
            }
            if self.has_truth {
                // Read the remaining times now, so that they are not taken for those of the next load.
                self.fetch_truths(driven.records.len()).await?;
            }
            let pause = driven.lateness.longest_pause;
            longest = longest.max(pause);
            tracing::warn!(
                "the measurement of {streams} streams is repeated: the client was stopped or got no CPU time for {:.1} s",
                pause.as_secs_f64()
            );
        }
        Err(format!(
            "the client was stopped or got no CPU time in each of {MAX_TRIES} measurements of {streams} concurrent streams, for up to {:.1} s",
            longest.as_secs_f64()
        ))
    }

    async fn drive(&self, streams: u32, tokens: u32, shutdown: &Shutdown) -> Result<LoadResult, String> {
        let item = PlannedRequest {
            content: Content::Text("The capital of France is".to_owned().into()),
            prompt_tokens: 5,
            requested_tokens: tokens,
            due: Duration::ZERO,
            extras: None,
            lora_adapter: None,
        };
        let load = LoadSpec {
            target: self.target.clone(),
            requests: vec![item; streams as usize],
            concurrency: None,
            limits: Limits::default(),
            body: serde_json::Map::new(),
            stop_at_eos: false,
            sink: None,
            spill: None,
            threads: NonZeroUsize::MIN,
        };
        let driven = loadgen::run_load(load, Arc::default(), shutdown.requested.clone())
            .await
            .map_err(|error| error.to_string())?;
        let failure = driven.records.iter().find_map(|request| request.failure.as_ref());
        match failure {
            Some(failure) => Err(format!(
                "a request to the simulated engine failed: {}: {}",
                failure.class.name(),
                failure.message
            )),
            None => Ok(driven),
        }
    }

    async fn fetch_truth(&self, method: reqwest::Method) -> Result<String, String> {
        let url = self.running.endpoint().url("/sim/truth");
        let response = self
            .host
            .http
            .request(method, url)
            .timeout(Duration::from_secs(30));
        let answered = async { response.send().await?.error_for_status()?.text().await };
        answered
            .await
            .map_err(|error| format!("the times that the simulated engine recorded cannot be read: {error}"))
    }
}

/// Load and errors of the client during a load.
pub(super) fn client_facts(driven: &LoadResult, calibration: Option<&Calibration>) -> ClientFacts {
    let millis = |span: Duration| span.as_secs_f64() * 1e3;
    let longest = driven.threads.iter().map(|effort| effort.longest_pass).max();
    ClientFacts {
        send_lag: driven.lag.map(|lag| SendLag {
            mean_ms: millis(lag.mean),
            p99_ms: millis(lag.p99),
            max_ms: millis(lag.max),
            second_ms: lag.second_latest.map(millis),
            fifth_ms: lag.fifth_latest.map(millis),
        }),
        cpu_share: busiest_cpu_share(driven),
        threads: u32::try_from(driven.threads.len()).unwrap_or(u32::MAX),
        loop_lag_max_ms: longest.map(millis),
        clock_jumps: driven.clock_jumps,
        late: Some(ArrivalUncertainty {
            p90_ms: millis(driven.lateness.p90),
            p99_ms: millis(driven.lateness.p99),
            max_ms: millis(driven.lateness.max),
            events_per_s: driven.lateness.events_per_s as f64,
            pauses: driven.lateness.pauses,
            longest_pause_s: driven.lateness.longest_pause.as_secs_f64(),
        }),
        left_open: driven.left_open,
        error: calibration.and_then(|calibration| {
            let (most, gap) = (
                calibration::peak_concurrency(&driven.records),
                calibration::mean_gap_ms(&driven.records),
            );
            calibration::matching_point(calibration, most, gap)
        }),
    }
}

/// CPU share of the busiest thread, 0 to 1; `None` if nothing was sent.
fn busiest_cpu_share(driven: &LoadResult) -> Option<f64> {
    let share =
        |effort: &loadgen::ThreadUsage| effort.cpu.as_secs_f64() / effort.wall.as_secs_f64().max(1e-9);
    driven.threads.iter().map(share).max_by(f64::total_cmp)
}

/// A launch of the simulated engine that is not part of the plan.
fn simulated_launch(flags: &[String]) -> Launch {
    let mut words = [
        "{matrix}",
        "sim",
        "--model",
        LAUNCH_NAME,
        "--port",
        "{port}",
        "--max-model-len",
        "1000000",
    ]
    .map(Template::new)
    .to_vec();
    words.extend(flags.iter().map(Template::new));
    let engine = Engine {
        title: "Simulated engine".to_owned(),
        simulated: true,
        ..Engine::new(LAUNCH_NAME)
    };
    let process = Process {
        command: words,
        ..Process::default()
    };
    Launch {
        id: crate::base::ids::LaunchId::new(LAUNCH_NAME),
        timeouts: Timeouts {
            start: HumanDuration::from_secs(30),
            stall: HumanDuration::from_secs(30),
            stop: HumanDuration::from_secs(5),
            probe: HumanDuration::from_secs(10),
        },
        ..Launch::new(
            engine,
            LAUNCH_NAME,
            ExecutorSpec::Process(process),
            Api::new(Protocol::Completions),
        )
    }
}
