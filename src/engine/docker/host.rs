//! Finds the container daemon as Docker's own client does: DOCKER_HOST, else the context that DOCKER_CONTEXT
//! or `docker context use` selects, else the default socket; with certificates if it uses TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::engine::docker::config;
use crate::engine::docker::docker_error::DockerError;

const DEFAULT_SOCKET: &str = "/var/run/docker.sock";

/// The name of the context that stands for DOCKER_HOST or the default socket.
const DEFAULT_CONTEXT: &str = "default";

/// Read timeout of the removal in `Drop`. It is short enough that, after a second signal, the command can
/// still name the remaining containers within its ten seconds.
const REMOVE_ON_DROP_TIMEOUT: Duration = Duration::from_secs(6);

/// Environment settings of Docker's own client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DockerEnv {
    /// DOCKER_HOST: address of the daemon. It overrides every context.
    pub(crate) host: Option<String>,
    pub(crate) context: Option<String>,
    /// Folder of the client's configuration: DOCKER_CONFIG, else `~/.docker`.
    pub(crate) config: Option<PathBuf>,
    /// DOCKER_TLS_VERIFY: use TLS for the daemon at DOCKER_HOST.
    pub(crate) tls_verify: bool,
    /// DOCKER_TLS: the same, without verifying the daemon's certificate.
    pub(crate) tls: bool,
    /// DOCKER_CERT_PATH: folder of `ca.pem`, `cert.pem` and `key.pem`; defaults to the folder of the
    /// configuration.
    pub(crate) cert_path: Option<PathBuf>,
    /// `PATH` in which credential helpers are looked up.
    pub(crate) path: Option<String>,
}

impl DockerEnv {
    /// A daemon at an address, and nothing else.
    #[cfg(test)]
    pub(crate) fn with_host(host: impl Into<String>) -> Self {
        Self {
            host: Some(host.into()),
            ..Self::default()
        }
    }
}

impl DockerEnv {
    /// Whether a daemon should exist: one is named, or the default socket exists.
    pub(super) fn is_expected(&self) -> bool {
        let is_named = self.host.as_ref().is_some_and(|host| !host.is_empty());
        is_named
            || match Address::resolve(self) {
                Ok(Address::Unix(path)) if path == DEFAULT_SOCKET => Path::new(DEFAULT_SOCKET).exists(),
                _ => true,
            }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Unix(String),
    Tcp(String),
    Tls(String, TlsFiles),
}

/// Certificates of a TLS connection to a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsFiles {
    /// Authority that signed the daemon's certificate; the system's authorities if absent.
    pub(super) ca: Option<PathBuf>,
    /// Our certificate and its key, if the daemon requires one.
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    /// The files of a folder with Docker's default names, as far as they exist.
    fn in_folder(folder: &Path) -> Self {
        let there = |name: &str| Some(folder.join(name)).filter(|file| file.exists());
        Self {
            ca: there("ca.pem"),
            client: there("cert.pem").zip(there("key.pem")),
        }
    }

    /// Fails with the file that cannot be used, and the reason.
    fn check(&self) -> Result<(), String> {
        let unusable =
            |file: &Path, reason: String| Err(format!("{} cannot be used: {reason}", file.display()));
        let certificates = self.ca.iter().chain(self.client.as_ref().map(|(cert, _)| cert));
        for file in certificates {
            match CertificateDer::pem_file_iter(file).map(|mut certs| certs.next()) {
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(error))) | Err(error) => return unusable(file, error.to_string()),
                Ok(None) => return unusable(file, "it contains no certificate".to_owned()),
            }
        }
        if let Some((_, key)) = &self.client
            && let Err(error) = PrivateKeyDer::from_pem_file(key)
        {
            return unusable(key, error.to_string());
        }
        Ok(())
    }
}

