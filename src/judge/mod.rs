//! What the records mean. Pure: no store, no clock.

pub mod client;
pub mod compare;
pub mod metrics;
pub mod search;
pub mod validity;
pub mod window;
