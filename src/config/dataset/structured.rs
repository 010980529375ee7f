//! `structured`: prompts whose answers must be JSON of a schema or calls of tools, all drawn; needs no file.

use serde::{Deserialize, Serialize};

use super::error::ReportError;
use super::lengths;
use super::rules::{Facts, PromptForm, Rules};
use crate::config::api::Protocol;
use crate::config::profile::Profile;

/// Output tokens if the scenario sets no number.
const DEFAULT_OUTPUT_TOKENS: u32 = 512;

/// Most properties, tools or schemas, which bounds the size of a request.
const MAX_COUNT: u32 = 64;
/// Most schemas of a workload.
const MAX_SCHEMAS: u32 = 100_000;

/// The options of `structured`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Structured {
    pub(crate) input_len: Option<u32>,
    pub(crate) output_len: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) structured: Option<Demands>,
}

impl Structured {
    pub(crate) fn demands(&self) -> Demands {
        self.structured.clone().unwrap_or_default()
    }

    /// The largest number of output tokens.
    pub(crate) fn output_tokens(&self) -> u32 {
        self.output_len.unwrap_or(DEFAULT_OUTPUT_TOKENS)
    }

    /// What of these requests a protocol cannot carry; `None` if it can carry all.
    pub(crate) fn unsupported(&self, protocol: Protocol) -> Option<UnsupportedDemand> {
        let demands = self.demands();
        let has_tools = demands.tools_share > 0.0;
        let has_schemas = demands.schema_share() > 0.0;
        let takes_tools = matches!(
            protocol,
            Protocol::Chat | Protocol::Messages | Protocol::Responses
        );
        let takes_schemas = matches!(
            protocol,
            Protocol::Chat | Protocol::Completions | Protocol::Responses
        );
        if has_tools && !takes_tools {
            return Some(UnsupportedDemand::Tools);
        }
        (has_schemas && !takes_schemas).then_some(UnsupportedDemand::Schemas)
    }
}

/// What a protocol cannot carry of the requests of `structured`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnsupportedDemand {
    Tools,
    Schemas,
}

impl UnsupportedDemand {
    /// The reason and the fix in a matrix; `sender` names the protocol.
    pub(crate) fn in_matrix(self, sender: &str) -> (String, &'static str) {
        match self {
            Self::Tools => (
                format!(
                    "{sender} cannot send tools, but `tools_share` of the data set `structured` needs a protocol with tools"
                ),
                "use the protocol `chat`, `messages` or `responses`, or set `tools_share: 0`",
            ),
            Self::Schemas => (
                format!(
                    "{sender} cannot send a JSON schema for answers, but the data set `structured` needs a protocol with schemas"
                ),
                "use the protocol `chat`, `completions` or `responses`; with `messages`, set `tools_share: 1`",
            ),
        }
    }
}

/// What the requests of `structured` demand of their answers.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, schemars(rename = "Structured"))]
pub(crate) struct Demands {
    /// Share of the requests that offer tools; default 0. The other requests, except those of `plain_share`, demand
    /// JSON that matches a schema.
    pub(crate) tools_share: f64,
    /// Share of the requests that demand nothing; default 0.
    pub(crate) plain_share: f64,
    /// Number of different schemas, and of different sets of tools; default 16. Engines compile each once. 0: each request has its
    /// own.
    pub(crate) schemas: u32,
    /// Number of properties of a schema, and of parameters of a tool; default 5.
    pub(crate) properties: u32,
    /// Number of tools that are offered at once; default 4.
    pub(crate) tools: u32,
    /// Whether a tool must be called; default `required`.
    pub(crate) tool_choice: ToolChoice,
}

/// Whether a tool must be called.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ToolChoice {
    /// The model decides.
    Auto,
    /// Any of the tools.
    #[default]
    Required,
    /// One tool that the request names.
    Named,
}

impl Default for Demands {
    fn default() -> Self {
        Self {
            tools_share: 0.0,
            plain_share: 0.0,
            schemas: 16,
            properties: 5,
            tools: 4,
            tool_choice: ToolChoice::default(),
        }
    }
}

impl Demands {
    /// Share of the requests that demand JSON of a schema.
    pub(crate) fn schema_share(&self) -> f64 {
        1.0 - self.tools_share - self.plain_share
    }

    fn find_errors(&self, report: &mut impl FnMut(String)) {
        for (name, share) in [
            ("tools_share", self.tools_share),
            ("plain_share", self.plain_share),
        ] {
            if !(0.0..=1.0).contains(&share) {
                report(format!("`{name}` is {share}; write a number from 0 to 1"));
            }
        }
        if self.tools_share + self.plain_share > 1.0 {
            report("`tools_share` and `plain_share` are more than 1 together; lower one of them".to_owned());
        }
        if self.plain_share >= 1.0 {
            report(
                "`plain_share` is 1, so no request asks for tools or a JSON schema; lower it, or use `random-ids`"
                    .to_owned(),
            );
        }
        for (name, count) in [("properties", self.properties), ("tools", self.tools)] {
            if !(1..=MAX_COUNT).contains(&count) {
                report(format!(
                    "`{name}` is {count}; write a number from 1 to {MAX_COUNT}"
                ));
            }
        }
        if self.schemas > MAX_SCHEMAS {
            report(format!(
                "`schemas` is {}; write at most {MAX_SCHEMAS}, or 0 to give each request its own schema",
                self.schemas
            ));
        }
    }
}

impl Rules for Structured {
    fn facts(&self) -> Facts<'_> {
        Facts {
            prompts: PromptForm::Structured,
            output_len: Some(self.output_tokens()),
            output_flag: Some("random-output-len"),
            has_checks: true,
            ..Facts::default()
        }
    }

    fn prompt_tokens(&self) -> u64 {
        self.input_len.unwrap_or(0).into()
    }

    fn lengths(&self, _profile: Profile) -> String {
        let input = match self.input_len {
            Some(tokens) => format!("about {tokens} in"),
            None => "prompts of the data set".to_owned(),
        };
        let demands = self.demands();
        let percent = |share: f64| (share * 1e4).round() / 100.0;
        format!(
            "{input} / at most {} tokens out; {} % of the requests have tools, {} % ask for plain text, the rest have JSON schemas",
            self.output_tokens(),
            percent(demands.tools_share),
            percent(demands.plain_share)
        )
    }

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        lengths::no_answer(self.output_len, report);
        self.demands().find_errors(&mut |why| report("structured", why));
    }
}
