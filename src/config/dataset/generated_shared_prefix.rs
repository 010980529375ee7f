//! `generated-shared-prefix`: groups of questions behind one long system prompt each.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::lengths;
use super::objection::Say;
use super::rules::{Facts, PromptForm, Rules};
use crate::config::profile::Profile;

/// The options of `generated-shared-prefix`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct GeneratedSharedPrefix {
    pub(crate) output_len: Option<u32>,
    pub(crate) tokenize_prompt: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) shared_prefix: Option<SharedPrefix>,
}

impl GeneratedSharedPrefix {
    pub(crate) fn prefix(&self) -> SharedPrefix {
        self.shared_prefix.clone().unwrap_or_default()
    }
}

impl Rules for GeneratedSharedPrefix {
    fn facts(&self) -> Facts<'_> {
        let prefix = self.prefix();
        Facts {
            prompts: match prefix.turns {
                0 | 1 => PromptForm::Text,
                turns => PromptForm::Conversations { turns: Some(turns) },
            },
            output_len: self.output_len,
            output_flag: Some("gsp-output-len"),
            sends_ids: self.tokenize_prompt,
            has_routing_key: prefix.routing_key,
            ..Facts::default()
        }
    }

    fn requests(&self, _prompts: u32) -> Option<u64> {
        Some(u64::from(self.prefix().prompts()))
    }

    fn lengths(&self, _profile: Profile) -> String {
        let prefix = self.prefix();
        let drawn = |longest: u32| lengths::range(longest, prefix.range_ratio, 1);
        let output = self
            .output_len
            .map_or_else(String::new, |tokens| format!(" / {} out", drawn(tokens)));
        format!(
            "{} + {} in{output}",
            drawn(prefix.system_len),
            drawn(prefix.question_len)
        )
    }

    fn objections(&self, _profile: Profile, say: &mut Say<'_>) {
        let prefix = self.prefix();
        prefix
            .objections()
            .into_iter()
            .for_each(|why| say("shared_prefix", why));
        if prefix.turns > 1 && self.tokenize_prompt {
            say(
                "tokenize_prompt",
                "conversations of several `turns` are chat messages, which are no token ids; remove one of them".to_owned(),
            );
        }
    }
}

/// What `generated-shared-prefix` draws: groups of prompts that begin alike.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SharedPrefix {
    /// How many system prompts there are; 64 unless said otherwise.
    pub(crate) groups: u32,
    /// How many prompts begin with each of them; 16 unless said otherwise.
    pub(crate) prompts_per_group: u32,
    /// Tokens of a system prompt, at most; 2048 unless said otherwise.
    pub(crate) system_len: u32,
    /// Tokens of a question, at most; 128 unless said otherwise.
    pub(crate) question_len: u32,
    /// Lengths are drawn between this share of the most and the most; 1, unless said otherwise, draws none.
    pub(crate) range_ratio: f64,
    /// Questions of a conversation; 1, unless said otherwise, makes single requests.
    pub(crate) turns: u32,
    /// Which groups the prompts come from.
    pub(crate) popularity: Popularity,
    /// Whether prompts stay in the order of their groups instead of being shuffled.
    pub(crate) ordered: bool,
    /// Whether prompts are left uncounted, so that each counts as one token.
    pub(crate) uncounted: bool,
    /// Whether each request tells a router its group, in the header `X-SMG-Routing-Key`.
    pub(crate) routing_key: bool,
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
    pub(crate) const fn prompts(&self) -> u32 {
        self.groups.saturating_mul(self.prompts_per_group)
    }

    /// Everything that is wrong with it, and how to mend it.
    pub(crate) fn objections(&self) -> Vec<String> {
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
pub(crate) enum Popularity {
    /// Every group has equally many.
    #[default]
    Uniform,
    /// Drawn; the share of the n-th group falls with the `alpha`-th power of n.
    Zipf {
        /// How steeply the shares fall; above 0.
        alpha: f64,
    },
}
