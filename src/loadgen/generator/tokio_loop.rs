//! One thread's share of a drive: requests prepared; and, where connections are encrypted, sent in turn and followed to
//! their ends on tokio. Bare connections go through [`super::plain`].

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::bodies::{BEFORE, Bodies};
use super::concurrency_limit::{Slot, Slots};
use super::conversation::Talk;
use super::{DriveError, Driven, Item, Load, Progress};
use crate::base::clock::{self, Moment};
use crate::config::scenario::Limits;
use crate::loadgen::connection::{self, Route, RouteError, Stamp};
use crate::loadgen::dataset::Content;
use crate::loadgen::lateness::{Late, Lateness};
use crate::loadgen::protocol::{self, Ask, Decoder, EncodeError};
use crate::loadgen::request::{Answer, Bounds, Exchange, LeftOpen, nanos};
use crate::loadgen::sink::Sink;
use crate::loadgen::spill::Spill;
use crate::loadgen::target::Target;
use crate::plan::Usage;
use crate::results::record::chunks::Chunks;
use crate::results::record::request::{Class, Failure, Oddity, Request, is_same_model};

/// How many connections a thread may have in the making at first: requests that are due together go out together, as far as the accept
/// queues of servers reach (uvicorn's 2048, tokio's 1024). Each that stands at once makes room for one more.
/// A request that waits counts as sent after it: the wait is our delay, and in the lag.
pub(super) const CONNECTS: usize = 1024;
/// How many it may have once a connection had to be asked for again: servers with a short accept queue answer a flood with seconds of
/// retries.
pub(super) const FEW_CONNECTS: usize = 256;
/// So many requests that are due at once are begun before the event loop looks at its sockets.
pub(super) const BURST: usize = 16;

const SOUND: &str = "exchanges neither panic nor are aborted";

/// What all threads read.
pub(super) struct Shared {
    pub(super) target: Target,
    pub(super) limits: Limits,
    pub(super) body: Map<String, Value>,
    pub(super) stop_at_eos: bool,
    pub(super) route: Route,
    pub(super) slots: Option<Arc<Slots>>,
    /// Whether a request falls due when a slot is free for it, instead of at a time of its own.
    pub(super) is_closed_loop: bool,
    /// Where records go as they end.
    pub(super) sink: Option<Sink>,
    /// Where answers go that are more than memory is to hold.
    pub(super) spill: Option<Arc<Spill>>,
    pub(super) progress: Arc<Progress>,
}

impl Shared {
    /// Counts a request that ended, and has its record kept.
    pub(super) fn end(&self, request: &Request) {
        self.progress.end(request);
        if let Some(sink) = &self.sink {
            sink.take(request);
        }
    }
}

/// A record and what is told apart from it.
pub(super) struct Sent {
    pub(super) request: Request,
    pub(super) lag: Option<Duration>,
    pub(super) stamp: Option<Stamp>,
}

/// A request ready to be sent.
pub(super) struct Job {
    pub(super) index: u32,
    /// Its place in the share.
    pub(super) place: usize,
    pub(super) prompt_tokens: u32,
    pub(super) vision_tokens: u32,
    /// Which round of its conversation it is.
    pub(super) round: Option<u32>,
    pub(super) asked_tokens: u32,
    /// The most output tokens that its body allows, where that is another number.
    pub(super) limit_tokens: Option<u32>,
    /// The model that its body names, where it is another than the load's.
    pub(super) model: Option<String>,
    pub(super) due: Duration,
    pub(super) bytes: Vec<u8>,
    /// What the bytes are made of when its turn comes, where memory is not to hold them until then, and how many they are.
    pub(super) item: Option<Arc<Item>>,
    pub(super) length: usize,
    /// The conversation that it belongs to.
    pub(super) talk: Option<Box<Talk>>,
}

impl Job {
    /// How far it may go.
    pub(super) fn bounds(&self, limits: &Limits) -> Bounds {
        Bounds::of(self.limit_tokens.unwrap_or(self.asked_tokens), limits)
    }

