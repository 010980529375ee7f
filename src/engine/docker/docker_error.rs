//! The error of a request to a container daemon, with its explanation.

use std::error::Error as _;

use bollard::errors::Error;

use crate::base::secrets::Redactor;
use crate::engine::docker::errors::{self, Diagnosis};
use crate::results::record::cell::{FailureClass, Phase};

/// A request that a daemon refused or did not answer, with the explanation.
#[derive(Debug)]
pub struct DockerError {
    /// The step that failed, such as `create`.
    pub(super) step: &'static str,
    pub(super) message: String,
    pub(super) diagnosis: Box<Diagnosis>,
    /// The daemon's address, if the message should name it.
    address: Option<String>,
}

impl DockerError {
    pub(super) fn new(step: &'static str, error: &Error) -> Self {
        let mut docker_error = Self::from_message(step, error_text(error));
        let is_mistake = matches!(
            error,
            Error::DockerResponseServerError { status_code: 400..=499, message } if !message.trim().is_empty()
        );
        if step == "create" && is_mistake && docker_error.diagnosis.is_unknown() {
            docker_error.diagnosis = Box::new(errors::create_refused());
        }
        docker_error
    }

    /// Explains a daemon's message at a step such as `create`.
    pub fn from_message(step: &'static str, raw: String) -> Self {
        Self {
            step,
            diagnosis: Box::new(errors::diagnose(&raw)),
            message: raw,
            address: None,
        }
    }

    /// Adds the daemon's address to the text.
    pub(super) fn with_address(mut self, address: String) -> Self {
        self.address = Some(address);
        self
    }

    /// The phase in which a start failed with this error.
    pub(crate) const fn phase(&self) -> Phase {
        match self.diagnosis.class {
            FailureClass::Image => Phase::Install,
            _ => Phase::Launch,
        }
    }

    pub(crate) const fn class(&self) -> FailureClass {
        self.diagnosis.class
    }

    /// Redacts secrets, which a daemon may quote.
    pub(super) fn redacted(mut self, redactor: &Redactor) -> Self {
        self.message = redactor.redact(&self.message).into_owned();
        self.diagnosis.problem = redactor.redact(&self.diagnosis.problem).into_owned();
        self
    }

    /// What is wrong, with the daemon's address and the key of the recipe.
    pub(super) fn problem(&self) -> String {
        let key = self
            .diagnosis
            .key
            .map_or_else(String::new, |key| format!(" (`{key}` of the recipe)"));
        let address = self
            .address
            .as_ref()
            .map_or_else(String::new, |address| format!(" at {address}"));
        format!("{}{address}{key}", self.diagnosis.problem)
    }
}

impl std::fmt::Display for DockerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}; {}; the daemon's message at `{}`: {}",
            self.problem(),
            self.diagnosis.help,
            self.step,
            self.message.trim()
        )
    }
}

impl std::error::Error for DockerError {}

/// An error with all its causes; of a daemon's answer only its message.
pub(super) fn error_text(error: &Error) -> String {
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

/// Whether the daemon answered 404.
pub(super) const fn is_not_found(error: &Error) -> bool {
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
        let create = DockerError::new("create", &doubled);
        assert_eq!(create.class(), FailureClass::Spec);
        assert!(create.to_string().contains("Duplicate mount point"), "{create}");
        assert_eq!(
            DockerError::new("start", &doubled).class(),
            FailureClass::Infrastructure
        );
        let broken = error(500, "something new");
        assert_eq!(
            DockerError::new("create", &broken).class(),
            FailureClass::Infrastructure
        );
        // Known messages keep their own meaning.
        let conflict = error(
            409,
            "The container name \"/a\" is already in use by container \"0f\".",
        );
        assert_eq!(
            DockerError::new("create", &conflict).class(),
            FailureClass::Infrastructure
        );
    }

    #[test]
    fn an_answer_without_a_word_is_told_by_its_status() {
        let silent = Error::DockerResponseServerError {
            status_code: 404,
            message: String::new(),
        };
        let docker_error = DockerError::new("connect", &silent).to_string();
        assert!(
            docker_error.contains("HTTP 404 without a message"),
            "{docker_error}"
        );
        assert!(
            docker_error.contains("a proxy intercepts the connection"),
            "{docker_error}"
        );
    }
}
