//! Loads through TLS.

use rustls::HandshakeKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

async fn run_encrypted(load: LoadSpec) -> LoadResult {
    let route = encrypted_route(load.target.address.port);
    let result = run_over_route(route, load, Arc::default(), CancellationToken::new()).await;
    result.unwrap()
}

async fn run_one_encrypted(acts: Vec<Act>) -> Request {
    let server = Server::answering(acts).await;
    run_encrypted(load(server.port, &[0])).await.records.remove(0)
}

#[tokio::test]
async fn an_encrypted_answer_bears_the_kernels_moments() {
    let server = Server::answering(vec![
        Act::Write(partial_stream(&[A])),
        Act::Pause(Duration::from_millis(5)),
        Act::Write(stream(&[END, DONE]).split_off(partial_stream(&[]).len())),
        Act::Shutdown,
    ])
    .await;
    let bare = run(load(server.port, &[0])).await;
    let result = run_encrypted(load(server.port, &[2])).await;
    let request = &result.records[0];
    assert_eq!(request.failure, None);
    assert!(is_in_order(request), "{request:?}");
    assert_eq!(
        (request.text.clone(), request.chunks.len()),
        (Some("ab".into()), 2)
    );
    assert_eq!(result.timestamp_source, bare.timestamp_source);
    assert_eq!(result.left_open, 0);
}

/// Session tickets and key updates do not count as arrivals.
#[tokio::test]
async fn session_tickets_and_new_keys_are_no_first_byte() {
    const PAUSE: Duration = Duration::from_millis(100);
    let request = run_one_encrypted(vec![
        Act::Pause(PAUSE),
        Act::UpdateKeys,
        Act::Pause(PAUSE),
        Act::Write(partial_stream(&[A])),
        Act::UpdateKeys,
        Act::Write(stream(&[END, DONE]).split_off(partial_stream(&[]).len())),
    ])
    .await;
    assert_eq!((request.failure.clone(), request.chunks.len()), (None, 2));
    let waited = request.first_byte_ns.unwrap() - request.written_ns.unwrap();
    // The server gets the request after it is written, and starts to answer after both pauses.
    assert!(waited >= 2 * 95_000_000, "{waited}");
}

#[tokio::test]
async fn an_end_without_close_notify_is_no_end_of_an_answer_without_length() {
    let until_close = format!("HTTP/1.1 200 OK\r\n\r\n{A}\n\n{END}\n\n").into_bytes();
    let done = format!("HTTP/1.1 200 OK\r\n\r\n{A}\n\n{DONE}\n\n").into_bytes();
    for (bytes, says_so, failure) in [
        (until_close.clone(), true, None),
        (until_close, false, Some(RequestFailureClass::Reset)),
        (done, false, None),
        (stream(&[A, END]), true, None),
        (stream(&[A, END]), false, None),
        (
            plain_response("200 OK", r#"{"choices":[{"text":"a"}]}"#),
            false,
            None,
        ),
    ] {
        let mut acts = vec![Act::Write(bytes)];
        acts.extend(says_so.then_some(Act::Shutdown));
        let case = format!("{acts:?}");
        let request = run_one_encrypted(acts).await;
        assert_eq!(class(&request), failure, "{case}: {:?}", request.failure);
        if let Some(failure) = request.failure {
            assert!(failure.message.contains("close_notify"), "{failure:?}");
        }
    }
}

/// A server may keep the connection open after its close_notify.
#[tokio::test]
async fn close_notify_ends_an_answer_before_the_connection_ends() {
    let until_close = format!("HTTP/1.1 200 OK\r\n\r\n{A}\n\n{END}\n\n").into_bytes();
    let request = run_one_encrypted(vec![Act::Write(until_close), Act::CloseNotify, Act::Hang]).await;
    assert_eq!(request.failure, None);
}

#[tokio::test]
async fn every_handshake_is_full_and_speaks_http_1_1() {
    let server = Server::answering(vec![Act::Write(stream(&[A, END, DONE]))]).await;
    let mut load = load(server.port, &[0, 0, 0]);
    load.concurrency = NonZeroU32::new(1);
    assert!(
        run_encrypted(load)
            .await
            .records
            .iter()
            .all(Request::is_completed)
    );
    let full = (Some(b"http/1.1".to_vec()), Some(HandshakeKind::Full));
    assert_eq!(server.stats.handshakes(), vec![full; 3]);
}

#[tokio::test]
async fn a_server_with_another_name_or_without_tls_is_no_connection() {
    let server = Server::answering(vec![Act::Write(stream(&[A, END, DONE]))]).await;
    let other = TlsClient::new("elsewhere", &test_server::trusting_config()).unwrap();
    let route = Route::from_peers(vec![Peer::Tcp(([127, 0, 0, 1], server.port).into())], Some(other));
    let stop = CancellationToken::new();
    let result = run_over_route(route, load(server.port, &[0, 0]), Arc::default(), stop).await;
    for request in result.unwrap().records {
        let failure = request.failure.unwrap();
        assert_eq!(failure.class, RequestFailureClass::Connect);
        assert!(failure.message.contains("certificate"), "{failure:?}");
        assert_eq!((request.connected_ns, request.written_ns), (None, None));
    }

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let bare = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 1024]).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
    };
    let (result, ()) = tokio::join!(run_encrypted(load(port, &[0])), bare);
    let failure = result.records[0].failure.clone().unwrap();
    assert_eq!(failure.class, RequestFailureClass::Connect);
    assert!(failure.message.contains("`http://`"), "{failure:?}");
}

