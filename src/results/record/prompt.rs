//! The length of a prompt by our count and by the server's, and how far the two may be apart.

use super::request::Request;

/// Tokens by which a server's count of one prompt may differ from ours: a BOS token, and a split that is not quite ours.
pub(crate) const FEW_TOKENS: f64 = 8.0;

/// Tokens that a chat template may put around a prompt.
pub(crate) const TEMPLATE_TOKENS: f64 = 256.0;

/// The same around each further message.
const MESSAGE_TOKENS: f64 = 16.0;

/// Tokens by which a message may have fewer where a template trims it or joins it to what stands around it.
const JOINED_TOKENS: f64 = 2.0;

/// The share of a prompt by which the server's count may differ for it to be the figure.
const SHARE: f64 = 0.02;

/// Whether a server counts so many more or fewer tokens in so many prompts that it is no BOS token and no other split.
pub(crate) fn are_apart(reported: f64, sent: f64, prompts: f64) -> bool {
    (reported - sent).abs() > (SHARE * sent).max(FEW_TOKENS * prompts)
}

/// A prompt as it was sent and as the server counts it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CountedPrompt {
    /// Tokens by our count.
    pub sent: u32,
    /// Tokens by the server's count.
    pub reported: u32,
    /// How many of ours a chat template may leave out: the reasoning in earlier answers.
    pub omittable: u32,
    /// Messages beyond the first.
    pub further: u32,
}

impl CountedPrompt {
    /// A round of a conversation; `None` where one of the counts is missing.
    pub(crate) fn of_round(request: &Request) -> Option<Self> {
        let round = request.round?;
        Some(Self {
            sent: request.counted_prompt?,
            reported: request.usage?.prompt?,
            omittable: request.omittable_prompt,
            further: round.saturating_mul(2),
        })
    }

    /// Whether the server counts fewer tokens than it was sent, by more than this share.
    pub(crate) fn is_fewer(&self, share: f64) -> bool {
        let missing = f64::from(self.sent) - f64::from(self.reported);
        missing > self.slack(share) + f64::from(self.omittable) + JOINED_TOKENS * f64::from(self.further)
    }

    /// Whether the server counts more tokens than it was sent, by more than this share and a template of so many tokens.
    pub(crate) fn is_more(&self, share: f64, template: f64) -> bool {
        let surplus = f64::from(self.reported) - f64::from(self.sent);
        surplus > self.slack(share) + template + MESSAGE_TOKENS * f64::from(self.further)
    }

    fn slack(&self, share: f64) -> f64 {
        (share * f64::from(self.sent)).max(FEW_TOKENS)
    }

    /// Whether the server's count is one of what was sent, in a chat.
    pub(super) fn is_borne_out(&self) -> bool {
        !self.is_fewer(SHARE) && !self.is_more(SHARE, TEMPLATE_TOKENS)
    }
}
