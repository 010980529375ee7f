//! The client side of HTTP/1.1: parses response heads and bodies that arrive in pieces of any size.
//!
//! [`ResponseReader`] takes the bytes as they arrive and returns the head, slices of the body, and the end. It does
//! not copy the body and knows neither socket nor time. It rejects what it cannot frame with certainty:
//! transfer codings other than chunked, contradictory lengths, heads longer than [`MAX_HEAD_BYTES`].

use std::mem;

use thiserror::Error;

/// Maximum length of a head, in bytes; also of the trailers and of the extensions of one chunk.
pub(crate) const MAX_HEAD_BYTES: usize = 64 << 10;

const MAX_HEADERS: usize = 128;

/// The first bytes of TLS records.
const TLS_ALERT: u8 = 21;
const TLS_HANDSHAKE: u8 = 22;

/// The head of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResponseHead {
    /// The status, such as 200.
    pub(crate) status: u16,
    /// The reason phrase, which may be empty.
    pub(crate) reason: String,
    /// The headers in order, with names in lower case.
    pub(crate) headers: Vec<(String, String)>,
}

impl ResponseHead {
    /// Returns the first header of this name; `name` is in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }
}

/// What [`ResponseReader::next`] found in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponsePart<'b> {
    /// The head is complete; [`ResponseReader::head`] returns it.
    Head,
    /// A slice of the body.
    Body(&'b [u8]),
    /// The answer is complete.
    End,
}

/// Bytes that are no HTTP/1.1 response.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HttpResponseError {
    /// The head cannot be read.
    #[error("the head of the response is not HTTP/1.1: {0}")]
    Head(httparse::Error),
    /// The server answers with TLS.
    #[error("the server speaks TLS; use `https://`")]
    Tls,
    /// The head is too long.
    #[error("the head of the response exceeds {MAX_HEAD_BYTES} bytes")]
    HeadTooLong,
    /// The length of the body cannot be determined.
    #[error("the response header `{header}: {value}` is not supported")]
    Framing {
        /// The header at fault.
        header: &'static str,
        /// The header's value as it came.
        value: String,
    },
    /// A chunk has an invalid size, or does not end where its size says.
    #[error("a chunk of the response is malformed")]
    Chunk,
    /// The connection ended before the answer did.
    #[error("{0}")]
    Truncated(TruncatedIn),
}

/// The position at which an answer was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TruncatedIn {
    /// Before its first byte.
    BeforeHead,
    /// The response ended within its head.
    InHead,
    /// The response ended within its body.
    InBody,
}

impl std::fmt::Display for TruncatedIn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::BeforeHead => "the connection ended before the response began",
            Self::InHead => "the connection ended inside the head of the response",
            Self::InBody => "the connection ended before the response was complete",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReaderState {
    Head,
    /// A body of known length, with the number of missing bytes.
    Length(u64),
    UntilClose,
    Chunked(ChunkState),
    /// The body is complete, but [`ResponsePart::End`] has not been returned.
    EndPending,
    Done,
}

/// The position of the next byte within a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    Size {
        size: u64,
        digits: u8,
    },
    /// After the size: extensions, up to the line feed.
    Extension {
        size: u64,
        skipped: usize,
    },
    Data(u64),
    /// After the data: carriage return and line feed.
    DataEnd {
        after_return: bool,
    },
    /// After the last chunk: trailers, up to an empty line.
    Trailer {
        skipped: usize,
        line_is_empty: bool,
    },
}

const CHUNK_START: ChunkState = ChunkState::Size { size: 0, digits: 0 };

/// Parses one response from pieces of any size.
#[derive(Clone, Debug)]
pub struct ResponseReader {
    state: ReaderState,
    raw: Vec<u8>,
    head: Option<ResponseHead>,
    /// Whether the server keeps the connection open after the response.
    is_persistent: bool,
}

impl Default for ResponseReader {
    fn default() -> Self {
        Self::new()
    }
}

impl ResponseReader {
    /// Creates a reader that has seen no byte.
    pub const fn new() -> Self {
        Self {
            state: ReaderState::Head,
            raw: Vec::new(),
            head: None,
            is_persistent: false,
        }
    }

