//! Daemons elsewhere: Docker's contexts, and TLS. The daemon of the tests stands behind a forwarder that speaks TLS with
//! certificates made here.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, UnixStream};
use tokio_rustls::TlsAcceptor;

use crate::daemon::{Daemon, begin, end, folder, until, until_measuring};
use crate::harness::{Bench, summary};

const ONE: &str = "  - random-1k-1k: { prompts: 2, input_len: 16, output_len: 4 }\n";
const LONG: &str = "  - random-1k-1k: { prompts: 4, input_len: 16, output_len: 4000, warmup: 0 }\n";

/// The daemon of the tests at a port of this host, by TLS only.
struct Remote {
    at: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

/// Writes `ca.pem`, `cert.pem` and `key.pem` for a client into `folder` and gives the settings of a server that knows it.
fn certificates(folder: &Path) -> ServerConfig {
    let mut authority = CertificateParams::new(Vec::new()).expect("no names are needed");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key can be made");
    let authority_pem = authority.self_signed(&key).expect("it signs itself").pem();
    let issuer = Issuer::new(authority, key);
    let signed = |names: &[&str], usage: ExtendedKeyUsagePurpose| {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("the names are names");
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &issuer).expect("it can be signed");
        (certificate.pem(), key.serialize_pem())
    };
    let (cert, key) = signed(&["client"], ExtendedKeyUsagePurpose::ClientAuth);
    fs::create_dir_all(folder).expect("a folder can be made");
    for (file, text) in [("ca.pem", &authority_pem), ("cert.pem", &cert), ("key.pem", &key)] {
        fs::write(folder.join(file), text).expect("a file can be written");
    }
    let (cert, key) = signed(&["127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth);
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_slice(authority_pem.as_bytes()).expect("it is PEM");
    roots.add(authority).expect("it is a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .build()
        .expect("it can verify");
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows them")
        .with_client_cert_verifier(verifier)
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(cert.as_bytes()).expect("it is PEM")],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("it is PEM"),
        )
        .expect("key and certificate fit")
}

impl Remote {
    fn of(daemon: &Daemon, config: ServerConfig) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be had");
        let socket = daemon
            .host
            .strip_prefix("unix://")
            .expect("the daemon listens at a socket")
            .to_owned();
        let listener = runtime
            .block_on(TcpListener::bind(("127.0.0.1", 0)))
            .expect("a port can be had");
        let at = listener.local_addr().expect("it has an address");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        runtime.spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, socket) = (acceptor.clone(), socket.clone());
                connections.spawn(async move {
                    let Ok(mut outside) = acceptor.accept(stream).await else {
                        return;
                    };
                    let Ok(mut inside) = UnixStream::connect(socket).await else {
                        return;
                    };
                    // Whoever leaves first ends it, as a connection does.
                    let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
                });
            }
        });
        Self {
            at,
            _runtime: runtime,
        }
    }
}

