//! One start: lease, start, ready, cells, stop; always stop.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::base::clock;
use crate::engine::{self, Context, Logs, NotReady, Running, StartError};
use crate::judge::metrics;
use crate::load::{self, Target};
use crate::matrix::plan::{Launch, Measurement, Start, command};
use crate::results::record::cell::{Definitions, Ending, EngineFacts, FailureClass, Phase, PhaseTime};
use crate::results::record::event::Event;
use crate::results::store::StoreError;
use crate::run::cell::{self, Measured, Ready};
use crate::run::lease::Lease;
use crate::run::prompts::Library;
use crate::run::stop::Stop;
use crate::run::{Course, Job, Tally, target};

/// How often an engine that died under load is started again for the cells that remain.
const RESTARTS: u32 = 16;

/// A start that came to nothing: the cells fail with it.
struct Fallen {
    phase: Phase,
    class: FailureClass,
    reason: String,
    tail: Vec<String>,
}

impl Fallen {
    fn new(class: FailureClass, reason: String) -> Self {
        Self {
            phase: Phase::Launch,
            class,
            reason,
            tail: Vec::new(),
        }
    }
}

/// Does one start with all its cells. An engine that dies or hangs under load is started anew for the rest, so that one bad cell
/// never takes the others with it.
pub(crate) async fn launch(
    job: &Job<'_>,
    launch: &Launch,
    start: &Start,
    lease: &Lease<'_>,
    stop: &Stop,
    course: &mut Course,
) -> Result<(), StoreError> {
    let library = &Arc::clone(&course.library);
    let mut rest: VecDeque<&Measurement> = start.cells.iter().collect();
    let mut preparing = prepare(job, launch, start, library);
    for attempt in 0..=RESTARTS {
        if rest.is_empty() || stop.is_asked() {
            break;
        }
        let line = command::line(launch).joined();
        job.events.tell(Event::LaunchBegan {
            launch: launch.id.clone(),
            start: start.start,
            command: line,
        });
        let mut ready = match raise(job, launch, start, lease, stop).await {
            Ok(Some(ready)) => ready,
            Ok(None) => break,
            Err(fallen) => {
                job.events.tell(Event::LaunchFailed {
                    launch: launch.id.clone(),
                    start: start.start,
                    reason: fallen.reason.clone(),
                });
                for measurement in rest.drain(..) {
                    give_up(job, launch, measurement, &fallen, &mut course.tally)?;
                }
                break;
            }
        };
        if attempt == 0 {
            course.ahead.begin(job, start, &ready.running);
        }
        let mut log_from = 0;
        while let Some(measurement) = rest.pop_front() {
            let (began, pulled) = (clock::now(), course.ahead.mark());
            let mut measured = cell::measure(job, launch, measurement, &mut ready, library, stop).await;
            if course.ahead.mark() > pulled {
                let beside = "the image of the next engine was pulled meanwhile";
                measured.summary.warnings.push(beside.to_owned());
            }
            let log = ready.running.log().slice_from(&mut log_from);
            let is_well = measured.engine_is_well;
            keep(
                job,
                measurement,
                measured,
                &log,
                clock::now().since(began).as_secs_f64(),
                &mut course.tally,
            )?;
            if !is_well || stop.is_asked() {
                break;
            }
        }
        halt(job, launch, start, ready.running, stop).await;
        if !rest.is_empty() && !stop.is_asked() {
            let left = RESTARTS - attempt;
            job.events.tell(Event::Warning {
                message: format!(
                    "engine `{}` is started again for {} more cells ({left} restarts left)",
                    launch.engine.name,
                    rest.len()
                ),
            });
        }
    }
    preparing.abort_all();
    let reason = format!("the engine died under load {RESTARTS} times");
    let out_of_restarts = Fallen::new(FailureClass::Engine, reason);
    if !stop.is_asked() {
        for measurement in rest.drain(..) {
            give_up(job, launch, measurement, &out_of_restarts, &mut course.tally)?;
        }
    }
    Ok(())
}

