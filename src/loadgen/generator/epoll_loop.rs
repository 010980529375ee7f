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

use self::connect::Begun;
use self::handshakes::Handshakes;
use self::pause::{Gap, Gaps};
use self::wait::{sleep, wait_for};
use self::waker::Bell;
use super::bodies::Bodies;
use super::concurrency_limit::Slot;
use super::outcome::{Closed, Sent, blank, fill, give_up};
use super::pending::Job;
use super::result::DriveError;
use super::shared::Shared;
use crate::base::clock::{self, Moment};
use crate::loadgen::arrival::Stamp;
use crate::loadgen::lateness::{HEARTBEAT, Late};
use crate::loadgen::request::{Answer, Course, GRACE, Haul, Live, nanos};
use crate::loadgen::socket::{Reading, Socket};
use crate::loadgen::wakeups::Wakes;

mod connect;
mod handshakes;
mod pause;
mod wait;
mod waker;

/// A look that read this much is followed by the next one at once, so that senders need not wait.
const PLENTY: usize = 128 << 10;
/// Maximum number of events of one answer for which room is allocated ahead.
const MOST_EXPECTED: u32 = 4096;
/// Number of sockets that are served before due times are checked again.
const SOCKETS: usize = 256;
/// Number of sockets that connect or send a body and are served at a time. It is not more than are started at
/// a time, because otherwise the last to start would wait for all others.
const PREPARE: usize = BURST;
/// Maximum number of streams for which memory is allocated ahead: the first write to a page of memory costs
/// as much as a system call.
const ROOMS: usize = CONNECTS;
/// The epoll keys of the waker, and of the epoll with the sockets that connect or send a body.
const BELL: u64 = u64::MAX;
const PREPARING: u64 = u64::MAX - 1;
/// The epoll key of the handshakes' waker, among the sockets that connect or send a body.
const SHAKEN: u64 = u64::MAX;

/// Initial limit of connections being established per thread. Requests that are due together are sent
/// together, as far as the accept queues of servers allow (uvicorn's 2048, tokio's 1024). Each connection
/// that is established at once raises the limit by one. A request that waits here counts as sent only after
/// the wait, so the wait is part of the lag.
pub(super) const CONNECTS: usize = 1024;
/// The limit after a connection attempt had to be repeated. Servers with a short accept queue answer a flood
/// with seconds of retries.
pub(super) const FEW_CONNECTS: usize = 256;
/// Number of due requests that are started before the event loop looks at its sockets.
pub(super) const BURST: usize = 16;

type Taking = Pin<Box<dyn Future<Output = Slot> + Send>>;
/// Preallocated memory of a stream.
type Room = Box<MaybeUninit<Stream>>;

struct Stream {
    live: Live,
    job: Job,
    ready: Moment,
    slot: Option<Slot>,
    gap: Gap,
    /// Whether it counts among the connections being established.
    is_connecting: bool,
    /// Whether the kernel has not yet taken the connection or the whole body.
    is_preparing: bool,
    /// Whether the socket is registered with the epoll for reading.
    is_heard: bool,
}

pub(super) struct Loop {
    epoll: rustix::fd::OwnedFd,
    /// The epoll of the sockets that connect or send a body.
    preparing: rustix::fd::OwnedFd,
    bell: Arc<Bell>,
    /// The threads that make TLS handshakes; `None` for bare connections.
    handshakes: Option<Handshakes>,
    reading: Reading,
    /// Preallocated memory for the first streams.
    rooms: Vec<Room>,
    shared: Arc<Shared>,
}

impl Loop {
    /// Prepares for this many requests, so that nothing is left to set up when the measurement begins.
    pub(super) fn new(shared: &Arc<Shared>, requests: usize) -> Result<Self, DriveError> {
        let make = || -> io::Result<_> {
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let bell = Arc::new(Bell::new()?);
            let edge = epoll::EventFlags::IN | epoll::EventFlags::ET;
            epoll::add(&epoll, &*bell, epoll::EventData::new_u64(BELL), edge)?;
            let preparing = epoll::create(epoll::CreateFlags::CLOEXEC)?;
            let place = epoll::EventData::new_u64(PREPARING);
            epoll::add(&epoll, &preparing, place, epoll::EventFlags::IN)?;
            let handshakes = match shared.route.tls() {
                Some(tls) => {
                    let handshakes = Handshakes::start(tls, shared.threads.get())?;
                    let place = epoll::EventData::new_u64(SHAKEN);
                    epoll::add(&preparing, handshakes.bell(), place, edge)?;
                    Some(handshakes)
                }
                None => None,
            };
            Ok((epoll, preparing, bell, handshakes))
        };
        let (epoll, preparing, bell, handshakes) =
            make().map_err(|error| DriveError::Thread(error.to_string()))?;
        Ok(Self {
            epoll,
            preparing,
            bell,
            handshakes,
            reading: Reading::new(),
            rooms: (0..requests.min(ROOMS))
                .map(|_| Box::new(MaybeUninit::zeroed()))
                .collect(),
            shared: Arc::clone(shared),
        })
    }

