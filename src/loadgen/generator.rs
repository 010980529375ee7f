//! Sends prepared requests at their due times and returns a record for each.
//!
//! The schedule is absolute: a late request does not delay the others. A request waits for a slot before it
//! is sent, so the record shows both times. Requests are dealt in turn to threads that each run their own
//! event loop, so that the rest of the process does not disturb them. The threads share only the count of
//! slots, because a concurrency limit that is split over threads would leave slots idle.
//!
//! This module makes no schedule and no prompts, and counts no tokens. It makes request bodies before the
//! measurement; bodies of many long prompts are made shortly before they are sent (`bodies`).

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
mod worker;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use self::load::{Item, Load};
use self::outcome::unreachable;
pub(crate) use self::progress::Progress;
pub(crate) use self::result::{DriveError, Driven, Effort, Lag};
use self::shared::Shared;
use self::worker::{Share, Worker};
use crate::base::clock::{self, Moment};
use crate::loadgen::arrival::Stamp;
use crate::loadgen::lateness::Late;
use crate::loadgen::route::{Route, RouteError};
use crate::results::record::request::Request;

/// Sends every item at its due time and returns a record for each item that fell due.
///
/// When `stop` is cancelled nothing more is sent and what is under way is cut. A name that cannot be found fails every
/// request, as an engine that cannot be reached does.
pub async fn drive(
    load: Load,
    progress: Arc<Progress>,
    stop: CancellationToken,
) -> Result<Driven, DriveError> {
    match Route::find(&load.target.address).await {
        Ok(route) => drive_over(route, load, progress, stop).await,
        Err(error @ RouteError::Name { .. }) => Ok(unreachable(&load, &progress, &error)),
        Err(error) => Err(DriveError::Route(error)),
    }
}

async fn drive_over(
    route: Route,
    load: Load,
    progress: Arc<Progress>,
    stop: CancellationToken,
) -> Result<Driven, DriveError> {
    // Dropping this future also ends the threads.
    let stop = stop.child_token();
    let _guard = stop.clone().drop_guard();
    let end = load.limits.duration.map(|span| span.duration());
    let (shared, items) = Shared::new(load, route, Arc::clone(&progress));
    let shared = Arc::new(shared);
    let mut workers = Vec::new();
    for share in deal(items, end, shared.threads) {
        workers.push(Worker::start(share, &shared, &stop)?);
    }
    for worker in &mut workers {
        worker.ready().await?;
    }
    let zero = clock::now();
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
    Ok(gathered(shares, zero, progress.left_open()))
}

fn gathered(shares: Vec<Share>, zero: Moment, left_open: u64) -> Driven {
    let (mut sent, mut clock_jumps, mut efforts) = (Vec::new(), 0, Vec::new());
    let mut late = Late::default();
    for share in shares {
        sent.extend(share.sent);
        clock_jumps = clock_jumps.max(share.clock_jumps);
        late.add(&share.late);
        efforts.push(share.effort);
    }
    sent.sort_unstable_by_key(|sent| sent.request.index);
    let lags = sent.iter().filter_map(|sent| sent.lag).collect();
    let mut stamps = sent.iter().filter_map(|sent| sent.stamp).peekable();
    let stamp = match stamps.peek().is_some() && stamps.all(|stamp| stamp == Stamp::Kernel) {
        true => Stamp::Kernel,
        false => Stamp::User,
    };
    let requests: Vec<Request> = sent.into_iter().map(|sent| sent.request).collect();
    let wall = requests
        .iter()
        .filter(|request| request.sent_ns.is_some())
        .map(|request| request.end_ns)
        .max();
    Driven {
        requests,
        zero,
        wall: Duration::from_nanos(wall.unwrap_or(0)),
        lag: Lag::of(lags),
        stamp,
        clock_jumps,
        lateness: late.lateness(),
        left_open,
        threads: efforts,
    }
}

/// Distributes the items that are due before `end` to the threads, in the order of due times. Each item comes
/// with the index of its first record.
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

#[cfg(test)]
mod tests;
