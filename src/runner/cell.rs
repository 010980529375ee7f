//! One measurement: prompts, warm-up, caches emptied, load, record.

mod search;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::analysis::metrics::{self, Basis};
use crate::analysis::validity;
use crate::base::clock::{self, Moment};
use crate::config::scenario::Scenario;
use crate::config::workload::Profile;
use crate::engine::{self, Running};
use crate::loadgen::dataset::unique_prefix::Beginning;
use crate::loadgen::dataset::words::Words;
use crate::loadgen::{DriveError, Driven, Item, Load, Progress, Sink, Spill, Target};
use crate::plan::{Cell, Launch, Measurement};
use crate::results::record::cell::{
    Ending, EngineFacts, FailureClass, Origin, Phase, PhaseTime, ResetProof, Summary, UniquePrefix,
};
use crate::results::record::client::ClientFacts;
use crate::results::record::event::Event;
use crate::results::record::post_mortem::End;
use crate::results::record::request::{Request, failures};
use crate::results::record::telemetry::{EngineWindow, Sample};
use crate::runner::answers;
use crate::runner::calibrate;
use crate::runner::context::Job;
use crate::runner::prompt_store::{PreparedWorkload, PromptStore};
use crate::runner::requests::{Sending, items, placed, ran_out, see, warm_up};
use crate::runner::shutdown::Stop;
use crate::runner::supervise::{self, AbortReason};
use crate::runner::telemetry::{Sampling, Span};

/// What tells the prompts that warm up from those of the load.
const WARM_UP: &str = "warm-up";

/// An engine that is ready, and what the start has learned about it.
pub(crate) struct ReadyEngine {
    pub(crate) running: Running,
    pub(crate) target: Target,
    pub(crate) facts: EngineFacts,
    pub(crate) phases: Vec<PhaseTime>,
    /// Measurements so far on this start.
    pub(crate) measured: u32,
    pub(crate) sampling: Sampling,
}

/// What came out of a measurement.
pub(crate) struct CellOutcome {
    pub(crate) summary: Summary,
    pub(crate) requests: Vec<Request>,
    /// What was sampled around the window.
    pub(crate) samples: Vec<Sample>,
    /// Whether the engine can measure another cell.
    pub(crate) engine_is_well: bool,
    /// How the engine ended, where it did.
    pub(crate) end: Option<End>,
}

/// A measurement under way: what it has gone through so far.
struct CellRun<'a> {
    job: &'a Job<'a>,
    launch: &'a Launch,
    cell: &'a Cell,
    measurement: &'a Measurement,
    began: Moment,
    phase_began: Moment,
    summary: Summary,
    samples: Vec<Sample>,
    /// Earlier tries of this measurement on this start.
    tries: usize,
    /// What the prompts of the load begin with, where the recipe asks for unique prefixes.
    unique_prefix: Option<UniquePrefix>,
    /// Where records go while a load runs.
    sink: Option<Sink>,
    /// Where answers go that are more than memory is to hold.
    spill: Option<Arc<Spill>>,
    /// What the client did during the points of a search whose requests are not those of the cell.
    other_points: Vec<ClientFacts>,
}

/// How many requests a load is expected to send: its prompts, or fewer where its duration ends it first.
fn expected_requests(scenario: &Scenario) -> usize {
    let asked = scenario.workload.asked().unwrap_or_default();
    let asked = usize::try_from(asked).unwrap_or(usize::MAX);
    let expected = scenario.arrival.expected(scenario.limits.duration);
    // The first request is due at once.
    expected.map_or(asked, |expected| asked.min((expected.round() as usize).max(1)))
}

/// That the data set gave fewer prompts than asked for. Where a duration ends the load, [`ran_out`] tells whether they were too few.
fn too_few_prompts(scenario: &Scenario, found: usize) -> Option<String> {
    if scenario.arrival.window(scenario.limits.duration).is_some() {
        return None;
    }
    let asked = scenario.workload.asked()?;
    ((found as u64) < asked).then(|| format!("the data set gave {found} prompts, and {asked} were asked for"))
}