    /// Makes the kernel refuse to watch any socket, as it does without memory or watches.
    #[cfg(test)]
    pub(super) fn deafen(&mut self) {
        let flags = rustix::event::EventfdFlags::CLOEXEC;
        self.epoll = rustix::event::eventfd(0, flags).expect("a file that is no epoll");
    }

    pub(super) fn send(self, jobs: Vec<Job>, zero: Moment, stop: &CancellationToken) -> (Vec<Sent>, Looked) {
        let mut round = self.round(jobs, zero, stop);
        round.run();
        let looked = Looked {
            clock_jumps: round.inner.reading.wall.jumps(),
            longest_pass: round.longest_pass,
            late: std::mem::take(&mut round.inner.reading.late),
        };
        (round.done, looked)
    }

    fn round(self, jobs: Vec<Job>, zero: Moment, stop: &CancellationToken) -> Round {
        // By default the kernel delays timers by up to 50 µs to save wake-ups.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let later: usize = jobs.iter().map(Job::later).sum();
        let over = self.shared.limits.duration.map(|span| zero.plus(span.duration()));
        let jobs = VecDeque::from(jobs);
        let bodies = Bodies::of(&jobs, &self.shared);
        Round {
            bodies,
            zero,
            over,
            streams: (0..jobs.len() + later).map(|_| None).collect(),
            done: Vec::with_capacity(jobs.len() + later),
            jobs,
            running: 0,
            connecting: 0,
            connects: CONNECTS,
            stands_at_once: true,
            preparing: 0,
            unconnected: VecDeque::new(),
            rounds: VecDeque::new(),
            again: Vec::new(),
            firsts: VecDeque::new(),
            lasts: VecDeque::new(),
            retries: VecDeque::new(),
            leaves: VecDeque::new(),
            leaving: HashMap::new(),
            waiting: None,
            closed: None,
            drained: over.map(|over| over.plus(self.shared.limits.drain.duration())),
            stopped: Box::pin(stop.clone().cancelled_owned()),
            waker: Waker::from(Arc::clone(&self.bell)),
            next_look: zero,
            served: 0,
            typical: None,
            gaps: Gaps::new(),
            wakes: Wakes::new(),
            naps: self.reading.has_stamps(),
            longest_pass: Duration::ZERO,
            inner: self,
        }
    }
}

/// Statistics of a thread's looks at its sockets.
pub(super) struct Looked {
    pub(super) clock_jumps: u32,
    /// The longest pass over sockets that returned data.
    pub(super) longest_pass: Duration,
    pub(super) late: Late,
}

/// The state of a share that is being sent. Streams are identified by the place of their job.
struct Round {
    inner: Loop,
    zero: Moment,
    over: Option<Moment>,
    jobs: VecDeque<Job>,
    bodies: Bodies,
    streams: Vec<Option<Box<Stream>>>,
    done: Vec<Sent>,
    running: usize,
    /// Number of connections being established; `connects` is its limit.
    connecting: usize,
    connects: usize,
    /// Whether every connection so far was established at once, as connections to this host are.
    stands_at_once: bool,
    /// Number of streams whose connection or body the kernel has not yet taken.
    preparing: usize,
    /// Requests that have a slot and wait until fewer connections are being established.
    unconnected: VecDeque<Begun>,
    /// The next rounds of conversations, with their slots.
    rounds: VecDeque<(Job, Option<Slot>)>,
    /// Streams whose sockets may hold more data.
    again: Vec<usize>,
    /// Deadlines for the start of each answer's body, in order; `lasts` has the deadlines for the ends.
    firsts: VecDeque<(Moment, usize)>,
    lasts: VecDeque<(Moment, usize)>,
    /// When pending connections will be retransmitted.
    retries: VecDeque<(Moment, usize)>,
    /// When to close the connections that stay open after `[DONE]`; `leaving` has their sockets.
    leaves: VecDeque<(Moment, usize)>,
    leaving: HashMap<usize, Socket>,
    waiting: Option<Taking>,
    closed: Option<Closed>,
    /// When requests under way are cut.
    drained: Option<Moment>,
    stopped: Pin<Box<WaitForCancellationFutureOwned>>,
    waker: Waker,
    next_look: Moment,
    /// Number of sockets served since the last pause.
    served: usize,
    /// The duration of an answer: a moving average of the last ones.
    typical: Option<Duration>,
    gaps: Gaps,
    wakes: Wakes,
    /// Whether looks may be delayed; true as long as the kernel takes the times of arrival.
    naps: bool,
    longest_pass: Duration,
}

