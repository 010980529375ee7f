//! What a complete answer without text has, as its request asks for it.

use super::decoded::Decoded;
use super::embeddings::ExpectedVectors;
use super::rerank::ExpectedRanking;

/// What a complete answer without text has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ExpectedResults {
    Ranking(ExpectedRanking),
    Vectors(ExpectedVectors),
}

impl ExpectedResults {
    /// Completes the facts of an answer; says what it has instead.
    pub(super) fn settle(self, decoded: &mut Decoded) -> Option<String> {
        match self {
            Self::Ranking(ranking) => {
                ranking.sum_tokens(decoded);
                ranking.error(decoded)
            }
            Self::Vectors(vectors) => vectors.error(decoded),
        }
    }
}