/// Measures one cell on a ready engine, after so many tries that came to nothing.
pub(crate) async fn measure(
    job: &Job<'_>,
    launch: &Launch,
    measurement: &Measurement,
    tries: usize,
    ready: &mut ReadyEngine,
    prompt_store: &Arc<PromptStore>,
    stop: &Stop,
) -> CellOutcome {
    let cell = job.plan.cell(&measurement.cell);
    let mut run = CellRun::begin(job, launch, cell, measurement, ready);
    run.tries = tries;
    job.events.tell(Event::CellBegan {
        measurement: measurement.clone(),
        requests: expected_requests(&cell.scenario),
    });
    let workload = stop.unless_asked(prompt_store.workload(&cell.scenario, &launch.tokenizer));
    let workload = match workload.await {
        Some(Ok(workload)) => workload,
        None => return run.cut(Phase::Prepare, AbortReason::Stopped, Vec::new()),
        Some(Err(reason)) => {
            return run.failed(Phase::Prepare, FailureClass::Spec, reason, Vec::new(), true);
        }
    };
    run.prepared(&workload);
    let Sending {
        items,
        schedule,
        next,
    } = items(
        &cell.scenario,
        &workload.prepared,
        &mut workload.prepared.draws.clone(),
    );
    let items = match placed(items, ready.target.dialect.protocol, &workload.tokenizer) {
        Ok(items) => items,
        Err(reason) => return run.failed(Phase::Prepare, FailureClass::Spec, reason, Vec::new(), true),
    };
    // The points of a search begin with letters of their own.
    let items = match &cell.scenario.search {
        Some(_) => items,
        None => match run.begun("load", items, &workload).await {
            Ok(items) => items,
            Err(reason) => {
                return run.failed(Phase::Prepare, FailureClass::Spec, reason, Vec::new(), true);
            }
        },
    };
    run.summary.schedule_hash = Some(schedule);
    run.end_phase(Phase::Prepare);
    if let Err(cut) = run.warm_up(ready, &workload, stop).await {
        return cut;
    }
    run.end_phase(Phase::Warmup);
    if stop.unless_asked(run.reset_caches(ready)).await.is_none() {
        return run.cut(Phase::Reset, AbortReason::Stopped, Vec::new());
    }
    run.end_phase(Phase::Reset);
    if let Some(search) = &cell.scenario.search {
        return run.search(search, ready, &workload, stop).await;
    }
    ready.sampling.before().await;
    let sent = items.len();
    let load = load_of(&ready.target, &cell.scenario, items);
    let (driven, mut cut) = match run.drive(Phase::Measure, ready, load, stop).await {
        Ok(driven) => driven,
        Err(error) => {
            return run.failed(
                Phase::Measure,
                FailureClass::Client,
                error.to_string(),
                Vec::new(),
                true,
            );
        }
    };
    run.end_phase(Phase::Measure);
    if cut.is_none() {
        let short = ran_out(&cell.scenario, sent, next, &driven);
        let warnings = &mut run.summary.warnings;
        warnings.extend(short.map(|short| short.says("`prompts`")));
    }
    run.sampled(ready, span_of(&driven), cut.is_none()).await;
    let telemetry = run.summary.telemetry.as_ref();
    let engine = telemetry.and_then(|telemetry| telemetry.engine.clone());
    run.count_hits(engine.as_ref());
    ready.measured += 1;
    let mut accept = None;
    if cut.is_none() {
        let asking = async {
            run.ask_again(ready).await;
            accepted(job, launch, ready).await
        };
        match stop.unless_asked(asking).await {
            Some(told) => accept = told,
            None => cut = Some(AbortReason::Stopped),
        }
    }
    run.ended(driven, cut, accept, &workload).await
}

impl<'a> CellRun<'a> {
    fn begin(
        job: &'a Job<'a>,
        launch: &'a Launch,
        cell: &'a Cell,
        measurement: &'a Measurement,
        ready: &ReadyEngine,
    ) -> Self {
        let began = clock::now();
        let summary = blank(
            launch,
            cell,
            measurement,
            ready.facts.clone(),
            ready.phases.clone(),
        );
        Self {
            job,
            launch,
            cell,
            measurement,
            began,
            phase_began: began,
            summary,
            samples: Vec::new(),
            tries: 0,
            unique_prefix: None,
            sink: None,
            spill: None,
            other_points: Vec::new(),
        }
    }

    fn end_phase(&mut self, phase: Phase) {
        let now = clock::now();
        let seconds = now.since(self.phase_began).as_secs_f64();
        self.summary.phases.push(PhaseTime {
            phase: phase.name().to_owned(),
            seconds,
        });
        self.phase_began = now;
    }

