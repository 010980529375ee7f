//! A container daemon: where it is, whether it answers, and what its refusals mean.

use std::error::Error as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::SystemVersion;
use bollard::{API_DEFAULT_VERSION, Docker};

use crate::engine::docker::errors::{self, Meaning};
use crate::results::record::cell::{FailureClass, Phase};

/// Where Docker listens unless DOCKER_HOST says otherwise.
const SOCKET: &str = "/var/run/docker.sock";

/// Seconds until an answer of the daemon must have begun.
const ANSWER: u64 = 120;

/// How long the last request of a start that was dropped may take.
const PARTING: Duration = Duration::from_secs(10);

/// Where a daemon listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    Unix(String),
    Tcp(String),
}

impl Address {
    /// Reads what DOCKER_HOST says; where it says nothing, Docker's own socket.
    pub(super) fn of(host: Option<&str>) -> Result<Self, Refused> {
        let Some(host) = host.filter(|host| !host.is_empty()) else {
            return Ok(Self::Unix(SOCKET.to_owned()));
        };
        if let Some(path) = host.strip_prefix("unix://") {
            return Ok(Self::Unix(path.to_owned()));
        }
        let tcp = host
            .strip_prefix("tcp://")
            .or_else(|| host.strip_prefix("http://"));
        match tcp {
            Some(address) => Ok(Self::Tcp(address.trim_end_matches('/').to_owned())),
            None => Err(Refused::saying(
                "connect",
                format!("URI scheme is not supported: {host}"),
            )),
        }
    }

    /// Whether the daemon shares this host's folders and ports, as far as an address tells.
    pub(super) const fn is_local(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// The host whose ports are those of the daemon's containers.
    pub(super) fn host(&self) -> String {
        match self {
            Self::Unix(_) => "127.0.0.1".to_owned(),
            Self::Tcp(address) => address
                .rsplit_once(':')
                .map_or(address.as_str(), |(host, _)| host)
                .to_owned(),
        }
    }

    /// Removes a container at once. It blocks, for it serves a `drop`, and says nothing: whatever it leaves the next sweep finds.
    pub(super) fn remove_now(&self, id: &str) {
        let request = format!("DELETE /containers/{id}?force=true&v=true HTTP/1.0\r\nHost: docker\r\n\r\n");
        let ask = |mut stream: Box<dyn Wire>| {
            let mut answer = Vec::new();
            stream
                .write_all(request.as_bytes())
                .and_then(|()| stream.read_to_end(&mut answer))
        };
        let _ = match self {
            Self::Unix(path) => UnixStream::connect(path).and_then(|stream| {
                stream.set_read_timeout(Some(PARTING))?;
                ask(Box::new(stream))
            }),
            Self::Tcp(address) => TcpStream::connect(address).and_then(|stream| {
                stream.set_read_timeout(Some(PARTING))?;
                ask(Box::new(stream))
            }),
        };
    }
}

/// What can be written to and read from.
trait Wire: Read + Write {}
impl<S: Read + Write> Wire for S {}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{path}"),
            Self::Tcp(address) => write!(f, "tcp://{address}"),
        }
    }
}

/// A daemon that answered.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    pub(super) docker: Docker,
    pub(super) address: Address,
    /// Whether it is Podman behind Docker's API.
    pub(super) is_podman: bool,
}

impl Daemon {
    /// Connects and agrees on a version of the API.
    pub(super) async fn connect(host: Option<&str>) -> Result<Self, Refused> {
        let address = Address::of(host)?;
        let refused = |error: Error| Refused {
            address: Some(address.to_string()),
            ..Refused::of("connect", &error)
        };
        let docker = match &address {
            Address::Unix(path) => Docker::connect_with_unix(path, ANSWER, API_DEFAULT_VERSION),
            Address::Tcp(at) => Docker::connect_with_http(at, ANSWER, API_DEFAULT_VERSION),
        };
        let docker = docker
            .map_err(refused)?
            .negotiate_version()
            .await
            .map_err(refused)?;
        let version = docker.version().await.map_err(refused)?;
        Ok(Self {
            is_podman: is_podman(&version),
            docker,
            address,
        })
    }
}

