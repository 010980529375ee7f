//! Rerank, as Jina and Cohere have it: `POST /v1/rerank`. A request has a query and documents; an answer is one
//! JSON object with a score for each document, or the list of results alone, as SGLang has it. Scores are counted
//! and not kept.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::decoded::{BorrowedStr, Decoded, error_text};
use super::params::{EncodeError, RequestParams, prompt_value};
use super::{errors, lenient};
use crate::loadgen::dataset::Content;

/// The documents are a field of the row. A prompt without them, such as the first request that a server is sent, is
/// ranked against itself.
pub(super) fn body(prompt: &Content, params: &RequestParams<'_>) -> Result<Map<String, Value>, EncodeError> {
    let query = prompt_value(prompt)?;
    let documents = json!([query]);
    Ok([
        ("model", json!(params.model)),
        ("query", query),
        ("documents", documents),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into_iter()
    .collect())
}

#[derive(Deserialize)]
struct Answer<'a> {
    #[serde(default)]
    results: Option<Vec<RankedDocument>>,
    #[serde(borrow, default)]
    model: Option<BorrowedStr<'a>>,
    #[serde(default)]
    usage: Option<Counts>,
    /// Where Cohere's servers report counts.
    #[serde(default)]
    meta: Option<Meta>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// Web frameworks put an error message here, without any other field.
    #[serde(borrow, default)]
    detail: Option<&'a RawValue>,
}

/// What a complete answer has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedRanking {
    /// The number of results.
    pub(super) results: usize,
    /// The number of documents that were sent.
    pub(super) documents: usize,
}

impl ExpectedRanking {
    /// Sets the prompt tokens of an answer that reports them for each result, unless results were left out (`top_n`),
    /// whose tokens are unknown.
    pub(super) fn sum_tokens(self, decoded: &mut Decoded) {
        if let Some(tokens) = decoded
            .result_tokens
            .filter(|_| decoded.vectors == self.documents)
        {
            decoded.usage.get_or_insert_default().prompt = Some(tokens);
        }
    }

    /// Says what an answer has instead.
    pub(super) fn error(self, decoded: &Decoded) -> Option<String> {
        let Self { results, documents } = self;
        if decoded.vectors != results {
            return Some(format!(
                "the ranking has {} results instead of {results}",
                decoded.vectors
            ));
        }
        let last = decoded.last_document.filter(|last| *last >= documents as u64)?;
        Some(format!(
            "the ranking has document {last} (counted from 0), but only {documents} documents were sent"
        ))
    }
}

#[derive(Deserialize)]
struct RankedDocument {
    #[serde(default)]
    index: Option<u64>,
    /// Some servers call it `score`.
    #[serde(default, alias = "score")]
    relevance_score: Option<f64>,
    /// What SGLang reports of the pair of query and document.
    #[serde(default)]
    meta_info: Option<Counts>,
}

/// Says what is wrong with a ranking: it has each document once, with a score.
fn ranking_error(results: &[RankedDocument]) -> Option<String> {
    let mut indexes = BTreeSet::new();
    results.iter().enumerate().find_map(|(place, result)| {
        let Some(index) = result.index else {
            return Some(format!("result {place} of the ranking has no index"));
        };
        if result.relevance_score.is_none() {
            return Some(format!("result {place} of the ranking has no score"));
        }
        (!indexes.insert(index)).then(|| format!("document {index} is ranked twice"))
    })
}

/// Some servers report only the total, which consists of prompt tokens.
#[derive(Deserialize)]
struct Counts {
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    prompt_tokens: Option<u32>,
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    total_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default)]
    tokens: Option<MetaTokens>,
}

#[derive(Deserialize)]
struct MetaTokens {
    #[serde(default, deserialize_with = "lenient::prompt_count")]
    input_tokens: Option<u32>,
}

/// Reads an answer; returns the server's message if it reports an error.
pub(super) fn read(json: &str, decoded: &mut Decoded) -> Result<Option<String>, serde_json::Error> {
    if json.starts_with('[') {
        let results: Vec<RankedDocument> = serde_json::from_str(json)?;
        let tokens = results
            .iter()
            .map(|result| result.meta_info.as_ref()?.prompt_tokens);
        let tokens: Option<Vec<u32>> = tokens.collect();
        decoded.result_tokens = tokens.map(|tokens| tokens.into_iter().fold(0, u32::saturating_add));
        return Ok(note_results(&results, decoded));
    }
    let answer: Answer<'_> = serde_json::from_str(json)?;
    if let Some(error) = answer.error {
        return Ok(Some(error_text(error.get())));
    }
    let Some(results) = answer.results else {
        let detail = answer.detail.map(|detail| error_text(detail.get()));
        return Ok(detail.or_else(|| errors::nonstandard_error(json)));
    };
    let reported = answer
        .usage
        .and_then(|usage| usage.prompt_tokens.or(usage.total_tokens));
    let of_meta = answer.meta.and_then(|meta| meta.tokens?.input_tokens);
    if let Some(tokens) = reported.or(of_meta) {
        decoded.usage.get_or_insert_default().prompt = Some(tokens).filter(|tokens| *tokens > 0);
    }
    decoded.note_model(answer.model);
    Ok(note_results(&results, decoded))
}