    fn prepared(&mut self, workload: &PreparedWorkload) {
        let found = workload.prepared.prompts.len();
        self.summary.prompts = u32::try_from(found).ok();
        self.summary.prompts_hash = Some(workload.prepared.hash.clone());
        self.summary.prompts_repeated = workload.repeated;
        self.summary.engine.tokenizer_digest = Some(workload.tokenizer.digest().to_owned());
        self.summary
            .warnings
            .extend(too_few_prompts(&self.cell.scenario, found));
    }

    /// Requests that begin as none before them did, in this run or another, where the recipe asks for that: a server that someone else started may
    /// remember earlier runs. `what` tells those of one measurement apart. The digest of the prompts is that of the prompts as they were drawn:
    /// what it tells apart are workloads.
    async fn begun(
        &mut self,
        what: &str,
        mut items: Vec<Item>,
        workload: &Arc<PreparedWorkload>,
    ) -> Result<Vec<Item>, String> {
        if !self.launch.contact.unique_prefixes {
            return Ok(items);
        }
        let Measurement { cell, start, repeat } = self.measurement;
        // The moment tells runs, and tries of a resumed one, apart: a server that someone else started remembers them all.
        let moment = clock::unix_seconds();
        let beginning = Beginning::of(&(cell, start, repeat, self.tries, what, moment));
        let letters = beginning.letters().to_owned();
        let workload = Arc::clone(workload);
        let putting = tokio::task::spawn_blocking(move || {
            let contents = items.iter_mut().map(|item| &mut item.content);
            let given = beginning.put(contents, &workload.tokenizer);
            given.map(|given| (items, given))
        });
        let put = putting.await.expect("putting letters does not panic");
        let (items, given) = put.map_err(|error| error.to_string())?;
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        if given.kept > 0 && what != WARM_UP {
            self.summary.warnings.push(format!(
                "{} of {} prompts kept their own beginning: no unique one leaves their length as it is",
                given.kept,
                items.len()
            ));
        }
        self.unique_prefix = Some(UniquePrefix {
            letters,
            tokens: count(given.tokens),
            kept: count(given.kept),
        });
        if let Some(proof) = &mut self.summary.reset {
            proof.unique_prefix.clone_from(&self.unique_prefix);
        }
        Ok(items)
    }

    /// Sends the first prompt some times and waits for the answers. All failed: the measurement cannot begin.
    async fn warm_up(
        &mut self,
        ready: &mut ReadyEngine,
        workload: &Arc<PreparedWorkload>,
        stop: &Stop,
    ) -> Result<(), CellOutcome> {
        let scenario = &self.cell.scenario;
        // `classic` sends the whole first request; `current` asks for 32 tokens at most.
        let limit = match scenario.profile {
            Profile::Classic => None,
            Profile::Current => Some(32),
        };
        let (Some(warm), count) = (
            warm_up(scenario, &workload.prepared, limit),
            scenario.limits.warmup,
        ) else {
            return Ok(());
        };
        if count == 0 {
            return Ok(());
        }
        let of_load = self.unique_prefix.clone();
        let begun = self.begun(WARM_UP, vec![warm; count as usize], workload).await;
        self.unique_prefix = of_load;
        let items = match begun {
            Ok(items) => items,
            Err(reason) => {
                return Err(self.failed_here(Phase::Warmup, FailureClass::Spec, reason, Vec::new(), true));
            }
        };
        let load = load_of(&ready.target, scenario, items);
        let (driven, cut) = match self.drive(Phase::Warmup, ready, load, stop).await {
            Ok(driven) => driven,
            Err(error) => {
                return Err(self.failed_here(
                    Phase::Warmup,
                    FailureClass::Client,
                    error.to_string(),
                    Vec::new(),
                    true,
                ));
            }
        };
        if let Some(cut) = cut {
            self.end_phase(Phase::Warmup);
            return Err(self.cut(Phase::Warmup, cut, Vec::new()));
        }
        match driven
            .requests
            .iter()
            .find_map(|request| request.failure.as_ref())
        {
            Some(failure) if driven.requests.iter().all(|request| !request.is_completed()) => {
                let reason = format!(
                    "every warm-up request failed: {}: {}",
                    failure.class.name(),
                    failure.message
                );
                let tail = ready.running.log().tail();
                Err(self.failed_here(Phase::Warmup, FailureClass::Engine, reason, tail, false))
            }
            _ => Ok(()),
        }
    }

