//! The `generated-shared-prefix` data set: groups of questions behind one system prompt each, all of drawn tokens.
//!
//! Other than the Python tool it keeps nothing on disk: its cache gives the prompts of one model to another.

use std::sync::Arc;

use serde_json::{Value, json};

use super::random::lengths;
use super::rng::Modern;
use super::tokenizer::{CleanUp, Tokenizer};
use super::{Content, DatasetError, Draws, Extras, MakeRows, Prompt, RowInputs, Rows, tokens};
use crate::base::ids::ContentHash;
use crate::config::dataset::generated_shared_prefix::{GeneratedSharedPrefix, Popularity, SharedPrefix};

/// Tokens asked for where nobody says how many.
const OUTPUT_LEN: u32 = 256;

/// What the rows are put together from.
struct Parts<T> {
    /// A system prompt for each group.
    systems: Vec<T>,
    /// The questions of each slot, one slot after the other.
    questions: Vec<T>,
}

impl MakeRows for GeneratedSharedPrefix {
    /// Draws the groups and their questions, and shuffles the rows unless they are to stay in order.
    fn rows(&self, inputs: &RowInputs<'_>, draws: &mut Draws) -> Result<Rows, DatasetError> {
        let (seed, tokenizer) = (inputs.seed, inputs.tokenizer);
        let wish = self.prefix();
        let longest_output = self.output_len.unwrap_or(OUTPUT_LEN);
        let slots = wish.prompts() as usize;
        let mut lens = |longest, count| lengths(longest, wish.range_ratio, 1, count, &mut draws.numpy);
        let systems = lens(wish.system_len, wish.groups as usize);
        let questions = lens(wish.question_len, slots * wish.turns as usize);
        let outputs = lens(longest_output, slots);
        let vocabulary = tokenizer.vocabulary();
        let mut drawn = |lengths: &[u32]| -> Vec<Vec<u32>> {
            let list = lengths.iter();
            list.map(|length| draws.python.choices(&vocabulary, *length as usize))
                .collect()
        };
        let ids = Parts {
            systems: drawn(&systems),
            questions: drawn(&questions),
        };
        let groups = groups(&wish, seed);
        let keys = wish.routing_key.then(|| keys(&wish, seed));
        let (mut prompts, averages) = match self.tokenize_prompt {
            true => (
                id_prompts(&ids, &groups),
                Some((mean(&systems), mean(&questions))),
            ),
            false => texts(&wish, &ids, &groups, tokenizer)?,
        };
        for ((prompt, output), group) in prompts.iter_mut().zip(outputs).zip(&groups) {
            prompt.output_tokens = output;
            if let Some(keys) = &keys {
                let extras = prompt.extras.get_or_insert_default();
                Arc::make_mut(extras).routing_key = Some(keys[*group].clone());
            }
        }
        if !wish.ordered {
            draws.python.shuffle(&mut prompts);
        }
        let mut rows = Rows::of(prompts);
        rows.said = said(&wish, longest_output, &rows, averages);
        Ok(rows)
    }
}

/// The group of each slot.
fn groups(wish: &SharedPrefix, seed: u64) -> Vec<usize> {
    let slots = 0..wish.prompts() as usize;
    match wish.popularity {
        Popularity::Uniform => slots.map(|slot| slot / wish.prompts_per_group as usize).collect(),
        Popularity::Zipf { alpha } => {
            let shares = shares(alpha, wish.groups as usize);
            let mut modern = Modern::new(seed);
            slots.map(|_| modern.choice_weighted(&shares)).collect()
        }
    }
}

