//! Runs starts, launch by launch, or side by side where the plan allows it.

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

/// How long a container that could not be removed is tried again at the end of a run.
const PARTING: Duration = Duration::from_secs(5);

/// The same where everything is to be over at once.
const PARTING_NOW: Duration = Duration::from_millis(500);

/// How long what is under way may take to end once the run was told to kill.
const KILLED: Duration = Duration::from_millis(500);

/// Runs what is to be done, launch by launch, or side by side where the plan allows it. It returns when nothing that it started is
/// left, with how the measurements ended, and an error where the disk refuses what must be kept.
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
            // Preflight has seen that the host has enough; and what fits is free.
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
        // What does not end in time is dropped, which kills its engine.
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

/// Tries a last time to remove the containers that could not be removed, says which are still there, and how many of them may run.
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
