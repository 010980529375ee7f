//! What is known of the machine and the engine while figures are taken: sources to samples.
//!
//! The machine as it is, what its kernel said; and sources that a sampler asks again and again: each engine's own metrics, the host, the
//! devices (`gpu`).

pub(crate) mod dmesg;
pub(crate) mod engine;
pub mod gpu;
pub(crate) mod host;
pub mod machine;
pub mod probe;
pub(crate) mod prometheus;
pub mod sampler;
