//! Cuts prompts to their length by the server's tokenizer, as `vllm bench serve` does, if it counts other tokens
//! than ours.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};

use crate::base::control_client::{ControlClient, ControlError};
use crate::loadgen::dataset::{Content, Prompt};
use crate::runner::bench::observer::{BenchEvent, BenchObserver};
use crate::runner::prompt_store::PreparedWorkload;

/// Timeout of one answer.
const LIMIT: Duration = Duration::from_secs(60);
/// Number of prompts that are counted at the same time.
const CONCURRENCY: usize = 64;

/// Returns the workload, with shorter prompts if the server counts other tokens in the first prompt than
/// expected. A prompt that cannot be counted stays as it is.
pub(super) async fn align(
    workload: Arc<PreparedWorkload>,
    control: &ControlClient,
    model: &str,
    observer: &mut impl BenchObserver,
) -> Arc<PreparedWorkload> {
    // vLLM's client sends neither a key nor other headers to these paths.
    let control = &control.without_headers();
    let Some((first, text)) = workload
        .prepared
        .prompts
        .first()
        .and_then(|first| Some((first, text_of(first)?)))
    else {
        return workload;
    };
    let expected = first.prompt_tokens;
    let counted = tokenize(control, model, text).await.ok().map(|ids| ids.len());
    if counted == Some(expected as usize) {
        return workload;
    }
    observer.bench_event(BenchEvent::Aligning { counted, expected });
    if counted.is_none() {
        return workload;
    }
    let prompts = workload.prepared.prompts.iter();
    let shortened: Vec<Option<String>> = stream::iter(prompts)
        .map(|prompt| shortened(control, model, prompt))
        .buffered(CONCURRENCY)
        .collect()
        .await;
    let mut prepared = workload.prepared.clone();
    for (prompt, text) in prepared.prompts.iter_mut().zip(shortened) {
        if let Some(text) = text {
            prompt.content = Content::Text(text.into());
        }
    }
    let warmup = prepared.warmup.as_mut().zip(prepared.prompts.first());
    if let Some((warmup, first)) = warmup {
        warmup.content = first.content.clone();
    }
    Arc::new(PreparedWorkload {
        notes: workload.notes.clone(),
        prepared,
        tokenizer: workload.tokenizer.clone(),
        repeated_share: workload.repeated_share,
        is_share_exact: workload.is_share_exact,
    })
}

fn text_of(prompt: &Prompt) -> Option<&str> {
    match &prompt.content {
        Content::Text(text) => Some(text),
        _ => None,
    }
}

/// Returns the text of a prompt without the tokens beyond its length; `None` if it has no more, or if the server
/// does not answer.
async fn shortened(control: &ControlClient, model: &str, prompt: &Prompt) -> Option<String> {
    let ids = tokenize(control, model, text_of(prompt)?).await.ok()?;
    let kept = ids.get(..prompt.prompt_tokens as usize)?;
    if kept.len() == ids.len() {
        return None;
    }
    let body = json!({"model": model, "tokens": kept});
    let answer = control.ask_json("/detokenize", &body, LIMIT).await.ok()?;
    answer.get("prompt")?.as_str().map(str::to_owned)
}

async fn tokenize(control: &ControlClient, model: &str, text: &str) -> Result<Vec<Value>, ControlError> {
    let body = json!({"model": model, "prompt": text, "add_special_tokens": false});
    let answer = control.ask_json("/tokenize", &body, LIMIT).await?;
    match answer.get("tokens").and_then(Value::as_array) {
        Some(tokens) => Ok(tokens.clone()),
        None => Err(ControlError::Garbled {
            url: control.url("/tokenize"),
            reason: "the server's response has no list `tokens`".to_owned(),
        }),
    }
}
