//! The load generator: sends prompts to an engine and returns request records.
//!
//! [`run_load()`] sends prepared requests at their due times; [`probe()`] asks once for a few tokens. Neither
//! starts engines or derives metrics. Answers that exceed the memory budget go to the disk ([`spill`]).

mod arrival;
mod connections;
pub mod dataset;
pub(crate) mod generator;
pub(crate) mod hf_hub;
mod lateness;
pub(crate) mod probe;
pub mod protocol;
mod request;
pub(crate) mod route;
pub(crate) mod schedule;
mod sink;
mod socket;
pub(crate) mod spill;
pub mod sse;
pub(crate) mod target;
#[cfg(test)]
mod test_server;
mod tls;
mod wakeups;

pub(crate) use arrival::TimestampSource;
pub use connections::Connections;
pub use dataset::Content;
pub use generator::CancelPlan;
pub use generator::LoadSpec;
pub use generator::LoadWatch;
pub use generator::PlannedRequest;
pub use generator::run_load;
pub(crate) use generator::{LoadError, LoadResult, Progress, ThreadUsage};
pub(crate) use probe::{ProbeError, probe};
pub(crate) use sink::Sink;

pub(crate) use spill::Spill;
pub use target::Address;
pub use target::Headers;
pub use target::Scheme;
pub use target::Target;
pub(crate) use target::TargetError;
