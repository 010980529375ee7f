//! One load on a ready engine: telemetry around it, the requests, and our own count of their tokens.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::analysis::metrics;
use crate::base::clock::{self, MonotonicTime};
use crate::base::ids::ContentHash;
use crate::config::scenario::Scenario;
use crate::loadgen::dataset::RngState;
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::dataset::words::WordEncoder;
use crate::loadgen::{
    CancelPlan, LoadError, LoadResult, LoadSpec, PlannedRequest, Sink, Spill, Target, TimestampSource,
};
use crate::plan::Protocol;
use crate::results::record::client::{Calibration, ClientFacts};
use crate::results::record::request::Request;
use crate::results::record::telemetry::{Sample, Telemetry};
use crate::runner::answers;
use crate::runner::answers::checks::AnswerChecks;
use crate::runner::calibrate;
use crate::runner::probe_monitor::{ProbeGoal, ProbeMonitor};
use crate::runner::prompt_store::{PreparedWorkload, repeated_share};
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::requests::{
    self, PromptRange, PromptsExhausted, insert_image_placeholders, prompts_exhausted,
    reconcile_vision_tokens, replace_session_ids,
};
use crate::runner::reusable::SentPrompts;
use crate::runner::supervise::{self, AbortReason, DriveControl};
use crate::runner::telemetry::MeasuredWindow;

#[derive(Clone)]
pub(crate) struct PreparedLoad {
    pub(crate) scenario: Scenario,
    pub(crate) items: Vec<PlannedRequest>,
    /// What the answers must be, if they are checked.
    pub(super) checks: Option<Arc<AnswerChecks>>,
    /// Requests that fill the prefix cache before the load.
    pub(crate) priming: Vec<PlannedRequest>,
    /// Index of the first prompt in the workload.
    pub(crate) first_prompt: usize,
    /// Digest of due times and adapters.
    pub(crate) schedule: ContentHash,
    /// When one more request would fall due.
    pub(crate) next: Option<Duration>,
    /// What the load must show, if it is a probe of a search, which ends once it does.
    pub(crate) goal: Option<ProbeGoal>,
}

impl PreparedLoad {
    /// Prepares every prompt of a workload with the arrival of a scenario. Arrivals and adapters are drawn
    /// from `draws`. Fails with a message if the prompts cannot contain images, or if answers are to be checked and cannot be.
    pub(crate) fn for_all_prompts(
        scenario: Scenario,
        workload: &PreparedWorkload,
        protocol: Protocol,
        draws: &mut RngState,
    ) -> Result<Self, String> {
        let part = PromptRange::full(&workload.prepared);
        Self::for_range(scenario, workload, protocol, part, draws)
    }

    /// Prepares some prompts of a workload, like [`Self::for_all_prompts`].
    pub(crate) fn for_range(
        scenario: Scenario,
        workload: &PreparedWorkload,
        protocol: Protocol,
        part: PromptRange,
        draws: &mut RngState,
    ) -> Result<Self, String> {
        let sending = requests::prepare_requests(&scenario, &workload.prepared, part, draws);
        let priming = requests::priming_items(&scenario, &workload.prepared);
        let checks = scenario
            .check_answers
            .then(|| AnswerChecks::compile(&sending.items, &scenario.body).map(Arc::new));
        Ok(Self {
            scenario,
            checks: checks.transpose()?,
            priming: protocol_items(priming, protocol, &workload.tokenizer)?,
            items: protocol_items(sending.items, protocol, &workload.tokenizer)?,
            first_prompt: part.first_prompt,
            schedule: sending.schedule,
            next: sending.next,
            goal: None,
        })
    }
}

/// Gives the requests the form that the protocol takes. Fails with a message if it takes none.
pub(crate) fn protocol_items(
    items: Vec<PlannedRequest>,
    protocol: Protocol,
    tokenizer: &Tokenizer,
) -> Result<Vec<PlannedRequest>, String> {
    let items = insert_image_placeholders(items, protocol, tokenizer)?;
    replace_session_ids(items, protocol, tokenizer)
}

/// Input of a load besides its requests.
pub(crate) struct LoadContext<'a> {
    /// Where records go while the load runs.
    pub(crate) sink: Option<Sink>,
    /// Where responses beyond the memory budget go.
    pub(crate) spill: Option<Arc<Spill>>,
    /// The client's calibration on this host, if there is one.
    pub(crate) calibration: Option<&'a Calibration>,
    /// Whether the samples of the previous load are kept, because telemetry covers both loads.
    pub(crate) continues_samples: bool,
    /// Whether telemetry is sampled after a stopped load, because its metrics are shown.
    pub(crate) samples_after_stop: bool,
    pub(crate) control: DriveControl<'a>,
}