/// How likely each of `count` groups is, by the law of Zipf.
fn shares(alpha: f64, count: usize) -> Vec<f64> {
    // One over a power: a negative power differs in the last bit.
    let weights: Vec<f64> = (1..=count).map(|rank| 1.0 / (rank as f64).powf(alpha)).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// A routing key for each group. The Python tool puts a random number and the date into them, so that no two runs are alike;
/// these are the same for the same draws.
fn keys(wish: &SharedPrefix, seed: u64) -> Vec<String> {
    let digest = ContentHash::of(&(seed, wish)).to_string();
    let digits: String = digest.chars().filter(char::is_ascii_hexdigit).take(8).collect();
    (0..wish.groups)
        .map(|group| format!("{digits}_{group}"))
        .collect()
}

fn id_prompts(parts: &Parts<Vec<u32>>, groups: &[usize]) -> Vec<Prompt> {
    let rows = groups.iter().zip(&parts.questions);
    rows.map(|(group, question)| {
        let ids = [&parts.systems[*group][..], question].concat();
        let length = tokens(ids.len());
        Prompt::plain(Content::Ids(ids.into()), length, 0)
    })
    .collect()
}

/// Means of the system prompts' and of the questions' tokens.
type Averages = (f64, f64);

/// Rows of text, and the means unless prompts stay uncounted.
fn texts(
    wish: &SharedPrefix,
    ids: &Parts<Vec<u32>>,
    groups: &[usize],
    tokenizer: &Tokenizer,
) -> Result<(Vec<Prompt>, Option<Averages>), DatasetError> {
    let decoded = |lists: &[Vec<u32>]| {
        let lists: Vec<&[u32]> = lists.iter().map(Vec::as_slice).collect();
        tokenizer.decode_batch(&lists, CleanUp::SparingBpe)
    };
    let parts = Parts {
        systems: decoded(&ids.systems)?,
        questions: decoded(&ids.questions)?,
    };
    let count = |texts: &[String]| -> Result<Vec<u32>, DatasetError> {
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let counted = tokenizer.count_batch(&texts, true)?;
        Ok(counted.into_iter().map(tokens).collect())
    };
    let slots: Vec<&[String]> = parts.questions.chunks(wish.turns as usize).collect();
    let firsts: Vec<String> = groups
        .iter()
        .zip(&slots)
        .map(|(group, questions)| format!("{}\n\n{}", parts.systems[*group], questions[0]))
        .collect();
    let lengths = match wish.uncounted {
        true => vec![1; firsts.len()],
        false => count(&firsts)?,
    };
    let averages = match wish.uncounted {
        true => None,
        false => Some((mean(&count(&parts.systems)?), mean(&count(&parts.questions)?))),
    };
    let prompts = firsts.into_iter().zip(lengths).zip(&slots);
    let prompts = prompts.map(|((text, length), questions)| {
        let mut prompt = Prompt::plain(Content::Text(text.into()), length, 0);
        if wish.turns > 1 {
            prompt.extras = Some(Arc::new(Extras {
                turns: Some(
                    questions[1..]
                        .iter()
                        .map(|question| vec![user(question)])
                        .collect(),
                ),
                ..Extras::default()
            }));
        }
        prompt
    });
    Ok((prompts.collect(), averages))
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn mean(lengths: &[u32]) -> f64 {
    lengths.iter().copied().map(f64::from).sum::<f64>() / lengths.len() as f64
}

fn said(wish: &SharedPrefix, longest_output: u32, rows: &Rows, averages: Option<Averages>) -> Vec<String> {
    let (name, alpha) = match wish.popularity {
        Popularity::Uniform => ("uniform", None),
        Popularity::Zipf { alpha } => ("zipf", Some(format!("{alpha:?}"))),
    };
    let mut said = vec![
        String::new(),
        format!(
            "Generating new input data... (num_groups={}, {}, system_prompt_len={}, question_len={}, output_len={longest_output}, \
             range_ratio={:?}, num_turns={}, group_distribution='{name}', zipf_alpha={})",
            wish.groups,
            wish.prompts_per_group,
            wish.system_len,
            wish.question_len,
            wish.range_ratio,
            wish.turns,
            alpha.as_deref().unwrap_or("None")
        ),
        String::new(),
        "Generated shared prefix dataset statistics:".to_owned(),
        format!("Number of groups: {}", wish.groups),
        format!("Prompts per group: {}", wish.prompts_per_group),
        format!("Number of turns: {}", wish.turns),
        format!("Group distribution: {name}"),
    ];
    said.extend(alpha.map(|alpha| format!("Zipf alpha: {alpha}")));
    said.push(format!("Total prompts: {}", rows.prompts.len()));
    if let Some((system, question)) = averages {
        said.extend([
            format!("Total input tokens: {}", rows.input_tokens),
            format!("Total output tokens: {}", rows.output_tokens),
            format!("Average system prompt length: {system:.1} tokens"),
            format!("Average question length: {question:.1} tokens"),
            String::new(),
        ]);
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Source: docs/bench-serving.md 3.5, the modern generator.
    #[test]
    fn the_shares_of_groups_are_numpys() {
        assert_eq!(
            shares(1.2, 4),
            [
                0.5284517432896202,
                0.23002198139779884,
                0.14140339257440876,
                0.10012288273817219
            ]
        );
    }
}
