//! Sends prepared requests at their due times and returns a record for each.
//!
//! The schedule is absolute: a late request delays no other. Waiting for a slot comes before a request is sent, so that
//! the record tells both. All of it happens on threads of its own, each with its own event loop and its own share of the
//! requests, dealt in turn, so that the rest of the process does not disturb it; the only thing threads share is the
//! count of slots, because a cap that is split over threads would leave slots idle. It draws no schedule, makes no prompts and
//! counts no tokens; request bodies are made before the measurement begins, and those of many long
//! prompts ahead of their turn (`bodies`).

mod bodies;
mod concurrency_limit;
mod conversation;
mod epoll_loop;
mod tokio_loop;

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value};
use thiserror::Error;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::concurrency_limit::Slots;
use self::tokio_loop::{Job, Sent, Shared, prepare, send, unreachable};
use crate::base::clock::{self, Moment};
use crate::config::scenario::Limits;
use crate::loadgen::connection::{Route, RouteError, Stamp};
use crate::loadgen::dataset::{Content, Extras};
use crate::loadgen::lateness::{HEARTBEAT, Late, Lateness};
use crate::loadgen::protocol::EncodeError;
use crate::loadgen::sink::Sink;
use crate::loadgen::spill::Spill;
use crate::loadgen::target::Target;
use crate::loadgen::wakeups::note_wakes;
use crate::results::record::request::Request;

/// One request to send.
#[derive(Clone, Debug)]
pub struct Item {
    /// The prompt.
    pub content: Content,
    /// Its tokens as the data set counts them.
    pub prompt_tokens: u32,
    /// Output tokens asked for.
    pub asked_tokens: u32,
    /// When it should go, after the start of the measurement. Where everything is due at once and slots are few, each falls due when
    /// it has a slot.
    pub due: Duration,
    /// The LoRA adapter.
    pub lora: Option<Arc<str>>,
    /// What its row carries beside the prompt.
    pub extras: Option<Arc<Extras>>,
}

impl Item {
    /// How many records it comes to: one for each round of a conversation.
    pub fn rounds(&self) -> usize {
        let turns = self.extras.as_ref().and_then(|extras| extras.turns.as_ref());
        1 + turns.map_or(0, Vec::len)
    }

    fn vision_tokens(&self) -> u32 {
        self.extras.as_ref().map_or(0, |extras| extras.vision_tokens)
    }
}

/// Everything that is to be sent, and how.
#[derive(Clone, Debug)]
pub struct Load {
    /// Where it goes.
    pub target: Target,
    /// The requests.
    pub items: Vec<Item>,
    /// How many may be under way at once; `None` for no bound.
    pub concurrency: Option<NonZeroU32>,
    /// How far it may go.
    pub limits: Limits,
    /// Fields added to every request body; `null` removes one.
    pub body: Map<String, Value>,
    /// Whether answers may end where the model ends them.
    pub stop_at_eos: bool,
    /// Where records go as they end.
    pub sink: Option<Sink>,
    /// Where answers go that are more than memory is to hold; without it memory holds them all.
    pub spill: Option<Arc<Spill>>,
    /// How many threads send; one is enough for some 100 000 events a second.
    pub threads: NonZeroUsize,
}

impl Load {
    /// Whether requests have no times of their own and fall due as slots get free.
    fn is_closed_loop(&self) -> bool {
        self.concurrency.is_some() && self.items.iter().all(|item| item.due.is_zero())
    }
}

/// So many requests must have ended before their failures end a load.
const FEW_ENDED: u64 = 20;
/// How often failures are looked at.
const FAILURES_SEEN: Duration = Duration::from_millis(50);

/// How far a drive has come, for other threads to read. The counts are not of one moment.
#[derive(Debug, Default)]
pub struct Progress {
    running: AtomicU64,
    ended: AtomicU64,
    failed: AtomicU64,
    is_aborted: AtomicBool,
    events: AtomicU64,
    left_open: AtomicU64,
}

impl Progress {
    /// Requests under way.
    pub fn running(&self) -> u64 {
        self.running.load(Ordering::Relaxed)
    }