impl Round {
    fn run(&mut self) {
        let mut events = Vec::with_capacity(SOCKETS);
        let mut ran = clock::now();
        self.inner.reading.looked = ran;
        loop {
            let last = std::mem::replace(&mut ran, clock::now());
            self.inner.reading.late.rest(ran.since(last));
            self.close();
            let (is_behind, due) = self.send_due();
            if self.closed.is_some() && !is_behind {
                self.give_up_waiting();
            }
            self.expire();
            if self.is_over() {
                return;
            }
            let now = clock::now();
            if is_behind && now < self.next_look {
                if self.preparing > 0 {
                    self.prepare(Duration::ZERO);
                }
                continue;
            }
            let until = [
                due,
                self.next_deadline(),
                self.over.filter(|_| self.closed.is_none()),
            ];
            let until = until.into_iter().flatten().min();
            if !is_behind && self.again.is_empty() && now < self.next_look {
                let nap = until.map_or(self.next_look, |until| until.min(self.next_look));
                match self.preparing {
                    0 => sleep(nap.since(now)),
                    _ => self.prepare(nap.since(now)),
                }
                if clock::now() < self.next_look {
                    continue;
                }
            }
            let is_pressed = is_behind || !self.again.is_empty();
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
            self.look(&mut events, wait);
        }
    }

    fn is_over(&self) -> bool {
        let is_sent = self.jobs.is_empty() && self.rounds.is_empty() && self.unconnected.is_empty();
        is_sent && self.running == 0 && self.leaving.is_empty()
    }

    /// Checks whether more requests may be sent. If not, drops those that will never be due.
    fn close(&mut self) {
        let before = self.closed;
        if self.is_stopped() {
            self.closed = Some(Closed::Stopped);
            self.cut();
        } else if self.over.is_some_and(|over| clock::now() >= over) {
            self.closed = Some(Closed::Over);
        }
        let Some(closed) = self.closed.filter(|_| self.closed != before) else {
            return;
        };
        let end = self.over.filter(|_| closed == Closed::Over);
        let end = end.unwrap_or_else(clock::now);
        let (zero, shared) = (self.zero, &self.inner.shared);
        self.jobs.retain(|job| job.falls_due_before(end, zero, shared));
        if closed == Closed::Stopped {
            self.rounds.clear();
            self.give_up_waiting();
        }
    }

    /// Gives up requests that are due and wait for a slot.
    fn give_up_waiting(&mut self) {
        self.waiting = None;
        let closed = self.closed.unwrap_or(Closed::Stopped);
        for job in std::mem::take(&mut self.jobs) {
            give_up(&job, closed, self.zero, &self.inner.shared, &mut self.done);
        }
    }

    fn is_stopped(&mut self) -> bool {
        let mut context = Context::from_waker(&self.waker);
        // A future that has completed must not be polled again.
        self.closed == Some(Closed::Stopped) || self.stopped.as_mut().poll(&mut context).is_ready()
    }

    fn cut(&mut self) {
        let closed = self.closed.unwrap_or(Closed::Stopped);
        for begun in std::mem::take(&mut self.unconnected) {
            give_up(&begun.job, closed, self.zero, &self.inner.shared, &mut self.done);
        }
        self.leaving.clear();
        for place in 0..self.streams.len() {
            if let Some(stream) = &mut self.streams[place] {
                let answer = stream.live.cancel();
                self.end(place, *answer);
            }
        }
    }

    /// Sends up to [`BURST`] requests that are due and have a slot. Returns whether more are due, and when
    /// the next one is due if it only waits for its time.
    fn send_due(&mut self) -> (bool, Option<Moment>) {
        for _ in 0..BURST {
            if let Some((job, slot)) = self.rounds.pop_front() {
                let ready = self.zero.plus(job.due);
                self.begin(job, slot, ready);
                continue;
            }
            let Some(job) = self.jobs.front() else {
                return (false, None);
            };
            let due = self.zero.plus(job.due);
            if clock::now() < due {
                return (false, Some(due));
            }
            let Some((slot, ready)) = self.slot(due) else {
                return (false, None);
            };
            if let Some(job) = self.jobs.pop_front() {
                self.begin(job, slot, ready);
            }
        }
        (true, None)
    }

