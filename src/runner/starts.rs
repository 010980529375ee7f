//! Runs starts, one after another or concurrently if the plan allows it.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::plan::Launch;
use crate::results::record::event::Event;
use crate::results::store::StoreError;
use crate::runner::context::{EventBus, HostEnv, RunContext, RunCounts};
use crate::runner::launch::{self, LaunchContext};
use crate::runner::lease::Pool;
use crate::runner::prefetch::ImagePrefetch;
use crate::runner::prompt_store::PromptStore;
use crate::runner::scheduling::{self, ActivityLog};
use crate::runner::shutdown::Shutdown;

/// Time for removing containers at the end of a run that could not be removed before.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(5);

/// The same in an immediate shutdown.
const ORPHAN_TIMEOUT_ON_KILL: Duration = Duration::from_millis(500);

/// Time that running starts get to end in an immediate shutdown.
const KILL_TIMEOUT: Duration = Duration::from_millis(500);

/// Runs all starts. Returns when everything that was started is gone, with the counts of measurements, and an
/// error if results cannot be saved.
pub(crate) async fn run(
    run_context: &RunContext<'_>,
    shutdown: &Shutdown,
) -> (RunCounts, Result<(), StoreError>) {
    let devices = u32::try_from(run_context.host.devices.len()).unwrap_or(u32::MAX);
    let pool = Pool::new(run_context.host.devices.clone());
    let prompt_store = PromptStore::new(run_context.host.folder.clone(), run_context.host.caches());
    let activity = ActivityLog::default();
    let prefetch = ImagePrefetch::default();
    let mut waiting = run_context.starts.clone();
    let mut at_work = FuturesUnordered::new();
    let mut running: Vec<&Launch> = Vec::new();
    let mut run_counts = RunCounts::default();
    let mut broken = Ok(());
    let killed = async {
        shutdown.immediate.cancelled().await;
        tokio::time::sleep(KILL_TIMEOUT).await;
    };
    tokio::pin!(killed);
    loop {
        let next = match shutdown.is_requested() || broken.is_err() {
            true => None,
            false => scheduling::next_start(run_context.plan, &waiting, &running, devices, pool.free_count()),
        };
        if let Some(index) = next {
            let start = waiting.remove(index);
            let launch = run_context.plan.launch(&start.launch);
            running.push(launch);
            // The preflight has checked the total, and the scheduled start fits.
            let lease = pool.acquire(launch.local_gpus()).await;
            let (prompt_store, activity, prefetch) = (&prompt_store, &activity, &prefetch);
            at_work.push(async move {
                let context = LaunchContext {
                    run_context,
                    launch,
                    start: &start,
                    lease: &lease,
                    prompt_store,
                    activity,
                    prefetch,
                    shutdown,
                };
                let mut run_counts = RunCounts::default();
                let result = launch::run_start(context, &mut run_counts).await;
                (&launch.id, run_counts, result)
            });
            continue;
        }
        // A start that does not end in time is dropped, which kills its engine.
        let next = tokio::select! {
            biased;
            next = at_work.next() => next,
            () = &mut killed => None,
        };
        let Some((ended, more, result)) = next else {
            return (run_counts, broken);
        };
        run_counts = run_counts + more;
        broken = broken.and(result);
        running.retain(|launch| launch.id != *ended);
    }
}

/// Tries once more to remove the containers that could not be removed, reports the remaining ones, and
/// returns how many of them may run.
pub(crate) async fn remove_orphans(host: &HostEnv, events: &EventBus, shutdown: &Shutdown) -> usize {
    let timeout = match shutdown.immediate.is_cancelled() {
        true => ORPHAN_TIMEOUT_ON_KILL,
        false => ORPHAN_TIMEOUT,
    };
    let remaining = host.orphans.remove(timeout).await;
    for orphan in &remaining {
        let (what, reason, help) = (&orphan.description, &orphan.reason, &orphan.help);
        let message = match orphan.may_run {
            true => format!("{what} may still be running: {reason}; remove it with `{help}`"),
            false => format!("{what} has ended but was not removed: {reason}; remove it with `{help}`"),
        };
        events.emit(Event::Warning { message });
    }
    remaining.iter().filter(|orphan| orphan.may_run).count()
}
