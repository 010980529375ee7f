//! One load on a ready engine: sampling around it, the requests, and our own count of their tokens.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use crate::base::clock::{self, Moment};
use crate::base::ids::ContentHash;
use crate::config::scenario::Scenario;
use crate::loadgen::dataset::Draws;
use crate::loadgen::dataset::words::Words;
use crate::loadgen::{DriveError, Driven, Item, Load, Sink, Spill, Stamp, Target};
use crate::plan::Protocol;
use crate::results::record::client::{Calibration, ClientFacts};
use crate::results::record::request::Request;
use crate::results::record::telemetry::{Sample, Telemetry};
use crate::runner::answers;
use crate::runner::calibrate;
use crate::runner::prompt_store::{PreparedWorkload, repeated_share_of};
use crate::runner::ready_engine::ReadyEngine;
use crate::runner::requests::{self, Part, RanOut, placed, ran_out, see};
use crate::runner::supervise::{self, AbortReason, DriveControl};
use crate::runner::telemetry::MeasuredWindow;

/// Requests that are ready to be sent.
#[derive(Clone)]
pub(crate) struct PreparedLoad {
    pub(crate) scenario: Scenario,
    pub(crate) items: Vec<Item>,
    /// The place of its first prompt in the workload.
    pub(crate) from: usize,
    /// A digest of when it is sent, and of the adapters.
    pub(crate) schedule: ContentHash,
    /// When one more request would fall due.
    pub(crate) next: Option<Duration>,
}

impl PreparedLoad {
    /// Every prompt of a workload at the arrival of a scenario; arrivals and adapters are drawn from `draws`.
    ///
    /// # Errors
    /// In words, why images have no place in the prompts.
    pub(crate) fn whole(
        scenario: Scenario,
        workload: &PreparedWorkload,
        protocol: Protocol,
        draws: &mut Draws,
    ) -> Result<Self, String> {
        let part = Part::whole(&workload.prepared);
        Self::of_part(scenario, workload, protocol, part, draws)
    }

    /// Some prompts of a workload.
    ///
    /// # Errors
    /// As [`Self::whole`].
    pub(crate) fn of_part(
        scenario: Scenario,
        workload: &PreparedWorkload,
        protocol: Protocol,
        part: Part,
        draws: &mut Draws,
    ) -> Result<Self, String> {
        let sending = requests::part(&scenario, &workload.prepared, part, draws);
        Ok(Self {
            scenario,
            items: placed(sending.items, protocol, &workload.tokenizer)?,
            from: part.from,
            schedule: sending.schedule,
            next: sending.next,
        })
    }
}

/// What is given to a load beside its requests.
pub(crate) struct LoadContext<'a> {
    /// Where records go while it runs.
    pub(crate) sink: Option<Sink>,
    /// Where responses go that exceed the memory budget.
    pub(crate) spill: Option<Arc<Spill>>,
    /// The error of the client on this machine, if it was measured.
    pub(crate) calibration: Option<&'a Calibration>,
    /// Whether this load continues the samples of the one before, because telemetry covers both.
    pub(crate) continues_samples: bool,
    /// Whether telemetry is sampled after a load that was stopped, because its metrics are shown.
    pub(crate) samples_after_stop: bool,
    pub(crate) control: DriveControl<'a>,
}

/// What a load came to.
pub(crate) struct LoadOutcome {
    /// When its first request was about to be sent, RFC 3339.
    pub(crate) began: String,
    /// A record for each request, with our own count of its tokens.
    pub(crate) requests: Vec<Request>,
    pub(crate) window: MeasuredWindow,
    /// When the load generator was done; sampling and counting came later.
    pub(crate) driven: Moment,
    /// The clock that took the moments of arrival.
    pub(crate) stamp: Stamp,
    /// What the client spent, and how far its moments may be off.
    pub(crate) client: ClientFacts,
    pub(crate) telemetry: Telemetry,
    pub(crate) samples: Vec<Sample>,
    /// That the prompts ran out before the time to send was over, where they did.
    pub(crate) ran_out: Option<RanOut>,
    /// The place of its first prompt in the workload.
    pub(crate) from: usize,
    /// How many prompts were sent.
    pub(crate) prompts: usize,
    /// Why it was cut before its end, where it was.
    pub(crate) abort: Option<AbortReason>,
    /// Whether it ended early because too many requests failed.
    pub(crate) is_aborted: bool,
    /// Where responses went that exceed the memory budget.
    pub(crate) spill: Option<Arc<Spill>>,
}