    /// How many requests come after it in its conversation.
    pub(super) fn later(&self) -> usize {
        self.talk.as_ref().map_or(0, |talk| talk.left())
    }

    /// Whether it falls due before nothing more does. In a closed loop nothing does that has no slot by then.
    pub(super) fn falls_due_before(&self, end: Moment, zero: Moment, shared: &Shared) -> bool {
        !shared.is_closed_loop && zero.plus(self.due) < end
    }

    /// Notes that its turn has come: in a closed loop it falls due now that it has a slot.
    pub(super) fn take_turn(&mut self, ready: Moment, zero: Moment, shared: &Shared) {
        if shared.is_closed_loop {
            self.due = self.due.max(Duration::from_nanos(nanos(ready, zero)));
        }
    }
}

pub(super) fn prepare(share: Vec<(u32, Item)>, shared: &Shared) -> Result<Vec<Job>, DriveError> {
    let (mut next, mut held) = (0, 0);
    share
        .into_iter()
        .map(|(index, item)| {
            let Composed {
                bytes,
                limit_tokens,
                model,
            } = composed(&item, &item.content, shared)
                .map_err(|source| DriveError::Encode { index, source })?;
            let place = next;
            next += item.rounds();
            let talk = Talk::begin(&item);
            let length = bytes.len();
            // Each is made once, so that one that cannot be is known now.
            let (bytes, later) = match held + length <= BEFORE {
                true => (bytes, None),
                false => (Vec::new(), Some(Arc::new(item.clone()))),
            };
            held += bytes.len();
            Ok(Job {
                index,
                place,
                prompt_tokens: item.prompt_tokens,
                vision_tokens: item.vision_tokens(),
                round: talk.as_ref().map(|_| 0),
                asked_tokens: item.asked_tokens,
                limit_tokens,
                model,
                due: item.due,
                bytes,
                item: later,
                length,
                talk,
            })
        })
        .collect()
}

/// A request as it is sent.
pub(super) struct Composed {
    pub(super) bytes: Vec<u8>,
    /// The most output tokens that the bytes allow, where that is another number than was asked for.
    pub(super) limit_tokens: Option<u32>,
    /// The model that the bytes name, where it is another than the load's.
    pub(super) model: Option<String>,
}

/// The request for what an item asks.
pub(super) fn composed(item: &Item, content: &Content, shared: &Shared) -> Result<Composed, EncodeError> {
    let ask = Ask {
        model: &shared.target.model,
        tokens: item.asked_tokens,
        stop_at_eos: shared.stop_at_eos,
        body: &shared.body,
        lora: item.lora.as_deref(),
        extras: item.extras.as_deref(),
    };
    let body = protocol::encode(&shared.target.dialect, content, &ask)?;
    let limit_tokens =
        protocol::limit(&shared.target.dialect, &ask).filter(|limit| *limit != item.asked_tokens);
    let model = protocol::other_model(&shared.target.dialect, &ask);
    let bytes = connection::compose(&shared.target, ask.routing_key(), &body);
    Ok(Composed {
        bytes,
        limit_tokens,
        model,
    })
}

/// Why nothing more is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Closed {
    Stopped,
    Over,
}

