//! Prompts, arrival and endpoint in; request records out.
//!
//! [`drive()`] sends prepared requests at their due times, [`probe()`] asks for a few tokens once. Neither starts engines
//! or derives figures; the disk gets what is more than memory is to hold ([`spill`]).

mod arrival;
pub mod dataset;
pub mod generator;
pub mod hf_hub;
mod lateness;
pub mod probe;
pub mod protocol;
mod request;
pub mod route;
pub mod schedule;
mod sink;
mod socket;
pub mod spill;
pub mod sse;
pub mod target;
#[cfg(test)]
mod test_server;
mod tls;
mod wakeups;

pub use arrival::Stamp;
pub use dataset::Content;
pub use generator::{DriveError, Driven, Effort, Item, Lag, Load, Progress, drive};
pub use lateness::Lateness;
pub use probe::{ProbeAnswer, ProbeError, probe};
pub use route::RouteError;
pub use sink::Sink;
pub use spill::Spill;
pub use target::{Address, Headers, Scheme, Target, TargetError};
