//! Drives a load while watching its engine and the run: the engine may end, die or hang, and the run may be
//! asked to stop.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::engine::{EngineExit, RunningEngine};
use crate::loadgen::{self, LoadError, LoadResult, LoadSpec, Progress};
use crate::results::record::request::{Request, RequestFailureClass};
use crate::runner::shutdown::Shutdown;

/// Pause between two checks of a running load.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Time without progress after which the engine's executor is checked.
const STALL_CHECK_AFTER: Duration = Duration::from_secs(5);

/// Time after broken connections in which the engine's death may be reported; a busy container daemon reports
/// it late.
const EXIT_GRACE: Duration = Duration::from_secs(3);

/// Why a load was cut before its end.
#[derive(Debug)]
pub(crate) enum AbortReason {
    /// The engine ended by itself, or its log shows that it is dead.
    EngineExited(EngineExit),
    /// No stream made progress for too long.
    Hung { seconds: u64 },
    /// The run was asked to stop.
    Stopped,
}

/// What can stop a load, and what observes it.
pub(crate) struct DriveControl<'a> {
    pub(crate) shutdown: &'a Shutdown,
    /// Counters of the load generator, readable at any time.
    pub(crate) progress: Arc<Progress>,
    /// How often `report` is called.
    pub(crate) report_every: Duration,
    pub(crate) report: Box<dyn FnMut(&Progress) + 'a>,
}

/// Drives a load. Every request gets a record, even if the load is cut short. Fails if the load cannot be
/// driven at all.
pub(crate) async fn drive(
    running: &mut RunningEngine,
    load: LoadSpec,
    control: &mut DriveControl<'_>,
) -> Result<(LoadResult, Option<AbortReason>), LoadError> {
    let DriveControl {
        shutdown: stop,
        progress,
        report_every,
        report,
    } = control;
    let halt = CancellationToken::new();
    let stall = load.limits.stall.duration();
    let driving = loadgen::run_load(load, Arc::clone(progress), halt.clone());
    tokio::pin!(driving);
    let mut ticks = tokio::time::interval(POLL_INTERVAL.min(*report_every));
    let (mut moved_at, mut moved, mut last_report) = (clock::now(), 0, clock::now());
    let mut asked_at = moved_at;
    let cut = loop {
        tokio::select! {
            biased;
            driven = &mut driving => {
                let driven = driven?;
                let cut = match running.has_lost_process() || running.can_observe_exit() && may_follow_exit(running, &driven.records) {
                    true => exit_after_lost_connections(running).await,
                    false => None,
                };
                let cut = match cut {
                    Some(AbortReason::EngineExited(death)) if death.may_follow_signal() && stop.is_requested_soon().await => {
                        Some(AbortReason::Stopped)
                    }
                    cut => cut,
                };
                return Ok((driven, cut));
            }
            death = running.wait_for_exit() => break match death.may_follow_signal() && stop.is_requested_soon().await {
                true => AbortReason::Stopped,
                false => AbortReason::EngineExited(death),
            },
            () = stop.requested.cancelled() => break AbortReason::Stopped,
            _ = ticks.tick() => {
                let now = clock::now();
                let activity = progress.events() + progress.ended();
                if activity != moved {
                    running.note_activity();
                }
                if activity != moved || progress.running() == 0 {
                    (moved_at, asked_at, moved) = (now, now, activity);
                } else if now.since(asked_at) >= STALL_CHECK_AFTER {
                    asked_at = now;
                    running.request_check();
                } else if now.since(moved_at) >= stall {
                    break AbortReason::Hung { seconds: stall.as_secs() };
                }
                if now.since(last_report) >= *report_every {
                    last_report = now;
                    report(progress);
                }
            }
        }
    };
    halt.cancel();
    Ok((driving.await?, Some(cut)))
}

/// Whether requests failed as they do after the death of this engine. A router answers for its dead servers.
fn may_follow_exit(running: &RunningEngine, requests: &[Request]) -> bool {
    let has_failed = || requests.iter().any(|request| request.failure.is_some());
    lost_connections(requests) || (!running.other_servers().is_empty() && has_failed())
}

/// Whether connections broke or were refused, as after an engine's death.
fn lost_connections(requests: &[Request]) -> bool {
    let lost = |class| {
        matches!(
            class,
            RequestFailureClass::Reset | RequestFailureClass::Refused | RequestFailureClass::Connect
        )
    };
    requests
        .iter()
        .filter_map(|request| request.failure.as_ref())
        .any(|failure| lost(failure.class))
}

/// Waits for the death of an engine whose connections broke, because its process ends a moment later. Waits
/// on while a restarting container daemon cannot report the engine's state; the caller's deadline ends that.
async fn exit_after_lost_connections(running: &mut RunningEngine) -> Option<AbortReason> {
    loop {
        match tokio::time::timeout(EXIT_GRACE, running.wait_for_exit()).await {
            Ok(death) => return Some(AbortReason::EngineExited(death)),
            Err(_) if running.is_liveness_unknown() => {}
            Err(_) => return None,
        }
    }
}