impl Address {
    pub(super) fn resolve(docker_env: &DockerEnv) -> Result<Self, DockerError> {
        let environment = |host: &str| {
            let secured = (docker_env.tls_verify || docker_env.tls).then(|| {
                let folder = docker_env.cert_path.as_ref().or(docker_env.config.as_ref());
                folder
                    .map(|folder| TlsFiles::in_folder(folder))
                    .unwrap_or_default()
            });
            let verifies = docker_env.tls_verify || !docker_env.tls;
            (host.to_owned(), secured, verifies)
        };
        if let Some(host) = docker_env.host.as_deref().filter(|host| !host.is_empty()) {
            let (host, files, verifies) = environment(host);
            return Self::parse(&host, files, verifies);
        }
        let named = match docker_env.context.clone() {
            Some(context) => Some(context),
            None => {
                let config = config::read(docker_env.config.as_deref()).map_err(context_error)?;
                config.current_context
            }
        };
        match named.filter(|name| !name.is_empty() && name != DEFAULT_CONTEXT) {
            None => Ok(Self::Unix(DEFAULT_SOCKET.to_owned())),
            Some(name) => Self::from_context(&name, docker_env.config.as_deref()),
        }
    }

    fn from_context(name: &str, config: Option<&Path>) -> Result<Self, DockerError> {
        let contexts = config.unwrap_or(Path::new("")).join("contexts");
        // The folder of a context is named by the digest of the context's name.
        let digest: String = Sha256::digest(name.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let file = contexts.join("meta").join(&digest).join("meta.json");
        let text = match std::fs::read(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let raw = format!("no Docker context `{name}` in {}", contexts.display());
                return Err(DockerError::from_message("connect", raw));
            }
            Err(error) => return Err(context_error(format!("{}: {error}", file.display()))),
        };
        let meta: ContextFile = serde_json::from_slice(&text)
            .map_err(|error| context_error(format!("{}: {error}", file.display())))?;
        let endpoint = meta.endpoints.docker;
        let files = TlsFiles::in_folder(&contexts.join("tls").join(&digest).join("docker"));
        // As in Docker's client: a context with neither certificates nor `SkipTLSVerify` uses plain HTTP.
        let is_secured = files != TlsFiles::default() || endpoint.skip_tls_verify;
        Self::parse(
            &endpoint.host,
            is_secured.then_some(files),
            !endpoint.skip_tls_verify,
        )
    }

    fn parse(host: &str, files: Option<TlsFiles>, verifies: bool) -> Result<Self, DockerError> {
        if host.is_empty() {
            return Ok(Self::Unix(DEFAULT_SOCKET.to_owned()));
        }
        if let Some(path) = host.strip_prefix("unix://") {
            return Ok(Self::Unix(path.to_owned()));
        }
        let (at, is_https) = match (host.strip_prefix("tcp://"), host.strip_prefix("https://")) {
            (Some(at), _) => (at, false),
            (None, Some(at)) => (at, true),
            (None, None) => match host.strip_prefix("http://") {
                Some(at) => (at, false),
                None => {
                    let raw = format!("URI scheme is not supported: {host}");
                    return Err(DockerError::from_message("connect", raw));
                }
            },
        };
        let files = files.or_else(|| is_https.then(TlsFiles::default));
        let at = with_port(at.trim_end_matches('/'), files.is_some());
        let Some(files) = files else {
            return Ok(Self::Tcp(at));
        };
        if !verifies {
            let raw = format!("TLS without certificate verification is not supported: {at}");
            return Err(DockerError::from_message("connect", raw));
        }
        files
            .check()
            .map_err(|reason| DockerError::from_message("connect", format!("certificate file {reason}")))?;
        Ok(Self::Tls(at, files))
    }

