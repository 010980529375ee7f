//! The plan of a launch on an attached server: its address, and what the matrix declares of its GPUs.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::config::template::Template;
use crate::plan::executor::{ExecutorSettings, ExecutorSpec, Facts};
use crate::plan::layers::Layers;
use crate::plan::shell::{CommandLine, LineContext};

pub(super) const FACTS: Facts = Facts {
    starts_engine: false,
    leases_gpus: false,
    has_container: false,
    help: |_| None,
    merge: |layers| ExecutorSpec::Attach(AttachedServer::merge(layers)),
};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AttachedServer {
    /// Its base URL, such as `http://host:8000`.
    pub(crate) url: Template,
    /// Number of GPUs as declared in the matrix; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gpus: Option<NonZeroU32>,
    /// GPU model as declared in the matrix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) gpu: Option<String>,
}

impl AttachedServer {
    fn merge(layers: &Layers<'_>) -> Self {
        let entry = layers.site.entry;
        let url = entry.url.as_ref().map(|url| url.fill_placeholders(layers.fill));
        Self {
            url: url.unwrap_or_default(),
            gpus: entry.gpus.as_deref().copied(),
            gpu: entry.gpu.as_deref().cloned(),
        }
    }
}

impl ExecutorSettings for AttachedServer {
    fn name(&self) -> &'static str {
        "attach"
    }

    fn engine_source(&self) -> &'static str {
        "attached server"
    }

    fn other_templates(&self) -> Vec<&Template> {
        vec![&self.url]
    }

    fn gpus(&self, _leased: u32) -> Option<u32> {
        self.gpus.map(NonZeroU32::get)
    }

    fn declared_gpu(&self) -> Option<&str> {
        self.gpu.as_deref()
    }

    fn pin(&self, _digest: Option<&str>) -> Result<ExecutorSpec, &'static str> {
        Err("it is an attached server, which `matrix` does not start")
    }

    fn command_line(&self, _context: &LineContext<'_>) -> CommandLine {
        CommandLine(vec![format!("# attached to {}", self.url)])
    }
}
