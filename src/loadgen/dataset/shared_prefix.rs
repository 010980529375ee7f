//! The `generated-shared-prefix` data set: groups of questions with one system prompt per group, all of drawn
//! tokens.
//!
//! Unlike the Python tool it stores nothing on disk: that tool's cache returns prompts of one model for
//! another.

use std::sync::Arc;

use serde_json::{Value, json};

use super::random::draw_lengths;
use super::rng::NumpyGenerator;
use super::tokenizer::{CleanUp, Tokenizer};
use super::{Content, DatasetError, Extras, MakeRows, Prompt, RngState, RowInputs, Rows, token_count};
use crate::base::ids::ContentHash;
use crate::config::dataset::generated_shared_prefix::{
    GeneratedSharedPrefix, GroupDistribution, SharedPrefix,
};

/// Output tokens if the scenario does not set a number.
const DEFAULT_OUTPUT_TOKENS: u32 = 256;

struct PromptParts<T> {
    /// One system prompt per group.
    systems: Vec<T>,
    /// The questions of all slots, slot by slot.
    questions: Vec<T>,
}

impl MakeRows for GeneratedSharedPrefix {
    /// Draws groups and questions, and shuffles the rows unless `ordered` is set.
    fn rows(&self, inputs: &RowInputs<'_>, rng: &mut RngState) -> Result<Rows, DatasetError> {
        let (seed, tokenizer) = (inputs.seed, inputs.tokenizer);
        let spec = self.prefix();
        let longest_output = self.output_len.unwrap_or(DEFAULT_OUTPUT_TOKENS);
        let slots = spec.prompts() as usize;
        let mut lens = |longest, count| draw_lengths(longest, spec.range_ratio, 1, count, &mut rng.numpy);
        let systems = lens(spec.system_len, spec.groups as usize);
        let questions = lens(spec.question_len, slots * spec.turns as usize);
        let outputs = lens(longest_output, slots);
        let vocabulary = tokenizer.vocabulary();
        let mut drawn = |lengths: &[u32]| -> Vec<Vec<u32>> {
            let list = lengths.iter();
            list.map(|length| rng.python.choices(&vocabulary, *length as usize))
                .collect()
        };
        let ids = PromptParts {
            systems: drawn(&systems),
            questions: drawn(&questions),
        };
        let groups = slot_groups(&spec, seed);
        let keys = spec.routing_key.then(|| routing_keys(&spec, seed));
        let (mut prompts, averages) = match self.tokenize_prompt {
            true => (
                id_prompts(&ids, &groups),
                Some((mean(&systems), mean(&questions))),
            ),
            false => text_prompts(&spec, &ids, &groups, tokenizer)?,
        };
        for ((prompt, output), group) in prompts.iter_mut().zip(outputs).zip(&groups) {
            prompt.output_tokens = output;
            if let Some(keys) = &keys {
                let extras = prompt.extras.get_or_insert_default();
                Arc::make_mut(extras).routing_key = Some(keys[*group].clone());
            }
        }
        if !spec.ordered {
            rng.python.shuffle(&mut prompts);
        }
        let mut rows = Rows::new(prompts);
        rows.printed_lines = printed_lines(&spec, longest_output, &rows, averages);
        Ok(rows)
    }
}

/// Returns the group of each slot.
fn slot_groups(spec: &SharedPrefix, seed: u64) -> Vec<usize> {
    let slots = 0..spec.prompts() as usize;
    match spec.popularity {
        GroupDistribution::Uniform => slots.map(|slot| slot / spec.prompts_per_group as usize).collect(),
        GroupDistribution::Zipf { alpha } => {
            let shares = zipf_weights(alpha, spec.groups as usize);
            let mut generator = NumpyGenerator::new(seed);
            slots.map(|_| generator.choice_weighted(&shares)).collect()
        }
    }
}

