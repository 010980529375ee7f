//! TLS settings of connections to a server, and TLS errors that say how to fix them.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{self, CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, InvalidMessage, RootCertStore,
    SignatureScheme,
};
use thiserror::Error;

use crate::base::regular_file;

/// The only supported protocol, offered by ALPN so that no server chooses HTTP/2.
const HTTP_1_1: &[u8] = b"http/1.1";
/// The explanation if the first bytes of a server are not a TLS record.
const NO_TLS_HINT: &str = "the server does not speak TLS; use `http://`";
const INSECURE_HELP: &str = "skip the check with `--insecure` (`tls: { insecure: true }` in a matrix)";
const CERTIFICATE_HELP: &str = "trust the server's CA with `--ca-file` or SSL_CERT_FILE (in a matrix: `tls: { ca_file: FILE }`), or skip the check with `--insecure` (in a matrix: `tls: { insecure: true }`)";
const REFUSED_IDENTITY: &str = "the server refused the client certificate; set another one with `--client-cert` (in a matrix: `tls: { client_cert: FILE }` of the engine)";
const CLIENT_CERTIFICATE_HELP: &str = "the server may require a client certificate: set `--client-cert` and `--client-key` of `matrix bench`, or `tls: { client_cert: FILE, client_key: FILE }` of an engine in a matrix";

/// How a server is trusted, and how the client proves who it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsSettings {
    pub(crate) trust: Trust,
    pub(crate) identity: Option<ClientIdentity>,
}

/// Which certificates of servers are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Those that the certificate authorities of this machine have signed, or those of `SSL_CERT_FILE`.
    #[default]
    System,
    /// Those that the certificate authorities of a PEM file have signed.
    File(PathBuf),
    /// All: the server is not authenticated.
    Any,
}

/// The PEM files of a client certificate, with its chain, and of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientIdentity {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// A file of TLS settings that cannot be used.
#[derive(Debug, Error)]
pub(crate) enum TlsError {
    #[error("`{file}` cannot be read: {source}")]
    Unreadable { file: String, source: io::Error },
    #[error("`{file}` has no {what} in PEM form")]
    Lacking { file: String, what: &'static str },
    #[error("`{file}` has an invalid {what}: {reason}")]
    Invalid {
        file: String,
        what: &'static str,
        reason: String,
    },
    #[error("the certificate in `{certificate}` and the key in `{key}` do not belong together: {reason}")]
    Mismatch {
        certificate: String,
        key: String,
        reason: String,
    },
    #[error(
        "this machine has no root certificates; install `ca-certificates`, set `SSL_CERT_FILE`, or give `--ca-file`"
    )]
    NoRoots,
}

/// TLS settings that are ready for use. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct TlsConfig {
    config: Arc<ClientConfig>,
    verifies_servers: bool,
}

impl TlsConfig {
    /// Reads the files of the settings.
    pub(crate) fn load(settings: &TlsSettings) -> Result<Self, TlsError> {
        let identity = settings.identity.as_ref();
        match &settings.trust {
            Trust::System => Self::build(native_roots(), identity),
            Trust::File(file) => Self::build(roots_of(file)?, identity),
            Trust::Any => {
                let mut config = Self::build_with(RootCertStore::empty(), identity)?;
                let algorithms = provider().signature_verification_algorithms;
                config
                    .dangerous()
                    .set_certificate_verifier(Arc::new(Unverified(algorithms)));
                Ok(Self {
                    config: Arc::new(config),
                    verifies_servers: false,
                })
            }
        }
    }

    fn build(roots: RootCertStore, identity: Option<&ClientIdentity>) -> Result<Self, TlsError> {
        if roots.is_empty() {
            return Err(TlsError::NoRoots);
        }
        Ok(Self {
            config: Arc::new(Self::build_with(roots, identity)?),
            verifies_servers: true,
        })
    }

    /// Every connection makes a full handshake, as in the Python tool.
    fn build_with(roots: RootCertStore, identity: Option<&ClientIdentity>) -> Result<ClientConfig, TlsError> {
        let builder = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider supports the default versions")
            .with_root_certificates(roots);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let chain = certificates(&identity.certificate)?;
                let key = regular_file::check(&identity.key)
                    .map_err(pem::Error::Io)
                    .and_then(|()| PrivateKeyDer::from_pem_file(&identity.key))
                    .map_err(|error| pem_error(&identity.key, "private key", error))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|error| TlsError::Mismatch {
                        certificate: identity.certificate.display().to_string(),
                        key: identity.key.display().to_string(),
                        reason: error.to_string(),
                    })?
            }
        };
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    pub(crate) fn client_config(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.config)
    }

    /// Whether certificates of servers are checked.
    pub(crate) const fn verifies_servers(&self) -> bool {
        self.verifies_servers
    }
}

