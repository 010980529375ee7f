//! Every type that reaches the disk. Pure.
//!
//! [`FORMAT`] is written into each run. It grows when a field changes its meaning or is taken away; a new optional field
//! does not need it. Older formats stay readable: format 1 differs in the names of fields, which are aliases now.

pub mod cell;
pub mod cell_stats;
pub mod chunks;
pub mod client;
pub mod engine_change;
pub mod event;
pub mod histogram;
pub mod last_duration;
pub mod machine;
pub mod night;
pub mod outsourced;
pub mod post_mortem;
pub mod prompt;
pub mod provenance;
pub mod request;
pub mod run;
pub mod search;
pub mod telemetry;
pub mod validity;

/// The version of the layout on disk.
pub const FORMAT: u32 = 2;
