//! Connections to servers: certificates, Unix sockets, headers of every request.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket as nix_socket,
};
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use crate::encrypted::proxy_with;
use crate::harness::{Desk, Ran, Sim};
use crate::scripted::{serve_in_turn, stream, text};

/// A certificate authority, with the files of certificates that it has signed.
struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        std::fs::write(folder.path().join("ca.pem"), certificate.pem()).expect("it can be written");
        Self {
            folder,
            issuer: Issuer::new(params, key),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `NAME.pem` and `NAME.key` for a host, or for a client.
    fn sign(&self, name: &str, host: &str, ends_in: i32) {
        let mut params = CertificateParams::new([host.to_owned()]).expect("a name");
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        params.not_after = rcgen::date_time_ymd(ends_in, 1, 1);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        std::fs::write(self.file(&format!("{name}.pem")), certificate.pem()).expect("it can be written");
        std::fs::write(self.file(&format!("{name}.key")), key.serialize_pem()).expect("it can be written");
    }

    /// A proxy to a port with that certificate; it may require certificates that this authority has signed.
    fn proxy(&self, name: &str, to: u16, requires_client: bool) -> u16 {
        let load = |file: &str| CertificateDer::from_pem_file(self.file(file)).expect("it was written");
        let builder = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has them");
        let builder = match requires_client {
            false => builder.with_no_client_auth(),
            true => {
                let mut roots = RootCertStore::empty();
                roots.add(load("ca.pem")).expect("it is a certificate");
                let provider = Arc::new(rustls::crypto::ring::default_provider());
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.expect("there are roots"))
            }
        };
        let key = PrivateKeyDer::from_pem_file(self.file(&format!("{name}.key"))).expect("it was written");
        let config = builder.with_single_cert(vec![load(&format!("{name}.pem"))], key);
        proxy_with(config.expect("they belong together"), to)
    }
}

/// Ten requests to an https port of this host.
fn bench(port: u16, more: &[&str]) -> (Ran, Desk) {
    let desk = Desk::new();
    let url = format!("https://localhost:{port}");
    let common = [
        "--base-url",
        &url,
        "--ready-check-timeout-sec",
        "1",
        "--warmup-requests",
        "0",
    ];
    let ran = desk.random("vllm", port, &[&common[..], more].concat());
    (ran, desk)
}

fn shown(path: &Path) -> &str {
    path.to_str().expect("it is text")
}

#[test]
fn a_ca_file_is_trusted_and_an_unchecked_certificate_stays_with_the_result() {
    let sim = Sim::start("vllm", &[]);
    let authority = Authority::new();
    authority.sign("server", "localhost", 2999);
    let port = authority.proxy("server", sim.port, false);
    let ca = authority.file("ca.pem");
    let (ran, desk) = bench(port, &["--ca-file", shown(&ca)]);
    let ran = ran.exits(0);
    assert!(!ran.stderr.contains("certificate"), "{}", ran.stderr);
    assert_eq!(desk.lines()[0]["completed"], 10);
    // The authority is none of this machine's.
    bench(port, &[])
        .0
        .exits(4)
        .says("UnknownIssuer")
        .says("`--ca-file`")
        .says("`--insecure`");
    let (ran, desk) = bench(port, &["--insecure"]);
    ran.exits(0).says("the certificate of the server was not checked");
    let notes = desk.lines()[0]["matrix"]["notes"].to_string();
    assert!(notes.contains("`--insecure`"), "{notes}");
}

#[test]
fn certificates_that_are_wrong_or_expired_are_named_by_helper_requests_and_by_the_load() {
    let sim = Sim::start("vllm", &[]);
    let authority = Authority::new();
    authority.sign("other", "elsewhere", 2999);
    authority.sign("old", "localhost", 2001);
    let ca = authority.file("ca.pem");
    for (name, why) in [("other", "not valid for name"), ("old", "expired")] {
        let port = authority.proxy(name, sim.port, false);
        let with_ca = ["--ca-file", shown(&ca)];
        bench(port, &with_ca).0.exits(4).says(why).says("`--insecure`");
        let unasked = ["--ready-check-timeout-sec", "0", "--model", "m"];
        bench(port, &[&with_ca[..], &unasked].concat())
            .0
            .exits(3)
            .says(why)
            .says("`--insecure`");
        bench(port, &["--insecure"]).0.exits(0);
    }
}

