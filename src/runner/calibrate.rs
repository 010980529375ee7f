//! Measures the client's error against the simulated engine, which runs in a separate process and records the
//! true times.

use std::collections::BTreeSet;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::analysis::calibration::{self, Truth};
use crate::base::clock;
use crate::base::units::Span;
use crate::config::scenario::Limits;
use crate::config::template::Text;
use crate::engine::{self, Context, Logs, Running};
use crate::loadgen::{self, Address, Content, Driven, Headers, Item, Load, Target};
use crate::plan::{Contact, Engine, Launch, Measurement, Patience, Place, Plan, Process, Protocol, Start};
use crate::results::record::client::{Calibration, ClientFacts, Flood, Late, Point, SendLag};
use crate::results::record::machine::Machine;
use crate::results::store::{self, Store};
use crate::runner::context::Host;
use crate::runner::shutdown::Stop;

/// Start index of the flood's launch; it gives that launch a log of its own.
const FLOOD: u32 = 1000;
/// Name of the launch, which is also the folder of its logs.
const NAME: &str = "calibration";
/// TTFT of the simulated engine, in ms.
const TTFT_MS: u32 = 200;
/// Flag of the simulated engine that makes it record the times of its answers.
const TRUTH: &str = "--truth";
/// Times between tokens that are measured before a run, in ms.
pub(crate) const GAPS_MS: [u32; 3] = [20, 5, 1];
/// Event rate per second that a simulated engine on the same host can hold.
const MOST_EVENTS_PER_S: u32 = 20_000;
/// Tokens of one flood, over all streams. Test builds are ten times slower, and one pass over as many tokens
/// would count as a pause.
const FLOOD_TOKENS: u32 = if cfg!(debug_assertions) { 40_000 } else { 400_000 };
/// Timeout for the simulated engine to report the times of answered requests.
const TRUTH_WITHIN: Duration = Duration::from_secs(2);
/// Largest number of streams that is measured before a run.
const MOST: u32 = 1024;
/// Attempts at a load in which the client was paused, because a host is often busy for only a second or two.
const TRIES: u32 = 8;
/// Streams of a flood.
const FLOOD_STREAMS: u32 = 64;

/// What a calibration measures.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
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
    host: &Host,
    store: &Store,
    wanted: &Wanted,
    stop: &Stop,
) -> Result<Option<Calibration>, String> {
    let mut streams = wanted.streams.clone();
    streams.sort_unstable();
    streams.dedup();
    let most = streams.last().copied().unwrap_or(1);
    let mut gaps = wanted.gaps_ms.clone();
    gaps.sort_unstable_by(|one, other| other.cmp(one));
    gaps.dedup();
    let longest = gaps.first().copied();
    let tries = gaps.into_iter().map(|gap_ms| match longest == Some(gap_ms) {
        true => (gap_ms, streams.clone()),
        false => (gap_ms, vec![most.min(MOST_EVENTS_PER_S * gap_ms / 1000)]),
    });
    let mut stamps = None;
    let mut points = Vec::new();
    for (start, (itl_ms, streams)) in (1..).zip(tries) {
        let exact = Yardstick::exact(host, store, start, itl_ms).await?;
        let measured = exact.points(&streams, wanted.tokens.max(2), itl_ms, stop).await;
        exact.stop().await;
        match measured {
            Ok(measured) => {
                stamps = measured.last().map(|(_, stamp)| *stamp).or(stamps);
                points.extend(measured.into_iter().map(|(point, _)| point));
            }
            Err(_) if stop.is_asked() => break,
            Err(error) => return Err(error),
        }
    }
    let mut flood = None;
    if wanted.flood && !stop.is_asked() {
        let server = Yardstick::start(host, store, FLOOD, &["--flood".to_owned()]).await?;
        let measured = server.flood(stop).await;
        server.stop().await;
        flood = Some(measured?);
    }
    if stop.is_asked() {
        return Ok(None);
    }
    Ok(Some(Calibration {
        tool: host.machine.tool.clone(),
        machine: identity(&host.machine),
        at: clock::timestamp(),
        stamps: stamps.unwrap_or("user").to_owned(),
        points,
        flood,
    }))
}

/// The numbers of concurrent streams to calibrate for a plan: the smallest, the middle and the largest of its
/// cells.
pub(crate) fn streams(plan: &Plan, todo: &[Start]) -> Vec<u32> {
    let of = |measurement: &Measurement| {
        let scenario = &plan.cell(&measurement.cell).scenario;
        let bound = scenario.arrival.concurrency.map_or(MOST, NonZeroU32::get);
        bound.min(scenario.workload.prompts).clamp(1, MOST)
    };
    let all: BTreeSet<u32> = todo.iter().flat_map(|start| start.cells.iter().map(of)).collect();
    let all: Vec<u32> = all.into_iter().collect();
    let picked: BTreeSet<u32> = [all.first(), all.get(all.len() / 2), all.last()]
        .into_iter()
        .flatten()
        .copied()
        .collect();
    picked.into_iter().collect()
}