pub(crate) struct LoadOutcome {
    /// When its first request was about to be sent, RFC 3339.
    pub(crate) began: String,
    /// A record for each request, with our own count of its tokens.
    pub(crate) requests: Vec<Request>,
    pub(crate) window: MeasuredWindow,
    /// When the load generator finished, before sampling and counting.
    pub(crate) generator_end: MonotonicTime,
    /// The clock of the arrival timestamps.
    pub(crate) timestamp_source: TimestampSource,
    /// CPU use of the client, and the possible error of its timestamps.
    pub(crate) client: ClientFacts,
    pub(crate) telemetry: Telemetry,
    pub(crate) samples: Vec<Sample>,
    /// Set if the prompts ran out before the sending time was over.
    pub(crate) ran_out: Option<PromptsExhausted>,
    /// Index of the first prompt in the workload.
    pub(crate) first_prompt: usize,
    /// Number of prompts that were sent.
    pub(crate) prompts: usize,
    /// Why the load was cut short, if it was.
    pub(crate) abort: Option<AbortReason>,
    /// Number of judged requests after which the load was ended because it had shown what it must.
    pub(crate) decided: Option<usize>,
    /// Whether the load ended early because too many requests failed.
    pub(crate) is_aborted: bool,
    /// Where responses went that exceed the memory budget.
    pub(crate) spill: Option<Arc<Spill>>,
}

/// Sends every request at its due time and waits for its end. Telemetry is sampled directly before and after.
/// Then tokens are counted. Fails if no request can be written or sent at all.
pub(crate) async fn measure(
    engine: &mut ReadyEngine,
    load: PreparedLoad,
    workload: &Arc<PreparedWorkload>,
    mut context: LoadContext<'_>,
) -> Result<LoadOutcome, LoadError> {
    if !context.continues_samples {
        engine.sampling.sample_before_load().await;
    }
    let began = clock::timestamp();
    let rows = load.items.len();
    let checks = load.checks;
    let kept = SentPrompts::keep(&load.scenario, &load.priming, &load.items);
    // A conversation has several records, of which no order is known beforehand.
    let is_single = load.items.iter().all(|item| item.rounds() == 1);
    let watched = load
        .goal
        .filter(|_| is_single)
        .map(|goal| ProbeMonitor::start(goal, rows));
    let (monitor, watch) = watched.unzip();
    let sent = LoadSpec {
        watch,
        sink: context.sink,
        spill: context.spill.clone(),
        cancel: load.scenario.cancel.map(|cancel| CancelPlan {
            cancel,
            seed: load.scenario.seed,
        }),
        ..load_spec(&engine.target, &load.scenario, load.items)
    };
    let (driven, abort) = supervise::drive(&mut engine.running, sent, &mut context.control).await?;
    let ended = clock::now();
    let decided = monitor.and_then(ProbeMonitor::finish);
    engine.measurement_count += 1;
    let window = load_window(&driven);
    let is_sampled = match abort {
        None => true,
        Some(AbortReason::Stopped) => context.samples_after_stop,
        Some(_) => false,
    };
    let (telemetry, samples) = engine.sampling.sample_after_load(window, is_sampled).await;
    let ran_out = prompts_exhausted(&load.scenario, rows, load.next, &driven).filter(|_| decided.is_none());
    let client = calibrate::client_facts(&driven, context.calibration);
    // A conversation is one prompt with several requests. If time ran out, not every prompt was sent.
    let prompts = rows.min(driven.records.len());
    let timestamp_source = driven.timestamp_source;
    let requests = match kept {
        Some(kept) => kept.count(driven.records, workload).await,
        None => driven.records,
    };
    Ok(LoadOutcome {
        began,
        window,
        generator_end: ended,
        timestamp_source,
        client,
        telemetry,
        samples,
        ran_out,
        first_prompt: load.first_prompt,
        prompts,
        abort,
        decided,
        is_aborted: context.control.progress.is_aborted(),
        spill: context.spill,
        requests: read_answers(requests, workload, checks).await,
    })
}

