//! Servers behind TLS: the simulated engine behind a proxy that ends it.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::harness::{Desk, Ran, Sim, data, repository};

/// A proxy that speaks TLS on the port it returns and passes bytes on to another one; it ends with the test process.
fn proxy(to: u16) -> u16 {
    let folder = repository().join("src/loadgen/tls");
    let certificate =
        CertificateDer::from_pem_file(folder.join("localhost.crt")).expect("it is in the repository");
    let key = PrivateKeyDer::from_pem_file(folder.join("localhost.key")).expect("it is in the repository");
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .expect("they belong together");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    listener.set_nonblocking(true).expect("a socket can do that");
    let port = listener.local_addr().expect("it has one").port();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async move {
            let listener = TcpListener::from_std(listener).expect("it does not block");
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                connections.spawn(async move {
                    let mut client = acceptor.accept(stream).await?;
                    let mut server = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], to))).await?;
                    tokio::io::copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
    });
    port
}

fn bench(desk: &Desk, url: &str, certificates: &str) -> Ran {
    let (tokenizer, conversations) = (data("tokenizer.json"), data("conversations.json"));
    let args = [
        "--backend",
        "vllm",
        "--base-url",
        url,
        "--tokenizer",
        &tokenizer,
        "--dataset-name",
        "random",
        "--dataset-path",
        &conversations,
        "--num-prompts",
        "20",
        "--random-input-len",
        "32",
        "--random-output-len",
        "8",
        "--random-range-ratio",
        "1.0",
        "--output-file",
        "out.jsonl",
        "--ready-check-timeout-sec",
        "1",
    ];
    let output = desk.command(&args).env("SSL_CERT_FILE", certificates).output();
    Ran::from(output.expect("the binary runs"))
}

#[test]
fn a_server_behind_tls_is_measured_with_the_kernels_moments() {
    let sim = Sim::start("vllm", &["--ttft", "50ms", "--itl", "5ms"]);
    let port = proxy(sim.port);
    let trusted = repository().join("src/loadgen/tls/localhost.crt");
    let desk = Desk::new();
    bench(
        &desk,
        &format!("https://localhost:{port}"),
        &trusted.to_string_lossy(),
    )
    .exits(0)
    .shows("Successful requests:");
    let line = desk.lines().remove(0);
    assert_eq!(line["completed"], 20);
    assert_eq!(line["matrix"]["stamps"], "kernel");
    let ttft = line["mean_ttft_ms"].as_f64().expect("it is a number");
    assert!(ttft >= 50.0, "{ttft}");
}

#[test]
fn a_certificate_that_nobody_signed_and_a_server_without_tls_are_named() {
    let sim = Sim::start("vllm", &[]);
    let port = proxy(sim.port);
    let desk = Desk::new();
    let bundle = "/etc/ssl/certs/ca-certificates.crt";
    if std::path::Path::new(bundle).exists() {
        bench(&desk, &format!("https://localhost:{port}"), bundle).says("certificate");
    }
    let trusted = repository().join("src/loadgen/tls/localhost.crt");
    bench(
        &desk,
        &format!("https://localhost:{}", sim.port),
        &trusted.to_string_lossy(),
    )
    .says("TLS");
}
