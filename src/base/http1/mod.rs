//! HTTP/1.1 heads, chunks and lines as pure code over bytes, shared by `loadgen` and `sim`.

pub(crate) mod request;
pub mod response;