    /// Returns the head once it is complete.
    pub fn head(&self) -> Option<&ResponseHead> {
        self.head.as_ref()
    }

    /// Returns true if the body lasts until the connection closes. Then only its content shows whether it is
    /// complete.
    pub(crate) fn is_until_close(&self) -> bool {
        self.state == ReaderState::UntilClose
    }

    /// Returns true if the response ended by its framing on a connection that the server keeps open, so that
    /// another request may follow.
    pub(crate) fn leaves_connection(&self) -> bool {
        self.state == ReaderState::Done && self.is_persistent
    }

    /// Removes the next part from the front of `input`. Returns `None` if it needs more bytes or the answer
    /// is over.
    pub fn next<'b>(&mut self, input: &mut &'b [u8]) -> Result<Option<ResponsePart<'b>>, HttpResponseError> {
        loop {
            match self.state {
                ReaderState::Done => return Ok(None),
                ReaderState::EndPending => {
                    self.state = ReaderState::Done;
                    return Ok(Some(ResponsePart::End));
                }
                _ if input.is_empty() => return Ok(None),
                ReaderState::Head => {
                    if self.read_head(input)? {
                        return Ok(Some(ResponsePart::Head));
                    }
                }
                ReaderState::UntilClose => return Ok(Some(ResponsePart::Body(mem::take(input)))),
                ReaderState::Length(remaining) => {
                    let (body, remaining) = take(input, remaining);
                    self.state = if remaining == 0 {
                        ReaderState::EndPending
                    } else {
                        ReaderState::Length(remaining)
                    };
                    return Ok(Some(ResponsePart::Body(body)));
                }
                ReaderState::Chunked(ChunkState::Data(remaining)) => {
                    let (body, remaining) = take(input, remaining);
                    self.state = ReaderState::Chunked(if remaining == 0 {
                        ChunkState::DataEnd { after_return: false }
                    } else {
                        ChunkState::Data(remaining)
                    });
                    return Ok(Some(ResponsePart::Body(body)));
                }
                ReaderState::Chunked(ChunkState::DataEnd { after_return: false })
                    if input.starts_with(b"\r\n") =>
                {
                    *input = &input[2..];
                    self.state = ReaderState::Chunked(CHUNK_START);
                }
                ReaderState::Chunked(between) => {
                    let (next, length) = match fast_chunk_size(input).filter(|_| between == CHUNK_START) {
                        Some((size, length)) => (ReaderState::Chunked(ChunkState::Data(size)), length),
                        None => (next_state(between, input[0])?, 1),
                    };
                    *input = &input[length..];
                    self.state = next;
                }
            }
        }
    }

    /// Reports that the connection ended. This is an error if the answer is incomplete.
    pub fn close(&mut self) -> Result<(), HttpResponseError> {
        self.is_persistent = false;
        match mem::replace(&mut self.state, ReaderState::Done) {
            ReaderState::Head if self.raw.is_empty() => {
                Err(HttpResponseError::Truncated(TruncatedIn::BeforeHead))
            }
            ReaderState::Head => Err(HttpResponseError::Truncated(TruncatedIn::InHead)),
            ReaderState::Length(_) | ReaderState::Chunked(_) => {
                Err(HttpResponseError::Truncated(TruncatedIn::InBody))
            }
            ReaderState::UntilClose | ReaderState::EndPending | ReaderState::Done => Ok(()),
        }
    }

    /// Returns true once the head is complete. Interim answers (status 1xx) are skipped.
    fn read_head(&mut self, input: &mut &[u8]) -> Result<bool, HttpResponseError> {
        let before = self.raw.len();
        let consumed = input.len().min(MAX_HEAD_BYTES + 1 - before);
        self.raw.extend_from_slice(&input[..consumed]);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(&self.raw).map_err(|error| match self.raw.first() {
            Some(&(TLS_ALERT | TLS_HANDSHAKE)) => HttpResponseError::Tls,
            _ => HttpResponseError::Head(error),
        });
        let length = match parsed? {
            httparse::Status::Complete(length) if length <= MAX_HEAD_BYTES => length,
            httparse::Status::Partial if self.raw.len() <= MAX_HEAD_BYTES => {
                *input = &input[consumed..];
                return Ok(false);
            }
            _ => return Err(HttpResponseError::HeadTooLong),
        };
        let is_http_1_1 = response.version == Some(1);
        let head = ResponseHead {
            status: response.code.unwrap_or_default(),
            reason: response.reason.unwrap_or_default().to_owned(),
            headers: response
                .headers
                .iter()
                .map(|header| {
                    let value = String::from_utf8_lossy(header.value).trim().to_owned();
                    (header.name.to_ascii_lowercase(), value)
                })
                .collect(),
        };
        // The bytes that were in the buffer before are an incomplete head, so the head ends inside this
        // input.
        *input = &input[length - before..];
        self.raw = Vec::new();
        if (100..200).contains(&head.status) && head.status != 101 {
            return Ok(false);
        }
        self.state = framing(&head)?;
        self.is_persistent = is_persistent(&head, is_http_1_1);
        self.head = Some(head);
        Ok(true)
    }
}

