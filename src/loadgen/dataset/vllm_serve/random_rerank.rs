//! `random-rerank`: one query of random tokens with other documents in each request.

use serde_json::json;

use super::identified;
use super::random::{Draws, allowed_ids, consecutive};
use crate::config::dataset::vllm_serve::{RerankTokens, VllmRows};
use crate::loadgen::dataset::exact_length::{FittedText, fit_all};
use crate::loadgen::dataset::rng::NumpyGenerator;
use crate::loadgen::dataset::{Content, DatasetError, Prompt, RowInputs, token_count};

/// Draws the query, then the documents: lengths, and offsets at which their consecutive ids begin.
pub(super) fn prompts(
    rerank: &RerankTokens,
    common: &VllmRows,
    inputs: &RowInputs<'_>,
) -> Result<Vec<Prompt>, DatasetError> {
    let tokenizer = inputs.tokenizer;
    let mut rng = NumpyGenerator::new(inputs.seed);
    // A reranker reads a separator behind the query and behind the document.
    let separators = u32::from(rerank.is_reranker);
    let query_len = match rerank.is_reranker {
        true => (rerank.input_len / 2).saturating_sub(separators),
        false => rerank.input_len,
    };
    let mut draw = |count: usize, length: u32| {
        let lengths = [(length, rerank.range_ratio), (0, rerank.range_ratio)];
        Draws::make(&mut rng, count, lengths, tokenizer)
    };
    let query = draw(1, query_len);
    let drawn_query_len = u32::try_from(query.input_lens[0]).expect("a length has 32 bits");
    let document_len = match rerank.is_reranker {
        true => rerank.input_len.saturating_sub(drawn_query_len + separators),
        false => rerank.input_len,
    };
    let prompts = u32::try_from(inputs.prompts).expect("a number of prompts has 32 bits");
    let count = rerank.documents(prompts) as usize;
    let documents = draw(count, document_len);
    let lengths = [query.input_lens, documents.input_lens].concat();
    let offsets = [query.offsets, documents.offsets].concat();
    let allowed = allowed_ids(tokenizer);
    let lists = (0..lengths.len())
        .map(|row| consecutive(&allowed, offsets[row] + row as u64, lengths[row]).collect())
        .collect();
    let vocabulary = tokenizer.vocab_size() as u64;
    let any = || rng.integers(0, vocabulary) as u32;
    let mut texts = fit_all(tokenizer, lists, |row| lengths[row] as usize, any)?;
    let documents = texts.split_off(1);
    let query = texts.remove(0);
    let requests = documents
        .chunks(rerank.documents_per_request() as usize)
        .enumerate();
    let requests = requests.map(|(number, documents)| request(rerank, &query, documents, common, number));
    Ok(requests.collect())
}

fn request(
    rerank: &RerankTokens,
    query: &FittedText,
    documents: &[FittedText],
    common: &VllmRows,
    number: usize,
) -> Prompt {
    let query_tokens = match rerank.is_reranker {
        true => (query.ids.len() + 1) * documents.len(),
        false => query.ids.len(),
    };
    let tokens: usize = documents.iter().map(|document| document.ids.len()).sum();
    let content = Content::Text(query.text.clone().into());
    let mut prompt = identified(content, token_count(query_tokens + tokens), 0, common, number);
    let documents = documents.iter().map(|document| document.text.as_str());
    let (field, texts): (&str, Vec<&str>) = match rerank.has_documents {
        true => ("documents", documents.collect()),
        false => (
            "input",
            std::iter::once(query.text.as_str()).chain(documents).collect(),
        ),
    };
    prompt.extras_mut().body.insert(field.to_owned(), json!(texts));
    prompt
}
