//! Encodes requests and decodes answers, for each protocol. Pure: it knows no socket and no clock.
//!
//! [`encode_body()`] writes a request body with bench_serving's keys and values. [`Decoder`] reads the lines of an
//! answer as the metric set `matrix` defines them, and also keeps what bench_serving's metrics need.

mod chat;
mod completions;
mod decoded;
mod decoder;
mod embeddings;
mod encode;
mod errors;
mod expected_results;
mod fast_path;
mod form;
mod lenient;
mod messages;
mod messages_body;
mod openai;
mod params;
mod reasoning;
mod rerank;
mod responses;
mod responses_body;
mod sglang_native;
#[cfg(test)]
mod tests;
mod transcription;
mod trt;
mod truss;
mod vllm_serve;

use serde_json::{Map, Value};

pub use self::decoded::Decoded;
pub use self::decoder::{Decoder, LineKind};
#[cfg(test)]
pub(crate) use self::encode::encode;
pub(crate) use self::encode::{
    EncodedBody, REQUEST_ID_HEADER, ROUTING_KEY_HEADER, encode_body, expected_results, other_model,
    output_limit, path,
};
pub(crate) use self::expected_results::ExpectedResults;
use self::fast_path::EventShape;
pub(crate) use self::params::EncodeError;
pub(crate) use self::params::RequestParams;
use crate::loadgen::dataset::Content;
use crate::plan::Protocol;

/// Returns the body of a request, before the fields of dialect, scenario and row.
fn body(
    protocol: Protocol,
    prompt: &Content,
    params: &RequestParams<'_>,
) -> Result<Map<String, Value>, EncodeError> {
    match protocol {
        Protocol::SglangNative => sglang_native::body(prompt, params),
        Protocol::Completions => completions::body(prompt, params),
        Protocol::Chat => chat::body(prompt, params),
        Protocol::Trt => trt::body(prompt, params),
        Protocol::Truss => truss::body(prompt, params),
        Protocol::Embeddings => embeddings::body(prompt, params),
        Protocol::Messages => messages::body(prompt, params),
        Protocol::Responses => responses::body(prompt, params),
        Protocol::Rerank => rerank::body(prompt, params),
        Protocol::Transcription => Ok(transcription::body(params)),
    }
}

/// Reads one event; returns the server's message if the event reports an error.
fn read(
    protocol: Protocol,
    json: &str,
    at_ns: u64,
    decoded: &mut Decoded,
    shape: &mut EventShape,
) -> Result<Option<String>, serde_json::Error> {
    match protocol {
        Protocol::SglangNative => sglang_native::read(json, at_ns, decoded),
        Protocol::Completions | Protocol::Chat | Protocol::Truss => openai::read(json, at_ns, decoded, shape),
        Protocol::Trt => trt::read(json, at_ns, decoded),
        Protocol::Embeddings => embeddings::read(json, decoded),
        Protocol::Messages => messages::read(json, at_ns, decoded, shape),
        Protocol::Responses => responses::read(json, at_ns, decoded),
        Protocol::Rerank => rerank::read(json, decoded),
        Protocol::Transcription => transcription::read(json, at_ns, decoded, shape),
    }
}
