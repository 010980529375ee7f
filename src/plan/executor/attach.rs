//! The plan of a launch on an attached server: its address, and what the matrix declares of its GPUs.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::config::connections::{Balance, TlsOptions};
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
    /// Base URLs of further servers that share the load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) other_urls: Vec<Template>,
    /// How requests are distributed over the servers.
    #[serde(default, skip_serializing_if = "Balance::is_default")]
    pub(crate) balance: Balance,
    #[serde(default, skip_serializing_if = "TlsOptions::is_default")]
    pub(crate) tls: TlsOptions,
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
        let urls = entry
            .url
            .iter()
            .chain(entry.urls.iter().flat_map(|urls| &urls.value));
        let mut urls = urls.map(|url| url.fill_placeholders(layers.fill));
        Self {
            url: urls.next().unwrap_or_default(),
            other_urls: urls.collect(),
            balance: entry.balance.as_deref().copied().unwrap_or_default(),
            tls: entry.tls.as_deref().cloned().unwrap_or_default(),
            gpus: entry.gpus.as_deref().copied(),
            gpu: entry.gpu.as_deref().cloned(),
        }
    }
}

impl AttachedServer {
    /// The base URLs of all servers.
    pub(crate) fn urls(&self) -> impl Iterator<Item = &Template> {
        std::iter::once(&self.url).chain(&self.other_urls)
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
        self.urls().collect()
    }

    fn gpus(&self, _leased: u32) -> Option<u32> {
        self.gpus.map(NonZeroU32::get)
    }

    fn declared_gpu(&self) -> Option<&str> {
        self.gpu.as_deref()
    }

    fn servers_in_words(&self) -> String {
        match self.other_urls.len() {
            0 => "1".to_owned(),
            others => format!("{} ({})", others + 1, self.balance.name()),
        }
    }

    fn pin(&self, _digest: Option<&str>) -> Result<ExecutorSpec, &'static str> {
        Err("the engine is an attached server, which `matrix` does not start")
    }

    fn command_line(&self, _context: &LineContext<'_>) -> CommandLine {
        let urls: Vec<&str> = self.urls().map(Template::as_str).collect();
        let balance = match self.other_urls.is_empty() {
            true => String::new(),
            false => format!(", {}", self.balance.name()),
        };
        CommandLine(vec![format!("# attached to {}{balance}", urls.join(" and "))])
    }
}