    /// Requests that ended, in whatever way; those never sent are counted when they are given up.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Requests that failed, among those ended.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Events of answers that arrived; a few of them carry no output.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    /// Connections that the server left open for a second after `[DONE]`.
    pub fn left_open(&self) -> u64 {
        self.left_open.load(Ordering::Relaxed)
    }

    /// Whether the load was ended because too many of its requests failed.
    pub fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Relaxed)
    }

    /// Ends once more than this share of the requests that ended has failed.
    async fn fails(&self, share: Option<f64>) {
        let Some(share) = share else {
            return std::future::pending().await;
        };
        loop {
            let (ended, failed) = (self.ended(), self.failed());
            if ended >= FEW_ENDED && failed as f64 > share * ended as f64 {
                return self.is_aborted.store(true, Ordering::Relaxed);
            }
            tokio::time::sleep(FAILURES_SEEN).await;
        }
    }

    fn end(&self, request: &Request) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        if !request.is_completed() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What a drive came to.
#[derive(Debug)]
pub struct Driven {
    /// One record per item that fell due, or for each round of a conversation, in the order of items. The text of each answer is
    /// in it, whether or not it is to be kept.
    pub requests: Vec<Request>,
    /// The start of the measurement: moments in records are told from here.
    pub zero: Moment,
    /// From the start to the end of the last request that was sent.
    pub wall: Duration,
    /// How late requests were sent by our own fault; `None` if none was sent.
    pub lag: Option<Lag>,
    /// Whose clock took the moments of arrival; ours, if it took any of them.
    pub stamp: Stamp,
    /// How often the wall clock was set meanwhile, as the threads saw it. Moments that the kernel took around that time may be
    /// off by up to the time between two reads.
    pub clock_jumps: u32,
    /// How far moments of arrival may be off, and pauses of the client.
    pub lateness: Lateness,
    /// Connections that the server left open for a second after `[DONE]`. An answer ends with that line all the same.
    pub left_open: u64,
    /// What each sending thread spent.
    pub threads: Vec<Effort>,
}

/// What one sending thread spent between the start of the measurement and its last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Its processor time.
    pub cpu: Duration,
    /// The time that passed meanwhile.
    pub wall: Duration,
    /// The longest pass over sockets that had something to say: so long one of them may have waited for its turn. `None` where an
    /// event loop that is not ours did the waiting.
    pub longest_pass: Option<Duration>,
}

/// How long after its due time, or after its slot became free if that was later, a request was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The mean.
    pub mean: Duration,
    /// 99 of 100 were at most this late.
    pub p99: Duration,
    /// The latest.
    pub max: Duration,
    /// The second latest, where so many were sent.
    pub second: Option<Duration>,
    /// The fifth latest.
    pub fifth: Option<Duration>,
}

impl Lag {
    fn of(mut lags: Vec<Duration>) -> Option<Self> {
        lags.sort_unstable();
        let max = *lags.last()?;
        let count = u32::try_from(lags.len()).unwrap_or(u32::MAX);
        let rank = (lags.len() * 99).div_ceil(100);
        let latest = |nth: usize| lags.len().checked_sub(nth).map(|at| lags[at]);
        Some(Self {
            mean: lags.iter().sum::<Duration>() / count,
            p99: lags[rank - 1],
            max,
            second: latest(2),
            fifth: latest(5),
        })
    }
}

/// Why nothing could be sent.
#[derive(Debug, Error)]
pub enum DriveError {
    /// No encrypted connection can be made, whoever listens.
    #[error(transparent)]
    Route(RouteError),
    /// A prompt cannot be written in the dialect.
    #[error("request {index} cannot be written: {source}")]
    Encode {
        /// The item's place.
        index: u32,
        /// The reason.
        source: EncodeError,
    },
    /// A thread of the load generator could not start or did not survive.
    #[error("a thread of the load generator failed: {0}")]
    Thread(String),
}

