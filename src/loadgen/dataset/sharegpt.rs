//! The `sharegpt` data set: first turns as they are, second turns for their lengths.

use std::sync::Arc;

use super::conversations::{self, Pair};
use super::template::{ChatTemplate, TemplateError};
use super::tokenizer::Tokenizer;
use super::{Content, DatasetError, Draws, Extras, MakeRows, Prompt, RowInputs, Rows, tokens};
use crate::config::dataset::custom::Custom;
use crate::config::dataset::sharegpt::Sharegpt;
use crate::config::workload::Profile;

/// How many conversations are tokenized at once, at least and at most.
const BLOCK: (usize, usize) = (64, 2048);

/// What the Python tool puts behind a prompt suffix, and takes away before it.
const ASSISTANT: &str = "Assistant:";

impl MakeRows for Sharegpt {
    fn rows(&self, inputs: &RowInputs<'_>, draws: &mut Draws) -> Result<Rows, DatasetError> {
        let asked = Custom {
            output_len: self.output_len,
            context_len: self.context_len,
            prompt_suffix: self.prompt_suffix.clone(),
            apply_chat_template: self.apply_chat_template,
            trace_timestamps: false,
        };
        let file = conversations::File::open(inputs.path()?)?;
        pair_rows(&asked, inputs, file.pairs(inputs.profile)?, draws)
    }
}

/// Which rows are dropped.
struct Limits {
    /// Fewest tokens of a prompt and of an output.
    shortest: u32,
    /// Most tokens of a prompt.
    longest: u32,
    /// Most tokens of a prompt and its output together.
    together: u32,
}

impl Limits {
    fn of(custom: &Custom, profile: Profile) -> Self {
        match profile {
            Profile::Classic => Self {
                shortest: 4,
                longest: 1024,
                together: if custom.output_len.is_some() {
                    u32::MAX
                } else {
                    2048
                },
            },
            Profile::Current => Self {
                shortest: 2,
                longest: u32::MAX,
                together: custom.context_len.filter(|limit| *limit > 0).unwrap_or(u32::MAX),
            },
        }
    }

    fn allow(&self, prompt: u32, output: u32) -> bool {
        prompt >= self.shortest
            && output >= self.shortest
            && prompt <= self.longest
            && u64::from(prompt) + u64::from(output) <= u64::from(self.together)
    }
}

/// Shuffles the conversations and takes those within the limits until there are enough.
pub(super) fn pair_rows(
    custom: &Custom,
    inputs: &RowInputs<'_>,
    mut pairs: Vec<Pair<'_>>,
    draws: &mut Draws,
) -> Result<Rows, DatasetError> {
    let tokenizer = inputs.tokenizer;
    draws.python.shuffle(&mut pairs);
    let limits = Limits::of(custom, inputs.profile);
    let wrapping = Wrapping::of(custom, tokenizer)?;
    let asked = inputs.prompts;
    let mut prompts: Vec<Prompt> = Vec::with_capacity(asked.min(pairs.len()));
    let mut pairs = pairs.into_iter();
    while prompts.len() < asked && pairs.len() > 0 {
        let block = (asked - prompts.len()).clamp(BLOCK.0, BLOCK.1);
        let mut moments = Vec::with_capacity(block);
        let (texts, completions): (Vec<String>, Vec<String>) = pairs
            .by_ref()
            .take(block)
            .map(|pair| {
                moments.push(pair.at);
                let completion = match custom.output_len {
                    Some(_) => String::new(),
                    None => pair.completion.into_text(),
                };
                Ok((wrapping.wrapped(pair.prompt.into_text())?, completion))
            })
            .collect::<Result<Vec<_>, TemplateError>>()?
            .into_iter()
            .unzip();
        let inputs = count(tokenizer, &texts)?;
        let outputs = match custom.output_len {
            Some(fixed) => vec![fixed; texts.len()],
            None => count(tokenizer, &completions)?,
        };
        let rows = texts.into_iter().zip(inputs).zip(outputs).zip(moments);
        for (((text, prompt_tokens), output_tokens), at) in rows {
            if prompts.len() < asked && limits.allow(prompt_tokens, output_tokens) {
                let mut prompt = Prompt::plain(Content::Text(text.into()), prompt_tokens, output_tokens);
                prompt.extras = at.map(|at| {
                    Arc::new(Extras {
                        at: Some(at),
                        ..Extras::default()
                    })
                });
                prompts.push(prompt);
            }
        }
    }
    Ok(Rows::of(prompts))
}

