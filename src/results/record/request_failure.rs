//! How a request failed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// How a request failed, with the message of the server or the system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The class by which failures are counted.
    pub class: RequestFailureClass,
    /// The message of the server or system.
    pub message: String,
}

/// Classes of failures. The set is closed, so that counts can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RequestFailureClass {
    /// No connection: host unreachable, name unknown, no free ports or file handles.
    Connect,
    /// The connection was refused because no process listens.
    Refused,
    /// An HTTP status other than 200.
    Status,
    /// The connection broke before the answer was complete.
    Reset,
    /// An error event inside the stream.
    ErrorEvent,
    /// The stream ended normally without output.
    Empty,
    /// Bytes that are not HTTP, SSE or JSON, or an answer that began before its whole request was sent.
    Garbled,
    /// A line longer than the limit.
    HugeLine,
    /// More output than requested without an end; the answer was cut off.
    Endless,
    /// No output arrived before the timeout.
    TimeoutBeforeFirst,
    /// Output began, but did not end before the timeout.
    TimeoutAfterFirst,
    /// `matrix` ended the request: the run was stopped, or the drain time was over.
    Cancelled,
    /// It fell due but was not sent: the engine was gone, or the time was over.
    Unsent,
}

impl RequestFailureClass {
    /// Every class, in the order of tables.
    pub(crate) const ALL: [Self; 13] = [
        Self::Connect,
        Self::Refused,
        Self::Status,
        Self::Reset,
        Self::ErrorEvent,
        Self::Empty,
        Self::Garbled,
        Self::HugeLine,
        Self::Endless,
        Self::TimeoutBeforeFirst,
        Self::TimeoutAfterFirst,
        Self::Cancelled,
        Self::Unsent,
    ];

    /// The name on disk and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Refused => "refused",
            Self::Status => "status",
            Self::Reset => "reset",
            Self::ErrorEvent => "error-event",
            Self::Empty => "empty",
            Self::Garbled => "garbled",
            Self::HugeLine => "huge-line",
            Self::Endless => "endless",
            Self::TimeoutBeforeFirst => "timeout-before-first",
            Self::TimeoutAfterFirst => "timeout-after-first",
            Self::Cancelled => "cancelled",
            Self::Unsent => "unsent",
        }
    }
}

/// Describes the failures by class: `refused 20, reset 5`; empty without failures.
pub(crate) fn format_failures(failures: impl IntoIterator<Item = (RequestFailureClass, u32)>) -> String {
    let mut counts: BTreeMap<RequestFailureClass, u32> = BTreeMap::new();
    for (class, count) in failures {
        *counts.entry(class).or_default() += count;
    }
    let counted = RequestFailureClass::ALL.into_iter().filter_map(|class| {
        let count = counts.get(&class).filter(|count| **count > 0)?;
        Some(format!("{} {count}", class.name()))
    });
    counted.collect::<Vec<_>>().join(", ")
}
