//! `generated-shared-prefix`: groups of questions behind one long system prompt each.

use serde::{Deserialize, Serialize};

use super::error::ReportError;
use super::lengths;
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

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        let prefix = self.prefix();
        prefix
            .find_errors()
            .into_iter()
            .for_each(|why| report("shared_prefix", why));
        if let Some(why) = lengths::too_many_tokens(prefix.max_tokens()) {
            report("shared_prefix", why);
        }
        if prefix.turns > 1 && self.tokenize_prompt {
            report(
                "tokenize_prompt",
                "conversations with several `turns` are sent as chat messages, not as token ids; remove `turns` or `tokenize_prompt`".to_owned(),
            );
        }
    }
}

/// Groups of prompts that `generated-shared-prefix` draws. The prompts of a group share a system prompt.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SharedPrefix {
    /// Number of system prompts; default 64.
    pub(crate) groups: u32,
    /// Number of prompts per system prompt; default 16. `groups` times this is the number of prompts.
    pub(crate) prompts_per_group: u32,
    /// Length of a system prompt in tokens, the maximum if `range_ratio` is below 1; default 2048.
    pub(crate) system_len: u32,
    /// Length of a question in tokens, the maximum if `range_ratio` is below 1; default 128.
    pub(crate) question_len: u32,
    /// Lengths are drawn between this share of the maximum and the maximum; default 1: all have the maximum.
    pub(crate) range_ratio: f64,
    /// Number of questions per conversation; default 1: single requests.
    pub(crate) turns: u32,
    /// How prompts are distributed over groups; default `uniform`.
    pub(crate) popularity: GroupDistribution,
    /// Whether prompts stay in the order of their groups; default `false`: they are shuffled.
    pub(crate) ordered: bool,
    /// Whether the tokens of prompts are not counted, to save time; each prompt then counts as one token.
    /// Default `false`.
    pub(crate) uncounted: bool,
    /// Whether each request carries its group in the header `X-SMG-Routing-Key`, for a router; default `false`.
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
            popularity: GroupDistribution::Uniform,
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

    /// Tokens of all prompts, at most.
    fn max_tokens(&self) -> u64 {
        let questions = u64::from(self.question_len).saturating_mul(self.turns.into());
        let prompt = questions.saturating_add(self.system_len.into());
        prompt.saturating_mul(self.prompts().into())
    }

    /// Everything that is wrong with it, and how to fix it.
    pub(crate) fn find_errors(&self) -> Vec<String> {
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
            "`groups` times `prompts_per_group` is more prompts than can be counted; lower one of them"
                .to_owned(),
        );
        no(
            !(0.0..=1.0).contains(&self.range_ratio),
            format!(
                "`range_ratio` is {}; write a number from 0 to 1",
                self.range_ratio
            ),
        );
        if let GroupDistribution::Zipf { alpha } = self.popularity {
            no(
                !(alpha.is_finite() && alpha > 0.0),
                format!("`alpha` is {alpha}; write a number above 0"),
            );
        }
        found
    }
}

/// How prompts are distributed over groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum GroupDistribution {
    /// Every group has equally many prompts.
    #[default]
    Uniform,
    /// The group of each prompt is drawn; the probability of the n-th group is proportional to 1 / n^`alpha`.
    Zipf {
        /// Exponent: how steeply the probabilities fall; above 0.
        alpha: f64,
    },
}
