//! Starts the engine of a launch, waits until it is ready, and stops it.

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock;
use crate::engine::{self, Context, Listener, Logs, Running};
use crate::loadgen::{self, Target};
use crate::plan::{Launch, Start};
use crate::results::record::cell::{EngineFacts, FailureClass, Phase, PhaseTime};
use crate::results::record::event::Event;
use crate::results::store::StoreError;
use crate::runner::context::Job;
use crate::runner::gpu_idle::{self, AtRest, Growth, Watch};
use crate::runner::launch::context::LaunchContext;
use crate::runner::launch::failure::{self, LaunchFailure};
use crate::runner::lease::Lease;
use crate::runner::post_mortem;
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::target;
use crate::runner::telemetry::Sampling;

/// Time for removing a container that could not be removed before.
const ORPHAN: Duration = Duration::from_secs(5);

/// Starts an engine and waits for its first real token; `None` if the run is stopped.
pub(super) async fn start_engine(context: &LaunchContext<'_>) -> Result<Option<ReadyEngine>, LaunchFailure> {
    let LaunchContext {
        job,
        launch,
        start,
        lease,
        stop,
        ..
    } = *context;
    let no_port = |error| LaunchFailure::new(FailureClass::Infrastructure, format!("no free port: {error}"));
    let port = match launch.contact.port.fixed {
        Some(port) => port,
        None => engine::free_port().map_err(no_port)?,
    };
    let exact = context.exact(port);
    job.events.tell(Event::LaunchBegan {
        launch: launch.id.clone(),
        start: start.start,
        command: exact.clone(),
    });
    tokio::select! {
        biased;
        () = stop.asked.cancelled() => return Ok(None),
        alone = no_other_engine(job) => alone?,
    }
    let rest = tokio::select! {
        biased;
        () = stop.asked.cancelled() => return Ok(None),
        rest = gpu_idle::before(job, launch, lease.devices()) => rest,
    };
    let began = clock::now();
    let sampling = Sampling::begin(launch, lease.devices());
    let Some(mut running) = start_process(context, port, &exact).await? else {
        return Ok(None);
    };
    let ready = tokio::select! {
        biased;
        () = stop.asked.cancelled() => {
            stop_engine(context, running, &rest).await;
            return Ok(None);
        }
        ready = wait_ready(job, launch, lease.devices(), &mut running) => ready,
    };
    let ready = match ready {
        Ok(ready) => ready,
        Err(failure) => {
            let log = running.log().clone();
            let image_digest = running.image_digest().map(str::to_owned);
            stop_engine(context, running, &rest).await;
            return Err(LaunchFailure {
                log: log.last(post_mortem::LINES),
                image_digest,
                exact_command: Some(exact),
                ..failure
            });
        }
    };
    let ready = with_telemetry(context, running, ready, exact, sampling, rest).await;
    job.events.tell(Event::EngineReady {
        launch: launch.id.clone(),
        start: start.start,
        seconds: clock::now().since(began).as_secs_f64(),
        version: ready.facts.version.clone(),
    });
    Ok(Some(ready))
}

/// Starts the process or container of an engine; `None` if the run is stopped.
async fn start_process(
    context: &LaunchContext<'_>,
    port: u16,
    exact: &str,
) -> Result<Option<Running>, LaunchFailure> {
    let LaunchContext {
        job,
        launch,
        start,
        lease,
        stop,
        ..
    } = *context;
    let given = engine_context(job, start, lease, port);
    let logs = logs(job, launch, start)
        .map_err(|error| LaunchFailure::new(FailureClass::Infrastructure, error.to_string()))?;
    let tell = |progress: engine::Progress| tell(job, launch, progress);
    let running = tokio::select! {
        biased;
        () = stop.asked.cancelled() => return Ok(None),
        running = engine::start(launch, &given, logs, &tell) => running.map_err(|error| LaunchFailure {
            exact_command: Some(exact.to_owned()),
            ..failure::not_started(&error)
        })?,
    };
    job.events.tell(Event::EngineStarted {
        launch: launch.id.clone(),
        start: start.start,
        identity: running.identity(),
        port: running.endpoint().port,
    });
    Ok(Some(running))
}

