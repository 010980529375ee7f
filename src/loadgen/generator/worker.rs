//! A thread that sends a share of a load.

use std::sync::Arc;
use std::thread;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::epoll_loop;
use super::load::Item;
use super::outcome::Sent;
use super::pending::{Job, prepare};
use super::result::{DriveError, Effort};
use super::shared::Shared;
use crate::base::clock::{self, Moment};
use crate::loadgen::lateness::Late;

pub(super) struct Share {
    pub(super) sent: Vec<Sent>,
    pub(super) clock_jumps: u32,
    pub(super) effort: Effort,
    pub(super) late: Late,
}

/// A thread that prepares its share and then waits for the start.
pub(super) struct Worker {
    ready: oneshot::Receiver<Result<(), DriveError>>,
    zero: oneshot::Sender<Moment>,
    end: oneshot::Receiver<Share>,
}

impl Worker {
    pub(super) fn start(
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
                let events = epoll_loop::Loop::new(&shared, jobs.len())?;
                Ok((jobs, events))
            });
            let (jobs, events) = match prepared {
                Ok(prepared) => prepared,
                Err(error) => return drop(say_ready.send(Err(error))),
            };
            // Each send fails only if the drive was dropped; then the records are not needed.
            if say_ready.send(Ok(())).is_err() {
                return;
            }
            if let Ok(zero) = hear_zero.blocking_recv() {
                drop(say_end.send(send(events, jobs, zero, &stop)));
            }
        };
        thread::Builder::new()
            .name("load".to_owned())
            .spawn(work)
            .map_err(|error| DriveError::Thread(error.to_string()))?;
        Ok(Self { ready, zero, end })
    }

    pub(super) async fn ready(&mut self) -> Result<(), DriveError> {
        (&mut self.ready).await.unwrap_or_else(|_| Err(died()))
    }

    pub(super) fn begin(self, zero: Moment) -> impl Future<Output = Result<Share, DriveError>> {
        // A dead thread does not receive the start; awaiting its end returns the error.
        let _ = self.zero.send(zero);
        async { self.end.await.map_err(|_| died()) }
    }
}

fn died() -> DriveError {
    DriveError::Thread("it panicked".to_owned())
}

fn send(events: epoll_loop::Loop, jobs: Vec<Job>, zero: Moment, stop: &CancellationToken) -> Share {
    let cpu = clock::thread_cpu();
    let (sent, looked) = events.send(jobs, zero, stop);
    Share {
        sent,
        clock_jumps: looked.clock_jumps,
        effort: Effort {
            cpu: clock::thread_cpu().saturating_sub(cpu),
            wall: clock::now().since(zero),
            longest_pass: looked.longest_pass,
        },
        late: looked.late,
    }
}
