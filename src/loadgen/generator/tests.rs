use std::num::NonZeroU32;

use serde_json::Map;

use super::epoll_loop::MAX_CONNECTING;
use super::pending::{PendingRequest, prepare};
use super::*;
use crate::base::units::HumanDuration;
use crate::config::scenario::LoadLimits;
use crate::loadgen::dataset::Content;
use crate::loadgen::request::CLOSE_GRACE;
use crate::loadgen::socket::Peer;
use crate::loadgen::spill::Spill;
use crate::loadgen::test_server::{self, Act, Server, partial_stream, plain_response, stream, target};
use crate::loadgen::tls::TlsClient;
use crate::plan::{Protocol, UsageRequest};
use crate::results::record::request::{ChunkKind, Request, RequestFailureClass};

mod cancelled;
mod early;
mod encrypted;
mod reuse;

const A: &str = r#"data: {"choices":[{"text":"a"}]}"#;
const END: &str = r#"data: {"choices":[{"text":"b","finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#;
const DONE: &str = "data: [DONE]";

pub(super) fn load(port: u16, dues_ms: &[u64]) -> LoadSpec {
    LoadSpec {
        target: target(port, Protocol::Completions),
        requests: dues_ms
            .iter()
            .map(|due| PlannedRequest {
                content: Content::Text(format!("prompt due {due}").into()),
                prompt_tokens: 3,
                requested_tokens: 2,
                due: Duration::from_millis(*due),
                lora_adapter: None,
                extras: None,
            })
            .collect(),
        concurrency: None,
        sessions: None,
        connections: Default::default(),
        cancel: None,
        limits: LoadLimits::default(),
        body: Map::new(),
        stop_at_eos: false,
        sink: None,
        watch: None,
        spill: None,
        threads: NonZeroUsize::MIN,
    }
}

async fn run(load: LoadSpec) -> LoadResult {
    run_load(load, Arc::default(), CancellationToken::new())
        .await
        .unwrap()
}

/// Returns the records of a load over bare or encrypted connections.
pub(super) async fn run_over(load: LoadSpec, is_bare: bool) -> Vec<Request> {
    let route = match is_bare {
        true => Route::find(&load.target.address, &load.target.connections)
            .await
            .unwrap(),
        false => encrypted_route(load.target.address.port),
    };
    let result = run_over_route(route, load, Arc::default(), CancellationToken::new()).await;
    result.unwrap().records
}

/// Returns the route to a local server through TLS.
fn encrypted_route(port: u16) -> Route {
    let tls = TlsClient::new("localhost", &test_server::trusting_config()).unwrap();
    Route::from_peers(vec![Peer::Tcp(([127, 0, 0, 1], port).into())], Some(tls))
}

/// Prepares all requests of a load as the share of one thread.
pub(super) async fn prepare_all(load: LoadSpec) -> (Vec<PendingRequest>, Arc<Shared>) {
    let route = Route::find(&load.target.address, &load.target.connections)
        .await
        .unwrap();
    let end = load.limits.duration.map(|span| span.duration());
    let (shared, planned_requests) = Shared::new(load, route, Arc::default());
    let share = split_requests(planned_requests, end, NonZeroUsize::MIN).remove(0);
    (prepare(share, &shared).unwrap(), Arc::new(shared))
}

/// Returns the record of a single request to a server with these actions. Only a hanging server reaches the
/// limits.
async fn run_one(acts: Vec<Act>) -> Request {
    run_one_over(acts, true).await
}

async fn run_one_over(acts: Vec<Act>, is_bare: bool) -> Request {
    run_one_within(
        HumanDuration::from_secs(30),
        HumanDuration::from_secs(60),
        acts,
        is_bare,
    )
    .await
}

async fn run_one_within(
    first_byte: HumanDuration,
    request: HumanDuration,
    acts: Vec<Act>,
    is_bare: bool,
) -> Request {
    let server = Server::answering(acts).await;
    let mut load = load(server.port, &[0]);
    load.limits = LoadLimits {
        first_byte,
        request,
        line_bytes: 2000,
        excess_tokens: 10,
        ..LoadLimits::default()
    };
    run_over(load, is_bare).await.remove(0)
}

