//! Computes metrics, validity and comparisons from records. All functions are pure: they read neither files
//! nor the clock.

pub mod aggregate;
pub(crate) mod calibration;
pub(crate) mod capacity;
pub mod compare;
pub mod graded;
pub mod metrics;
pub(crate) mod monotone_curve;
pub(crate) mod tune;
pub(crate) mod tuning;
pub(crate) mod upgrade;
pub mod validity;