/// Prompts are prepared while the engine loads.
fn prepare(job: &Job<'_>, launch: &Launch, start: &Start, library: &Arc<Library>) -> JoinSet<()> {
    let scenarios: Vec<_> = start
        .cells
        .iter()
        .map(|measurement| job.plan.cell(&measurement.cell).scenario.clone())
        .collect();
    let (library, tokenizer) = (Arc::clone(library), launch.tokenizer.clone());
    let mut preparing = JoinSet::new();
    preparing.spawn(async move {
        for scenario in scenarios {
            // What went wrong is told by the cell that needs it.
            let _ = library.stock(&scenario, &tokenizer).await;
        }
    });
    preparing
}

/// Starts an engine and waits until it gave one real token; `None` where the run was asked to stop meanwhile.
async fn raise(
    job: &Job<'_>,
    launch: &Launch,
    start: &Start,
    lease: &Lease<'_>,
    stop: &Stop,
) -> Result<Option<Ready>, Fallen> {
    let infrastructure = FailureClass::Infrastructure;
    let port = match launch.contact.port.fixed {
        Some(port) => port,
        None => engine::free_port()
            .map_err(|error| Fallen::new(infrastructure, format!("no free port: {error}")))?,
    };
    let context = context(job, start, lease, port);
    let logs = logs(job, launch, start).map_err(|error| Fallen::new(infrastructure, error.to_string()))?;
    let began = clock::now();
    let tell = |progress: engine::Progress| tell(job, launch, progress);
    let running = tokio::select! {
        biased;
        () = stop.asked.cancelled() => return Ok(None),
        running = engine::start(launch, &context, logs, &tell) => running.map_err(|error| not_started(&error))?,
    };
    job.events.tell(Event::EngineStarted {
        launch: launch.id.clone(),
        start: start.start,
        identity: running.identity(),
        port: running.endpoint().port,
    });
    let mut running = running;
    let proved = tokio::select! {
        biased;
        () = stop.asked.cancelled() => {
            halt(job, launch, start, running, stop).await;
            return Ok(None);
        }
        proved = prove(job, launch, &mut running) => proved,
    };
    let (target, mut facts, phases) = match proved {
        Ok(proved) => proved,
        Err(fallen) => {
            halt(job, launch, start, running, stop).await;
            return Err(fallen);
        }
    };
    facts.command = Some(command::line(launch).joined());
    facts.image_digest = running.image_digest().map(str::to_owned);
    facts.image_bytes = running.image_bytes();
    facts.devices = lease.devices().to_vec();
    job.events.tell(Event::EngineReady {
        launch: launch.id.clone(),
        start: start.start,
        seconds: clock::now().since(began).as_secs_f64(),
        version: facts.version.clone(),
    });
    Ok(Some(Ready {
        running,
        target,
        facts,
        phases,
    }))
}

