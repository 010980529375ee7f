//! Every type that reaches the disk. Pure.
//!
//! [`FORMAT`] is written into each run. It grows when a field changes its meaning or is removed; a new
//! optional field does not change it. Older formats stay readable: format 1 has other names of fields, which
//! are aliases now.

pub(crate) mod answer_check;
mod answer_stats;
pub mod cell;
pub mod cell_stats;
mod chunk;
pub(crate) mod chunks;
pub(crate) mod client;
pub(crate) mod connections;
pub(crate) mod engine_change;
mod engine_facts;
pub mod event;
pub(crate) mod final_answer;
pub(crate) mod graded;
pub(crate) mod histogram;
pub(crate) mod last_duration;
pub mod machine;
mod measurement_status;
mod metric_values;
pub(crate) mod nightly;
pub(crate) mod post_mortem;
pub(crate) mod prompt;
pub(crate) mod provenance;
mod reason_code;
pub mod request;
mod request_failure;
pub(crate) mod run;
pub mod search;
pub(crate) mod spilled;
pub(crate) mod stored_answers;
pub mod telemetry;
pub(crate) mod tool_call;
pub(crate) mod tune;
pub(crate) mod upgrade;
pub mod validity;

/// The version of the layout on disk.
pub(crate) const FORMAT: u32 = 2;