    async fn reset_caches(&mut self, ready: &ReadyEngine) {
        let proof = engine::reset_caches(
            &self.launch.contact,
            ready.running.endpoint(),
            &self.job.host.http,
        )
        .await;
        self.summary.reset = Some(ResetProof {
            is_fresh_start: ready.measured == 0 && !self.launch.is_attached(),
            unique_prefix: self.unique_prefix.clone(),
            ..proof
        });
    }

    /// Cuts what was sampled to the window of a load.
    async fn sampled(&mut self, ready: &ReadyEngine, span: Span, engine_is_well: bool) {
        let (telemetry, samples) = ready.sampling.after(span, engine_is_well).await;
        self.summary.telemetry = Some(telemetry);
        self.samples = samples;
    }

    /// Prefix-cache hits over the window; a reset that answers success and resets nothing shows here.
    fn count_hits(&mut self, engine: Option<&EngineWindow>) {
        let Some(engine) = engine else {
            return;
        };
        let proof = self.summary.reset.get_or_insert(ResetProof {
            is_fresh_start: false,
            possible: false,
            status: None,
            success: None,
            answer: None,
            unique_prefix: None,
            hits_in_window: None,
            queries_in_window: None,
        });
        proof.hits_in_window = engine.grown.get("prefix_hits").copied();
        proof.queries_in_window = engine.grown.get("prefix_queries").copied();
    }

    /// Asks the engine once more what it serves: a server may have been changed under the load.
    async fn ask_again(&mut self, ready: &ReadyEngine) {
        let told = engine::facts(self.launch, ready.running.endpoint(), &self.job.host.http).await;
        let facts = &mut self.summary.engine;
        if !told.models.is_empty() {
            facts.models = told.models;
            facts.served = told.served;
        }
        facts.version = told.version.or_else(|| facts.version.take());
        facts.info = told.info.or_else(|| facts.info.take());
    }

    /// Drives a load while the engine is watched.
    async fn drive(
        &mut self,
        phase: Phase,
        ready: &mut ReadyEngine,
        mut load: Load,
        stop: &Stop,
    ) -> Result<(Driven, Option<AbortReason>), DriveError> {
        let requests = load.items.len();
        if phase == Phase::Measure {
            load.sink = self.sink();
            load.spill = self.spill();
        }
        let driven = supervise::drive(&mut ready.running, load, stop, |progress| {
            self.tell_progress(phase, progress, requests);
        })
        .await;
        for unheard in ready.running.take_unheard() {
            self.summary.warnings.push(format!(
                "the container daemon did not answer for {:.0} s; the engine went on meanwhile",
                unheard.as_secs_f64()
            ));
        }
        driven
    }

    /// Where records go while the load runs, so that a crash loses seconds. Without a disk that takes them there is only the end.
    fn sink(&mut self) -> Option<Sink> {
        if self.sink.is_none() {
            let (sink, records) = Sink::new(Sink::ROOM, self.cell.scenario.keep_text);
            match self.job.store.keep_partial(self.measurement, records) {
                Ok(()) => self.sink = Some(sink),
                Err(error) => self
                    .summary
                    .warnings
                    .push(format!("no record was kept during the load: {error}")),
            }
        }
        self.sink.clone()
    }

    /// Where answers go that are more than memory is to hold. Without a disk that takes them memory holds them all.
    fn spill(&mut self) -> Option<Arc<Spill>> {
        if self.spill.is_none() {
            match Spill::new(self.job.store.folder(), Spill::BUDGET) {
                Ok(spill) => self.spill = Some(spill),
                Err(error) => self
                    .summary
                    .warnings
                    .push(format!("memory holds all answers of the load: {error}")),
            }
        }
        self.spill.clone()
    }

    fn tell_progress(&self, phase: Phase, progress: &Progress, requests: usize) {
        self.job.events.tell(Event::CellProgress {
            measurement: self.measurement.clone(),
            phase: phase.name().to_owned(),
            ended: progress.ended() as usize,
            requests,
            running: progress.running() as usize,
            failed: progress.failed() as usize,
            elapsed_s: clock::now().since(self.began).as_secs_f64(),
        });
    }

