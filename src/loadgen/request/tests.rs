use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::response::{RequestEnd, Response};
use super::response_limits::ResponseLimits;
use super::response_trace::ResponseTrace;
use crate::base::clock::MonotonicTime;
use crate::loadgen::protocol::{Decoded, Decoder};
use crate::loadgen::test_server;
use crate::loadgen::tls::{TlsClient, TlsSession};
use crate::plan::Protocol;
use crate::results::record::request::RequestFailureClass;

const BOUNDS: ResponseLimits = ResponseLimits {
    first_byte: Duration::from_secs(1),
    request: Duration::from_secs(1),
    line_bytes: 300,
    events: 12,
    cancel: None,
    tokens: 4,
};

/// Returns the result of an answer that arrives in these pieces, one per microsecond, before the connection
/// ends.
fn parse_pieces<'p>(protocol: Protocol, pieces: impl IntoIterator<Item = &'p [u8]>) -> Response {
    let zero = MonotonicTime::from_nanos(0);
    let mut trace = ResponseTrace::new(Decoder::new(protocol, 300), BOUNDS, zero);
    let mut at = trace.sent;
    trace.note_written(at);
    let mut ending = None;
    for piece in pieces
        .into_iter()
        .filter(|piece| !piece.is_empty())
        .chain([&b""[..]])
    {
        at = at.plus(Duration::from_micros(1));
        let over = match piece {
            [] => trace.close(false).map(|()| true),
            piece => trace.push_bytes(piece, at),
        };
        match over {
            Ok(false) => {}
            Ok(true) => ending = Some(RequestEnd::Complete(at)),
            Err(failed) => ending = Some(failed),
        }
        if ending.is_some() {
            break;
        }
    }
    trace.take_response(ending.expect("the end of the connection ends an answer"))
}

/// Returns the parts of an answer that do not depend on arrival times.
fn without_times(answer: Response) -> (Option<u16>, bool, Decoded) {
    let mut decoded = answer.decoded;
    decoded.chunks.map_chunks(|_, chunk| chunk.at_ns = 0);
    (answer.status, answer.last_line.is_some(), decoded)
}

fn lines() -> impl Strategy<Value = Vec<String>> {
    let line = prop::sample::select(vec![
        r#"data: {"choices":[{"text":"é\u00e9"}]}"#,
        r#"data:{"choices":[{"delta":{"content":"c"}}]}"#,
        r#"data: {"choices":[{"delta":{"reasoning":"r"}}],"usage":{"completion_tokens":2}}"#,
        r#"data: {"text":"ab","meta_info":{"completion_tokens":2}}"#,
        r#"data: {"text":"abc","meta_info":{"completion_tokens":3,"finish_reason":{"type":"stop"}}}"#,
        r#"data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3}}"#,
        r#"data: {"error":{"message":"oom"}}"#,
        r#"{"choices":[{"message":{"content":"whole"}}]}"#,
        "{",
        "data: {oops",
        ": ping",
        "event: message",
        "",
        "data: [DONE]",
    ]);
    let long = (250usize..350).prop_map(|length| format!("data: \"{}\"", "x".repeat(length)));
    prop::collection::vec(prop_oneof![12 => line.prop_map(str::to_owned), 1 => long], 0..16)
}

