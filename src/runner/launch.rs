//! One start: lease, start, ready, cells, stop; always stop.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::analysis::metrics;
use crate::analysis::validity::{self, Evidence};
use crate::base::clock::{self, Moment};
use crate::engine::{self, Context, Listener, Logs, NoToken, NotReady, Running, StartError};
use crate::loadgen::{self, ProbeError, Target};
use crate::plan::command::{self, Given};
use crate::plan::{Launch, Measurement, Start};
use crate::results::record::cell::{
    Definitions, Ending, EngineFacts, FailureClass, Phase, PhaseTime, Summary,
};
use crate::results::record::engine_change;
use crate::results::record::event::Event;
use crate::results::record::post_mortem::{End, Retry};
use crate::results::record::validity::Verdict;
use crate::results::store::{self, Said, StoreError};
use crate::runner::cell::{self, Measured, Ready};
use crate::runner::context::{Job, Tally};
use crate::runner::gpu_idle::{self, AtRest, Growth, Watch};
use crate::runner::lease::Lease;
use crate::runner::post_mortem::{self, Remains};
use crate::runner::prefetch::Ahead;
use crate::runner::prompt_store::Library;
use crate::runner::scheduling::Roster;
use crate::runner::shutdown::Stop;
use crate::runner::target;
use crate::runner::telemetry::Sampling;

/// How often an engine that died under load is started again for the cells that remain.
const RESTARTS: u32 = 16;

/// The pauses before another try where the host was at fault; then it is given up.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(16),
];

/// How long a container that could not be removed is tried again before a start.
const ORPHAN: Duration = Duration::from_secs(5);

/// A start that came to nothing: the cells fail with it.
struct Fallen {
    phase: Phase,
    class: FailureClass,
    reason: String,
    tail: Vec<String>,
    /// What is left of it, where it was begun.
    end: Option<End>,
    log: Vec<String>,
    image_digest: Option<String>,
    /// The line that was to start it, on its own port and devices.
    exact_command: Option<String>,
}

impl Fallen {
    fn new(class: FailureClass, reason: String) -> Self {
        Self {
            phase: Phase::Launch,
            class,
            reason,
            tail: Vec::new(),
            end: None,
            log: Vec::new(),
            image_digest: None,
            exact_command: None,
        }
    }
}

/// A launch on its devices, with the cells that one start is for.
#[derive(Clone, Copy)]
pub(crate) struct Order<'a> {
    pub(crate) job: &'a Job<'a>,
    pub(crate) launch: &'a Launch,
    pub(crate) start: &'a Start,
    pub(crate) lease: &'a Lease<'a>,
    pub(crate) library: &'a Arc<Library>,
    pub(crate) roster: &'a Roster,
    pub(crate) ahead: &'a Ahead,
    pub(crate) stop: &'a Stop,
}

/// What became of an order so far.
struct Course<'a> {
    order: Order<'a>,
    began: Moment,
    rest: VecDeque<&'a Measurement>,
    /// Tries of the first measurement of the rest that failed by the host's fault.
    retries: Vec<Retry>,
    /// What the engine told of itself at the first finished measurement of the launch; none before there is one.
    reference: Option<EngineFacts>,
    tally: &'a mut Tally,
}

