//! Signals: the first winds down, the second kills.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::results::record::event::Event;
use crate::run::Events;

/// Whether the run is asked to stop, and how urgently.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// Finish tidily: the cell under way is cut and saved, its engine stopped.
    pub asked: CancellationToken,
    /// Kill what was started.
    pub now: CancellationToken,
}

impl Stop {
    /// Whether nothing new may begin.
    pub fn is_asked(&self) -> bool {
        self.asked.is_cancelled()
    }

    /// Tells a run of every signal, for as long as it is polled.
    pub async fn listen(&self, signals: &mut Signals, events: &Events) -> std::convert::Infallible {
        loop {
            signals.next().await;
            let second = self.asked.is_cancelled();
            events.tell(Event::Stopping { now: second });
            self.asked.cancel();
            if second {
                self.now.cancel();
            }
        }
    }
}

/// SIGINT, SIGTERM and SIGHUP, caught from the moment this exists: before anything is started.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Begins to catch them; needs a runtime.
    ///
    /// # Errors
    /// The system refuses to deliver signals.
    pub fn catch() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }
}
