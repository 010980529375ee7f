//! Sends prepared requests at their due times and returns a record for each.
//!
//! The schedule is absolute: a late request delays no other. Waiting for a slot comes before a request is sent, so that
//! the record tells both. All of it happens on threads of its own, each with its own event loop and its own share of the
//! requests, dealt in turn, so that the rest of the process does not disturb it; the only thing threads share is the
//! count of slots, because a cap that is split over threads would leave slots idle. It draws no schedule, makes no prompts and
//! counts no tokens; request bodies are made before the measurement begins, and those of many long
//! prompts ahead of their turn (`bodies`).

mod bodies;
mod composed;
mod concurrency_limit;
mod conversation;
mod epoll_loop;
mod load;
mod outcome;
mod pending;
mod progress;
mod result;
mod shared;
mod tokio_loop;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::concurrency_limit::Slots;
pub use self::load::{Item, Load};
use self::outcome::{Sent, unreachable};
use self::pending::{Job, prepare};
pub use self::progress::Progress;
pub use self::result::{DriveError, Driven, Effort, Lag};
use self::shared::Shared;
use self::tokio_loop::send;
use crate::base::clock::{self, Moment};
use crate::loadgen::connection::{Route, RouteError, Stamp};
use crate::loadgen::lateness::{HEARTBEAT, Late};
use crate::loadgen::wakeups::note_wakes;
use crate::results::record::request::Request;

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
