//! The `random-rerank` data set: queries with documents, all runs of consecutive ids of drawn lengths.

use serde_json::Value;

use super::random::{consecutive_ids, draw_lengths, texts};
use super::{DatasetError, MakeRows, Prompt, RngState, RowInputs, Rows};
use crate::config::dataset::random_rerank::RandomRerank;
use crate::loadgen::dataset::Content;

impl MakeRows for RandomRerank {
    /// Draws for each request the lengths, and then where each run begins, of the query and of its documents in turn.
    ///
    /// Prompt tokens are those of the query once for each document, and those of the documents, as a model counts that reads
    /// each pair.
    fn rows(&self, inputs: &RowInputs<'_>, rng: &mut RngState) -> Result<Rows, DatasetError> {
        let spec = self.documents();
        let documents = spec.documents as usize;
        let vocabulary = inputs.tokenizer.vocab_size() as u64;
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
            let runs: Vec<Vec<u32>> = lengths
                .iter()
                .map(|length| consecutive_ids(rng.numpy.randint(0, vocabulary), *length, vocabulary))
                .collect();
            let mut texts = texts(&runs, inputs.profile, inputs.tokenizer)?;
            let documents_of_query: Vec<Value> = texts.drain(1..).map(Value::from).collect();
            let query = texts.pop().expect("the first text is the query");
            let tokens = lengths[1..]
                .iter()
                .fold(0u32, |sum, length| sum.saturating_add(length + lengths[0]));
            let mut prompt = Prompt::new(Content::Text(query.into()), tokens, 0);
            let fields = &mut prompt.extras_mut().body;
            fields.insert("documents".to_owned(), documents_of_query.into());
            prompts.push(prompt);
        }
        Ok(Rows::new(prompts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::dataset::random_rerank::Documents;
    use crate::config::workload::{Profile, Workload};
    use crate::loadgen::dataset::prepare;
    use crate::loadgen::dataset::tokenizer::Tokenizer;

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
}
