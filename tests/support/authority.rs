//! Certificates that tests sign themselves, and proxies that speak TLS with them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// A certificate authority, with the files of certificates that it has signed.
pub struct Authority {
    folder: tempfile::TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
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

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes `NAME.pem` and `NAME.key` for a host, or for a client.
    pub fn sign(&self, name: &str, host: &str, ends_in: i32) {
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
    pub fn proxy(&self, name: &str, to: u16, requires_client: bool) -> u16 {
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

/// A proxy that speaks TLS on the port it returns and passes bytes on to another one; it ends with the test process.
pub fn proxy_with(config: ServerConfig, to: u16) -> u16 {
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