fn is_podman(version: &SystemVersion) -> bool {
    let mut components = version.components.iter().flatten();
    components.any(|component| component.name.to_ascii_lowercase().contains("podman"))
}

/// What a daemon refused, explained.
#[derive(Debug)]
pub struct Refused {
    /// What was asked of it, such as `create`.
    pub(super) step: &'static str,
    /// Its own text.
    pub(super) raw: String,
    /// What that means.
    pub(super) meaning: Box<Meaning>,
    /// Where the daemon is, where that matters.
    address: Option<String>,
}

impl Refused {
    pub(super) fn of(step: &'static str, error: &Error) -> Self {
        Self::saying(step, words(error))
    }

    /// What these words of a daemon mean, said at a step such as `create`.
    pub fn saying(step: &'static str, raw: String) -> Self {
        Self {
            step,
            meaning: Box::new(errors::read(&raw)),
            raw,
            address: None,
        }
    }

    /// Where a start failed by it.
    pub(crate) const fn phase(&self) -> Phase {
        match self.meaning.class {
            FailureClass::Image => Phase::Install,
            _ => Phase::Launch,
        }
    }

    /// Whose fault it is.
    pub(crate) const fn class(&self) -> FailureClass {
        self.meaning.class
    }

    /// The same without secrets, which a daemon may quote.
    pub(super) fn redacted(mut self, redactor: &crate::base::secrets::Redactor) -> Self {
        self.raw = redactor.redact(&self.raw).into_owned();
        self.meaning.what = redactor.redact(&self.meaning.what).into_owned();
        self
    }

    /// What is wrong, with its place.
    pub(super) fn what(&self) -> String {
        let place = self
            .meaning
            .place
            .map_or_else(String::new, |place| format!(" (`{place}` of the recipe)"));
        let address = self
            .address
            .as_ref()
            .map_or_else(String::new, |address| format!(" at {address}"));
        format!("{}{address}{place}", self.meaning.what)
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}; {}; the daemon says at `{}`: {}",
            self.what(),
            self.meaning.help,
            self.step,
            self.raw.trim()
        )
    }
}

impl std::error::Error for Refused {}

/// An error with all its causes; of a daemon's answer only what the daemon says.
pub(super) fn words(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.clone(),
        Error::DockerStreamError { error } => error.clone(),
        other => {
            let mut text = other.to_string();
            let mut cause = other.source();
            while let Some(error) = cause {
                let more = error.to_string();
                if !text.contains(&more) {
                    text.push_str(": ");
                    text.push_str(&more);
                }
                cause = error.source();
            }
            text
        }
    }
}

/// Whether the daemon says that it knows no such thing.
pub(super) const fn is_missing(error: &Error) -> bool {
    matches!(error, Error::DockerResponseServerError { status_code: 404, .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_docker_host_writes_it() {
        let of = |host| Address::of(host).ok();
        assert_eq!(of(None), Some(Address::Unix("/var/run/docker.sock".into())));
        assert_eq!(of(Some("unix:///x")), Some(Address::Unix("/x".into())));
        assert_eq!(of(Some("tcp://h:2375/")), Some(Address::Tcp("h:2375".into())));
        let refused = Address::of(Some("ssh://h")).unwrap_err();
        assert!(refused.to_string().contains("unix:///path"), "{refused}");
    }

    #[tokio::test]
    async fn a_daemon_that_is_not_there_is_named_with_a_mend() {
        let refused = Daemon::connect(Some("unix:///no/such/docker.sock"))
            .await
            .unwrap_err();
        let text = refused.to_string();
        assert!(
            text.contains("no container daemon is there at unix:///no/such/docker.sock"),
            "{text}"
        );
        assert!(text.contains("systemctl start docker"), "{text}");
        let closed = Daemon::connect(Some("tcp://127.0.0.1:1")).await.unwrap_err();
        assert!(closed.to_string().contains("does not answer"), "{closed}");
    }
}
