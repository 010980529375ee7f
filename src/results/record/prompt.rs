//! Token counts of a prompt by us and by the server, and the allowed difference.

use serde::{Deserialize, Serialize};

use super::request::Request;

/// Allowed difference between the server's count and ours for one prompt, in tokens: a BOS token, and small
/// differences of the tokenizer.
pub(crate) const SLACK_TOKENS: f64 = 8.0;

/// Largest number of tokens that a chat template adds to a prompt.
pub(crate) const TEMPLATE_TOKENS: f64 = 256.0;

/// Largest number of tokens that a chat template adds for each further message.
const MESSAGE_TOKENS: f64 = 16.0;

/// Largest number of tokens that a message loses when a template trims it or joins it to its neighbours.
const TRIMMED_TOKENS: f64 = 2.0;

/// Allowed relative difference of the server's count for it to be used as the figure.
const SLACK_SHARE: f64 = 0.02;

/// Fewest tokens of a prompt for which two counts of different tokenizers are compared. In shorter prompts, templates and
/// special tokens explain large differences.
pub(crate) const MIN_COMPARED_TOKENS: u32 = 64;

/// Two servers cannot have read the same prompts if their counts differ by more than this factor.
const MAX_READ_FACTOR: f64 = 1.5;

/// Mean token counts of the prompts of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MeanPromptTokens {
    /// Tokens of a prompt by our own count.
    pub(crate) sent: f64,
    /// Tokens of a prompt by the server's count.
    pub(crate) reported: f64,
}

impl MeanPromptTokens {
    /// Whether two servers cannot have read the same prompts. Each count is divided by what was sent, because the sides may
    /// have completed different requests. Short prompts are not judged.
    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        let (one, two) = (self.reported / self.sent, other.reported / other.sent);
        self.sent.min(other.sent) >= f64::from(MIN_COMPARED_TOKENS)
            && one.max(two) > MAX_READ_FACTOR * one.min(two)
    }
}

/// Whether the server's count of `prompts` prompts differs from ours by more than BOS tokens and the
/// tokenizer explain.
pub(crate) fn counts_differ(reported: f64, sent: f64, prompts: f64) -> bool {
    (reported - sent).abs() > (SLACK_SHARE * sent).max(SLACK_TOKENS * prompts)
}

/// Token counts of one prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CountedPrompt {
    /// Tokens by our own count.
    pub(crate) sent: u32,
    /// Tokens by the server's count.
    pub(crate) reported: u32,
    /// Tokens that a chat template may leave out: the reasoning in earlier answers.
    pub(crate) omittable: u32,
    /// Messages after the first.
    pub(crate) extra_messages: u32,
}

impl CountedPrompt {
    /// Returns the counts of a round of a conversation; `None` if a count is missing.
    pub(crate) fn from_round(request: &Request) -> Option<Self> {
        let round = request.round?;
        Some(Self {
            sent: request.counted_prompt?,
            reported: request.usage?.prompt?,
            omittable: request.omittable_prompt,
            extra_messages: round.saturating_mul(2),
        })
    }

    /// Whether the server counts fewer tokens than were sent, by more than `share` and what a chat template
    /// may remove.
    pub(crate) fn is_fewer(&self, share: f64) -> bool {
        let missing = f64::from(self.sent) - f64::from(self.reported);
        missing
            > self.slack(share) + f64::from(self.omittable) + TRIMMED_TOKENS * f64::from(self.extra_messages)
    }

    /// Whether the server counts more tokens than were sent, by more than `share` and a chat template of
    /// `template` tokens.
    pub(crate) fn is_more(&self, share: f64, template: f64) -> bool {
        let surplus = f64::from(self.reported) - f64::from(self.sent);
        surplus > self.slack(share) + template + MESSAGE_TOKENS * f64::from(self.extra_messages)
    }

    fn slack(&self, share: f64) -> f64 {
        (share * f64::from(self.sent)).max(SLACK_TOKENS)
    }

    /// Whether our count agrees with the server's, allowing for a chat template.
    pub(super) fn is_plausible(&self) -> bool {
        !self.is_fewer(SLACK_SHARE) && !self.is_more(SLACK_SHARE, TEMPLATE_TOKENS)
    }
}
