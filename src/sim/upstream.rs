//! The client of a router: requests to one server behind it, on connections that are used again.

use std::sync::{Mutex, PoisonError};

use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::base::http1::response::{HttpResponseError, ResponsePart, ResponseReader};
use crate::sim::role::UpstreamUrl;

/// Bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// Why a request to a server behind the router failed.
#[derive(Debug, Error)]
pub(crate) enum UpstreamError {
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("the connection failed: {0}")]
    Broken(#[from] std::io::Error),
    #[error(transparent)]
    Response(#[from] HttpResponseError),
}

/// A server behind the router, with its unused connections.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) url: UpstreamUrl,
    idle: Mutex<Vec<TcpStream>>,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct UpstreamResponse {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// Head and body as they arrived.
    pub(crate) raw: Vec<u8>,
    /// Whether the head allows another request on the connection.
    pub(crate) is_persistent: bool,
}

impl Upstream {
    pub(crate) fn new(url: UpstreamUrl) -> Self {
        Self {
            url,
            idle: Mutex::default(),
        }
    }

    /// Sends a request and waits for the first bytes of its response. A connection that the server closed while it was
    /// unused is replaced by a new one.
    pub(crate) async fn send(&self, request: &[u8]) -> Result<ResponseStream<'_>, UpstreamError> {
        if let Some(stream) = self.take_idle()
            && let Ok(response) = self.send_on(stream, request).await
        {
            return Ok(response);
        }
        let stream = TcpStream::connect(self.url.socket())
            .await
            .map_err(UpstreamError::Connect)?;
        stream.set_nodelay(true)?;
        self.send_on(stream, request).await
    }

    /// Sends a request and reads its whole response.
    pub(crate) async fn call(&self, request: &[u8]) -> Result<UpstreamResponse, UpstreamError> {
        let mut response = self.send(request).await?;
        let mut raw = Vec::new();
        while let Some(bytes) = response.next().await? {
            raw.extend_from_slice(bytes);
        }
        let status = response.reader.head().map_or(0, |head| head.status);
        let is_persistent = response.finish();
        // It was complete a moment ago, so it can be read again.
        let (mut reader, mut input, mut body) = (ResponseReader::new(), raw.as_slice(), Vec::new());
        while let Some(part) = reader.next(&mut input)? {
            if let ResponsePart::Body(bytes) = part {
                body.extend_from_slice(bytes);
            }
        }
        Ok(UpstreamResponse {
            status,
            body,
            raw,
            is_persistent,
        })
    }

    async fn send_on(
        &self,
        mut stream: TcpStream,
        request: &[u8],
    ) -> Result<ResponseStream<'_>, UpstreamError> {
        stream.write_all(request).await?;
        let mut bytes = Vec::with_capacity(READ_BYTES);
        let mut reader = ResponseReader::new();
        if stream.read_buf(&mut bytes).await? == 0 {
            reader.close()?;
        }
        Ok(ResponseStream {
            upstream: self,
            stream,
            reader,
            bytes,
            is_unparsed: true,
            is_over: false,
        })
    }

    /// An unused connection that the server has not closed.
    fn take_idle(&self) -> Option<TcpStream> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let stream = idle.pop()?;
            let unread = stream.try_read(&mut [0]);
            if matches!(unread, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock) {
                return Some(stream);
            }
        }
    }
}

/// A response that is being received. Drop closes the connection.
#[derive(Debug)]
pub(crate) struct ResponseStream<'u> {
    upstream: &'u Upstream,
    stream: TcpStream,
    reader: ResponseReader,
    bytes: Vec<u8>,
    is_unparsed: bool,
    is_over: bool,
}

impl ResponseStream<'_> {
    /// The next bytes as they arrived, head and framing included; `None` after the end. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<&[u8]>, UpstreamError> {
        if self.is_over {
            return Ok(None);
        }
        if !self.is_unparsed {
            self.bytes.clear();
            if self.stream.read_buf(&mut self.bytes).await? == 0 {
                self.reader.close()?;
                self.is_over = true;
                return Ok(None);
            }
        }
        self.is_unparsed = false;
        let mut input = self.bytes.as_slice();
        while let Some(part) = self.reader.next(&mut input)? {
            self.is_over |= part == ResponsePart::End;
        }
        let length = self.bytes.len() - input.len();
        Ok(Some(&self.bytes[..length]))
    }

    /// Keeps the connection for the next request, if the response is complete and allows it. Returns whether it does.
    pub(crate) fn finish(self) -> bool {
        let is_persistent = self.is_over && self.reader.leaves_connection();
        if is_persistent {
            let mut idle = self.upstream.idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push(self.stream);
        }
        is_persistent
    }
}
