//! The head: waits for the other ranks, and notices when one is lost.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::{Hello, LOADED, REFUSED, RankLoss, Ranks, WELCOME, read_line};
use crate::sim::engine::Engine;
use crate::sim::process::{Log, SimError};
use crate::sim::startup;

/// How long a connection may take to say which rank it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Length of the accept queue: more than one for each node of any cluster.
const BACKLOG: u32 = 4096;

/// How many other ranks have come how far.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    joined: usize,
    loaded: usize,
}

/// Tells how far the other ranks are.
#[derive(Debug)]
pub(crate) struct Progress {
    others: usize,
    counts: watch::Receiver<Counts>,
}

impl Progress {
    pub(crate) async fn all_joined(&mut self) {
        self.wait_for(|counts, others| counts.joined == others).await;
    }

    pub(crate) async fn all_loaded(&mut self) {
        self.wait_for(|counts, others| counts.loaded == others).await;
    }

    async fn wait_for(&mut self, is_reached: impl Fn(Counts, usize) -> bool) {
        let others = self.others;
        if self
            .counts
            .wait_for(|counts| is_reached(*counts, others))
            .await
            .is_err()
        {
            // The head ends, and this with it.
            std::future::pending().await
        }
    }
}

/// The socket and the counts of a head.
#[derive(Debug)]
pub(crate) struct Head {
    listener: TcpListener,
    ranks: Ranks,
    counts: watch::Sender<Counts>,
}

/// What a connection reports.
#[derive(Clone, Copy, Debug)]
enum Event {
    Joined,
    Loaded,
    Lost(u32),
}

impl Head {
    /// Listens on all interfaces, because the other ranks are on other nodes.
    pub(crate) fn listen(ranks: Ranks) -> Result<Self, SimError> {
        let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, ranks.head_port));
        let bind = || {
            let socket = TcpSocket::new_v4()?;
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(BACKLOG)
        };
        let listener = bind().map_err(|source| SimError::BindHead { address, source })?;
        Ok(Self {
            listener,
            ranks,
            counts: watch::Sender::default(),
        })
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress {
            others: self.ranks.others(),
            counts: self.counts.subscribe(),
        }
    }

    /// Accepts ranks until one is lost. Then it fails, or stalls the engine for ever.
    pub(crate) async fn lead(self, engine: &Engine, log: &Log) -> Result<Infallible, SimError> {
        let others = self.ranks.others();
        engine.missing_ranks.store(others, Relaxed);
        let port = self.ranks.head_port;
        startup::log_line(
            &**log,
            &format!("waiting on port {port} for the other ranks (number: {others})"),
        );
        let known = Arc::new(Mutex::new(BTreeSet::new()));
        let (sender, mut events) = mpsc::unbounded_channel();
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let member = Member {
                            nodes: self.ranks.nodes,
                            known: Arc::clone(&known),
                            events: sender.clone(),
                            log: Arc::clone(log),
                        };
                        connections.spawn(member.serve(stream));
                    }
                    // The process is out of file descriptors; an immediate retry would fail as well.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                },
                Some(_) = connections.join_next() => {}
                Some(event) = events.recv() => match event {
                    Event::Joined => {
                        self.counts.send_modify(|counts| counts.joined += 1);
                        engine.missing_ranks.fetch_sub(1, Relaxed);
                    }
                    Event::Loaded => self.counts.send_modify(|counts| counts.loaded += 1),
                    Event::Lost(rank) => {
                        startup::log_error(&**log, &format!("rank {rank} was lost"));
                        match self.ranks.rank_loss {
                            RankLoss::Exit => return Err(SimError::RankLost { rank }),
                            RankLoss::Hang => engine.stalled.cancel(),
                        }
                    }
                },
            }
        }
    }
}

/// The connection of one rank, or of a stranger.
struct Member {
    nodes: u32,
    /// The ranks that have joined. One that was lost stays in it: a rank cannot be replaced.
    known: Arc<Mutex<BTreeSet<u32>>>,
    events: mpsc::UnboundedSender<Event>,
    log: Log,
}

impl Member {
    async fn serve(self, mut stream: TcpStream) {
        let hello = tokio::time::timeout(HELLO_TIMEOUT, read_line(&mut stream)).await;
        let Some(hello) = hello.ok().flatten().as_deref().and_then(Hello::parse) else {
            return;
        };
        if let Err(reason) = self.admit(hello) {
            startup::log_error(&*self.log, &format!("rank {} was refused: {reason}", hello.rank));
            // It may be gone.
            let _ = stream.write_all(format!("{REFUSED}{reason}\n").as_bytes()).await;
            return;
        }
        let is_welcomed = stream.write_all(format!("{WELCOME}\n").as_bytes()).await.is_ok();
        // The receiver lives as long as the head. Before its end this task is aborted.
        let _ = self.events.send(Event::Joined);
        if is_welcomed {
            while let Some(line) = read_line(&mut stream).await {
                if line == LOADED {
                    let _ = self.events.send(Event::Loaded);
                }
            }
        }
        let _ = self.events.send(Event::Lost(hello.rank));
    }

    /// Adds a rank, or says why it cannot join.
    fn admit(&self, hello: Hello) -> Result<(), String> {
        if hello.nodes != self.nodes {
            return Err(format!(
                "the rank has `--nodes {}`, but the head has `--nodes {}`",
                hello.nodes, self.nodes
            ));
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.insert(hello.rank) {
            return Err(format!("rank {} has joined before", hello.rank));
        }
        let joined = format!(
            "rank {} joined ({} of {})",
            hello.rank,
            known.len(),
            self.nodes - 1
        );
        startup::log_line(&*self.log, &joined);
        Ok(())
    }
}
