//! The bytes of a request.

use super::load::Item;
use super::shared::Shared;
use crate::loadgen::connection;
use crate::loadgen::dataset::Content;
use crate::loadgen::protocol::{self, Ask, EncodeError};

/// A request as it is sent.
pub(super) struct Composed {
    pub(super) bytes: Vec<u8>,
    /// The most output tokens that the bytes allow, where that is another number than was asked for.
    pub(super) limit_tokens: Option<u32>,
    /// The model that the bytes name, where it is another than the load's.
    pub(super) model: Option<String>,
}

/// The request for what an item asks.
pub(super) fn composed(item: &Item, content: &Content, shared: &Shared) -> Result<Composed, EncodeError> {
    let ask = Ask {
        model: &shared.target.model,
        tokens: item.asked_tokens,
        stop_at_eos: shared.stop_at_eos,
        body: &shared.body,
        lora: item.lora.as_deref(),
        extras: item.extras.as_deref(),
    };
    let body = protocol::encode(&shared.target.dialect, content, &ask)?;
    let limit_tokens =
        protocol::limit(&shared.target.dialect, &ask).filter(|limit| *limit != item.asked_tokens);
    let model = protocol::other_model(&shared.target.dialect, &ask);
    let bytes = connection::compose(&shared.target, ask.routing_key(), &body);
    Ok(Composed {
        bytes,
        limit_tokens,
        model,
    })
}
