//! What the records mean. Pure: no store, no clock.

pub mod aggregate;
pub(crate) mod calibration;
pub mod compare;
pub mod metrics;
pub(crate) mod slo_search;
pub mod validity;
