use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::loadgen::target::Headers;
use crate::plan::{Dialect, Protocol, Usage};

/// A certificate for `localhost`, signed by itself, good for a hundred years; used nowhere else.
const CERTIFICATE: &[u8] = include_bytes!("localhost.crt");
const KEY: &[u8] = include_bytes!("localhost.key");

fn acceptor() -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let configuration = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(CERTIFICATE).unwrap()],
            PrivateKeyDer::from_pem_slice(KEY).unwrap(),
        )
        .unwrap();
    TlsAcceptor::from(Arc::new(configuration))
}

fn roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(CERTIFICATE).unwrap())
        .unwrap();
    roots
}

async fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = listener.local_addr().unwrap();
    (listener, socket)
}

#[tokio::test]
async fn an_encrypted_connection_carries_bytes_both_ways_and_ends_quietly() {
    let (listener, socket) = listener().await;
    let route = Route::over(vec![socket], Some(encrypted("localhost", roots()).unwrap()));
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = acceptor().accept(stream).await.unwrap();
        let mut heard = [0; 4];
        stream.read_exact(&mut heard).await.unwrap();
        stream.write_all(&heard).await.unwrap();
        stream.flush().await.unwrap();
        // Dropped without saying that the connection ends.
    };
    let client = async {
        let mut connection = route.connect().await.unwrap();
        let before = clock::now();
        connection.write(b"ping").await.unwrap();
        let mut buffer = [0; 16];
        let arrival = connection.read(&mut buffer).await.unwrap();
        assert_eq!(
            (&buffer[..arrival.length], arrival.stamp),
            (&b"ping"[..], Stamp::User)
        );
        assert!(arrival.at >= before);
        assert_eq!(connection.read(&mut buffer).await.unwrap().length, 0);
    };
    tokio::join!(server, client);
}

#[tokio::test]
async fn a_server_with_another_name_is_not_trusted() {
    let (listener, socket) = listener().await;
    let route = Route::over(vec![socket], Some(encrypted("elsewhere", roots()).unwrap()));
    let server = async {
        let (stream, _) = listener.accept().await.unwrap();
        assert!(acceptor().accept(stream).await.is_err());
    };
    let client = async { assert!(route.connect().await.is_err()) };
    tokio::join!(server, client);
}

#[test]
fn without_root_certificates_no_route_is_encrypted() {
    let error = encrypted("localhost", RootCertStore::empty()).err().unwrap();
    assert!(error.to_string().contains("SSL_CERT_FILE"), "{error}");
}

#[tokio::test]
async fn of_several_addresses_the_one_that_listens_is_used() {
    let (_listener, socket) = listener().await;
    let address = Address {
        host: "localhost".to_owned(),
        ..Address::local(socket.port())
    };
    assert_eq!(Route::find(&address).await.unwrap().sockets, [socket]);
}

/// Replicas behind one name, as a cluster's DNS tells them: each gets its share of the connections, and one that is down gets none.
#[tokio::test]
async fn connections_take_turns_over_the_addresses_that_listen() {
    let one = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = one.local_addr().unwrap().port();
    let at = |host: &str| SocketAddr::new(host.parse().unwrap(), port);
    let other = TcpListener::bind(at("127.0.0.3")).await.unwrap();
    let ports = [at("127.0.0.1"), at("127.0.0.2"), at("127.0.0.3")];
    let route = Route::over(listening(ports.to_vec()).await, None);
    let reached: Vec<SocketAddr> = (0..4).map(|_| route.next()).collect();
    assert_eq!(reached, [ports[0], ports[2], ports[0], ports[2]]);
    drop((one, other));
    assert_eq!(listening(ports.to_vec()).await, [ports[0]], "where none listens");
}

#[tokio::test]
async fn addresses_of_two_kinds_are_never_mixed() {
    let one = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = one.local_addr().unwrap();
    let Ok(other) = TcpListener::bind(("::1", socket.port())).await else {
        return;
    };
    let other = other.local_addr().unwrap();
    assert_eq!(listening(vec![other, socket]).await, [other]);
    assert_eq!(listening(vec![socket, other]).await, [socket]);
}

/// Source: spec/bench-serving.md 1.3: the Python tool offers compression, whose blocks would hide when an event was sent.
#[test]
fn no_compression_is_offered() {
    let target = Target {
        address: Address::local(1),
        headers: Headers::default(),
        dialect: Dialect {
            protocol: Protocol::Chat,
            path: None,
            usage: Usage::Unasked,
            body: serde_json::Map::new(),
        },
        model: "m".to_owned(),
    };
    let request = String::from_utf8(compose(&target, None, b"{}")).unwrap();
    let encodings: Vec<&str> = request
        .lines()
        .filter(|line| line.to_lowercase().starts_with("accept-encoding"))
        .collect();
    assert_eq!(encodings, ["Accept-Encoding: identity"]);
}
