//! A container daemon: where it is, whether it answers, and what its refusals mean.

use std::error::Error as _;
use std::path::Path;

use bollard::errors::Error;
use bollard::models::SystemVersion;
use bollard::{API_DEFAULT_VERSION, Docker};

use crate::engine::docker::errors::{self, Meaning};
use crate::engine::docker::host::{Address, Keys, Whereabouts};
use crate::results::record::cell::{FailureClass, Phase};

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
        let refused = |error: Error| Refused {
            address: Some(address.to_string()),
            ..Refused::of("connect", &error)
        };
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
        let mut refused = Self::saying(step, words(error));
        let is_mistake = matches!(
            error,
            Error::DockerResponseServerError { status_code: 400..=499, message } if !message.trim().is_empty()
        );
        if step == "create" && is_mistake && refused.meaning.is_unknown() {
            refused.meaning = Box::new(errors::refused_to_create());
        }
        refused
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
        Error::DockerResponseServerError { status_code, message } if message.trim().is_empty() => {
            format!("HTTP {status_code} {}", errors::NO_MESSAGE)
        }
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
    fn what_create_refuses_is_the_recipe_s_fault_and_no_other_step_s() {
        let error = |status_code, message: &str| Error::DockerResponseServerError {
            status_code,
            message: message.to_owned(),
        };
        let doubled = error(400, "Duplicate mount point: /x");
        let create = Refused::of("create", &doubled);
        assert_eq!(create.class(), FailureClass::Spec);
        assert!(create.to_string().contains("Duplicate mount point"), "{create}");
        assert_eq!(
            Refused::of("start", &doubled).class(),
            FailureClass::Infrastructure
        );
        let broken = error(500, "something new");
        assert_eq!(
            Refused::of("create", &broken).class(),
            FailureClass::Infrastructure
        );
        // What is known keeps its own meaning.
        let taken = error(
            409,
            "The container name \"/a\" is already in use by container \"0f\".",
        );
        assert_eq!(
            Refused::of("create", &taken).class(),
            FailureClass::Infrastructure
        );
    }

    #[test]
    fn an_answer_without_a_word_is_told_by_its_status() {
        let silent = Error::DockerResponseServerError {
            status_code: 404,
            message: String::new(),
        };
        let refused = Refused::of("connect", &silent).to_string();
        assert!(refused.contains("HTTP 404 without a message"), "{refused}");
        assert!(refused.contains("a proxy stands in between"), "{refused}");
    }

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
