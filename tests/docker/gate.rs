//! The daemon of the tests behind a gate, which can be closed (the daemon is away, its containers live on) or held (it hangs, or takes
//! its time for one kind of request).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::watch::{self, Receiver, Sender};
use tokio::task::{JoinHandle, JoinSet};

use crate::daemon::Daemon;

/// How long a request that is to be held may take to come.
const HELD: Duration = Duration::from_secs(60);

/// How long the daemon is busy with a request that was held.
const BUSY: Duration = Duration::from_secs(2);

pub struct Gate {
    /// The address for DOCKER_HOST.
    pub host: String,
    place: Place,
    inside: PathBuf,
    /// Whether anything passes.
    flow: Sender<bool>,
    held: Arc<Held>,
    open: std::sync::Mutex<Option<JoinHandle<()>>>,
    runtime: Runtime,
    _folder: TempDir,
}

/// A kind of request that the daemon takes its time for.
struct Held {
    /// What such a request holds.
    text: Sender<Option<&'static [u8]>>,
    /// How many have come.
    count: Sender<u32>,
}

impl Held {
    /// Waits until a request may pass, and says whether it had to wait.
    async fn pass(&self, bytes: &[u8]) -> bool {
        let holds = |text: &Option<&'static [u8]>| {
            text.is_some_and(|text| bytes.windows(text.len()).any(|part| part == text))
        };
        let mut text = self.text.subscribe();
        if !holds(&text.borrow_and_update()) {
            return false;
        }
        self.count.send_modify(|count| *count += 1);
        let _ = text.wait_for(|text| !holds(text)).await;
        true
    }
}

#[derive(Clone)]
enum Place {
    Socket(PathBuf),
    Port(u16),
}

enum Listener {
    Socket(UnixListener),
    Port(TcpListener),
}

impl Gate {
    /// At a socket: the daemon is of this host.
    pub fn socket(daemon: &Daemon) -> Self {
        let folder = folder();
        let socket = folder.path().join("gate.sock");
        let host = format!("unix://{}", socket.display());
        Self::at(daemon, Place::Socket(socket), host, folder)
    }

    /// At a port: for all that one knows the daemon is elsewhere.
    pub fn port(daemon: &Daemon) -> Self {
        let port = matrix::engine::free_port().expect("a port can be had");
        let host = format!("tcp://127.0.0.1:{port}");
        Self::at(daemon, Place::Port(port), host, folder())
    }

    fn at(daemon: &Daemon, place: Place, host: String, folder: TempDir) -> Self {
        let inside = daemon.host.strip_prefix("unix://").expect("it is a socket");
        let gate = Self {
            host,
            place,
            inside: PathBuf::from(inside),
            flow: watch::channel(true).0,
            held: Arc::new(Held {
                text: watch::channel(None).0,
                count: watch::channel(0).0,
            }),
            open: std::sync::Mutex::new(None),
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .expect("a runtime can be had"),
            _folder: folder,
        };
        gate.open();
        gate
    }

    /// The same daemon through the gate.
    pub fn daemon(&self) -> Daemon {
        Daemon {
            host: self.host.clone(),
        }
    }

    /// The daemon answers.
    pub fn open(&self) {
        let listener = self.runtime.block_on(async {
            match &self.place {
                Place::Socket(path) => {
                    let _ = std::fs::remove_file(path);
                    Listener::Socket(UnixListener::bind(path).expect("a socket can be had"))
                }
                Place::Port(port) => {
                    let bound = TcpListener::bind(("127.0.0.1", *port)).await;
                    Listener::Port(bound.expect("the port is free"))
                }
            }
        });
        let passing = serve(
            listener,
            self.inside.clone(),
            self.flow.subscribe(),
            Arc::clone(&self.held),
        );
        *self.open.lock().expect("nobody panics") = Some(self.runtime.spawn(passing));
    }

    /// The daemon is away: connections break, new ones are refused.
    pub fn close(&self) {
        let open = self.open.lock().expect("nobody panics").take();
        if let Some(open) = open {
            open.abort();
            // Ended means that its listener is closed.
            let _ = self.runtime.block_on(open);
        }
    }

    /// The daemon takes its time for requests that hold this text, until it is let go.
    pub fn hold(&self, text: &'static str) {
        self.held.text.send_replace(Some(text.as_bytes()));
    }

    /// Waits until a request is held.
    pub fn until_held(&self) {
        let mut count = self.held.count.subscribe();
        let held = async {
            tokio::time::timeout(HELD, count.wait_for(|count| *count > 0))
                .await
                .is_ok()
        };
        assert!(self.runtime.block_on(held), "no such request comes");
    }

    /// The daemon does what it was asked for, whether or not anybody still waits.
    pub fn let_go(&self) {
        self.held.text.send_replace(None);
    }

    /// The daemon hangs: connections stand, and nothing comes; or no longer.
    pub fn hang(&self, hangs: bool) {
        self.flow.send_replace(!hangs);
    }
}

fn folder() -> TempDir {
    // A socket's path must stay short.
    let made = tempfile::Builder::new().prefix("gate").tempdir_in("/tmp");
    made.expect("a folder can be made")
}

async fn serve(listener: Listener, inside: PathBuf, flow: Receiver<bool>, held: Arc<Held>) {
    let mut connections = JoinSet::new();
    loop {
        let (inside, flow, held) = (inside.clone(), flow.clone(), Arc::clone(&held));
        match &listener {
            Listener::Socket(listener) => {
                let Ok((outside, _)) = listener.accept().await else {
                    return;
                };
                let (read, write) = outside.into_split();
                connections.spawn(async move { pass(read, write, &inside, flow, &held).await });
            }
            Listener::Port(listener) => {
                let Ok((outside, _)) = listener.accept().await else {
                    return;
                };
                let (read, write) = outside.into_split();
                connections.spawn(async move { pass(read, write, &inside, flow, &held).await });
            }
        }
    }
}

async fn pass(
    read: impl AsyncRead + Unpin,
    write: impl AsyncWrite + Unpin,
    inside: &Path,
    flow: Receiver<bool>,
    held: &Held,
) {
    let Ok(stream) = UnixStream::connect(inside).await else {
        return;
    };
    let (inside_read, inside_write) = stream.into_split();
    // Whoever leaves first ends the connection's other way when it has nothing more to say.
    tokio::join!(
        copy(read, inside_write, flow.clone(), Some(held)),
        copy(inside_read, write, flow, None)
    );
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut flow: Receiver<bool>,
    held: Option<&Held>,
) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count) = from.read(&mut bytes).await {
        if flow.wait_for(|flows| *flows).await.is_err() || count == 0 {
            break;
        }
        let was_held = match held {
            Some(held) => held.pass(&bytes[..count]).await,
            None => false,
        };
        if to.write_all(&bytes[..count]).await.is_err() {
            break;
        }
        if was_held {
            // The daemon is busy with it and does not see that whoever asked has left.
            tokio::time::sleep(BUSY).await;
        }
    }
    let _ = to.shutdown().await;
}
