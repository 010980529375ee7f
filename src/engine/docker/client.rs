//! Connection to a container daemon.

use std::path::Path;

use bollard::errors::Error;
use bollard::models::SystemVersion;
use bollard::{API_DEFAULT_VERSION, Docker};

use crate::engine::docker::errors;
use crate::engine::docker::host::{Address, Keys, Whereabouts};
use crate::engine::docker::refused::{Refused, words};

/// Timeout until the daemon begins an answer, in seconds.
const ANSWER: u64 = 120;

/// How often a connection that the daemon closed without an answer is tried. A daemon that rejects our
/// certificate closes the connection after the TLS handshake; the alert with the reason can be lost then, and
/// another try may receive it.
const TRIES: u32 = 5;

#[derive(Clone, Debug)]
pub(super) struct Daemon {
    pub(super) docker: Docker,
    pub(super) address: Address,
    pub(super) is_podman: bool,
}

impl Daemon {
    /// Connects and negotiates the API version.
    pub(super) async fn connect(whereabouts: &Whereabouts) -> Result<Self, Refused> {
        Self::at(Address::of(whereabouts)?).await
    }

    pub(super) async fn at(address: Address) -> Result<Self, Refused> {
        let refused = |error: Error| Refused::of("connect", &error).at(address.to_string());
        let mut tries = 1;
        let docker = loop {
            let docker = match &address {
                Address::Unix(path) => Docker::connect_with_unix(path, ANSWER, API_DEFAULT_VERSION),
                Address::Tcp(at) => Docker::connect_with_http(at, ANSWER, API_DEFAULT_VERSION),
                Address::Tls(at, keys) => secured(at, keys),
            };
            match docker.map_err(refused)?.negotiate_version().await {
                Ok(docker) => break docker,
                Err(error) if tries < TRIES && errors::is_hung_up(&words(&error)) => tries += 1,
                Err(error) => return Err(refused(error)),
            }
        };
        let version = docker.version().await.map_err(refused)?;
        Ok(Self {
            is_podman: is_podman(&version),
            docker,
            address,
        })
    }
}

/// A client that speaks TLS. It trusts the system's authorities besides the given one.
fn secured(at: &str, keys: &Keys) -> Result<Docker, Error> {
    // An empty file stands for "no additional authority" and "no client certificate".
    let nothing = || Path::new("/dev/null");
    let ca = keys.ca.as_deref().unwrap_or_else(nothing);
    let (cert, key) = match &keys.client {
        Some((cert, key)) => (cert.as_path(), key.as_path()),
        None => (nothing(), nothing()),
    };
    // It fails only if a provider is already installed, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Docker::connect_with_ssl(at, key, cert, ca, ANSWER, API_DEFAULT_VERSION)
}

fn is_podman(version: &SystemVersion) -> bool {
    let mut components = version.components.iter().flatten();
    components.any(|component| component.name.to_ascii_lowercase().contains("podman"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_daemon_that_is_not_there_is_named_with_a_mend() {
        let refused = Daemon::connect(&Whereabouts::at("unix:///no/such/docker.sock"))
            .await
            .unwrap_err();
        let text = refused.to_string();
        assert!(
            text.contains("no container daemon is there at unix:///no/such/docker.sock"),
            "{text}"
        );
        assert!(text.contains("systemctl start docker"), "{text}");
        let closed = Daemon::connect(&Whereabouts::at("tcp://127.0.0.1:1"))
            .await
            .unwrap_err();
        assert!(closed.to_string().contains("does not answer"), "{closed}");
    }
}