/// The calibration in the cache folder, if it was made on this host with this version of `matrix`, as given
/// by `machine`.
pub(crate) fn kept(cache: &Path, machine: impl FnOnce() -> Machine) -> Option<Calibration> {
    let kept = store::calibration::kept(cache)?;
    let machine = machine();
    (kept.tool == machine.tool && kept.machine == identity(&machine)).then_some(kept)
}

/// Text that identifies a host.
fn identity(machine: &Machine) -> String {
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
struct Yardstick<'a> {
    running: Running,
    target: Target,
    host: &'a Host,
    /// Whether it records the times of its answers.
    has_truth: bool,
}

impl<'a> Yardstick<'a> {
    async fn start(host: &'a Host, store: &Store, start: u32, flags: &[String]) -> Result<Self, String> {
        let launch = launch(flags);
        let port = engine::free_port().map_err(|error| format!("no free port: {error}"))?;
        let context = Context {
            run: store.run().clone(),
            start,
            devices: Vec::new(),
            device_names: Vec::new(),
            cpus: None,
            redactor: host.redactor.clone(),
            secret: Arc::new(|_| None),
            matrix: host.matrix.clone(),
            shim: Some(host.matrix.clone()),
            path: host.path.clone(),
            environment: host.environment.clone(),
            hf_home: None,
            cache: host.cache.clone(),
            whereabouts: engine::Whereabouts::default(),
            images: Arc::default(),
            orphans: Arc::default(),
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
                dialect: launch.contact.dialect.clone(),
                model: launch.served.clone(),
            },
            running,
            host,
            has_truth: flags.iter().any(|flag| flag == TRUTH),
        };
        let ready = async || Ok(());
        let readiness = engine::ready(&mut this.running, &launch, &host.http, ready, || None, |_| {}).await;
        match readiness {
            Ok(_) => Ok(this),
            Err(error) => {
                this.stop().await;
                Err(format!("the simulated engine does not get ready: {error}"))
            }
        }
    }

    async fn stop(self) {
        self.running.stop().await;
    }

    /// Starts an engine with this time between tokens that records its times.
    async fn exact(host: &'a Host, store: &Store, start: u32, itl_ms: u32) -> Result<Self, String> {
        let timing = [
            format!("--ttft={TTFT_MS}ms"),
            format!("--itl={itl_ms}ms"),
            TRUTH.to_owned(),
        ];
        Self::start(host, store, start, &timing).await
    }

    /// Measures a point for each number of streams.
    async fn points(
        &self,
        streams: &[u32],
        tokens: u32,
        itl_ms: u32,
        stop: &Stop,
    ) -> Result<Vec<(Point, &'static str)>, String> {
        let mut points = Vec::with_capacity(streams.len());
        for streams in streams {
            points.push(self.point(*streams, tokens, itl_ms, stop).await?);
        }
        Ok(points)
    }

    /// Measures one point against the engine's times; also returns the source of the timestamps.
    async fn point(
        &self,
        streams: u32,
        tokens: u32,
        itl_ms: u32,
        stop: &Stop,
    ) -> Result<(Point, &'static str), String> {
        let driven = self.drive_undisturbed(streams, tokens, stop).await?;
        let truths = self.truths(driven.requests.len()).await?;
        let deviations = calibration::deviations(&driven.requests, &truths);
        let (ttft, itl) = deviations.ok_or("the requests and the truth do not match")?;
        let point = Point {
            streams,
            events_per_s: f64::from(streams) * 1000.0 / f64::from(itl_ms),
            ttft_ms: ttft,
            itl_ms: itl,
            cpu_share: busiest(&driven).unwrap_or(0.0),
            send_lag_p99_ms: driven.lag.map_or(0.0, |lag| lag.p99.as_secs_f64() * 1e3),
        };
        Ok((point, driven.stamp.name()))
    }

    /// Reads the engine's times of `requests` requests, which are complete a moment after its last answer.
    async fn truths(&self, requests: usize) -> Result<Vec<Truth>, String> {
        let deadline = clock::now().plus(TRUTH_WITHIN);
        loop {
            let told = self.truth(reqwest::Method::GET).await?;
            if told.lines().count() < requests && clock::now() < deadline {
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
            return told
                .lines()
                .map(serde_json::from_str)
                .collect::<Result<_, _>>()
                .map_err(|error| format!("the simulated engine's truth is not understood: {error}"));
        }
    }

    async fn flood(&self, stop: &Stop) -> Result<Flood, String> {
        let driven = self
            .drive_undisturbed(FLOOD_STREAMS, FLOOD_TOKENS / FLOOD_STREAMS, stop)
            .await?;
        let moments = || {
            driven
                .requests
                .iter()
                .flat_map(|request| &request.chunks)
                .map(|chunk| chunk.at_ns)
        };
        let (Some(first), Some(last)) = (moments().min(), moments().max()) else {
            return Err("the flood brought no token".to_owned());
        };
        let rate = moments().count() as f64 * 1e9 / last.saturating_sub(first).max(1) as f64;
        Ok(calibration::flood(
            FLOOD_STREAMS,
            rate,
            busiest(&driven).unwrap_or(0.0),
        ))
    }

    /// Drives a load in which the client was never paused; a pause would not be an error of the client.
    async fn drive_undisturbed(&self, streams: u32, tokens: u32, stop: &Stop) -> Result<Driven, String> {
        let mut longest = Duration::ZERO;
        for _ in 0..TRIES {
            if self.has_truth {
                self.truth(reqwest::Method::DELETE).await?;
            }
            let driven = self.drive(streams, tokens, stop).await?;
            if driven.lateness.pauses == 0 {
                return Ok(driven);
            }
            if self.has_truth {
                // Read the remaining times now, so that they are not taken for those of the next load.
                self.truths(driven.requests.len()).await?;
            }
            let pause = driven.lateness.longest_pause;
            longest = longest.max(pause);
            tracing::warn!(
                "{streams} streams are measured again: the client was stopped, or had no processor, for {:.1} s",
                pause.as_secs_f64()
            );
        }
        Err(format!(
            "the client was stopped, or had no processor, in each of {TRIES} measurements of {streams} streams at once, for {:.1} s at most",
            longest.as_secs_f64()
        ))
    }

    async fn drive(&self, streams: u32, tokens: u32, stop: &Stop) -> Result<Driven, String> {
        let item = Item {
            content: Content::Text("The capital of France is".to_owned().into()),
            prompt_tokens: 5,
            asked_tokens: tokens,
            due: Duration::ZERO,
            extras: None,
            lora: None,
        };
        let load = Load {
            target: self.target.clone(),
            items: vec![item; streams as usize],
            concurrency: None,
            limits: Limits::default(),
            body: serde_json::Map::new(),
            stop_at_eos: false,
            sink: None,
            spill: None,
            threads: NonZeroUsize::MIN,
        };
        let driven = loadgen::drive(load, Arc::default(), stop.asked.clone())
            .await
            .map_err(|error| error.to_string())?;
        let failure = driven
            .requests
            .iter()
            .find_map(|request| request.failure.as_ref());
        match failure {
            Some(failure) => Err(format!(
                "a request to the simulated engine failed: {}: {}",
                failure.class.name(),
                failure.message
            )),
            None => Ok(driven),
        }
    }

    async fn truth(&self, method: reqwest::Method) -> Result<String, String> {
        let url = self.running.endpoint().url("/sim/truth");
        let asked = self
            .host
            .http
            .request(method, url)
            .timeout(Duration::from_secs(30));
        let answered = async { asked.send().await?.error_for_status()?.text().await };
        answered
            .await
            .map_err(|error| format!("the simulated engine does not tell the truth: {error}"))
    }
}