/// Sends every item at its due time and returns a record for each that fell due.
///
/// When `stop` is cancelled nothing more is sent and what is under way is cut. A name that cannot be found fails every
/// request, as an engine that cannot be reached does.
pub async fn drive(
    load: Load,
    progress: Arc<Progress>,
    stop: CancellationToken,
) -> Result<Driven, DriveError> {
    let route = match Route::find(&load.target.address).await {
        Ok(route) => route,
        Err(error @ RouteError::Name { .. }) => return Ok(unreachable(&load, &progress, &error)),
        Err(error) => return Err(DriveError::Route(error)),
    };
    // Whoever drops this future also ends the threads.
    let stop = stop.child_token();
    let _guard = stop.clone().drop_guard();
    let slots = load.concurrency.map(|slots| Slots::new(slots.get() as usize));
    let is_closed_loop = load.is_closed_loop();
    let Load {
        target,
        items,
        limits,
        body,
        stop_at_eos,
        sink,
        spill,
        threads,
        ..
    } = load;
    let count = items.iter().map(Item::rounds).sum();
    let shared = Arc::new(Shared {
        target,
        limits,
        body,
        stop_at_eos,
        route,
        slots,
        is_closed_loop,
        sink,
        spill,
        progress,
    });
    let progress = Arc::clone(&shared.progress);
    let mut workers = Vec::new();
    let end = shared.limits.duration.map(|span| span.duration());
    for share in deal(items, end, threads) {
        workers.push(Worker::start(share, &shared, &stop)?);
    }
    for worker in &mut workers {
        worker.ready().await?;
    }
    let zero = clock::now();
    let (mut sent, mut clock_jumps, mut efforts) = (Vec::with_capacity(count), 0, Vec::new());
    let mut late = Late::default();
    let ends: Vec<_> = workers.into_iter().map(|worker| worker.begin(zero)).collect();
    let all = async {
        let mut shares = Vec::new();
        for end in ends {
            shares.push(end.await?);
        }
        Ok::<_, DriveError>(shares)
    };
    tokio::pin!(all);
    let shares = tokio::select! {
        biased;
        shares = &mut all => shares?,
        () = progress.fails(shared.limits.abort_error_share) => {
            stop.cancel();
            all.await?
        }
    };
    for share in shares {
        sent.extend(share.sent);
        clock_jumps = clock_jumps.max(share.clock_jumps);
        late.add(&share.late);
        efforts.push(share.effort);
    }
    sent.sort_unstable_by_key(|sent| sent.request.index);
    let lags = sent.iter().filter_map(|sent| sent.lag).collect();
    let mut stamps = sent.iter().filter_map(|sent: &Sent| sent.stamp).peekable();
    let stamp = match stamps.peek().is_some() && stamps.all(|stamp| stamp == Stamp::Kernel) {
        true => Stamp::Kernel,
        false => Stamp::User,
    };
    let left_open = progress.left_open();
    let requests: Vec<Request> = sent.into_iter().map(|sent| sent.request).collect();
    let wall = requests
        .iter()
        .filter(|request| request.sent_ns.is_some())
        .map(|request| request.end_ns)
        .max();
    Ok(Driven {
        requests,
        zero,
        wall: Duration::from_nanos(wall.unwrap_or(0)),
        lag: Lag::of(lags),
        stamp,
        clock_jumps,
        lateness: late.lateness(),
        left_open,
        threads: efforts,
    })
}

/// Items that fall due before the `end`, with the places of their first records, a share per thread, each in the order of due times.
fn deal(items: Vec<Item>, end: Option<Duration>, threads: NonZeroUsize) -> Vec<Vec<(u32, Item)>> {
    let mut place = 0;
    let mut all: Vec<(u32, Item)> = items
        .into_iter()
        .map(|item| {
            let here = place;
            place += u32::try_from(item.rounds()).expect("a load has fewer than four billion requests");
            (here, item)
        })
        .filter(|(_, item)| end.is_none_or(|end| item.due < end))
        .collect();
    all.sort_by_key(|(_, item)| item.due);
    let threads = threads.get().min(all.len()).max(1);
    let mut shares = vec![Vec::new(); threads];
    for (turn, item) in all.into_iter().enumerate() {
        shares[turn % threads].push(item);
    }
    shares
}

/// What a thread sends with.
enum Machinery {
    /// Bare TCP, with moments of the kernel's.
    Plain(Box<epoll_loop::Loop>),
    /// Through TLS.
    Encrypted(tokio::runtime::Runtime),
}

