//! Sends one thread's share of a load in its own event loop instead of an async runtime.
//!
//! Nearly all of the cost of tokens that arrive one by one is wake-ups and system calls. Since the kernel
//! records when bytes arrive, the loop can read late. With many streams it looks at its sockets at most about
//! a thousand times a second, and at least four times per gap between two events of one stream (less often in
//! floods), and reads what has gathered. Requests are still sent when they are due. Without kernel timestamps
//! the loop looks at once. Encrypted connections take the same path after separate threads have completed
//! their handshakes ([`handshakes`]).

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::num::NonZeroU64;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustix::event::epoll;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use self::connect::SlottedRequest;
use self::handshakes::Handshakes;
use self::pause::{Gap, Gaps};
use self::wait::{sleep, wait_for};
use self::waker::LoopWaker;
use super::bodies::DeferredBodies;
use super::concurrency_limit::Slot;
use super::load_result::LoadError;
use super::pending::PendingRequest;
use super::request_outcome::{CloseReason, RequestOutcome, blank_record, fill_record, record_unsent};
use super::shared::Shared;
use crate::base::clock::{self, MonotonicTime};
use crate::loadgen::arrival::TimestampSource;
use crate::loadgen::lateness::{HEARTBEAT, LatenessCounter};
use crate::loadgen::request::{CLOSE_GRACE, InFlight, ReadState, ReadStats, Response, nanos_since};
use crate::loadgen::socket::{ReadContext, Socket};
use crate::loadgen::wakeups::WakeTracker;

