//! The simulated engine that a calibration measures, and the loads on it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::analysis::calibration::{self, Truth};
use crate::base::clock;
use crate::base::ids::LaunchId;
use crate::base::units::HumanDuration;
use crate::config::scenario::LoadLimits;
use crate::config::template::Template;
use crate::engine::{self, Logs, RunningEngine, StartContext};
use crate::loadgen::{self, Address, Content, Headers, LoadResult, LoadSpec, PlannedRequest, Target};
use crate::plan::{Api, Engine, ExecutorSpec, Launch, Process, Protocol, Timeouts};
use crate::results::record::client::{Flood, Point};
use crate::results::store::{self, Store};
use crate::runner::context::HostEnv;
use crate::runner::shutdown::Shutdown;

/// Name of the launch, which is also the folder of its logs.
const LAUNCH_NAME: &str = "calibration";
/// TTFT of the simulated engine, in ms.
const TTFT_MS: u32 = 200;
/// Flag of the simulated engine that makes it record the times of its answers.
const TRUTH_FLAG: &str = "--truth";
/// Tokens of one flood, over all streams. Test builds are ten times slower, and one pass over as many tokens
/// would count as a pause.
const FLOOD_TOKENS: u32 = if cfg!(debug_assertions) { 40_000 } else { 400_000 };
/// Timeout for the simulated engine to report the times of answered requests.
const TRUTH_TIMEOUT: Duration = Duration::from_secs(2);
/// Attempts at a load in which the client was paused, because a host is often busy for only a second or two.
const MAX_TRIES: u32 = 8;
/// Streams of a flood.
const FLOOD_STREAMS: u32 = 64;

/// A running simulated engine with known timing.
pub(super) struct ReferenceEngine<'a> {
    running: RunningEngine,
    target: Target,
    host: &'a HostEnv,
    /// Whether it records the times of its answers.
    has_truth: bool,
}

impl<'a> ReferenceEngine<'a> {
    pub(super) async fn start(
        host: &'a HostEnv,
        store: &Store,
        start: u32,
        flags: &[String],
    ) -> Result<Self, String> {
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
            path: host.environment.variable("PATH"),
            variable_names: host.environment.names.clone(),
            hf_home: None,
            cache_dir: host.cache.clone(),
            docker_env: engine::DockerEnv::default(),
            images: Arc::default(),
            unremoved: Arc::default(),
            folder: host.folder.clone(),
            port,
            further_ports: Vec::new(),
            job_nodes: Default::default(),
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
                connections: Default::default(),
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

    pub(super) async fn stop(self) {
        self.running.stop().await;
    }

    /// Starts an engine with this time between tokens that records its times.
    pub(super) async fn start_exact(
        host: &'a HostEnv,
        store: &Store,
        start: u32,
        itl_ms: u32,
    ) -> Result<Self, String> {
        let timing = [
            format!("--ttft={TTFT_MS}ms"),
            format!("--itl={itl_ms}ms"),
            TRUTH_FLAG.to_owned(),
        ];
        Self::start(host, store, start, &timing).await
    }

    /// Measures a point for each number of streams.
    pub(super) async fn measure_points(
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
            deviations.ok_or(
                "no request completed, or the number of completed requests differs from the number that the simulated engine recorded",
            )?;
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

    pub(super) async fn measure_flood(&self, shutdown: &Shutdown) -> Result<Flood, String> {
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
            return Err(
                "the measurement of the maximum token rate received no token from the simulated engine"
                    .to_owned(),
            );
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
            "all {MAX_TRIES} measurements of {streams} concurrent streams failed, because the client was stopped or got no CPU time for up to {:.1} s",
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
            sessions: None,
            connections: Default::default(),
            cancel: None,
            limits: LoadLimits::default(),
            body: serde_json::Map::new(),
            stop_at_eos: false,
            sink: None,
            watch: None,
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

/// CPU share of the busiest thread, 0 to 1; `None` if nothing was sent.
pub(super) fn busiest_cpu_share(driven: &LoadResult) -> Option<f64> {
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
        id: LaunchId::new(LAUNCH_NAME),
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