    async fn ended(
        mut self,
        driven: Driven,
        cut: Option<AbortReason>,
        accept_length: Option<f64>,
        workload: &Arc<PreparedWorkload>,
    ) -> CellOutcome {
        if let Some(missed) = self
            .sink
            .take()
            .map(|sink| sink.missed())
            .filter(|missed| *missed > 0)
        {
            self.summary.warnings.push(format!(
                "{missed} records were kept in memory alone while the load ran: the disk was too slow"
            ));
        }
        // Every point decided where a search went.
        let client = std::mem::take(&mut self.other_points).into_iter().fold(
            calibrate::facts(&driven, self.job.calibration),
            ClientFacts::worst,
        );
        let mut requests = driven.requests;
        requests = count_tokens(requests, workload).await;
        let basis = Basis {
            accept_length,
            // Of a search the requests are those of one point, and the energy is that of all.
            energy: match &self.cell.scenario.search {
                None => self
                    .summary
                    .telemetry
                    .as_ref()
                    .and_then(|told| told.energy.clone()),
                Some(_) => None,
            },
            engine: match &self.cell.scenario.search {
                None => self
                    .summary
                    .telemetry
                    .as_ref()
                    .and_then(|told| told.engine.clone()),
                Some(_) => None,
            },
            ..Basis::of(self.launch, self.cell)
        };
        if metrics::divides_gaps(&basis.backend, accept_length) {
            requests = count_chunks(requests, workload).await;
        }
        if !self.cell.scenario.keep_text {
            for request in &mut requests {
                (request.text, request.tool_text) = (None, None);
            }
        }
        self.summary.failures = failures(&requests);
        self.summary.stamps = Some(driven.stamp.name().to_owned());
        self.summary
            .warnings
            .extend(crate::analysis::calibration::left_open(&client));
        self.summary.client = Some(client);
        self.summary.figures = metrics::summarize(&requests, &basis);
        self.summary.intervals = metrics::intervals(&requests);
        self.summary.answers = Some(validity::answers(&requests));
        let spill = self.spill.take();
        self.summary
            .warnings
            .extend(spill.as_ref().and_then(|spill| spill.missed()));
        if let Some(lost) = spill.and_then(|spill| spill.lost()) {
            (self.summary.figures, self.summary.intervals, self.summary.answers) = Default::default();
            return self.failed_here(
                Phase::Measure,
                FailureClass::Infrastructure,
                lost,
                Vec::new(),
                true,
            );
        }
        if let Some(cut) = cut {
            return self.cut(Phase::Measure, cut, requests);
        }
        let failed = requests.iter().filter(|request| !request.is_completed()).count();
        if failed == requests.len() && failed > 0 {
            let first = requests.iter().find_map(|request| request.failure.as_ref());
            let said = first.map_or_else(String::new, |failure| {
                format!(": {}: {}", failure.class.name(), failure.message)
            });
            let mut measured = self.failed_here(
                Phase::Measure,
                FailureClass::Engine,
                format!("all {failed} requests failed{said}"),
                Vec::new(),
                true,
            );
            measured.requests = requests;
            return measured;
        }
        self.summary.ended = clock::timestamp();
        CellOutcome {
            summary: self.summary,
            requests,
            samples: self.samples,
            engine_is_well: true,
            end: None,
        }
    }

    fn cut(&mut self, phase: Phase, cut: AbortReason, requests: Vec<Request>) -> CellOutcome {
        let mut measured = match cut {
            AbortReason::Stopped => {
                self.summary.ending = Ending::Interrupted;
                self.summary.ended = clock::timestamp();
                CellOutcome {
                    summary: self.summary.clone(),
                    requests: Vec::new(),
                    samples: std::mem::take(&mut self.samples),
                    engine_is_well: true,
                    end: None,
                }
            }
            AbortReason::Died(death) => {
                let means = death
                    .omen
                    .as_ref()
                    .map_or_else(String::new, |omen| format!(": {}", omen.explains()));
                let reason = format!("the engine {} under load{means}", death.status);
                let mut measured = self.failed_here(phase, death.class, reason, death.tail, false);
                measured.end = death.end;
                measured
            }
            AbortReason::Hung { seconds } => {
                let reason = format!("the engine hangs: no stream moved for {seconds}s");
                self.failed_here(phase, FailureClass::Engine, reason, Vec::new(), false)
            }
        };
        measured.requests = requests;
        measured
    }