/// Makes a context, as `docker context create` keeps it.
fn context(config: &Path, name: &str, host: &str) -> std::path::PathBuf {
    let digest: String = Sha256::digest(name.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let meta = config.join("contexts/meta").join(&digest);
    fs::create_dir_all(&meta).expect("a folder can be made");
    fs::write(
        meta.join("meta.json"),
        format!(
            r#"{{"Name":"{name}","Metadata":{{}},"Endpoints":{{"docker":{{"Host":"{host}","SkipTLSVerify":false}}}}}}"#
        ),
    )
    .expect("a file can be written");
    config.join("contexts/tls").join(digest).join("docker")
}

/// A bench that is told of its daemon by its Docker configuration only.
fn configured(daemon: &Daemon, name: &str, scenario: &str) -> (Bench, std::path::PathBuf) {
    let bench = daemon.bench(name, &[], "", scenario).variable("DOCKER_HOST", "");
    let config = folder(&bench).join("docker-config");
    fs::create_dir_all(&config).expect("a folder can be made");
    let bench = bench.variable("DOCKER_CONFIG", &config.display().to_string());
    (bench, config)
}

#[test]
fn the_context_that_was_chosen_names_the_daemon() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let (bench, config) = configured(&daemon, "context", ONE);
    context(&config, "lab", &daemon.host);
    fs::write(config.join("config.json"), r#"{"currentContext": "lab"}"#).expect("a file can be written");
    bench.run(&[]).exits(0);
    assert_eq!(
        bench.finished().summaries.len(),
        1,
        "the daemon of the context did it"
    );
    assert!(daemon.of_run(&bench).is_empty());
    let bench = bench.variable("DOCKER_CONTEXT", "lob");
    bench
        .run(&[])
        .exits(4)
        .says("no Docker context `lob`")
        .says("docker context ls");
    context(&config, "far", "ssh://far");
    let bench = bench.variable("DOCKER_CONTEXT", "far");
    bench.run(&[]).exits(4).says("ssh -L");
}

#[test]
fn a_daemon_behind_tls_runs_engines_by_the_keys_of_a_context() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let (bench, config) = configured(&daemon, "tlscontext", ONE);
    let keys = tempfile::tempdir().expect("a folder can be made");
    let remote = Remote::of(&daemon, certificates(keys.path()));
    let there = context(&config, "safe", &format!("tcp://{}", remote.at));
    fs::create_dir_all(there.parent().expect("it has one")).expect("a folder can be made");
    std::os::unix::fs::symlink(keys.path(), &there).expect("a link can be made");
    let bench = bench.variable("DOCKER_CONTEXT", "safe");
    bench.run(&[]).exits(0);
    let run = bench.finished();
    assert!(
        summary(&run, "tlscontext", "random-1k-1k")
            .engine
            .image_digest
            .is_some()
    );
    assert!(daemon.of_run(&bench).is_empty(), "nothing is left");
}

#[test]
fn a_second_interrupt_removes_the_container_through_tls() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let keys = tempfile::tempdir().expect("a folder can be made");
    let remote = Remote::of(&daemon, certificates(keys.path()));
    let bench = daemon
        .bench("tlstwice", &[], "--ignore-sigterm", LONG)
        .variable("DOCKER_HOST", &format!("tcp://{}", remote.at))
        .variable("DOCKER_TLS_VERIFY", "1")
        .variable("DOCKER_CERT_PATH", &keys.path().display().to_string());
    let mut child = begin(&bench);
    until_measuring(&bench, &mut child);
    let id = daemon.of_run(&bench).remove(0);
    let pid = rustix::process::Pid::from_child(&child);
    for _ in 0..2 {
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it lives");
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    end(child).exits(130);
    until("its removal", || {
        !daemon.try_docker(&["inspect", &id]).status.success()
    });
}

#[test]
fn what_goes_wrong_with_tls_says_how_to_mend_it() {
    let Some(daemon) = Daemon::or_skip() else { return };
    let (keys, others) = (tempfile::tempdir(), tempfile::tempdir());
    let (keys, others) = (keys.expect("a folder"), others.expect("a folder"));
    let remote = Remote::of(&daemon, certificates(keys.path()));
    certificates(others.path());
    let host = format!("tcp://{}", remote.at);
    let bench = |verify: bool, folder: &Path| {
        let bench = daemon
            .bench("tlswrong", &[], "", ONE)
            .variable("DOCKER_HOST", &host)
            .variable("DOCKER_CERT_PATH", &folder.display().to_string());
        match verify {
            true => bench.variable("DOCKER_TLS_VERIFY", "1"),
            false => bench.variable("DOCKER_TLS", "1"),
        }
    };
    bench(true, others.path())
        .run(&[])
        .exits(4)
        .says("certificate is not trusted");
    bench(false, keys.path())
        .run(&[])
        .exits(4)
        .says("without certificate verification")
        .says("DOCKER_TLS_VERIFY=1");
    // The right authority, and a key that it did not sign.
    fs::copy(keys.path().join("ca.pem"), others.path().join("ca.pem")).expect("a file can be copied");
    bench(true, others.path())
        .run(&[])
        .exits(4)
        .says("does not accept the client certificate");
    fs::write(keys.path().join("key.pem"), "no key").expect("a file can be written");
    bench(true, keys.path()).run(&[]).exits(4).says("key.pem");
}