fn respond(framing: u8, status: u16, lines: &[String], kept_share: f64) -> Vec<u8> {
    let body = lines.join("\n");
    let mut bytes = format!("HTTP/1.1 {status} Said\r\n").into_bytes();
    match framing {
        0 => {
            bytes.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
            for piece in body.as_bytes().chunks(37) {
                bytes.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
                bytes.extend_from_slice(piece);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
        }
        1 => bytes.extend_from_slice(format!("content-length: {}\r\n\r\n{body}", body.len()).as_bytes()),
        _ => bytes.extend_from_slice(format!("\r\n{body}").as_bytes()),
    }
    let kept_share = (kept_share * bytes.len() as f64).min(bytes.len() as f64);
    bytes.truncate(kept_share as usize);
    bytes
}

/// A connection that the other side has closed: what it sent before can be read, nothing can be written.
struct Closed(VecDeque<u8>);

impl Read for Closed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn an_alert_is_read_although_writing_the_handshake_failed() {
    let handshake_failure = [21, 3, 3, 0, 2, 2, 40];
    for (sent, class, reason) in [
        (
            &handshake_failure[..],
            io::ErrorKind::InvalidData,
            "HandshakeFailure; the server may require a client certificate",
        ),
        (
            &[],
            io::ErrorKind::BrokenPipe,
            "if the server does not speak TLS, use `http://`; the server may require a client certificate",
        ),
    ] {
        let client = TlsClient::new("localhost", &test_server::trusting_config()).unwrap();
        let mut closed = Closed(sent.iter().copied().collect());
        let error = client
            .session()
            .unwrap()
            .continue_handshake(&mut closed)
            .unwrap_err();
        assert_eq!(error.kind(), class);
        assert!(error.to_string().contains(reason), "{error}");
    }
}

/// Returns both ends of an in-memory TLS connection after the handshake.
fn session(version: &'static rustls::SupportedProtocolVersion) -> (rustls::ServerConnection, TlsSession) {
    let config = test_server::server_config(&[version]);
    let mut server = rustls::ServerConnection::new(Arc::new(config)).unwrap();
    let mut client = TlsClient::new("localhost", &test_server::trusting_config())
        .unwrap()
        .session()
        .unwrap();
    let mut pipe = Pipe::default();
    while !client.continue_handshake(&mut pipe).unwrap() {
        while !pipe.to_server.is_empty() {
            server.read_tls(&mut pipe.to_server).unwrap();
            server.process_new_packets().unwrap();
        }
        while server.wants_write() {
            server.write_tls(&mut pipe.to_client).unwrap();
        }
    }
    while !pipe.to_server.is_empty() {
        server.read_tls(&mut pipe.to_server).unwrap();
        server.process_new_packets().unwrap();
    }
    (server, client)
}

/// The client's side of an in-memory connection.
#[derive(Default)]
struct Pipe {
    to_server: VecDeque<u8>,
    to_client: VecDeque<u8>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.to_client.read(buffer)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            length => Ok(length),
        }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to_server.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Encrypts an answer as a TLS server sends it: session tickets, a record for each piece, occasional key
/// updates, and close_notify at the end.
fn encrypt_answer(server: &mut rustls::ServerConnection, answer: &[u8], record: usize) -> Vec<u8> {
    let mut wire = Vec::new();
    let mut send = |server: &mut rustls::ServerConnection| {
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
    };
    for (index, piece) in answer.chunks(record).enumerate() {
        if index % 3 == 1 && server.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3) {
            server.refresh_traffic_keys().unwrap();
        }
        server.writer().write_all(piece).unwrap();
        send(server);
    }
    server.send_close_notify();
    send(server);
    wire
}