    /// Whether the daemon shares this host's folders and ports, judged by the address.
    pub(super) const fn is_local(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// The host on which published ports of the daemon's containers are reachable.
    pub(super) fn host(&self) -> String {
        match self {
            Self::Unix(_) => "127.0.0.1".to_owned(),
            Self::Tcp(at) | Self::Tls(at, _) => at
                .rsplit_once(':')
                .map_or(at.as_str(), |(host, _)| host)
                .to_owned(),
        }
    }

    /// Removes a container. Blocks, because it is called from `drop`.
    ///
    /// Fails with the reason that the state of the container is unknown.
    pub(super) fn remove_now(&self, id: &str) -> Result<(), String> {
        let request = format!("DELETE /containers/{id}?force=true&v=true HTTP/1.0\r\nHost: docker\r\n\r\n");
        let ask = |mut stream: Box<dyn ReadWrite>| {
            let mut answer = Vec::new();
            stream.write_all(request.as_bytes())?;
            match stream.read_to_end(&mut answer) {
                // A TLS peer may close the connection without `close_notify`.
                Err(error) if answer.is_empty() => Err(error),
                _ => Ok(answer),
            }
        };
        let reach = |at: &str| {
            let stream = TcpStream::connect(at)?;
            stream.set_read_timeout(Some(REMOVE_ON_DROP_TIMEOUT))?;
            io::Result::Ok(stream)
        };
        let answer = match self {
            Self::Unix(path) => UnixStream::connect(path).and_then(|stream| {
                stream.set_read_timeout(Some(REMOVE_ON_DROP_TIMEOUT))?;
                ask(Box::new(stream))
            }),
            Self::Tcp(at) => reach(at).and_then(|stream| ask(Box::new(stream))),
            Self::Tls(at, files) => {
                let secured = reach(at).and_then(|stream| tls_stream(stream, &self.host(), files));
                secured.and_then(|stream| ask(Box::new(stream)))
            }
        };
        let answer = answer.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("the container daemon at {self} does not respond")
            }
            _ => format!("the request to the container daemon at {self} failed: {error}"),
        })?;
        let answer = String::from_utf8_lossy(&answer);
        match answer.split_whitespace().nth(1) {
            // 204: removed. 404: it does not exist.
            Some("204" | "404") => Ok(()),
            _ => Err(format!(
                "the container daemon at {self} responds: {}",
                answer.lines().next_back().unwrap_or_default().trim()
            )),
        }
    }
}

/// TLS over a blocking connection.
fn tls_stream(
    stream: TcpStream,
    host: &str,
    files: &TlsFiles,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    match &files.ca {
        Some(file) => {
            let certs = CertificateDer::pem_file_iter(file).map_err(io::Error::other)?;
            roots.add_parsable_certificates(certs.flatten());
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots);
    let config = match &files.client {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let chain = CertificateDer::pem_file_iter(cert).map_err(io::Error::other)?;
            let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
            builder
                .with_client_auth_cert(chain.flatten().collect(), key)
                .map_err(io::Error::other)?
        }
    };
    let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(StreamOwned::new(connection, stream))
}

/// Adds Docker's default port if `at` has none.
fn with_port(at: &str, is_secured: bool) -> String {
    let after_host = at.rsplit(']').next().unwrap_or(at);
    match (after_host.contains(':'), is_secured) {
        (true, _) => at.to_owned(),
        (false, true) => format!("{at}:2376"),
        (false, false) => format!("{at}:2375"),
    }
}

