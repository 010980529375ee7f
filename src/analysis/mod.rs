//! What the records mean. Pure: no store, no clock.

pub mod aggregate;
pub mod calibration;
pub mod compare;
pub mod metrics;
pub mod slo_search;
pub mod validity;
