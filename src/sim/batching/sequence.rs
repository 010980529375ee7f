//! One request in the batch: its progress and its blocks.

use std::time::Duration;

use crate::sim::batching::blocks::BlockHash;
use crate::sim::rng::chain_hash;
use crate::sim::text;

/// A request to the batch.
#[derive(Clone, Debug)]
pub(crate) struct Submission {
    /// Unique within the engine.
    pub(crate) id: u64,
    /// Token ids; at least one.
    pub(crate) prompt: Vec<u64>,
    /// Number of tokens of the answer; at least one.
    pub(crate) output: usize,
    /// Key of the answer's words. Their ids are part of the prefix-cache hashes.
    pub(crate) key: u64,
}

#[derive(Debug)]
pub(crate) struct Sequence {
    pub(crate) id: u64,
    pub(crate) prompt: usize,
    pub(crate) output: usize,
    key: u64,
    pub(crate) generated: usize,
    /// Tokens of prompt and answer whose KV entries exist.
    pub(crate) computed: usize,
    /// Hashes of all full blocks of prompt and answer.
    pub(crate) hashes: Vec<BlockHash>,
    tail: usize,
    tail_hash: BlockHash,
    /// How many of `hashes` are held as sealed blocks.
    pub(crate) sealed: usize,
    pub(crate) private: usize,
    /// Prompt tokens found in the prefix cache at the first admission; `None` before it.
    pub(crate) cached: Option<usize>,
    /// Whether the KV cache of its prompt came from another server at this admission.
    pub(crate) is_received: bool,
    /// Time of submission on the batch's clock.
    pub(crate) submitted: Duration,
}

impl Sequence {
    pub(crate) fn new(submission: Submission, block: usize, now: Duration) -> Self {
        let mut sequence = Self {
            id: submission.id,
            prompt: submission.prompt.len(),
            output: submission.output,
            key: submission.key,
            generated: 0,
            computed: 0,
            hashes: Vec::with_capacity((submission.prompt.len() + submission.output) / block),
            tail: 0,
            tail_hash: 0,
            sealed: 0,
            private: 0,
            cached: None,
            is_received: false,
            submitted: now,
        };
        for id in submission.prompt {
            sequence.append_token(id, block);
        }
        sequence
    }

    /// Number of tokens of the prompt and of the answer so far.
    pub(crate) fn known_tokens(&self) -> usize {
        self.prompt + self.generated
    }

    /// Number of tokens to compute before the next one can be generated; 1 while decoding.
    pub(crate) fn uncomputed_tokens(&self) -> usize {
        self.known_tokens() - self.computed
    }

    pub(crate) fn generate(&mut self, block: usize) {
        let id = text::word_id(self.key, self.generated as u64);
        self.generated += 1;
        self.append_token(id, block);
    }

    /// Hashes of the blocks that may come from the prefix cache. The last token is always computed.
    pub(crate) fn reusable(&self, block: usize) -> &[BlockHash] {
        &self.hashes[..((self.known_tokens() - 1) / block).min(self.hashes.len())]
    }

    fn append_token(&mut self, id: u64, block: usize) {
        self.tail_hash = chain_hash(self.tail_hash, id);
        self.tail += 1;
        if self.tail == block {
            self.hashes.push(self.tail_hash);
            self.tail = 0;
        }
    }
}
