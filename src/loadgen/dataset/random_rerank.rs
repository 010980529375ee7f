//! The `random-rerank` data set: queries with documents, all of drawn lengths.

use serde_json::Value;

use super::exact_length::fit_all;
use super::random::{consecutive_ids, draw_lengths};
use super::{DatasetError, MakeRows, Prompt, RngState, RowInputs, Rows, token_count};
use crate::config::dataset::random_rerank::RandomRerank;
use crate::loadgen::dataset::Content;

impl MakeRows for RandomRerank {
    /// Draws for each request the lengths, and then where each run of consecutive ids begins, of the query and of its
    /// documents in turn. Texts that have another length when they are read again are cut or filled with drawn ids.
    ///
    /// Prompt tokens are those of the query once for each document, and those of the documents, as a model counts that reads
    /// each pair.
    fn rows(&self, inputs: &RowInputs<'_>, rng: &mut RngState) -> Result<Rows, DatasetError> {
        let spec = self.documents();
        let (documents, tokenizer) = (spec.documents as usize, inputs.tokenizer);
        let special = tokenizer.special_ids();
        let mut ids: Vec<u32> = (0..token_count(tokenizer.vocab_size())).collect();
        ids.retain(|id| !special.contains(id));
        let count = ids.len() as u64;
        let mut prompts = Vec::with_capacity(inputs.prompts);
        for _ in 0..inputs.prompts {
            let mut lengths = draw_lengths(spec.query_len, spec.range_ratio, 1, 1, &mut rng.numpy);
            lengths.extend(draw_lengths(
                spec.document_len,
                spec.range_ratio,
                1,
                documents,
                &mut rng.numpy,
            ));
            let mut run = |length: &u32| {
                let places = consecutive_ids(rng.numpy.randint(0, count), *length, count);
                places.into_iter().map(|place| ids[place as usize]).collect()
            };
            let runs: Vec<Vec<u32>> = lengths.iter().map(&mut run).collect();
            let any = || ids[rng.numpy.randint(0, count) as usize];
            let mut texts = fit_all(tokenizer, runs, |place| lengths[place] as usize, any)?.into_iter();
            let query = texts.next().expect("the first text is the query");
            let query_tokens = token_count(query.ids.len());
            let mut tokens = 0u32;
            let texts = texts.map(|document| {
                tokens = tokens.saturating_add(query_tokens + token_count(document.ids.len()));
                Value::from(document.text)
            });
            let documents: Vec<Value> = texts.collect();
            let mut prompt = Prompt::new(Content::Text(query.text.into()), tokens, 0);
            let fields = &mut prompt.extras_mut().body;
            fields.insert("documents".to_owned(), documents.into());
            prompts.push(prompt);
        }
        Ok(Rows::new(prompts))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::dataset::random_rerank::Documents;
    use crate::config::workload::{Profile, Workload};
    use crate::loadgen::dataset::tokenizer::Tokenizer;
    use crate::loadgen::dataset::{Caches, prepare};

    #[test]
    fn each_query_has_its_own_documents_of_the_drawn_lengths() {
        let tokenizer = Tokenizer::bytes();
        let mut workload = Workload::with(RandomRerank {
            rerank: Some(Documents {
                query_len: 8,
                documents: 3,
                document_len: 20,
                range_ratio: 0.5,
            }),
        });
        workload.prompts = 5;
        let rows = |seed| prepare(&workload, Profile::Current, seed, &tokenizer, None).unwrap();
        let (prepared, again, other) = (rows(1), rows(1), rows(2));
        assert_eq!(prepared.prompts, again.prompts);
        assert_ne!(prepared.prompts, other.prompts);
        for prompt in &prepared.prompts {
            let extras = prompt.extras.as_ref().unwrap();
            assert_eq!(extras.body["documents"].as_array().map(Vec::len), Some(3));
            // Three pairs of 4 to 8 and 10 to 20 tokens.
            assert!(
                (42..=84).contains(&prompt.prompt_tokens),
                "{}",
                prompt.prompt_tokens
            );
            assert_eq!(prompt.output_tokens, 0);
        }
    }

    #[test]
    fn prompt_tokens_are_those_of_the_texts_of_all_pairs() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/matrices/data");
        let tokenizer = Tokenizer::open("tokenizer.json", Path::new(folder), &Caches::default()).unwrap();
        let mut workload = Workload::with(RandomRerank {
            rerank: Some(Documents {
                query_len: 10,
                documents: 4,
                document_len: 30,
                range_ratio: 1.0,
            }),
        });
        workload.prompts = 20;
        let prepared = prepare(&workload, Profile::Current, 3, &tokenizer, None).unwrap();
        for prompt in &prepared.prompts {
            let Content::Text(query) = &prompt.content else {
                panic!("{prompt:?}");
            };
            let documents = prompt.extras.as_ref().unwrap().body["documents"]
                .as_array()
                .unwrap();
            let count = |text: &str| tokenizer.count(text, false).unwrap();
            let pairs = documents
                .iter()
                .map(|text| count(query) + count(text.as_str().unwrap()));
            assert_eq!(prompt.prompt_tokens as usize, pairs.sum::<usize>());
        }
        // Consecutive ids that are read as fewer or more tokens were cut or filled.
        let exact = prepared
            .prompts
            .iter()
            .filter(|prompt| prompt.prompt_tokens == 160);
        assert!(exact.count() >= 18, "{:?}", prepared.prompts);
    }
}
