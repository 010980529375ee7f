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
mod cancellation;
mod concurrency_limit;
mod conversation;
mod epoll_loop;
mod load_result;
mod load_spec;
mod pending;
mod progress;
mod request_bytes;
mod request_outcome;
mod session;
mod shared;
mod worker;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use self::cancellation::CancelPlan;
pub(crate) use self::load_result::{Lag, LoadError, LoadResult, ThreadUsage};
pub use self::load_spec::{LoadSpec, LoadWatch, PlannedRequest};
pub(crate) use self::progress::Progress;
use self::request_outcome::unreachable_result;
use self::shared::Shared;
use self::worker::{ShardResult, Worker};
use crate::base::clock::{self, MonotonicTime};
use crate::loadgen::arrival::TimestampSource;
use crate::loadgen::lateness::LatenessCounter;
use crate::loadgen::route::{Route, RouteError};
use crate::results::record::request::Request;

/// Sends every item at its due time and returns a record for each item that fell due.
///
/// When `stop` is cancelled, nothing more is sent and requests in flight are cancelled. If the host name
/// cannot be resolved, every request fails, as with an unreachable engine.
pub async fn run_load(
    load: LoadSpec,
    progress: Arc<Progress>,
    stop: CancellationToken,
) -> Result<LoadResult, LoadError> {
    match Route::find(&load.target.address, &load.target.connections).await {
        Ok(route) => run_over_route(route, load, progress, stop).await,
        Err(error @ RouteError::Name { .. }) => Ok(unreachable_result(&load, &progress, &error)),
        Err(error) => Err(LoadError::Route(error)),
    }
}

async fn run_over_route(
    route: Route,
    load: LoadSpec,
    progress: Arc<Progress>,
    stop: CancellationToken,
) -> Result<LoadResult, LoadError> {
    // Dropping this future also ends the threads.
    let stop = stop.child_token();
    let _guard = stop.clone().drop_guard();
    let end = load.limits.duration.map(|span| span.duration());
    let (shared, planned_requests) = Shared::new(load, route, Arc::clone(&progress));
    let shared = Arc::new(shared);
    let mut workers = Vec::new();
    for share in split_requests(planned_requests, end, shared.threads) {
        workers.push(Worker::start(share, &shared, &stop)?);
    }
    for worker in &mut workers {
        worker.wait_ready().await?;
    }
    let zero = clock::now();
    let ends: Vec<_> = workers.into_iter().map(|worker| worker.begin(zero)).collect();
    let ready = async {
        let mut shards = Vec::new();
        for end in ends {
            shards.push(end.await?);
        }
        Ok::<_, LoadError>(shards)
    };
    tokio::pin!(ready);
    let shards = tokio::select! {
        biased;
        shards = &mut ready => shards?,
        () = progress.wait_for_failures(shared.limits.abort_error_share) => {
            stop.cancel();
            ready.await?
        }
    };
    Ok(merge_shards(shards, zero, &progress))
}

fn merge_shards(shards: Vec<ShardResult>, zero: MonotonicTime, progress: &Progress) -> LoadResult {
    let (mut sent, mut clock_jumps, mut usages) = (Vec::new(), 0, Vec::new());
    let mut lateness = LatenessCounter::default();
    for share in shards {
        sent.extend(share.outcomes);
        clock_jumps = clock_jumps.max(share.clock_jumps);
        lateness.merge(&share.lateness);
        usages.push(share.usage);
    }
    sent.sort_unstable_by_key(|sent| sent.record.index);
    let lags = sent.iter().filter_map(|sent| sent.lag).collect();
    let mut stamps = sent.iter().filter_map(|sent| sent.timestamp_source).peekable();
    let timestamp_source = match stamps.peek().is_some()
        && stamps.all(|timestamp_source| timestamp_source == TimestampSource::Kernel)
    {
        true => TimestampSource::Kernel,
        false => TimestampSource::User,
    };
    let requests: Vec<Request> = sent.into_iter().map(|sent| sent.record).collect();
    let wall = requests
        .iter()
        .filter(|request| request.sent_ns.is_some())
        .map(|request| request.end_ns)
        .max();
    LoadResult {
        records: requests,
        zero,
        wall: Duration::from_nanos(wall.unwrap_or(0)),
        lag: Lag::from_lags(lags),
        timestamp_source,
        clock_jumps,
        lateness: lateness.lateness(),
        left_open: progress.left_open(),
        surplus: progress.surplus(),
        threads: usages,
    }
}

/// Distributes the items that are due before `end` to the threads, in the order of due times. Each item comes
/// with the index of its first record.
fn split_requests(
    planned_requests: Vec<PlannedRequest>,
    end: Option<Duration>,
    threads: NonZeroUsize,
) -> Vec<Vec<(u32, PlannedRequest)>> {
    let mut next_index = 0;
    let mut all: Vec<(u32, PlannedRequest)> = planned_requests
        .into_iter()
        .map(|planned| {
            let index = next_index;
            next_index +=
                u32::try_from(planned.rounds()).expect("a load has fewer than four billion requests");
            (index, planned)
        })
        .filter(|(_, planned)| end.is_none_or(|end| planned.due < end))
        .collect();
    // The requests of a session have one due time, so they stay together and in order.
    all.sort_by_key(|(_, planned)| planned.due);
    let threads = threads.get().min(all.len()).max(1);
    let mut shards = vec![Vec::new(); threads];
    let (mut turn, mut last_session) = (0, None);
    for planned in all {
        let session = planned.1.session().map(|link| link.session);
        turn += usize::from(session.is_none() || session != last_session);
        last_session = session;
        shards[(turn - 1) % threads].push(planned);
    }
    shards
}

#[cfg(test)]
mod tests;
