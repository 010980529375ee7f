//! Signals: the first one ends the run cleanly, the second one kills. While nothing is measured, the first
//! one ends the command.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use procfs::process::Process;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::base::clock::{self, MonotonicTime};
use crate::base::threads::ThreadLimitError;
use crate::engine;
use crate::results::record::event::Event;
use crate::results::store;
use crate::runner::context::EventBus;

/// Time after an engine's end in which a signal to both may still arrive: stopping a cgroup signals its
/// processes in any order.
const SAME_SIGNAL_WINDOW: Duration = Duration::from_secs(1);

/// Signals within this time count as one: `timeout` signals its child and then the child's process group, a fraction of a
/// millisecond later. It is shorter than the time between two that a script or a user sends.
const SIGNAL_DEBOUNCE: Duration = Duration::from_millis(30);

/// Time after the second signal until remaining processes are killed.
const KILL_DEADLINE: Duration = Duration::from_millis(700);

/// Time after that kill until the command ends, in any case.
const EXIT_DEADLINE: Duration = Duration::from_secs(9);

/// Stack of the command's thread, as large as that of a main thread.
const STACK_BYTES: usize = 8 << 20;

/// Signals that ask the command to stop, since it began.
static RECEIVED: AtomicUsize = AtomicUsize::new(0);

/// Whether a signal has asked the command to stop. A command of several runs asks between them: a signal that arrives while a run
/// closes stops no other one.
pub(crate) fn is_command_stopping() -> bool {
    RECEIVED.load(Ordering::SeqCst) > 0
}

/// Number of parts of the program that currently handle signals themselves.
static HANDLERS: AtomicUsize = AtomicUsize::new(0);

/// Whether the run is asked to stop, and how urgently.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shutdown {
    /// End cleanly: the current cell is cut short and saved, its engine stopped.
    pub(crate) requested: CancellationToken,
    /// Kill everything that was started.
    pub(crate) immediate: CancellationToken,
}

impl Shutdown {
    /// Whether nothing new may begin.
    pub(crate) fn is_requested(&self) -> bool {
        self.requested.is_cancelled()
    }

    /// Whether an ended engine may have been stopped by the signal that stops this run; waits for it briefly.
    pub(crate) async fn is_requested_soon(&self) -> bool {
        tokio::time::timeout(SAME_SIGNAL_WINDOW, self.requested.cancelled())
            .await
            .is_ok()
    }

    /// Runs a future; `None` if the run is asked to stop first.
    pub(crate) async fn unless_requested<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.requested.cancelled() => None,
            done = work => Some(done),
        }
    }

    /// Runs a future; `None` if it takes longer than `limit` after the run was asked to stop.
    pub(crate) async fn at_most_after_request<T>(
        &self,
        limit: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let over = async {
            self.requested.cancelled().await;
            tokio::time::sleep(limit).await;
        };
        tokio::select! {
            biased;
            done = work => Some(done),
            () = over => None,
        }
    }

    /// Passes every signal on to the run, while polled.
    pub(crate) async fn listen(&self, signals: &mut Signals, events: &EventBus) -> std::convert::Infallible {
        loop {
            signals.streams.next_signal().await;
            let second = self.requested.is_cancelled();
            events.emit(Event::Stopping { now: second });
            self.requested.cancel();
            if second {
                self.immediate.cancel();
            }
        }
    }
}

/// Handled signals, while this exists. Otherwise a signal ends the command.
pub(crate) struct Signals {
    streams: SignalStreams,
    _handler: Handler,
}

impl Signals {
    /// Begins to catch signals; needs a runtime.
    pub(crate) fn catch() -> std::io::Result<Self> {
        Ok(Self {
            streams: SignalStreams::open()?,
            _handler: Handler::new(),
        })
    }
}

/// Counts one handler in [`HANDLERS`]: while this exists, a signal does not end the command.
pub(crate) struct Handler;

