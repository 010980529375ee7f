//! Statistics of the answers of a measurement.

use serde::{Deserialize, Serialize};

/// Statistics of the answers of a measurement and of its prompt counts, over all completed requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnswerStats {
    /// Answers that were long enough to analyse.
    pub(crate) read: u32,
    /// Answers of which almost every token is the same token.
    pub(crate) one_token: u32,
    /// Answers that begin with the text of their prompt.
    #[serde(default)]
    pub(crate) echoes: u32,
    /// Answers that are almost entirely a loop of a few tokens.
    #[serde(default)]
    pub(crate) loops: u32,
    /// Answers whose text equals the answer to another prompt.
    #[serde(default)]
    pub(crate) canned: u32,
    /// Prompts with a token count of the server.
    pub(crate) prompts: u32,
    /// Tokens of these prompts by our own count.
    pub(crate) prompt_tokens: u64,
    /// Tokens of these prompts by the server's count.
    pub(crate) reported_prompt_tokens: u64,
    /// Answers with both a token count of the server and our own.
    #[serde(default)]
    pub(crate) counted: u32,
    /// Tokens of these answers by the server's count.
    #[serde(default)]
    pub(crate) reported_tokens: u64,
    /// Tokens of these answers by our own count of the text.
    #[serde(default)]
    pub(crate) counted_tokens: u64,
    /// Stream events of these answers.
    #[serde(default)]
    pub(crate) events: u64,
    /// Completed answers with a prompt count of the server.
    #[serde(default)]
    pub(crate) prompts_reported: u32,
    /// Tokens of these prompts that stand for images.
    #[serde(default)]
    pub(crate) vision_tokens: u64,
}

impl AnswerStats {
    /// Share of one-token answers; `None` if too few answers were read.
    pub(crate) fn one_token_share(&self) -> Option<f64> {
        self.share(self.one_token)
    }

    /// The share of the answers that begin with their own prompt; `None` where too few were read.
    pub(crate) fn echo_share(&self) -> Option<f64> {
        self.share(self.echoes)
    }

    /// Share of looping answers; `None` if too few answers were read.
    pub(crate) fn loop_share(&self) -> Option<f64> {
        self.share(self.loops)
    }

    /// Share of answers that equal the answer to another prompt; `None` if too few answers were read.
    pub(crate) fn canned_share(&self) -> Option<f64> {
        self.share(self.canned)
    }

    fn share(&self, count: u32) -> Option<f64> {
        (self.read >= 8).then(|| f64::from(count) / f64::from(self.read))
    }
}