/// Determines whether the connection stays open after the response (RFC 9112, section 9.3).
fn is_persistent(head: &ResponseHead, is_http_1_1: bool) -> bool {
    let has_option = |option: &str| {
        let values = head.headers.iter().filter(|(name, _)| name == "connection");
        let mut options = values.flat_map(|(_, value)| value.split(','));
        options.any(|given| given.trim().eq_ignore_ascii_case(option))
    };
    !has_option("close") && (is_http_1_1 || has_option("keep-alive"))
}

/// Determines how the body is framed (RFC 9112, section 6.3).
fn framing(head: &ResponseHead) -> Result<ReaderState, HttpResponseError> {
    let fault = |header, value: &str| HttpResponseError::Framing {
        header,
        value: value.to_owned(),
    };
    if matches!(head.status, 204 | 304) {
        return Ok(ReaderState::EndPending);
    }
    if head.status == 101 {
        return Err(fault("status", "101"));
    }
    if let Some(value) = head.header("transfer-encoding") {
        return if value.eq_ignore_ascii_case("chunked") {
            Ok(ReaderState::Chunked(CHUNK_START))
        } else {
            Err(fault("transfer-encoding", value))
        };
    }
    let mut length = None;
    for (_, value) in head.headers.iter().filter(|(name, _)| name == "content-length") {
        let is_number = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let number = value.parse::<u64>().ok().filter(|_| is_number);
        match (number, length) {
            (None, _) => return Err(fault("content-length", value)),
            (Some(number), Some(known)) if number != known => return Err(fault("content-length", value)),
            (number, _) => length = number,
        }
    }
    Ok(match length {
        None => ReaderState::UntilClose,
        Some(0) => ReaderState::EndPending,
        Some(length) => ReaderState::Length(length),
    })
}

fn take<'b>(input: &mut &'b [u8], remaining: u64) -> (&'b [u8], u64) {
    let length = usize::try_from(remaining).unwrap_or(usize::MAX).min(input.len());
    let (head, rest) = input.split_at(length);
    *input = rest;
    (head, remaining - length as u64)
}

/// Fast path: parses a non-zero chunk size that is completely in the input and has no extension. Returns the
/// size and the number of bytes that it took. All other cases are parsed byte by byte.
fn fast_chunk_size(input: &[u8]) -> Option<(u64, usize)> {
    let mut size = 0;
    for (place, byte) in input.iter().take(8).enumerate() {
        match char::from(*byte).to_digit(16) {
            Some(digit) => size = size << 4 | u64::from(digit),
            None if size > 0 && input[place..].starts_with(b"\r\n") => return Some((size, place + 2)),
            None => return None,
        }
    }
    None
}

