//! Prompts, arrival and endpoint in; request records out.
//!
//! [`drive()`] sends prepared requests at their due times, [`probe()`] asks for a few tokens once. Neither starts engines
//! or derives figures; the disk gets what is more than memory is to hold ([`spill`]).

pub mod client;
pub mod dataset;
pub mod drive;
mod exchange;
pub mod hub;
mod late;
pub mod probe;
pub mod protocol;
pub mod schedule;
#[cfg(test)]
mod server;
mod sink;
mod socket;
pub mod spill;
pub mod sse;
pub mod target;
mod wakes;

pub use client::{RouteError, Stamp};
pub use dataset::Content;
pub use drive::{DriveError, Driven, Effort, Item, Lag, Load, Progress, drive};
pub use late::Lateness;
pub use probe::{ProbeAnswer, ProbeError, probe};
pub use sink::Sink;
pub use spill::Spill;
pub use target::{Address, Headers, Scheme, Target, TargetError};