#[test]
fn a_client_certificate_is_sent_where_the_server_asks_for_it() {
    let sim = Sim::start("vllm", &[]);
    let (authority, stranger) = (Authority::new(), Authority::new());
    authority.sign("server", "localhost", 2999);
    authority.sign("client", "client", 2999);
    stranger.sign("client", "client", 2999);
    let port = authority.proxy("server", sim.port, true);
    let ca = authority.file("ca.pem");
    let with = |signer: &Authority, more: &[&str]| {
        let (certificate, key) = (signer.file("client.pem"), signer.file("client.key"));
        let identity = ["--client-cert", shown(&certificate), "--client-key", shown(&key)];
        bench(port, &[&["--ca-file", shown(&ca)], &identity[..], more].concat()).0
    };
    with(&authority, &[]).exits(0);
    with(&stranger, &[]).exits(4).says("`--client-cert`");
    let unasked = ["--ready-check-timeout-sec", "0", "--model", "m"];
    with(&stranger, &unasked).exits(3).says("`--client-cert`");
    bench(port, &["--ca-file", shown(&ca)])
        .0
        .exits(4)
        .says("`--client-cert`");
}

#[test]
fn http_to_a_tls_server_and_the_reverse_are_named() {
    let sim = Sim::start("vllm", &[]);
    let authority = Authority::new();
    authority.sign("server", "localhost", 2999);
    let port = authority.proxy("server", sim.port, false);
    let desk = Desk::new();
    let ready = ["--ready-check-timeout-sec", "1"];
    desk.random("vllm", port, &ready).exits(4).says("use `https://`");
    let unasked = ["--ready-check-timeout-sec", "0", "--model", "m"];
    desk.random("vllm", port, &unasked)
        .exits(3)
        .says("use `https://`");
    let ca = authority.file("ca.pem");
    bench(sim.port, &["--ca-file", shown(&ca)])
        .0
        .exits(4)
        .says("use `http://`");
}

#[test]
fn tls_flags_that_cannot_be_used_are_refused() {
    let ca = crate::harness::repository().join("src/loadgen/tls/localhost.crt");
    let ca = shown(&ca);
    let desk = Desk::new();
    for flags in [
        &["--insecure"][..],
        &["--ca-file", ca],
        &["--client-cert", ca, "--client-key", ca],
    ] {
        desk.random("vllm", 9, flags)
            .exits(2)
            .says("has no effect on `http://127.0.0.1:9`");
    }
    for (flags, why) in [
        (&["--insecure", "--ca-file", ca][..], "contradict each other"),
        (&["--ca-file", "/no/such.pem"], "`/no/such.pem` cannot be read"),
        (&["--client-cert", ca], "give `--client-key`"),
        (&["--client-key", ca], "give `--client-cert`"),
        (&["--client-cert", ca, "--client-key", ca], "has no private key"),
    ] {
        bench(9, flags).0.exits(2).says(why).says("nothing was sent");
    }
}

/// A Unix socket that passes what it takes on to a port.
fn unix_proxy(socket: &Path, to: u16) -> Arc<Mutex<Vec<String>>> {
    pass_on_from(UnixListener::bind(socket).expect("the folder is new"), to)
}

fn pass_on_from(listener: UnixListener, to: u16) -> Arc<Mutex<Vec<String>>> {
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = Arc::clone(&heads);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let heard = Arc::clone(&heard);
            std::thread::spawn(move || pass_on(client, to, &heard));
        }
    });
    heads
}

fn pass_on(mut client: UnixStream, to: u16, heard: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", to))?;
    let (mut back, mut answers) = (client.try_clone()?, server.try_clone()?);
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut answers, &mut back);
        let _ = back.shutdown(std::net::Shutdown::Write);
    });
    let mut buffer = [0; 64 << 10];
    let length = client.read(&mut buffer)?;
    let request = String::from_utf8_lossy(&buffer[..length]).into_owned();
    let head = request.split("\r\n\r\n").next().unwrap_or_default().to_owned();
    heard.lock().expect("nobody panics with it").push(head);
    server.write_all(&buffer[..length])?;
    std::io::copy(&mut client, &mut server).map(drop)
}