#[test]
fn what_comes_before_bytes_that_are_no_tls_counts() {
    let (mut server, mut client) = session(&rustls::version::TLS13);
    server.writer().write_all(b"data: 1").unwrap();
    let mut wire = Vec::new();
    server.write_tls(&mut wire).unwrap();
    wire.extend_from_slice(b"HTTP/1.1 400 Bad Request");
    let mut content = Vec::new();
    client.decrypt(&wire, &mut content).unwrap();
    assert_eq!(content, b"data: 1");
    assert!(client.is_over() && !client.is_closed());
    let failure = client.take_pending(&mut content).unwrap_err();
    assert_eq!(failure.kind(), io::ErrorKind::InvalidData);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_answer_through_tls_that_is_cut_anywhere_leaves_the_same_record(
        is_old in any::<bool>(),
        framing in 0u8..3,
        lines in lines(),
        record in 1usize..200,
        cuts in prop::collection::vec(0.0f64..1.0, 0..40),
    ) {
        let answer = respond(framing, 200, &lines, 1.0);
        let version = if is_old { &rustls::version::TLS12 } else { &rustls::version::TLS13 };
        let (mut server, mut client) = session(version);
        let wire = encrypt_answer(&mut server, &answer, record);
        let mut places: Vec<usize> = cuts.iter().map(|cut| (cut * wire.len() as f64) as usize).collect();
        places.extend([0, wire.len()]);
        places.sort_unstable();
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        for pair in places.windows(2).filter(|pair| pair[0] < pair[1]) {
            let mut content = Vec::new();
            client.decrypt(&wire[pair[0]..pair[1]], &mut content).unwrap();
            pieces.push(content);
        }
        prop_assert!(client.is_closed());
        prop_assert_eq!(&pieces.concat(), &answer);
        let whole = without_times(parse_pieces(Protocol::Completions, [answer.as_slice()]));
        let cut = without_times(parse_pieces(Protocol::Completions, pieces.iter().map(Vec::as_slice)));
        prop_assert_eq!(&cut, &whole);
    }
}

proptest! {
    #[test]
    fn an_answer_cut_anywhere_leaves_the_same_record(
        protocol in prop::sample::select(vec![Protocol::SglangNative, Protocol::Completions, Protocol::Chat]),
        framing in 0u8..3,
        status in prop::sample::select(vec![200, 200, 200, 400]),
        lines in lines(),
        kept_share in 0.0f64..3.0,
        cuts in prop::collection::vec(0.0f64..1.0, 0..12),
    ) {
        let bytes = respond(framing, status, &lines, kept_share);
        let mut places: Vec<usize> = cuts.iter().map(|cut| (cut * bytes.len() as f64) as usize).collect();
        places.extend([0, bytes.len()]);
        places.sort_unstable();
        let whole = without_times(parse_pieces(protocol, [bytes.as_slice()]));
        let cut = places.windows(2).map(|pair| &bytes[pair[0]..pair[1]]);
        prop_assert_eq!(&without_times(parse_pieces(protocol, cut)), &whole);
        prop_assert_eq!(&without_times(parse_pieces(protocol, bytes.chunks(1))), &whole);
    }

    #[test]
    fn arbitrary_bytes_end_in_a_record(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let answer = parse_pieces(Protocol::Chat, bytes.chunks(7));
        prop_assert!(answer.decoded.failure.is_some());
    }
}

#[test]
fn an_event_has_the_moment_of_the_read_that_completed_it() {
    let head = b"HTTP/1.1 200 OK\r\n\r\n";
    let pieces: [&[u8]; 4] = [
        head,
        b"data: {\"choices\":[{\"te",
        b"xt\":\"a\"}]}\n\ndata: {\"choices\":[{\"text\":\"b\"}]}\n",
        b"data: [DONE]",
    ];
    let answer = parse_pieces(Protocol::Completions, pieces);
    let after = |micros| answer.sent.plus(Duration::from_micros(micros));
    let moments: Vec<_> = answer
        .decoded
        .chunks
        .iter()
        .map(|chunk| MonotonicTime::from_nanos(chunk.at_ns))
        .collect();
    assert_eq!(moments, [after(3), after(3)]);
    assert_eq!(answer.first_byte, Some(after(1)));
    assert_eq!((answer.last_line, answer.decoded.failure), (Some(after(4)), None));
}

#[test]
fn a_break_after_an_error_event_is_told_in_the_servers_words() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n";
    let answer = parse_pieces(
        Protocol::Chat,
        [format!("{head}data: {{\"error\":\"oom\"}}\n\n").as_bytes()],
    );
    let failure = answer.decoded.failure.unwrap();
    assert_eq!(
        (failure.class, failure.message.as_str()),
        (RequestFailureClass::ErrorEvent, "oom")
    );
}

