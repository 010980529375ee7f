//! The data sets of `vllm bench serve`: the same prompts for the same seed, file and tokenizer.

mod burstgpt;
mod custom_audio;
mod prefix_repetition;
mod questions;
mod random;
mod random_rerank;
mod sharegpt;
mod timed_trace;

use std::sync::Arc;

use super::rng::Python;
use super::{Content, DatasetError, Extras, MakeRows, Prompt, RngState, RowInputs, Rows};
use crate::config::dataset::vllm_serve::{VllmRows, VllmServe, VllmSource};

impl MakeRows for VllmServe {
    fn rows(&self, inputs: &RowInputs<'_>, rng: &mut RngState) -> Result<Rows, DatasetError> {
        let common = &self.vllm_serve;
        let prompts = match &common.source {
            VllmSource::Random(random) => random::prompts(random, common, inputs)?,
            VllmSource::RandomRerank(rerank) => random_rerank::prompts(rerank, common, inputs)?,
            VllmSource::Sharegpt {
                output_len,
                as_messages,
            } => {
                let prompts = sharegpt::prompts(*output_len, *as_messages, common, inputs, rng)?;
                repeat_rows(prompts, common, inputs.prompts, inputs.seed, rng)
            }
            VllmSource::Custom(questions) => {
                let (prompts, wanted, seed) = questions::prompts(questions, common, inputs, rng)?;
                repeat_rows(prompts, common, wanted, seed, rng)
            }
            VllmSource::CustomAudio { output_len } => {
                let (prompts, wanted) = custom_audio::prompts(*output_len, common, inputs, rng)?;
                repeat_rows(prompts, common, wanted, inputs.seed, rng)
            }
            VllmSource::PrefixRepetition {
                prefix_len,
                suffix_len,
                prefixes,
                output_len,
            } => {
                let lengths = [*prefix_len, *suffix_len, *output_len];
                prefix_repetition::prompts(lengths, *prefixes, common, inputs, rng)?
            }
            VllmSource::Burstgpt => burstgpt::prompts(common, inputs)?,
            VllmSource::TimedTrace(trace) => timed_trace::prompts(trace, common, inputs)?,
        };
        // The first prompt without its id.
        let body = |first: &Prompt| Some(first.extras.as_ref()?.body.clone());
        let warmup = prompts.first().map(|first| Prompt {
            extras: body(first).filter(|body| !body.is_empty()).map(|body| {
                Arc::new(Extras {
                    body,
                    ..Extras::default()
                })
            }),
            ..first.clone()
        });
        Ok(Rows {
            printed_lines: Vec::new(),
            warmup,
            ..Rows::new(prompts)
        })
    }
}

/// A prompt with an id.
fn identified(
    content: Content,
    prompt_tokens: u32,
    output_tokens: u32,
    common: &VllmRows,
    number: usize,
) -> Prompt {
    let mut prompt = Prompt::new(content, prompt_tokens, output_tokens);
    prompt.extras_mut().request_id = Some(format!("{}{number}", common.request_id_prefix));
    prompt
}

/// Draws rows again until there are as many as wanted, if the file has fewer. The generator starts anew with the
/// seed.
fn repeat_rows(
    mut prompts: Vec<Prompt>,
    common: &VllmRows,
    wanted: usize,
    seed: u64,
    rng: &mut RngState,
) -> Vec<Prompt> {
    let available = prompts.len();
    if !common.repeats_rows || available == 0 || available >= wanted {
        return prompts;
    }
    rng.python = Python::new(seed);
    let rows: Vec<usize> = (0..available).collect();
    for number in available..wanted {
        let row = &prompts[*rng.python.choice(&rows)];
        let again = identified(
            row.content.clone(),
            row.prompt_tokens,
            row.output_tokens,
            common,
            number,
        );
        prompts.push(again);
    }
    prompts
}
