//! Failures of a start, and of the check that the engine is the process that answers.

use crate::engine::{self, NoToken, NotReady, StartError};
use crate::loadgen::ProbeError;
use crate::plan::Launch;
use crate::results::record::cell::{FailureClass, Phase};
use crate::results::record::post_mortem::End;

/// Why an engine did not start; its cells fail with this.
pub(super) struct LaunchFailure {
    pub(super) phase: Phase,
    pub(super) class: FailureClass,
    pub(super) reason: String,
    pub(super) tail: Vec<String>,
    /// How the engine ended, if it was started.
    pub(super) end: Option<End>,
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
            end: None,
            log: Vec::new(),
            image_digest: None,
            exact_command: None,
        }
    }
}

/// The failure of a launch whose port another process uses.
pub(super) fn answered_by(who: &str, port: u16, launch: &Launch) -> LaunchFailure {
    LaunchFailure::new(
        FailureClass::Spec,
        format!(
            "port {port} of engine `{}` is answered by another process, {who}; stop it, or remove `port:` from the matrix, so that a free port is chosen",
            launch.engine.name
        ),
    )
}

/// Why the first request returned no token, and whether another attempt may.
pub(super) fn no_token(error: &ProbeError, launch: &Launch) -> NoToken {
    let words = error.to_string();
    match error {
        ProbeError::Status {
            status: 401 | 403, ..
        } => NoToken::Refused(format!(
            "{words}; {}",
            match launch.contact.headers.is_empty() {
                true => "give its key with `headers: { Authorization: \"Bearer ${KEY}\" }` at the engine",
                false => "check the key in `headers:` of the engine",
            }
        )),
        ProbeError::Compressed { .. } => NoToken::Unusable(words),
        ProbeError::Status { status: 404, .. } | ProbeError::WrongModel { .. } => NoToken::Unknown(words),
        _ => NoToken::Yet(words),
    }
}

pub(super) fn not_started(error: &StartError) -> LaunchFailure {
    LaunchFailure {
        phase: error.phase(),
        tail: error.tail(),
        log: error.tail(),
        ..LaunchFailure::new(error.class(), error.to_string())
    }
}

impl LaunchFailure {
    /// Adds what the host shows about an engine that ended before it was ready.
    pub(super) fn explained(mut self, launch: &Launch, port: u16) -> Self {
        let Some(end) = self.end else {
            return self;
        };
        if let Some(holder) = launch.contact.port.fixed.and_then(|_| engine::holder(port)) {
            self.class = FailureClass::Spec;
            self.reason.push_str(&format!(
                "; its port {port} is held by {holder}: stop that, or take `port:` out, then a free one is chosen"
            ));
        } else if engine::image(launch).is_some() && end.code == Some(0) {
            self.reason.push_str(
                "; an engine does not end by itself: the image's entrypoint may leave the command aside \
                 (`docker inspect` shows it; `entrypoint:` of the recipe replaces it)",
            );
        }
        self
    }
}

pub(super) fn not_ready(error: &NotReady) -> LaunchFailure {
    LaunchFailure {
        tail: error.tail().to_vec(),
        end: error.end(),
        ..LaunchFailure::new(error.class(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{command, contained};
    use crate::plan::Container;

    fn ended(code: i64) -> LaunchFailure {
        LaunchFailure {
            end: Some(End {
                code: Some(code),
                ..End::default()
            }),
            ..LaunchFailure::new(FailureClass::Engine, "the engine ended".to_owned())
        }
    }

    #[test]
    fn an_engine_whose_port_another_one_took_meanwhile_says_who_has_it() {
        let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut launch = command(&["serve"]);
        launch.contact.port.fixed = Some(port);
        let taken = ended(4).explained(&launch, port);
        let holder = format!("its port {port} is held by process {}", std::process::id());
        assert!(taken.reason.contains(&holder), "{}", taken.reason);
        assert_eq!(taken.class, FailureClass::Spec);
        drop(listener);
        let free = ended(4).explained(&launch, port);
        assert_eq!(
            (free.reason.as_str(), free.class),
            ("the engine ended", FailureClass::Engine)
        );
    }

    #[test]
    fn a_container_that_ends_well_at_once_is_asked_for_its_entrypoint() {
        let container = contained(Container::default());
        assert!(
            ended(0)
                .explained(&container, 1)
                .reason
                .contains("`entrypoint:` of the recipe")
        );
        assert!(!ended(1).explained(&container, 1).reason.contains("entrypoint"));
        assert!(
            !ended(0)
                .explained(&command(&["true"]), 1)
                .reason
                .contains("entrypoint")
        );
    }
}
