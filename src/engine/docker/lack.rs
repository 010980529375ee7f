//! Something that a daemon or an attached server lacks for the launches of a run.

use crate::engine::docker::refused::Refused;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lack {
    /// What is missing, and which launch needs it.
    pub what: String,
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
