//! Sends one thread's share of a load in its own event loop instead of an async runtime.
//!
//! Nearly all of the cost of tokens that arrive one by one is wake-ups and system calls. Since the kernel
//! records when bytes arrive, the loop can read late. With many streams it looks at its sockets at most about
//! a thousand times a second, and at least four times per gap between two events of one stream (less often in
//! floods), and reads what has gathered. Requests are still sent when they are due. Without kernel timestamps
//! the loop looks at once. Encrypted connections take the same path after separate threads have completed
//! their handshakes ([`handshakes`]).

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::io;
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use rustix::event::epoll;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use self::handshakes::Handshakes;
use self::pause::{Gap, Gaps};
use self::repeat::Attempts;
use self::reuse::ClosingSocket;
use self::slotted_request::SlottedRequest;
use self::wait::sleep;
use self::waker::LoopWaker;
use super::bodies::DeferredBodies;
use super::concurrency_limit::Slot;
use super::load_result::LoadError;
use super::pending::PendingRequest;
use super::request_outcome::{CloseReason, RequestOutcome};
use super::session::{FollowUps, Sessions};
use super::shared::Shared;
use crate::base::clock::{self, MonotonicTime};
use crate::loadgen::lateness::{HEARTBEAT, LatenessCounter};
use crate::loadgen::request::InFlight;
use crate::loadgen::socket::{ReadContext, Socket};
use crate::loadgen::wakeups::WakeTracker;

mod closing;
mod connect;
mod deadlines;
mod finish;
mod handshakes;
mod looks;
mod pause;
mod repeat;
mod reuse;
mod sending;
mod sessions;
mod slotted_request;
mod wait;
mod waker;

/// A look that read this much is followed by the next one at once, so that senders need not wait.
const BUSY_READ_BYTES: usize = 128 << 10;
/// Maximum number of events of one answer for which room is allocated ahead.
const MAX_EXPECTED_EVENTS: u32 = 4096;
/// Number of sockets that are served before due times are checked again.
const MAX_EPOLL_EVENTS: usize = 256;
/// Number of sockets that connect or send a body and are served at a time. It is not more than are started at
/// a time, because otherwise the last to start would wait for all others.
const MAX_PREPARING_EVENTS: usize = MAX_STARTS_PER_PASS;
/// Maximum number of streams for which memory is allocated ahead: the first write to a page of memory costs
/// as much as a system call.
const PREALLOCATED_STREAMS: usize = MAX_CONNECTING;
/// The epoll keys of the waker, and of the epoll with the sockets that connect or send a body.
const WAKER_TOKEN: u64 = u64::MAX;
const PREPARING_TOKEN: u64 = u64::MAX - 1;
/// The epoll key of the handshakes' waker, among the sockets that connect or send a body.
const HANDSHAKE_TOKEN: u64 = u64::MAX;

/// Initial limit of connections being established per thread. Requests that are due together are sent
/// together, as far as the accept queues of servers allow (uvicorn's 2048, tokio's 1024). Each connection
/// that is established at once raises the limit by one. A request that waits here counts as sent only after
/// the wait, so the wait is part of the lag.
pub(super) const MAX_CONNECTING: usize = 1024;
/// The limit after a connection attempt had to be repeated. Servers with a short accept queue answer a flood
/// with seconds of retries.
pub(super) const REDUCED_MAX_CONNECTING: usize = 256;
/// Number of due requests that are started before the event loop looks at its sockets.
pub(super) const MAX_STARTS_PER_PASS: usize = 16;

type SlotFuture = Pin<Box<dyn Future<Output = Slot> + Send>>;
/// Preallocated memory of a stream.
type UninitStream = Box<MaybeUninit<Stream>>;

struct Stream {
    in_flight: InFlight,
    request: PendingRequest,
    ready_at: MonotonicTime,
    slot: Option<Slot>,
    gap: Gap,
    /// Whether it counts among the connections being established.
    is_connecting: bool,
    /// Whether the kernel has not yet taken the connection or the whole body.
    is_preparing: bool,
    /// Whether the socket is registered with the epoll for reading.
    is_registered: bool,
    /// Index of the endpoint that it is sent to.
    endpoint: usize,
    attempts: Attempts,
}

pub(super) struct EventLoop {
    epoll: rustix::fd::OwnedFd,
    /// The epoll of the sockets that connect or send a body.
    preparing: rustix::fd::OwnedFd,
    loop_waker: Arc<LoopWaker>,
    /// The threads that make TLS handshakes; `None` for bare connections.
    handshakes: Option<Handshakes>,
    reading: ReadContext,
    /// Preallocated memory for the first streams.
    free_streams: Vec<UninitStream>,
    shared: Arc<Shared>,
}

