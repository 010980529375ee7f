//! Drives a load while watching its engine and the run: the engine may end, die or hang, and the run may be
//! asked to stop.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::base::clock;
use crate::engine::{Death, Running};
use crate::loadgen::{self, DriveError, Driven, Load, Progress};
use crate::results::record::request::{Class, Request};
use crate::runner::shutdown::Stop;

/// Pause between two checks of a running load.
const LOOK: Duration = Duration::from_millis(500);

/// Time without progress after which the engine's executor is checked.
const STILL: Duration = Duration::from_secs(5);

/// Time after broken connections in which the engine's death may be reported; a busy container daemon reports
/// it late.
const LAST_BREATH: Duration = Duration::from_secs(3);

/// Why a load was cut before its end.
#[derive(Debug)]
pub(crate) enum AbortReason {
    /// The engine ended by itself, or its log shows that it is dead.
    Died(Death),
    /// No stream made progress for too long.
    Hung { seconds: u64 },
    /// The run was asked to stop.
    Stopped,
}

/// What can stop a load, and what observes it.
pub(crate) struct DriveControl<'a> {
    pub(crate) stop: &'a Stop,
    /// Counters of the load generator, readable at any time.
    pub(crate) progress: Arc<Progress>,
    /// How often `report` is called.
    pub(crate) report_every: Duration,
    pub(crate) report: Box<dyn FnMut(&Progress) + 'a>,
}

/// Drives a load. Every request gets a record, even if the load is cut short. Fails if the load cannot be
/// driven at all.
pub(crate) async fn drive(
    running: &mut Running,
    load: Load,
    control: &mut DriveControl<'_>,
) -> Result<(Driven, Option<AbortReason>), DriveError> {
    let DriveControl {
        stop,
        progress,
        report_every,
        report,
    } = control;
    let halt = CancellationToken::new();
    let stall = load.limits.stall.duration();
    let driving = loadgen::drive(load, Arc::clone(progress), halt.clone());
    tokio::pin!(driving);
    let mut look = tokio::time::interval(LOOK.min(*report_every));
    let (mut moved_at, mut moved, mut told) = (clock::now(), 0, clock::now());
    let mut asked_at = moved_at;
    let cut = loop {
        tokio::select! {
            biased;
            driven = &mut driving => {
                let driven = driven?;
                let cut = match running.sees_exit() && lost_connections(&driven.requests) {
                    true => death(running).await,
                    false => None,
                };
                let cut = match cut {
                    Some(AbortReason::Died(death)) if death.may_follow_a_request() && stop.is_asked_soon().await => {
                        Some(AbortReason::Stopped)
                    }
                    cut => cut,
                };
                return Ok((driven, cut));
            }
            death = running.exited() => break match death.may_follow_a_request() && stop.is_asked_soon().await {
                true => AbortReason::Stopped,
                false => AbortReason::Died(death),
            },
            () = stop.asked.cancelled() => break AbortReason::Stopped,
            _ = look.tick() => {
                let now = clock::now();
                let seen = progress.events() + progress.ended();
                if seen != moved {
                    running.moves();
                }
                if seen != moved || progress.running() == 0 {
                    (moved_at, asked_at, moved) = (now, now, seen);
                } else if now.since(asked_at) >= STILL {
                    asked_at = now;
                    running.suspect();
                } else if now.since(moved_at) >= stall {
                    break AbortReason::Hung { seconds: stall.as_secs() };
                }
                if now.since(told) >= *report_every {
                    told = now;
                    report(progress);
                }
            }
        }
    };
    halt.cancel();
    Ok((driving.await?, Some(cut)))
}

/// Whether connections broke or were refused, as after an engine's death.
fn lost_connections(requests: &[Request]) -> bool {
    let lost = |class| matches!(class, Class::Reset | Class::Refused | Class::Connect);
    requests
        .iter()
        .filter_map(|request| request.failure.as_ref())
        .any(|failure| lost(failure.class))
}

/// Waits for the death of an engine whose connections broke, because its process ends a moment later. Waits
/// on while a restarting container daemon cannot report the engine's state; the caller's deadline ends that.
async fn death(running: &mut Running) -> Option<AbortReason> {
    loop {
        match tokio::time::timeout(LAST_BREATH, running.exited()).await {
            Ok(death) => return Some(AbortReason::Died(death)),
            Err(_) if running.is_unheard() => {}
            Err(_) => return None,
        }
    }
}