/// Waits for an engine's first real token, and learns what it says of itself.
async fn prove(
    job: &Job<'_>,
    launch: &Launch,
    running: &mut Running,
) -> Result<(Target, EngineFacts, Vec<PhaseTime>), Fallen> {
    let target = target::of(launch, &running.endpoint().base_url, job.host)
        .map_err(|error| Fallen::new(FailureClass::Spec, error.to_string()))?;
    let limit = launch.patience.probe.duration();
    let ask = || async {
        load::probe(&target, limit)
            .await
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    let tell = |progress: engine::Progress| tell(job, launch, progress);
    let readiness = engine::ready(running, launch, &job.host.http, ask, tell)
        .await
        .map_err(|error| not_ready(&error))?;
    let facts = engine::facts(launch, running.endpoint(), &job.host.http).await;
    engine::check_model(launch, &facts).map_err(|reason| Fallen::new(FailureClass::Spec, reason))?;
    let mut phases = vec![PhaseTime {
        phase: Phase::Launch.name().to_owned(),
        seconds: readiness.seconds,
    }];
    let told = readiness.phases.into_iter();
    phases.extend(told.map(|(phase, seconds)| PhaseTime {
        phase: format!("launch/{phase}"),
        seconds,
    }));
    Ok((target, facts, phases))
}

fn tell(job: &Job<'_>, launch: &Launch, progress: engine::Progress) {
    job.events.tell(Event::LaunchProgress {
        launch: launch.id.clone(),
        phase: progress.phase,
        elapsed_s: progress.elapsed.as_secs_f64(),
        last_line: progress.last_line,
    });
}

fn context(job: &Job<'_>, start: &Start, lease: &Lease<'_>, port: u16) -> Context {
    let host = job.host;
    let secrets = host.secrets.clone();
    Context {
        run: host.run.clone(),
        start: start.start,
        devices: lease.devices().to_vec(),
        redactor: host.redactor.clone(),
        secret: Arc::new(move |name| secrets.get(name).cloned()),
        matrix: host.matrix.clone(),
        shim: Some(host.matrix.clone()),
        path: host.path.clone(),
        hf_home: host.hf_home.clone(),
        cache: host.cache.clone(),
        whereabouts: host.whereabouts.clone(),
        images: Arc::clone(&host.images),
        folder: host.folder.clone(),
        port,
    }
}

fn logs(job: &Job<'_>, launch: &Launch, start: &Start) -> Result<Logs, StoreError> {
    Ok(Logs {
        engine: job.store.engine_log(&launch.id, start.start)?,
        install: job.store.install_log(&launch.id, start.start)?,
    })
}

fn not_started(error: &StartError) -> Fallen {
    Fallen {
        phase: error.phase(),
        class: error.class(),
        reason: error.to_string(),
        tail: error.tail(),
    }
}

fn not_ready(error: &NotReady) -> Fallen {
    Fallen {
        phase: Phase::Launch,
        class: error.class(),
        reason: error.to_string(),
        tail: error.tail().to_vec(),
    }
}

/// Stops an engine. Once the run is told to kill, dropping the engine kills what is left of it.
async fn halt(job: &Job<'_>, launch: &Launch, start: &Start, running: Running, stop: &Stop) {
    let stopped = tokio::select! {
        biased;
        () = stop.now.cancelled() => return,
        stopped = running.stop() => stopped,
    };
    job.events.tell(Event::EngineStopped {
        launch: launch.id.clone(),
        start: start.start,
        how: stopped.how,
        shm_freed_bytes: stopped.shm_freed_bytes,
        seconds: stopped.seconds,
    });
}

/// Writes a measurement that could not be made because its engine did not start.
fn give_up(
    job: &Job<'_>,
    launch: &Launch,
    measurement: &Measurement,
    fallen: &Fallen,
    tally: &mut Tally,
) -> Result<(), StoreError> {
    let cell = job.plan.cell(&measurement.cell);
    let facts = EngineFacts {
        command: Some(command::line(launch).joined()),
        ..EngineFacts::default()
    };
    let mut summary = cell::blank(launch, cell, measurement, facts, Vec::new());
    summary.ending = Ending::Failed {
        phase: fallen.phase,
        class: fallen.class,
        reason: fallen.reason.clone(),
        tail: fallen.tail.clone(),
    };
    let log = fallen.tail.join("\n");
    keep(
        job,
        measurement,
        Measured {
            summary,
            requests: Vec::new(),
            engine_is_well: false,
        },
        &log,
        0.0,
        tally,
    )
}

/// Writes a measurement to disk, counts it and tells it.
fn keep(
    job: &Job<'_>,
    measurement: &Measurement,
    measured: Measured,
    log: &str,
    seconds: f64,
    tally: &mut Tally,
) -> Result<(), StoreError> {
    let Measured {
        summary, requests, ..
    } = measured;
    let histograms = metrics::seconds(&requests);
    job.store.write_cell(&summary, &requests, &histograms, log)?;
    let failed = requests.iter().filter(|request| !request.is_completed()).count();
    let bound = job.plan.cell(&measurement.cell).scenario.limits.error_share;
    let reason = match &summary.ending {
        Ending::Done => {
            tally.done += 1;
            tally.above_error_share += usize::from(failed as f64 > bound * requests.len() as f64);
            summary.warnings.first().cloned()
        }
        Ending::Failed { phase, reason, .. } => {
            tally.failed += 1;
            Some(format!("{}: {reason}", phase.name()))
        }
        Ending::Skipped { reason } => {
            tally.skipped += 1;
            Some(reason.clone())
        }
        Ending::Interrupted => {
            tally.interrupted += 1;
            Some("the run was asked to stop".to_owned())
        }
    };
    let throughput = summary
        .figures
        .get(&Definitions::Matrix)
        .and_then(|figures| figures.get("output_throughput_tok_s").copied().flatten());
    job.events.tell(Event::CellEnded {
        measurement: measurement.clone(),
        ending: summary.ending.word().to_owned(),
        reason,
        seconds,
        output_tokens_per_s: throughput,
    });
    Ok(())
}
