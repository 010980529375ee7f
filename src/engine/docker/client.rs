//! The connection to a container daemon.

use std::path::Path;

use bollard::errors::Error;
use bollard::models::SystemVersion;
use bollard::{API_DEFAULT_VERSION, Docker};

use crate::engine::docker::errors;
use crate::engine::docker::host::{Address, Keys, Whereabouts};
use crate::engine::docker::refused::{Refused, words};

/// Seconds until an answer of the daemon must have begun.
const ANSWER: u64 = 120;

/// How often a daemon that hangs up at the first word is asked again. One that does not accept a certificate of ours says so only after
/// its own side of TLS is done, and hangs up: whoever asks at that moment hears no more than that.
const TRIES: u32 = 5;

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
    pub(super) async fn connect(whereabouts: &Whereabouts) -> Result<Self, Refused> {
        Self::at(Address::of(whereabouts)?).await
    }

    /// Connects to the daemon at an address.
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

/// A client that speaks TLS. It trusts the system's authorities beside the one that is named.
fn secured(at: &str, keys: &Keys) -> Result<Docker, Error> {
    // An empty file stands for what is not there: no further authority, no certificate of ours.
    let nothing = || Path::new("/dev/null");
    let ca = keys.ca.as_deref().unwrap_or_else(nothing);
    let (cert, key) = match &keys.client {
        Some((cert, key)) => (cert.as_path(), key.as_path()),
        None => (nothing(), nothing()),
    };
    // It fails only where a provider is installed already, which is as good.
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
