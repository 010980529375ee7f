//! The server side of HTTP/1.1 as pure code: parses request heads and bodies, writes response heads and
//! chunks. The caller owns the socket, the routes and the clock.

use thiserror::Error;

/// Maximum length of a request head, in bytes.
pub(crate) const MAX_HEAD_BYTES: usize = 64 * 1024;

/// Maximum length of a request body, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 512 * 1024 * 1024;

const MAX_HEADERS: usize = 128;

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum HttpRequestError {
    #[error("the request head is not HTTP/1.1 ({0}); send a request line, headers and an empty line")]
    Grammar(String),
    #[error(
        "the request head has more than {MAX_HEAD_BYTES} bytes or {MAX_HEADERS} headers; send fewer headers"
    )]
    HeadTooLong,
    #[error("the request body is longer than {MAX_BODY_BYTES} bytes; send less")]
    BodyTooLong,
    /// The length of the body is missing, contradictory or in an unsupported coding.
    #[error(
        "the length of the request body is unclear ({0}); send `content-length` or `transfer-encoding: chunked`"
    )]
    Length(String),
    #[error("the chunked request body is broken ({0}); send `<size in hex>\\r\\n<bytes>\\r\\n`")]
    Chunk(&'static str),
}

impl HttpRequestError {
    /// The status to answer with.
    pub(crate) const fn status(&self) -> u16 {
        match self {
            Self::HeadTooLong => 431,
            Self::BodyTooLong => 413,
            Self::Grammar(_) | Self::Length(_) | Self::Chunk(_) => 400,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead {
    pub(crate) method: String,
    pub(crate) path: String,
    /// The part after the `?`; empty if there is none.
    pub(crate) query: String,
    /// False for HTTP/1.0, which has neither chunks nor persistent connections.
    pub(crate) is_http11: bool,
    headers: Vec<(String, Vec<u8>)>,
}

impl RequestHead {
    /// Parses a head at the start of `bytes`. Returns the head and its length, or `None` while it is
    /// incomplete.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, HttpRequestError> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(bytes) {
            Ok(httparse::Status::Complete(length)) if length <= MAX_HEAD_BYTES => {
                Ok(Some((Self::from_parsed(&request), length)))
            }
            Ok(httparse::Status::Complete(_)) | Err(httparse::Error::TooManyHeaders) => {
                Err(HttpRequestError::HeadTooLong)
            }
            Ok(httparse::Status::Partial) if bytes.len() > MAX_HEAD_BYTES => {
                Err(HttpRequestError::HeadTooLong)
            }
            Ok(httparse::Status::Partial) => Ok(None),
            Err(error) => Err(HttpRequestError::Grammar(error.to_string())),
        }
    }

    fn from_parsed(request: &httparse::Request<'_, '_>) -> Self {
        let target = request.path.unwrap_or("/");
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        Self {
            method: request.method.unwrap_or_default().to_owned(),
            path: path.to_owned(),
            query: query.to_owned(),
            is_http11: request.version == Some(1),
            headers: request
                .headers
                .iter()
                .map(|header| (header.name.to_owned(), header.value.to_vec()))
                .collect(),
        }
    }

    /// All headers in order, with their names as sent.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.headers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Returns the first header of this name if it is text. The case of the name does not matter.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.values(name).next()
    }

    fn values<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a str> + use<'a, 'n> {
        self.headers
            .iter()
            .filter(move |(found, _)| found.eq_ignore_ascii_case(name))
            .filter_map(|(_, value)| std::str::from_utf8(value).ok().map(str::trim))
    }

    /// Returns the value of a query parameter as sent, not percent-decoded.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (key == name).then_some(value)
        })
    }

    /// Returns true if the client may send another request on this connection.
    pub(crate) fn keeps_alive(&self) -> bool {
        let says = |word: &str| {
            self.values("connection").any(|value| {
                value
                    .split(',')
                    .any(|item| item.trim().eq_ignore_ascii_case(word))
            })
        };
        if self.is_http11 {
            !says("close")
        } else {
            says("keep-alive")
        }
    }

    /// Returns true if the client waits for `100 Continue` before it sends the body.
    pub(crate) fn expects_continue(&self) -> bool {
        self.is_http11
            && self
                .header("expect")
                .is_some_and(|value| value.eq_ignore_ascii_case("100-continue"))
    }

    /// Determines the framing of the body from the headers.
    pub(crate) fn body(&self) -> Result<RequestBody, HttpRequestError> {
        if let Some(coding) = self.header("transfer-encoding") {
            if !coding.eq_ignore_ascii_case("chunked") {
                return Err(HttpRequestError::Length(format!("transfer-encoding `{coding}`")));
            }
            if self.header("content-length").is_some() {
                return Err(HttpRequestError::Length(
                    "both `content-length` and `transfer-encoding`".to_owned(),
                ));
            }
            return Ok(RequestBody::Chunked(ChunkedBody::default()));
        }
        let mut lengths = self.values("content-length");
        let Some(text) = lengths.next() else {
            return Ok(RequestBody::Sized(0));
        };
        if lengths.any(|other| other != text) {
            return Err(HttpRequestError::Length(
                "two different `content-length`".to_owned(),
            ));
        }
        let length = text
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| text.parse().ok())
            .flatten();
        match length {
            Some(length) if length <= MAX_BODY_BYTES => Ok(RequestBody::Sized(length)),
            Some(_) => Err(HttpRequestError::BodyTooLong),
            None => Err(HttpRequestError::Length(format!("content-length `{text}`"))),
        }
    }
}