impl AsRef<Self> for LoadOutcome {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl LoadOutcome {
    /// Share of prompt tokens that the sent prompts repeat of each other; `None` if unknown. It can be larger
    /// for a part of the prompts than for all.
    pub(crate) async fn repeated_share(&self, workload: &Arc<PreparedWorkload>) -> Option<f64> {
        let repeated = repeated_share(workload, self.first_prompt, self.prompts).await;
        // Requests that filled the cache before the load count, too.
        match metrics::theoretical_hit_share(&self.requests) {
            Some(reusable) => Some(repeated.unwrap_or(0.0).max(reusable)),
            None => repeated,
        }
    }
}

/// Input of the load generator for these requests.
pub(crate) fn load_spec(target: &Target, scenario: &Scenario, items: Vec<PlannedRequest>) -> LoadSpec {
    LoadSpec {
        target: target.clone(),
        requests: match &target.dialect.routing_key_header {
            Some(_) => with_routing_keys(items, scenario.seed),
            None => items,
        },
        concurrency: scenario.arrival.concurrency,
        sessions: scenario.pacing.sessions,
        connections: scenario.connections,
        cancel: None,
        limits: scenario.limits.clone(),
        body: scenario.body.clone(),
        stop_at_eos: scenario.stop_at_eos,
        sink: None,
        watch: None,
        spill: None,
        threads: NonZeroUsize::MIN,
    }
}

/// Gives the requests of each conversation and session a routing key of their own, unless their rows have one. Keys are
/// the same for the same load, so that it can be repeated.
fn with_routing_keys(mut items: Vec<PlannedRequest>, seed: u64) -> Vec<PlannedRequest> {
    for (row, planned) in items.iter_mut().enumerate() {
        let Some(extras) = &mut planned.extras else {
            continue;
        };
        let key = match (&extras.session, &extras.turns) {
            (Some(link), _) => format!("{seed}-session-{}", link.session),
            (None, Some(_)) => format!("{seed}-conversation-{row}"),
            (None, None) => continue,
        };
        if extras.routing_key.is_none() {
            Arc::make_mut(extras).routing_key = Some(key);
        }
    }
    items
}

/// Counts each answer's tokens with our own tokenizer, and checks the answers, off the timed path.
async fn read_answers(
    mut requests: Vec<Request>,
    workload: &Arc<PreparedWorkload>,
    checks: Option<Arc<AnswerChecks>>,
) -> Vec<Request> {
    let workload = Arc::clone(workload);
    let counting = tokio::task::spawn_blocking(move || {
        let (prompts, tokenizer) = (&workload.prepared.prompts, &workload.tokenizer);
        reconcile_vision_tokens(&mut requests, prompts);
        answers::count_outputs(&mut requests, tokenizer);
        match tokenizer.is_built_in() {
            true => answers::drop_counts(&mut requests),
            false => answers::count_prompts(&mut requests, prompts, tokenizer),
        }
        // Recordings may say the same, and those without speech are often answered with the same words.
        if requests.iter().all(|request| request.audio.is_none()) {
            answers::find_canned(&mut requests, prompts);
            answers::find_common_beginning(&mut requests, prompts, tokenizer);
        }
        answers::find_echoes(&mut requests, prompts, tokenizer);
        if !tokenizer.is_built_in() {
            answers::count_rounds(&mut requests, prompts, tokenizer);
        }
        if let Some(checks) = checks {
            checks.apply(&mut requests);
        }
        requests
    });
    counting.await.expect("counting tokens does not panic")
}

/// Counts the tokens of each chunk's text with our own tokenizer, off the timed path. Requests without text
/// get no count.
pub(crate) async fn count_chunks(
    mut requests: Vec<Request>,
    workload: &Arc<PreparedWorkload>,
) -> Vec<Request> {
    let workload = Arc::clone(workload);
    let counting = tokio::task::spawn_blocking(move || {
        let new_encoder = || WordEncoder::new(&workload.tokenizer);
        answers::for_each_request(&mut requests, new_encoder, |request, new_encoder| {
            request.counted_chunks = answers::count_chunks(request, new_encoder).map(Into::into);
        });
        requests
    });
    counting.await.expect("counting tokens does not panic")
}

/// The window of a load, until the end of its last request.
fn load_window(driven: &LoadResult) -> MeasuredWindow {
    let last = driven.records.iter().map(|request| request.end_ns).max();
    let length = last.map_or(driven.wall, Duration::from_nanos);
    MeasuredWindow {
        start: driven.zero,
        end: driven.zero.plus(length),
    }
}