fn count(tokenizer: &Tokenizer, texts: &[String]) -> Result<Vec<u32>, DatasetError> {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    Ok(tokenizer
        .count_batch(&texts, true)?
        .into_iter()
        .map(tokens)
        .collect())
}

/// What is done to a prompt before it is counted and sent.
struct Wrapping<'a> {
    suffix: Option<&'a str>,
    template: Option<ChatTemplate>,
}

impl<'a> Wrapping<'a> {
    fn of(custom: &'a Custom, tokenizer: &Tokenizer) -> Result<Self, TemplateError> {
        let template = custom.apply_chat_template.then(|| ChatTemplate::open(tokenizer));
        Ok(Self {
            suffix: custom
                .prompt_suffix
                .as_deref()
                .filter(|suffix| !suffix.is_empty()),
            template: template.transpose()?,
        })
    }

    fn wrapped(&self, prompt: String) -> Result<String, TemplateError> {
        let prompt = match self.suffix {
            Some(suffix) => suffixed(&prompt, suffix),
            None => prompt,
        };
        let Some(template) = &self.template else {
            return Ok(prompt);
        };
        let rendered = template.render_user(&prompt)?;
        // Encoding adds the token again.
        Ok(match template.bos_token() {
            Some(bos) => rendered.replace(bos, ""),
            None => rendered,
        })
    }
}

fn suffixed(prompt: &str, suffix: &str) -> String {
    format!(
        "{}{suffix}{ASSISTANT}",
        prompt.strip_suffix(ASSISTANT).unwrap_or(prompt)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(output_len: Option<u32>) -> Custom {
        Custom {
            output_len,
            ..Custom::default()
        }
    }

    #[test]
    fn the_classic_limits_are_those_of_the_published_reports() {
        let limits = Limits::of(&asked(None), Profile::Classic);
        for (prompt, output, allowed) in [
            (3, 10, false),
            (4, 4, true),
            (4, 3, false),
            (1024, 1024, true),
            (1025, 10, false),
            (1024, 1025, false),
            (1000, 1048, true),
            (1000, 1049, false),
        ] {
            assert_eq!(limits.allow(prompt, output), allowed, "{prompt} in, {output} out");
        }
    }

    #[test]
    fn a_fixed_output_length_lifts_the_classic_limit_of_the_sum() {
        let limits = Limits::of(&asked(Some(2000)), Profile::Classic);
        let allowed = [2, 3, 4, 1000, 1024, 1025].map(|prompt| limits.allow(prompt, 2000));
        assert_eq!(allowed, [false, false, true, true, true, false]);
    }

    #[test]
    fn the_current_profile_has_no_upper_limit_unless_asked() {
        let limits = Limits::of(&asked(None), Profile::Current);
        assert!(limits.allow(2, 2) && limits.allow(1_000_000, 1_000_000));
        assert!(!limits.allow(1, 2) && !limits.allow(2, 1));
        let zero = Limits::of(
            &Custom {
                context_len: Some(0),
                ..asked(None)
            },
            Profile::Current,
        );
        assert!(zero.allow(5, 5));
    }

    #[test]
    fn a_suffix_takes_the_place_of_one_trailing_assistant() {
        assert_eq!(suffixed("Hi", "!!"), "Hi!!Assistant:");
        assert_eq!(
            suffixed("Hi Assistant:Assistant:", "!!"),
            "Hi Assistant:!!Assistant:"
        );
    }
}