impl EventLoop {
    /// Prepares for this many requests, so that nothing is left to set up when the measurement begins.
    pub(super) fn new(shared: &Arc<Shared>, requests: usize) -> Result<Self, LoadError> {
        let make = || -> io::Result<_> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let loop_waker = Arc::new(LoopWaker::new()?);
            let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, &*loop_waker, epoll::EventData::new_u64(WAKER_TOKEN), edge)?;
            let preparing = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let index = epoll::EventData::new_u64(PREPARING_TOKEN);
            epoll::add(&epoll, &preparing, index, epoll::EventFlags::IN)?;
            let handshakes = match shared.route.uses_tls() {
                true => {
                    let handshakes = Handshakes::start(shared.threads.get())?;
                    let index = epoll::EventData::new_u64(HANDSHAKE_TOKEN);
                    epoll::add(&preparing, handshakes.waker(), index, edge)?;
                    Some(handshakes)
                }
                false => None,
            };
            Ok((epoll, preparing, loop_waker, handshakes))
        };
        let (epoll, preparing, loop_waker, handshakes) =
            make().map_err(|error| LoadError::Thread(error.to_string()))?;
        Ok(Self {
            epoll,
            preparing,
            loop_waker,
            handshakes,
            reading: ReadContext::new(),
            free_streams: (0..requests.min(PREALLOCATED_STREAMS))
                .map(|_| Box::new(MaybeUninit::zeroed()))
                .collect(),
            shared: Arc::clone(shared),
        })
    }

    /// Makes the kernel refuse to watch any socket, as it does without memory or watches.
    #[cfg(test)]
    pub(super) fn refuse_watches(&mut self) {
        let flags = rustix::event::EventfdFlags::CLOEXEC;
        self.epoll = rustix::event::eventfd(0, flags).expect("a file that is no epoll");
    }

    pub(super) fn send(
        self,
        pending_requests: Vec<PendingRequest>,
        zero: MonotonicTime,
        stop: &CancellationToken,
    ) -> (Vec<RequestOutcome>, LoopStats) {
        let mut round = self.into_state(pending_requests, zero, stop);
        round.run();
        let stats = LoopStats {
            clock_jumps: round.event_loop.reading.wall.jumps(),
            longest_pass: round.longest_pass,
            lateness: std::mem::take(&mut round.event_loop.reading.lateness),
        };
        (round.outcomes, stats)
    }

    fn into_state(
        self,
        pending_requests: Vec<PendingRequest>,
        zero: MonotonicTime,
        stop: &CancellationToken,
    ) -> LoopState {
        // By default the kernel delays timers by up to 50 µs to save wake-ups.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let rounds: usize = pending_requests.iter().map(PendingRequest::rounds_left).sum();
        let over = self.shared.limits.duration.map(|span| zero.plus(span.duration()));
        let (sessions, pending_requests) = Sessions::take(pending_requests);
        let later = rounds + sessions.len();
        let bodies = DeferredBodies::start(&pending_requests, &self.shared);
        LoopState {
            deferred_bodies: bodies,
            zero,
            ends_at: over,
            streams: (0..pending_requests.len() + later).map(|_| None).collect(),
            outcomes: Vec::with_capacity(pending_requests.len() + later),
            pending_requests,
            running: 0,
            connecting: 0,
            max_connecting: MAX_CONNECTING,
            stands_at_once: true,
            preparing: 0,
            unconnected: VecDeque::new(),
            next_rounds: VecDeque::new(),
            sessions,
            follow_ups: FollowUps::default(),
            readable: Vec::new(),
            first_byte_deadlines: VecDeque::new(),
            request_deadlines: VecDeque::new(),
            cancel_deadlines: BTreeSet::new(),
            retries: VecDeque::new(),
            full_queues: VecDeque::new(),
            backoffs: BinaryHeap::new(),
            idle_sockets: (0..self.shared.route.endpoint_count())
                .map(|_| Vec::new())
                .collect(),
            close_deadlines: VecDeque::new(),
            closing_sockets: HashMap::new(),
            slot_wait: None,
            session_slot_wait: None,
            close_reason: None,
            drain_deadline: over.map(|over| over.plus(self.shared.limits.drain.duration())),
            stop_signal: Box::pin(stop.clone().cancelled_owned()),
            waker: Waker::from(Arc::clone(&self.loop_waker)),
            next_poll: zero,
            served_since_pause: 0,
            typical_response_time: None,
            gaps: Gaps::new(),
            wakes: WakeTracker::new(),
            may_pause: self.reading.has_kernel_timestamps(),
            longest_pass: Duration::ZERO,
            event_loop: self,
        }
    }
}

/// Statistics of a thread's looks at its sockets.
pub(super) struct LoopStats {
    pub(super) clock_jumps: u32,
    /// The longest pass over sockets that returned data.
    pub(super) longest_pass: Duration,
    pub(super) lateness: LatenessCounter,
}

