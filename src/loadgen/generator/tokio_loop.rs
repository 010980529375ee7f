//! One thread's share of a load through TLS, sent in turn and followed to its end on tokio. Bare connections go through
//! [`super::epoll_loop`].

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep_until;
use tokio_util::sync::CancellationToken;

use super::bodies::Bodies;
use super::concurrency_limit::Slot;
use super::epoll_loop::{BURST, CONNECTS};
use super::outcome::{Closed, Sent, blank, fill, give_up};
use super::pending::Job;
use super::shared::Shared;
use crate::base::clock::{self, Moment};
use crate::loadgen::connection::Stamp;
use crate::loadgen::lateness::Late;
use crate::loadgen::protocol::Decoder;
use crate::loadgen::request::{Exchange, LeftOpen, nanos};

const SOUND: &str = "exchanges neither panic nor are aborted";

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
        let next = talk.and_then(|talk| Job::next_round(talk, &sent.request, place, &way.shared));
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
