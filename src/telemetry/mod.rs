//! Telemetry: samples of the machine and the engine during a measurement.
//!
//! A description of the machine, the kernel log, and probes that a sampler reads periodically: the engine's
//! own metrics, the host, and the GPUs (`gpu`).

pub(crate) mod dmesg;
pub(crate) mod engine;
pub mod gpu;
pub(crate) mod host;
pub mod machine;
pub mod probe;
pub(crate) mod prometheus;
pub mod sampler;