/// Does one start with all its cells. An engine that dies or hangs under load is started anew for the rest, so that one bad cell
/// never takes the others with it; what fails by the host's fault is tried again after a pause.
pub(crate) async fn launch(order: Order<'_>, tally: &mut Tally) -> Result<(), StoreError> {
    let _turn = order.roster.enter(&order.launch.id);
    let mut course = Course {
        order,
        began: clock::now(),
        rest: order.start.cells.iter().collect(),
        retries: Vec::new(),
        reference: reference(&order),
        tally,
    };
    let mut preparing = prepare(&order);
    let mut restarts = 0;
    while !course.rest.is_empty() && !order.stop.is_asked() {
        match raise(&order).await {
            Ok(Some(ready)) => {
                order.ahead.begin(order.job, order.start, &ready.running);
                let retries = course.retries.len();
                let was_meant = course.measure(ready).await?;
                // Neither what the recipe asks for nor another try after the host's fault counts as a restart of an engine that died.
                restarts += u32::from(!was_meant && course.retries.len() <= retries);
            }
            Ok(None) => break,
            // An engine that was stopped together with this run did not fail.
            Err(fallen) if fallen.end.is_some() && order.stop.is_asked_soon().await => break,
            Err(fallen) => {
                order.job.events.tell(Event::LaunchFailed {
                    launch: order.launch.id.clone(),
                    start: order.start.start,
                    reason: fallen.reason.clone(),
                    tail: last(&fallen.tail),
                });
                if !course
                    .tries_again(fallen.phase, fallen.class, &fallen.reason)
                    .await
                {
                    course.give_up(&fallen)?;
                }
            }
        }
        if restarts > RESTARTS {
            let reason = format!("the engine died under load {RESTARTS} times");
            course.give_up(&Fallen::new(FailureClass::Engine, reason))?;
        } else if restarts > 0 && course.retries.is_empty() && !course.rest.is_empty() {
            course.tell_restart(RESTARTS + 1 - restarts);
        }
    }
    preparing.abort_all();
    Ok(())
}

impl<'a> Course<'a> {
    /// Measures cells on a ready engine until none is left, or one is that it cannot measure; then stops it. Whether that was so
    /// because each cell has a start of its own.
    async fn measure(&mut self, mut ready: Ready) -> Result<bool, StoreError> {
        let Order {
            job,
            launch,
            library,
            ahead,
            stop,
            ..
        } = self.order;
        // Models may come to a server that runs: which it lists is held against the first measurement's list.
        self.reference.get_or_insert_with(|| EngineFacts {
            models: Vec::new(),
            ..store::redacted(ready.facts.clone(), &job.host.redactor)
        });
        let mut log_from = 0;
        let mut unverified = Vec::new();
        let (mut failed, mut is_spent, mut kept) = (None, false, Ok(()));
        while let Some(measurement) = self.rest.pop_front() {
            let (began, pulled) = (clock::now(), ahead.mark());
            let tries = self.retries.len();
            ready.running.look().await;
            let mut measured =
                cell::measure(job, launch, measurement, tries, &mut ready, library, stop).await;
            ready.running.look().await;
            self.check_listener(&ready.running, &mut measured).await;
            self.check_engine(&mut measured.summary);
            measured.summary.pulled_beside = ahead.mark() > pulled;
            let log = ready.running.log().slice_from(&mut log_from);
            let is_well = measured.engine_is_well;
            if let Ending::Failed {
                phase, class, reason, ..
            } = &measured.summary.ending
                && class.is_retried()
            {
                failed = Some((measurement, *phase, *class, reason.clone()));
            }
            let remains = Remains {
                end: measured.end,
                log: ready.running.log().last(post_mortem::LINES),
            };
            let seconds = clock::now().since(began).as_secs_f64();
            self.settle(measurement, &mut measured, seconds);
            if is_well && self.measures_again(&measured.summary) {
                self.rest.push_front(measurement);
                is_spent = launch.contact.restart_for_cells;
                if is_spent {
                    break;
                }
                continue;
            }
            if measured.summary.listener_unverified.is_some() && measured.summary.ending == Ending::Done {
                unverified.push(measured.summary.clone());
            }
            kept = self.keep(measurement, measured, &log, remains, seconds);
            if failed.is_none() {
                self.retries.clear();
            }
            is_spent = is_well && launch.contact.restart_for_cells;
            if !is_well || is_spent || failed.is_some() || stop.is_asked() || kept.is_err() {
                break;
            }
        }
        // Nobody asks an engine that is being stopped.
        let rest = ready.sampling.end();
        let endpoint = ready.running.endpoint().clone();
        halt(&self.order, ready.running, &rest).await;
        kept?;
        // An engine that could not be stopped answers itself.
        if !unverified.is_empty()
            && !stop.now.is_cancelled()
            && engine::still_answers(&endpoint).await
            && alone(self.order.job).await.is_ok()
        {
            self.disown(unverified, endpoint.port)?;
        }
        if let Some((measurement, phase, class, reason)) = failed {
            match self.tries_again(phase, class, &reason).await {
                true => {
                    self.tally.failed -= 1;
                    self.rest.push_front(measurement);
                }
                false => self.retries.clear(),
            }
        }
        Ok(is_spent && !self.rest.is_empty())
    }

