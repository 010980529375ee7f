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
use crate::engine::docker::refused::Refused;

/// Docker's default socket.
const SOCKET: &str = "/var/run/docker.sock";

/// The name of the context that stands for DOCKER_HOST or the default socket.
const DEFAULT: &str = "default";

/// Read timeout of the removal in `Drop`. It is short enough that, after a second signal, the command can
/// still name the remaining containers within its ten seconds.
const PARTING: Duration = Duration::from_secs(6);

/// Environment settings of Docker's own client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    /// DOCKER_HOST: address of the daemon. It overrides every context.
    pub host: Option<String>,
    pub context: Option<String>,
    /// Folder of the client's configuration: DOCKER_CONFIG, else `~/.docker`.
    pub config: Option<PathBuf>,
    /// DOCKER_TLS_VERIFY: use TLS for the daemon at DOCKER_HOST.
    pub tls_verify: bool,
    /// DOCKER_TLS: the same, without verifying the daemon's certificate.
    pub tls: bool,
    /// DOCKER_CERT_PATH: folder of `ca.pem`, `cert.pem` and `key.pem`; defaults to the folder of the
    /// configuration.
    pub cert_path: Option<PathBuf>,
    /// `PATH` in which credential helpers are looked up.
    pub path: Option<String>,
}

impl Whereabouts {
    /// A daemon at an address, and nothing else.
    #[cfg(test)]
    pub(crate) fn at(host: impl Into<String>) -> Self {
        Self {
            host: Some(host.into()),
            ..Self::default()
        }
    }
}

impl Whereabouts {
    /// Whether a daemon should exist: one is named, or the default socket exists.
    pub(super) fn is_expected(&self) -> bool {
        let is_named = self.host.as_ref().is_some_and(|host| !host.is_empty());
        is_named
            || match Address::of(self) {
                Ok(Address::Unix(path)) if path == SOCKET => Path::new(SOCKET).exists(),
                _ => true,
            }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Unix(String),
    Tcp(String),
    Tls(String, Keys),
}

/// Certificates of a TLS connection to a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Keys {
    /// Authority that signed the daemon's certificate; the system's authorities if absent.
    pub(super) ca: Option<PathBuf>,
    /// Our certificate and its key, if the daemon requires one.
    pub(super) client: Option<(PathBuf, PathBuf)>,
}

impl Keys {
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
        let unfit = |file: &Path, reason: String| Err(format!("{} cannot be used: {reason}", file.display()));
        let certificates = self.ca.iter().chain(self.client.as_ref().map(|(cert, _)| cert));
        for file in certificates {
            match CertificateDer::pem_file_iter(file).map(|mut all| all.next()) {
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(error))) | Err(error) => return unfit(file, error.to_string()),
                Ok(None) => return unfit(file, "it holds no certificate".to_owned()),
            }
        }
        if let Some((_, key)) = &self.client
            && let Err(error) = PrivateKeyDer::from_pem_file(key)
        {
            return unfit(key, error.to_string());
        }
        Ok(())
    }
}

impl Address {
    pub(super) fn of(whereabouts: &Whereabouts) -> Result<Self, Refused> {
        let environment = |host: &str| {
            let secured = (whereabouts.tls_verify || whereabouts.tls).then(|| {
                let folder = whereabouts.cert_path.as_ref().or(whereabouts.config.as_ref());
                folder.map(|folder| Keys::in_folder(folder)).unwrap_or_default()
            });
            let verifies = whereabouts.tls_verify || !whereabouts.tls;
            (host.to_owned(), secured, verifies)
        };
        if let Some(host) = whereabouts.host.as_deref().filter(|host| !host.is_empty()) {
            let (host, keys, verifies) = environment(host);
            return Self::parse(&host, keys, verifies);
        }
        let named = match whereabouts.context.clone() {
            Some(context) => Some(context),
            None => {
                let config = config::read(whereabouts.config.as_deref()).map_err(unreadable)?;
                config.current_context
            }
        };
        match named.filter(|name| !name.is_empty() && name != DEFAULT) {
            None => Ok(Self::Unix(SOCKET.to_owned())),
            Some(name) => Self::of_context(&name, whereabouts.config.as_deref()),
        }
    }

    fn of_context(name: &str, config: Option<&Path>) -> Result<Self, Refused> {
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
                return Err(Refused::saying("connect", raw));
            }
            Err(error) => return Err(unreadable(format!("{}: {error}", file.display()))),
        };
        let meta: Meta = serde_json::from_slice(&text)
            .map_err(|error| unreadable(format!("{}: {error}", file.display())))?;
        let endpoint = meta.endpoints.docker;
        let keys = Keys::in_folder(&contexts.join("tls").join(&digest).join("docker"));
        // As in Docker's client: a context with neither certificates nor `SkipTLSVerify` uses plain HTTP.
        let is_secured = keys != Keys::default() || endpoint.skip_tls_verify;
        Self::parse(
            &endpoint.host,
            is_secured.then_some(keys),
            !endpoint.skip_tls_verify,
        )
    }

    fn parse(host: &str, keys: Option<Keys>, verifies: bool) -> Result<Self, Refused> {
        if host.is_empty() {
            return Ok(Self::Unix(SOCKET.to_owned()));
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
                    return Err(Refused::saying("connect", raw));
                }
            },
        };
        let keys = keys.or_else(|| is_https.then(Keys::default));
        let at = with_port(at.trim_end_matches('/'), keys.is_some());
        let Some(keys) = keys else {
            return Ok(Self::Tcp(at));
        };
        if !verifies {
            let raw = format!("TLS without a look at who answers is not spoken: {at}");
            return Err(Refused::saying("connect", raw));
        }
        keys.check()
            .map_err(|reason| Refused::saying("connect", format!("certificate file {reason}")))?;
        Ok(Self::Tls(at, keys))
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
        let ask = |mut stream: Box<dyn Wire>| {
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
            stream.set_read_timeout(Some(PARTING))?;
            io::Result::Ok(stream)
        };
        let answer = match self {
            Self::Unix(path) => UnixStream::connect(path).and_then(|stream| {
                stream.set_read_timeout(Some(PARTING))?;
                ask(Box::new(stream))
            }),
            Self::Tcp(at) => reach(at).and_then(|stream| ask(Box::new(stream))),
            Self::Tls(at, keys) => {
                let secured = reach(at).and_then(|stream| secured(stream, &self.host(), keys));
                secured.and_then(|stream| ask(Box::new(stream)))
            }
        };
        let answer = answer.map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("the container daemon at {self} does not answer")
            }
            _ => format!("the container daemon at {self}: {error}"),
        })?;
        let answer = String::from_utf8_lossy(&answer);
        match answer.split_whitespace().nth(1) {
            // 204: removed. 404: it does not exist.
            Some("204" | "404") => Ok(()),
            _ => Err(format!(
                "the container daemon at {self} says: {}",
                answer.lines().next_back().unwrap_or_default().trim()
            )),
        }
    }
}

