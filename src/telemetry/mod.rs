//! What is known of the machine and the engine while figures are taken: sources to samples.
//!
//! The machine as it is, what its kernel said, its devices (`gpu`), its processes, and an engine's Prometheus counters.

pub mod gpu;
pub mod kernel;
pub mod machine;
pub mod prometheus;
pub mod source;
pub mod tree;
