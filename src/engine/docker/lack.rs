//! One thing that a container daemon lacks for the launches of a run.

use crate::engine::docker::refused::Refused;

/// Something that a daemon lacks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lack {
    /// What is missing, and where it is asked for.
    pub what: String,
    /// How to mend it.
    pub help: String,
}

impl From<&Refused> for Lack {
    fn from(refused: &Refused) -> Self {
        Self {
            what: format!("{}: {}", refused.what(), refused.raw.trim()),
            help: refused.meaning.help.clone(),
        }
    }
}
