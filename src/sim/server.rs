//! Life cycle of a simulated engine: bind, load, listen, end.

use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::sim::connection;
use crate::sim::engine::Engine;
use crate::sim::options::{Options, Timing};
use crate::sim::process::{self, Log, SimError};
use crate::sim::ranks::{Head, follow_head};
use crate::sim::scheduler;
use crate::sim::startup;

/// Length of the kernel's accept queue; `net.core.somaxconn` may limit it.
const BACKLOG: u32 = 4096;

/// How long connections may take to end when the engine stops.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves until `stop` is cancelled, SIGTERM or SIGINT arrives, or a fault ends the engine. `log` receives
/// the lines that an engine would print. `on_ready` is called with the bound address once connections are
/// accepted; with [`Options::listen_while_loading`] this is before loading ends. A rank other than the head serves
/// nothing: it lives as long as its head.
pub(crate) async fn serve(
    options: Options,
    log: Log,
    on_ready: impl FnOnce(SocketAddr),
    stop: CancellationToken,
) -> Result<(), SimError> {
    options.check()?;
    if let Some(ranks) = &options.ranks
        && ranks.node_rank > 0
    {
        return follow_head(&options, ranks, &log, &stop).await;
    }
    let address = SocketAddr::new(options.host, options.port);
    let (socket, bound) = bind(address).map_err(|source| SimError::Bind { address, source })?;
    let head = options.ranks.clone().map(Head::listen).transpose()?;
    let _shared = process::leave_behind(&options.faults, bound.port(), &log)?;
    let tasks = TaskTracker::new();
    let engine = start_engine(options, &tasks)?;
    let _close = engine.closing.clone().drop_guard();
    let (faults, died) = (&engine.options.faults, &engine.died);
    let work = load_and_accept(socket, bound, head, &engine, &log, on_ready, &tasks);
    let work = async { work.await.map(|never| match never {}) };
    let result = process::run_until_end(faults, &log, &stop, died, work).await;
    if matches!(
        result,
        Err(SimError::InjectedDeath { .. } | SimError::RankLost { .. })
    ) {
        engine.died.cancel();
    }
    engine.closing.cancel();
    tasks.close();
    // A connection that does not end in time ends with the process.
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, tasks.wait()).await;
    result
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
    head: Option<Head>,
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
    // A head answers while it waits for the other ranks.
    let listens_early = engine.options.listen_while_loading || head.is_some();
    let mut progress = head.as_ref().map(Head::progress);
    let ranks = async {
        match head {
            Some(head) => head.lead(engine, log).await,
            None => pending().await,
        }
    };
    let loaded = async {
        if let Some(progress) = &mut progress {
            progress.all_joined().await;
        }
        startup::load(&engine.options, &engine.timer, &**log).await?;
        if let Some(progress) = &mut progress {
            progress.all_loaded().await;
        }
        engine.is_ready.store(true, Relaxed);
        Ok::<(), SimError>(())
    };
    let serving = async {
        if listens_early {
            let listener = listen(socket)?;
            on_ready(bound);
            let loading = async {
                loaded.await?;
                log_ready(bound, engine, log);
                pending().await
            };
            return tokio::select! {
                end = loading => end,
                end = accept(listener, engine, tasks) => Ok(end),
            };
        }
        loaded.await?;
        let listener = listen(socket)?;
        log_ready(bound, engine, log);
        on_ready(bound);
        Ok(accept(listener, engine, tasks).await)
    };
    tokio::select! {
        end = serving => end,
        end = ranks => end,
    }
}

fn log_ready(bound: SocketAddr, engine: &Engine, log: &Log) {
    startup::log_line(&**log, &format!("Uvicorn running on http://{bound} (simulated)"));
    startup::log_line(&**log, startup::ready_line(engine.options.dialect));
    process::flood_log(&engine.options.faults, log);
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