/// Counts the results; says what is wrong with them.
fn note_results(results: &[RankedDocument], decoded: &mut Decoded) -> Option<String> {
    decoded.vectors += results.len();
    decoded.last_document = results.iter().filter_map(|result| result.index).max();
    ranking_error(results)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loadgen::dataset::Extras;
    use crate::loadgen::protocol::ExpectedResults;
    use crate::loadgen::protocol::{Decoder, LineKind, encode};
    use crate::plan::{ClientStyle, Protocol, ProtocolSpec, UsageRequest};

    #[test]
    fn a_body_has_the_documents_of_the_row_or_the_query_itself() {
        let dialect = ProtocolSpec {
            protocol: Protocol::Rerank,
            path: None,
            usage: UsageRequest::StreamOptions,
            body: Map::new(),
            routing_key_header: None,
            embeddings: Default::default(),
            style: ClientStyle::BenchServing,
        };
        let extras = Extras {
            body: Map::from_iter([("documents".to_owned(), json!(["a", "b"]))]),
            ..Extras::default()
        };
        let nothing = Map::new();
        let encoded = |extras| {
            let params = RequestParams {
                extras,
                ..RequestParams::without_extras("m", 0, false, &nothing)
            };
            let body = encode(&dialect, &Content::Text("q".to_owned().into()), &params).unwrap();
            String::from_utf8(body).unwrap()
        };
        assert_eq!(
            encoded(Some(&extras)),
            r#"{"model":"m","query":"q","documents":["a","b"]}"#
        );
        assert_eq!(encoded(None), r#"{"model":"m","query":"q","documents":["q"]}"#);
    }

    #[test]
    fn a_ranking_has_each_document_once_with_a_score() {
        let error = |results: Value| {
            let mut decoder = Decoder::new(Protocol::Rerank, 1 << 20).expect_results(Some(
                ExpectedResults::Ranking(ExpectedRanking {
                    results: 2,
                    documents: 3,
                }),
            ));
            decoder.push(
                LineKind::Plain,
                json!({"results": results}).to_string().as_bytes(),
                1,
            );
            decoder.finish(true).failure.map(|failure| failure.message)
        };
        let ranked = |index: u64| json!({"index": index, "relevance_score": 0.5});
        assert_eq!(error(json!([ranked(2), ranked(0)])), None);
        assert_eq!(error(json!([ranked(2), {"index": 1, "score": 1}])), None);
        for (results, message) in [
            (json!([ranked(0)]), "has 1 results instead of 2"),
            (
                json!([ranked(0), ranked(1), ranked(2)]),
                "has 3 results instead of 2",
            ),
            (json!([ranked(0), ranked(0)]), "document 0 is ranked twice"),
            (
                json!([ranked(0), ranked(3)]),
                "has document 3 (counted from 0), but only 3 documents",
            ),
            (
                json!([ranked(0), {"index": 1, "relevance_score": null}]),
                "no score",
            ),
            (json!([ranked(0), {"relevance_score": 0.5}]), "no index"),
        ] {
            let failure = error(results.clone()).unwrap_or_default();
            assert!(failure.contains(message), "{results}: {failure}");
        }
    }

    #[test]
    fn a_list_of_results_reports_the_tokens_of_each_pair() {
        let read = |answer: Value, results| {
            let ranking = ExpectedResults::Ranking(ExpectedRanking {
                results,
                documents: 2,
            });
            let mut decoder = Decoder::new(Protocol::Rerank, 1 << 20).expect_results(Some(ranking));
            decoder.push(LineKind::Plain, answer.to_string().as_bytes(), 1);
            let decoded = decoder.finish(true);
            (
                decoded.failure.map(|failure| failure.message),
                decoded.usage.and_then(|usage| usage.prompt),
            )
        };
        let pair = |index: u64, tokens: Value| json!({"score": 0.5, "index": index, "meta_info": {"prompt_tokens": tokens}});
        assert_eq!(
            read(json!([pair(1, json!(7)), pair(0, json!(5))]), 2),
            (None, Some(12))
        );
        // With `top_n: 1` the pair that was left out has tokens, too.
        assert_eq!(read(json!([pair(1, json!(7))]), 1), (None, None));
        assert_eq!(
            read(json!([pair(1, json!(7)), pair(0, Value::Null)]), 2),
            (None, None)
        );
        assert_eq!(
            read(json!([pair(1, json!(7)), pair(1, json!(7))]), 2)
                .0
                .as_deref(),
            Some("document 1 is ranked twice")
        );
        let (failure, _) = read(json!([]), 2);
        assert!(failure.unwrap().contains("0 results instead of 2"));
    }

    #[test]
    fn scores_are_an_answer_and_their_counts_stand_where_each_server_has_them() {
        let read = |answer: Value| {
            let mut decoder = Decoder::new(Protocol::Rerank, 1 << 20);
            decoder.push(LineKind::Plain, answer.to_string().as_bytes(), 1);
            decoder.finish(true)
        };
        let results = json!([{"index": 1, "relevance_score": 0.5}, {"index": 0, "relevance_score": 0.1}]);
        for (answer, prompt) in [
            (
                json!({"results": results, "model": "m", "usage": {"prompt_tokens": 7, "total_tokens": 7}}),
                Some(7),
            ),
            (json!({"results": results, "usage": {"total_tokens": 7}}), Some(7)),
            (
                json!({"results": results, "meta": {"tokens": {"input_tokens": 7}}}),
                Some(7),
            ),
            (json!({"results": results}), None),
        ] {
            let decoded = read(answer.clone());
            assert_eq!(decoded.failure, None, "{answer}");
            assert_eq!(decoded.usage.and_then(|usage| usage.prompt), prompt, "{answer}");
        }
        for (answer, message) in [
            (json!({"results": []}), "the response has no output"),
            (json!({"error": {"message": "too long"}}), "too long"),
            (json!({"detail": "Not Found"}), "Not Found"),
        ] {
            let failure = read(answer).failure.unwrap();
            assert!(failure.message.contains(message), "{}", failure.message);
        }
    }
}
