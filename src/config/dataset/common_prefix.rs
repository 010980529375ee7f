//! A share of each prompt's tokens that is the same for the prompts of a group, so that the hit rate of a prefix cache is known.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

/// Tokens at the beginning of prompts that the prompts of a group share.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(crate) struct CommonPrefix {
    /// Share of each prompt's tokens, above 0 and at most 1.
    pub(crate) share: f64,
    /// Number of groups, each with a prefix of its own; default 1. The group of each prompt is drawn with equal probability.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) groups: Option<NonZeroU32>,
    /// The number of shared tokens is rounded down to a multiple of this, the block size of the engine's cache; default 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) block_tokens: Option<NonZeroU32>,
}

impl CommonPrefix {
    pub(crate) fn groups(self) -> u32 {
        self.groups.map_or(1, NonZeroU32::get)
    }

    /// The number of tokens that a prompt of this length shares with its group.
    pub(crate) fn shared_tokens(self, length: u32) -> u32 {
        let block = self.block_tokens.map_or(1, NonZeroU32::get);
        let shared = (f64::from(length) * self.share) as u32;
        shared.min(length) / block * block
    }

    /// Describes what is wrong with it for prompts of at most this length; `None` if nothing is.
    pub(crate) fn find_error(self, max_input: Option<u32>) -> Option<String> {
        if !(self.share > 0.0 && self.share <= 1.0) {
            return Some(format!(
                "the share of common tokens is {}; write a number above 0 and at most 1",
                self.share
            ));
        }
        let max = max_input.filter(|max| self.shared_tokens(*max) == 0)?;
        Some(format!(
            "prompts have at most {max} tokens, and their common part is shorter than one block; raise the share or the prompt length, or make blocks shorter"
        ))
    }
}

impl fmt::Display for CommonPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = (self.share * 1e4).round() / 100.0;
        match self.groups() {
            1 => write!(f, "{percent} % of each prompt is the same in all prompts")?,
            groups => write!(
                f,
                "{percent} % of each prompt is the same in all prompts of its group ({groups} groups)"
            )?,
        }
        match self.block_tokens {
            Some(block) => write!(
                f,
                "; the number of common tokens is rounded down to a multiple of {block}"
            ),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(json: &str) -> CommonPrefix {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn shared_tokens_are_whole_blocks() {
        let blocks = prefix(r#"{"share": 0.5, "groups": 3, "block_tokens": 16}"#);
        assert_eq!(
            [31, 32, 63, 64, 100].map(|length| blocks.shared_tokens(length)),
            [0, 16, 16, 32, 48]
        );
        assert_eq!(
            blocks.to_string(),
            "50 % of each prompt is the same in all prompts of its group (3 groups); the number of common tokens is rounded down to a multiple of 16"
        );
        assert_eq!(prefix(r#"{"share": 1}"#).shared_tokens(7), 7);
    }

    #[test]
    fn a_share_that_leaves_no_common_token_is_refused() {
        for (json, is_wrong) in [
            (r#"{"share": 0}"#, true),
            (r#"{"share": 1.1}"#, true),
            (r#"{"share": 0.01}"#, true),
            (r#"{"share": 0.5, "block_tokens": 64}"#, true),
            (r#"{"share": 0.5, "block_tokens": 16}"#, false),
        ] {
            assert_eq!(prefix(json).find_error(Some(64)).is_some(), is_wrong, "{json}");
        }
    }
}
