//! Connection to a container daemon.

use std::path::Path;

use bollard::errors::Error;
use bollard::models::SystemVersion;
use bollard::{API_DEFAULT_VERSION, Docker};

use crate::engine::docker::docker_error::{DockerError, error_text};
use crate::engine::docker::errors;
use crate::engine::docker::host::{Address, DockerEnv, TlsFiles};

/// Timeout until the daemon begins an answer, in seconds.
const ANSWER_TIMEOUT_S: u64 = 120;

/// How often a connection that the daemon closed without an answer is tried. A daemon that rejects our
/// certificate closes the connection after the TLS handshake; the alert with the reason can be lost then, and
/// another try may receive it.
const MAX_ATTEMPTS: u32 = 5;

#[derive(Clone, Debug)]
pub(super) struct Daemon {
    pub(super) docker: Docker,
    pub(super) address: Address,
    pub(super) is_podman: bool,
}

impl Daemon {
    /// Connects and negotiates the API version.
    pub(super) async fn connect(docker_env: &DockerEnv) -> Result<Self, DockerError> {
        Self::connect_to(Address::resolve(docker_env)?).await
    }

    pub(super) async fn connect_to(address: Address) -> Result<Self, DockerError> {
        let with_address =
            |error: Error| DockerError::new("connect", &error).with_address(address.to_string());
        let mut tries = 1;
        let docker = loop {
            let docker = match &address {
                Address::Unix(path) => Docker::connect_with_unix(path, ANSWER_TIMEOUT_S, API_DEFAULT_VERSION),
                Address::Tcp(at) => Docker::connect_with_http(at, ANSWER_TIMEOUT_S, API_DEFAULT_VERSION),
                Address::Tls(at, files) => tls_client(at, files),
            };
            match docker.map_err(with_address)?.negotiate_version().await {
                Ok(docker) => break docker,
                Err(error) if tries < MAX_ATTEMPTS && errors::is_connection_closed(&error_text(&error)) => {
                    tries += 1
                }
                Err(error) => return Err(with_address(error)),
            }
        };
        let version = docker.version().await.map_err(with_address)?;
        Ok(Self {
            is_podman: is_podman(&version),
            docker,
            address,
        })
    }
}

/// A client that speaks TLS. It trusts the system's authorities besides the given one.
fn tls_client(at: &str, files: &TlsFiles) -> Result<Docker, Error> {
    // An empty file stands for "no additional authority" and "no client certificate".
    let nothing = || Path::new("/dev/null");
    let ca = files.ca.as_deref().unwrap_or_else(nothing);
    let (cert, key) = match &files.client {
        Some((cert, key)) => (cert.as_path(), key.as_path()),
        None => (nothing(), nothing()),
    };
    // It fails only if a provider is already installed, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Docker::connect_with_ssl(at, key, cert, ca, ANSWER_TIMEOUT_S, API_DEFAULT_VERSION)
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
        let docker_error = Daemon::connect(&DockerEnv::with_host("unix:///no/such/docker.sock"))
            .await
            .unwrap_err();
        let text = docker_error.to_string();
        assert!(
            text.contains("no container daemon was found at unix:///no/such/docker.sock"),
            "{text}"
        );
        assert!(text.contains("systemctl start docker"), "{text}");
        let closed = Daemon::connect(&DockerEnv::with_host("tcp://127.0.0.1:1"))
            .await
            .unwrap_err();
        assert!(closed.to_string().contains("does not respond"), "{closed}");
    }
}