#[test]
fn a_redirect_names_where_it_leads() {
    let answer = parse_pieces(
        Protocol::Chat,
        [&b"HTTP/1.1 307 Temporary Redirect\r\nLocation: http://other/v1\r\nContent-Length: 0\r\n\r\n"[..]],
    );
    let failure = answer.decoded.failure.unwrap();
    assert_eq!(failure.class, RequestFailureClass::Status);
    assert_eq!(
        failure.message,
        "Temporary Redirect: redirects are not followed; the server redirects to `http://other/v1`, so use the base URL of that address"
    );
}

#[test]
fn messages_that_end_with_done_instead_of_their_last_event_were_cut() {
    let failure = |end: &str| {
        let event =
            r#"data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#;
        let answer =
            format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{event}\n\ndata: {end}\n\n");
        parse_pieces(Protocol::Messages, [answer.as_bytes()])
            .decoded
            .failure
    };
    assert!(failure("[DONE]").is_some());
    assert_eq!(failure(r#"{"type":"message_stop"}"#), None);
}

/// JSON over many lines is not an endless stream. A body that never ends is cut by its size.
#[test]
fn lines_that_are_no_events_are_bounded_by_their_bytes() {
    let head = &b"HTTP/1.1 200 OK\r\n\r\n"[..];
    let numbers = "\n1,".repeat(30);
    let vector = numbers.trim_end_matches(',');
    let pretty = format!("{{\"data\": [{{\"embedding\": [{vector}]}}]}}\n");
    let answer = parse_pieces(Protocol::Embeddings, [head, pretty.as_bytes()]);
    assert_eq!(answer.decoded.failure, None);
    let endless = "x\n".repeat(400);
    let answer = parse_pieces(Protocol::Chat, [head, endless.as_bytes()]);
    assert!(answer.decoded.failure.is_some(), "it was cut");
}

/// A proxy properly closes the stream of a dead engine: nothing marks the end, and it is shorter than
/// requested.
#[test]
fn a_stream_that_tells_no_end_is_cut() {
    let event = r#"data: {"choices":[{"text":"a"}]}"#.to_owned();
    let class = |lines: &[String]| {
        let answer = parse_pieces(Protocol::Completions, [respond(0, 200, lines, 3.0).as_slice()]);
        answer.decoded.failure.map(|failure| failure.class)
    };
    let few = vec![event.clone(); 3];
    assert_eq!(class(&few), Some(RequestFailureClass::Reset));
    for end in [
        "data: [DONE]",
        r#"data: {"choices":[{"text":"","finish_reason":"stop"}]}"#,
        r#"data: {"choices":[],"usage":{"completion_tokens":3}}"#,
    ] {
        assert_eq!(
            class(&[few.clone(), vec![end.to_owned(), String::new()]].concat()),
            None,
            "{end}"
        );
    }
    // With the requested length, it may end without a mark.
    assert_eq!(class(&vec![event; 4]), None);
}

/// Returns the failure of an answer that has a part before the whole request was written, if it is one.
fn failure_of_early(early: &str, late: &str, is_cancelled: bool) -> Option<(RequestFailureClass, String)> {
    let zero = MonotonicTime::from_nanos(0);
    let mut trace = ResponseTrace::new(Decoder::new(Protocol::Chat, 300), BOUNDS, zero);
    let mut is_over = false;
    for (piece, micros) in [(early, 1), (late, 3)] {
        let at = trace.sent.plus(Duration::from_micros(micros));
        if !piece.is_empty() {
            is_over = trace.push_bytes(piece.as_bytes(), at).ok().unwrap() || trace.is_done();
        }
        if micros == 1 {
            trace.note_written(at.plus(Duration::from_micros(1)));
        }
    }
    let ending = match is_cancelled {
        true => RequestEnd::CancelledAsPlanned,
        false => RequestEnd::Complete(trace.last_read_at()),
    };
    assert!(is_over || is_cancelled, "{early} {late}");
    let response = trace.take_response(ending);
    assert!(!response.is_cancelled || response.decoded.failure.is_none());
    response
        .decoded
        .failure
        .map(|failure| (failure.class, failure.message))
}

const TOKEN: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
const LAST: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"b\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

#[test]
fn output_before_the_whole_request_was_sent_is_no_answer() {
    let stream = "HTTP/1.1 200 OK\r\n\r\n";
    let json = r#"{"choices":[{"message":{"content":"whole"},"finish_reason":"stop"}]}"#;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", json.len());
    let all_but_the_last = &json[..json.len() - 1];
    let several_lines = json.replace(',', ",\n");
    for (early, late) in [
        (format!("{stream}{TOKEN}"), LAST),
        (format!("{stream}{TOKEN}{LAST}"), ""),
        (
            format!("{stream}{TOKEN}data: {{\"cho"),
            &format!("ices\":[]}}\n\n{LAST}"),
        ),
        (format!("{head}{json}"), ""),
        (format!("{head}{all_but_the_last}"), "}"),
        (format!("{head}{{"), &json[1..]),
        (
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}",
                several_lines.len(),
                &several_lines[..20]
            ),
            &several_lines[20..],
        ),
    ] {
        let (class, message) = failure_of_early(&early, late, false).expect(&early);
        assert_eq!(class, RequestFailureClass::Garbled, "{early}");
        assert_eq!(message, "the server answered before the whole request was sent");
    }
    let early = format!("{stream}{TOKEN}");
    let (class, _) = failure_of_early(&early, TOKEN, true).unwrap();
    assert_eq!(class, RequestFailureClass::Garbled);
}

