//! Telemetry: samples of the machine and the engine during a measurement.
//!
//! A description of the machine, the kernel log, and probes that a sampler reads periodically: the engine's
//! own metrics, the host, and the GPUs (`gpu`).

pub(crate) mod dmesg;
pub(crate) mod engine;
pub mod gpu;
pub(crate) mod host;
pub mod machine;
pub(crate) mod node;
pub mod probe;
pub(crate) mod prometheus;
pub mod sampler;

use crate::telemetry::host::{EngineLocation, HostProbe};
use crate::telemetry::probe::Probe;

/// What the probes of a host need to know.
pub(crate) struct ProbeContext {
    pub(crate) engine: EngineLocation,
    /// CPUs near the engine's GPUs, as a list in the kernel's format.
    pub(crate) near_cpus: Option<String>,
    /// Reads an environment variable, such as a setting of a probe.
    #[expect(dead_code, reason = "telemetry probes do not support environment variables")]
    pub(crate) variable: fn(&str) -> Option<String>,
}

/// The probes of a host, for runs and for `matrix bench`. Those of GPUs and of the engine's own metrics are
/// added once it is known whether they can be read.
pub(crate) fn host_probes(context: ProbeContext) -> Vec<Box<dyn Probe>> {
    let host = HostProbe::new(context.engine).with_near_cpus(context.near_cpus.as_deref());
    vec![Box::new(host)]
}
