//! What people know of measurements whose files do not tell it: flags of `matrix import`, or a file beside the one that is read.

use serde::Deserialize;

use super::names;
use super::{Found, Title};

/// What is declared of all measurements of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Declared {
    /// The engine.
    pub engine: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// How many GPUs it computed on.
    pub gpus: Option<u32>,
    /// Which kind of GPU.
    pub gpu: Option<String>,
    /// The precision of the weights.
    pub precision: Option<String>,
    /// The model.
    pub model: Option<String>,
}

impl Declared {
    /// What is declared here, and where it is not, what is declared there.
    pub fn or(self, other: Self) -> Self {
        Self {
            engine: self.engine.or(other.engine),
            version: self.version.or(other.version),
            gpus: self.gpus.or(other.gpus),
            gpu: self.gpu.or(other.gpu),
            precision: self.precision.or(other.precision),
            model: self.model.or(other.model),
        }
    }

    /// Gives a set of figures what its file does not tell.
    pub(super) fn complete(&self, found: &mut Found) {
        if found.engine.is_none() {
            found.engine = self.engine.clone().map(|name| Title { name, version: None });
        }
        if let Some(title) = found.engine.as_mut() {
            title.version = title.version.take().or_else(|| self.version.clone());
        }
        let (asked, started) = (&mut found.asked, &mut found.started);
        let is_told = asked.model.is_some() || started.model.is_some() || found.heading.is_some();
        if !is_told {
            started.model.clone_from(&self.model);
        }
        let model = asked.model.as_ref().or(started.model.as_ref());
        let stored = model.and_then(|model| names::model(model).1);
        if started.precision.is_none() && stored.is_none() {
            started.precision.clone_from(&self.precision);
        }
    }
}