    /// Fails a measurement whose answers came from another process than the engine, and notes where that cannot be known.
    async fn check_listener(&self, running: &Running, measured: &mut Measured) {
        let summary = &mut measured.summary;
        if summary.ending != Ending::Done {
            return;
        }
        match running.listener().await {
            Listener::Ours => {}
            Listener::Unverified(reason) => summary.listener_unverified = Some(reason.to_owned()),
            Listener::Stranger(who) => {
                let fallen = answered_by(&who, running.endpoint().port, self.order.launch);
                measured.engine_is_well = false;
                summary.ending = Ending::Failed {
                    phase: Phase::Measure,
                    class: fallen.class,
                    reason: fallen.reason,
                    tail: Vec::new(),
                };
            }
        }
    }

    /// Notes what an engine tells of itself otherwise than before the first finished measurement of its launch.
    fn check_engine(&mut self, summary: &mut Summary) {
        if summary.ending != Ending::Done {
            return;
        }
        // What was read from disk lacks secrets.
        let told = store::redacted(summary.engine.clone(), &self.order.job.host.redactor);
        if let Some(reference) = &mut self.reference {
            summary.engine_changes = engine_change::changes(reference, &told);
            if reference.models.is_empty() {
                reference.models = told.models;
            }
        }
    }

    /// Fails measurements that are on disk already: their port still answers though their engine was stopped, so that another process
    /// may have answered all the time.
    fn disown(&mut self, summaries: Vec<Summary>, port: u16) -> Result<(), StoreError> {
        let Order { job, launch, .. } = self.order;
        for mut summary in summaries {
            let was_invalid = invalid(&summary).is_some();
            let fallen = answered_by("which still answers after the engine was stopped", port, launch);
            job.events.tell(Event::Warning {
                message: format!("{} failed: {}", summary.cell, fallen.reason),
            });
            summary.validity = None;
            summary.ending = Ending::Failed {
                phase: Phase::Measure,
                class: fallen.class,
                reason: fallen.reason,
                tail: Vec::new(),
            };
            let post_mortem = post_mortem::of(launch, &summary, None, Remains::default(), self.began);
            job.store.amend_cell(&summary, post_mortem.as_ref())?;
            self.tally.done -= 1;
            self.tally.invalid -= usize::from(was_invalid);
            self.tally.failed += 1;
        }
        Ok(())
    }

    /// Whether what is invalid is to be measured again, as `--retry-invalid` asks.
    fn measures_again(&mut self, summary: &Summary) -> bool {
        let Order { job, stop, .. } = self.order;
        let is_validity = |retry: &&Retry| retry.class == FailureClass::Validity;
        let tries = self.retries.iter().filter(is_validity).count();
        // Another server stays another one.
        let has_changed = summary.engine_changes.iter().any(|change| !change.is_of_models());
        let Some(reason) = invalid(summary)
            .filter(|_| tries < job.retry_invalid as usize && !stop.is_asked() && !has_changed)
        else {
            return false;
        };
        job.events.tell(Event::Warning {
            message: format!(
                "{} is measured again ({} of {}): {reason}",
                summary.cell,
                tries + 1,
                job.retry_invalid
            ),
        });
        self.retries.push(Retry {
            phase: Phase::Measure,
            class: FailureClass::Validity,
            reason,
            pause_s: 0.0,
        });
        true
    }

    /// Whether what failed is worth another try: only by the host's fault, and not for ever. It has paused then.
    async fn tries_again(&mut self, phase: Phase, class: FailureClass, reason: &str) -> bool {
        let stop = self.order.stop;
        let tries = self
            .retries
            .iter()
            .filter(|retry| retry.class.is_retried())
            .count();
        let pause = PAUSES.get(tries).filter(|_| class.is_retried());
        let Some(pause) = pause.filter(|_| !stop.is_asked()) else {
            return false;
        };
        self.order.job.events.tell(Event::Warning {
            message: format!(
                "engine `{}` failed by the fault of the host (try {} of {}); it is tried again in {} s",
                self.order.launch.engine.name,
                tries + 1,
                PAUSES.len() + 1,
                pause.as_secs()
            ),
        });
        self.retries.push(Retry {
            phase,
            class,
            reason: reason.to_owned(),
            pause_s: pause.as_secs_f64(),
        });
        tokio::select! {
            () = tokio::time::sleep(*pause) => true,
            () = stop.asked.cancelled() => false,
        }
    }