fn context_error(reason: String) -> DockerError {
    DockerError::from_message("connect", format!("Docker's configuration: {reason}"))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContextFile {
    endpoints: ContextEndpoints,
}

#[derive(Deserialize)]
struct ContextEndpoints {
    docker: ContextEndpoint,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct ContextEndpoint {
    host: String,
    #[serde(rename = "SkipTLSVerify")]
    skip_tls_verify: bool,
}

trait ReadWrite: Read + Write {}
impl<S: Read + Write> ReadWrite for S {}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{path}"),
            Self::Tcp(at) => write!(f, "tcp://{at}"),
            Self::Tls(at, _) => write!(f, "tcp://{at} (TLS)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration folder with one context named `name`.
    fn with_context(name: &str, endpoint: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let digest: String = Sha256::digest(name.as_bytes())
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let meta = folder.path().join("contexts/meta").join(digest);
        std::fs::create_dir_all(&meta).unwrap();
        let text = format!(r#"{{"Name":"{name}","Metadata":{{}},"Endpoints":{{"docker":{endpoint}}}}}"#);
        std::fs::write(meta.join("meta.json"), text).unwrap();
        folder
    }

    #[test]
    fn an_address_is_read_as_docker_host_writes_it() {
        let parsed = |host: &str| Address::resolve(&DockerEnv::with_host(host)).ok();
        assert_eq!(
            Address::resolve(&DockerEnv::default()).ok(),
            Some(Address::Unix("/var/run/docker.sock".into()))
        );
        assert_eq!(parsed(""), Some(Address::Unix("/var/run/docker.sock".into())));
        assert_eq!(parsed("unix:///x"), Some(Address::Unix("/x".into())));
        assert_eq!(parsed("tcp://h:2375/"), Some(Address::Tcp("h:2375".into())));
        assert_eq!(parsed("tcp://h"), Some(Address::Tcp("h:2375".into())));
        assert_eq!(parsed("tcp://[::1]"), Some(Address::Tcp("[::1]:2375".into())));
        assert_eq!(
            parsed("https://h"),
            Some(Address::Tls("h:2376".into(), TlsFiles::default()))
        );
        let docker_error = Address::resolve(&DockerEnv::with_host("ssh://h")).unwrap_err();
        assert!(
            docker_error.to_string().contains("unix:///path"),
            "{docker_error}"
        );
    }

    #[test]
    fn a_context_is_taken_unless_docker_host_is_set() {
        let folder = with_context("lab", r#"{"Host":"tcp://gpu1:2375","SkipTLSVerify":false}"#);
        let config = folder.path().join("config.json");
        let mut docker_env = DockerEnv {
            config: Some(folder.path().to_owned()),
            ..DockerEnv::default()
        };
        assert_eq!(
            Address::resolve(&docker_env).unwrap(),
            Address::Unix(DEFAULT_SOCKET.into())
        );
        std::fs::write(&config, r#"{"currentContext": "lab"}"#).unwrap();
        let lab = Address::Tcp("gpu1:2375".into());
        assert_eq!(Address::resolve(&docker_env).unwrap(), lab);
        docker_env.context = Some("default".into());
        assert_eq!(
            Address::resolve(&docker_env).unwrap(),
            Address::Unix(DEFAULT_SOCKET.into())
        );
        std::fs::write(&config, "{}").unwrap();
        docker_env.context = Some("lab".into());
        assert_eq!(Address::resolve(&docker_env).unwrap(), lab);
        docker_env.host = Some("unix:///mine".into());
        assert_eq!(
            Address::resolve(&docker_env).unwrap(),
            Address::Unix("/mine".into())
        );
    }

    #[test]
    fn what_cannot_be_reached_says_how_to_mend_it() {
        let says = |endpoint: &str, context: &str, parts: &[&str]| {
            let folder = with_context("lab", endpoint);
            let docker_env = DockerEnv {
                context: Some(context.into()),
                config: Some(folder.path().to_owned()),
                ..DockerEnv::default()
            };
            let docker_error = Address::resolve(&docker_env).unwrap_err().to_string();
            for part in parts {
                assert!(docker_error.contains(part), "{docker_error}");
            }
        };
        says(r#"{"Host":"ssh://lab"}"#, "lab", &["ssh -L"]);
        says(r#"{"Host":"tcp://h"}"#, "lob", &["`lob`", "docker context ls"]);
        says(r#"{"Host":7}"#, "lab", &["meta.json"]);
        says(
            r#"{"Host":"tcp://h","SkipTLSVerify":true}"#,
            "lab",
            &["without certificate verification", "ca.pem"],
        );
    }

    #[test]
    fn a_certificate_that_is_none_is_named_before_anything_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, "nothing").unwrap();
        let docker_env = DockerEnv {
            tls_verify: true,
            cert_path: Some(folder.path().to_owned()),
            ..DockerEnv::with_host("tcp://h")
        };
        let docker_error = Address::resolve(&docker_env).unwrap_err().to_string();
        assert!(
            docker_error.contains(&file.display().to_string()),
            "{docker_error}"
        );
        assert!(docker_error.contains("DOCKER_CERT_PATH"), "{docker_error}");
    }
}
