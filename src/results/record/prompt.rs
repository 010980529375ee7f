//! Token counts of a prompt by us and by the server, and the allowed difference.

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