impl Machinery {
    fn ready(shared: &Arc<Shared>, requests: usize) -> Result<Self, DriveError> {
        if shared.route.is_plain() {
            return Ok(Self::Plain(Box::new(epoll_loop::Loop::new(shared, requests)?)));
        }
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        note_wakes(&mut runtime);
        let runtime = runtime.enable_all().build();
        let runtime = runtime.map_err(|error| DriveError::Thread(error.to_string()))?;
        Ok(Self::Encrypted(runtime))
    }

    fn send(self, jobs: Vec<Job>, shared: &Arc<Shared>, zero: Moment, stop: &CancellationToken) -> Share {
        let cpu = clock::thread_cpu();
        let (sent, clock_jumps, longest_pass, late) = match self {
            Self::Plain(events) => {
                let (sent, looked) = events.send(jobs, zero, stop);
                (sent, looked.clock_jumps, Some(looked.longest_pass), looked.late)
            }
            Self::Encrypted(runtime) => {
                let (mut pauses, late) = (Late::default(), Arc::default());
                let sent = runtime.block_on(async {
                    tokio::select! {
                        biased;
                        sent = send(jobs, shared, zero, stop, &late) => sent,
                        never = beat(&mut pauses) => match never {},
                    }
                });
                pauses.add(&late.lock().expect("nobody panics with it"));
                (sent, 0, None, pauses)
            }
        };
        let effort = Effort {
            cpu: clock::thread_cpu().saturating_sub(cpu),
            wall: clock::now().since(zero),
            longest_pass,
        };
        Share {
            sent,
            clock_jumps,
            effort,
            late,
        }
    }
}

/// Notes pauses of the thread.
async fn beat(late: &mut Late) -> std::convert::Infallible {
    let mut ran = clock::now();
    loop {
        tokio::time::sleep(HEARTBEAT).await;
        let last = std::mem::replace(&mut ran, clock::now());
        late.rest(ran.since(last));
    }
}

/// What a thread comes back with.
struct Share {
    sent: Vec<Sent>,
    clock_jumps: u32,
    effort: Effort,
    late: Late,
}

/// A thread that is preparing its share.
struct Worker {
    ready: oneshot::Receiver<Result<(), DriveError>>,
    zero: oneshot::Sender<Moment>,
    end: oneshot::Receiver<Share>,
}

impl Worker {
    fn start(
        share: Vec<(u32, Item)>,
        shared: &Arc<Shared>,
        stop: &CancellationToken,
    ) -> Result<Self, DriveError> {
        let (say_ready, ready) = oneshot::channel();
        let (zero, hear_zero) = oneshot::channel();
        let (say_end, end) = oneshot::channel();
        let (shared, stop) = (Arc::clone(shared), stop.clone());
        let work = move || {
            let prepared = prepare(share, &shared).and_then(|jobs| {
                let machinery = Machinery::ready(&shared, jobs.len())?;
                Ok((jobs, machinery))
            });
            let (jobs, machinery) = match prepared {
                Ok(prepared) => prepared,
                Err(error) => return drop(say_ready.send(Err(error))),
            };
            // Each send fails only when the drive was dropped, and then nobody wants records.
            if say_ready.send(Ok(())).is_err() {
                return;
            }
            if let Ok(zero) = hear_zero.blocking_recv() {
                drop(say_end.send(machinery.send(jobs, &shared, zero, &stop)));
            }
        };
        thread::Builder::new()
            .name("load".to_owned())
            .spawn(work)
            .map_err(|error| DriveError::Thread(error.to_string()))?;
        Ok(Self { ready, zero, end })
    }

    async fn ready(&mut self) -> Result<(), DriveError> {
        (&mut self.ready).await.unwrap_or_else(|_| Err(died()))
    }

    fn begin(self, zero: Moment) -> impl Future<Output = Result<Share, DriveError>> {
        // A dead thread does not hear it; its end tells.
        let _ = self.zero.send(zero);
        async { self.end.await.map_err(|_| died()) }
    }
}

fn died() -> DriveError {
    DriveError::Thread("it panicked".to_owned())
}

#[cfg(test)]
mod tests;
