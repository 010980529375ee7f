//! What single data sets ask for beside the fields that all of them share. Draws nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What `generated-shared-prefix` draws: groups of prompts that begin alike.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SharedPrefix {
    /// How many system prompts there are; 64 unless said otherwise.
    pub groups: u32,
    /// How many prompts begin with each of them; 16 unless said otherwise.
    pub prompts_per_group: u32,
    /// Tokens of a system prompt, at most; 2048 unless said otherwise.
    pub system_len: u32,
    /// Tokens of a question, at most; 128 unless said otherwise.
    pub question_len: u32,
    /// Lengths are drawn between this share of the most and the most; 1, unless said otherwise, draws none.
    pub range_ratio: f64,
    /// Questions of a conversation; 1, unless said otherwise, makes single requests.
    pub turns: u32,
    /// Which groups the prompts come from.
    pub popularity: Popularity,
    /// Whether prompts stay in the order of their groups instead of being shuffled.
    pub ordered: bool,
    /// Whether prompts are left uncounted, so that each counts as one token.
    pub uncounted: bool,
    /// Whether each request tells a router its group, in the header `X-SMG-Routing-Key`.
    pub routing_key: bool,
}

impl Default for SharedPrefix {
    fn default() -> Self {
        Self {
            groups: 64,
            prompts_per_group: 16,
            system_len: 2048,
            question_len: 128,
            range_ratio: 1.0,
            turns: 1,
            popularity: Popularity::Uniform,
            ordered: false,
            uncounted: false,
            routing_key: false,
        }
    }
}

impl SharedPrefix {
    /// How many prompts there are.
    pub const fn prompts(&self) -> u32 {
        self.groups.saturating_mul(self.prompts_per_group)
    }

    /// Everything that is wrong with it, and how to mend it.
    pub fn objections(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut no = |is_wrong: bool, why: String| {
            if is_wrong {
                found.push(why);
            }
        };
        for (name, count) in [
            ("groups", self.groups),
            ("prompts_per_group", self.prompts_per_group),
            ("turns", self.turns),
        ] {
            no(count == 0, format!("`{name}` is 0 and must be at least 1"));
        }
        no(
            self.groups.checked_mul(self.prompts_per_group).is_none(),
            "`groups` times `prompts_per_group` are too many prompts; lower one of them".to_owned(),
        );
        no(
            !(0.0..=1.0).contains(&self.range_ratio),
            format!(
                "`range_ratio` is {}; write a number from 0 to 1",
                self.range_ratio
            ),
        );
        if let Popularity::Zipf { alpha } = self.popularity {
            no(
                !(alpha.is_finite() && alpha > 0.0),
                format!("`alpha` is {alpha}; write a number above 0"),
            );
        }
        found
    }
}

/// How prompts are spread over groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Popularity {
    /// Every group has equally many.
    #[default]
    Uniform,
    /// Drawn; the share of the n-th group falls with the `alpha`-th power of n.
    Zipf {
        /// How steeply the shares fall; above 0.
        alpha: f64,
    },
}

/// Which part of an agent's recorded conversations is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgenticTrace {
    /// The conversation to begin with; those before it follow the last.
    pub offset: u32,
    /// The most turns of each conversation; all unless said otherwise.
    pub max_turns: Option<u32>,
}

/// How a trace of Mooncake is sent.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Mooncake {
    /// Which published trace is looked for where no `path` is given.
    pub trace: MooncakeTrace,
    /// By how much the trace's time is stretched; 1 unless said otherwise.
    pub slowdown: f64,
    /// How many requests each entry of the trace makes, which all go at its moment; 1 unless said otherwise.
    pub rounds: u32,
}

impl Default for Mooncake {
    fn default() -> Self {
        Self {
            trace: MooncakeTrace::default(),
            slowdown: 1.0,
            rounds: 1,
        }
    }
}

impl Mooncake {
    /// What is wrong with it, and how to mend it.
    pub fn objection(&self) -> Option<String> {
        if !(self.slowdown.is_finite() && self.slowdown >= 0.0) {
            return Some(format!(
                "`slowdown` is {}; write 0 or a number above it",
                self.slowdown
            ));
        }
        (self.rounds == 0).then(|| "`rounds` is 0 and must be at least 1".to_owned())
    }
}

/// The traces that Mooncake's authors published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MooncakeTrace {
    /// The one of the first paper.
    Mooncake,
    /// Conversations.
    #[default]
    Conversation,
    /// Made of public data sets.
    Synthetic,
    /// Tools and agents.
    Toolagent,
}

impl MooncakeTrace {
    /// All of them.
    pub const ALL: [Self; 4] = [
        Self::Mooncake,
        Self::Conversation,
        Self::Synthetic,
        Self::Toolagent,
    ];

    /// Where its authors put it.
    pub fn url(self) -> String {
        let folder = match self {
            Self::Mooncake => "arxiv-trace",
            _ => "traces",
        };
        format!(
            "https://raw.githubusercontent.com/kvcache-ai/Mooncake/main/FAST25-release/{folder}/{}",
            self.file()
        )
    }

    /// The file's name.
    pub const fn file(self) -> &'static str {
        match self {
            Self::Mooncake => "mooncake_trace.jsonl",
            Self::Conversation => "conversation_trace.jsonl",
            Self::Synthetic => "synthetic_trace.jsonl",
            Self::Toolagent => "toolagent_trace.jsonl",
        }
    }
}
