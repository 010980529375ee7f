//! Why an engine did not become ready.

use crate::base::units::HumanDuration;
use crate::engine::log::FatalLine;
use crate::engine::running::EngineExit;
use crate::results::record::cell::FailureClass;
use crate::results::record::post_mortem::EngineExitStatus;

/// Why a readiness probe got no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoToken {
    /// Temporary: a later probe may succeed.
    NotYet(String),
    /// The engine rejects the content of the request. A retry would get the same answer.
    Refused(String),
    /// The engine's answer cannot be measured. A retry would get the same answer.
    Unusable(String),
    /// The engine does not know the model or path. Some engines say so until the model is loaded.
    Unknown(String),
}

impl NoToken {
    pub(super) fn reason(self) -> String {
        match self {
            Self::NotYet(reason) | Self::Refused(reason) | Self::Unusable(reason) | Self::Unknown(reason) => {
                reason
            }
        }
    }
}

#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NotReady {
    #[error("{status} before it was ready{}", explanation(fatal_line.as_deref()))]
    Exited {
        status: String,
        /// The log line that explains it.
        fatal_line: Option<Box<FatalLine>>,
        end: EngineExitStatus,
        class: FailureClass,
        tail: Vec<String>,
    },
    /// A log line says that the engine is dead, although its process runs.
    #[error(
        "the engine's log reports a fatal error before the engine was ready{}",
        explanation(Some(fatal_line))
    )]
    Fatal {
        fatal_line: Box<FatalLine>,
        tail: Vec<String>,
    },
    /// No log output and no growth of GPU memory for `limit`.
    #[error(
        "the engine hangs: no log output for {limit} in phase `{phase}`{}, and it is not healthy{}{}; if it needs more time, raise \
         `timeouts: {{ stall: … }}`",
        match is_memory_watched { true => ", the engine's GPU memory use did not grow", false => "" },
        in_parentheses(unhealthy),
        explanation(fatal_line.as_deref())
    )]
    Stalled {
        /// `timeouts: { stall }` of the recipe.
        limit: HumanDuration,
        /// Whether GPU memory was watched as well.
        is_memory_watched: bool,
        phase: String,
        /// The process that is not healthy, of several, with its last answer; empty for one process.
        unhealthy: String,
        /// The log line that explains it.
        fatal_line: Option<Box<FatalLine>>,
        tail: Vec<String>,
    },
    #[error(
        "the engine was not ready within {limit} (last phase `{phase}`){}{}; if it needs more time, raise `timeouts: {{ start: … }}`",
        in_parentheses(unhealthy),
        explanation(fatal_line.as_deref())
    )]
    TimedOut {
        /// `timeouts: { start }` of the recipe.
        limit: HumanDuration,
        phase: String,
        /// The process that is not healthy, of several, with its last answer; empty for one process.
        unhealthy: String,
        /// The log line that explains it.
        fatal_line: Option<Box<FatalLine>>,
        tail: Vec<String>,
    },
    #[error("the engine is healthy but refuses the first request: {reason}")]
    Refused {
        /// The engine's answer, and how to fix it.
        reason: String,
        tail: Vec<String>,
    },
    #[error("the engine is healthy, but its responses cannot be measured: {reason}")]
    Unusable {
        /// The reason, and how to fix it.
        reason: String,
        tail: Vec<String>,
    },
    #[error(
        "the engine reports that it is healthy (`{health}` returned 200), but it sent no token within {limit}: {reason}; if it needs more time, \
         raise `timeouts: {{ probe: … }}`"
    )]
    FalseHealth {
        health: String,
        /// `timeouts: { probe }` of the recipe.
        limit: HumanDuration,
        /// Result of the last probe.
        reason: String,
        tail: Vec<String>,
    },
}

fn in_parentheses(text: &str) -> String {
    match text.is_empty() {
        true => String::new(),
        false => format!(" ({text})"),
    }
}

fn explanation(fatal_line: Option<&FatalLine>) -> String {
    fatal_line.map_or_else(String::new, |fatal_line| {
        format!(": {}", fatal_line.explanation())
    })
}

impl NotReady {
    pub(crate) fn class(&self) -> FailureClass {
        let fatal_line = match self {
            Self::Exited { class, .. } => return *class,
            Self::Stalled { fatal_line, .. } | Self::TimedOut { fatal_line, .. } => fatal_line.as_deref(),
            Self::Fatal { fatal_line, .. } => Some(&**fatal_line),
            Self::Refused { .. } | Self::Unusable { .. } => return FailureClass::Spec,
            Self::FalseHealth { .. } => None,
        };
        fatal_line.map_or(FailureClass::Engine, FatalLine::class)
    }

    /// Exit code and signal, if the engine exited.
    pub(crate) const fn end(&self) -> Option<EngineExitStatus> {
        match self {
            Self::Exited { end, .. } => Some(*end),
            Self::Fatal { .. }
            | Self::Stalled { .. }
            | Self::TimedOut { .. }
            | Self::Refused { .. }
            | Self::Unusable { .. }
            | Self::FalseHealth { .. } => None,
        }
    }

    pub(crate) fn tail(&self) -> &[String] {
        match self {
            Self::Exited { tail, .. }
            | Self::Fatal { tail, .. }
            | Self::Stalled { tail, .. }
            | Self::TimedOut { tail, .. }
            | Self::Refused { tail, .. }
            | Self::Unusable { tail, .. }
            | Self::FalseHealth { tail, .. } => tail,
        }
    }

    pub(super) fn from_exit(engine_exit: EngineExit) -> Self {
        let EngineExit {
            status,
            tail,
            fatal_line,
            end,
            class,
        } = engine_exit;
        match (fatal_line.map(Box::new), end) {
            (Some(fatal_line), None) => Self::Fatal { fatal_line, tail },
            (fatal_line, end) => Self::Exited {
                status,
                fatal_line,
                end: end.unwrap_or_default(),
                class,
                tail,
            },
        }
    }
}
