//! What a load sends, and how.

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::config::scenario::Limits;
use crate::loadgen::dataset::{Content, Extras};
use crate::loadgen::sink::Sink;
use crate::loadgen::spill::Spill;
use crate::loadgen::target::Target;

/// One request to send.
#[derive(Clone, Debug)]
pub struct Item {
    /// The prompt.
    pub content: Content,
    /// Its tokens as the data set counts them.
    pub prompt_tokens: u32,
    /// Output tokens asked for.
    pub asked_tokens: u32,
    /// When it should go, after the start of the measurement. Where everything is due at once and slots are few, each falls due when
    /// it has a slot.
    pub due: Duration,
    /// The LoRA adapter.
    pub lora: Option<Arc<str>>,
    /// What its row carries beside the prompt.
    pub extras: Option<Arc<Extras>>,
}

impl Item {
    /// How many records it comes to: one for each round of a conversation.
    pub fn rounds(&self) -> usize {
        let turns = self.extras.as_ref().and_then(|extras| extras.turns.as_ref());
        1 + turns.map_or(0, Vec::len)
    }

    /// How many images its prompt has, if it may have any.
    pub(crate) fn images(&self) -> Option<usize> {
        match &self.content {
            Content::Pictures { images, .. } => Some(images.len()),
            _ => None,
        }
    }

    pub(super) fn vision_tokens(&self) -> u32 {
        self.extras.as_ref().map_or(0, |extras| extras.vision_tokens)
    }
}

/// Everything that is to be sent, and how.
#[derive(Clone, Debug)]
pub struct Load {
    /// Where it goes.
    pub target: Target,
    /// The requests.
    pub items: Vec<Item>,
    /// How many may be under way at once; `None` for no bound.
    pub concurrency: Option<NonZeroU32>,
    /// How far it may go.
    pub limits: Limits,
    /// Fields added to every request body; `null` removes one.
    pub body: Map<String, Value>,
    /// Whether answers may end where the model ends them.
    pub stop_at_eos: bool,
    /// Where records go as they end.
    pub sink: Option<Sink>,
    /// Where answers go that are more than memory is to hold; without it memory holds them all.
    pub spill: Option<Arc<Spill>>,
    /// How many threads send; one is enough for some 100 000 events a second.
    pub threads: NonZeroUsize,
}

impl Load {
    /// Whether requests have no times of their own and fall due as slots get free.
    pub(super) fn is_closed_loop(&self) -> bool {
        self.concurrency.is_some() && self.items.iter().all(|item| item.due.is_zero())
    }
}