    fn tell_restart(&self, left: u32) {
        if self.order.stop.is_asked() {
            return;
        }
        self.order.job.events.tell(Event::Warning {
            message: format!(
                "engine `{}` is started again for {} more cells ({left} restarts left)",
                self.order.launch.engine.name,
                self.rest.len()
            ),
        });
    }

    /// Writes what remains as failed, because its engine did not start.
    fn give_up(&mut self, fallen: &Fallen) -> Result<(), StoreError> {
        let Order {
            job, launch, lease, ..
        } = self.order;
        while let Some(measurement) = self.rest.pop_front() {
            let cell = job.plan.cell(&measurement.cell);
            let facts = EngineFacts {
                command: Some(self.order.planned()),
                exact_command: fallen.exact_command.clone(),
                image_digest: fallen.image_digest.clone(),
                devices: lease.devices().to_vec(),
                ..EngineFacts::default()
            };
            let mut summary = cell::blank(launch, cell, measurement, facts, Vec::new());
            summary.ending = Ending::Failed {
                phase: fallen.phase,
                class: fallen.class,
                reason: fallen.reason.clone(),
                tail: fallen.tail.clone(),
            };
            let mut measured = Measured {
                summary,
                requests: Vec::new(),
                samples: Vec::new(),
                engine_is_well: false,
                end: fallen.end,
            };
            self.settle(measurement, &mut measured, 0.0);
            let remains = Remains {
                end: fallen.end,
                log: fallen.log.clone(),
            };
            self.keep(measurement, measured, &fallen.tail.join("\n"), remains, 0.0)?;
        }
        Ok(())
    }

    /// Adds to a measurement what only the launch knows, and judges it.
    fn settle(&self, measurement: &Measurement, measured: &mut Measured, seconds: f64) {
        let job = self.order.job;
        let summary = &mut measured.summary;
        summary.retries.clone_from(&self.retries);
        let from = clock::now().before(Duration::from_secs_f64(seconds));
        summary.beside = self.order.roster.beside(&self.order.launch.id, from);
        summary.validity = validity::judge(&Evidence {
            launch: self.order.launch,
            cell: job.plan.cell(&measurement.cell),
            summary,
            requests: &measured.requests,
            machine: &job.host.machine,
            bounds: &job.plan.validity,
        });
    }

    /// Writes a measurement to disk, counts it and tells it.
    fn keep(
        &mut self,
        measurement: &Measurement,
        measured: Measured,
        log: &str,
        remains: Remains,
        seconds: f64,
    ) -> Result<(), StoreError> {
        let Measured {
            summary,
            requests,
            samples,
            ..
        } = measured;
        let job = self.order.job;
        let histograms = metrics::seconds(&requests);
        let doubt = invalid(&summary);
        let is_invalid = doubt.is_some();
        let post_mortem = post_mortem::of(self.order.launch, &summary, doubt, remains, self.began);
        let details = post_mortem.as_ref().map(|_| job.store.post_mortem(measurement));
        let said = Said {
            log,
            post_mortem: post_mortem.as_ref(),
            samples: &samples,
        };
        job.store.write_cell(&summary, &requests, &histograms, said)?;
        self.tally.count(&summary.ending, is_invalid);
        job.events.tell(Event::CellEnded {
            measurement: measurement.clone(),
            ending: summary.ending.word().to_owned(),
            reason: why(&summary),
            seconds,
            output_tokens_per_s: summary
                .figures
                .get(&Definitions::Matrix)
                .and_then(|figures| figures.get("output_throughput_tok_s").copied().flatten()),
            verdict: summary.validity.as_ref().map(|validity| validity.verdict),
            codes: summary
                .validity
                .iter()
                .flat_map(|validity| &validity.reasons)
                .map(|reason| reason.code)
                .collect(),
            tail: match &summary.ending {
                // What a start said last was told when it failed.
                Ending::Failed { phase, tail, .. } if *phase != Phase::Launch => last(tail),
                _ => Vec::new(),
            },
            post_mortem: details.map(|path| path.display().to_string()),
        });
        Ok(())
    }
}