/// A server may begin its answer early, as long as it has no output.
#[test]
fn an_answer_may_begin_before_the_whole_request_was_sent_and_an_error_stays_what_it_is() {
    let head = "HTTP/1.1 200 OK\r\n\r\n";
    let role = r#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
    let json = r#"{"choices":[{"message":{"content":"whole"},"finish_reason":"stop"}]}"#;
    let padded = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n \n \n",
        json.len() + 4
    );
    for (early, late) in [
        (String::new(), format!("{head}{TOKEN}{LAST}")),
        (
            "HTTP/1.1 100 Continue\r\n\r\n".to_owned(),
            format!("{head}{TOKEN}{LAST}"),
        ),
        (head[..head.len() - 2].to_owned(), format!("\r\n{TOKEN}{LAST}")),
        (head.to_owned(), format!("{TOKEN}{LAST}")),
        (format!("{head}: ping\n\n: pi"), format!("ng\n\n{TOKEN}{LAST}")),
        (format!("{head}{role}\n\n"), format!("{TOKEN}{LAST}")),
        // The token arrives with the end of its line.
        (
            format!("{head}{}", &TOKEN[..20]),
            format!("{}{LAST}", &TOKEN[20..]),
        ),
        (padded, json.to_owned()),
    ] {
        assert_eq!(failure_of_early(&early, &late, false), None, "{early} {late}");
    }
    let too_large = "HTTP/1.1 413 Too Large\r\nContent-Length: 4\r\n\r\n";
    let event = "data: {\"error\":{\"message\":\"oom\"}}\n\ndata: [DONE]\n\n";
    for (early, late, class) in [
        (format!("{too_large}much"), "", RequestFailureClass::Status),
        (format!("{too_large}mu"), "ch", RequestFailureClass::Status),
        (format!("{head}{event}"), "", RequestFailureClass::ErrorEvent),
        (format!("{head}{TOKEN}"), event, RequestFailureClass::ErrorEvent),
    ] {
        let failure = failure_of_early(&early, late, false).unwrap();
        assert_eq!(failure.0, class, "{early} {late}");
    }
}