/// Load and errors of the client during a load.
pub(super) fn facts(driven: &Driven, calibration: Option<&Calibration>) -> ClientFacts {
    let millis = |span: Duration| span.as_secs_f64() * 1e3;
    let longest = driven.threads.iter().map(|effort| effort.longest_pass).max();
    ClientFacts {
        send_lag: driven.lag.map(|lag| SendLag {
            mean_ms: millis(lag.mean),
            p99_ms: millis(lag.p99),
            max_ms: millis(lag.max),
            second_ms: lag.second.map(millis),
            fifth_ms: lag.fifth.map(millis),
        }),
        cpu_share: busiest(driven),
        threads: u32::try_from(driven.threads.len()).unwrap_or(u32::MAX),
        loop_lag_max_ms: longest.map(millis),
        clock_jumps: driven.clock_jumps,
        late: Some(Late {
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
                calibration::most_at_once(&driven.requests),
                calibration::mean_gap_ms(&driven.requests),
            );
            calibration::point(calibration, most, gap)
        }),
    }
}

/// CPU share of the busiest thread, 0 to 1; `None` if nothing was sent.
fn busiest(driven: &Driven) -> Option<f64> {
    let share = |effort: &loadgen::Effort| effort.cpu.as_secs_f64() / effort.wall.as_secs_f64().max(1e-9);
    driven.threads.iter().map(share).max_by(f64::total_cmp)
}

/// A launch of the simulated engine that is not part of the plan.
fn launch(flags: &[String]) -> Launch {
    let mut words = [
        "{matrix}",
        "sim",
        "--model",
        NAME,
        "--port",
        "{port}",
        "--max-model-len",
        "1000000",
    ]
    .map(Text::new)
    .to_vec();
    words.extend(flags.iter().map(Text::new));
    let engine = Engine {
        title: "Simulated engine".to_owned(),
        simulated: true,
        ..Engine::new(NAME)
    };
    let process = Process {
        command: words,
        ..Process::default()
    };
    Launch {
        id: crate::base::ids::LaunchId::new(NAME),
        patience: Patience {
            start: Span::seconds(30),
            stall: Span::seconds(30),
            stop: Span::seconds(5),
            probe: Span::seconds(10),
        },
        ..Launch::new(
            engine,
            NAME,
            Place::Process(process),
            Contact::new(Protocol::Completions),
        )
    }
}
