//! `sharegpt`: first turns of conversations within vLLM's limits of length.

use serde_json::json;

use super::identified;
use crate::config::dataset::vllm_serve::VllmRows;
use crate::loadgen::dataset::conversations::ConversationFile;
use crate::loadgen::dataset::{Content, DatasetError, Prompt, RngState, RowInputs, token_count};

/// Number of conversations that are tokenized at once.
const BATCH: usize = 1024;

/// The limits of the lengths, in tokens.
const MIN_TOKENS: u32 = 4;
const MAX_PROMPT: u32 = 1024;
const MAX_TOTAL: u64 = 2048;

pub(super) fn prompts(
    output_len: Option<u32>,
    as_messages: bool,
    common: &VllmRows,
    inputs: &RowInputs<'_>,
    rng: &mut RngState,
) -> Result<Vec<Prompt>, DatasetError> {
    let file = ConversationFile::open(inputs.path()?)?;
    let mut pairs = file.named_pairs()?;
    if !common.keeps_order {
        rng.python.shuffle(&mut pairs);
    }
    let mut prompts: Vec<Prompt> = Vec::new();
    let mut pairs = pairs.into_iter();
    while prompts.len() < inputs.prompts && pairs.len() > 0 {
        let block = (inputs.prompts - prompts.len()).clamp(64, BATCH);
        let texts = pairs
            .by_ref()
            .take(block)
            .map(|pair| (pair.prompt.into_text(), pair.completion.into_text()));
        let (questions, answers): (Vec<String>, Vec<String>) = texts.unzip();
        let count = |texts: &[String]| {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            inputs.tokenizer.count_batch(&texts, true)
        };
        let input_lens = count(&questions)?;
        let output_lens = match output_len {
            Some(tokens) => vec![tokens as usize; questions.len()],
            None => count(&answers)?,
        };
        for ((text, input), output) in questions.into_iter().zip(input_lens).zip(output_lens) {
            let (input, output) = (token_count(input), token_count(output));
            if prompts.len() < inputs.prompts && is_within_limits(input, output, output_len.is_some()) {
                let content = match as_messages {
                    true => Content::Messages(vec![json!({
                        "role": "user", "content": [{"text": text, "type": "text"}],
                    })]),
                    false => Content::Text(text.into()),
                };
                prompts.push(identified(content, input, output, common, prompts.len()));
            }
        }
    }
    Ok(prompts)
}

fn is_within_limits(input: u32, output: u32, is_fixed: bool) -> bool {
    input >= MIN_TOKENS
        && (is_fixed || output >= MIN_TOKENS)
        && input <= MAX_PROMPT
        && u64::from(input) + u64::from(output) <= MAX_TOTAL
}
