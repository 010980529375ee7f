//! Encodes requests and decodes answers, for each protocol. Pure: it knows no socket and no clock.
//!
//! [`encode()`] writes a request body with bench_serving's keys and values. [`Decoder`] reads the lines of an
//! answer as the metric set `matrix` defines them, and also keeps what bench_serving's metrics need.

mod chat;
mod completions;
mod decoded;
mod decoder;
mod embeddings;
mod encode;
mod errors;
mod fast_path;
mod lenient;
mod openai;
mod params;
mod reasoning;
mod sglang_native;
mod trt;
mod truss;

pub use self::decoded::Decoded;
pub use self::decoder::{Decoder, LineKind};
pub(crate) use self::encode::{ROUTING_KEY_HEADER, encode, other_model, output_limit, path};
pub use self::params::EncodeError;
pub(crate) use self::params::RequestParams;

#[cfg(test)]
mod tests;
