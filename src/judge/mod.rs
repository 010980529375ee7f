//! What the records mean. Pure: no store, no clock.

pub mod metrics;
pub mod search;