impl Handler {
    pub(super) fn new() -> Self {
        HANDLERS.fetch_add(1, Ordering::SeqCst);
        Self
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        HANDLERS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The signal for a write beyond `RLIMIT_FSIZE`.
const SIGXFSZ: i32 = rustix::process::Signal::XFSZ.as_raw();

/// SIGINT, SIGTERM and SIGHUP, except those that this process inherited as ignored: `nohup` ignores SIGHUP.
struct SignalStreams {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
    last: Option<MonotonicTime>,
}

impl SignalStreams {
    fn open() -> std::io::Result<Self> {
        let status = Process::myself().and_then(|process| process.status());
        let ignored = status.map_or(0, |status| status.sigign);
        // Caught and ignored, so that exceeding a file size limit is a write error, like a full disk. Engines
        // are not affected.
        drop(signal(SignalKind::from_raw(SIGXFSZ))?);
        let catch = |kind: SignalKind| match ignored >> (kind.as_raw_value() - 1) & 1 {
            0 => signal(kind).map(Some),
            _ => Ok(None),
        };
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hangup: catch(SignalKind::hangup())?,
            last: None,
        })
    }

    async fn next_signal(&mut self) {
        loop {
            self.any_signal().await;
            let now = clock::now();
            if self.last.is_none_or(|last| now.since(last) >= SIGNAL_DEBOUNCE) {
                self.last = Some(now);
                return;
            }
        }
    }

    async fn any_signal(&mut self) {
        async fn one(signal: &mut Option<Signal>) {
            match signal {
                Some(signal) => {
                    signal.recv().await;
                }
                None => std::future::pending().await,
            }
        }
        tokio::select! {
            () = one(&mut self.interrupt) => {}
            () = one(&mut self.terminate) => {}
            () = one(&mut self.hangup) => {}
        }
    }
}

/// Runs a command on a separate thread. Returns `None` if a signal ended it: a signal while no handler
/// exists, or a second one after which the command did not end in time. Fails before the work begins if no
/// thread can be started.
pub(crate) fn supervise<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<Option<T>, ThreadLimitError> {
    let (sender, receiver) = mpsc::channel();
    let done_sender = sender.clone();
    let (ready, handled) = mpsc::channel();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(watch_signals(ready, || {
                let _ = done_sender.send(None);
            }));
        })?;
    // Begin the work once signals are handled, or cannot be.
    let _ = handled.recv();
    spawn_work(work, sender)?;
    match receiver.recv() {
        Ok(Some(Ok(done))) => Ok(Some(done)),
        // The panic was printed on its thread; end the process as if it had happened here.
        Ok(Some(Err(panic))) => std::panic::resume_unwind(panic),
        Ok(None) | Err(_) => {
            store::wait_for_writes();
            Ok(None)
        }
    }
}

/// Runs work on a separate thread and sends its result, which may be a panic.
fn spawn_work<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
    done: mpsc::Sender<Option<std::thread::Result<T>>>,
) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name("command".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let _ = done.send(Some(outcome));
        })
}

/// Waits for signals; `ready` reports that they are handled, `leave` ends the command.
async fn watch_signals(ready: mpsc::Sender<()>, leave: impl Fn()) {
    let Ok(mut caught) = SignalStreams::open() else {
        return;
    };
    let _ = ready.send(());
    let mut count: usize = 0;
    loop {
        caught.next_signal().await;
        count += 1;
        RECEIVED.store(count, Ordering::SeqCst);
        if HANDLERS.load(Ordering::SeqCst) == 0 {
            return leave();
        }
        if count == 2 {
            break;
        }
    }
    tokio::time::sleep(KILL_DEADLINE).await;
    engine::kill_own();
    tokio::time::sleep(EXIT_DEADLINE).await;
    for orphan in engine::kill_own() {
        tracing::error!("still running: {orphan}");
    }
    leave();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_request_to_stop_work_has_only_the_time_of_its_limit() {
        let (shutdown, limit) = (Shutdown::default(), Duration::from_secs(1));
        let slow = || tokio::time::sleep(Duration::from_secs(10));
        assert_eq!(shutdown.at_most_after_request(limit, slow()).await, Some(()));
        shutdown.requested.cancel();
        let began = tokio::time::Instant::now();
        assert_eq!(shutdown.at_most_after_request(limit, slow()).await, None);
        assert_eq!(began.elapsed(), limit);
        let quick = shutdown.at_most_after_request(limit, async { 7 });
        assert_eq!(quick.await, Some(7));
    }

    #[test]
    fn a_panic_of_the_work_is_told_while_signals_are_watched() {
        let (sender, receiver) = mpsc::channel();
        let _watcher = sender.clone();
        spawn_work(|| -> u32 { panic!("a test") }, sender).unwrap();
        let actual = receiver.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(actual.is_some_and(|outcome| outcome.is_err()));
    }
}
