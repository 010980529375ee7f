//! `random`: consecutive ids from a drawn offset, after a common prefix.

use serde_json::json;

use super::identified;
use crate::config::dataset::vllm_serve::{RandomTokens, VllmRows};
use crate::loadgen::dataset::exact_length::fit_all;
use crate::loadgen::dataset::rng::NumpyGenerator;
use crate::loadgen::dataset::tokenizer::Tokenizer;
use crate::loadgen::dataset::{Content, DatasetError, Prompt, RowInputs, token_count};

pub(super) fn prompts(
    random: &RandomTokens,
    common: &VllmRows,
    inputs: &RowInputs<'_>,
) -> Result<Vec<Prompt>, DatasetError> {
    let (tokenizer, count) = (inputs.tokenizer, inputs.prompts);
    let mut rng = NumpyGenerator::new(inputs.seed);
    let vocabulary = tokenizer.vocab_size() as u64;
    let Draws {
        input_lens,
        output_lens,
        offsets,
    } = Draws::make(
        &mut rng,
        count,
        [
            (random.input_len, random.input_ratio),
            (random.output_len, random.output_ratio),
        ],
        tokenizer,
    );
    let allowed = allowed_ids(tokenizer);
    let prefix_len = random.prefix_len as usize;
    let prefix = match prefix_len {
        0 => Vec::new(),
        _ => {
            let mut id = || allowed[rng.integers(0, allowed.len() as u64) as usize];
            let ids: Vec<u32> = (0..prefix_len).map(|_| id()).collect();
            let mut any = || rng.integers(0, vocabulary) as u32;
            fit_all(tokenizer, vec![ids], |_| prefix_len, &mut any)?
                .remove(0)
                .ids
        }
    };
    let lists: Vec<Vec<u32>> = (0..count)
        .map(|row| {
            let ids = consecutive(&allowed, offsets[row] + row as u64, input_lens[row]);
            prefix.iter().copied().chain(ids).collect()
        })
        .collect();
    let target = |row: usize| prefix_len + input_lens[row] as usize;
    let any = || rng.integers(0, vocabulary) as u32;
    let texts = fit_all(tokenizer, lists, target, any)?;
    let rows = texts.into_iter().zip(output_lens).enumerate();
    let prompts = rows.map(|(row, (fitted, output))| {
        let tokens = token_count(fitted.ids.len());
        let output = u32::try_from(output).expect("an output length has 32 bits");
        identified(Content::Text(fitted.text.into()), tokens, output, common, row)
    });
    let prompts: Vec<Prompt> = prompts.collect();
    match random.batch_size {
        0 | 1 => Ok(prompts),
        size => Ok(batches(&prompts, size as usize, common)),
    }
}

/// What is drawn for each row before its tokens.
pub(super) struct Draws {
    pub(super) input_lens: Vec<u64>,
    pub(super) output_lens: Vec<u64>,
    /// The first id of each row.
    pub(super) offsets: Vec<u64>,
}

impl Draws {
    /// Draws lengths, given as mean and ratio of prompts and answers, and offsets.
    pub(super) fn make(
        rng: &mut NumpyGenerator,
        count: usize,
        [(input, input_ratio), (output, output_ratio)]: [(u32, f64); 2],
        tokenizer: &Tokenizer,
    ) -> Self {
        let special = token_count(tokenizer.special_token_count());
        let mut draw =
            |low: u64, high: u64| -> Vec<u64> { (0..count).map(|_| rng.integers(low, high)).collect() };
        let (low, high) = bounds(input.saturating_sub(special), input_ratio);
        let input_lens = draw(low, high + 1);
        let (low, high) = bounds(output, output_ratio);
        Self {
            input_lens,
            output_lens: draw(low.max(1), high.max(1) + 1),
            offsets: draw(0, tokenizer.vocab_size() as u64),
        }
    }
}

/// The ids that are not special.
pub(super) fn allowed_ids(tokenizer: &Tokenizer) -> Vec<u32> {
    let special = tokenizer.special_ids();
    (0..token_count(tokenizer.vocab_size()))
        .filter(|id| !special.contains(id))
        .collect()
}

/// So many ids from a place in the list on, from the beginning again after its end.
pub(super) fn consecutive(allowed: &[u32], from: u64, length: u64) -> impl Iterator<Item = u32> {
    (from..from + length).map(|at| allowed[(at % allowed.len() as u64) as usize])
}

/// The bounds of a drawn length.
fn bounds(length: u32, ratio: f64) -> (u64, u64) {
    let length = f64::from(length);
    let (low, high) = (length * (1.0 - ratio), length * (1.0 + ratio));
    (low.floor() as u64, high.ceil() as u64)
}

/// Puts several prompts into each request of embeddings.
fn batches(prompts: &[Prompt], size: usize, common: &VllmRows) -> Vec<Prompt> {
    let batch = |(number, rows): (usize, &[Prompt])| {
        let texts: Vec<&str> = rows.iter().filter_map(text).collect();
        let tokens = rows.iter().map(|row| row.prompt_tokens).sum();
        let mut prompt = identified(rows[0].content.clone(), tokens, 0, common, number);
        prompt.extras_mut().body.insert("input".to_owned(), json!(texts));
        prompt
    };
    prompts.chunks(size).enumerate().map(batch).collect()
}

fn text(prompt: &Prompt) -> Option<&str> {
    match &prompt.content {
        Content::Text(text) => Some(text),
        _ => None,
    }
}
