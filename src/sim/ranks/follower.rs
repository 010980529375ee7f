//! A rank other than the head: joins the head, loads, and lives as long as the head does.

use std::future::pending;
use std::time::Duration;

use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::ReadHalf;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Hello, LOADED, REFUSED, Ranks, WELCOME, read_line};
use crate::base::units::HumanDuration;
use crate::sim::options::Options;
use crate::sim::process::{self, Log, SimError};
use crate::sim::startup;
use crate::sim::timer::PreciseTimer;

/// Time between two attempts to reach the head.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Why a rank could not join its head.
#[derive(Debug, Error)]
pub(crate) enum JoinError {
    #[error(
        "rank {rank} did not reach the head at {head} within {timeout} ({last}); check that rank 0 runs, and check \
         `--head-host` and `--head-port`"
    )]
    Timeout {
        rank: u32,
        head: String,
        timeout: HumanDuration,
        /// How the last attempt failed.
        last: String,
    },
    #[error(
        "the head at {head} refused rank {rank}: {reason}; give all ranks the same `--nodes`, and each rank its \
         own `--node-rank`"
    )]
    Refused { rank: u32, head: String, reason: String },
}

/// Joins the head and stays until the head, `stop`, a signal or a fault ends it.
pub(crate) async fn follow_head(
    options: &Options,
    ranks: &Ranks,
    log: &Log,
    stop: &CancellationToken,
) -> Result<(), SimError> {
    let _shared = process::leave_behind(&options.faults, ranks.head_port, log)?;
    // No request reaches this rank, so none causes a fault.
    let died = CancellationToken::new();
    let work = join_and_stay(options, ranks, log);
    process::run_until_end(&options.faults, log, stop, &died, work).await
}

async fn join_and_stay(options: &Options, ranks: &Ranks, log: &Log) -> Result<(), SimError> {
    let timer = PreciseTimer::start()?;
    let mut stream = join(ranks).await?;
    let (rank, nodes) = (ranks.node_rank, ranks.nodes);
    startup::log_line(
        &**log,
        &format!("rank {rank} of {nodes} joined the head at {}", head_of(ranks)),
    );
    let (mut reader, mut writer) = stream.split();
    let work = async {
        startup::load(options, &timer, &**log).await?;
        // If it fails, the head has ended, which the other branch notices.
        let _ = writer.write_all(format!("{LOADED}\n").as_bytes()).await;
        process::flood_log(&options.faults, log);
        pending::<Result<(), SimError>>().await
    };
    tokio::select! {
        biased;
        () = wait_for_end(&mut reader) => {
            startup::log_line(&**log, &format!("the head at {} ended", head_of(ranks)));
            Ok(())
        }
        end = work => end,
    }
}

fn head_of(ranks: &Ranks) -> String {
    format!("{}:{}", ranks.head_host, ranks.head_port)
}

/// Waits until the head closes the connection.
async fn wait_for_end(reader: &mut ReadHalf<'_>) {
    let mut ignored = [0; 64];
    while matches!(reader.read(&mut ignored).await, Ok(1..)) {}
}

/// Tries to reach the head until it welcomes or refuses this rank.
async fn join(ranks: &Ranks) -> Result<TcpStream, JoinError> {
    let deadline = Instant::now() + ranks.join_timeout;
    let mut last = "no attempt ended".to_owned();
    loop {
        match tokio::time::timeout_at(deadline, try_join(ranks)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(Attempt::Refused(reason))) => {
                return Err(JoinError::Refused {
                    rank: ranks.node_rank,
                    head: head_of(ranks),
                    reason,
                });
            }
            Ok(Err(Attempt::Failed(error))) => last = error,
            Err(_) => {}
        }
        if Instant::now() + RETRY_PAUSE >= deadline {
            return Err(JoinError::Timeout {
                rank: ranks.node_rank,
                head: head_of(ranks),
                timeout: HumanDuration(ranks.join_timeout),
                last,
            });
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Why one attempt to join failed.
enum Attempt {
    /// The next one may succeed.
    Failed(String),
    Refused(String),
}

async fn try_join(ranks: &Ranks) -> Result<TcpStream, Attempt> {
    let failed = |error: std::io::Error| Attempt::Failed(error.to_string());
    let head = (ranks.head_host.as_str(), ranks.head_port);
    let mut stream = TcpStream::connect(head).await.map_err(failed)?;
    let hello = Hello {
        rank: ranks.node_rank,
        nodes: ranks.nodes,
    };
    let line = format!("{}\n", hello.to_line());
    stream.write_all(line.as_bytes()).await.map_err(failed)?;
    match read_line(&mut stream).await {
        Some(answer) if answer == WELCOME => Ok(stream),
        Some(answer) => match answer.strip_prefix(REFUSED) {
            Some(reason) => Err(Attempt::Refused(reason.to_owned())),
            // Also this rank itself: a socket that connects to a free local port may get that very port.
            None => Err(Attempt::Failed("another server answers there".to_owned())),
        },
        None => Err(Attempt::Failed(
            "the connection ended without an answer".to_owned(),
        )),
    }
}
