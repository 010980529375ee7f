//! Servers behind TLS: the simulated engine behind a proxy that ends it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::authority::proxy_with;
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
    proxy_with(config, to)
}

/// Ten requests to the port of this host, at an https address.
fn bench(desk: &Desk, port: u16, certificates: impl AsRef<OsStr>) -> Ran {
    let url = format!("https://localhost:{port}");
    let more = ["--base-url", &url, "--ready-check-timeout-sec", "1"];
    let mut command = desk.random_command("vllm", port, &more);
    let output = command.env("SSL_CERT_FILE", certificates).output();
    Ran::from(output.expect("the binary runs"))
}

/// The certificate of the proxy.
fn trusted() -> PathBuf {
    repository().join("src/loadgen/tls/localhost.crt")
}

#[test]
fn a_server_behind_tls_is_measured_with_the_kernels_moments() {
    let sim = Sim::start("vllm", &["--ttft", "50ms", "--itl", "5ms"]);
    let desk = Desk::new();
    bench(&desk, proxy(sim.port), trusted())
        .exits(0)
        .shows("Successful requests:");
    let line = desk.lines().remove(0);
    assert_eq!(line["completed"], 10);
    assert_eq!(line["matrix"]["stamps"], "kernel");
    let ttft = line["mean_ttft_ms"].as_f64().expect("it is a number");
    assert!(ttft >= 50.0, "{ttft}");
}

#[test]
fn a_certificate_that_nobody_signed_and_a_server_without_tls_are_named() {
    let sim = Sim::start("vllm", &[]);
    let desk = Desk::new();
    let bundle = "/etc/ssl/certs/ca-certificates.crt";
    if std::path::Path::new(bundle).exists() {
        bench(&desk, proxy(sim.port), bundle).says("certificate");
    }
    bench(&desk, sim.port, trusted()).says("TLS");
}

#[test]
fn an_unsigned_certificate_is_accepted_by_a_bench_like_vllms_if_asked() {
    let sim = Sim::start("vllm", &[]);
    let (desk, tokenizer) = (Desk::new(), data("tokenizer.json"));
    let url = format!("https://localhost:{}", proxy(sim.port));
    let bench = |more: &[&str]| {
        let flags = ["--like", "vllm", "--base-url", &url, "--tokenizer", &tokenizer];
        let load = ["--num-prompts", "3", "--input-len", "8", "--output-len", "4"];
        desk.call(&[&flags[..], &load, more].concat())
    };
    bench(&["--insecure"])
        .exits(0)
        .says("is not checked")
        .shows("Successful requests:");
    assert_ne!(bench(&[]).code, Some(0));
}
