//! Failures of a start, and of the check that the engine is the process that answers.

use crate::engine::{self, NoToken, NotReady, StartError};
use crate::loadgen::ProbeError;
use crate::plan::Launch;
use crate::results::record::cell::{FailureClass, Phase};
use crate::results::record::post_mortem::EngineExitStatus;

/// Why an engine did not start; its cells fail with this.
pub(super) struct LaunchFailure {
    pub(super) phase: Phase,
    pub(super) class: FailureClass,
    pub(super) reason: String,
    pub(super) tail: Vec<String>,
    /// How the engine ended, if it was started.
    pub(super) exit: Option<EngineExitStatus>,
    pub(super) log: Vec<String>,
    pub(super) image_digest: Option<String>,
    /// The command line with port and GPUs of the start.
    pub(super) exact_command: Option<String>,
}

impl LaunchFailure {
    pub(super) fn new(class: FailureClass, reason: String) -> Self {
        Self {
            phase: Phase::Launch,
            class,
            reason,
            tail: Vec::new(),
            exit: None,
            log: Vec::new(),
            image_digest: None,
            exact_command: None,
        }
    }
}

/// The failure of a launch whose port another process uses.
pub(super) fn answered_by(process: &str, port: u16, launch: &Launch) -> LaunchFailure {
    LaunchFailure::new(
        FailureClass::Spec,
        format!(
            "another process answers on port {port} of engine `{}`: {process}; stop it, or remove `port:` from the matrix, so that a free port is chosen",
            launch.engine.name
        ),
    )
}

/// Why the first request returned no token, and whether another attempt may.
pub(super) fn no_token(error: &ProbeError, launch: &Launch) -> NoToken {
    let message = error.to_string();
    match error {
        ProbeError::Status {
            status: 401 | 403, ..
        } => NoToken::Refused(format!(
            "{message}; {}",
            match launch.api.headers.is_empty() {
                true =>
                    "set the API key with `headers: { Authorization: \"Bearer ${KEY}\" }` in the engine's entry",
                false => "check the API key in the engine's `headers:`",
            }
        )),
        ProbeError::Compressed { .. } => NoToken::Unusable(message),
        ProbeError::Status { status: 404, .. } | ProbeError::WrongModel { .. } => NoToken::Unknown(message),
        _ => NoToken::NotYet(message),
    }
}

pub(super) fn start_failure(error: &StartError) -> LaunchFailure {
    LaunchFailure {
        phase: error.phase(),
        tail: error.tail(),
        log: error.tail(),
        ..LaunchFailure::new(error.class(), error.to_string())
    }
}

impl LaunchFailure {
    /// Adds what the host shows about an engine that ended before it was ready.
    pub(super) fn explain(mut self, launch: &Launch, port: u16) -> Self {
        let Some(end) = self.exit else {
            return self;
        };
        if let Some(holder) = launch.api.port.fixed.and_then(|_| engine::port_holder(port)) {
            self.class = FailureClass::Spec;
            self.reason.push_str(&format!(
                "; port {port} of the engine is used by {holder}: stop it, or remove `port:` so that a free port is chosen"
            ));
        } else if engine::image_name(launch).is_some() && end.code == Some(0) {
            self.reason.push_str(
                "; exit code 0 is unusual for an engine: the image's entrypoint may have ignored the engine's command. \
                 `docker inspect` shows the entrypoint, and `entrypoint:` of the recipe replaces it",
            );
        }
        self
    }
}

pub(super) fn readiness_failure(error: &NotReady) -> LaunchFailure {
    LaunchFailure {
        tail: error.tail().to_vec(),
        exit: error.end(),
        ..LaunchFailure::new(error.class(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{command_launch, container_launch};
    use crate::plan::Container;

    fn ended(code: i64) -> LaunchFailure {
        LaunchFailure {
            exit: Some(EngineExitStatus {
                code: Some(code),
                ..EngineExitStatus::default()
            }),
            ..LaunchFailure::new(FailureClass::Engine, "the engine ended".to_owned())
        }
    }

    #[test]
    fn an_engine_whose_port_another_one_took_meanwhile_says_who_has_it() {
        let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut launch = command_launch(&["serve"]);
        launch.api.port.fixed = Some(port);
        let taken = ended(4).explain(&launch, port);
        let holder = format!(
            "port {port} of the engine is used by process {}",
            std::process::id()
        );
        assert!(taken.reason.contains(&holder), "{}", taken.reason);
        assert_eq!(taken.class, FailureClass::Spec);
        drop(listener);
        let free = ended(4).explain(&launch, port);
        assert_eq!(
            (free.reason.as_str(), free.class),
            ("the engine ended", FailureClass::Engine)
        );
    }

    #[test]
    fn a_container_that_ends_well_at_once_is_asked_for_its_entrypoint() {
        let container = container_launch(Container::default());
        assert!(
            ended(0)
                .explain(&container, 1)
                .reason
                .contains("`entrypoint:` of the recipe")
        );
        assert!(!ended(1).explain(&container, 1).reason.contains("entrypoint"));
        assert!(
            !ended(0)
                .explain(&command_launch(&["true"]), 1)
                .reason
                .contains("entrypoint")
        );
    }
}