    fn failed(
        mut self,
        phase: Phase,
        class: FailureClass,
        reason: String,
        tail: Vec<String>,
        well: bool,
    ) -> CellOutcome {
        self.failed_here(phase, class, reason, tail, well)
    }

    fn failed_here(
        &mut self,
        phase: Phase,
        class: FailureClass,
        reason: String,
        tail: Vec<String>,
        well: bool,
    ) -> CellOutcome {
        self.summary.ending = Ending::Failed {
            phase,
            class,
            reason,
            tail,
        };
        self.summary.ended = clock::timestamp();
        CellOutcome {
            summary: self.summary.clone(),
            requests: Vec::new(),
            samples: std::mem::take(&mut self.samples),
            engine_is_well: well,
            end: None,
        }
    }
}

/// A summary before anything is known.
pub(crate) fn blank(
    launch: &Launch,
    cell: &Cell,
    measurement: &Measurement,
    engine: EngineFacts,
    phases: Vec<PhaseTime>,
) -> Summary {
    let now = clock::timestamp();
    let origin = match launch.engine.simulated || engine.simulated {
        true => Origin::Simulated,
        false => Origin::Measured,
    };
    Summary {
        start: measurement.start,
        repeat: measurement.repeat,
        began: now.clone(),
        ended: now,
        phases,
        engine,
        ..Summary::new(cell.key.clone(), cell.content.clone(), launch.id.clone(), origin)
    }
}

pub(super) fn load_of(target: &Target, scenario: &Scenario, items: Vec<Item>) -> Load {
    Load {
        target: target.clone(),
        items,
        concurrency: scenario.arrival.concurrency,
        limits: scenario.limits.clone(),
        body: scenario.body.clone(),
        stop_at_eos: scenario.stop_at_eos,
        sink: None,
        spill: None,
        threads: NonZeroUsize::MIN,
    }
}

/// Our own count of each answer's tokens, off the timed path.
pub(super) async fn count_tokens(
    mut requests: Vec<Request>,
    workload: &Arc<PreparedWorkload>,
) -> Vec<Request> {
    let workload = Arc::clone(workload);
    let counting = tokio::task::spawn_blocking(move || {
        see(&mut requests, &workload.prepared.prompts);
        answers::count_prompts(&mut requests, &workload.prepared.prompts, &workload.tokenizer);
        answers::count_outputs(&mut requests, &workload.tokenizer);
        answers::find_canned(&mut requests, &workload.prepared.prompts);
        answers::find_common_beginning(&mut requests, &workload.prepared.prompts, &workload.tokenizer);
        answers::find_echoes(&mut requests, &workload.prepared.prompts, &workload.tokenizer);
        answers::count_rounds(&mut requests, &workload.prepared.prompts, &workload.tokenizer);
        requests
    });
    counting.await.expect("counting tokens does not panic")
}

/// Our own count of the tokens of each chunk's text by itself, off the timed path; `None` where the text was not kept.
pub(super) async fn count_chunks(
    mut requests: Vec<Request>,
    workload: &Arc<PreparedWorkload>,
) -> Vec<Request> {
    let workload = Arc::clone(workload);
    let counting = tokio::task::spawn_blocking(move || {
        let words = || Words::new(&workload.tokenizer);
        answers::on_all_cores(&mut requests, words, |request, words| {
            request.counted_chunks = answers::count_chunks(request, words).map(Into::into);
        });
        requests
    });
    counting.await.expect("counting tokens does not panic")
}

/// Tokens that the engine accepted per step of speculative decoding; asked of those that bench_serving asks.
///
/// Source: spec/bench-serving.md 6, step 17.
async fn accepted(job: &Job<'_>, launch: &Launch, ready: &ReadyEngine) -> Option<f64> {
    if !launch.engine.backend.contains("sglang") {
        return None;
    }
    let info = engine::info(&launch.contact, ready.running.endpoint(), &job.host.http).await?;
    engine::accept_length(&info)
}

/// The window of a load: to the end of its last request.
pub(super) fn span_of(driven: &Driven) -> Span {
    let last = driven.requests.iter().map(|request| request.end_ns).max();
    let length = last.map_or(driven.wall, Duration::from_nanos);
    Span {
        zero: driven.zero,
        end: driven.zero.plus(length),
    }
}
