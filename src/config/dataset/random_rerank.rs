//! `random-rerank`: queries, each with documents to rank, of drawn lengths.

use serde::{Deserialize, Serialize};

use super::error::ReportError;
use super::lengths;
use super::rules::{Facts, PromptForm, Rules};
use crate::config::profile::Profile;

/// The options of `random-rerank`, as `with_dataset_options!` describes them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct RandomRerank {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rerank: Option<Documents>,
}

impl RandomRerank {
    pub(crate) fn documents(&self) -> Documents {
        self.rerank.clone().unwrap_or_default()
    }
}

/// The query and the documents of each request of `random-rerank`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(test, schemars(rename = "Rerank"))]
pub(crate) struct Documents {
    /// Length of a query in tokens, the maximum if `range_ratio` is below 1; default 32.
    pub(crate) query_len: u32,
    /// Number of documents of each request; default 16.
    pub(crate) documents: u32,
    /// Length of a document in tokens, the maximum if `range_ratio` is below 1; default 256.
    pub(crate) document_len: u32,
    /// Lengths are drawn between this share of the maximum and the maximum; default 1: all have the maximum.
    pub(crate) range_ratio: f64,
}

impl Default for Documents {
    fn default() -> Self {
        Self {
            query_len: 32,
            documents: 16,
            document_len: 256,
            range_ratio: 1.0,
        }
    }
}

impl Documents {
    /// Tokens of the query and all documents of one request, at most.
    fn max_tokens(&self) -> u64 {
        let documents = u64::from(self.documents) * u64::from(self.document_len);
        documents + u64::from(self.query_len)
    }
}

impl Rules for RandomRerank {
    fn facts(&self) -> Facts<'_> {
        Facts {
            prompts: PromptForm::Documents,
            ..Facts::default()
        }
    }

    fn prompt_tokens(&self) -> u64 {
        self.documents().max_tokens()
    }

    fn lengths(&self, _profile: Profile) -> String {
        let documents = self.documents();
        let drawn = |longest: u32| lengths::range(longest, documents.range_ratio, 1);
        format!(
            "a query of {} tokens and {} documents of {} tokens as input",
            drawn(documents.query_len),
            documents.documents,
            drawn(documents.document_len)
        )
    }

    fn find_errors(&self, _profile: Profile, report: &mut ReportError<'_>) {
        let documents = self.documents();
        for (name, count) in [
            ("query_len", documents.query_len),
            ("documents", documents.documents),
            ("document_len", documents.document_len),
        ] {
            if count == 0 {
                report("rerank", format!("`{name}` is 0 and must be at least 1"));
            }
        }
        if !(0.0..=1.0).contains(&documents.range_ratio) {
            let ratio = documents.range_ratio;
            report(
                "rerank",
                format!("`range_ratio` is {ratio}; write a number from 0 to 1"),
            );
        }
    }
}