/// Sends a share of the requests and waits for their ends.
pub(super) async fn send(
    jobs: Vec<Job>,
    shared: &Arc<Shared>,
    zero: Moment,
    stop: &CancellationToken,
    late: &Arc<Mutex<Late>>,
) -> Vec<Sent> {
    let cut = stop.child_token();
    let jobs = VecDeque::from(jobs);
    let bodies = Bodies::of(&jobs, shared);
    let over = shared.limits.duration.map(|span| zero.plus(span.duration()));
    let connects = Arc::new(Semaphore::new(CONNECTS));
    let mut running = JoinSet::new();
    let mut done = Vec::with_capacity(jobs.len());
    let mut closed = None;
    let closing = closing(over, stop);
    tokio::pin!(closing);
    for (turn, mut job) in jobs.into_iter().enumerate() {
        let slot = match closed {
            None => {
                tokio::select! {
                    biased;
                    why = &mut closing => {
                        closed = Some((why, over.filter(|_| why == Closed::Over).unwrap_or_else(clock::now)));
                        None
                    }
                    slot = turn_of(&job, shared, zero, turn) => Some(slot),
                }
            }
            Some(_) => None,
        };
        let slot = match (slot, closed) {
            (None, Some((_, end))) if !job.falls_due_before(end, zero, shared) => continue,
            // It fell due in time, and if nothing is in its way it is only we who are late.
            (None, Some((Closed::Over, _))) => turn_now(&job, shared, zero),
            (slot, _) => slot,
        };
        let Some((slot, ready)) = slot else {
            let why = closed.map_or(Closed::Stopped, |(why, _)| why);
            give_up(&job, why, zero, shared, &mut done);
            continue;
        };
        job.take_turn(ready, zero, shared);
        job.bytes = bodies.take(&mut job, shared);
        let way = Way {
            shared: Arc::clone(shared),
            connects: Arc::clone(&connects),
            cut: cut.clone(),
            zero,
            late: Arc::clone(late),
        };
        running.spawn(async move {
            let mut open = JoinSet::new();
            let sent = all(job, ready, &way, &mut open).await;
            drop(slot);
            let ended = tokio::select! {
                ended = open.join_all() => ended,
                () = way.cut.cancelled() => Vec::new(),
            };
            for _ in ended.into_iter().filter(|ended| !ended) {
                way.shared.progress.left_open.fetch_add(1, Ordering::Relaxed);
            }
            sent
        });
        while let Some(ended) = running.try_join_next() {
            done.extend(ended.expect(SOUND));
        }
    }
    let drained = async {
        match over {
            Some(over) => sleep_until(over.plus(shared.limits.drain.duration()).to_tokio()).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(drained);
    loop {
        tokio::select! {
            biased;
            ended = running.join_next() => match ended {
                Some(ended) => done.extend(ended.expect(SOUND)),
                None => return done,
            },
            () = &mut drained, if !cut.is_cancelled() => cut.cancel(),
        }
    }
}

/// Ends when nothing more may be sent.
async fn closing(end: Option<Moment>, stop: &CancellationToken) -> Closed {
    let over = async {
        match end {
            Some(end) => sleep_until(end.to_tokio()).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => Closed::Stopped,
        () = over => Closed::Over,
    }
}

/// Waits until a request is due and has a slot; the slot, and the moment from which a delay is our fault.
async fn turn_of(job: &Job, shared: &Shared, zero: Moment, turn: usize) -> (Option<Slot>, Moment) {
    let due = zero.plus(job.due);
    if clock::now() < due {
        sleep_until(due.to_tokio()).await;
    } else if turn.is_multiple_of(BURST) {
        tokio::task::yield_now().await;
    }
    let Some(slots) = &shared.slots else {
        return (None, due);
    };
    let slot = match slots.try_take() {
        Some(slot) => slot,
        None => Arc::clone(slots).take().await,
    };
    let ready = slot.ready(due);
    (Some(slot), ready)
}

/// A slot for a request that is due, if it need not be waited for.
fn turn_now(job: &Job, shared: &Shared, zero: Moment) -> Option<(Option<Slot>, Moment)> {
    let due = zero.plus(job.due);
    let Some(slots) = &shared.slots else {
        return Some((None, due));
    };
    let slot = slots.try_take()?;
    let ready = slot.ready(due);
    Some((Some(slot), ready))
}

/// What a request needs on its way.
struct Way {
    shared: Arc<Shared>,
    connects: Arc<Semaphore>,
    cut: CancellationToken,
    zero: Moment,
    /// How far moments may be off.
    late: Arc<Mutex<Late>>,
}

impl Way {
    /// Whether no further round falls due.
    fn is_closed(&self) -> bool {
        let limits = &self.shared.limits;
        let over = limits.duration.map(|span| self.zero.plus(span.duration()));
        self.cut.is_cancelled() || over.is_some_and(|over| clock::now() >= over)
    }
}

/// Sends one request now and follows it to its end, and then the rounds that come after it.
async fn all(mut job: Job, ready: Moment, way: &Way, open: &mut JoinSet<bool>) -> Vec<Sent> {
    let mut done = Vec::with_capacity(1 + job.later());
    let mut ready = ready;
    loop {
        let (place, talk) = (job.place, job.talk.take());
        let (sent, left_open) = one(job, talk.is_some(), ready, way).await;
        if let Some(left_open) = left_open {
            open.spawn(left_open.ends());
        }
        let next = talk.and_then(|talk| talk.next(&sent.request, place, &way.shared));
        done.push(sent);
        let Some(next) = next.filter(|_| !way.is_closed()) else {
            return done;
        };
        ready = way.zero.plus(next.due);
        job = next;
    }
}

/// Sends a request as soon as not too many connections are in the making.
async fn one(job: Job, is_talk: bool, ready: Moment, way: &Way) -> (Sent, Option<LeftOpen>) {
    let (limits, progress, zero) = (&way.shared.limits, &way.shared.progress, way.zero);
    let permit = tokio::select! {
        biased;
        permit = way.connects.acquire() => permit.ok(),
        () = way.cut.cancelled() => None,
    };
    let Some(permit) = permit else {
        let mut unsent = Vec::with_capacity(1);
        give_up(&job, Closed::Stopped, zero, &way.shared, &mut unsent);
        return (unsent.remove(0), None);
    };
    let permit = Mutex::new(Some(permit));
    let on_connect = |at_once| {
        drop(permit.lock().expect("nobody panics with it").take());
        way.connects.add_permits(usize::from(at_once));
    };
    let on_events = |count, off| {
        progress.events.fetch_add(count, Ordering::Relaxed);
        let mut late = way.late.lock().expect("nobody panics with it");
        late.take(count, Stamp::User, off);
        late.count(count, clock::now().since(zero));
    };
    let exchange = Exchange {
        route: &way.shared.route,
        on_connect: &on_connect,
        cut: &way.cut,
        on_events: &on_events,
        zero,
    };
    progress.running.fetch_add(1, Ordering::Relaxed);
    let mut record = blank(&job);
    let bounds = job.bounds(limits);
    let decoder = Decoder::new(way.shared.target.dialect.protocol, bounds.line_bytes)
        .allow_empty(way.shared.stop_at_eos)
        .spill_to(way.shared.spill.as_ref(), is_talk);
    let (answer, left_open) = exchange.run(job.bytes, decoder, bounds).await;
    let stamp = answer.stamp;
    let target = &way.shared.target;
    let model = job.model.as_deref().unwrap_or(&target.model);
    fill(&mut record, answer, target.dialect.usage, model, zero);
    progress.running.fetch_sub(1, Ordering::Relaxed);
    way.shared.end(&record);
    let lag = record
        .sent_ns
        .map(|at| Duration::from_nanos(at.saturating_sub(nanos(ready, zero))));
    let sent = Sent {
        request: record,
        lag,
        stamp,
    };
    (sent, left_open)
}

/// The record of a request that fell due and is never sent. The rounds after it never fall due.
pub(super) fn give_up(job: &Job, closed: Closed, zero: Moment, shared: &Shared, done: &mut Vec<Sent>) {
    let request = unsent(job, closed, nanos(clock::now(), zero));
    shared.end(&request);
    done.push(Sent {
        request,
        lag: None,
        stamp: None,
    });
}

/// The record of a request before anything happened to it.
pub(super) fn blank(job: &Job) -> Request {
    Request {
        index: job.index,
        prompt_tokens: job.prompt_tokens,
        vision_tokens: job.vision_tokens,
        round: job.round,
        asked_tokens: job.asked_tokens,
        due_ns: u64::try_from(job.due.as_nanos()).unwrap_or(u64::MAX),
        sent_ns: None,
        connected_ns: None,
        written_ns: None,
        first_byte_ns: None,
        limit_tokens: job.limit_tokens,
        chunks: Chunks::default(),
        last_line_ns: None,
        end_ns: 0,
        failure: None,
        status: None,
        usage: None,
        cached: None,
        oddities: Vec::new(),
        models: Vec::new(),
        finish: None,
        counted_tokens: None,
        counted_chunks: None,
        counted_prompt: None,
        omittable_prompt: 0,
        uniform: None,
        blank_events: 0,
        counted_first: None,
        common_events: 0,
        is_loop: false,
        is_canned: false,
        echoes_prompt: false,
        counted_reasoning: None,
        tool_text: None,
        text: None,
    }
}

/// Takes the facts of an answer into its record; `usage` is how its token counts were asked for, `model` the one that was asked for.
pub(super) fn fill(record: &mut Request, answer: Answer, usage: Usage, model: &str, zero: Moment) {
    let told = |at: Option<Moment>| at.map(|at| nanos(at, zero));
    record.sent_ns = Some(nanos(answer.sent, zero));
    record.connected_ns = told(answer.connected);
    record.written_ns = told(answer.written);
    record.first_byte_ns = told(answer.first_byte);
    record.last_line_ns = told(answer.last_line);
    record.end_ns = nanos(answer.end, zero);
    record.status = answer.status;
    let decoded = answer.decoded;
    record.chunks = decoded.chunks;
    record.failure = decoded.failure;
    record.usage = decoded.usage;
    record.cached = decoded.cached;
    record.oddities = decoded.oddities;
    // bench_serving does not ask for the event of usage, and would not have got it; but in conversations it does.
    if usage == Usage::StreamOptions {
        record.oddities.retain(|oddity| *oddity != Oddity::NoChoice);
        if let Some(usage) = record.usage.as_mut().filter(|_| record.round.is_none()) {
            usage.is_ours = true;
        }
    }
    record.models = decoded.models;
    record.models.retain(|named| !is_same_model(named, model));
    record.finish = decoded.finish;
    record.text = Some(decoded.text);
    record.tool_text = Some(decoded.tool_text).filter(|text| !text.is_empty());
}

fn unsent(job: &Job, closed: Closed, at_ns: u64) -> Request {
    let message = match closed {
        Closed::Stopped => "the run was stopped before it was sent",
        Closed::Over => "the time to send was over before a slot was free for it",
    };
    Request {
        end_ns: at_ns,
        failure: Some(Failure {
            class: Class::Unsent,
            message: message.to_owned(),
        }),
        ..blank(job)
    }
}

/// The records of a load whose engine has no address.
pub(super) fn unreachable(load: &Load, progress: &Progress, error: &RouteError) -> Driven {
    let mut requests = Vec::new();
    for item in &load.items {
        for round in 0..item.rounds() {
            let job = Job {
                index: u32::try_from(requests.len()).expect("a load has fewer than four billion requests"),
                place: 0,
                prompt_tokens: item.prompt_tokens,
                vision_tokens: if round == 0 { item.vision_tokens() } else { 0 },
                round: (item.rounds() > 1).then(|| u32::try_from(round).unwrap_or(u32::MAX)),
                asked_tokens: item.asked_tokens,
                limit_tokens: None,
                model: None,
                due: item.due,
                bytes: Vec::new(),
                item: None,
                length: 0,
                talk: None,
            };
            let mut request = blank(&job);
            request.end_ns = request.due_ns;
            request.failure = Some(Failure {
                class: Class::Connect,
                message: error.to_string(),
            });
            progress.end(&request);
            requests.push(request);
        }
    }
    Driven {
        requests,
        zero: clock::now(),
        wall: Duration::ZERO,
        lag: None,
        stamp: Stamp::User,
        clock_jumps: 0,
        lateness: Lateness::default(),
        left_open: 0,
        threads: Vec::new(),
    }
}
