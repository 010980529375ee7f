//! `mooncake`: a trace of requests with their moments and the blocks that they share.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::ReportError;
use super::rules::{DataFile, Facts, PromptForm, PublishedFile, Rules, TemplateUse, WebFile};
use crate::config::profile::Profile;

/// The options of `mooncake`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Mooncake {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mooncake: Option<Replay>,
}

impl Mooncake {
    /// How the trace is sent.
    pub(crate) fn replay(&self) -> Replay {
        self.mooncake.clone().unwrap_or_default()
    }
}

impl Rules for Mooncake {
    fn facts(&self) -> Facts<'_> {
        Facts {
            file: Some(DataFile {
                key: "mooncake",
                default: Some(self.replay().trace.published()),
                published: MooncakeTrace::ALL.map(MooncakeTrace::published).into(),
                about: "Mooncake's four traces",
            }),
            prompts: PromptForm::Templated,
            template: TemplateUse::Optional,
            slowdown: Some(self.replay().slowdown),
            ..Facts::default()
        }
    }

    fn requests(&self, prompts: u32) -> Option<u64> {
        Some(u64::from(prompts) * u64::from(self.replay().rounds))
    }

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        if let Some(why) = self.replay().find_error() {
            report("mooncake", why);
        }
    }
}

/// How a Mooncake trace is sent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, schemars(rename = "Mooncake"))]
pub(crate) struct Replay {
    /// Published trace that is used if no `path` is set; default `conversation`.
    pub(crate) trace: MooncakeTrace,
    /// Factor on the times of the trace: 2 is half the speed, 0 sends all requests at once; default 1.
    pub(crate) slowdown: f64,
    /// Requests per entry of the trace, all sent at the entry's time; each continues the conversation of the
    /// one before. Default 1.
    pub(crate) rounds: u32,
}

impl Default for Replay {
    fn default() -> Self {
        Self {
            trace: MooncakeTrace::default(),
            slowdown: 1.0,
            rounds: 1,
        }
    }
}

impl Replay {
    /// What is wrong with it, and how to fix it.
    pub(crate) fn find_error(&self) -> Option<String> {
        if !(self.slowdown.is_finite() && self.slowdown >= 0.0) {
            return Some(format!(
                "`slowdown` is {}; write 0 or a positive number",
                self.slowdown
            ));
        }
        (self.rounds == 0).then(|| "`rounds` is 0 and must be at least 1".to_owned())
    }
}

/// The traces published by Mooncake's authors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MooncakeTrace {
    /// The trace of the first paper.
    Mooncake,
    /// The trace of conversations.
    #[default]
    Conversation,
    /// Built from public data sets.
    Synthetic,
    /// The trace of tools and agents.
    Toolagent,
}

impl MooncakeTrace {
    pub(crate) const ALL: [Self; 4] = [
        Self::Mooncake,
        Self::Conversation,
        Self::Synthetic,
        Self::Toolagent,
    ];

    /// Where its authors put it, and where it is looked for and kept, as by the Python tool.
    pub(crate) fn published(self) -> PublishedFile {
        PublishedFile::Web(WebFile {
            url: self.url(),
            path: Path::new("/tmp").join(self.file()),
        })
    }

    fn url(self) -> String {
        let folder = match self {
            Self::Mooncake => "arxiv-trace",
            _ => "traces",
        };
        format!(
            "https://raw.githubusercontent.com/kvcache-ai/Mooncake/main/FAST25-release/{folder}/{}",
            self.file()
        )
    }

    pub(crate) const fn file(self) -> &'static str {
        match self {
            Self::Mooncake => "mooncake_trace.jsonl",
            Self::Conversation => "conversation_trace.jsonl",
            Self::Synthetic => "synthetic_trace.jsonl",
            Self::Toolagent => "toolagent_trace.jsonl",
        }
    }
}
