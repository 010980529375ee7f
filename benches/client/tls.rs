//! A flood through TLS: each event a record of its own. Against a raw reader on the same library.

use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsAcceptor;

use crate::flood::{ENDING, EVENTS, HEAD, framed, listen, pattern, tokens_asked};
use crate::{Server, client, flooded_row};

/// A certificate for `localhost`, signed by itself.
pub const CERTIFICATE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/loadgen/tls/localhost.crt");
const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/loadgen/tls/localhost.key");
/// So many requests that are due together.
const AT_ONCE: usize = 1000;
/// Its name.
pub const HOST: &str = "localhost";

/// Prints a row for each number of streams.
pub fn bench(rounds: usize, is_quick: bool) {
    for streams in [64, 512] {
        let server = Server::tls();
        let total = if is_quick { 200_000 } else { 600_000 };
        flooded_row(
            "TLS, a record per event",
            &server,
            streams,
            total / streams,
            rounds,
        );
    }
    let one = client("ours", &Server::tls().work(AT_ONCE, 20));
    let [mean, p99, max] = one.lag_ms.expect("something was sent");
    println!(
        "TLS, {AT_ONCE} streams at once: {} completed, send lag mean {mean:.2} p99 {p99:.2} max {max:.2} ms",
        one.completed
    );
}

/// Serves until it is killed; prints its port first.
pub fn serve() -> ! {
    let certificate = CertificateDer::from_pem_file(CERTIFICATE).expect("the file is in the repository");
    let key = PrivateKeyDer::from_pem_file(KEY).expect("the file is in the repository");
    let configuration =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("they belong together");
    let acceptor = TlsAcceptor::from(Arc::new(configuration));
    let listener = listen();
    println!("{}", listener.local_addr().expect("it is bound").port());
    listener.set_nonblocking(true).expect("a socket can do that");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("it does not block");
        let mut answers = tokio::task::JoinSet::new();
        let (pattern, length) = pattern();
        let pattern: Arc<[u8]> = pattern.into();
        loop {
            let (stream, _) = listener.accept().await.expect("it listens");
            answers.spawn(answer(acceptor.clone(), stream, Arc::clone(&pattern), length));
        }
    })
}

async fn answer(
    acceptor: TlsAcceptor,
    stream: tokio::net::TcpStream,
    pattern: Arc<[u8]>,
    length: usize,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(stream).await?;
    let mut request = Vec::new();
    let tokens = loop {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
        if let Some(tokens) = tokens_asked(&request) {
            break tokens;
        }
    };
    stream.write_all(HEAD).await?;
    for token in 0..tokens {
        let from = token % EVENTS * length;
        stream.write_all(&pattern[from..from + length]).await?;
        stream.flush().await?;
        tokio::task::yield_now().await;
    }
    stream
        .write_all((framed(ENDING) + "0\r\n\r\n").as_bytes())
        .await?;
    stream.shutdown().await
}

/// A connection of the raw reader, after its handshake.
pub fn connect(stream: &mut TcpStream) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(CERTIFICATE).expect("the file is in the repository"))
        .expect("it is a certificate");
    let configuration =
        ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_root_certificates(roots)
            .with_no_client_auth();
    let name = ServerName::try_from(HOST).expect("it is a name");
    let mut connection = ClientConnection::new(Arc::new(configuration), name).expect("it is sound");
    while connection.is_handshaking() {
        connection.complete_io(stream).expect("the server has the key");
    }
    connection
}
