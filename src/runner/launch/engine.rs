//! Starts the engine of a launch, waits until it is ready, and stops it.

use std::sync::Arc;
use std::time::Duration;

use crate::base::clock;
use crate::engine::{self, Listener, Logs, RunningEngine, StartContext};
use crate::loadgen::{self, Target};
use crate::plan::{Launch, Ports, Start};
use crate::results::record::cell::{EngineFacts, FailureClass, Phase, PhaseTime};
use crate::results::record::event::Event;
use crate::results::store::StoreError;
use crate::runner::context::RunContext;
use crate::runner::gpu_idle::{self, MemoryGrowth};
use crate::runner::gpu_watch::{GpuBaseline, GpuWatch};
use crate::runner::launch::context::LaunchContext;
use crate::runner::launch::failure::{self, LaunchFailure};
use crate::runner::lease::Lease;
use crate::runner::post_mortem;
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::target;
use crate::runner::telemetry::Sampling;

/// Time for removing a container that could not be removed before.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts an engine and waits for its first real token; `None` if the run is stopped.
pub(super) async fn start_engine(context: &LaunchContext<'_>) -> Result<Option<ReadyEngine>, LaunchFailure> {
    let LaunchContext {
        run_context,
        launch,
        start,
        lease,
        shutdown,
        ..
    } = *context;
    let no_port = |error| LaunchFailure::new(FailureClass::Infrastructure, format!("no free port: {error}"));
    let ports = engine::ports_for(launch).map_err(no_port)?;
    let exact = context.exact_command(&ports);
    run_context.events.emit(Event::LaunchBegan {
        launch: launch.id.clone(),
        start: start.start,
        command: exact.clone(),
    });
    tokio::select! {
        biased;
        () = shutdown.requested.cancelled() => return Ok(None),
        alone = ensure_no_other_engine(run_context) => alone?,
    }
    let sampling = Sampling::begin(run_context, launch, start.start, lease.devices());
    let (rest, busy_elsewhere) = tokio::select! {
        biased;
        () = shutdown.requested.cancelled() => return Ok(None),
        both = async {
            let rest = gpu_idle::wait_until_idle(run_context, launch, lease.devices());
            tokio::join!(rest, sampling.wait_nodes_ready())
        } => both,
    };
    gpu_idle::warn_of_busy(run_context, launch, busy_elsewhere);
    let began = clock::now();
    let Some(mut running) = start_process(context, ports, &exact).await? else {
        return Ok(None);
    };
    let ready = tokio::select! {
        biased;
        () = shutdown.requested.cancelled() => {
            stop_engine(context, running, &rest).await;
            return Ok(None);
        }
        ready = wait_ready(run_context, launch, lease.devices(), &mut running) => ready,
    };
    let ready = match ready {
        Ok(ready) => ready,
        Err(failure) => {
            let log = running.log().clone();
            let image_digest = running.image_digest().map(str::to_owned);
            stop_engine(context, running, &rest).await;
            return Err(LaunchFailure {
                log: log.last_lines(post_mortem::MAX_LOG_LINES),
                image_digest,
                exact_command: Some(exact),
                ..failure
            });
        }
    };
    let ready = with_telemetry(context, running, ready, exact, sampling, rest).await;
    run_context.events.emit(Event::EngineReady {
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
    ports: Ports,
    exact: &str,
) -> Result<Option<RunningEngine>, LaunchFailure> {
    let LaunchContext {
        run_context,
        launch,
        start,
        lease,
        shutdown,
        ..
    } = *context;
    let context_for_engine = engine_context(run_context, start, lease, ports);
    let logs = open_logs(run_context, launch, start)
        .map_err(|error| LaunchFailure::new(FailureClass::Infrastructure, error.to_string()))?;
    let report = |progress: engine::Progress| report_progress(run_context, launch, progress);
    let running = tokio::select! {
        biased;
        () = shutdown.requested.cancelled() => return Ok(None),
        running = engine::start(launch, &context_for_engine, logs, &report) => running.map_err(|error| LaunchFailure {
            exact_command: Some(exact.to_owned()),
            ..failure::start_failure(&error)
        })?,
    };
    run_context.events.emit(Event::EngineStarted {
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
    running: RunningEngine,
    (target, mut facts, phases): Readiness,
    exact: String,
    mut sampling: Sampling,
    rest: Vec<GpuBaseline>,
) -> ReadyEngine {
    let LaunchContext {
        run_context,
        launch,
        lease,
        ..
    } = *context;
    facts.command = Some(context.planned_command());
    facts.exact_command = Some(exact).filter(|exact| facts.command.as_ref() != Some(exact));
    facts.image_digest = running.image_digest().map(str::to_owned);
    facts.image_bytes = running.image_bytes();
    facts.devices = lease.devices().to_vec();
    sampling.add_engine(launch, &running, run_context.host).await;
    sampling.add_devices(run_context.host.gpus.as_deref(), GpuWatch::new(&running, rest));
    ReadyEngine {
        measurement_count: 0,
        control: running.endpoint().control_client(&run_context.host.http),
        other_controls: (running.other_endpoints().iter())
            .chain(running.other_servers().iter().map(|other| &other.endpoint))
            .map(|endpoint| endpoint.control_client(&run_context.host.http))
            .collect(),
        running,
        target,
        facts,
        phases,
        sampling,
    }
}

/// Fails if an earlier engine of this run could not be stopped and may still run.
pub(super) async fn ensure_no_other_engine(run_context: &RunContext<'_>) -> Result<(), LaunchFailure> {
    let remaining = run_context.host.orphans.remove(ORPHAN_TIMEOUT).await;
    match remaining.iter().find(|orphan| orphan.may_run) {
        None => Ok(()),
        Some(orphan) => Err(LaunchFailure::new(
            FailureClass::Infrastructure,
            format!(
                "an earlier engine of this run may still be running, so no other engine is started: {}: {}; remove it with `{}`",
                orphan.description, orphan.reason, orphan.help
            ),
        )),
    }
}

/// Address of a ready engine, its facts, and the phases of its start.
type Readiness = (Target, EngineFacts, Vec<PhaseTime>);

/// Waits for the engine's first real token and reads its facts.
async fn wait_ready(
    run_context: &RunContext<'_>,
    launch: &Launch,
    devices: &[u32],
    running: &mut RunningEngine,
) -> Result<Readiness, LaunchFailure> {
    let target = target::resolve(launch, running, run_context.host)
        .map_err(|error| LaunchFailure::new(FailureClass::Spec, error.to_string()))?;
    let limit = launch.timeouts.probe.duration();
    let targets = target.by_address();
    // A server of several may be ready later than the others.
    let ask = || async {
        for target in &targets {
            let answer = loadgen::probe(target, limit).await;
            answer.map_err(|error| failure::no_token(&error, launch))?;
        }
        Ok(())
    };
    let report = |progress: engine::Progress| report_progress(run_context, launch, progress);
    let growth = MemoryGrowth::default();
    let readiness = tokio::select! {
        biased;
        readiness = engine::wait_until_ready(running, launch, &run_context.host.http, ask, || growth.last(), report) => readiness,
        never = growth.watch(run_context.host, launch, devices) => match never {},
    };
    let port = running.endpoint().port;
    let readiness = readiness.map_err(|error| failure::readiness_failure(&error).explain(launch, port))?;
    if let Listener::OtherProcess(stranger) = running.listener().await {
        return Err(failure::answered_by(&stranger, port, launch));
    }
    let control = running.endpoint().control_client(&run_context.host.http);
    let facts = engine::fetch_facts(launch, &control).await;
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

fn report_progress(run_context: &RunContext<'_>, launch: &Launch, progress: engine::Progress) {
    run_context.events.emit(Event::LaunchProgress {
        launch: launch.id.clone(),
        phase: progress.phase,
        elapsed_s: progress.elapsed.as_secs_f64(),
        last_line: progress.last_line,
    });
}

fn engine_context(
    run_context: &RunContext<'_>,
    start: &Start,
    lease: &Lease<'_>,
    ports: Ports,
) -> StartContext {
    let host = run_context.host;
    let secrets = host.secrets.clone();
    StartContext {
        run: host.run.clone(),
        start: start.start,
        devices: lease.devices().to_vec(),
        device_names: host.machine.device_names(lease.devices()),
        // Concurrent launches get separate processors, if the GPUs' NUMA nodes are known.
        cpus: match run_context.plan.parallel {
            true => host.machine.cpus_near(lease.devices()),
            false => None,
        },
        redactor: host.redactor.clone(),
        secrets: Arc::new(move |name| secrets.get(name).cloned()),
        matrix_binary: host.matrix.clone(),
        shim_binary: Some(host.matrix.clone()),
        path: host.environment.variable("PATH"),
        variable_names: host.environment.names.clone(),
        hf_home: host.hf_home.clone(),
        cache_dir: host.cache.clone(),
        docker_env: host.docker.clone(),
        images: Arc::clone(&host.images),
        unremoved: Arc::clone(&host.orphans),
        folder: host.folder.clone(),
        port: ports.endpoint,
        further_ports: ports.further,
        job_nodes: host.job_nodes.clone(),
    }
}

fn open_logs(run_context: &RunContext<'_>, launch: &Launch, start: &Start) -> Result<Logs, StoreError> {
    Ok(Logs {
        engine: run_context.store.engine_log(&launch.id, start.start)?,
        install: run_context.store.install_log(&launch.id, start.start)?,
    })
}

/// Stops an engine and waits until its GPUs are free. In an immediate shutdown, dropping the engine kills it.
pub(super) async fn stop_engine(context: &LaunchContext<'_>, running: RunningEngine, rest: &[GpuBaseline]) {
    let LaunchContext {
        run_context,
        launch,
        start,
        shutdown,
        ..
    } = context;
    let stopped = tokio::select! {
        biased;
        () = shutdown.immediate.cancelled() => return,
        stopped = running.stop() => stopped,
    };
    run_context.events.emit(Event::EngineStopped {
        launch: launch.id.clone(),
        start: start.start,
        how: stopped.description,
        shm_freed_bytes: stopped.shm_freed_bytes,
        seconds: stopped.seconds,
    });
    tokio::select! {
        biased;
        () = shutdown.immediate.cancelled() => {}
        () = gpu_idle::wait_until_free(run_context, launch, rest) => {}
    }
}