/// A request body that is being received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestBody {
    Sized(usize),
    Chunked(ChunkedBody),
}

impl RequestBody {
    /// Removes the received part of the body from the front of `inbox`. Returns the whole body once it is
    /// complete. Bytes after the body stay in `inbox`.
    pub(crate) fn take(&mut self, inbox: &mut Vec<u8>) -> Result<Option<Vec<u8>>, HttpRequestError> {
        match self {
            Self::Sized(length) if inbox.len() >= *length => {
                let unread = inbox.split_off(*length);
                Ok(Some(std::mem::replace(inbox, unread)))
            }
            Self::Sized(_) => Ok(None),
            Self::Chunked(chunks) => chunks.take(inbox),
        }
    }
}

/// A chunked body that is being received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChunkedBody {
    body: Vec<u8>,
    state: ChunkState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ChunkState {
    #[default]
    Size,
    Bytes(usize),
    End,
    Trailer,
}

impl ChunkedBody {
    fn take(&mut self, inbox: &mut Vec<u8>) -> Result<Option<Vec<u8>>, HttpRequestError> {
        let mut position = 0;
        let mut complete = false;
        loop {
            let unread = &inbox[position..];
            if let ChunkState::Bytes(remaining) = self.state {
                let take = remaining.min(unread.len());
                self.body.extend_from_slice(&unread[..take]);
                position += take;
                self.state = if take == remaining {
                    ChunkState::End
                } else {
                    ChunkState::Bytes(remaining - take)
                };
                if take < remaining {
                    break;
                }
                continue;
            }
            let Some(end) = memchr::memchr(b'\n', unread) else {
                if unread.len() > 1024 {
                    return Err(HttpRequestError::Chunk("a line without an end"));
                }
                break;
            };
            let line = unread[..end].strip_suffix(b"\r").unwrap_or(&unread[..end]);
            self.state = match self.state {
                ChunkState::Size => match chunk_size(line)? {
                    0 => ChunkState::Trailer,
                    size if self.body.len().saturating_add(size) > MAX_BODY_BYTES => {
                        return Err(HttpRequestError::BodyTooLong);
                    }
                    size => ChunkState::Bytes(size),
                },
                ChunkState::End if line.is_empty() => ChunkState::Size,
                ChunkState::End => {
                    return Err(HttpRequestError::Chunk("a chunk is longer than its stated size"));
                }
                ChunkState::Trailer | ChunkState::Bytes(_) => ChunkState::Trailer,
            };
            position += end + 1;
            if self.state == ChunkState::Trailer && line.is_empty() {
                complete = true;
                break;
            }
        }
        inbox.drain(..position);
        Ok(complete.then(|| std::mem::take(&mut self.body)))
    }
}

fn chunk_size(line: &[u8]) -> Result<usize, HttpRequestError> {
    let digits = line
        .split(|byte| *byte == b';')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    let text = std::str::from_utf8(digits)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_hexdigit()));
    text.and_then(|text| usize::from_str_radix(text, 16).ok())
        .ok_or(HttpRequestError::Chunk("a chunk size is not hexadecimal"))
}

/// The end of a chunked body without trailers.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The interim answer that asks the client to send its body.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// How a response marks the end of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseBody {
    Sized(usize),
    Chunked,
    /// By closing the connection, for HTTP/1.0 clients.
    UntilClose,
}

pub(crate) fn write_head(
    out: &mut Vec<u8>,
    status: u16,
    content_type: &str,
    body: ResponseBody,
    keeps_alive: bool,
    headers: &[(&str, &str)],
) {
    let mut line = |text: &[&str]| {
        text.iter()
            .for_each(|part| out.extend_from_slice(part.as_bytes()));
        out.extend_from_slice(b"\r\n");
    };
    line(&["HTTP/1.1 ", &status.to_string(), " ", reason(status)]);
    line(&["content-type: ", content_type]);
    match body {
        ResponseBody::Sized(length) => line(&["content-length: ", &length.to_string()]),
        ResponseBody::Chunked => line(&["transfer-encoding: chunked"]),
        ResponseBody::UntilClose => {}
    }
    if !keeps_alive {
        line(&["connection: close"]);
    }
    for (name, value) in headers {
        line(&[name, ": ", value]);
    }
    line(&[]);
}