    /// Takes a slot if one is needed, with the moment from which a delay is the client's error; `None` if it
    /// must wait.
    fn slot(&mut self, due: Moment) -> Option<(Option<Slot>, Moment)> {
        let Some(slots) = &self.inner.shared.slots else {
            return Some((None, due));
        };
        if self.waiting.is_none() {
            if let Some(slot) = slots.try_take() {
                let ready = slot.ready(due);
                return Some((Some(slot), ready));
            }
            self.waiting = Some(Box::pin(Arc::clone(slots).take()));
        }
        let mut context = Context::from_waker(&self.waker);
        match self.waiting.as_mut()?.as_mut().poll(&mut context) {
            Poll::Pending => None,
            Poll::Ready(slot) => {
                self.waiting = None;
                let ready = slot.ready(due);
                Some((Some(slot), ready))
            }
        }
    }

    /// Handles all deadlines that have passed: of requests, of connection attempts and of connections left
    /// open.
    fn expire(&mut self) {
        let now = clock::now();
        if self.drained.is_some_and(|drained| now >= drained) {
            self.cut();
        }
        while let Some((_, place)) = pop_if(&mut self.firsts, |at, _| at <= now) {
            if let Some(stream) = self.streams[place]
                .as_mut()
                .filter(|stream| !stream.live.has_body())
            {
                let answer = stream.live.time_out();
                self.end(place, *answer);
            }
        }
        while let Some((_, place)) = pop_if(&mut self.lasts, |at, _| at <= now) {
            if let Some(stream) = &mut self.streams[place] {
                let answer = stream.live.time_out();
                self.end(place, *answer);
            }
        }
        while let Some((_, place)) = pop_if(&mut self.retries, |at, _| at <= now) {
            self.retry(place);
        }
        while let Some((_, place)) = pop_if(&mut self.leaves, |at, _| at <= now) {
            let left_open = u64::from(self.leaving.remove(&place).is_some());
            self.inner
                .shared
                .progress
                .left_open
                .fetch_add(left_open, Ordering::Relaxed);
        }
        self.connect_waiting();
    }

    /// Returns the next moment at which [`Round::expire`] may have something to do.
    fn next_deadline(&mut self) -> Option<Moment> {
        let (streams, leaving) = (&self.streams, &self.leaving);
        for queue in [&mut self.firsts, &mut self.lasts, &mut self.retries] {
            while pop_if(queue, |_, place| streams[place].is_none()).is_some() {}
        }
        while pop_if(&mut self.leaves, |_, place| !leaving.contains_key(&place)).is_some() {}
        let queues = [&self.firsts, &self.lasts, &self.retries, &self.leaves];
        let fronts = queues.map(|queue| queue.front().map(|(at, _)| *at));
        fronts.into_iter().flatten().chain(self.drained).min()
    }

    /// Waits for sockets for up to `wait` and reads what they hold.
    fn look(&mut self, events: &mut Vec<epoll::Event>, wait: Duration) {
        let looked = self.listen(events, wait);
        self.inner.reading.begin();
        let began = clock::now();
        let mut haul = Haul::default();
        for place in std::mem::take(&mut self.again) {
            self.read(place, true, &mut haul);
        }
        for event in events.iter() {
            match event.data.u64() {
                BELL => self.inner.bell.hush(),
                PREPARING => self.prepare(Duration::ZERO),
                place => self.ready(place as usize, event.flags, &mut haul),
            }
        }
        self.inner
            .shared
            .progress
            .events
            .fetch_add(haul.events, Ordering::Relaxed);
        let since_start = began.since(self.zero);
        self.inner.reading.late.count(haul.events, since_start);
        let is_whole = events.len() < SOCKETS && self.again.is_empty();
        if is_whole {
            self.inner.reading.looked = looked;
        }
        let typical = self.typical.filter(|_| self.waiting.is_some());
        let is_flooded = self.inner.reading.late.is_flooded(since_start);
        self.served += events.len();
        // With many streams in a flood some are always ready, so a pass ends when each had its turn.
        let is_over = is_whole || is_flooded && self.served >= self.running;
        let pause = self.gaps.pause(self.running, typical, is_flooded);
        let pause = pause.filter(|_| self.naps && is_over && haul.bytes < PLENTY);
        self.next_look = match pause {
            // In a flood a pass takes as long as a pause; a pause counted from the start of the pass would
            // leave the sender little time.
            Some(pause) if is_flooded => clock::now().plus(pause),
            Some(pause) => began.plus(pause),
            None => began,
        };
        if is_over {
            self.served = 0;
        }
        if haul.bytes > 0 {
            self.longest_pass = self.longest_pass.max(clock::now().since(began));
        }
    }