#[test]
fn a_server_on_a_unix_socket_is_measured_with_its_helper_requests() {
    let sim = Sim::start("vllm", &["--ttft", "20ms", "--itl", "2ms"]);
    let desk = Desk::new();
    let socket = desk.path().join("engine.sock");
    let heads = unix_proxy(&socket, sim.port);
    let url = format!("unix://{}", socket.display());
    let more = ["--base-url", &url, "--flush-cache", "--header", "X-Team=blue"];
    desk.random("vllm", 9, &more)
        .exits(0)
        .shows("Successful requests:");
    let line = desk.lines().remove(0);
    assert_eq!(line["completed"], 10);
    // The kernel takes no times on Unix sockets.
    assert_eq!(line["matrix"]["stamps"], "user");
    assert!(line["mean_ttft_ms"].as_f64().is_some_and(|ttft| ttft >= 20.0));
    let heads = heads.lock().expect("nobody panics with it").clone();
    for path in [
        "GET /v1/models ",
        "POST /reset_prefix_cache ",
        "GET /server_info ",
        "POST /v1/completions ",
    ] {
        let of_path: Vec<&String> = heads.iter().filter(|head| head.starts_with(path)).collect();
        assert!(!of_path.is_empty(), "{path}: {heads:?}");
        for head in of_path {
            let head = head.to_lowercase();
            for header in ["host: localhost", "x-team: blue"] {
                assert!(head.lines().any(|line| line == header), "{head}");
            }
        }
    }
}

/// The kernel refuses connections beyond the accept queue of a Unix socket at once, instead of waiting.
#[test]
fn more_requests_than_the_accept_queue_of_a_unix_socket_holds_are_all_sent() {
    let desk = Desk::new();
    let socket = desk.path().join("engine.sock");
    let port = serve_in_turn(&[stream(&["a", " b", " c"].map(text))]);
    let listener = nix_socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .expect("a socket");
    let address = UnixAddr::new(&socket).expect("a short path");
    bind(listener.as_raw_fd(), &address).expect("the folder is new");
    listen(&listener, Backlog::new(1).expect("it is small")).expect("it is bound");
    pass_on_from(listener.into(), port);
    let url = format!("unix://{}", socket.display());
    let more = [
        "--base-url",
        &url,
        "--num-prompts",
        "100",
        "--warmup-requests",
        "0",
        "--disable-tqdm",
    ];
    desk.random("vllm", 9, &more).exits(0);
    assert_eq!(desk.lines()[0]["completed"], 100);
}

#[test]
fn a_prefix_of_a_unix_socket_stands_before_every_path() {
    let desk = Desk::new();
    let socket = desk.path().join("engine.sock");
    let heads = unix_proxy(&socket, serve_in_turn(&[stream(&["a", " b", " c"].map(text))]));
    let url = format!("unix://{}:/proxy/", socket.display());
    desk.random("vllm", 9, &["--base-url", &url]).exits(0);
    let heads = heads.lock().expect("nobody panics with it").clone();
    let is_below = |head: &String| {
        head.split(' ')
            .nth(1)
            .is_some_and(|path| path.starts_with("/proxy/"))
    };
    assert!(heads.len() > 10 && heads.iter().all(is_below), "{heads:?}");
}

#[test]
fn sockets_that_cannot_be_used_are_named() {
    let desk = Desk::new();
    let missing = format!("unix://{}", desk.path().join("none.sock").display());
    let file = desk.path().join("file");
    std::fs::write(&file, "").expect("it can be written");
    let file = format!("unix://{}", file.display());
    for (url, why) in [(&missing, "No such file"), (&file, "Connection refused")] {
        let ready = ["--base-url", url, "--ready-check-timeout-sec", "1"];
        desk.random("vllm", 9, &ready).exits(4).says(why).says(url);
        let unasked = [
            "--base-url",
            url,
            "--ready-check-timeout-sec",
            "0",
            "--model",
            "m",
        ];
        desk.random("vllm", 9, &unasked).exits(3).says(why);
    }
    desk.random("vllm", 9, &["--base-url", "unix://run/a.sock"])
        .exits(2)
        .says("is not absolute");
    desk.random("vllm", 9, &["--base-url", "unix:///run/a.sock", "--insecure"])
        .exits(2)
        .says("no effect");
    let long = format!("unix:///{}", "a".repeat(200));
    desk.random("vllm", 9, &["--base-url", &long])
        .exits(2)
        .says("longer than");
}