impl Order<'_> {
    /// The line that `plan` prints.
    fn planned(&self) -> String {
        let given = Given {
            folder: Some(&self.job.host.folder),
            ..Given::default()
        };
        command::line_of(self.launch, given).joined()
    }

    /// The line as it runs on a port.
    fn exact(&self, port: u16) -> String {
        let devices = self.job.host.machine.device_names(self.lease.devices());
        let given = Given {
            folder: Some(&self.job.host.folder),
            port: Some(port),
            devices: Some(&devices),
        };
        command::line_of(self.launch, given).joined()
    }
}

/// What the engine of a launch told of itself at its first measurement that is finished.
fn reference(order: &Order<'_>) -> Option<EngineFacts> {
    let job = order.job;
    let starts = job.plan.starts.iter();
    let measurements = starts
        .filter(|start| start.launch == order.launch.id)
        .flat_map(|start| &start.cells);
    let finished = measurements.filter_map(|measurement| job.store.summary(measurement).ok());
    finished
        .filter(|summary| summary.ending == Ending::Done && summary.engine_changes.is_empty())
        .map(|summary| summary.engine)
        .next()
}

/// How many of an engine's last lines are told with its failure.
const TOLD_LINES: usize = 10;

/// The last of an engine's last lines that say something.
fn last(tail: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = tail
        .iter()
        .rev()
        .filter(|line| !line.trim().is_empty())
        .take(TOLD_LINES)
        .cloned()
        .collect();
    lines.reverse();
    lines
}

/// Why the figures of a measurement are worth nothing; `None` if they are worth something.
fn invalid(summary: &Summary) -> Option<String> {
    let validity = summary.validity.as_ref()?;
    let reasons: Vec<String> = validity
        .reasons
        .iter()
        .filter(|reason| reason.weight == Verdict::Invalid)
        .map(|reason| format!("{}: {}", reason.code.name(), reason.measured))
        .collect();
    (!reasons.is_empty()).then(|| format!("invalid: {}", reasons.join("; ")))
}

/// Why a measurement is not simply done.
fn why(summary: &Summary) -> Option<String> {
    match &summary.ending {
        Ending::Done => invalid(summary).or_else(|| summary.warnings.first().cloned()),
        Ending::Failed { phase, reason, .. } => Some(format!("{}: {reason}", phase.name())),
        Ending::Skipped { reason } => Some(reason.clone()),
        Ending::Interrupted => Some("the run was asked to stop".to_owned()),
    }
}