/// Processes one byte between the pieces of a chunked body. A bare line feed ends a line too.
fn next_state(between: ChunkState, byte: u8) -> Result<ReaderState, HttpResponseError> {
    let next = match between {
        ChunkState::Size { size, digits } => match (char::from(byte).to_digit(16), byte) {
            (Some(digit), _) if digits < 16 => ChunkState::Size {
                size: size << 4 | u64::from(digit),
                digits: digits + 1,
            },
            (None, b'\n') if digits > 0 => state_after_size(size),
            (None, b'\r' | b' ' | b'\t' | b';') if digits > 0 => ChunkState::Extension { size, skipped: 0 },
            _ => return Err(HttpResponseError::Chunk),
        },
        ChunkState::Extension { size, skipped } => match byte {
            b'\n' => state_after_size(size),
            _ if skipped < MAX_HEAD_BYTES => ChunkState::Extension {
                size,
                skipped: skipped + 1,
            },
            _ => return Err(HttpResponseError::Chunk),
        },
        ChunkState::DataEnd { after_return } => match byte {
            b'\n' => CHUNK_START,
            b'\r' if !after_return => ChunkState::DataEnd { after_return: true },
            _ => return Err(HttpResponseError::Chunk),
        },
        ChunkState::Trailer {
            skipped,
            line_is_empty,
        } => match byte {
            b'\n' if line_is_empty => return Ok(ReaderState::EndPending),
            _ if skipped >= MAX_HEAD_BYTES => return Err(HttpResponseError::HeadTooLong),
            _ => ChunkState::Trailer {
                skipped: skipped + 1,
                line_is_empty: byte == b'\n' || byte == b'\r' && line_is_empty,
            },
        },
        ChunkState::Data(_) => unreachable!("the data of a chunk is read in slices, not byte by byte"),
    };
    Ok(ReaderState::Chunked(next))
}