mod connect;
mod handshakes;
mod pause;
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
            let handshakes = match shared.route.tls() {
                Some(tls) => {
                    let handshakes = Handshakes::start(tls, shared.threads.get())?;
                    let index = epoll::EventData::new_u64(HANDSHAKE_TOKEN);
                    epoll::add(&preparing, handshakes.waker(), index, edge)?;
                    Some(handshakes)
                }
                None => None,
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
        let later: usize = pending_requests.iter().map(PendingRequest::rounds_left).sum();
        let over = self.shared.limits.duration.map(|span| zero.plus(span.duration()));
        let pending_requests = VecDeque::from(pending_requests);
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
            readable: Vec::new(),
            first_byte_deadlines: VecDeque::new(),
            request_deadlines: VecDeque::new(),
            retries: VecDeque::new(),
            close_deadlines: VecDeque::new(),
            closing_sockets: HashMap::new(),
            slot_wait: None,
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
    /// Number of connections being established, at most `max_connecting`.
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
    /// Streams whose sockets may hold more data.
    readable: Vec<usize>,
    /// Deadlines for the start of each answer's body, in order; `lasts` has the deadlines for the ends.
    first_byte_deadlines: VecDeque<(MonotonicTime, usize)>,
    request_deadlines: VecDeque<(MonotonicTime, usize)>,
    /// When pending connections will be retransmitted.
    retries: VecDeque<(MonotonicTime, usize)>,
    /// When to close the connections that stay open after `[DONE]`; `leaving` has their sockets.
    close_deadlines: VecDeque<(MonotonicTime, usize)>,
    closing_sockets: HashMap<usize, Socket>,
    slot_wait: Option<SlotFuture>,
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
        let is_sent =
            self.pending_requests.is_empty() && self.next_rounds.is_empty() && self.unconnected.is_empty();
        is_sent && self.running == 0 && self.closing_sockets.is_empty()
    }

    /// Checks whether more requests may be sent. If not, drops those that will never be due.
    fn close_if_over(&mut self) {
        let before = self.close_reason;
        if self.is_stopped() {
            self.close_reason = Some(CloseReason::Stopped);
            self.cancel_all();
        } else if self.ends_at.is_some_and(|over| clock::now() >= over) {
            self.close_reason = Some(CloseReason::TimeOver);
        }
        let Some(closed) = self.close_reason.filter(|_| self.close_reason != before) else {
            return;
        };
        let end = self.ends_at.filter(|_| closed == CloseReason::TimeOver);
        let end = end.unwrap_or_else(clock::now);
        let (zero, shared) = (self.zero, &self.event_loop.shared);
        self.pending_requests
            .retain(|pending| pending.falls_due_before(end, zero, shared));
        if closed == CloseReason::Stopped {
            self.next_rounds.clear();
            self.give_up_waiting();
        }
    }

    /// Gives up requests that are due and wait for a slot.
    fn give_up_waiting(&mut self) {
        self.slot_wait = None;
        let closed = self.close_reason.unwrap_or(CloseReason::Stopped);
        for pending in std::mem::take(&mut self.pending_requests) {
            record_unsent(
                &pending,
                closed,
                self.zero,
                &self.event_loop.shared,
                &mut self.outcomes,
            );
        }
    }

    fn is_stopped(&mut self) -> bool {
        let mut context = Context::from_waker(&self.waker);
        // A future that has completed must not be polled again.
        self.close_reason == Some(CloseReason::Stopped)
            || self.stop_signal.as_mut().poll(&mut context).is_ready()
    }

    fn cancel_all(&mut self) {
        let closed = self.close_reason.unwrap_or(CloseReason::Stopped);
        for slotted in std::mem::take(&mut self.unconnected) {
            record_unsent(
                &slotted.request,
                closed,
                self.zero,
                &self.event_loop.shared,
                &mut self.outcomes,
            );
        }
        self.closing_sockets.clear();
        for index in 0..self.streams.len() {
            if let Some(stream) = &mut self.streams[index] {
                let answer = stream.in_flight.cancel();
                self.finish(index, *answer);
            }
        }
    }

    /// Sends up to [`BURST`] requests that are due and have a slot. Returns whether more are due, and when
    /// the next one is due if it only waits for its time.
    fn send_due(&mut self) -> (bool, Option<MonotonicTime>) {
        for _ in 0..MAX_STARTS_PER_PASS {
            if let Some((pending, slot)) = self.next_rounds.pop_front() {
                let ready = self.zero.plus(pending.due);
                self.start_request(pending, slot, ready);
                continue;
            }
            let Some(pending) = self.pending_requests.front() else {
                return (false, None);
            };
            let due = self.zero.plus(pending.due);
            if clock::now() < due {
                return (false, Some(due));
            }
            let Some((slot, ready)) = self.take_slot(due) else {
                return (false, None);
            };
            if let Some(pending) = self.pending_requests.pop_front() {
                self.start_request(pending, slot, ready);
            }
        }
        (true, None)
    }

    /// Takes a slot if one is needed, with the moment from which a delay is the client's error; `None` if it
    /// must wait.
    fn take_slot(&mut self, due: MonotonicTime) -> Option<(Option<Slot>, MonotonicTime)> {
        let Some(slots) = &self.event_loop.shared.slots else {
            return Some((None, due));
        };
        if self.slot_wait.is_none() {
            if let Some(slot) = slots.try_take() {
                let ready = slot.ready_at(due);
                return Some((Some(slot), ready));
            }
            self.slot_wait = Some(Box::pin(Arc::clone(slots).take()));
        }
        let mut context = Context::from_waker(&self.waker);
        match self.slot_wait.as_mut()?.as_mut().poll(&mut context) {
            Poll::Pending => None,
            Poll::Ready(slot) => {
                self.slot_wait = None;
                let ready = slot.ready_at(due);
                Some((Some(slot), ready))
            }
        }
    }

    /// Handles all deadlines that have passed: of requests, of connection attempts and of connections left
    /// open.
    fn expire_deadlines(&mut self) {
        let now = clock::now();
        if self.drain_deadline.is_some_and(|drained| now >= drained) {
            self.cancel_all();
        }
        while let Some((_, index)) = pop_if(&mut self.first_byte_deadlines, |at, _| at <= now) {
            if let Some(stream) = self.streams[index]
                .as_mut()
                .filter(|stream| !stream.in_flight.has_body())
            {
                let answer = stream.in_flight.time_out();
                self.finish(index, *answer);
            }
        }
        while let Some((_, index)) = pop_if(&mut self.request_deadlines, |at, _| at <= now) {
            if let Some(stream) = &mut self.streams[index] {
                let answer = stream.in_flight.time_out();
                self.finish(index, *answer);
            }
        }
        while let Some((_, index)) = pop_if(&mut self.retries, |at, _| at <= now) {
            self.note_retransmit(index);
        }
        while let Some((_, index)) = pop_if(&mut self.close_deadlines, |at, _| at <= now) {
            let left_open = u64::from(self.closing_sockets.remove(&index).is_some());
            self.event_loop
                .shared
                .progress
                .left_open
                .fetch_add(left_open, Ordering::Relaxed);
        }
        self.connect_waiting();
    }

    /// Returns the next moment at which [`LoopState::expire_deadlines`] may have something to do.
    fn next_deadline(&mut self) -> Option<MonotonicTime> {
        let (streams, leaving) = (&self.streams, &self.closing_sockets);
        for queue in [
            &mut self.first_byte_deadlines,
            &mut self.request_deadlines,
            &mut self.retries,
        ] {
            while pop_if(queue, |_, index| streams[index].is_none()).is_some() {}
        }
        while pop_if(&mut self.close_deadlines, |_, index| {
            !leaving.contains_key(&index)
        })
        .is_some()
        {}
        let queues = [
            &self.first_byte_deadlines,
            &self.request_deadlines,
            &self.retries,
            &self.close_deadlines,
        ];
        let fronts = queues.map(|queue| queue.front().map(|(at, _)| *at));
        fronts.into_iter().flatten().chain(self.drain_deadline).min()
    }

    /// Waits for sockets for up to `wait` and reads what they hold.
    fn poll(&mut self, events: &mut Vec<epoll::Event>, wait: Duration) {
        let looked_at = self.wait_for_events(events, wait);
        self.event_loop.reading.start_round();
        let began = clock::now();
        let mut stats = ReadStats::default();
        for index in std::mem::take(&mut self.readable) {
            self.read(index, true, &mut stats);
        }
        for event in events.iter() {
            match event.data.u64() {
                WAKER_TOKEN => self.event_loop.loop_waker.clear(),
                PREPARING_TOKEN => self.serve_preparing(Duration::ZERO),
                index => self.handle_event(index as usize, event.flags, &mut stats),
            }
        }
        self.event_loop
            .shared
            .progress
            .events
            .fetch_add(stats.events, Ordering::Relaxed);
        let since_start = began.since(self.zero);
        self.event_loop
            .reading
            .lateness
            .count_events(stats.events, since_start);
        let is_whole = events.len() < MAX_EPOLL_EVENTS && self.readable.is_empty();
        if is_whole {
            self.event_loop.reading.look_start = looked_at;
        }
        let typical = self.typical_response_time.filter(|_| self.slot_wait.is_some());
        let is_flooded = self.event_loop.reading.lateness.is_flooded(since_start);
        self.served_since_pause += events.len();
        // With many streams in a flood some are always ready, so a pass ends when each had its turn.
        let is_over = is_whole || is_flooded && self.served_since_pause >= self.running;
        let pause = self.gaps.pause(self.running, typical, is_flooded);
        let pause = pause.filter(|_| self.may_pause && is_over && stats.bytes < BUSY_READ_BYTES);
        self.next_poll = match pause {
            // In a flood a pass takes as long as a pause; a pause counted from the start of the pass would
            // leave the sender little time.
            Some(pause) if is_flooded => clock::now().plus(pause),
            Some(pause) => began.plus(pause),
            None => began,
        };
        if is_over {
            self.served_since_pause = 0;
        }
        if stats.bytes > 0 {
            self.longest_pass = self.longest_pass.max(clock::now().since(began));
        }
    }

    /// Waits for sockets for up to `wait`. Returns a moment that is no later than the poll, so that data
    /// which only a later look finds arrived after it.
    fn wait_for_events(&mut self, events: &mut Vec<epoll::Event>, wait: Duration) -> MonotonicTime {
        events.clear();
        let looked_at = clock::now();
        wait_for(&self.event_loop.epoll, events, Duration::ZERO);
        if wait.is_zero() || !events.is_empty() {
            return looked_at;
        }
        // Everything that has arrived was read.
        let slept = clock::now();
        wait_for(&self.event_loop.epoll, events, wait);
        let woken = self.wakes.earliest_wake(slept, wait, clock::now());
        self.event_loop.reading.look_start = woken.unwrap_or(looked_at);
        self.event_loop.reading.look_start
    }

    fn handle_event(&mut self, index: usize, flags: epoll::EventFlags, stats: &mut ReadStats) {
        let ending = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if self.streams[index].is_none() {
            return self.close_finished(index);
        }
        if flags.intersects(ending) {
            self.continue_write(index);
        }
        if flags.intersects(epoll::EventFlags::IN | ending) {
            self.read(index, flags.intersects(ending), stats);
        }
    }

    fn read(&mut self, index: usize, is_ending: bool, stats: &mut ReadStats) {
        let Some(stream) = &mut self.streams[index] else {
            return;
        };
        let before = (stats.bytes, stats.events);
        match stream
            .in_flight
            .read(is_ending, &mut self.event_loop.reading, stats)
        {
            ReadState::Blocked => {}
            ReadState::Ready => self.readable.push(index),
            ReadState::Done(answer) => return self.finish(index, *answer),
        }
        if stats.bytes > before.0 {
            self.may_pause = stream.in_flight.timestamp_source() == Some(TimestampSource::Kernel);
        }
        let gap = stream
            .gap
            .add_events(stats.events - before.1, stream.in_flight.last_read_at());
        if let Some(gap) = gap {
            self.gaps.add(gap);
        }
    }

    /// Closes a connection whose answer is complete. What has arrived on it is ignored.
    fn close_finished(&mut self, index: usize) {
        if let Some(mut socket) = self.closing_sockets.remove(&index) {
            let _ = socket.read(&mut self.event_loop.reading);
        }
    }

    /// Makes the record of an exchange that is over.
    fn finish(&mut self, index: usize, answer: Response) {
        let Some(mut stream) = self.streams[index].take() else {
            return;
        };
        self.running -= 1;
        self.connecting -= usize::from(stream.is_connecting);
        self.preparing -= usize::from(stream.is_preparing);
        // Data that arrived together with the end of the answer triggers no further event.
        let is_open = |socket: &mut Socket, reading: &mut ReadContext| {
            let read = socket.read(reading);
            read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        if let Some(mut socket) = stream.in_flight.take_open_socket()
            && is_open(&mut socket, &mut self.event_loop.reading)
        {
            self.close_deadlines
                .push_back((clock::now().plus(CLOSE_GRACE), index));
            self.closing_sockets.insert(index, socket);
        }
        let timestamp_source = answer.timestamp_source;
        let took = answer.end.since(answer.sent);
        self.typical_response_time = Some(
            self.typical_response_time
                .map_or(took, |typical| typical * 7 / 8 + took / 8),
        );
        let mut request = blank_record(&stream.request);
        let target = &self.event_loop.shared.target;
        let model = stream.request.model.as_deref().unwrap_or(&target.model);
        fill_record(&mut request, answer, target.dialect.usage, model, self.zero);
        let ready_ns = nanos_since(stream.ready_at, self.zero);
        let lag = request
            .sent_ns
            .map(|at| Duration::from_nanos(at.saturating_sub(ready_ns)));
        let shared = &self.event_loop.shared;
        shared.progress.running.fetch_sub(1, Ordering::Relaxed);
        let conversation = stream.request.conversation.take();
        let next = conversation
            .and_then(|conversation| PendingRequest::next_round(conversation, &request, index, shared));
        shared.finish_request(&request);
        self.outcomes.push(RequestOutcome {
            record: request,
            lag,
            timestamp_source,
        });
        // A slot becomes free only at the end of a whole conversation.
        if let Some(next) = next {
            self.send_next_turn(next, stream.slot.take());
        }
    }

    /// Queues the next round of a conversation, unless sending is over. In that case the round never falls
    /// due.
    fn send_next_turn(&mut self, next: PendingRequest, slot: Option<Slot>) {
        if self.ends_at.is_some_and(|over| clock::now() >= over) {
            return;
        }
        if self.close_reason.is_none() {
            self.next_rounds.push_back((next, slot));
        }
    }
}

fn pop_if(
    queue: &mut VecDeque<(MonotonicTime, usize)>,
    is_like: impl Fn(MonotonicTime, usize) -> bool,
) -> Option<(MonotonicTime, usize)> {
    match queue.front() {
        Some((at, index)) if is_like(*at, *index) => queue.pop_front(),
        _ => None,
    }
}
