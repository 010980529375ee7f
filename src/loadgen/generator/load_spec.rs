//! The input of the load generator: requests and how to send them.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::cancellation::CancelPlan;
use crate::config::connections::LoadConnections;
use crate::config::scenario::LoadLimits;
use crate::loadgen::dataset::{Content, Extras, SessionLink};
use crate::loadgen::sink::Sink;
use crate::loadgen::spill::Spill;
use crate::loadgen::target::Target;
use crate::results::record::request::AudioInput;

/// One request to send, or the start of a conversation.
#[derive(Clone, Debug)]
pub struct PlannedRequest {
    /// The prompt, or the turns of a conversation.
    pub content: Content,
    /// Prompt tokens as the data set counts them.
    pub prompt_tokens: u32,
    /// Largest number of output tokens.
    pub requested_tokens: u32,
    /// When it is due, from the start of the measurement. In a closed loop all are zero, and a request is due
    /// when it gets a slot.
    pub due: Duration,
    /// The name of the LoRA adapter.
    pub lora_adapter: Option<Arc<str>>,
    /// Further fields of the data set's row.
    pub extras: Option<Arc<Extras>>,
}

impl PlannedRequest {
    /// Returns the number of records of this item: one for each round of a conversation.
    pub(crate) fn rounds(&self) -> usize {
        let turns = self.extras.as_ref().and_then(|extras| extras.turns.as_ref());
        1 + turns.map_or(0, Vec::len)
    }

    /// How many images its prompt has, if it may have any.
    pub(crate) fn images(&self) -> Option<usize> {
        match &self.content {
            Content::Images { images, .. } => Some(images.len()),
            _ => None,
        }
    }

    /// The recording in its prompt, if it has one.
    pub(super) fn audio(&self) -> Option<AudioInput> {
        match &self.content {
            Content::Audio(clip) => Some(AudioInput {
                seconds: clip.seconds(),
                reported_seconds: None,
            }),
            _ => None,
        }
    }

    /// Its place in a session, if it is a request of one.
    pub(crate) fn session(&self) -> Option<&SessionLink> {
        self.extras.as_ref()?.session.as_ref()
    }

    pub(super) fn vision_tokens(&self) -> u32 {
        self.extras.as_ref().map_or(0, |extras| extras.vision_tokens)
    }
}

/// What watches a load while it runs.
#[derive(Clone, Debug)]
pub struct LoadWatch {
    /// Receives records as requests end, without texts.
    pub records: Sink,
    /// Once this is cancelled, no further request falls due, as after the duration of a load.
    pub enough: CancellationToken,
}

/// All requests of a load and how to send them.
#[derive(Clone, Debug)]
pub struct LoadSpec {
    /// The engine and the protocol.
    pub target: Target,
    /// The requests, in the order of their records.
    pub requests: Vec<PlannedRequest>,
    /// Maximum number of requests under way; `None` for no limit.
    pub concurrency: Option<NonZeroU32>,
    /// Maximum number of sessions and conversations that have begun and not ended; `None` for no limit.
    pub sessions: Option<NonZeroU32>,
    /// How connections are used.
    pub connections: LoadConnections,
    /// Which requests the client cancels before their answers end.
    pub cancel: Option<CancelPlan>,
    /// Time and size limits of requests and of the load.
    pub limits: LoadLimits,
    /// Fields that are merged into every request body; `null` removes a field.
    pub body: Map<String, Value>,
    /// Whether answers may end at the model's end token.
    pub stop_at_eos: bool,
    /// Receives records as requests end.
    pub sink: Option<Sink>,
    /// Sees records as requests end, and may end the load early.
    pub watch: Option<LoadWatch>,
    /// Takes answers that exceed the memory budget; without it, memory holds all answers.
    pub spill: Option<Arc<Spill>>,
    /// Number of sending threads. One is enough for about 100 000 events per second.
    pub threads: NonZeroUsize,
}

impl LoadSpec {
    /// Returns true if requests have no due times of their own and fall due when slots become free.
    pub(super) fn is_closed_loop(&self) -> bool {
        (self.concurrency.is_some() || self.sessions.is_some())
            && self.requests.iter().all(|planned| planned.due.is_zero())
    }
}