const fn state_after_size(size: u64) -> ChunkState {
    match size {
        0 => ChunkState::Trailer {
            skipped: 0,
            line_is_empty: true,
        },
        _ => ChunkState::Data(size),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct ParsedResponse {
        head: Option<ResponseHead>,
        body: Vec<u8>,
        ended: bool,
        fault: Option<HttpResponseError>,
    }

    /// Reads the pieces and then the end of the connection.
    fn parse_pieces<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> ParsedResponse {
        let (mut reader, mut whole) = (ResponseReader::new(), ParsedResponse::default());
        for mut piece in pieces {
            loop {
                match reader.next(&mut piece) {
                    Ok(Some(ResponsePart::Head)) => whole.head = reader.head().cloned(),
                    Ok(Some(ResponsePart::Body(body))) => whole.body.extend_from_slice(body),
                    Ok(Some(ResponsePart::End)) => whole.ended = true,
                    Ok(None) => break,
                    Err(fault) => {
                        whole.fault = Some(fault);
                        return whole;
                    }
                }
            }
        }
        whole.fault = reader.close().err();
        whole
    }

    const CHUNKED: &[u8] =
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        5\r\nhello\r\n01;name=value\r\n,\r\nA \r\n 123456789\r\n0\r\nTrailer: x\r\n\r\n";

    #[test]
    fn a_chunked_body_comes_out_whole_after_an_interim_answer() {
        let whole = parse_pieces([CHUNKED]);
        assert_eq!(whole.body, b"hello, 123456789");
        assert!(whole.ended && whole.fault.is_none());
        let head = whole.head.unwrap();
        assert_eq!((head.status, head.reason.as_str()), (200, "OK"));
        assert_eq!(head.header("transfer-encoding"), Some("chunked"));
    }

    #[test]
    fn a_body_of_known_length_ends_by_itself_and_leaves_what_follows() {
        let (mut reader, mut input) = (
            ResponseReader::new(),
            &b"HTTP/1.1 500 Oh\r\ncontent-length: 4\r\n\r\nboomXX"[..],
        );
        assert_eq!(reader.next(&mut input), Ok(Some(ResponsePart::Head)));
        assert_eq!(reader.next(&mut input), Ok(Some(ResponsePart::Body(b"boom"))));
        assert_eq!(reader.next(&mut input), Ok(Some(ResponsePart::End)));
        assert_eq!(reader.next(&mut input), Ok(None));
        assert_eq!(input, b"XX");
    }

    #[test]
    fn a_body_without_length_lasts_until_the_connection_ends() {
        let whole = parse_pieces([&b"HTTP/1.0 200 OK\r\n\r\nall of it"[..]]);
        assert_eq!((whole.body.as_slice(), whole.fault), (&b"all of it"[..], None));
    }

    #[test]
    fn a_connection_is_left_after_a_framed_answer_that_does_not_close_it() {
        for (bytes, is_left) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na", true),
            ("HTTP/1.1 204 OK\r\n\r\n", true),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                true,
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n",
                false,
            ),
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na", false),
            ("HTTP/1.1 200 OK\r\n\r\na", false),
            (
                "HTTP/1.1 200 OK\r\nconnection: x, Close\r\ncontent-length: 1\r\n\r\na",
                false,
            ),
            ("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\na", false),
            (
                "HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\ncontent-length: 1\r\n\r\na",
                true,
            ),
        ] {
            let (mut reader, mut input) = (ResponseReader::new(), bytes.as_bytes());
            while reader.next(&mut input).unwrap().is_some() {}
            assert_eq!(reader.leaves_connection(), is_left, "{bytes}");
            let _ = reader.close();
            assert!(!reader.leaves_connection(), "{bytes}");
        }
    }

    #[test]
    fn an_answer_in_tls_is_named() {
        let alert = parse_pieces([&b"\x15\x03\x01\x00\x02\x02\x46"[..]]);
        assert_eq!(alert.fault, Some(HttpResponseError::Tls));
    }

    #[test]
    fn a_cut_answer_says_where_it_was_cut() {
        let cut = |length: usize| parse_pieces([&CHUNKED[..length]]).fault;
        assert_eq!(
            cut(0),
            Some(HttpResponseError::Truncated(TruncatedIn::BeforeHead))
        );
        assert_eq!(cut(40), Some(HttpResponseError::Truncated(TruncatedIn::InHead)));
        assert_eq!(
            cut(CHUNKED.len() - 1),
            Some(HttpResponseError::Truncated(TruncatedIn::InBody))
        );
    }

    #[test]
    fn what_cannot_be_framed_is_refused() {
        for (text, fault) in [
            ("HTP/1.1 200\r\n\r\n", "not HTTP/1.1"),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: +4\r\n\r\n",
                "`content-length: +4`",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncontent-length: 5\r\n\r\n",
                "`content-length: 5`",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
                "`transfer-encoding: gzip`",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz",
                "malformed",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab",
                "malformed",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n11111111111111111\r\n",
                "malformed",
            ),
        ] {
            let said = parse_pieces([text.as_bytes()]).fault.expect(text).to_string();
            assert!(said.contains(fault), "{said}");
        }
        let huge = format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MAX_HEAD_BYTES));
        assert_eq!(
            parse_pieces([huge.as_bytes()]).fault,
            Some(HttpResponseError::HeadTooLong)
        );
    }

    proptest! {
        #[test]
        fn a_response_cut_anywhere_reads_alike(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8),
            cuts in prop::collection::vec(0.0f64..1.0, 0..12),
            chunked: bool,
        ) {
            let mut bytes = Vec::new();
            if chunked {
                bytes.extend_from_slice(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
                for body in &bodies {
                    bytes.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
                    bytes.extend_from_slice(body);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(b"0\r\n\r\n");
            } else {
                let length = bodies.concat().len();
                bytes.extend_from_slice(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n").as_bytes());
                bytes.extend_from_slice(&bodies.concat());
            }
            let mut places: Vec<usize> = cuts.iter().map(|cut| (cut * bytes.len() as f64) as usize).collect();
            places.extend([0, bytes.len()]);
            places.sort_unstable();
            let whole = parse_pieces([bytes.as_slice()]);
            prop_assert_eq!(&whole.body, &bodies.concat());
            prop_assert!(whole.ended);
            prop_assert_eq!(&parse_pieces(places.windows(2).map(|pair| &bytes[pair[0]..pair[1]])), &whole);
            prop_assert_eq!(&parse_pieces(bytes.chunks(1)), &whole);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), chunked: bool) {
            let mut all = if chunked {
                b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec()
            } else {
                Vec::new()
            };
            all.extend_from_slice(&bytes);
            let _ = parse_pieces([all.as_slice()]);
            let _ = parse_pieces(all.chunks(3));
        }
    }
}
