//! The `sharegpt` data set: the first turn is the prompt, the second turn determines the output length.

use std::sync::Arc;

use super::conversations::{self, TurnPair};
use super::template::{ChatTemplate, TemplateError};
use super::tokenizer::Tokenizer;
use super::{Content, DatasetError, Extras, MakeRows, Prompt, RngState, RowInputs, Rows, token_count};
use crate::config::dataset::custom::Custom;
use crate::config::dataset::sharegpt::Sharegpt;
use crate::config::workload::Profile;

/// Minimum and maximum number of conversations that are tokenized at once.
const BATCH_RANGE: (usize, usize) = (64, 2048);

/// The mark that the Python tool appends to a prompt suffix, and removes from the prompt before it.
const ASSISTANT_MARK: &str = "Assistant:";

impl MakeRows for Sharegpt {
    fn rows(&self, inputs: &RowInputs<'_>, rng: &mut RngState) -> Result<Rows, DatasetError> {
        let requested = Custom {
            output_len: self.output_len,
            context_len: self.context_len,
            prompt_suffix: self.prompt_suffix.clone(),
            apply_chat_template: self.apply_chat_template,
            trace_timestamps: false,
        };
        let file = conversations::ConversationFile::open(inputs.path()?)?;
        pair_rows(&requested, inputs, file.pairs(inputs.profile)?, rng)
    }
}

/// The limits outside of which rows are dropped.
struct LengthLimits {
    /// Minimum tokens of a prompt and of an output.
    min_tokens: u32,
    /// Maximum tokens of a prompt.
    max_prompt: u32,
    /// Maximum tokens of prompt and output together.
    total: u32,
}

impl LengthLimits {
    fn new(custom: &Custom, profile: Profile) -> Self {
        match profile {
            Profile::Classic => Self {
                min_tokens: 4,
                max_prompt: 1024,
                total: if custom.output_len.is_some() {
                    u32::MAX
                } else {
                    2048
                },
            },
            Profile::Current => Self {
                min_tokens: 2,
                max_prompt: u32::MAX,
                total: custom.context_len.filter(|limit| *limit > 0).unwrap_or(u32::MAX),
            },
        }
    }

    fn allow(&self, prompt: u32, output: u32) -> bool {
        prompt >= self.min_tokens
            && output >= self.min_tokens
            && prompt <= self.max_prompt
            && u64::from(prompt) + u64::from(output) <= u64::from(self.total)
    }
}

/// Shuffles the conversations and takes those within the limits until there are enough.
pub(super) fn pair_rows(
    custom: &Custom,
    inputs: &RowInputs<'_>,
    mut pairs: Vec<TurnPair<'_>>,
    rng: &mut RngState,
) -> Result<Rows, DatasetError> {
    let tokenizer = inputs.tokenizer;
    rng.python.shuffle(&mut pairs);
    let limits = LengthLimits::new(custom, inputs.profile);
    let wrapper = PromptWrapper::new(custom, tokenizer)?;
    let requested = inputs.prompts;
    let mut prompts: Vec<Prompt> = Vec::with_capacity(requested.min(pairs.len()));
    let mut pairs = pairs.into_iter();
    while prompts.len() < requested && pairs.len() > 0 {
        let block = (requested - prompts.len()).clamp(BATCH_RANGE.0, BATCH_RANGE.1);
        let mut moments = Vec::with_capacity(block);
        let (texts, completions): (Vec<String>, Vec<String>) = pairs
            .by_ref()
            .take(block)
            .map(|pair| {
                moments.push(pair.timestamp);
                let completion = match custom.output_len {
                    Some(_) => String::new(),
                    None => pair.completion.into_text(),
                };
                Ok((wrapper.wrap(pair.prompt.into_text())?, completion))
            })
            .collect::<Result<Vec<_>, TemplateError>>()?
            .into_iter()
            .unzip();
        let inputs = count_tokens(tokenizer, &texts)?;
        let outputs = match custom.output_len {
            Some(fixed) => vec![fixed; texts.len()],
            None => count_tokens(tokenizer, &completions)?,
        };
        let rows = texts.into_iter().zip(inputs).zip(outputs).zip(moments);
        for (((text, prompt_tokens), output_tokens), at) in rows {
            if prompts.len() < requested && limits.allow(prompt_tokens, output_tokens) {
                let mut prompt = Prompt::new(Content::Text(text.into()), prompt_tokens, output_tokens);
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
    Ok(Rows::new(prompts))
}

fn count_tokens(tokenizer: &Tokenizer, texts: &[String]) -> Result<Vec<u32>, DatasetError> {
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    Ok(tokenizer
        .count_batch(&texts, true)?
        .into_iter()
        .map(token_count)
        .collect())
}

/// Changes a prompt before it is counted and sent: suffix and chat template.
struct PromptWrapper<'a> {
    suffix: Option<&'a str>,
    template: Option<ChatTemplate>,
}

impl<'a> PromptWrapper<'a> {
    fn new(custom: &'a Custom, tokenizer: &Tokenizer) -> Result<Self, TemplateError> {
        let template = custom.apply_chat_template.then(|| ChatTemplate::open(tokenizer));
        Ok(Self {
            suffix: custom
                .prompt_suffix
                .as_deref()
                .filter(|suffix| !suffix.is_empty()),
            template: template.transpose()?,
        })
    }

    fn wrap(&self, prompt: String) -> Result<String, TemplateError> {
        let prompt = match self.suffix {
            Some(suffix) => append_suffix(&prompt, suffix),
            None => prompt,
        };
        let Some(template) = &self.template else {
            return Ok(prompt);
        };
        let rendered = template.render_user(&prompt)?;
        // Encoding adds the BOS token again.
        Ok(match template.bos_token() {
            Some(bos) => rendered.replace(bos, ""),
            None => rendered,
        })
    }
}

fn append_suffix(prompt: &str, suffix: &str) -> String {
    format!(
        "{}{suffix}{ASSISTANT_MARK}",
        prompt.strip_suffix(ASSISTANT_MARK).unwrap_or(prompt)
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
        let limits = LengthLimits::new(&asked(None), Profile::Classic);
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
        let limits = LengthLimits::new(&asked(Some(2000)), Profile::Classic);
        let allowed = [2, 3, 4, 1000, 1024, 1025].map(|prompt| limits.allow(prompt, 2000));
        assert_eq!(allowed, [false, false, true, true, true, false]);
    }

    #[test]
    fn the_current_profile_has_no_upper_limit_unless_asked() {
        let limits = LengthLimits::new(&asked(None), Profile::Current);
        assert!(limits.allow(2, 2) && limits.allow(1_000_000, 1_000_000));
        assert!(!limits.allow(1, 2) && !limits.allow(2, 1));
        let zero = LengthLimits::new(
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
        assert_eq!(append_suffix("Hi", "!!"), "Hi!!Assistant:");
        assert_eq!(
            append_suffix("Hi Assistant:Assistant:", "!!"),
            "Hi Assistant:!!Assistant:"
        );
    }
}