fn class(request: &Request) -> Option<RequestFailureClass> {
    request.failure.as_ref().map(|failure| failure.class)
}

fn is_in_order(request: &Request) -> bool {
    let mut moments = vec![
        request.sent_ns,
        request.connected_ns,
        request.written_ns,
        request.first_byte_ns,
    ];
    moments.extend(request.chunks.iter().map(|chunk| Some(chunk.at_ns)));
    moments.push(request.last_line_ns);
    moments.push(Some(request.end_ns));
    request.due_ns <= request.sent_ns.unwrap_or(u64::MAX) && moments.iter().flatten().is_sorted()
}

#[tokio::test]
async fn a_connection_that_cannot_be_watched_is_no_timeout() {
    let server = Server::answering(vec![Act::Write(stream(&[A, END, DONE]))]).await;
    let (pending_requests, shared) = prepare_all(load(server.port, &[0, 0])).await;
    let mut events = epoll_loop::EventLoop::new(&shared, 1).unwrap();
    events.refuse_watches();
    let (sent, _) = events.send(pending_requests, clock::now(), &CancellationToken::new());
    assert_eq!(sent.len(), 2);
    for failure in sent.into_iter().map(|sent| sent.record.failure.unwrap()) {
        assert_eq!(failure.class, RequestFailureClass::Connect, "{failure:?}");
        assert!(failure.message.contains("cannot be watched"), "{failure:?}");
    }
}

#[tokio::test]
async fn a_record_tells_whether_its_count_came_because_we_asked() {
    let server = Server::answering(vec![Act::Write(stream(&[A, END, DONE]))]).await;
    for (usage, is_ours) in [
        (UsageRequest::Unasked, false),
        (UsageRequest::StreamOptions, true),
    ] {
        let mut load = load(server.port, &[0]);
        load.target.dialect.usage = usage;
        let usage_of_record = run(load).await.records[0].usage;
        assert_eq!(
            usage_of_record.map(|usage| usage.is_ours),
            Some(is_ours),
            "{usage:?}"
        );
    }
}

#[tokio::test]
async fn a_sound_answer_leaves_every_moment_in_order() {
    let server = Server::answering(vec![
        Act::Write(partial_stream(&[": ping", A])),
        Act::Pause(Duration::from_millis(5)),
        Act::Write(stream(&[END, DONE]).split_off(partial_stream(&[]).len())),
    ])
    .await;
    let result = run(load(server.port, &[2])).await;
    let request = &result.records[0];
    assert_eq!(request.failure, None);
    assert!(is_in_order(request), "{request:?}");
    let chunks: Vec<_> = request
        .chunks
        .iter()
        .map(|chunk| (chunk.kind, chunk.tokens))
        .collect();
    assert_eq!(chunks, [(ChunkKind::Answer, None), (ChunkKind::Answer, Some(2))]);
    assert_eq!(
        (request.status, request.text.clone()),
        (Some(200), Some("ab".into()))
    );
    assert_eq!(
        (request.finish.as_deref(), request.output_tokens()),
        (Some("length"), Some(2))
    );
    assert_eq!(request.due_ns, 2_000_000);
    assert!(result.wall.as_nanos() == u128::from(request.end_ns) && result.lag.is_some());
    assert_eq!(
        (result.timestamp_source.name(), result.clock_jumps),
        ("kernel", 0)
    );
}