/// Creates a ready engine and starts sampling its telemetry.
async fn with_telemetry(
    context: &LaunchContext<'_>,
    running: Running,
    (target, mut facts, phases): Readiness,
    exact: String,
    mut sampling: Sampling,
    rest: Vec<AtRest>,
) -> ReadyEngine {
    let LaunchContext {
        job, launch, lease, ..
    } = *context;
    facts.command = Some(context.planned());
    facts.exact_command = Some(exact).filter(|exact| facts.command.as_ref() != Some(exact));
    facts.image_digest = running.image_digest().map(str::to_owned);
    facts.image_bytes = running.image_bytes();
    facts.devices = lease.devices().to_vec();
    sampling.add_engine(launch, &running, job.host).await;
    sampling.add_devices(job.host.gpus.as_deref(), Watch::of(&running, rest));
    ReadyEngine {
        measured: 0,
        control: running.endpoint().control_client(&job.host.http),
        running,
        target,
        facts,
        phases,
        sampling,
    }
}

/// Fails if an earlier engine of this run could not be stopped and may still run.
pub(super) async fn no_other_engine(job: &Job<'_>) -> Result<(), LaunchFailure> {
    let remaining = job.host.orphans.remove(ORPHAN).await;
    match remaining.iter().find(|orphan| orphan.may_run) {
        None => Ok(()),
        Some(orphan) => Err(LaunchFailure::new(
            FailureClass::Infrastructure,
            format!(
                "an earlier engine of this run may still run, and nothing is measured beside it: {}: {}; remove it with `{}`",
                orphan.what, orphan.reason, orphan.help
            ),
        )),
    }
}

/// Address of a ready engine, its facts, and the phases of its start.
type Readiness = (Target, EngineFacts, Vec<PhaseTime>);

/// Waits for the engine's first real token and reads its facts.
async fn wait_ready(
    job: &Job<'_>,
    launch: &Launch,
    devices: &[u32],
    running: &mut Running,
) -> Result<Readiness, LaunchFailure> {
    let target = target::of(launch, &running.endpoint().base_url, job.host)
        .map_err(|error| LaunchFailure::new(FailureClass::Spec, error.to_string()))?;
    let limit = launch.patience.probe.duration();
    let ask = || async {
        loadgen::probe(&target, limit)
            .await
            .map(|_| ())
            .map_err(|error| failure::no_token(&error, launch))
    };
    let tell = |progress: engine::Progress| tell(job, launch, progress);
    let growth = Growth::default();
    let readiness = tokio::select! {
        biased;
        readiness = engine::ready(running, launch, &job.host.http, ask, || growth.last(), tell) => readiness,
        never = growth.watch(job.host, launch, devices) => match never {},
    };
    let port = running.endpoint().port;
    let readiness = readiness.map_err(|error| failure::not_ready(&error).explained(launch, port))?;
    if let Listener::Stranger(who) = running.listener().await {
        return Err(failure::answered_by(&who, port, launch));
    }
    let control = running.endpoint().control_client(&job.host.http);
    let facts = engine::facts(launch, &control).await;
    engine::check_model(launch, &facts).map_err(|reason| LaunchFailure::new(FailureClass::Spec, reason))?;
    let mut phases = vec![PhaseTime {
        phase: Phase::Launch.name().to_owned(),
        seconds: readiness.seconds,
    }];
    let launch_phases = readiness.phases.into_iter();
    phases.extend(launch_phases.map(|(phase, seconds)| PhaseTime {
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

fn engine_context(job: &Job<'_>, start: &Start, lease: &Lease<'_>, port: u16) -> Context {
    let host = job.host;
    let secrets = host.secrets.clone();
    Context {
        run: host.run.clone(),
        start: start.start,
        devices: lease.devices().to_vec(),
        device_names: host.machine.device_names(lease.devices()),
        // Concurrent launches get separate processors, if the GPUs' NUMA nodes are known.
        cpus: match job.plan.parallel {
            true => host.machine.cpus_near(lease.devices()),
            false => None,
        },
        redactor: host.redactor.clone(),
        secret: Arc::new(move |name| secrets.get(name).cloned()),
        matrix: host.matrix.clone(),
        shim: Some(host.matrix.clone()),
        path: host.path.clone(),
        environment: host.environment.clone(),
        hf_home: host.hf_home.clone(),
        cache: host.cache.clone(),
        whereabouts: host.whereabouts.clone(),
        images: Arc::clone(&host.images),
        orphans: Arc::clone(&host.orphans),
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

/// Stops an engine and waits until its GPUs are free. In an immediate shutdown, dropping the engine kills it.
pub(super) async fn stop_engine(context: &LaunchContext<'_>, running: Running, rest: &[AtRest]) {
    let LaunchContext {
        job,
        launch,
        start,
        stop,
        ..
    } = context;
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
    tokio::select! {
        biased;
        () = stop.now.cancelled() => {}
        () = gpu_idle::after(job, launch, rest) => {}
    }
}