/// Sends every request at its due time and follows it to its end, with telemetry sampled directly before and after; then counts tokens.
///
/// # Errors
/// No request can be written or sent at all.
pub(crate) async fn measure(
    engine: &mut ReadyEngine,
    load: PreparedLoad,
    workload: &Arc<PreparedWorkload>,
    mut context: LoadContext<'_>,
) -> Result<LoadOutcome, DriveError> {
    if !context.continues_samples {
        engine.sampling.before().await;
    }
    let began = clock::timestamp();
    let rows = load.items.len();
    let sent = Load {
        sink: context.sink,
        spill: context.spill.clone(),
        ..load_of(&engine.target, &load.scenario, load.items)
    };
    let (driven, abort) = supervise::drive(&mut engine.running, sent, &mut context.control).await?;
    let ended = clock::now();
    engine.measured += 1;
    let window = window_of(&driven);
    let is_sampled = match abort {
        None => true,
        Some(AbortReason::Stopped) => context.samples_after_stop,
        Some(_) => false,
    };
    let (telemetry, samples) = engine.sampling.after(window, is_sampled).await;
    Ok(LoadOutcome {
        began,
        window,
        driven: ended,
        stamp: driven.stamp,
        client: calibrate::facts(&driven, context.calibration),
        telemetry,
        samples,
        ran_out: ran_out(&load.scenario, rows, load.next, &driven),
        from: load.from,
        // A conversation is one prompt and several requests; if time ran out, not every prompt was sent.
        prompts: rows.min(driven.requests.len()),
        abort,
        is_aborted: context.control.progress.is_aborted(),
        spill: context.spill,
        requests: count_tokens(driven.requests, workload).await,
    })
}

impl AsRef<Self> for LoadOutcome {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl LoadOutcome {
    /// The share of prompt tokens that its prompts repeat of each other; `None` where it is unknown. A few of many prompts may repeat each
    /// other more than all do.
    pub(crate) async fn repeated_share(&self, workload: &Arc<PreparedWorkload>) -> Option<f64> {
        repeated_share_of(workload, self.from, self.prompts).await
    }
}

/// What the load generator is given for these requests.
pub(crate) fn load_of(target: &Target, scenario: &Scenario, items: Vec<Item>) -> Load {
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
async fn count_tokens(mut requests: Vec<Request>, workload: &Arc<PreparedWorkload>) -> Vec<Request> {
    let workload = Arc::clone(workload);
    let counting = tokio::task::spawn_blocking(move || {
        let (prompts, tokenizer) = (&workload.prepared.prompts, &workload.tokenizer);
        see(&mut requests, prompts);
        answers::count_prompts(&mut requests, prompts, tokenizer);
        answers::count_outputs(&mut requests, tokenizer);
        answers::find_canned(&mut requests, prompts);
        answers::find_common_beginning(&mut requests, prompts, tokenizer);
        answers::find_echoes(&mut requests, prompts, tokenizer);
        answers::count_rounds(&mut requests, prompts, tokenizer);
        requests
    });
    counting.await.expect("counting tokens does not panic")
}

/// Our own count of the tokens of each chunk's text by itself, off the timed path; `None` where the text was not kept.
pub(crate) async fn count_chunks(
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

/// The window of a load: to the end of its last request.
fn window_of(driven: &Driven) -> MeasuredWindow {
    let last = driven.requests.iter().map(|request| request.end_ns).max();
    let length = last.map_or(driven.wall, Duration::from_nanos);
    MeasuredWindow {
        zero: driven.zero,
        end: driven.zero.plus(length),
    }
}