#[tokio::test]
async fn every_class_of_failure_is_told_from_the_others() {
    let write = |bytes| vec![Act::Write(bytes)];
    let huge = format!("data: {}", "x".repeat(3000));
    let cases = [
        (
            write(plain_response("500 Internal Server Error", "boom")),
            RequestFailureClass::Status,
            "Internal Server Error: boom",
        ),
        (
            write(plain_response("302 Found", "")),
            RequestFailureClass::Status,
            "Found: ",
        ),
        (
            write(partial_stream(&[A])),
            RequestFailureClass::Reset,
            "before the response was complete",
        ),
        (
            vec![
                Act::Write(partial_stream(&[A])),
                Act::Pause(Duration::from_millis(20)),
                Act::Reset,
            ],
            RequestFailureClass::Reset,
            "reset",
        ),
        (vec![], RequestFailureClass::Reset, "before the response began"),
        (
            write(format!("HTTP/1.1 200 OK\r\n\r\n{A}\n\n").into_bytes()),
            RequestFailureClass::Reset,
            "before the end mark of the response arrived",
        ),
        (
            write(stream(&[A, r#"data: {"error":{"message":"oom"}}"#])),
            RequestFailureClass::ErrorEvent,
            "oom",
        ),
        (
            write(partial_stream(&[A, r#"data: {"error":{"message":"oom"}}"#])),
            RequestFailureClass::ErrorEvent,
            "oom",
        ),
        (write(stream(&[DONE])), RequestFailureClass::Empty, "no output"),
        (
            write(plain_response("200 OK", "")),
            RequestFailureClass::Empty,
            "no output",
        ),
        (
            write(stream(&[A, "data: {oops"])),
            RequestFailureClass::Garbled,
            "{oops",
        ),
        (write(stream(&["<html>"])), RequestFailureClass::Garbled, "<html>"),
        (
            write(b"SSH-2.0-OpenSSH\r\n".to_vec()),
            RequestFailureClass::Garbled,
            "not HTTP/1.1",
        ),
        (
            write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\n\r\n".to_vec()),
            RequestFailureClass::Garbled,
            "gzip",
        ),
        (write(stream(&[A, &huge])), RequestFailureClass::HugeLine, "2000"),
        (
            vec![
                Act::Write(partial_stream(&[])),
                Act::Forever(stream(&[A]).split_off(partial_stream(&[]).len())[..A.len() + 8].to_vec()),
            ],
            RequestFailureClass::Endless,
            "events",
        ),
    ];
    let both = cases
        .into_iter()
        .flat_map(|(acts, class, words)| [true, false].map(|is_bare| (acts.clone(), class, words, is_bare)));
    for (mut acts, expected, words, is_bare) in both {
        let actual = format!("{acts:?} {is_bare}");
        // With TLS, only close_notify proves that the end of the connection is the end of the answer.
        if !is_bare && !actual.contains("Reset") && !actual.contains("Forever") {
            acts.push(Act::Shutdown);
        }
        let request = run_one_over(acts, is_bare).await;
        let failure = request.failure.as_ref().expect(&actual);
        assert_eq!(failure.class, expected, "{}: {actual:.300}", failure.message);
        assert!(failure.message.contains(words), "{}: {words}", failure.message);
        assert!(is_in_order(&request), "{request:?}");
        let has_begun = actual.contains("Write") && expected != RequestFailureClass::Status;
        assert_eq!(
            request.first_byte_ns.is_some(),
            has_begun || expected == RequestFailureClass::Status
        );
    }
}

#[tokio::test]
async fn a_time_out_tells_whether_output_had_come() {
    let silent = |first: &[&str]| {
        let acts = match first {
            [] => vec![Act::Hang],
            lines => vec![Act::Write(partial_stream(lines)), Act::Hang],
        };
        run_one_within(
            HumanDuration::from_secs(1),
            HumanDuration::from_secs(2),
            acts,
            true,
        )
    };
    let head_alone = vec![Act::Write(partial_stream(&[])), Act::Hang];
    let (nothing, head, comment, token) = tokio::join!(
        silent(&[]),
        run_one_within(
            HumanDuration::from_secs(1),
            HumanDuration::from_secs(2),
            head_alone,
            false
        ),
        silent(&[": ping"]),
        silent(&[A]),
    );
    for (request, expected, limit) in [
        (nothing, RequestFailureClass::TimeoutBeforeFirst, "within 1s"),
        (head, RequestFailureClass::TimeoutBeforeFirst, "within 1s"),
        (comment, RequestFailureClass::TimeoutBeforeFirst, "within 2s"),
        (token, RequestFailureClass::TimeoutAfterFirst, "within 2s"),
    ] {
        assert!(is_in_order(&request), "{request:?}");
        let failure = request.failure.unwrap();
        assert_eq!(failure.class, expected, "{}", failure.message);
        assert!(failure.message.ends_with(limit), "{}", failure.message);
    }
}

#[tokio::test]
async fn nobody_listening_is_refused_and_an_unknown_name_is_no_connection() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let result = run(load(port, &[0])).await;
    assert_eq!(class(&result.records[0]), Some(RequestFailureClass::Refused));
    let mut unknown = load(port, &[0, 5]);
    // The name is too long, so no name server is queried.
    unknown.target.address.host = "x".repeat(300);
    let unknown = run(unknown).await;
    assert_eq!(unknown.records.len(), 2);
    assert!(
        unknown
            .records
            .iter()
            .all(|request| class(request) == Some(RequestFailureClass::Connect))
    );
}

#[tokio::test]
async fn what_follows_done_neither_delays_nor_spoils_an_answer() {
    let request = run_one(vec![Act::Write(partial_stream(&[A, DONE])), Act::Hang]).await;
    assert_eq!(request.failure, None);
    let request = run_one(vec![
        Act::Write(partial_stream(&[A, DONE])),
        Act::Pause(Duration::from_millis(20)),
        Act::Reset,
    ])
    .await;
    assert_eq!(request.failure, None);
}

#[tokio::test]
async fn a_connection_left_open_after_done_keeps_neither_its_slot_nor_the_end_of_its_answer() {
    for is_bare in [true, false] {
        let server = Server::answering(vec![Act::Write(partial_stream(&[A, DONE])), Act::Hang]).await;
        let mut load = load(server.port, &[0, 0, 0]);
        load.concurrency = NonZeroU32::new(1);
        let requests = run_over(load, is_bare).await;
        assert!(requests.iter().all(Request::is_completed), "{requests:?}");
        for request in &requests {
            assert_eq!(Some(request.end_ns), request.last_line_ns, "{is_bare}");
        }
        let grace = u64::try_from(CLOSE_GRACE.as_nanos()).unwrap();
        assert!(requests[2].end_ns < grace, "{is_bare}: {:?}", requests[2]);
    }
}

#[tokio::test]
async fn a_server_that_leaves_connections_open_is_told() {
    let server = Server::answering(vec![Act::Write(partial_stream(&[A, DONE])), Act::Hang]).await;
    assert_eq!(run(load(server.port, &[0, 0])).await.left_open, 2);
    let sound = Server::answering(vec![
        Act::Write(partial_stream(&[A, DONE])),
        Act::Pause(Duration::from_millis(20)),
        Act::Write(b"0\r\n\r\n".to_vec()),
    ])
    .await;
    assert_eq!(run(load(sound.port, &[0, 0])).await.left_open, 0);
}

/// Returns a server whose accept queue is full and that accepts no connection.
fn full_listener() -> (tokio::net::TcpListener, Vec<std::net::TcpStream>) {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let connect = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200));
    let taken = std::iter::from_fn(|| connect().ok()).take(10).collect();
    (listener, taken)
}

#[tokio::test]
async fn what_a_request_waits_for_other_connections_is_lag_and_not_the_servers_time() {
    for is_bare in [true, false] {
        let (listener, _taken) = full_listener();
        let mut load = load(
            listener.local_addr().unwrap().port(),
            &vec![0; MAX_CONNECTING + 40],
        );
        load.limits.request = HumanDuration::from_secs(1);
        load.limits.first_byte = HumanDuration::from_secs(1);
        let requests = run_over(load, is_bare).await;
        let late = |from: u64| {
            requests
                .iter()
                .filter(|request| request.sent_ns >= Some(from))
                .count()
        };
        // The first connections stop counting when they have to be retransmitted.
        assert_eq!(late(800_000_000), 40, "{is_bare}");
        let timed_out = |request: &Request| class(request) == Some(RequestFailureClass::TimeoutBeforeFirst);
        assert!(requests.iter().all(timed_out));
        assert!(requests.iter().all(|request| request.end_ns < 4_000_000_000));
    }
}

#[tokio::test]
async fn an_answer_that_drips_is_recorded_like_one_that_comes_at_once() {
    let bytes = stream(&[": ping", A, "event: x", A, END, DONE]);
    let timeless = |mut request: Request| {
        for moment in [
            &mut request.sent_ns,
            &mut request.connected_ns,
            &mut request.written_ns,
            &mut request.first_byte_ns,
            &mut request.last_line_ns,
        ] {
            *moment = moment.map(|_| 0);
        }
        request.end_ns = 0;
        request.chunks.map_chunks(|_, chunk| chunk.at_ns = 0);
        request
    };
    let at_once = timeless(run_one(vec![Act::Write(bytes.clone())]).await);
    assert_eq!((at_once.chunks.len(), at_once.failure.clone()), (3, None));
    for is_bare in [true, false] {
        let dripped = run_one_over(vec![Act::WriteByByte(bytes.clone())], is_bare).await;
        assert_eq!(timeless(dripped), at_once);
    }
}

#[tokio::test]
async fn an_answer_that_does_not_stream_is_one_chunk() {
    let body = "{\"choices\": [\n{\"text\": \"ab\"}],\n\"usage\": {\"completion_tokens\": 2}}";
    let request = run_one(vec![Act::Write(plain_response("200 OK", body))]).await;
    assert_eq!((request.chunks.len(), request.failure.clone()), (1, None));
    assert_eq!(request.text, Some("ab".into()));
}

#[tokio::test]
async fn a_cumulative_stream_is_followed_over_many_blocks() {
    let text = |tokens: usize| "word ".repeat(tokens);
    let lines: Vec<String> = (1..=200)
        .map(|tokens| {
            let text = text(tokens);
            format!(
                r#"data: {{"text":"{text}","meta_info":{{"prompt_tokens":3,"completion_tokens":{tokens}}}}}"#
            )
        })
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).chain([DONE]).collect();
    let server = Server::answering(vec![Act::Write(stream(&lines))]).await;
    let mut load = load(server.port, &[0]);
    load.target = target(server.port, Protocol::SglangNative);
    load.requests[0].requested_tokens = 200;
    let request = run(load).await.records.remove(0);
    assert_eq!((request.failure.clone(), request.chunks.len()), (None, 200));
    assert_eq!(request.text, Some(text(200).into()));
    assert!(request.chunks.iter().all(|chunk| chunk.bytes == 5));
}

/// Answers that go to the disk at once equal those that memory holds, with bare and encrypted connections.
#[tokio::test]
async fn answers_that_lie_on_the_disk_are_those_that_memory_holds() {
    let event = |nth: usize| match nth % 3 {
        0 => format!(r#"data: {{"choices":[{{"text":"é{nth}"}}],"usage":{{"completion_tokens":{nth}}}}}"#),
        _ => format!(r#"data: {{"choices":[{{"text":"word{nth} "}}]}}"#),
    };
    let mut lines: Vec<String> = (0..3000).map(event).collect();
    lines[700] = r#"data: {"choices":[{"text":"</think>"}]}"#.to_owned();
    let lines: Vec<&str> = lines.iter().map(String::as_str).chain([END, DONE]).collect();
    let folder = tempfile::tempdir().unwrap();
    for is_bare in [true, false] {
        let mut both = Vec::new();
        for spill in [None, Some(Spill::new(folder.path(), 0).unwrap())] {
            let server = Server::answering(vec![Act::Write(stream(&lines))]).await;
            let mut load = load(server.port, &[0]);
            load.requests[0].requested_tokens = 3000;
            load.spill = spill.clone();
            let mut request = run_over(load, is_bare).await.remove(0);
            assert_eq!((request.failure.clone(), request.chunks.len()), (None, 3001));
            if let Some(spill) = spill {
                assert_eq!(spill.missed_warning(), None);
                assert!(request.chunks.storage_bytes().block_count() > 2);
                assert!(
                    request.chunks.storage_bytes().in_memory().is_empty(),
                    "the rest went there at the end"
                );
            }
            request.chunks.map_chunks(|_, chunk| chunk.at_ns = 0);
            assert_eq!(request.chunks.first().unwrap().kind, ChunkKind::Thought);
            assert_eq!(request.chunks.last().unwrap().kind, ChunkKind::Answer);
            both.push((request.chunks, request.text, request.usage));
        }
        assert_eq!(both[0], both[1]);
    }
}

#[tokio::test]
async fn a_request_carries_headers_path_and_body() {
    let server = Server::start(|request| vec![Act::Write(plain_response("418 Seen", request))]).await;
    let mut load = load(server.port, &[0]);
    load.target.address.prefix = "/api".to_owned();
    load.target.headers =
        crate::loadgen::Headers::new(vec![("user-agent".to_owned(), "mine".to_owned())]).unwrap();
    load.body.insert("top_k".to_owned(), 1.into());
    let request = run(load).await.records.remove(0);
    let message = request.failure.unwrap().message;
    assert!(
        message.starts_with("Seen: POST /api/v1/completions HTTP/1.1\r\nHost: 127.0.0.1:"),
        "{message}"
    );
    assert!(
        message.contains("\r\nuser-agent: mine\r\n") && !message.contains("User-Agent"),
        "{message}"
    );
    assert!(message.ends_with(r#""ignore_eos":true,"top_k":1}"#), "{message}");
}

#[tokio::test]
async fn a_request_larger_than_a_sockets_buffer_goes_out_whole() {
    let server =
        Server::start(|request| vec![Act::Write(plain_response("418 Seen", &request.len().to_string()))])
            .await;
    let mut load = load(server.port, &[0, 0]);
    for planned in &mut load.requests {
        planned.content = Content::Text("x".repeat(6 << 20).into());
    }
    for request in run(load).await.records {
        assert!(is_in_order(&request), "{request:?}");
        let message = request.failure.unwrap().message;
        let length: usize = message.trim_start_matches("Seen: ").parse().unwrap();
        assert!(length > 6 << 20 && length < (6 << 20) + 1000, "{message}");
    }
}

#[tokio::test]
async fn many_slots_on_many_threads_are_all_given_back() {
    let server = Server::answering(vec![Act::Write(stream(&[A, END, DONE]))]).await;
    let mut load = load(server.port, &[0; 300]);
    load.concurrency = NonZeroU32::new(100);
    load.threads = NonZeroUsize::new(3).unwrap();
    let result = run(load).await;
    assert!(result.records.iter().all(Request::is_completed));
    assert!(server.stats.max_running() <= 100);
}

#[tokio::test]
async fn requests_go_in_the_order_of_due_times_and_records_come_in_the_order_of_items() {
    let server = Server::answering(vec![Act::Write(stream(&[A, END, DONE]))]).await;
    for threads in [1, 3] {
        let mut load = load(server.port, &[30, 0, 20, 10, 0, 30]);
        load.threads = NonZeroUsize::new(threads).unwrap();
        let progress = Arc::<Progress>::default();
        let result = run_load(load, Arc::clone(&progress), CancellationToken::new())
            .await
            .unwrap();
        let requests = &result.records;
        assert!(
            requests
                .iter()
                .zip(0..)
                .all(|(request, index)| request.index == index)
        );
        assert!(
            requests
                .iter()
                .all(|request| request.is_completed() && is_in_order(request))
        );
        let mut sent: Vec<(u64, u64)> = requests
            .iter()
            .map(|request| (request.due_ns, request.sent_ns.unwrap()))
            .collect();
        sent.sort_unstable();
        if threads == 1 {
            assert!(sent.is_sorted_by_key(|(_, sent)| *sent), "{sent:?}");
        }
        assert_eq!(
            (progress.ended(), progress.running(), progress.failed()),
            (6, 0, 0)
        );
        assert_eq!(progress.events(), 12);
        let tokens: u32 = requests.iter().map(Request::received_tokens).sum();
        assert_eq!(progress.tokens_per_event(), f64::from(tokens) / 12.0);
        let ttft = |request: &Request| request.chunks.first().unwrap().at_ns - request.sent_ns.unwrap();
        let mean_ns = requests.iter().map(ttft).sum::<u64>() as f64 / 6.0;
        assert_eq!(progress.mean_ttft_ms(), Some(mean_ns / 1e6));
    }
}

#[tokio::test]
async fn no_more_requests_are_under_way_than_there_are_slots() {
    let server = Server::answering(vec![
        Act::Pause(Duration::from_millis(2)),
        Act::Write(stream(&[A, END, DONE])),
    ])
    .await;
    for threads in [1, 2] {
        let mut load = load(server.port, &[0; 40]);
        load.concurrency = NonZeroU32::new(3);
        load.threads = NonZeroUsize::new(threads).unwrap();
        let result = run(load).await;
        assert!(result.records.iter().all(Request::is_completed));
        assert!(server.stats.max_running() <= 3, "{}", server.stats.max_running());
        // The records show the same: at each sending at most two other requests were under way.
        for request in &result.records {
            let sent = request.sent_ns.unwrap();
            let others = result
                .records
                .iter()
                .filter(|other| other.sent_ns.unwrap() < sent && sent < other.end_ns);
            assert!(others.count() <= 2);
        }
    }
    assert_eq!(server.stats.total(), 80);
}

#[tokio::test]
async fn stopping_leaves_a_record_of_every_request_that_fell_due() {
    let server = Server::answering(vec![Act::Write(partial_stream(&[A])), Act::Hang]).await;
    let mut load = load(server.port, &[0, 0, 0, 0, 3_600_000]);
    load.concurrency = NonZeroU32::new(2);
    let (progress, stop) = (Arc::<Progress>::default(), CancellationToken::new());
    let stopping = async {
        while progress.events() < 2 {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let (result, ()) = tokio::join!(run_load(load, Arc::clone(&progress), stop.clone()), stopping);
    let classes: Vec<_> = result.unwrap().records.iter().map(class).collect();
    let (cut, unsent) = (
        Some(RequestFailureClass::Cancelled),
        Some(RequestFailureClass::Unsent),
    );
    assert_eq!(classes, [cut, cut, unsent, unsent]);
    assert_eq!((progress.ended(), progress.failed()), (4, 4));
}

#[tokio::test]
async fn a_drive_that_is_dropped_ends_what_is_under_way() {
    let server = Server::answering(vec![Act::Write(partial_stream(&[A])), Act::Hang]).await;
    let progress = Arc::<Progress>::default();
    let running = run_load(
        load(server.port, &[0, 0]),
        Arc::clone(&progress),
        CancellationToken::new(),
    );
    let two_events = async {
        while progress.events() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = running => panic!("nothing ended it"),
        () = two_events => {}
    }
    while progress.running() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!((progress.ended(), progress.failed()), (2, 2));
}

#[tokio::test]
async fn a_drive_stopped_before_it_began_sends_nothing() {
    let server = Server::answering(vec![Act::Hang]).await;
    let stop = CancellationToken::new();
    stop.cancel();
    let result = run_load(load(server.port, &[0, 0]), Arc::default(), stop)
        .await
        .unwrap();
    assert!(
        result
            .records
            .iter()
            .all(|request| class(request) == Some(RequestFailureClass::Unsent))
    );
    assert_eq!(
        (server.stats.total(), result.lag, result.wall),
        (0, None, Duration::ZERO)
    );
}

#[tokio::test]
async fn what_falls_due_after_the_duration_has_no_record_and_the_drain_counts_from_its_end() {
    for is_bare in [true, false] {
        let server = Server::start(|request| match request.contains("prompt due 0") {
            true => vec![Act::Write(partial_stream(&[A])), Act::Hang],
            false => vec![
                Act::Pause(Duration::from_millis(600)),
                Act::Write(stream(&[A, END, DONE])),
            ],
        })
        .await;
        let mut load = load(server.port, &[0, 20, 3_600_000]);
        load.limits.duration = Some("500ms".parse().unwrap());
        load.limits.drain = "1500ms".parse().unwrap();
        let requests = run_over(load, is_bare).await;
        let classes: Vec<_> = requests.iter().map(class).collect();
        assert_eq!(classes, [Some(RequestFailureClass::Cancelled), None], "{is_bare}");
        assert!(requests[0].end_ns >= 2_000_000_000);
    }
}

#[tokio::test]
async fn the_drain_cuts_nothing_before_the_duration_is_over() {
    for is_bare in [true, false] {
        let server = Server::answering(vec![
            Act::Pause(Duration::from_millis(300)),
            Act::Write(stream(&[A, END, DONE])),
        ])
        .await;
        let mut load = load(server.port, &[0, 0]);
        load.limits.drain = "10ms".parse().unwrap();
        for duration in [None, Some(HumanDuration::from_secs(3_600))] {
            load.limits.duration = duration;
            let requests = run_over(load.clone(), is_bare).await;
            assert_eq!(
                requests.iter().filter_map(class).next(),
                None,
                "{is_bare} {duration:?}"
            );
        }
    }
}

#[tokio::test]
async fn in_a_closed_loop_a_request_falls_due_when_it_has_a_slot() {
    for is_bare in [true, false] {
        let server = Server::answering(vec![
            Act::Pause(Duration::from_millis(50)),
            Act::Write(stream(&[A, END, DONE])),
        ])
        .await;
        let mut load = load(server.port, &[0; 1000]);
        load.concurrency = NonZeroU32::new(2);
        load.limits.duration = Some("400ms".parse().unwrap());
        let requests = run_over(load, is_bare).await;
        // At most eight answers of 50 ms fit in 400 ms, in each of two slots.
        assert!((2..=18).contains(&requests.len()), "{}", requests.len());
        assert!(requests.iter().all(Request::is_completed));
        assert_eq!((requests[0].due_ns, requests[1].due_ns), (0, 0));
        for request in &requests[2..] {
            assert!(request.due_ns >= 50_000_000 && request.due_ns <= request.sent_ns.unwrap());
            assert!(requests.iter().any(|other| other.end_ns <= request.due_ns));
        }
    }
}

#[tokio::test]
async fn a_request_that_fell_due_and_got_no_slot_in_time_failed() {
    for is_bare in [true, false] {
        let server = Server::answering(vec![
            Act::Pause(Duration::from_millis(600)),
            Act::Write(stream(&[A, END, DONE])),
        ])
        .await;
        let mut load = load(server.port, &[0, 1, 2, 3_600_000]);
        load.concurrency = NonZeroU32::new(1);
        load.limits.duration = Some("300ms".parse().unwrap());
        let requests = run_over(load, is_bare).await;
        let classes: Vec<_> = requests.iter().map(class).collect();
        assert_eq!(
            classes,
            [
                None,
                Some(RequestFailureClass::Unsent),
                Some(RequestFailureClass::Unsent)
            ],
            "{is_bare}"
        );
        assert!(requests[1].end_ns >= 300_000_000);
        assert_eq!((requests[1].due_ns, requests[1].sent_ns), (1_000_000, None));
    }
}

#[tokio::test]
async fn what_fell_due_in_time_is_sent_even_if_we_are_late() {
    for is_bare in [true, false] {
        let server = Server::answering(vec![Act::Write(stream(&[A, END, DONE]))]).await;
        // All but the last request fall due before the loop can have reached them.
        let mut load = load(server.port, &[0, 0, 0, 0, 1]);
        load.limits.duration = Some("1ms".parse().unwrap());
        let requests = run_over(load, is_bare).await;
        assert_eq!(requests.len(), 4, "{is_bare}");
        assert!(requests.iter().all(Request::is_completed));
    }
}

#[tokio::test]
async fn a_prompt_that_the_dialect_cannot_carry_ends_the_drive() {
    let mut load = load(1, &[0, 0]);
    load.target = target(1, Protocol::Chat);
    load.requests[1].content = Content::Ids(vec![1].into());
    let error = run_load(load, Arc::default(), CancellationToken::new())
        .await
        .unwrap_err();
    assert!(
        error.to_string().starts_with("request 1 cannot be encoded"),
        "{error}"
    );
}

#[tokio::test]
async fn a_thousand_requests_at_once_all_come_back() {
    let server = Server::answering(vec![Act::Write(stream(&[A, END, DONE]))]).await;
    let mut load = load(server.port, &[0; 1000]);
    load.threads = NonZeroUsize::new(2).unwrap();
    load.limits.request = HumanDuration::from_secs(60);
    let result = run(load).await;
    assert_eq!(result.records.len(), 1000);
    let failures: Vec<_> = result
        .records
        .iter()
        .filter_map(|request| request.failure.clone())
        .collect();
    assert_eq!(failures, []);
}

#[test]
fn lag_knows_its_mean_its_rare_and_its_worst() {
    let lags: Vec<_> = (1..=200).map(Duration::from_micros).collect();
    let lag = Lag::from_lags(lags).unwrap();
    assert_eq!(
        (lag.mean, lag.p99, lag.max),
        (
            Duration::from_nanos(100_500),
            Duration::from_micros(198),
            Duration::from_micros(200)
        )
    );
    assert_eq!(Lag::from_lags(Vec::new()), None);
}