#[tokio::test]
async fn a_server_that_never_shakes_hands_times_out_and_a_closed_port_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut silent = load(port, &[0, 0]);
    silent.limits.first_byte = HumanDuration::from_secs(1);
    for request in run_encrypted(silent).await.records {
        let failure = request.failure.unwrap();
        assert_eq!(failure.class, RequestFailureClass::TimeoutBeforeFirst);
        assert_eq!(failure.message, "no connection within 1s");
    }
    drop(listener);
    let result = run_encrypted(load(port, &[0])).await;
    assert_eq!(class(&result.records[0]), Some(RequestFailureClass::Refused));
}

#[tokio::test]
async fn stopping_ends_handshakes_that_are_under_way() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = CancellationToken::new();
    let load = run_over_route(
        encrypted_route(port),
        load(port, &[0]),
        Arc::default(),
        stop.clone(),
    );
    let stopping = async {
        let connection = listener.accept().await.unwrap();
        stop.cancel();
        connection
    };
    let (result, (mut connection, _)) = tokio::join!(load, stopping);
    assert_eq!(
        class(&result.unwrap().records[0]),
        Some(RequestFailureClass::Cancelled)
    );
    // The client closes the connection after its first message.
    let mut heard = Vec::new();
    let _ = connection.read_to_end(&mut heard).await;
}

#[tokio::test]
async fn large_requests_go_out_whole_through_tls() {
    let server =
        Server::start(|request| vec![Act::Write(plain_response("418 Seen", &request.len().to_string()))])
            .await;
    let mut load = load(server.port, &[0, 0]);
    for planned in &mut load.requests {
        planned.content = Content::Text("x".repeat(6 << 20).into());
    }
    for request in run_encrypted(load).await.records {
        assert!(is_in_order(&request), "{request:?}");
        let message = request.failure.unwrap().message;
        let length: usize = message.trim_start_matches("Seen: ").parse().unwrap();
        assert!(length > 6 << 20 && length < (6 << 20) + 1000, "{message}");
    }
}

#[tokio::test]
async fn a_thousand_handshakes_at_once_all_come_back() {
    let server = Server::answering(vec![Act::Write(stream(&[A, END, DONE]))]).await;
    let mut load = load(server.port, &[0; 1000]);
    load.threads = NonZeroUsize::new(2).unwrap();
    let requests = run_encrypted(load).await.records;
    let failures: Vec<_> = requests
        .iter()
        .filter_map(|request| request.failure.clone())
        .collect();
    assert_eq!((requests.len(), failures), (1000, vec![]));
}
