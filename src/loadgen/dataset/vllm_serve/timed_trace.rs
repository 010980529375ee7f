//! `timed_trace`: requests of a trace, made of the blocks of tokens that they share.
//!
//! The tokens of a block are drawn from Python's hash of its name, which differs between processes unless
//! `PYTHONHASHSEED` is set. These are the prompts of `PYTHONHASHSEED=0`.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;

use super::identified;
use crate::config::dataset::vllm_serve::{TimedTrace, VllmRows};
use crate::loadgen::dataset::jsonl::{Lines, malformed_line, parse_value};
use crate::loadgen::dataset::rng::{Python, string_hash};
use crate::loadgen::dataset::{Content, DatasetError, Prompt, RowInputs, token_count};

pub(super) fn prompts(
    trace: &TimedTrace,
    common: &VllmRows,
    inputs: &RowInputs<'_>,
) -> Result<Vec<Prompt>, DatasetError> {
    let path = inputs.path()?;
    let special = inputs.tokenizer.special_ids();
    let mut vocabulary = inputs.tokenizer.vocabulary();
    vocabulary.retain(|id| !special.contains(id));
    let mut blocks = Blocks {
        vocabulary,
        block_tokens: trace.block_tokens,
        drawn: HashMap::new(),
    };
    let lines = Lines::read(path)?;
    let mut prompts = Vec::new();
    for (row, (number, line)) in lines.iter().take(inputs.prompts).enumerate() {
        let malformed = |reason: String| malformed_line(inputs.dataset, path, number, &reason);
        let entry = parse_value(line).map_err(|error| malformed(error.to_string()))?;
        let missing = |field: &str| malformed(format!("the row has no number in `{field}`"));
        let length = |field: &str| {
            let length = entry.get(field).and_then(Value::as_u64);
            let length = length.and_then(|length| u32::try_from(length).ok());
            length.ok_or_else(|| missing(field))
        };
        let (input, output) = (length(&trace.input_length)?, length(&trace.output_length)?);
        let at = entry.get(&trace.timestamp).and_then(Value::as_f64);
        let at = Duration::try_from_secs_f64(at.ok_or_else(|| missing(&trace.timestamp))? * trace.unit_s);
        let at = at.map_err(|_| malformed(format!("`{}` is no time", trace.timestamp)))?;
        let names = match entry.get(&trace.hash_ids) {
            None => &[][..],
            Some(Value::Array(names)) => names,
            Some(_) => return Err(malformed(format!("`{}` is no list", trace.hash_ids))),
        };
        let ids = blocks.prompt(names, input);
        let tokens = token_count(ids.len());
        let mut prompt = identified(Content::Ids(ids.into()), tokens, output, common, row);
        prompt.extras_mut().at = trace.is_replayed.then_some(at);
        prompts.push(prompt);
    }
    Ok(prompts)
}

/// The blocks of tokens, drawn when they are first used.
struct Blocks {
    vocabulary: Vec<u32>,
    block_tokens: u32,
    drawn: HashMap<String, Vec<u32>>,
}

impl Blocks {
    /// Returns the tokens of a prompt of at most `length` tokens.
    fn prompt(&mut self, names: &[Value], length: u32) -> Vec<u32> {
        let mut ids = Vec::with_capacity(length as usize);
        let mut missing = length;
        for name in names {
            let tokens = self.block_tokens.min(missing);
            let name = match name {
                Value::String(name) => name.clone(),
                name => name.to_string(),
            };
            let key = format!("{name}:{tokens}");
            let vocabulary = &self.vocabulary;
            let block = self.drawn.entry(key).or_insert_with_key(|key| {
                let seed = string_hash(key) & 0xFFFF_FFFF;
                Python::new(seed).choices(vocabulary, tokens as usize)
            });
            ids.extend_from_slice(block);
            missing -= tokens;
            if missing == 0 {
                break;
            }
        }
        ids
    }
}
