//! What is known of the machine and the engine while figures are taken: sources to samples.
//!
//! So far: the machine as it is, what its kernel said, and an engine's Prometheus counters read before and after a window.

pub mod gpu;
pub mod kernel;
pub mod machine;
pub mod prometheus;
pub mod source;
pub mod tree;
