//! The `agentic-sessions` data set: recorded sessions of agents, whose requests wait for one another.
//!
//! Every format is read into [`RecordedSession`]s. Prompts of KV blocks are lists of token ids; a protocol that takes
//! no ids gets their text ([`as_text`]).

mod blocks;
mod dag;
mod files;
mod mooncake;
mod otel;
mod recorded;
mod start;
mod timeline;
pub(crate) mod unlimited_cache;
mod weka;

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use self::blocks::BlockTokens;
use self::recorded::{RecordedPrompt, RecordedRequest, RecordedSession, TokenBudget};
use super::tokenizer::{CleanUp, Tokenizer, TokenizerError};
use super::{
    Content, DatasetError, Extras, MakeRows, Prompt, RngState, RowInputs, Rows, SessionLink, token_count,
};
use crate::config::dataset::agentic_sessions::{AgenticSessions, SessionStart};

/// Output tokens of requests whose trace has none, if the scenario does not set a number.
const DEFAULT_OUTPUT_TOKENS: u32 = 256;

/// Checks that a folder has traces.
pub(super) fn check_folder(folder: &Path) -> Result<(), DatasetError> {
    files::files(folder).map(drop)
}

impl MakeRows for AgenticSessions {
    /// Reads the first sessions of a file or folder; 0 prompts are all.
    fn rows(&self, inputs: &RowInputs<'_>, _draws: &mut RngState) -> Result<Rows, DatasetError> {
        let replay = self.replay();
        let most = match inputs.prompts {
            0 => usize::MAX,
            count => count,
        };
        let mut maker = Maker {
            blocks: BlockTokens::new(inputs.seed, inputs.tokenizer)?,
            tokenizer: inputs.tokenizer,
            output_tokens: self.output_len.unwrap_or(DEFAULT_OUTPUT_TOKENS),
            requests: 0,
        };
        let (mut prompts, mut priming) = (Vec::new(), Vec::new());
        let mut budget = TokenBudget::default();
        let mut starts = start::Starts::new(inputs.seed);
        let sessions = files::read(inputs.path()?, &replay, most)?;
        let count = sessions.len();
        for (number, session) in sessions.into_iter().enumerate() {
            for request in &session.requests {
                budget.add(request)?;
            }
            let session = session.sort()?;
            let (history, session) = match replay.start {
                SessionStart::First => (Vec::new(), session),
                SessionStart::Random => starts.cut(session)?,
            };
            let history = history.iter().map(|request| maker.prompt(request));
            priming.extend(start::longest_prompts(history.collect::<Result<_, _>>()?));
            prompts.extend(maker.session(&session, number)?);
        }
        let mut rows = Rows::new(prompts);
        rows.printed_lines.insert(
            0,
            format!("Loaded {count} sessions with {} requests", rows.prompts.len()),
        );
        rows.priming = priming;
        rows.warmup = rows
            .prompts
            .first()
            .map(|first| maker.warm_up(first))
            .transpose()?;
        Ok(rows)
    }
}

/// Makes the prompts of recorded requests.
struct Maker<'t> {
    blocks: BlockTokens,
    tokenizer: &'t Tokenizer,
    output_tokens: u32,
    /// Number of prompts so far; sets tokens apart that no block has.
    requests: u64,
}

impl Maker<'_> {
    fn session(&mut self, session: &RecordedSession, number: usize) -> Result<Vec<Prompt>, DatasetError> {
        let mut prompts: Vec<Prompt> = Vec::with_capacity(session.requests.len());
        for request in &session.requests {
            let mut prompt = self.prompt(request)?;
            if let Some(before) = request.continues.and_then(|before| prompts.get(before)) {
                // The answer counts as long as was asked for.
                prompt.prompt_tokens = prompt
                    .prompt_tokens
                    .saturating_add(before.prompt_tokens)
                    .saturating_add(before.output_tokens);
            }
            let position = |index: &usize| token_count(*index);
            prompt.extras = Some(Arc::new(Extras {
                body: request.body.clone(),
                session: Some(SessionLink {
                    session: token_count(number),
                    after: request.after.iter().map(position).collect(),
                    delay: request.delay,
                    continues: request.continues.as_ref().map(position),
                }),
                ..Extras::default()
            }));
            prompts.push(prompt);
        }
        Ok(prompts)
    }

    fn prompt(&mut self, request: &RecordedRequest) -> Result<Prompt, DatasetError> {
        self.requests += 1;
        let output_tokens = request.output_tokens.unwrap_or(self.output_tokens);
        match &request.prompt {
            RecordedPrompt::Blocks {
                scope,
                ids,
                block,
                tokens,
            } => {
                let prompt = self.blocks.prompt(*scope, ids, *block, *tokens, self.requests);
                let prompt = prompt.ok_or_else(|| {
                    request.place.malformed(format!(
                        "blocks of {block} tokens are too short to give every block id different tokens; use longer blocks"
                    ))
                })?;
                let count = token_count(prompt.len());
                Ok(Prompt::new(Content::Ids(prompt.into()), count, output_tokens))
            }
            RecordedPrompt::Messages(messages) => {
                let texts: Vec<&str> = messages
                    .iter()
                    .filter_map(|message| message["content"].as_str())
                    .collect();
                let counts = self.tokenizer.count_batch(&texts, false)?;
                let content = Content::Messages(messages.clone());
                Ok(Prompt::new(
                    content,
                    token_count(counts.iter().sum()),
                    output_tokens,
                ))
            }
        }
    }

    /// A warm-up prompt that has no block of the sessions, so that it leaves nothing in a cache that they find.
    fn warm_up(&mut self, first: &Prompt) -> Result<Prompt, DatasetError> {
        let (scope, tokens) = (u64::MAX, 256);
        let ids = self
            .blocks
            .prompt(scope, &[], 1, tokens, u64::MAX)
            .unwrap_or_default();
        let content = match first.content {
            Content::Messages(_) => {
                let text = self.tokenizer.decode(&ids, CleanUp::ExceptBpe)?;
                Content::Messages(vec![json!({"role": "user", "content": text})])
            }
            _ => Content::Ids(ids.into()),
        };
        Ok(Prompt::new(content, tokens, first.output_tokens))
    }
}

/// Returns the text of token ids, for protocols that take no ids; fails with a message if the tokenizer reads other
/// tokens in it.
pub(crate) fn as_text(ids: &[u32], tokenizer: &Tokenizer) -> Result<String, String> {
    let read = || -> Result<(String, Vec<u32>), TokenizerError> {
        let text = tokenizer.decode(ids, CleanUp::ExceptBpe)?;
        let again = tokenizer.encode(&text, false)?;
        Ok((text, again))
    };
    let (text, again) = read().map_err(|error| error.to_string())?;
    match again == ids {
        true => Ok(text),
        false => Err(format!(
            "the tokenizer `{}` does not reproduce a prompt of {} tokens from its text, so the length and the blocks of the \
             prompt would differ from the trace. Use a protocol that accepts token ids, such as `completions`",
            tokenizer.name(),
            ids.len()
        )),
    }
}

/// A chat message of this text.
pub(crate) fn user_message(text: String) -> Value {
    json!({"role": "user", "content": text})
}

#[cfg(test)]
mod tests;