fn provider() -> CryptoProvider {
    crypto::ring::default_provider()
}

/// Loads the trusted certificates of this machine, or those of `SSL_CERT_FILE`.
fn native_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn roots_of(file: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file)? {
        roots.add(certificate).map_err(|error| TlsError::Invalid {
            file: file.display().to_string(),
            what: "certificate",
            reason: error.to_string(),
        })?;
    }
    Ok(roots)
}

fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let what = "certificate";
    let read = || {
        regular_file::check(file).map_err(pem::Error::Io)?;
        CertificateDer::pem_file_iter(file)?.collect::<Result<Vec<_>, _>>()
    };
    let certificates = read().map_err(|error| pem_error(file, what, error))?;
    match certificates.is_empty() {
        true => Err(pem_error(file, what, pem::Error::NoItemsFound)),
        false => Ok(certificates),
    }
}

fn pem_error(file: &Path, what: &'static str, error: pem::Error) -> TlsError {
    let file = file.display().to_string();
    match error {
        pem::Error::Io(source) => TlsError::Unreadable { file, source },
        pem::Error::NoItemsFound => TlsError::Lacking { file, what },
        error => TlsError::Invalid {
            file,
            what,
            reason: error.to_string(),
        },
    }
}

/// Accepts every certificate. The server must still own the key of the certificate that it sends.
#[derive(Debug)]
struct Unverified(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        crypto::verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// Formats a TLS error, with how to fix it.
pub(crate) fn describe(error: &rustls::Error) -> String {
    use AlertDescription as Alert;
    use rustls::PeerIncompatible as Incompatible;
    match error {
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => NO_TLS_HINT.to_owned(),
        rustls::Error::InvalidCertificate(fault) => format!("{error}; {}", certificate_help(fault)),
        rustls::Error::AlertReceived(Alert::ProtocolVersion)
        | rustls::Error::PeerIncompatible(
            Incompatible::ServerDoesNotSupportTls12Or13 | Incompatible::ServerTlsVersionIsDisabledByOurConfig,
        ) => format!("{error}; the server must support TLS 1.2 or 1.3"),
        // Only a certificate that was sent has a CA, an end and a proof.
        rustls::Error::AlertReceived(
            Alert::UnknownCA
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::UnsupportedCertificate
            | Alert::DecryptError,
        ) => format!("{error}; {REFUSED_IDENTITY}"),
        rustls::Error::AlertReceived(
            Alert::BadCertificate | Alert::CertificateUnknown | Alert::AccessDenied,
        ) => format!("{error}; {REFUSED_IDENTITY}, or {CLIENT_CERTIFICATE_HELP}"),
        rustls::Error::AlertReceived(Alert::CertificateRequired | Alert::HandshakeFailure) => {
            format!("{error}; {CLIENT_CERTIFICATE_HELP}")
        }
        error => error.to_string(),
    }
}

/// How to make the certificate of a server one that is accepted.
fn certificate_help(fault: &CertificateError) -> String {
    use CertificateError as Fault;
    match fault {
        Fault::Expired | Fault::ExpiredContext { .. } => format!(
            "renew the certificate of the server, or correct the clock of this machine, or {INSECURE_HELP}"
        ),
        Fault::NotValidYet | Fault::NotValidYetContext { .. } => format!(
            "correct the clock of this machine, or use a certificate that is valid already, or {INSECURE_HELP}"
        ),
        Fault::NotValidForName | Fault::NotValidForNameContext { .. } => {
            format!("address the server by a name that is in its certificate, or {INSECURE_HELP}")
        }
        // A variant of another crate's error, which rustls wraps.
        Fault::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => format!(
            "the server uses the certificate of a CA as its own; give the server another certificate, or {INSECURE_HELP}"
        ),
        _ => CERTIFICATE_HELP.to_owned(),
    }
}

/// Formats the error of a TLS connection that the other side ended, with what may be the reason.
pub(crate) fn describe_sudden_end(error: &io::Error) -> String {
    format!("{error}; if the server does not speak TLS, use `http://`; {CLIENT_CERTIFICATE_HELP}")
}

/// Whether the other side ended a connection without a word of TLS.
pub(crate) fn is_sudden_end(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

/// Formats an error that a TLS error may have caused.
pub(crate) fn describe_cause(error: &(dyn Error + 'static)) -> String {
    find_tls_error(error).map_or_else(|| error.to_string(), describe)
}

/// Whether the other side spoke, but not TLS as it must be.
pub(crate) fn is_tls_error(error: &(dyn Error + 'static)) -> bool {
    find_tls_error(error).is_some()
}

/// Whether the certificate of a server was refused, so that waiting does not help.
pub(crate) fn is_certificate_error(error: &(dyn Error + 'static)) -> bool {
    matches!(find_tls_error(error), Some(rustls::Error::InvalidCertificate(_)))
}

/// Finds the TLS error within an error. `source` does not return the error that an I/O error wraps.
fn find_tls_error<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    match error.downcast_ref::<io::Error>() {
        Some(error) => find_tls_error(error.get_ref()?),
        None => error.downcast_ref(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_tls_is_named_however_deep_the_error_lies() {
        let error = || rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        assert_eq!(describe_cause(&error()), NO_TLS_HINT);
        let nested = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error()));
        assert_eq!(describe_cause(&nested), NO_TLS_HINT);
        assert_eq!(describe_cause(&io::Error::other("gone")), "gone");
    }

    #[test]
    fn each_refusal_comes_with_its_own_fix() {
        use rustls::Error::{AlertReceived, InvalidCertificate};
        let ca = rustls::OtherError(Arc::new(io::Error::other("CaUsedAsEndEntity")));
        for (error, fix, other) in [
            (
                InvalidCertificate(CertificateError::Expired),
                "renew the certificate",
                "--ca-file",
            ),
            (
                InvalidCertificate(CertificateError::NotValidYet),
                "the clock",
                "--ca-file",
            ),
            (
                InvalidCertificate(CertificateError::NotValidForName),
                "in its certificate",
                "--ca-file",
            ),
            (
                InvalidCertificate(CertificateError::Other(ca)),
                "the server uses the certificate of a CA as its own",
                "--ca-file",
            ),
            (
                InvalidCertificate(CertificateError::UnknownIssuer),
                "--ca-file",
                "renew",
            ),
            (
                AlertReceived(AlertDescription::UnknownCA),
                "refused the client certificate; set another one with `--client-cert`",
                "may require",
            ),
            (
                AlertReceived(AlertDescription::CertificateRequired),
                "may require a client certificate",
                "refused",
            ),
            (
                AlertReceived(AlertDescription::ProtocolVersion),
                "TLS 1.2 or 1.3",
                "--client-cert",
            ),
        ] {
            let text = describe(&error);
            assert!(text.contains(fix) && !text.contains(other), "{text}");
        }
    }

    #[test]
    fn files_that_cannot_be_used_are_named_with_what_they_lack() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let loaded = |trust, identity| {
            let error = TlsConfig::load(&TlsSettings { trust, identity }).unwrap_err();
            error.to_string()
        };
        let text = file("text.pem", "no certificate\n");
        let error = loaded(Trust::File(text.clone()), None);
        assert!(
            error.ends_with("text.pem` has no certificate in PEM form"),
            "{error}"
        );
        let error = loaded(Trust::File("/no/such.pem".into()), None);
        assert!(error.starts_with("`/no/such.pem` cannot be read: "), "{error}");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let error = loaded(Trust::File(file("broken.pem", broken)), None);
        assert!(
            error.contains("broken.pem` has an invalid certificate"),
            "{error}"
        );
        let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let other = rcgen::KeyPair::generate().unwrap();
        let certificate = file("client.pem", &signed.cert.pem());
        let identity = |key| {
            Some(ClientIdentity {
                certificate: certificate.clone(),
                key,
            })
        };
        let error = loaded(Trust::Any, identity(text));
        assert!(
            error.ends_with("text.pem` has no private key in PEM form"),
            "{error}"
        );
        let error = loaded(Trust::Any, identity(file("other.pem", &other.serialize_pem())));
        assert!(error.contains("do not belong together"), "{error}");
        let own = file("own.pem", &signed.signing_key.serialize_pem());
        let settings = TlsSettings {
            trust: Trust::File(certificate.clone()),
            identity: identity(own),
        };
        assert!(
            TlsConfig::load(&settings)
                .unwrap()
                .client_config()
                .client_auth_cert_resolver
                .has_certs()
        );
    }
}
