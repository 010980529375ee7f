//! Computes metrics, validity and comparisons from records. All functions are pure: no file is read, no
//! clock.

pub mod aggregate;
pub(crate) mod calibration;
pub mod compare;
pub mod metrics;
pub(crate) mod slo_search;
pub mod validity;
