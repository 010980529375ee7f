//! `prefix_repetition`: groups of prompts with a common prefix of random tokens.

use crate::config::dataset::vllm_serve::VllmRows;
use crate::loadgen::dataset::exact_length::{FittedText, fit_all};
use crate::loadgen::dataset::tokenizer::CleanUp;
use crate::loadgen::dataset::{Content, DatasetError, Prompt, RngState, RowInputs, token_count};

/// `lengths` are those of prefix, suffix and output. Requests have no ids.
pub(super) fn prompts(
    [prefix_len, suffix_len, output_len]: [u32; 3],
    prefixes: u32,
    common: &VllmRows,
    inputs: &RowInputs<'_>,
    rng: &mut RngState,
) -> Result<Vec<Prompt>, DatasetError> {
    let tokenizer = inputs.tokenizer;
    let vocabulary = tokenizer.vocab_size() as u64;
    let per_prefix = inputs.prompts / prefixes.max(1) as usize;
    let RngState { python, numpy } = rng;
    let mut drawn = |tokens: u32| -> Result<FittedText, DatasetError> {
        let mut draw = || numpy.randint(0, vocabulary) as u32;
        let ids: Vec<u32> = (0..tokens).map(|_| draw()).collect();
        Ok(fit_all(tokenizer, vec![ids], |_| tokens as usize, draw)?.remove(0))
    };
    let mut prompts = Vec::with_capacity(inputs.prompts);
    for _ in 0..prefixes {
        let prefix = drawn(prefix_len)?;
        for _ in 0..per_prefix {
            let suffix = drawn(suffix_len)?;
            let ids = [prefix.ids.as_slice(), suffix.ids.as_slice()].concat();
            let text = tokenizer.decode(&ids, CleanUp::ExceptBpe)?;
            prompts.push(Prompt::new(
                Content::Text(text.into()),
                token_count(ids.len()),
                output_len,
            ));
        }
    }
    if !common.keeps_order {
        python.shuffle(&mut prompts);
    }
    Ok(prompts)
}
