//! Rerank requests, and their answers in the form of each dialect. Pure.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::sim::dialect::RequestError;
use crate::sim::dialect::request::check_model;
use crate::sim::options::{Dialect, Options};
use crate::sim::rng::mix;
use crate::sim::text;

/// A valid rerank request.
#[derive(Clone, Debug)]
pub(crate) struct RerankRequest {
    model: String,
    documents: Vec<String>,
    /// Query and document together, for each document.
    pub(crate) pairs: Vec<Pair>,
    /// The largest number of results.
    limit: usize,
}

/// A query with one of its documents, which are one prompt.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) prompt: Vec<u64>,
    pub(crate) key: u64,
}

impl Pair {
    /// A score from 0 to 1, which depends on the tokens only.
    fn score(&self) -> f64 {
        (mix(self.key) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[derive(Deserialize)]
struct Body {
    model: Option<String>,
    query: Option<String>,
    documents: Option<Vec<Value>>,
    top_n: Option<usize>,
}

impl RerankRequest {
    pub(crate) fn parse(body: &[u8], options: &Options) -> Result<Self, RequestError> {
        let refuse = |message: String| RequestError { status: 400, message };
        let body: Body = serde_json::from_slice(body)
            .map_err(|error| refuse(format!("the body is not a JSON request: {error}")))?;
        let model = check_model(body.model.as_deref(), options)?;
        let query = body.query.filter(|query| !query.is_empty());
        let query = query.ok_or_else(|| refuse("`query` must be a string that is not empty".to_owned()))?;
        let text = |document: &Value| {
            let text = document.as_str().or_else(|| document.get("text")?.as_str());
            text.map(str::to_owned)
        };
        let documents: Option<Vec<String>> = body.documents.iter().flatten().map(text).collect();
        let documents = documents.filter(|documents| !documents.is_empty());
        let documents = documents.ok_or_else(|| refuse("`documents` must be a list of texts".to_owned()))?;
        let longest = options.max_model_len.saturating_sub(1);
        let pair = |document: &String| {
            let mut prompt = Vec::new();
            text::append_pieces(&query, longest, &mut prompt);
            text::append_pieces(document, longest, &mut prompt);
            prompt.truncate(options.faults.truncate_prompts.unwrap_or(usize::MAX).max(1));
            Pair {
                key: text::answer_key(options.seed, &prompt),
                prompt,
            }
        };
        let pairs: Vec<Pair> = documents.iter().map(pair).collect();
        if let Some(pair) = pairs.iter().find(|pair| pair.prompt.len() > longest) {
            return Err(refuse(format!(
                "This model's maximum context length is {} tokens. However, a query and a document have at least {} tokens.",
                options.max_model_len,
                pair.prompt.len()
            )));
        }
        let share = options.faults.early_end.unwrap_or(1.0);
        let most = ((documents.len() as f64 * share).ceil() as usize).max(1);
        Ok(Self {
            model,
            limit: body
                .top_n
                .filter(|most| *most > 0)
                .unwrap_or(documents.len())
                .min(most),
            documents,
            pairs,
        })
    }

    /// Tokens of all pairs.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.pairs.iter().map(|pair| pair.prompt.len()).sum()
    }

    /// The answer, with the best documents first.
    pub(crate) fn response(&self, options: &Options, id: u64) -> String {
        let mut order: Vec<usize> = (0..self.pairs.len()).collect();
        order.sort_by(|one, other| self.pairs[*other].score().total_cmp(&self.pairs[*one].score()));
        let best = order.into_iter().take(self.limit);
        let hides_usage = options.faults.hide_usage;
        if options.dialect == Dialect::Sglang {
            let results = best.map(|index| {
                let pair = &self.pairs[index];
                let tokens = (!hides_usage).then_some(pair.prompt.len());
                json!({
                    "score": pair.score(), "document": self.documents[index], "index": index,
                    "meta_info": { "id": format!("{id:016x}"), "prompt_tokens": tokens },
                })
            });
            return results.collect::<Value>().to_string();
        }
        let results = best.map(|index| {
            json!({
                "index": index, "document": { "text": self.documents[index] }, "relevance_score": self.pairs[index].score(),
            })
        });
        let results: Vec<Value> = results.collect();
        let tokens = self.prompt_tokens();
        let usage = (!hides_usage).then(|| json!({ "prompt_tokens": tokens, "total_tokens": tokens }));
        json!({ "id": format!("score-{id:016x}"), "model": self.model, "usage": usage, "results": results })
            .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(dialect: Dialect) -> Options {
        Options {
            dialect,
            models: vec!["m".to_owned()],
            ..Options::default()
        }
    }

    const BODY: &str =
        r#"{"model": "m", "query": "who is it", "documents": ["a b", {"text": "c d e"}, "f"]}"#;

    fn answer(body: &str, options: &Options) -> Value {
        let request = RerankRequest::parse(body.as_bytes(), options).unwrap();
        serde_json::from_str(&request.response(options, 1)).unwrap()
    }

    #[test]
    fn each_document_has_a_score_and_the_best_stands_first() {
        let vllm = answer(BODY, &options(Dialect::Vllm));
        // Three words of the query with each of two, three words and one.
        assert_eq!(vllm["usage"], json!({"prompt_tokens": 15, "total_tokens": 15}));
        let results = vllm["results"].as_array().unwrap();
        let scores: Vec<f64> = results
            .iter()
            .map(|result| result["relevance_score"].as_f64().unwrap())
            .collect();
        assert!(scores.is_sorted_by(|one, next| one >= next), "{scores:?}");
        let mut indexes: Vec<u64> = results
            .iter()
            .map(|result| result["index"].as_u64().unwrap())
            .collect();
        indexes.sort_unstable();
        assert_eq!(indexes, [0, 1, 2]);
        let sglang = answer(BODY, &options(Dialect::Sglang));
        let tokens = sglang
            .as_array()
            .unwrap()
            .iter()
            .map(|result| result["meta_info"]["prompt_tokens"].as_u64());
        assert_eq!(tokens.sum::<Option<u64>>(), Some(15));
        assert_eq!(sglang[0]["index"], results[0]["index"]);
    }

    #[test]
    fn top_n_and_faults_shorten_the_list() {
        let body = BODY.replace("\"query\"", "\"top_n\": 2, \"query\"");
        let mut options = options(Dialect::Vllm);
        assert_eq!(answer(&body, &options)["results"].as_array().unwrap().len(), 2);
        options.faults.early_end = Some(0.3);
        options.faults.hide_usage = true;
        let answer = answer(&body, &options);
        assert_eq!(answer["results"].as_array().unwrap().len(), 1);
        assert_eq!(answer["usage"], Value::Null);
    }

    #[test]
    fn what_cannot_be_ranked_is_refused() {
        let long = format!(r#"{{"query": "a", "documents": ["{}"]}}"#, "b ".repeat(40_000));
        for body in [
            "",
            r#"{"query": "a"}"#,
            r#"{"query": "a", "documents": []}"#,
            r#"{"documents": ["a"]}"#,
            &long,
        ] {
            let refused = RerankRequest::parse(body.as_bytes(), &options(Dialect::Vllm)).unwrap_err();
            assert_eq!(refused.status, 400, "{body:.40}");
        }
    }
}
