//! A thread that sends a share of a load.

use std::sync::Arc;
use std::thread;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::epoll_loop;
use super::load_result::{LoadError, ThreadUsage};
use super::load_spec::PlannedRequest;
use super::pending::{PendingRequest, prepare};
use super::request_outcome::RequestOutcome;
use super::shared::Shared;
use crate::base::clock::{self, MonotonicTime};
use crate::loadgen::lateness::LatenessCounter;

pub(super) struct ShardResult {
    pub(super) outcomes: Vec<RequestOutcome>,
    pub(super) clock_jumps: u32,
    pub(super) usage: ThreadUsage,
    pub(super) lateness: LatenessCounter,
}

/// A thread that prepares its share and then waits for the start.
pub(super) struct Worker {
    ready: oneshot::Receiver<Result<(), LoadError>>,
    zero: oneshot::Sender<MonotonicTime>,
    end: oneshot::Receiver<ShardResult>,
}

impl Worker {
    pub(super) fn start(
        shard: Vec<(u32, PlannedRequest)>,
        shared: &Arc<Shared>,
        stop: &CancellationToken,
    ) -> Result<Self, LoadError> {
        let (say_ready, ready) = oneshot::channel();
        let (zero, hear_zero) = oneshot::channel();
        let (say_end, end) = oneshot::channel();
        let (shared, stop) = (Arc::clone(shared), stop.clone());
        let work = move || {
            let prepared = prepare(shard, &shared).and_then(|pending_requests| {
                let events = epoll_loop::EventLoop::new(&shared, pending_requests.len())?;
                Ok((pending_requests, events))
            });
            let (pending_requests, events) = match prepared {
                Ok(prepared) => prepared,
                Err(error) => return drop(say_ready.send(Err(error))),
            };
            // Each send fails only if the drive was dropped; then the records are not needed.
            if say_ready.send(Ok(())).is_err() {
                return;
            }
            if let Ok(zero) = hear_zero.blocking_recv() {
                drop(say_end.send(run_shard(events, pending_requests, zero, &stop)));
            }
        };
        thread::Builder::new()
            .name("load".to_owned())
            .spawn(work)
            .map_err(|error| LoadError::Thread(error.to_string()))?;
        Ok(Self { ready, zero, end })
    }

    pub(super) async fn wait_ready(&mut self) -> Result<(), LoadError> {
        (&mut self.ready).await.unwrap_or_else(|_| Err(thread_died()))
    }

    pub(super) fn begin(self, zero: MonotonicTime) -> impl Future<Output = Result<ShardResult, LoadError>> {
        // A dead thread does not receive the start; awaiting its end returns the error.
        let _ = self.zero.send(zero);
        async { self.end.await.map_err(|_| thread_died()) }
    }
}

fn thread_died() -> LoadError {
    LoadError::Thread("it panicked".to_owned())
}

fn run_shard(
    events: epoll_loop::EventLoop,
    pending_requests: Vec<PendingRequest>,
    zero: MonotonicTime,
    stop: &CancellationToken,
) -> ShardResult {
    let cpu = clock::thread_cpu();
    let (sent, stats) = events.send(pending_requests, zero, stop);
    ShardResult {
        outcomes: sent,
        clock_jumps: stats.clock_jumps,
        usage: ThreadUsage {
            cpu: clock::thread_cpu().saturating_sub(cpu),
            wall: clock::now().since(zero),
            longest_pass: stats.longest_pass,
        },
        lateness: stats.lateness,
    }
}
