//! Loads through TLS.

use rustls::HandshakeKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

async fn driven_encrypted(load: Load) -> Driven {
    let route = encrypted_route(load.target.address.port);
    let driven = drive_over(route, load, Arc::default(), CancellationToken::new()).await;
    driven.unwrap()
}

async fn answered_encrypted(acts: Vec<Act>) -> Request {
    let server = Server::saying(acts).await;
    driven_encrypted(load(server.port, &[0])).await.requests.remove(0)
}

#[tokio::test]
async fn an_encrypted_answer_bears_the_kernels_moments() {
    let server = Server::saying(vec![
        Act::Write(begun(&[A])),
        Act::Pause(Duration::from_millis(5)),
        Act::Write(stream(&[END, DONE]).split_off(begun(&[]).len())),
        Act::Shutdown,
    ])
    .await;
    let bare = driven(load(server.port, &[0])).await;
    let driven = driven_encrypted(load(server.port, &[2])).await;
    let request = &driven.requests[0];
    assert_eq!(request.failure, None);
    assert!(is_in_order(request), "{request:?}");
    assert_eq!(
        (request.text.clone(), request.chunks.len()),
        (Some("ab".into()), 2)
    );
    assert_eq!(driven.stamp, bare.stamp);
    assert_eq!(driven.left_open, 0);
}

/// Session tickets and key updates do not count as arrivals.
#[tokio::test]
async fn session_tickets_and_new_keys_are_no_first_byte() {
    const PAUSE: Duration = Duration::from_millis(100);
    let request = answered_encrypted(vec![
        Act::Pause(PAUSE),
        Act::UpdateKeys,
        Act::Pause(PAUSE),
        Act::Write(begun(&[A])),
        Act::UpdateKeys,
        Act::Write(stream(&[END, DONE]).split_off(begun(&[]).len())),
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
        (until_close, false, Some(Class::Reset)),
        (done, false, None),
        (stream(&[A, END]), true, None),
        (stream(&[A, END]), false, None),
        (plain("200 OK", r#"{"choices":[{"text":"a"}]}"#), false, None),
    ] {
        let mut acts = vec![Act::Write(bytes)];
        acts.extend(says_so.then_some(Act::Shutdown));
        let told = format!("{acts:?}");
        let request = answered_encrypted(acts).await;
        assert_eq!(class(&request), failure, "{told}: {:?}", request.failure);
        if let Some(failure) = request.failure {
            assert!(failure.message.contains("close_notify"), "{failure:?}");
        }
    }
}

/// A server may keep the connection open after its close_notify.
#[tokio::test]
async fn close_notify_ends_an_answer_before_the_connection_ends() {
    let until_close = format!("HTTP/1.1 200 OK\r\n\r\n{A}\n\n{END}\n\n").into_bytes();
    let request = answered_encrypted(vec![Act::Write(until_close), Act::CloseNotify, Act::Hang]).await;
    assert_eq!(request.failure, None);
}

#[tokio::test]
async fn every_handshake_is_full_and_speaks_http_1_1() {
    let server = Server::saying(vec![Act::Write(stream(&[A, END, DONE]))]).await;
    let mut load = load(server.port, &[0, 0, 0]);
    load.concurrency = NonZeroU32::new(1);
    assert!(
        driven_encrypted(load)
            .await
            .requests
            .iter()
            .all(Request::is_completed)
    );
    let full = (Some(b"http/1.1".to_vec()), Some(HandshakeKind::Full));
    assert_eq!(server.seen.handshakes(), vec![full; 3]);
}

#[tokio::test]
async fn a_server_with_another_name_or_without_tls_is_no_connection() {
    let server = Server::saying(vec![Act::Write(stream(&[A, END, DONE]))]).await;
    let other = Tls::new("elsewhere", test_server::roots()).unwrap();
    let route = Route::over(vec![([127, 0, 0, 1], server.port).into()], Some(other));
    let stop = CancellationToken::new();
    let driven = drive_over(route, load(server.port, &[0, 0]), Arc::default(), stop).await;
    for request in driven.unwrap().requests {
        let failure = request.failure.unwrap();
        assert_eq!(failure.class, Class::Connect);
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
    let (driven, ()) = tokio::join!(driven_encrypted(load(port, &[0])), bare);
    let failure = driven.requests[0].failure.clone().unwrap();
    assert_eq!(failure.class, Class::Connect);
    assert!(failure.message.contains("`http://`"), "{failure:?}");
}

#[tokio::test]
async fn a_server_that_never_shakes_hands_times_out_and_a_closed_port_refuses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut silent = load(port, &[0, 0]);
    silent.limits.first_byte = Span::seconds(1);
    for request in driven_encrypted(silent).await.requests {
        let failure = request.failure.unwrap();
        assert_eq!(failure.class, Class::TimeoutBeforeFirst);
        assert_eq!(failure.message, "no connection came within 1s");
    }
    drop(listener);
    let refused = driven_encrypted(load(port, &[0])).await;
    assert_eq!(class(&refused.requests[0]), Some(Class::Refused));
}

#[tokio::test]
async fn stopping_ends_handshakes_that_are_under_way() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stop = CancellationToken::new();
    let load = drive_over(
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
    let (driven, (mut connection, _)) = tokio::join!(load, stopping);
    assert_eq!(class(&driven.unwrap().requests[0]), Some(Class::Cancelled));
    // The client closes the connection after its first message.
    let mut heard = Vec::new();
    let _ = connection.read_to_end(&mut heard).await;
}

#[tokio::test]
async fn large_requests_go_out_whole_through_tls() {
    let server =
        Server::start(|request| vec![Act::Write(plain("418 Seen", &request.len().to_string()))]).await;
    let mut load = load(server.port, &[0, 0]);
    for item in &mut load.items {
        item.content = Content::Text("x".repeat(6 << 20).into());
    }
    for request in driven_encrypted(load).await.requests {
        assert!(is_in_order(&request), "{request:?}");
        let seen = request.failure.unwrap().message;
        let length: usize = seen.trim_start_matches("Seen: ").parse().unwrap();
        assert!(length > 6 << 20 && length < (6 << 20) + 1000, "{seen}");
    }
}

#[tokio::test]
async fn a_thousand_handshakes_at_once_all_come_back() {
    let server = Server::saying(vec![Act::Write(stream(&[A, END, DONE]))]).await;
    let mut load = load(server.port, &[0; 1000]);
    load.threads = NonZeroUsize::new(2).unwrap();
    let requests = driven_encrypted(load).await.requests;
    let failures: Vec<_> = requests
        .iter()
        .filter_map(|request| request.failure.clone())
        .collect();
    assert_eq!((requests.len(), failures), (1000, vec![]));
}