/// TLS over a blocking connection.
fn secured(
    stream: TcpStream,
    host: &str,
    keys: &Keys,
) -> io::Result<StreamOwned<ClientConnection, TcpStream>> {
    let mut roots = RootCertStore::empty();
    match &keys.ca {
        Some(file) => {
            let all = CertificateDer::pem_file_iter(file).map_err(io::Error::other)?;
            roots.add_parsable_certificates(all.flatten());
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
    let config = match &keys.client {
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

fn unreadable(reason: String) -> Refused {
    Refused::saying("connect", format!("Docker's configuration: {reason}"))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Meta {
    endpoints: Endpoints,
}

#[derive(Deserialize)]
struct Endpoints {
    docker: Endpoint,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[derive(Default)]
struct Endpoint {
    host: String,
    #[serde(rename = "SkipTLSVerify")]
    skip_tls_verify: bool,
}

trait Wire: Read + Write {}
impl<S: Read + Write> Wire for S {}

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
        let of = |host: &str| Address::of(&Whereabouts::at(host)).ok();
        assert_eq!(
            Address::of(&Whereabouts::default()).ok(),
            Some(Address::Unix("/var/run/docker.sock".into()))
        );
        assert_eq!(of(""), Some(Address::Unix("/var/run/docker.sock".into())));
        assert_eq!(of("unix:///x"), Some(Address::Unix("/x".into())));
        assert_eq!(of("tcp://h:2375/"), Some(Address::Tcp("h:2375".into())));
        assert_eq!(of("tcp://h"), Some(Address::Tcp("h:2375".into())));
        assert_eq!(of("tcp://[::1]"), Some(Address::Tcp("[::1]:2375".into())));
        assert_eq!(
            of("https://h"),
            Some(Address::Tls("h:2376".into(), Keys::default()))
        );
        let refused = Address::of(&Whereabouts::at("ssh://h")).unwrap_err();
        assert!(refused.to_string().contains("unix:///path"), "{refused}");
    }

    #[test]
    fn a_context_is_taken_unless_docker_host_is_set() {
        let folder = with_context("lab", r#"{"Host":"tcp://gpu1:2375","SkipTLSVerify":false}"#);
        let config = folder.path().join("config.json");
        let mut there = Whereabouts {
            config: Some(folder.path().to_owned()),
            ..Whereabouts::default()
        };
        assert_eq!(Address::of(&there).unwrap(), Address::Unix(SOCKET.into()));
        std::fs::write(&config, r#"{"currentContext": "lab"}"#).unwrap();
        let lab = Address::Tcp("gpu1:2375".into());
        assert_eq!(Address::of(&there).unwrap(), lab);
        there.context = Some("default".into());
        assert_eq!(Address::of(&there).unwrap(), Address::Unix(SOCKET.into()));
        std::fs::write(&config, "{}").unwrap();
        there.context = Some("lab".into());
        assert_eq!(Address::of(&there).unwrap(), lab);
        there.host = Some("unix:///mine".into());
        assert_eq!(Address::of(&there).unwrap(), Address::Unix("/mine".into()));
    }

    #[test]
    fn what_cannot_be_reached_says_how_to_mend_it() {
        let says = |endpoint: &str, context: &str, parts: &[&str]| {
            let folder = with_context("lab", endpoint);
            let there = Whereabouts {
                context: Some(context.into()),
                config: Some(folder.path().to_owned()),
                ..Whereabouts::default()
            };
            let refused = Address::of(&there).unwrap_err().to_string();
            for part in parts {
                assert!(refused.contains(part), "{refused}");
            }
        };
        says(r#"{"Host":"ssh://lab"}"#, "lab", &["ssh -L"]);
        says(r#"{"Host":"tcp://h"}"#, "lob", &["`lob`", "docker context ls"]);
        says(r#"{"Host":7}"#, "lab", &["meta.json"]);
        says(
            r#"{"Host":"tcp://h","SkipTLSVerify":true}"#,
            "lab",
            &["look at who answers", "ca.pem"],
        );
    }

    #[test]
    fn a_certificate_that_is_none_is_named_before_anything_is_asked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        std::fs::write(&file, "nothing").unwrap();
        let there = Whereabouts {
            tls_verify: true,
            cert_path: Some(folder.path().to_owned()),
            ..Whereabouts::at("tcp://h")
        };
        let refused = Address::of(&there).unwrap_err().to_string();
        assert!(refused.contains(&file.display().to_string()), "{refused}");
        assert!(refused.contains("DOCKER_CERT_PATH"), "{refused}");
    }
}