    /// Waits for sockets for up to `wait`. Returns a moment that is no later than the poll, so that data
    /// which only a later look finds arrived after it.
    fn listen(&mut self, events: &mut Vec<epoll::Event>, wait: Duration) -> Moment {
        events.clear();
        let looked = clock::now();
        wait_for(&self.inner.epoll, events, Duration::ZERO);
        if wait.is_zero() || !events.is_empty() {
            return looked;
        }
        // Everything that has arrived was read.
        let slept = clock::now();
        wait_for(&self.inner.epoll, events, wait);
        let woken = self.wakes.woken(slept, wait, clock::now());
        self.inner.reading.looked = woken.unwrap_or(looked);
        self.inner.reading.looked
    }

    fn ready(&mut self, place: usize, flags: epoll::EventFlags, haul: &mut Haul) {
        let ending = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
        if self.streams[place].is_none() {
            return self.close_left(place);
        }
        if flags.intersects(ending) {
            self.write_on(place);
        }
        if flags.intersects(epoll::EventFlags::IN | ending) {
            self.read(place, flags.intersects(ending), haul);
        }
    }

    fn read(&mut self, place: usize, is_ending: bool, haul: &mut Haul) {
        let Some(stream) = &mut self.streams[place] else {
            return;
        };
        let before = (haul.bytes, haul.events);
        match stream.live.read(is_ending, &mut self.inner.reading, haul) {
            Course::Waits => {}
            Course::Ready => self.again.push(place),
            Course::Over(answer) => return self.end(place, *answer),
        }
        if haul.bytes > before.0 {
            self.naps = stream.live.stamp() == Some(Stamp::Kernel);
        }
        let gap = stream.gap.take(haul.events - before.1, stream.live.last_read());
        if let Some(gap) = gap {
            self.gaps.take(gap);
        }
    }

    /// Closes a connection whose answer is complete. What has arrived on it is ignored.
    fn close_left(&mut self, place: usize) {
        if let Some(mut socket) = self.leaving.remove(&place) {
            let _ = socket.read(&mut self.inner.reading);
        }
    }

    /// Makes the record of an exchange that is over.
    fn end(&mut self, place: usize, answer: Answer) {
        let Some(mut stream) = self.streams[place].take() else {
            return;
        };
        self.running -= 1;
        self.connecting -= usize::from(stream.is_connecting);
        self.preparing -= usize::from(stream.is_preparing);
        // Data that arrived together with the end of the answer triggers no further event.
        let is_open = |socket: &mut Socket, reading: &mut Reading| {
            let read = socket.read(reading);
            read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        if let Some(mut socket) = stream.live.left_open()
            && is_open(&mut socket, &mut self.inner.reading)
        {
            self.leaves.push_back((clock::now().plus(GRACE), place));
            self.leaving.insert(place, socket);
        }
        let stamp = answer.stamp;
        let took = answer.end.since(answer.sent);
        self.typical = Some(self.typical.map_or(took, |typical| typical * 7 / 8 + took / 8));
        let mut request = blank(&stream.job);
        let target = &self.inner.shared.target;
        let model = stream.job.model.as_deref().unwrap_or(&target.model);
        fill(&mut request, answer, target.dialect.usage, model, self.zero);
        let ready_ns = nanos(stream.ready, self.zero);
        let lag = request
            .sent_ns
            .map(|at| Duration::from_nanos(at.saturating_sub(ready_ns)));
        let shared = &self.inner.shared;
        shared.progress.running.fetch_sub(1, Ordering::Relaxed);
        let talk = stream.job.talk.take();
        let next = talk.and_then(|talk| Job::next_round(talk, &request, place, shared));
        shared.end(&request);
        self.done.push(Sent { request, lag, stamp });
        // A slot becomes free only at the end of a whole conversation.
        if let Some(next) = next {
            self.go_on(next, stream.slot.take());
        }
    }

    /// Queues the next round of a conversation, unless sending is over. In that case the round never falls
    /// due.
    fn go_on(&mut self, next: Job, slot: Option<Slot>) {
        if self.over.is_some_and(|over| clock::now() >= over) {
            return;
        }
        if self.closed.is_none() {
            self.rounds.push_back((next, slot));
        }
    }
}

fn pop_if(
    queue: &mut VecDeque<(Moment, usize)>,
    is_like: impl Fn(Moment, usize) -> bool,
) -> Option<(Moment, usize)> {
    match queue.front() {
        Some((at, place)) if is_like(*at, *place) => queue.pop_front(),
        _ => None,
    }
}