/// Appends one chunk to `out`. Writes nothing if `bytes` is empty, because an empty chunk ends the body.
pub(crate) fn write_chunk(out: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// Returns the reason phrase of a status; `Unknown` for a status that the simulated engine never sends.
pub(crate) const fn reason(status: u16) -> &'static str {
    match status {
        100 => "Continue",
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Content Too Large",
        422 => "Unprocessable Entity",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POST: &[u8] =
        b"POST /v1/completions?timeout=5&x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n{  }GET";

    #[test]
    fn a_head_is_read_once_it_is_complete() {
        for cut in 0..POST.len() - 7 {
            assert_eq!(RequestHead::parse(&POST[..cut]), Ok(None), "cut at {cut}");
        }
        let (head, length) = RequestHead::parse(POST).unwrap().unwrap();
        assert_eq!(
            (head.method.as_str(), head.path.as_str()),
            ("POST", "/v1/completions")
        );
        assert_eq!(head.parameter("timeout"), Some("5"));
        assert_eq!(head.parameter("x"), Some(""));
        assert_eq!(head.header("hOST"), Some("a"));
        assert_eq!(length, POST.len() - 7);
    }

    #[test]
    fn a_sized_body_leaves_the_next_request_in_the_inbox() {
        let (head, length) = RequestHead::parse(POST).unwrap().unwrap();
        let mut inbox = POST[length..].to_vec();
        assert_eq!(head.body().unwrap().take(&mut inbox).unwrap().unwrap(), b"{  }");
        assert_eq!(inbox, b"GET");
    }

    #[test]
    fn a_chunked_body_is_the_same_wherever_it_is_cut() {
        let wire = b"5\r\nhello\r\n1;name=value\r\n \r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nGET";
        for cut in 0..wire.len() {
            let mut body = RequestBody::Chunked(ChunkedBody::default());
            let mut inbox = wire[..cut].to_vec();
            let first = body.take(&mut inbox).unwrap();
            inbox.extend_from_slice(&wire[cut..]);
            let whole = first.or_else(|| body.take(&mut inbox).unwrap()).unwrap();
            assert_eq!(whole, b"hello 0123456789", "cut at {cut}");
            assert_eq!(inbox, b"GET", "cut at {cut}");
        }
    }

    #[test]
    fn broken_lengths_are_refused() {
        let body = |headers: &str| {
            let text = format!("POST / HTTP/1.1\r\n{headers}\r\n\r\n");
            RequestHead::parse(text.as_bytes())
                .unwrap()
                .unwrap()
                .0
                .body()
                .map(|_| ())
                .unwrap_err()
                .status()
        };
        assert_eq!(body("Content-Length: -1"), 400);
        assert_eq!(body("Content-Length: 1\r\nContent-Length: 2"), 400);
        assert_eq!(body("Content-Length: 99999999999"), 413);
        assert_eq!(body("Transfer-Encoding: gzip"), 400);
        assert_eq!(body("Transfer-Encoding: chunked\r\nContent-Length: 3"), 400);
        let mut chunks = RequestBody::Chunked(ChunkedBody::default());
        assert!(chunks.take(&mut b"zz\r\n".to_vec()).is_err());
        let mut chunks = RequestBody::Chunked(ChunkedBody::default());
        assert!(chunks.take(&mut b"1\r\nab\r\n".to_vec()).is_err());
    }

    #[test]
    fn bytes_that_are_no_request_are_refused() {
        assert_eq!(
            RequestHead::parse(b"\x16\x03\x01 hello\r\n\r\n")
                .unwrap_err()
                .status(),
            400
        );
        let long = format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(MAX_HEAD_BYTES));
        assert_eq!(
            RequestHead::parse(long.as_bytes()),
            Err(HttpRequestError::HeadTooLong)
        );
    }

    #[test]
    fn connections_are_kept_as_the_version_says() {
        let keeps = |text: &str| {
            RequestHead::parse(text.as_bytes())
                .unwrap()
                .unwrap()
                .0
                .keeps_alive()
        };
        assert!(keeps("GET / HTTP/1.1\r\n\r\n"));
        assert!(!keeps("GET / HTTP/1.1\r\nConnection: foo, Close\r\n\r\n"));
        assert!(!keeps("GET / HTTP/1.0\r\n\r\n"));
        assert!(keeps("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
    }

    #[test]
    fn a_response_is_written_as_http_wants_it() {
        let mut out = Vec::new();
        write_head(
            &mut out,
            404,
            "application/json",
            ResponseBody::Sized(2),
            false,
            &[("x-request-id", "7")],
        );
        write_chunk(&mut out, b"data: {}\n\n");
        write_chunk(&mut out, b"");
        let text = String::from_utf8(out).unwrap();
        insta::assert_snapshot!(text.replace('\r', "~"), @r"
        HTTP/1.1 404 Not Found~
        content-type: application/json~
        content-length: 2~
        connection: close~
        x-request-id: 7~
        ~
        a~
        data: {}

        ~
        ");
    }
}