/// Prompts are prepared while the engine loads.
fn prepare(order: &Order<'_>) -> JoinSet<()> {
    let Order {
        job,
        launch,
        start,
        library,
        ..
    } = order;
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
async fn raise(order: &Order<'_>) -> Result<Option<Ready>, Fallen> {
    let Order {
        job,
        launch,
        start,
        lease,
        stop,
        ..
    } = *order;
    let infrastructure = FailureClass::Infrastructure;
    let port = match launch.contact.port.fixed {
        Some(port) => port,
        None => engine::free_port()
            .map_err(|error| Fallen::new(infrastructure, format!("no free port: {error}")))?,
    };
    let exact = order.exact(port);
    job.events.tell(Event::LaunchBegan {
        launch: launch.id.clone(),
        start: start.start,
        command: exact.clone(),
    });
    tokio::select! {
        biased;
        () = stop.asked.cancelled() => return Ok(None),
        alone = alone(job) => alone?,
    }
    let rest = tokio::select! {
        biased;
        () = stop.asked.cancelled() => return Ok(None),
        rest = gpu_idle::before(job, launch, lease.devices()) => rest,
    };
    let context = context(job, start, lease, port);
    let logs = logs(job, launch, start).map_err(|error| Fallen::new(infrastructure, error.to_string()))?;
    let began = clock::now();
    let mut sampling = Sampling::begin(launch, lease.devices());
    let tell = |progress: engine::Progress| tell(job, launch, progress);
    let running = tokio::select! {
        biased;
        () = stop.asked.cancelled() => return Ok(None),
        running = engine::start(launch, &context, logs, &tell) => running.map_err(|error| Fallen {
            exact_command: Some(exact.clone()),
            ..not_started(&error)
        })?,
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
            halt(order, running, &rest).await;
            return Ok(None);
        }
        proved = prove(job, launch, lease.devices(), &mut running) => proved,
    };
    let (target, mut facts, phases) = match proved {
        Ok(proved) => proved,
        Err(fallen) => {
            let log = running.log().clone();
            let image_digest = running.image_digest().map(str::to_owned);
            halt(order, running, &rest).await;
            return Err(Fallen {
                log: log.last(post_mortem::LINES),
                image_digest,
                exact_command: Some(exact),
                ..fallen
            });
        }
    };
    facts.command = Some(order.planned());
    facts.exact_command = Some(exact).filter(|exact| facts.command.as_ref() != Some(exact));
    facts.image_digest = running.image_digest().map(str::to_owned);
    facts.image_bytes = running.image_bytes();
    facts.devices = lease.devices().to_vec();
    sampling.add_engine(launch, &running, job.host).await;
    sampling.add_devices(job.host.gpus.as_deref(), Watch::of(&running, rest));
    job.events.tell(Event::EngineReady {
        launch: launch.id.clone(),
        start: start.start,
        seconds: clock::now().since(began).as_secs_f64(),
        version: facts.version.clone(),
    });
    Ok(Some(Ready {
        measured: 0,
        running,
        target,
        facts,
        phases,
        sampling,
    }))
}

/// Sees to it that no engine of this run is measured beside one that could not be stopped.
async fn alone(job: &Job<'_>) -> Result<(), Fallen> {
    let remaining = job.host.orphans.remove(ORPHAN).await;
    match remaining.iter().find(|orphan| orphan.may_run) {
        None => Ok(()),
        Some(orphan) => Err(Fallen::new(
            FailureClass::Infrastructure,
            format!(
                "an earlier engine of this run may still run, and nothing is measured beside it: {}: {}; remove it with `{}`",
                orphan.what, orphan.reason, orphan.help
            ),
        )),
    }
}

/// The failure of a launch whose port another process has.
fn answered_by(who: &str, port: u16, launch: &Launch) -> Fallen {
    Fallen::new(
        FailureClass::Spec,
        format!(
            "port {port} of engine `{}` is answered by another process, {who}; stop it, or remove `port:` from the matrix, so that a free port is chosen",
            launch.engine.name
        ),
    )
}

/// Why the first request gave no token, and whether another try may.
fn no_token(error: &ProbeError, launch: &Launch) -> NoToken {
    let words = error.to_string();
    match error {
        ProbeError::Status {
            status: 401 | 403, ..
        } => NoToken::Refused(format!(
            "{words}; {}",
            match launch.contact.headers.is_empty() {
                true => "give its key with `headers: { Authorization: \"Bearer ${KEY}\" }` at the engine",
                false => "check the key in `headers:` of the engine",
            }
        )),
        ProbeError::Compressed { .. } => NoToken::Unusable(words),
        ProbeError::Status { status: 404, .. } | ProbeError::WrongModel { .. } => NoToken::Unknown(words),
        _ => NoToken::Yet(words),
    }
}

