//! One connection: reads requests, writes answers.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::base::clock::{self, MonotonicTime};
use crate::base::http1::request::{CONTINUE, HttpRequestError, RequestHead, ResponseBody, write_head};
use crate::sim::engine::Engine;
use crate::sim::handler;

/// Bytes that are read while a request is answered; more stays in the kernel's buffer.
const MAX_READ_AHEAD: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Connection<'a> {
    reader: ReadHalf<'a>,
    writer: WriteHalf<'a>,
    unread: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) head: RequestHead,
    pub(crate) body: Vec<u8>,
    /// Time at which its first byte was read.
    pub(crate) arrived_at: MonotonicTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeepAlive {
    Keep,
    Close,
}

impl Connection<'_> {
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.writer.write_all(bytes).await
    }

    /// Writes a complete answer.
    pub(crate) async fn reply(
        &mut self,
        request: &Request,
        reply: &Reply,
        keep_alive: KeepAlive,
    ) -> std::io::Result<()> {
        let mut out = Vec::with_capacity(reply.body.len() + 256);
        let length = ResponseBody::Sized(reply.body.len());
        write_head(
            &mut out,
            reply.status,
            reply.content_type,
            length,
            keep_alive == KeepAlive::Keep,
            &[],
        );
        if request.head.method != "HEAD" {
            out.extend_from_slice(reply.body.as_bytes());
        }
        self.write(&out).await
    }

    /// Waits until the client disconnects, and keeps what it sends meanwhile. Cancel-safe.
    pub(crate) async fn wait_for_close(&mut self) {
        while self.unread.len() < MAX_READ_AHEAD {
            if !matches!(self.reader.read_buf(&mut self.unread).await, Ok(1..)) {
                return;
            }
        }
        std::future::pending().await
    }

    async fn read_more(&mut self) -> std::io::Result<bool> {
        Ok(self.reader.read_buf(&mut self.unread).await? > 0)
    }

    /// The next request; `None` if the client disconnected before the request was complete.
    async fn next_request(&mut self) -> std::io::Result<Option<Result<Request, HttpRequestError>>> {
        if self.unread.is_empty() && !self.read_more().await? {
            return Ok(None);
        }
        let arrived = clock::now();
        let (head, length) = loop {
            match RequestHead::parse(&self.unread) {
                Ok(Some(parsed)) => break parsed,
                Ok(None) if self.read_more().await? => {}
                Ok(None) => return Ok(None),
                Err(fault) => return Ok(Some(Err(fault))),
            }
        };
        self.unread.drain(..length);
        let mut reader = match head.body() {
            Ok(reader) => reader,
            Err(fault) => return Ok(Some(Err(fault))),
        };
        let mut was_told = !head.expects_continue();
        loop {
            match reader.take(&mut self.unread) {
                Ok(Some(body)) => {
                    return Ok(Some(Ok(Request {
                        head,
                        body,
                        arrived_at: arrived,
                    })));
                }
                Err(fault) => return Ok(Some(Err(fault))),
                Ok(None) => {}
            }
            if !was_told {
                was_told = true;
                self.write(CONTINUE).await?;
            }
            if !self.read_more().await? {
                return Ok(None);
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(status: u16, body: impl Into<String>) -> Self {
        Self {
            status,
            content_type: "application/json",
            body: body.into(),
        }
    }

    pub(crate) fn text(status: u16, body: impl Into<String>) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: body.into(),
        }
    }
}

/// Answers the requests of a connection until one side closes it. A crashing engine, or a router whose upstream breaks
/// off, resets the connection, so that the client sees a broken stream.
pub(crate) async fn serve(mut stream: TcpStream, engine: Arc<Engine>) {
    // Without it, small events wait for acknowledgements. The socket refuses it only if it is about to fail.
    let _ = stream.set_nodelay(true);
    let end = tokio::select! {
        biased;
        () = engine.died.cancelled() => Ok(()),
        () = engine.closing.cancelled() => Ok(()),
        // A broken connection affects only its client.
        end = serve_requests(&mut stream, &engine) => end,
    };
    if end.is_err() || engine.died.is_cancelled() {
        let _ = stream.set_zero_linger();
    }
}

async fn serve_requests(stream: &mut TcpStream, engine: &Arc<Engine>) -> std::io::Result<()> {
    let (reader, writer) = stream.split();
    let mut connection = Connection {
        reader,
        writer,
        unread: Vec::with_capacity(8 * 1024),
    };
    while let Some(request) = connection.next_request().await? {
        let request = match request {
            Ok(request) => request,
            Err(fault) => {
                let body = handler::error_body(engine.options.dialect, fault.status(), &fault.to_string());
                let mut out = Vec::new();
                let length = ResponseBody::Sized(body.len());
                write_head(&mut out, fault.status(), "application/json", length, false, &[]);
                out.extend_from_slice(body.as_bytes());
                return connection.write(&out).await;
            }
        };
        if handler::answer_request(&mut connection, engine, request).await? == KeepAlive::Close {
            break;
        }
    }
    connection.writer.shutdown().await
}
