//! Life cycle of a simulated engine: bind, load, listen, end.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use thiserror::Error;
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::sim::connection;
use crate::sim::engine::Engine;
use crate::sim::faults::DieAfter;
use crate::sim::options::{Options, OptionsError, Timing};
use crate::sim::scheduler;
use crate::sim::startup;

/// Receives lines of the engine's log, without line ends.
pub(crate) type Log = Arc<dyn Fn(&str) + Send + Sync>;

/// Length of the kernel's accept queue; `net.core.somaxconn` may limit it.
const BACKLOG: u32 = 4096;

/// How long connections may take to end when the engine stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a simulated engine failed.
#[derive(Debug, Error)]
pub(crate) enum SimError {
    #[error(transparent)]
    Options(#[from] OptionsError),
    #[error("cannot listen on {address}: {source}; choose another `--port`, or 0 for a free one")]
    Bind {
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// A thread, a signal handler or a child process could not be created.
    #[error("cannot start the simulated engine: {0}; see the limits of this user (`ulimit -a`)")]
    System(#[from] std::io::Error),
    /// A fault ended the engine. All connections have been reset, and the process must exit with this status.
    #[error("the simulated engine crashed as requested (exit status: {status})")]
    InjectedDeath {
        /// Exit status of the process.
        status: u8,
    },
}

/// Serves until `stop` is cancelled, SIGTERM or SIGINT arrives, or a fault ends the engine. `log` receives
/// the lines that an engine would print. `on_ready` is called with the bound address once connections are
/// accepted; with [`Options::listen_while_loading`] this is before loading ends.
pub(crate) async fn serve(
    options: Options,
    log: Log,
    on_ready: impl FnOnce(SocketAddr),
    stop: CancellationToken,
) -> Result<(), SimError> {
    options.check()?;
    let address = SocketAddr::new(options.host, options.port);
    let (socket, bound) = bind(address).map_err(|source| SimError::Bind { address, source })?;
    if options.faults.leak_child {
        leak_child(&log)?;
    }
    let shared = options.faults.leave_shm;
    // Kept open while serving, because engines keep their shared memory mapped.
    let _shared = shared.map(|bytes| leave_shm(bytes, bound.port())).transpose()?;
    let tasks = TaskTracker::new();
    let engine = start_engine(options, &tasks)?;
    let _close = engine.closing.clone().drop_guard();
    let lifetime = engine.options.faults.die_after;
    let result = tokio::select! {
        biased;
        () = stop.cancelled() => Ok(()),
        signal = wait_for_stop_signal(engine.options.faults.ignore_sigterm, &log) => signal.map_err(SimError::System),
        () = engine.died.cancelled() => Err(startup::log_death(&*log)),
        () = wait_for_death(lifetime) => Err(startup::log_death(&*log)),
        end = load_and_accept(socket, bound, &engine, &log, on_ready, &tasks) => match end {
            Err(error) => Err(error),
        },
    };
    if matches!(result, Err(SimError::InjectedDeath { .. })) {
        engine.died.cancel();
    }
    engine.closing.cancel();
    tasks.close();
    // A connection that does not end in time ends with the process.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, tasks.wait()).await;
    result
}

/// Creates a file in shared memory that is left behind.
fn leave_shm(bytes: u64, port: u16) -> std::io::Result<std::fs::File> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = format!("/dev/shm/matrix-sim-{port}-{}", std::process::id());
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    std::io::copy(&mut std::io::Read::take(std::io::repeat(1), bytes), &mut file)?;
    Ok(file)
}

fn bind(address: SocketAddr) -> std::io::Result<(TcpSocket, SocketAddr)> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    let bound = socket.local_addr()?;
    Ok((socket, bound))
}

fn start_engine(options: Options, tasks: &TaskTracker) -> std::io::Result<Arc<Engine>> {
    let Timing::Batched(cost) = options.timing.clone() else {
        return Ok(Arc::new(Engine::new(options, None)?));
    };
    let (sender, orders) = mpsc::unbounded_channel();
    let engine = Arc::new(Engine::new(options, Some(sender))?);
    tasks.spawn(scheduler::run_batch(cost, orders, Arc::clone(&engine)));
    Ok(engine)
}

async fn load_and_accept(
    socket: TcpSocket,
    bound: SocketAddr,
    engine: &Arc<Engine>,
    log: &Log,
    on_ready: impl FnOnce(SocketAddr),
    tasks: &TaskTracker,
) -> Result<Infallible, SimError> {
    let listen = |socket: TcpSocket| {
        socket.listen(BACKLOG).map_err(|source| SimError::Bind {
            address: bound,
            source,
        })
    };
    let loaded = async {
        startup::load(engine, &**log).await?;
        engine.is_ready.store(true, Relaxed);
        Ok::<(), SimError>(())
    };
    if engine.options.listen_while_loading {
        let listener = listen(socket)?;
        on_ready(bound);
        let stop_signal = async {
            loaded.await?;
            log_ready(bound, engine, log);
            pending().await
        };
        return tokio::select! {
            end = stop_signal => end,
            end = accept(listener, engine, tasks) => Ok(end),
        };
    }
    loaded.await?;
    let listener = listen(socket)?;
    log_ready(bound, engine, log);
    on_ready(bound);
    Ok(accept(listener, engine, tasks).await)
}

fn log_ready(bound: SocketAddr, engine: &Engine, log: &Log) {
    startup::log_line(&**log, &format!("Uvicorn running on http://{bound} (simulated)"));
    startup::log_line(&**log, startup::ready_line(engine.options.dialect));
    if let Some(bytes) = engine.options.faults.log_flood {
        let log = Arc::clone(log);
        // Blocks while the log is read slowly; ends with the process.
        std::thread::spawn(move || startup::flood_log(&*log, bytes));
    }
}

async fn accept(listener: TcpListener, engine: &Arc<Engine>, tasks: &TaskTracker) -> Infallible {
    loop {
        let accepted = tokio::select! {
            biased;
            () = engine.refusing.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                tasks.spawn(connection::serve(stream, Arc::clone(engine)));
            }
            // The process is out of file descriptors; an immediate retry would fail as well.
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    drop(listener);
    pending().await
}

async fn wait_for_death(lifetime: Option<DieAfter>) {
    match lifetime {
        Some(DieAfter::Time(time)) => tokio::time::sleep(time).await,
        _ => pending().await,
    }
}

async fn wait_for_stop_signal(ignores_sigterm: bool, log: &Log) -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    loop {
        tokio::select! {
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => {
                if !ignores_sigterm {
                    return Ok(());
                }
                startup::log_line(&**log, "SIGTERM ignored, as requested");
            }
        }
    }
}

fn leak_child(log: &Log) -> std::io::Result<()> {
    let child = tokio::process::Command::new("sleep")
        .arg("600")
        .stdin(Stdio::null())
        .kill_on_drop(false)
        .spawn()?;
    let id = child
        .id()
        .map_or_else(|| "ended already".to_owned(), |id| id.to_string());
    startup::log_line(&**log, &format!("left a child process behind: pid {id}"));
    Ok(())
}