/// Waits for an engine's first real token, and learns what it says of itself.
async fn prove(
    job: &Job<'_>,
    launch: &Launch,
    devices: &[u32],
    running: &mut Running,
) -> Result<(Target, EngineFacts, Vec<PhaseTime>), Fallen> {
    let target = target::of(launch, &running.endpoint().base_url, job.host)
        .map_err(|error| Fallen::new(FailureClass::Spec, error.to_string()))?;
    let limit = launch.patience.probe.duration();
    let ask = || async {
        loadgen::probe(&target, limit)
            .await
            .map(|_| ())
            .map_err(|error| no_token(&error, launch))
    };
    let tell = |progress: engine::Progress| tell(job, launch, progress);
    let growth = Growth::default();
    let readiness = tokio::select! {
        biased;
        readiness = engine::ready(running, launch, &job.host.http, ask, || growth.last(), tell) => readiness,
        never = growth.watch(job.host, launch, devices) => match never {},
    };
    let port = running.endpoint().port;
    let readiness = readiness.map_err(|error| not_ready(&error).explained(launch, port))?;
    if let Listener::Stranger(who) = running.listener().await {
        return Err(answered_by(&who, port, launch));
    }
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
        device_names: host.machine.device_names(lease.devices()),
        // Neighbours get processors of their own where the GPUs say which.
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

fn not_started(error: &StartError) -> Fallen {
    Fallen {
        phase: error.phase(),
        tail: error.tail(),
        log: error.tail(),
        ..Fallen::new(error.class(), error.to_string())
    }
}

impl Fallen {
    /// The same with what is seen of the host once an engine has ended before it was ready.
    fn explained(mut self, launch: &Launch, port: u16) -> Self {
        let Some(end) = self.end else {
            return self;
        };
        if let Some(holder) = launch.contact.port.fixed.and_then(|_| engine::holder(port)) {
            self.class = FailureClass::Spec;
            self.reason.push_str(&format!(
                "; its port {port} is held by {holder}: stop that, or take `port:` out, then a free one is chosen"
            ));
        } else if engine::image(launch).is_some() && end.code == Some(0) {
            self.reason.push_str(
                "; an engine does not end by itself: the image's entrypoint may leave the command aside \
                 (`docker inspect` shows it; `entrypoint:` of the recipe replaces it)",
            );
        }
        self
    }
}

fn not_ready(error: &NotReady) -> Fallen {
    Fallen {
        tail: error.tail().to_vec(),
        end: error.end(),
        ..Fallen::new(error.class(), error.to_string())
    }
}

/// Stops an engine and waits until its devices are free. Once the run is told to kill, dropping the engine kills what is left of it.
async fn halt(order: &Order<'_>, running: Running, rest: &[AtRest]) {
    let Order {
        job,
        launch,
        start,
        stop,
        ..
    } = order;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{command, contained};
    use crate::plan::Container;

    fn ended(code: i64) -> Fallen {
        Fallen {
            end: Some(End {
                code: Some(code),
                ..End::default()
            }),
            ..Fallen::new(FailureClass::Engine, "the engine ended".to_owned())
        }
    }

    #[test]
    fn an_engine_whose_port_another_one_took_meanwhile_says_who_has_it() {
        let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut launch = command(&["serve"]);
        launch.contact.port.fixed = Some(port);
        let taken = ended(4).explained(&launch, port);
        let holder = format!("its port {port} is held by process {}", std::process::id());
        assert!(taken.reason.contains(&holder), "{}", taken.reason);
        assert_eq!(taken.class, FailureClass::Spec);
        drop(listener);
        let free = ended(4).explained(&launch, port);
        assert_eq!(
            (free.reason.as_str(), free.class),
            ("the engine ended", FailureClass::Engine)
        );
    }

    #[test]
    fn a_container_that_ends_well_at_once_is_asked_for_its_entrypoint() {
        let container = contained(Container::default());
        assert!(
            ended(0)
                .explained(&container, 1)
                .reason
                .contains("`entrypoint:` of the recipe")
        );
        assert!(!ended(1).explained(&container, 1).reason.contains("entrypoint"));
        assert!(
            !ended(0)
                .explained(&command(&["true"]), 1)
                .reason
                .contains("entrypoint")
        );
    }

    #[test]
    fn only_the_last_lines_that_say_something_are_told() {
        let tail: Vec<String> = (0..30)
            .map(|line| {
                if line % 2 == 0 {
                    String::new()
                } else {
                    line.to_string()
                }
            })
            .collect();
        let told = last(&tail);
        assert_eq!((told.len(), told[0].as_str(), told[9].as_str()), (10, "11", "29"));
    }
}
