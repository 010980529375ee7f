//! What a request asks for, and what a protocol cannot carry of it.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::loadgen::dataset::{Content, Extras};
use crate::plan::Protocol;

/// A prompt that a dialect cannot carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// Token ids that the dialect has no field for.
    #[error(
        "the {} protocol cannot carry token ids; send text, or use the protocol `completions` or \
         `sglang-native`",
        .0.name()
    )]
    Ids(Protocol),
    /// A row has messages, and the dialect has no field for them.
    #[error(
        "this protocol cannot carry chat messages; use the protocol `chat`, `messages` or `responses` (in \
         `matrix bench`, use a backend with one of these protocols, such as a chat backend)"
    )]
    MessagesOutsideChat,
    /// A conversation has turns, and the dialect has no field for messages.
    #[error(
        "this protocol cannot carry conversations of several turns; use the protocol `chat`, `messages` or \
         `responses` (in `matrix bench`, use a backend with one of these protocols, such as a chat backend)"
    )]
    TurnsOutsideChat,
    /// Pictures that the dialect has no field for.
    #[error(
        "this protocol cannot carry images; use the protocol `chat`, `messages`, `responses`, `completions` or \
         `sglang-native`"
    )]
    Images,
    /// A recording that the dialect has no field for.
    #[error("this protocol cannot carry recordings; use the protocol `transcription`")]
    Audio,
    /// The dialect reads no answer of this form.
    #[error(
        "answers of transcriptions are read as JSON; set `response_format` to `json`, `verbose_json` or \
         `diarized_json`, or leave it out"
    )]
    ResponseFormat,
    /// The dialect has no field for an adapter.
    #[error(
        "this protocol has no field for a LoRA adapter; use another protocol, such as `chat` or `completions`"
    )]
    Lora,
    /// The dialect has no field for a routing key.
    #[error(
        "this protocol has no field for a routing key; use another protocol, such as `chat` or `completions`"
    )]
    RoutingKey,
}

/// The parameters of a request, besides its prompt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestParams<'a> {
    /// The model name in requests.
    pub(crate) model: &'a str,
    pub(crate) tokens: u32,
    /// Whether the answer may end at the model's end token.
    pub(crate) stop_at_eos: bool,
    /// Fields of the scenario, added after those of the protocol; `null` removes a field.
    pub(crate) body: &'a Map<String, Value>,
    pub(crate) lora: Option<&'a str>,
    /// Further fields of the data set's row.
    pub(crate) extras: Option<&'a Extras>,
}

impl<'a> RequestParams<'a> {
    /// What a row without extras asks for.
    #[cfg(test)]
    pub(crate) const fn without_extras(
        model: &'a str,
        tokens: u32,
        stop_at_eos: bool,
        body: &'a Map<String, Value>,
    ) -> Self {
        Self {
            model,
            tokens,
            stop_at_eos,
            body,
            lora: None,
            extras: None,
        }
    }

    pub(crate) fn routing_key(&self) -> Option<&'a str> {
        self.extras.and_then(|extras| extras.routing_key.as_deref())
    }

    pub(crate) fn request_id(&self) -> Option<&'a str> {
        self.extras.and_then(|extras| extras.request_id.as_deref())
    }

    pub(super) fn is_conversation(&self) -> bool {
        self.extras.is_some_and(|extras| extras.turns.is_some())
    }
}

/// Returns the prompt for protocols that take text or ids; of a prompt with images only the text.
pub(super) fn prompt_value(prompt: &Content) -> Result<Value, EncodeError> {
    match prompt {
        Content::Text(text) => Ok(Value::from(text.as_str())),
        Content::Images { text, .. } => Ok(Value::from(text.as_str())),
        Content::Ids(ids) => Ok(Value::from(ids.as_slice())),
        Content::Messages(_) => Err(EncodeError::MessagesOutsideChat),
        Content::Audio(_) => Err(EncodeError::Audio),
    }
}
