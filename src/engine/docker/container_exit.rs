//! How a container ended, and whose fault that is.

use bollard::models::ContainerState;

use crate::engine::executor::control::ExitCause;
use crate::engine::log::FatalLine;
use crate::plan::{FatalPattern, FaultOwner};
use crate::results::record::cell::FailureClass;
use crate::results::record::post_mortem::EngineExitStatus;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerExit {
    pub(super) code: Option<i64>,
    pub(super) is_out_of_memory: bool,
    /// Message of the daemon or of `matrix`.
    pub(super) note: String,
    /// Whether something other than the engine ended it.
    pub(super) is_external: bool,
    pub(super) kind: ExitKind,
}

/// Final state of a container that can no longer be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExitKind {
    Exited,
    /// It may still run, but its state is unknown.
    Unknown,
    Paused,
}

impl ContainerExit {
    /// An exit that the engine cannot have caused.
    pub(super) fn external(note: impl Into<String>) -> Self {
        Self {
            code: None,
            is_out_of_memory: false,
            note: note.into(),
            is_external: true,
            kind: ExitKind::Exited,
        }
    }

    /// The state of the container is permanently unknown.
    pub(super) fn unknown(note: String) -> Self {
        Self {
            kind: ExitKind::Unknown,
            ..Self::external(note)
        }
    }

    pub(super) fn paused(id: &str) -> Self {
        let short: String = id.chars().take(12).collect();
        Self {
            kind: ExitKind::Paused,
            ..Self::external(format!(
                "another program paused the container (`docker unpause {short}` resumes it)"
            ))
        }
    }

    /// Whether the container has certainly ended.
    pub(super) fn is_certain(&self) -> bool {
        self.kind == ExitKind::Exited
    }

    /// Attributes the exit to something other than the engine.
    pub(super) fn caused_by(mut self, stranger: &str) -> Self {
        let note = std::mem::take(&mut self.note);
        self.note = match note.is_empty() {
            true => stranger.to_owned(),
            false => format!("{note}; {stranger}"),
        };
        self.is_external = true;
        self
    }

    pub(super) fn from_state(state: &ContainerState) -> Self {
        Self {
            code: state.exit_code,
            is_out_of_memory: state.oom_killed == Some(true),
            note: state.error.clone().unwrap_or_default(),
            is_external: false,
            kind: ExitKind::Exited,
        }
    }

    /// Description such as `exit code 137: the kernel killed the container (out of memory)`.
    pub(super) fn description(&self) -> String {
        if self.kind != ExitKind::Exited {
            return self.note.clone();
        }
        let mut text = match self.code {
            Some(code) => format!("exit code {code}"),
            None => "no exit code".to_owned(),
        };
        match self.code {
            _ if self.is_out_of_memory => text.push_str(": the kernel killed the container (out of memory)"),
            Some(137) => text.push_str(": killed by SIGKILL"),
            Some(143) => text.push_str(": ended by SIGTERM"),
            Some(139) => text.push_str(": segmentation fault"),
            _ => {}
        }
        if !self.note.is_empty() {
            text.push_str(": ");
            text.push_str(&self.note);
        }
        text
    }

    pub(super) fn exit_cause(&self) -> ExitCause {
        let words = self.description();
        ExitCause {
            description: match self.kind {
                ExitKind::Exited => format!("the engine ended ({words})"),
                ExitKind::Unknown => format!("the engine is in an unknown state ({words})"),
                ExitKind::Paused => format!("the engine is paused ({words})"),
            },
            fatal_line: self.fatal_line(),
            end: EngineExitStatus {
                code: self.code,
                signal: None,
                out_of_memory: self.code.is_some().then_some(self.is_out_of_memory),
            },
            fault: self.is_external.then_some(FailureClass::Infrastructure),
            tail: None,
        }
    }

    /// The cause, if the daemon reports one.
    fn fatal_line(&self) -> Option<FatalLine> {
        self.is_out_of_memory.then(|| FatalLine {
            pattern: FatalPattern {
                pattern: String::new(),
                means: "the kernel killed the engine because memory ran out".to_owned(),
                help: "give the host or the container more memory, or reduce the engine's memory use"
                    .to_owned(),
                fatal: false,
                fault: FaultOwner::Capacity,
            },
            line: "State.OOMKilled: true".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_says_its_code_and_whose_fault_it_is() {
        let state = |code, oom, error: &str| ContainerState {
            exit_code: Some(code),
            oom_killed: Some(oom),
            error: Some(error.to_owned()),
            ..ContainerState::default()
        };
        assert_eq!(
            ContainerExit::from_state(&state(3, false, "")).description(),
            "exit code 3"
        );
        let oom = ContainerExit::from_state(&state(137, true, ""));
        assert!(oom.description().contains("out of memory"));
        assert_eq!(oom.exit_cause().class(), FailureClass::Capacity);
        assert_eq!(oom.exit_cause().end.out_of_memory, Some(true));
        assert_eq!(
            ContainerExit::from_state(&state(1, false, ""))
                .exit_cause()
                .class(),
            FailureClass::Engine
        );
        let gone = ContainerExit::external("another program removed the container").exit_cause();
        assert_eq!(gone.class(), FailureClass::Infrastructure);
        assert_eq!(gone.end.out_of_memory, None);
        let killed = ContainerExit::from_state(&state(137, false, ""))
            .caused_by("another program ended it")
            .exit_cause();
        assert_eq!(killed.class(), FailureClass::Infrastructure);
        assert!(
            killed.description.ends_with(": another program ended it)"),
            "{}",
            killed.description
        );
        let killed = ContainerExit::from_state(&state(137, false, "")).description();
        assert!(killed.contains("SIGKILL"), "{killed}");
        assert!(
            ContainerExit::from_state(&state(128, false, "no gpu"))
                .description()
                .ends_with(": no gpu")
        );
    }
}
