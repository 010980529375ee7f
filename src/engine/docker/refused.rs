//! The error of a request to a container daemon, with its explanation.

use std::error::Error as _;

use bollard::errors::Error;

use crate::base::secrets::Redactor;
use crate::engine::docker::errors::{self, Meaning};
use crate::results::record::cell::{FailureClass, Phase};

/// What a daemon refused, explained.
#[derive(Debug)]
pub struct Refused {
    /// What was asked of it, such as `create`.
    pub(super) step: &'static str,
    pub(super) raw: String,
    pub(super) meaning: Box<Meaning>,
    /// The daemon's address, if the message should name it.
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

    /// Adds the daemon's address to the text.
    pub(super) fn at(mut self, address: String) -> Self {
        self.address = Some(address);
        self
    }

    /// The phase in which a start failed with this error.
    pub(crate) const fn phase(&self) -> Phase {
        match self.meaning.class {
            FailureClass::Image => Phase::Install,
            _ => Phase::Launch,
        }
    }

    pub(crate) const fn class(&self) -> FailureClass {
        self.meaning.class
    }

    /// Redacts secrets, which a daemon may quote.
    pub(super) fn redacted(mut self, redactor: &Redactor) -> Self {
        self.raw = redactor.redact(&self.raw).into_owned();
        self.meaning.what = redactor.redact(&self.meaning.what).into_owned();
        self
    }

    /// What is wrong, with the daemon's address and the key of the recipe.
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

/// An error with all its causes; of a daemon's answer only its message.
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

/// Whether the daemon answered 404.
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
        // Known messages keep their own meaning.
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
}