/// The state of a share that is being sent. Streams are identified by the place of their job.
struct LoopState {
    event_loop: EventLoop,
    zero: MonotonicTime,
    ends_at: Option<MonotonicTime>,
    pending_requests: VecDeque<PendingRequest>,
    deferred_bodies: DeferredBodies,
    streams: Vec<Option<Box<Stream>>>,
    outcomes: Vec<RequestOutcome>,
    running: usize,
    /// Number of connections being established; `max_connecting` is its limit.
    connecting: usize,
    max_connecting: usize,
    /// Whether every connection so far was established at once, as connections to this host are.
    stands_at_once: bool,
    /// Number of streams whose connection or body the kernel has not yet taken.
    preparing: usize,
    /// Requests that have a slot and wait until fewer connections are being established.
    unconnected: VecDeque<SlottedRequest>,
    /// The next rounds of conversations, with their slots.
    next_rounds: VecDeque<(PendingRequest, Option<Slot>)>,
    sessions: Sessions,
    /// Requests of sessions, and rounds after a pause, that have no slot yet.
    follow_ups: FollowUps,
    /// Streams whose sockets may hold more data.
    readable: Vec<usize>,
    /// Deadlines for the start of each answer's body, in order; `request_deadlines` has the deadlines for the ends.
    first_byte_deadlines: VecDeque<(MonotonicTime, usize)>,
    request_deadlines: VecDeque<(MonotonicTime, usize)>,
    /// When requests are cancelled as planned, if they are written by then.
    cancel_deadlines: BTreeSet<(MonotonicTime, usize)>,
    /// When pending connections will be retransmitted.
    retries: VecDeque<(MonotonicTime, usize)>,
    /// When to connect again to Unix sockets whose accept queues were full.
    full_queues: VecDeque<(MonotonicTime, usize)>,
    /// When to close the connections that stay open after `[DONE]`; `closing_sockets` has their sockets.
    close_deadlines: VecDeque<(MonotonicTime, usize)>,
    closing_sockets: HashMap<usize, ClosingSocket>,
    /// When to send requests again that the server has turned away.
    backoffs: BinaryHeap<Reverse<(MonotonicTime, usize)>>,
    /// Connections that wait for another request, for each endpoint; the last one was used last.
    idle_sockets: Vec<Vec<Socket>>,
    slot_wait: Option<SlotFuture>,
    session_slot_wait: Option<SlotFuture>,
    close_reason: Option<CloseReason>,
    /// When requests under way are cut.
    drain_deadline: Option<MonotonicTime>,
    stop_signal: Pin<Box<WaitForCancellationFutureOwned>>,
    waker: Waker,
    next_poll: MonotonicTime,
    /// Number of sockets served since the last pause.
    served_since_pause: usize,
    /// The duration of an answer: a moving average of the last ones.
    typical_response_time: Option<Duration>,
    gaps: Gaps,
    wakes: WakeTracker,
    /// Whether looks may be delayed; true as long as the kernel takes the times of arrival.
    may_pause: bool,
    longest_pass: Duration,
}

impl LoopState {
    fn run(&mut self) {
        let mut events = Vec::with_capacity(MAX_EPOLL_EVENTS);
        let mut ran = clock::now();
        self.event_loop.reading.look_start = ran;
        loop {
            let last = std::mem::replace(&mut ran, clock::now());
            self.event_loop.reading.lateness.add_pause(ran.since(last));
            self.close_if_over();
            let (is_behind, due) = self.send_due();
            if self.close_reason.is_some() && !is_behind {
                self.give_up_waiting();
            }
            self.expire_deadlines();
            if self.is_over() {
                return;
            }
            let now = clock::now();
            if is_behind && now < self.next_poll {
                if self.preparing > 0 {
                    self.serve_preparing(Duration::ZERO);
                }
                continue;
            }
            let until = [
                due,
                self.next_deadline(),
                self.ends_at.filter(|_| self.close_reason.is_none()),
            ];
            let until = until.into_iter().flatten().min();
            if !is_behind && self.readable.is_empty() && now < self.next_poll {
                let nap = until.map_or(self.next_poll, |until| until.min(self.next_poll));
                match self.preparing {
                    0 => sleep(nap.since(now)),
                    _ => self.serve_preparing(nap.since(now)),
                }
                if clock::now() < self.next_poll {
                    continue;
                }
            }
            let is_pressed = is_behind || !self.readable.is_empty();
            let wait = match is_pressed {
                true => Duration::ZERO,
                false => {
                    let most = if self.running > 0 {
                        self.gaps.wait()
                    } else {
                        HEARTBEAT
                    };
                    until.map_or(most, |until| until.since(clock::now()).min(most))
                }
            };
            self.poll(&mut events, wait);
        }
    }

    fn is_over(&self) -> bool {
        let is_sent = self.pending_requests.is_empty()
            && self.next_rounds.is_empty()
            && self.follow_ups.is_empty()
            && self.unconnected.is_empty();
        is_sent && self.running == 0 && self.closing_sockets.is_empty()
    }
}