/// Returns the probability of each group by Zipf's law.
fn zipf_weights(alpha: f64, count: usize) -> Vec<f64> {
    // A negative power would differ in the last bit.
    let weights: Vec<f64> = (1..=count).map(|rank| 1.0 / (rank as f64).powf(alpha)).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Returns a routing key per group. The Python tool uses a random number and the date; these keys are equal
/// for equal draws, so that runs can be repeated.
fn routing_keys(spec: &SharedPrefix, seed: u64) -> Vec<String> {
    let digest = ContentHash::from_value(&(seed, spec)).to_string();
    let digits: String = digest.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    (0..spec.groups)
        .map(|group| format!("{digits}_{group}"))
        .collect()
}

fn id_prompts(parts: &PromptParts<Vec<u32>>, groups: &[usize]) -> Vec<Prompt> {
    let rows = groups.iter().zip(&parts.questions);
    rows.map(|(group, question)| {
        let ids = [&parts.systems[*group][..], question].concat();
        let length = token_count(ids.len());
        Prompt::new(Content::Ids(ids.into()), length, 0)
    })
    .collect()
}

/// Mean tokens of system prompts and of questions.
type MeanTokens = (f64, f64);

/// Makes rows of text; also returns the means, unless prompts are not counted.
fn text_prompts(
    spec: &SharedPrefix,
    ids: &PromptParts<Vec<u32>>,
    groups: &[usize],
    tokenizer: &Tokenizer,
) -> Result<(Vec<Prompt>, Option<MeanTokens>), DatasetError> {
    let decoded = |lists: &[Vec<u32>]| {
        let lists: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
        tokenizer.decode_batch(&lists, CleanUp::ExceptBpe)
    };
    let parts = PromptParts {
        systems: decoded(&ids.systems)?,
        questions: decoded(&ids.questions)?,
    };
    let count = |texts: &[String]| -> Result<Vec<u32>, DatasetError> {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let counted = tokenizer.count_batch(&texts, true)?;
        Ok(counted.into_iter().map(token_count).collect())
    };
    let slots: Vec<&[String]> = parts.questions.chunks(spec.turns as usize).collect();
    let firsts: Vec<String> = groups
        .iter()
        .zip(&slots)
        .map(|(group, questions)| format!("{}\n\n{}", parts.systems[*group], questions[0]))
        .collect();
    let lengths = match spec.uncounted {
        true => vec![1; firsts.len()],
        false => count(&firsts)?,
    };
    let averages = match spec.uncounted {
        true => None,
        false => Some((mean(&count(&parts.systems)?), mean(&count(&parts.questions)?))),
    };
    let prompts = firsts.into_iter().zip(lengths).zip(&slots);
    let prompts = prompts.map(|((text, length), questions)| {
        let mut prompt = Prompt::new(Content::Text(text.into()), length, 0);
        if spec.turns > 1 {
            prompt.extras = Some(Arc::new(Extras {
                turns: Some(
                    questions[1..]
                        .iter()
                        .map(|question| vec![user_message(question)])
                        .collect(),
                ),
                ..Extras::default()
            }));
        }
        prompt
    });
    Ok((prompts.collect(), averages))
}

fn user_message(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn mean(lengths: &[u32]) -> f64 {
    lengths.iter().copied().map(f64::from).sum::<f64>() / lengths.len() as f64
}

fn printed_lines(
    spec: &SharedPrefix,
    longest_output: u32,
    rows: &Rows,
    averages: Option<MeanTokens>,
) -> Vec<String> {
    let (name, alpha) = match spec.popularity {
        GroupDistribution::Uniform => ("uniform", None),
        GroupDistribution::Zipf { alpha } => ("zipf", Some(format!("{alpha:?}"))),
    };
    let mut lines = vec![
        String::new(),
        format!(
            "Generating new input data... (num_groups={}, {}, system_prompt_len={}, question_len={}, output_len={longest_output}, \
             range_ratio={:?}, num_turns={}, group_distribution='{name}', zipf_alpha={})",
            spec.groups,
            spec.prompts_per_group,
            spec.system_len,
            spec.question_len,
            spec.range_ratio,
            spec.turns,
            alpha.as_deref().unwrap_or("None")
        ),
        String::new(),
        "Generated shared prefix dataset statistics:".to_owned(),
        format!("Number of groups: {}", spec.groups),
        format!("Prompts per group: {}", spec.prompts_per_group),
        format!("Number of turns: {}", spec.turns),
        format!("Group distribution: {name}"),
    ];
    lines.extend(alpha.map(|alpha| format!("Zipf alpha: {alpha}")));
    lines.push(format!("Total prompts: {}", rows.prompts.len()));
    if let Some((system, question)) = averages {
        lines.extend([
            format!("Total input tokens: {}", rows.input_tokens),
            format!("Total output tokens: {}", rows.output_tokens),
            format!("Average system prompt length: {system:.1} tokens"),
            format!("Average question length: {question:.1} tokens"),
            String::new(),
        ]);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: docs/bench-serving.md 3.5, the modern generator.
    #[test]
    fn the_shares_of_groups_are_numpys() {
        assert_eq!(
            zipf_weights(1.2, 4),
            [
                0.5284517432896202,
                0.23002198139779884,
                0.14140339257440876,
                0.10012288273817219
            ]
        );
    }
}
