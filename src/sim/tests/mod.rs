//! Tests of the server over real loopback sockets with a minimal client.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::base::http1::request::{ChunkedBody, RequestBody};
use crate::sim::{Dialect, Options, SimError, serve};

mod dialects;
mod faults;
mod ranks;
mod router;
mod timing;

/// Timeout that is longer than any step here takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct Sim {
    pub(crate) address: SocketAddr,
    pub(crate) log: Arc<Mutex<Vec<String>>>,
    stop: CancellationToken,
    task: JoinSet<Result<(), SimError>>,
}

impl Sim {
    pub(crate) async fn start(options: Options) -> Self {
        Self::try_start(options)
            .await
            .expect("the simulated engine gets ready")
    }

    /// Starts the engine. The error is how it ended, if it ended before it was ready.
    pub(crate) async fn try_start(options: Options) -> Result<Self, Result<(), SimError>> {
        let log = Arc::new(Mutex::new(Vec::new()));
        let stop = CancellationToken::new();
        let (sender, ready) = oneshot::channel();
        let (lines, token) = (Arc::clone(&log), stop.clone());
        let mut task = JoinSet::new();
        task.spawn(async move {
            let log = Arc::new(move |line: &str| lines.lock().unwrap().push(line.to_owned()));
            let on_ready = |address| sender.send(address).unwrap();
            serve(options, log, on_ready, token).await
        });
        match tokio::time::timeout(TIMEOUT, ready)
            .await
            .expect("it gets ready or ends in time")
        {
            Ok(address) => Ok(Self {
                address,
                log,
                stop,
                task,
            }),
            Err(_) => Err(task.join_next().await.unwrap().unwrap()),
        }
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.wait_for_end().await.unwrap();
    }

    pub(crate) async fn wait_for_end(mut self) -> Result<(), SimError> {
        tokio::time::timeout(TIMEOUT, self.task.join_next())
            .await
            .expect("it ends in time")
            .unwrap()
            .unwrap()
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    /// Sends a request on a new connection and reads to the end. Returns the bytes and how the connection
    /// ended.
    pub(crate) async fn send_raw(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> (Vec<u8>, std::io::Result<()>) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n"
        );
        stream.write_all((head + body).as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let end = tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut bytes))
            .await
            .expect("the answer ends in time");
        (bytes, end.map(|_| ()))
    }

    pub(crate) async fn call(&self, method: &str, path: &str, body: &str) -> Answer {
        let (bytes, end) = self.send_raw(method, path, "", body).await;
        end.unwrap();
        Answer::parse(&bytes)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, "").await
    }

    pub(crate) async fn complete(&self, tokens: usize) -> Answer {
        self.call("POST", "/v1/completions", &completion(tokens)).await
    }

    /// The value of a metric that has no labels of its own.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").await.body;
        let line = page
            .lines()
            .find(|line| line.starts_with(&format!("{name}{{")))
            .expect(name);
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// A free port below those that the kernel gives to outgoing connections, which no other call returns.
pub(super) fn free_port() -> u16 {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    loop {
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + ((std::process::id() * 31 + call) % 12_000) as u16;
        if std::net::TcpListener::bind(("0.0.0.0", port)).is_ok() {
            return port;
        }
    }
}

pub(super) fn completion(tokens: usize) -> String {
    format!(
        r#"{{"prompt":[1,2,3,4],"max_tokens":{tokens},"ignore_eos":true,"stream":true,"stream_options":{{"include_usage":true}}}}"#
    )
}

pub(super) fn options_for(dialect: Dialect) -> Options {
    Options {
        dialect,
        models: vec!["m".to_owned()],
        ..Options::default()
    }
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
    /// Whether the body is complete.
    pub(crate) is_complete: bool,
}

impl Answer {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a head")
            + 4;
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let mut rest = bytes[end..].to_vec();
        let (body, is_whole) = if head.contains("transfer-encoding: chunked") {
            match RequestBody::Chunked(ChunkedBody::default())
                .take(&mut rest)
                .unwrap()
            {
                Some(body) => (body, rest.is_empty()),
                None => (bytes[end..].to_vec(), false),
            }
        } else {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "))
                .map(|text| text.parse());
            let is_whole = length.is_none_or(|length| length == Ok(rest.len()));
            (rest, is_whole)
        };
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self {
            status,
            body: String::from_utf8_lossy(&body).into_owned(),
            is_complete: is_whole,
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn events(&self) -> Vec<&str> {
        self.body
            .split_terminator("\n\n")
            .map(|event| event.split_once("data: ").unwrap().1)
            .collect()
    }

    pub(crate) fn values(&self) -> Vec<Value> {
        self.events()
            .iter()
            .filter_map(|event| serde_json::from_str(event).ok())
            .collect()
    }

    /// Number of events that contain text.
    pub(crate) fn texts(&self) -> usize {
        let text = |value: &Value| {
            let choice = &value["choices"][0];
            [&choice["text"], &choice["delta"]["content"], &value["text"]]
                .into_iter()
                .any(|text| text.as_str().is_some_and(|text| !text.is_empty()))
        };
        self.values().iter().filter(|value| text(value)).count()
    }
}
