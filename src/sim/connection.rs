//! One connection: reads requests, writes answers.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use crate::base::clock::{self, Moment};
use crate::base::http1::request::{CONTINUE, RequestFault, RequestHead, ResponseBody, write_head};
use crate::sim::engine::Engine;
use crate::sim::handler;

/// Bytes that are read while a request is answered; more stays in the kernel's buffer.
const READ_AHEAD: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Wire<'a> {
    reader: ReadHalf<'a>,
    writer: WriteHalf<'a>,
    inbox: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Request {
    pub head: RequestHead,
    pub body: Vec<u8>,
    /// Time at which its first byte was read.
    pub arrived: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Keep,
    Close,
}

impl Wire<'_> {
    pub(crate) async fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.writer.write_all(bytes).await
    }

    /// Writes a complete answer.
    pub(crate) async fn reply(
        &mut self,
        request: &Request,
        reply: &Reply,
        after: After,
    ) -> std::io::Result<()> {
        let mut out = Vec::with_capacity(reply.body.len() + 256);
        let length = ResponseBody::Sized(reply.body.len());
        write_head(
            &mut out,
            reply.status,
            reply.content_type,
            length,
            after == After::Keep,
            &[],
        );
        if request.head.method != "HEAD" {
            out.extend_from_slice(reply.body.as_bytes());
        }
        self.write(&out).await
    }

    /// Waits until the client disconnects, and keeps what it sends meanwhile. Cancel-safe.
    pub(crate) async fn gone(&mut self) {
        while self.inbox.len() < READ_AHEAD {
            if !matches!(self.reader.read_buf(&mut self.inbox).await, Ok(1..)) {
                return;
            }
        }
        std::future::pending().await
    }

    async fn fill(&mut self) -> std::io::Result<bool> {
        Ok(self.reader.read_buf(&mut self.inbox).await? > 0)
    }

    /// The next request; `None` if the client disconnected before the request was complete.
    async fn next(&mut self) -> std::io::Result<Option<Result<Request, RequestFault>>> {
        if self.inbox.is_empty() && !self.fill().await? {
            return Ok(None);
        }
        let arrived = clock::now();
        let (head, length) = loop {
            match RequestHead::parse(&self.inbox) {
                Ok(Some(parsed)) => break parsed,
                Ok(None) if self.fill().await? => {}
                Ok(None) => return Ok(None),
                Err(fault) => return Ok(Some(Err(fault))),
            }
        };
        self.inbox.drain(..length);
        let mut reader = match head.body() {
            Ok(reader) => reader,
            Err(fault) => return Ok(Some(Err(fault))),
        };
        let mut was_told = !head.expects_continue();
        loop {
            match reader.take(&mut self.inbox) {
                Ok(Some(body)) => return Ok(Some(Ok(Request { head, body, arrived }))),
                Err(fault) => return Ok(Some(Err(fault))),
                Ok(None) => {}
            }
            if !was_told {
                was_told = true;
                self.write(CONTINUE).await?;
            }
            if !self.fill().await? {
                return Ok(None);
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    pub body: String,
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

/// Answers the requests of a connection until one side closes it. A crashing engine resets the connection, so
/// that the client sees a broken stream.
pub(crate) async fn serve(mut stream: TcpStream, engine: Arc<Engine>) {
    // Without it, small events wait for acknowledgements. The socket refuses it only if it is about to fail.
    let _ = stream.set_nodelay(true);
    tokio::select! {
        biased;
        () = engine.dead.cancelled() => {}
        () = engine.closing.cancelled() => {}
        // A broken connection affects only its client.
        _ = converse(&mut stream, &engine) => {}
    }
    if engine.dead.is_cancelled() {
        let _ = stream.set_zero_linger();
    }
}

async fn converse(stream: &mut TcpStream, engine: &Arc<Engine>) -> std::io::Result<()> {
    let (reader, writer) = stream.split();
    let mut wire = Wire {
        reader,
        writer,
        inbox: Vec::with_capacity(8 * 1024),
    };
    while let Some(request) = wire.next().await? {
        let request = match request {
            Ok(request) => request,
            Err(fault) => {
                let body = handler::error_body(engine.options.dialect, fault.status(), &fault.to_string());
                let mut out = Vec::new();
                let length = ResponseBody::Sized(body.len());
                write_head(&mut out, fault.status(), "application/json", length, false, &[]);
                out.extend_from_slice(body.as_bytes());
                return wire.write(&out).await;
            }
        };
        if handler::answer(&mut wire, engine, request).await? == After::Close {
            break;
        }
    }
    wire.writer.shutdown().await
}
