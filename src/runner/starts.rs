//! Runs starts, one after another or concurrently if the plan allows it.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::plan::Launch;
use crate::results::record::event::Event;
use crate::results::store::StoreError;
use crate::runner::context::{Events, Host, Job, Tally};
use crate::runner::launch::{self, LaunchContext};
use crate::runner::lease::Pool;
use crate::runner::prefetch::Ahead;
use crate::runner::prompt_store::PromptStore;
use crate::runner::scheduling::{self, Roster};
use crate::runner::shutdown::Stop;

/// Time for removing containers at the end of a run that could not be removed before.
const PARTING: Duration = Duration::from_secs(5);

/// The same in an immediate shutdown.
const PARTING_NOW: Duration = Duration::from_millis(500);

/// Time that running starts get to end in an immediate shutdown.
const KILLED: Duration = Duration::from_millis(500);

/// Runs all starts. Returns when everything that was started is gone, with the counts of measurements, and an
/// error if results cannot be saved.
pub(crate) async fn run(job: &Job<'_>, stop: &Stop) -> (Tally, Result<(), StoreError>) {
    let devices = u32::try_from(job.host.devices.len()).unwrap_or(u32::MAX);
    let pool = Pool::new(job.host.devices.clone());
    let prompt_store = PromptStore::new(job.host.folder.clone(), job.host.caches());
    let roster = Roster::default();
    let ahead = Ahead::default();
    let mut waiting = job.todo.clone();
    let mut at_work = FuturesUnordered::new();
    let mut running: Vec<&Launch> = Vec::new();
    let mut tally = Tally::default();
    let mut broken = Ok(());
    let killed = async {
        stop.now.cancelled().await;
        tokio::time::sleep(KILLED).await;
    };
    tokio::pin!(killed);
    loop {
        let next = match stop.is_asked() || broken.is_err() {
            true => None,
            false => scheduling::next(job.plan, &waiting, &running, devices, pool.free()),
        };
        if let Some(at) = next {
            let start = waiting.remove(at);
            let launch = job.plan.launch(&start.launch);
            running.push(launch);
            // The preflight has checked the total, and the scheduled start fits.
            let lease = pool.acquire(launch.devices).await;
            let (prompt_store, roster, ahead) = (&prompt_store, &roster, &ahead);
            at_work.push(async move {
                let context = LaunchContext {
                    job,
                    launch,
                    start: &start,
                    lease: &lease,
                    prompt_store,
                    roster,
                    ahead,
                    stop,
                };
                let mut tally = Tally::default();
                let told = launch::launch(context, &mut tally).await;
                (&launch.id, tally, told)
            });
            continue;
        }
        // A start that does not end in time is dropped, which kills its engine.
        let next = tokio::select! {
            biased;
            next = at_work.next() => next,
            () = &mut killed => None,
        };
        let Some((ended, more, told)) = next else {
            return (tally, broken);
        };
        tally = tally + more;
        broken = broken.and(told);
        running.retain(|launch| launch.id != *ended);
    }
}

/// Tries once more to remove the containers that could not be removed, reports the remaining ones, and
/// returns how many of them may run.
pub(crate) async fn orphans(host: &Host, events: &Events, stop: &Stop) -> usize {
    let patience = match stop.now.is_cancelled() {
        true => PARTING_NOW,
        false => PARTING,
    };
    let remaining = host.orphans.remove(patience).await;
    for orphan in &remaining {
        let state = match orphan.may_run {
            true => "may still run",
            false => "has ended and is not removed",
        };
        events.tell(Event::Warning {
            message: format!("{} {state}: {}; {}", orphan.what, orphan.reason, orphan.help),
        });
    }
    remaining.iter().filter(|orphan| orphan.may_run).count()
}
